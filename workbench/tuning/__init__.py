"""Tuning: search a variant's configurations, keep every outcome, hand the winner to the op.

`tune` is the whole of it. Its parts can be used alone: `evaluate` tries one configuration, `Space` enumerates and
explains, `Store` keeps, `predict` turns the simulator's counts into a time, `lookup` reads the tuned tables.
"""

from typing import TYPE_CHECKING

from workbench.base.lazy import lazily

_LAZY = {
    "OUTCOMES": "workbench.base.trials.trial",
    "STRATEGIES": "workbench.tuning.search",
    "Budget": "workbench.tuning.budget",
    "CaseWinner": "workbench.tuning.result",
    "Choice": "workbench.tuning.result",
    "DeviceLostError": "workbench.tuning.measure",
    "DeviceModel": "workbench.analysis.device_models",
    "Inputs": "workbench.tuning.inputs",
    "Limits": "workbench.tuning.measure",
    "LiveTuning": "workbench.tuning.live",
    "Prediction": "workbench.analysis.prediction.predict",
    "Progress": "workbench.tuning.attempt",
    "ProgressBar": "workbench.tuning.terminal",
    "SizePoint": "workbench.tuning.bench.size_sweep",
    "SizeSweep": "workbench.tuning.bench.size_sweep",
    "Space": "workbench.tuning.space",
    "Store": "workbench.base.trials.store",
    "Sweep": "workbench.tuning.sweep_record",
    "Trial": "workbench.base.trials.trial",
    "TuningRun": "workbench.tuning.run",
    "device_model": "workbench.analysis.device_models",
    "device_models": "workbench.analysis.device_models",
    "evaluate": "workbench.tuning.measure",
    "lookup": "workbench.tuning.table",
    "predict": "workbench.analysis.prediction.predict",
    "summary_table": "workbench.tuning.summary",
    "sweep_of": "workbench.tuning.sweep",
    "tune": "workbench.tuning.tuner",
}

__all__ = [*_LAZY]

if TYPE_CHECKING:
    from workbench.analysis.device_models import DeviceModel as DeviceModel
    from workbench.analysis.device_models import device_model as device_model
    from workbench.analysis.device_models import device_models as device_models
    from workbench.analysis.prediction.predict import Prediction as Prediction
    from workbench.analysis.prediction.predict import predict as predict
    from workbench.base.trials.store import Store as Store
    from workbench.base.trials.trial import OUTCOMES as OUTCOMES
    from workbench.base.trials.trial import Trial as Trial
    from workbench.tuning.attempt import Progress as Progress
    from workbench.tuning.bench.size_sweep import SizePoint as SizePoint
    from workbench.tuning.bench.size_sweep import SizeSweep as SizeSweep
    from workbench.tuning.budget import Budget as Budget
    from workbench.tuning.inputs import Inputs as Inputs
    from workbench.tuning.live import LiveTuning as LiveTuning
    from workbench.tuning.measure import DeviceLostError as DeviceLostError
    from workbench.tuning.measure import Limits as Limits
    from workbench.tuning.measure import evaluate as evaluate
    from workbench.tuning.result import CaseWinner as CaseWinner
    from workbench.tuning.result import Choice as Choice
    from workbench.tuning.run import TuningRun as TuningRun
    from workbench.tuning.search import STRATEGIES as STRATEGIES
    from workbench.tuning.space import Space as Space
    from workbench.tuning.summary import summary_table as summary_table
    from workbench.tuning.sweep import sweep_of as sweep_of
    from workbench.tuning.sweep_record import Sweep as Sweep
    from workbench.tuning.table import lookup as lookup
    from workbench.tuning.terminal import ProgressBar as ProgressBar
    from workbench.tuning.tuner import tune as tune


__getattr__, __dir__ = lazily(__name__, _LAZY)
