"""The launches that Triton's autotuner times, stored as rows of a tuning store with predicted times."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.analysis.prediction.counting import counts_of
from workbench.base.trials.store import Identity, Store
from workbench.base.trials.trial import Trial, canonical, digest
from workbench.base.versions import toolchain, versions

if TYPE_CHECKING:
    from workbench.analysis.device_models import DeviceModel
    from workbench.analysis.prediction.predict import Prediction
    from workbench.ptx import LaunchReport
    from workbench.toolchain import CompiledKernel

_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")


class Rows:
    """The rows of one session, in the store at ``path``: the op is the kernel, a case is its arguments and grid."""

    def __init__(self, path: str | Path):
        self._store = Store(path)

    def close(self) -> None:
        """Close the store."""
        self._store.close()

    def keep(
        self, launcher: Any, kernel: CompiledKernel, report: LaunchReport, prediction: Prediction, model: DeviceModel,
        values: Sequence[Any],
    ) -> None:  # fmt: skip
        """Store one timed launch; a configuration that was timed before gets the new time."""
        case = {name: _described(value) for name, value in zip(launcher.names, values, strict=False)}
        identity = Identity(
            op=kernel.label, variant="triton", language="triton",
            case_name=", ".join(f"{name} {value}" for name, value in case.items()), case_json=canonical(case),
            config=launcher.configuration(_OPTIONS), device="sim", device_description=str(model), arch=kernel.arch,
            source_hash=digest(launcher.source), toolchain=toolchain("triton"), versions=versions(),
        )  # fmt: skip
        now = time.time()
        trial = Trial(
            op=identity.op, variant=identity.variant, language=identity.language, case=identity.case_name,
            config=identity.config, device=identity.device, arch=identity.arch, outcome="ok",
            counts=counts_of(report, [kernel], model), predicted_seconds=prediction.seconds, predicted_for=model.key,
            prediction=prediction.to_dict(), started=now, finished=now,
        )  # fmt: skip
        (claim,) = self._store.claim([identity])
        if claim.state == "mine":
            self._store.begin(identity.key)
            self._store.finish(identity.key, trial)
        elif claim.state == "done":
            self._store.amend(identity.key, trial)


def _described(value: Any) -> str:
    """Return ``"float32[64, 100]"`` for a tensor, a number's own text for a number."""
    if not hasattr(value, "dtype"):
        return repr(value)
    return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
