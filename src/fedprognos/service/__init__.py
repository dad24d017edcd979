"""The service: rows in over HTTP, health out, a page to look at, and a state that survives being killed."""

import lazy_loader

# What other rooms may use is listed in the stub beside this file and loaded when it is first asked for.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
