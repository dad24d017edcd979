"""Federated health prognosis: one SoH or RUL model trained across owners who keep their data.

>>> import fedprognos as fp
>>> "run" in dir(fp)
True
"""

import lazy_loader

__version__ = "0.1.0"
# The public names are listed in the stub beside this file and loaded when they are first asked for.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
