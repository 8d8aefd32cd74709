"""Tuning: search a variant's configurations, keep every outcome, hand the winner to the op.

`tune` is the whole of it. Its parts can be used alone: `evaluate` tries one configuration, `Space` enumerates and
explains, `Store` keeps, `predict` turns the simulator's counts into a time, `lookup` reads the tuned tables.
"""

from workbench.analysis.device_models import DeviceModel, device_model, device_models
from workbench.analysis.prediction.predict import Prediction, predict
from workbench.base.trials.store import Store
from workbench.base.trials.trial import OUTCOMES, Trial
from workbench.tuning.attempt import Progress
from workbench.tuning.bench.size_sweep import SizePoint, SizeSweep
from workbench.tuning.inputs import Inputs
from workbench.tuning.live import LiveTuning
from workbench.tuning.measure import DeviceLostError, Limits, evaluate
from workbench.tuning.result import CaseWinner, Choice
from workbench.tuning.run import TuningRun
from workbench.tuning.search import STRATEGIES, Budget
from workbench.tuning.space import Space
from workbench.tuning.summary import summary_table
from workbench.tuning.sweep import sweep_of
from workbench.tuning.sweep_record import Sweep
from workbench.tuning.table import lookup
from workbench.tuning.terminal import ProgressBar
from workbench.tuning.tune import tune

__all__ = [
    "OUTCOMES",
    "STRATEGIES",
    "Budget",
    "CaseWinner",
    "Choice",
    "DeviceLostError",
    "DeviceModel",
    "Inputs",
    "Limits",
    "LiveTuning",
    "Prediction",
    "Progress",
    "ProgressBar",
    "SizePoint",
    "SizeSweep",
    "Space",
    "Store",
    "Sweep",
    "Trial",
    "TuningRun",
    "device_model",
    "device_models",
    "evaluate",
    "lookup",
    "predict",
    "summary_table",
    "sweep_of",
    "tune",
]
