"""The model at work: from raw rows to health now, from files, streams or requests."""

import lazy_loader

# What other rooms may use is listed in the stub beside this file and loaded when it is first asked for.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
