"""An experiment on several machines: sites that keep their data, and a coordinator.

`steps` holds the agreed run, and how its steps are signed and followed. `coordinator` and `site` are the two sides.
`flower` carries the messages, and nothing else knows what does.
"""

import lazy_loader

# What other rooms may use is listed in the stub beside this file and loaded when it is first asked for.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
