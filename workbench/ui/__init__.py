"""Views for notebooks: annotated sources, plots, and pictures of a kernel's memory requests and warps.

Every view also has a plain-text form for terminals. The names are loaded when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.base.lazy import lazily

_LAZY = {
    "source_view": "workbench.ui.source_widget",
    "warp_map": "workbench.ui.sector_picture",
    "bank_map": "workbench.ui.bank_picture",
    "warp_maps": "workbench.ui.request_stepper",
    "bank_maps": "workbench.ui.request_stepper",
    "warp_timeline": "workbench.ui.kernel.timeline_picture",
    "pipeline_view": "workbench.ui.kernel.pipeline_picture",
}

__all__ = list(_LAZY)

if TYPE_CHECKING:
    from workbench.ui.bank_picture import bank_map as bank_map
    from workbench.ui.kernel.pipeline_picture import pipeline_view as pipeline_view
    from workbench.ui.kernel.timeline_picture import warp_timeline as warp_timeline
    from workbench.ui.request_stepper import bank_maps as bank_maps
    from workbench.ui.request_stepper import warp_maps as warp_maps
    from workbench.ui.sector_picture import warp_map as warp_map
    from workbench.ui.source_widget import source_view as source_view


__getattr__, __dir__ = lazily(__name__, _LAZY)
