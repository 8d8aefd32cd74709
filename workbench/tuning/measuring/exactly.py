"""Exact comparison of the configurations of a tuning run with each other."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

from workbench.analysis.device_models import placed
from workbench.analysis.exact import Beside
from workbench.ops.exact_runs import exact_column
from workbench.tuning.result.run import TuningRun


def with_exact_answers(run: TuningRun, stop: threading.Event | None) -> TuningRun:
    """Return the run with an answer for each correct configuration, beside the untuned one of its variant.

    Without a correct untuned one it is the first in the order of the space. Ctrl-C, or setting ``stop``, ends it with
    the answers so far.
    """
    found: dict[int, Beside] = {}
    interrupted = run.interrupted
    try:
        variants: Any = run.variants  # those of a replay are not run
        for variant in variants:
            usual = variant.default_config(placed(run.cases[0].problem(arch=run.device.arch), run.device, run.model))
            for case in run.cases:
                trials = [one for one in run.trials if (one.variant, one.case) == (variant.name, case.name)]
                trials.sort(key=lambda one: one.config != usual)
                answers = exact_column(case, [(variant, one) for one in trials])
                for trial, answer in zip(trials, answers, strict=True):
                    if stop is not None and stop.is_set():
                        raise KeyboardInterrupt
                    if answer is not None:
                        found[id(trial)] = answer
    except KeyboardInterrupt:
        interrupted = True
    return replace(run, exact=tuple(found.get(id(trial)) for trial in run.trials), interrupted=interrupted)
