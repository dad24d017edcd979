"""The same experiment on machines of their own: sites that keep their data, and a coordinator.

Nothing here knows what carries the messages; that is an :class:`~fedprognos.deployment.carrier.Engine`, and
`deployment.flower` is one.
"""
