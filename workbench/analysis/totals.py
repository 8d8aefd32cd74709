"""Totals of a run in the PTX machine: its counts, and what follows from them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from workbench.analysis.device_models import DeviceModel, device_model, model_of_arch
from workbench.analysis.lines import TracedLine
from workbench.base.memory_counts import MemoryCounts
from workbench.ptx.report import LaunchReport

if TYPE_CHECKING:
    from workbench.analysis.prediction.predict import Prediction
    from workbench.toolchain import CompiledKernel, Occupancy


@dataclass(frozen=True)
class RunTotals(MemoryCounts):
    """Counts of a run, its lines and its kernels; what summaries and hints are made from."""

    title: str
    lines: tuple[TracedLine, ...]
    report: LaunchReport
    kernels: tuple[CompiledKernel, ...] = ()
    model: DeviceModel | None = None
    """The GPU to predict for where none is named; None for one of the kernel's architecture."""

    unchecked: str = field(default="not run; checks=True, or --check, runs them", kw_only=True)
    """For a run without checks, the words that say so and how to ask for them."""

    def __post_init__(self) -> None:
        vars(self).update(vars(self.report.counts))

    @property
    def checks_brief(self) -> str:
        """Number of findings of the checks, or that there were no checks and how to ask for them."""
        if not self.report.has_checks:
            return self.unchecked
        count = len(self.report.findings)
        return f"{count or 'no'} finding{'s' if count != 1 else ''}"

    @property
    def unique_bytes(self) -> int:
        """Bytes of distinct sectors read plus distinct sectors written: the least that crosses DRAM."""
        return self.report.unique_bytes_read + self.report.unique_bytes_written

    @property
    def reuse(self) -> float | None:
        """Bytes moved per distinct byte, which is how often the caches answer for the same sector. 1 is streaming."""
        return self.bytes_moved / self.unique_bytes if self.unique_bytes else None

    @property
    def reuse_in_blocks(self) -> float | None:
        """Times that a block reads the same byte, on average: what L1 can answer."""
        once = sum(buffer.read_by_blocks for buffer in self.report.buffers)
        return sum(buffer.read_moved for buffer in self.report.buffers) / once if once else None

    @property
    def reuse_between_blocks(self) -> float | None:
        """Number of blocks that read the same byte, on average: what L2 can answer."""
        return self.report.read_reuse_between_blocks or None

    def prediction(self, model: str | DeviceModel | None = None) -> Prediction:
        """Return the time that the counts predict on a GPU.

        The default is ``self.model``, or else one of the architecture that the kernel was compiled for. Raises
        UnknownNameError for a device model that does not exist.
        """
        from workbench.analysis.prediction.counting import counts_of
        from workbench.analysis.prediction.predict import predict_counts

        found = self._model(model)
        return predict_counts(counts_of(self.report, self.kernels, found), found)

    @property
    def kernel(self) -> CompiledKernel:
        """Kernel that does the main work, with this launch's block size and dynamic shared memory."""
        return self.kernels[0]

    @property
    def occupancy(self) -> Occupancy:
        """Occupancy of the main kernel on its own architecture, from the registers and shared memory of the cubin."""
        return self.kernel.occupancy

    def _model(self, model: str | DeviceModel | None) -> DeviceModel:
        model = self.model if model is None else model
        usual = device_model(model)
        if model is not None or not self.kernels or usual.arch == self.kernel.arch:
            return usual
        return model_of_arch(self.kernel.arch) or usual
