"""Loads nbval, for the tests and the notebooks, seconds sooner than it loads by itself.

It imports jsonschema, which compiles a grammar of internationalized addresses where there is one; nothing here has any.
"""

import importlib.util
import sys

if "nbval.plugin" not in sys.modules and importlib.util.find_spec("nbval") is not None:
    sys.modules.setdefault("rfc3987_syntax", None)
    pytest_plugins = ["nbval.plugin"]
