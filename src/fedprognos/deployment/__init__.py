"""An experiment on several machines: sites that keep their data, and a coordinator.

`steps` holds the agreed run, and how its steps are signed and followed. `coordinator` and `site` are the two sides.
`flower` carries the messages, and nothing else knows what does.
"""
