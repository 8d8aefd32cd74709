"""Views for notebooks: annotated sources, plots, and pictures of a kernel's memory requests and warps.

Every view also has a plain-text form for terminals. `new_axes` and the names beside it draw the views of a package in
the same colours. The names are loaded when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.base.lazy import lazily

_LAZY = {
    "source_view": "workbench.ui.source_widget",
    "debug_view": "workbench.ui.debugger.widget",
    "debug_recording": "workbench.ui.debugger.widget",
    "warp_map": "workbench.ui.sector_picture",
    "bank_map": "workbench.ui.bank_picture",
    "warp_maps": "workbench.ui.request_stepper",
    "bank_maps": "workbench.ui.request_stepper",
    "warp_timeline": "workbench.ui.kernel.timeline_picture",
    "pipeline_view": "workbench.ui.kernel.pipeline_picture",
    "shared_layout": "workbench.ui.tile_layout",
    "SharedAccess": "workbench.ui.tile_layout",
    "LineAxes": "workbench.ui.line_plots",
    "marked_lines": "workbench.ui.line_plots",
    "figure_html": "workbench.ui.figures",
    "OKABE_ITO": "workbench.ui.plots",
    "ON_HATCH": "workbench.ui.plots",
    "box": "workbench.ui.plots",
    "in_percent": "workbench.ui.plots",
    "legend_beside": "workbench.ui.plots",
    "legend_of": "workbench.ui.plots",
    "marked": "workbench.ui.plots",
    "new_axes": "workbench.ui.plots",
}

__all__ = list(_LAZY)

if TYPE_CHECKING:
    from workbench.ui.bank_picture import bank_map as bank_map
    from workbench.ui.debugger.widget import debug_recording as debug_recording
    from workbench.ui.debugger.widget import debug_view as debug_view
    from workbench.ui.figures import figure_html as figure_html
    from workbench.ui.kernel.pipeline_picture import pipeline_view as pipeline_view
    from workbench.ui.kernel.timeline_picture import warp_timeline as warp_timeline
    from workbench.ui.line_plots import LineAxes as LineAxes
    from workbench.ui.line_plots import marked_lines as marked_lines
    from workbench.ui.plots import OKABE_ITO as OKABE_ITO
    from workbench.ui.plots import ON_HATCH as ON_HATCH
    from workbench.ui.plots import box as box
    from workbench.ui.plots import in_percent as in_percent
    from workbench.ui.plots import legend_beside as legend_beside
    from workbench.ui.plots import legend_of as legend_of
    from workbench.ui.plots import marked as marked
    from workbench.ui.plots import new_axes as new_axes
    from workbench.ui.request_stepper import bank_maps as bank_maps
    from workbench.ui.request_stepper import warp_maps as warp_maps
    from workbench.ui.sector_picture import warp_map as warp_map
    from workbench.ui.source_widget import source_view as source_view
    from workbench.ui.tile_layout import SharedAccess as SharedAccess
    from workbench.ui.tile_layout import shared_layout as shared_layout


__getattr__, __dir__ = lazily(__name__, _LAZY)
