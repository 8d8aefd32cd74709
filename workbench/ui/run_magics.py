"""The magics ``%workbench`` and ``%%workbench``, which run Triton kernels of a notebook or cell on the PTX machine."""

from __future__ import annotations

import keyword
from typing import Any

from IPython.core.error import UsageError
from IPython.core.magic import Magics, line_cell_magic, magics_class
from IPython.core.magic_arguments import argument, magic_arguments, parse_argstring
from IPython.display import display

from workbench.analysis.check_report import show_report
from workbench.analysis.device_models import device_model
from workbench.analysis.launches import Launches, RecordedLaunch
from workbench.analysis.watching import Watch, watch
from workbench.base.architectures import MACHINE_ARCHS_TEXT
from workbench.base.time_limit import NOTEBOOK_SECONDS, seconds_of
from workbench.driver.attributes import DEFAULT_MODEL
from workbench.driver.torch_device.starting import simulated_gpu
from workbench.driver.triton.driver import SimulatedTriton, simulated_triton
from workbench.ui.magics import limit_of


class CellFailed(Exception):
    """A failure of a ``%%workbench`` cell that IPython has shown already; it stops the notebook, with no traceback."""

    def _render_traceback_(self, *_: Any) -> list[str]:
        return []


class _ShownLaunches(Launches):
    """Launches whose findings are shown below their cell."""

    def add(self, *launch: Any, **options: Any) -> RecordedLaunch:
        """Add a launch as `Launches.add` does, and show its findings."""
        row = super().add(*launch, **options)
        if row.findings or row.notes:
            show_report(row.check)
        return row


@magics_class
class RunMagics(Magics):
    """The magic ``%workbench``."""

    _device: SimulatedTriton | None = None

    @magic_arguments()
    @argument("name", nargs="?", default="launches", help="the variable for the launches (default: launches)")
    @argument("--check", action="store_true", help="run every launch with all checks and show what they find")
    @argument("--trace", action="store_true", help="trace every launch line by line; a cell shows the traces")
    @argument("--arch", help=f"{MACHINE_ARCHS_TEXT} (default: the model's, else sm_80)")
    @argument("--model", help="the GPU that the PTX machine simulates (default: a100-sxm-80gb)")
    @argument("--inductor", action="store_true", help="also run what torch.compile writes for CPU tensors")
    @argument(
        "--seconds-limit", type=float, default=NOTEBOOK_SECONDS, metavar="S",
        help="time limit of a launch; 0 for no limit (default: %(default)g)",
    )  # fmt: skip
    @argument("--gpu", action="store_true", help="give torch's CUDA build a cuda device; before import torch, for good")
    @argument("--force", action="store_true", help="simulate even if there is a GPU")
    @argument("--off", action="store_true", help="restore Triton's own driver")
    @line_cell_magic
    def workbench(self, line: str, cell: str | None = None) -> None:
        """Run Triton kernels on the PTX machine, on CPU tensors.

        ``%workbench`` does so from here on, ``%%workbench`` in its cell. With ``--gpu`` torch gets a ``cuda`` device
        instead, until the end of the notebook. The variable ``launches`` has the launches. With ``--check`` a launch
        shows its findings below the cell and runs on; with ``--trace`` a cell ends with the traces of its launches,
        line by line.
        """
        given = parse_argstring(self.workbench, line)
        if not given.name.isidentifier() or keyword.iskeyword(given.name):
            raise UsageError(f"%workbench: {given.name!r} is not a valid variable name")
        if cell is None and self._device is not None:
            self._device.close()
            self._device = None
        if given.off:
            return
        if given.gpu:
            self._start_gpu(given, cell)
            return
        device = simulated_triton(
            given.arch, given.model, given.check, given.trace, inductor=given.inductor, force=given.force,
            seconds_limit=limit_of(given),
        )  # fmt: skip
        self.shell.user_ns[given.name] = device.launches
        if cell is None:
            self._device = device
            return
        with device:
            if not self.shell.run_cell(cell).success:
                raise CellFailed("the cell failed")
        self._show(given, device)

    def _start_gpu(self, given: Any, cell: str | None) -> None:
        """Start torch's simulated device for the rest of the notebook, and watch each of its launches."""
        if cell is not None or given.arch or given.inductor:
            raise UsageError("%workbench --gpu cannot be combined with --arch or --inductor")
        model = given.model or DEFAULT_MODEL
        launches = _ShownLaunches()
        self.shell.user_ns[given.name] = launches
        if given.check or given.trace:
            watch(Watch(launches, device_model(model), given.check, given.trace, seconds_of(limit_of(given))))
        simulated_gpu(model, seconds_limit=limit_of(given), force=given.force)

    @staticmethod
    def _show(given: Any, device: SimulatedTriton) -> None:
        count = len(device.launches)
        if given.check and not count:
            print("no launch: nothing was checked")
        elif given.check and not device.findings:
            print(f"{count} launch{'es' if count != 1 else ''} checked: nothing found")
        if given.trace:
            for launch in device.launches:
                if launch.like is None:
                    display(launch.trace)
