"""Loads nbval, for the tests and the notebooks, seconds sooner than it loads by itself, and two plugins for it.

One compares all outputs, one starts kernels sooner. nbval imports jsonschema, which compiles a grammar of
internationalized addresses where there is one; nothing here has any.
"""

import importlib.util
import sys
from pathlib import Path

if "nbval.plugin" not in sys.modules and importlib.util.find_spec("nbval") is not None:
    sys.modules.setdefault("rfc3987_syntax", None)
    sys.path.insert(0, str(Path(__file__).with_name("tests")))  # also where the notebooks alone are run
    pytest_plugins = ["nbval.plugin", "masked_outputs", "warm.kernels"]
