"""Prediction of a launch's time on a GPU from the PTX machine's counts, the machine code and a device model.

Nothing here runs a kernel. `workbench.analysis.prediction.predict.predict` is the model; its constants and their
sources stand in that module. The names below are loaded when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.base.lazy import lazily

_LAZY = {
    "Counts": "workbench.base.trials.values",
    "Prediction": "workbench.analysis.prediction.predict",
    "counts_of": "workbench.analysis.prediction.counting",
    "launch_counts": "workbench.analysis.prediction.counting",
    "predict_counts": "workbench.analysis.prediction.predict",
}

__all__ = [*_LAZY]

if TYPE_CHECKING:
    from workbench.analysis.prediction.counting import counts_of as counts_of
    from workbench.analysis.prediction.counting import launch_counts as launch_counts
    from workbench.analysis.prediction.predict import Prediction as Prediction
    from workbench.analysis.prediction.predict import predict_counts as predict_counts
    from workbench.base.trials.values import Counts as Counts


__getattr__, __dir__ = lazily(__name__, _LAZY)
