"""Networks as values, their training, heads and intervals, and the bundle they travel in."""

import lazy_loader

# What other rooms may use is listed in the stub beside this file and loaded when it is first asked for: torch, which
# takes most of a second, only where something is trained or run in it.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
