"""Names of the ground for packages of ops, such as the running example.

They are element types, options and output of commands, tables and lazy imports, and are loaded when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.base.lazy import lazily as lazily

_LAZY = {
    "ELEMENT_TYPES": "workbench.base.element_types",
    "Table": "workbench.base.tables",
    "arch_number": "workbench.base.architectures",
    "checked": "workbench.base.options",
    "cuda_sources": "workbench.base.home",
    "device_option": "workbench.base.options",
    "json_option": "workbench.base.options",
    "names_wrong_kinds": "workbench.base.argument_kinds",
    "replace_file": "workbench.base.files",
    "say": "workbench.base.terminal",
    "tell": "workbench.base.options",
    "tell_on_the_way": "workbench.base.options",
    "without": "workbench.base.options",
}

__all__ = ["lazily", *_LAZY]

if TYPE_CHECKING:
    from workbench.base.architectures import arch_number as arch_number
    from workbench.base.argument_kinds import names_wrong_kinds as names_wrong_kinds
    from workbench.base.element_types import ELEMENT_TYPES as ELEMENT_TYPES
    from workbench.base.files import replace_file as replace_file
    from workbench.base.home import cuda_sources as cuda_sources
    from workbench.base.options import checked as checked
    from workbench.base.options import device_option as device_option
    from workbench.base.options import json_option as json_option
    from workbench.base.options import tell as tell
    from workbench.base.options import tell_on_the_way as tell_on_the_way
    from workbench.base.options import without as without
    from workbench.base.tables import Table as Table
    from workbench.base.terminal import say as say


__getattr__, __dir__ = lazily(__name__, _LAZY)
