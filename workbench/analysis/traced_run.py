"""The facts of one launch, or one run of a variant: counts by source line, what follows from them in total."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from workbench.analysis.device_models import DeviceModel, device_model, model_of_arch
from workbench.analysis.lines import TracedLine
from workbench.base.memory_counts import MemoryCounts
from workbench.ptx.report import LaunchReport

if TYPE_CHECKING:
    from workbench.analysis.prediction.predict import Prediction
    from workbench.ptx.recording import Recording
    from workbench.toolchain import CompiledKernel, Occupancy


@dataclass(frozen=True)
class TracedRun(MemoryCounts):
    """The facts of a run, in total and by source line; `Trace` shows them."""

    title: str
    lines: tuple[TracedLine, ...]
    report: LaunchReport
    kernels: tuple[CompiledKernel, ...] = ()

    def __post_init__(self) -> None:
        vars(self).update(vars(self.report.counts))

    # -- totals -------------------------------------------------------------------------------------------------

    @property
    def unique_bytes(self) -> int:
        """Distinct sectors read plus distinct sectors written, in bytes: what has to cross DRAM at least."""
        return self.report.unique_bytes_read + self.report.unique_bytes_written

    @property
    def reuse(self) -> float | None:
        """Bytes moved for each distinct one: how often the caches answer for the same sector. 1 is streaming."""
        return self.bytes_moved / self.unique_bytes if self.unique_bytes else None

    @property
    def reuse_in_blocks(self) -> float | None:
        """How often a block asks again, on average, for what it has read: what L1 can answer."""
        once = sum(buffer.read_by_blocks for buffer in self.report.buffers)
        return sum(buffer.read_moved for buffer in self.report.buffers) / once if once else None

    @property
    def reuse_between_blocks(self) -> float | None:
        """By how many blocks, on average, a byte is read: what L2 can answer."""
        return self.report.read_reuse_between_blocks or None

    # -- what follows -------------------------------------------------------------------------------------------

    def prediction(self, model: str | DeviceModel | None = None) -> Prediction:
        """The time that the counts predict on a GPU; default: one of the architecture that the kernel is compiled for.

        Raises UnknownNameError for a device model that does not exist.
        """
        from workbench.analysis.prediction.predict import counts_of, predict_counts

        found = self.model_for(model)
        return predict_counts(counts_of(self.report, self.kernels, found), found)

    def model_for(self, model: str | DeviceModel | None) -> DeviceModel:
        """Return the device model meant; None is one of the architecture that the kernel is compiled for."""
        usual = device_model(model)
        if model is not None or not self.kernels or usual.arch == self.kernel.arch:
            return usual
        return model_of_arch(self.kernel.arch) or usual

    @property
    def kernel(self) -> CompiledKernel:
        """The kernel that does the main work, with this launch's block size and dynamic shared memory."""
        return self.kernels[0]

    @property
    def occupancy(self) -> Occupancy:
        """Of that kernel on its own architecture, from the registers and shared memory of the cubin."""
        return self.kernel.occupancy

    @property
    def recording(self) -> Recording | None:
        """The requests and waits of one block, where ``record_block`` asked for them."""
        return self.report.recording
