"""Tuning: search a variant's configurations, keep every outcome, hand the winner to the op.

`tune` is the whole of it. Its parts can be used alone: `evaluate` tries one configuration, `Space` enumerates and
explains, `Store` keeps, `predict` turns the simulator's counts into a time, `lookup` reads the tuned tables.
"""

from typing import TYPE_CHECKING

from workbench.base.lazy import lazily

_LAZY = {
    "OUTCOMES": "workbench.base.trials.trial",
    "STRATEGIES": "workbench.tuning.search.strategies",
    "Budget": "workbench.tuning.search.budget",
    "CaseWinner": "workbench.tuning.result.tuning_result",
    "Choice": "workbench.tuning.result.tuning_result",
    "DeviceLostError": "workbench.tuning.measuring.measure",
    "DeviceModel": "workbench.analysis.device_models",
    "Limits": "workbench.tuning.measuring.attempt",
    "LiveTuning": "workbench.tuning.result.live",
    "Prediction": "workbench.analysis.prediction.predict",
    "Progress": "workbench.tuning.measuring.attempt",
    "ProgressBar": "workbench.tuning.result.terminal",
    "Space": "workbench.tuning.search.space",
    "Store": "workbench.base.trials.store",
    "Sweep": "workbench.tuning.recorded.sweep_record",
    "Trial": "workbench.base.trials.trial",
    "TuningRun": "workbench.tuning.result.run",
    "device_model": "workbench.analysis.device_models",
    "device_models": "workbench.analysis.device_models",
    "evaluate": "workbench.tuning.measuring.measure",
    "lookup": "workbench.tuning.result.table",
    "predict": "workbench.analysis.prediction.predict",
    "spearman": "workbench.tuning.search.ranking",
    "summary_table": "workbench.tuning.result.summary",
    "sweep_of": "workbench.tuning.recorded.sweep",
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
    from workbench.tuning.measuring.attempt import Limits as Limits
    from workbench.tuning.measuring.attempt import Progress as Progress
    from workbench.tuning.measuring.measure import DeviceLostError as DeviceLostError
    from workbench.tuning.measuring.measure import evaluate as evaluate
    from workbench.tuning.recorded.sweep import sweep_of as sweep_of
    from workbench.tuning.recorded.sweep_record import Sweep as Sweep
    from workbench.tuning.result.live import LiveTuning as LiveTuning
    from workbench.tuning.result.run import TuningRun as TuningRun
    from workbench.tuning.result.summary import summary_table as summary_table
    from workbench.tuning.result.table import lookup as lookup
    from workbench.tuning.result.terminal import ProgressBar as ProgressBar
    from workbench.tuning.result.tuning_result import CaseWinner as CaseWinner
    from workbench.tuning.result.tuning_result import Choice as Choice
    from workbench.tuning.search.budget import Budget as Budget
    from workbench.tuning.search.ranking import spearman as spearman
    from workbench.tuning.search.space import Space as Space
    from workbench.tuning.search.strategies import STRATEGIES as STRATEGIES
    from workbench.tuning.tuner import tune as tune


__getattr__, __dir__ = lazily(__name__, _LAZY)
