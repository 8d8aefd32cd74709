"""The runner of ``workbench run``: a program in Python or CUDA C++ on the simulated devices, each launch watched."""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import os
import runpy
import shlex
import sys
import threading
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from workbench.analysis.check_report import fault_text
from workbench.analysis.host_calls import counted
from workbench.analysis.launches import Launches
from workbench.analysis.refused_launches import notes_of
from workbench.analysis.watching import Watch, watch
from workbench.base.terminal import say
from workbench.driver.attributes import DEFAULT_MODEL, device_facts
from workbench.driver.imports import when_imported
from workbench.driver.simulated import current, provide_programs, real_device, simulated_driver
from workbench.driver.torch_device.library import installed_torch
from workbench.driver.torch_device.starting import attach, refuse_interpreter
from workbench.errors import ArgumentError, DeviceUnavailableError, HostCallFault, KernelFault
from workbench.programs import children
from workbench.programs.child_commands import run_command
from workbench.programs.targets import SOURCES, TargetKind, kind_of
from workbench.ptx import LaunchOptions

_OBJECTS = (".c", ".o", ".a")
FOUND, NOTHING_RAN = 1, 2  # exit statuses under --check for a program that itself succeeds


def run_program(
    target: str,
    arguments: Sequence[str],
    *,
    module: bool = False,
    check: bool = False,
    strict: bool = False,
    trace: str | None = None,
    arch: str | None = None,
    model: str | None = None,
    seconds_limit: float | None = None,
    inductor: bool = False,
    force: bool = False,
    nvcc: str = "",
    first_config: bool = False,
    devices: int = 1,
    memory_gib: float | None = None,
    exact_name: bool = False,
    fmad: bool = True,
) -> int:
    """Run ``python target arguments...`` (``python -m target`` with ``module``) and return its exit status.

    A ``target`` may also be a command on PATH, such as ``make``: it finds our ``nvcc``, and the programs that it builds
    and starts join this run. An executable linked with CUDA's shared runtime, by any linker, joins too. A ``.cu`` file
    is compiled, with the words of ``nvcc`` as options and further files; its ``main`` is then called in this process,
    which ends with it. A shared object that has a ``main`` and no CUDA runtime inside runs in the same way.

    ``check`` watches every launch and ends with a report on stderr; the status is then 1 for a finding, and 2 if
    nothing was launched. ``strict`` is ``check`` that also counts notes as findings and looks for more. ``trace`` is
    the HTML file to which the launches are written. Without these options a real GPU, if there is one and not
    ``force``, is used as it is. ``arch`` and ``model`` choose the simulated devices (default: an H200 for PyCUDA, an
    A100 for Triton), ``seconds_limit`` the time limit of a launch. With ``inductor``, ``torch.compile`` generates
    Triton kernels for CPU tensors. With ``first_config`` a Triton autotuner takes its first configuration that runs.
    There are this many ``devices``, of ``memory_gib`` GiB each, with "(simulated)" in their name unless ``exact_name``.
    Without ``fmad`` no launch contracts products and sums.

    Raises ArgumentError, UnknownNameError or DeviceUnavailableError before anything runs; CompileError and
    MissingToolError for a CUDA program.
    """
    kind = kind_of(target, module)
    command, native = kind is TargetKind.COMMAND, kind in (TargetKind.SOURCE, TargetKind.LIBRARY)
    if nvcc and kind is not TargetKind.SOURCE:
        raise ArgumentError("nvcc", repr(nvcc), "no options", "They are for a program in CUDA C++.")
    if native and children.VARIABLE in os.environ:
        return _join_natively(Path(target), arguments)
    sys.path[0] = os.getcwd() if module else str(Path(target).resolve().parent)
    check |= strict
    _check("" if command else target, module, trace)
    refuse_interpreter()
    real = None if force else real_device()
    if real is not None and (native or check or trace or arch or model or seconds_limit or inductor):
        raise DeviceUnavailableError(
            f"There is a real GPU, {real}, which a program would use. Add --simulated to run it on the PTX machine."
        )
    if real is not None:
        return run_command([target, *arguments]) if command else _run(target, arguments, module, check)
    options: dict[str, Any] = {
        "arch": arch, "model": model, "check": check, "strict": strict, "trace": trace is not None,
        "seconds_limit": seconds_limit, "inductor": inductor, "first_config": first_config,
        "devices": devices, "memory_gib": memory_gib, "exact_name": exact_name, "fmad": fmad,
    }  # fmt: skip
    library = _program(Path(target), arch, model, shlex.split(nvcc)) if native else None
    with contextlib.ExitStack() as stack:
        launches = stack.enter_context(children.shared(options, _arch(arch, model)))
        if command:
            provide_programs(device_facts(_model_key(arch, model), exact_name), devices, _bytes(memory_gib))
        else:
            start_devices(launches, **options)

        def finish(status: int) -> int:
            with stack:
                return _finish(launches, status, check, trace, " ".join([target, *arguments]))

        if command:
            return finish(run_command([target, *arguments]))
        if library is None:
            return finish(_run(target, arguments, module, check))
        from workbench.programs.native import run_main, told

        run_main(library, [target, *arguments], lambda status: finish(told(status, check)))


def _join_natively(path: Path, arguments: Sequence[str]) -> NoReturn:
    """Run a program started by another one under ``workbench run``; its launches go to the other one's report."""
    from workbench.programs.native import run_main, told

    launches, options = children.given()
    library = _program(path, options["arch"], options["model"], [])
    start_devices(launches, **(options | {"inductor": False}))

    def finish(status: int) -> int:
        launches.settle()
        return told(status, options["check"])

    run_main(library, [str(path), *arguments], finish)


def _program(path: Path, arch: str | None, model: str | None, words: list[str]) -> Path:
    """Return the shared object of a CUDA program; compile it if ``path`` is a source file."""
    from workbench.programs.compiling import compiled_program

    if path.suffix not in SOURCES:
        return path
    files = [Path(word) for word in words if Path(word).suffix in SOURCES + _OBJECTS]
    options = [word for word in words if Path(word).suffix not in SOURCES + _OBJECTS]
    return compiled_program([path, *files], _arch(arch, model), options)


def _arch(arch: str | None, model: str | None) -> str:
    """Return the architecture to compile for: the given one, which may have a letter, or the model's."""
    facts = device_facts(_model_key(arch, model))
    return arch or facts.arch


def _bytes(gib: float | None) -> int | None:
    return None if gib is None else int(gib * 2**30)


def _model_key(arch: str | None, model: str | None) -> str:
    from workbench.driver.triton.driver import checked_model

    return DEFAULT_MODEL if arch is None and model is None else checked_model(arch, model).key


def _finish(launches: children.RunLaunches, status: int, check: bool, trace: str | None, title: str) -> int:
    """Print the report and write the page, if asked for, and return the exit status.

    Refused launches that the program did not ask about are printed in any case.
    """
    found = _report(launches) if check else _report_refused(launches, all_of_them=False)
    status = status or found
    if trace is not None:
        from workbench.programs.launch_page import write_page

        others = launches.elsewhere()
        rows = [one.row for one in others if one.row is not None]
        faults = [f"in process {one.process}: {text}" for one in others if one.fault for text in one.texts]
        write_page(launches, Path(trace), title=title, elsewhere=rows, faults=faults)
        say(f"workbench: {_count(len(launches) + len(rows))} written to {trace}", err=True)
    return status


def join_run() -> children.RunLaunches:
    """Start the run's simulated devices in this child process of a program under ``workbench run``.

    Returns the launches, which are settled when Python ends.
    """
    launches, options = children.given()
    start_devices(launches, **(options | {"inductor": False}))
    atexit.register(launches.settle)
    return launches


def _check(target: str, module: bool, trace: str | None) -> None:
    if module:
        with contextlib.suppress(ModuleNotFoundError, ValueError):
            if importlib.util.find_spec(target) is not None:
                target = ""
        if target:
            raise ArgumentError("module", repr(target), "a module that can be imported", "Check its name.")
    elif target and not Path(target).is_file():
        raise ArgumentError("script", repr(target), "a Python or CUDA file", "Check the path.")
    if trace is not None:
        if importlib.util.find_spec("anywidget") is None:
            raise ArgumentError(
                "trace", repr(trace), "no value here", "Traces need anywidget: python -m pip install anywidget"
            )
        if not Path(trace).resolve().parent.is_dir():
            raise ArgumentError("trace", repr(trace), "a file in a folder that exists", "Make the folder first.")


def start_devices(
    launches: Launches, *, arch: str | None, model: str | None, check: bool, strict: bool, trace: bool,
    seconds_limit: float | None, inductor: bool, first_config: bool, devices: int = 1, memory_gib: float | None = None,
    exact_name: bool = False, counts: bool = False, fmad: bool = True,
) -> None:  # fmt: skip
    """Watch every launch, start the simulated driver, and prepare torch and Triton for when the program imports them.

    torch's CUDA build gets a ``cuda`` device. With the CPU build, Triton kernels take CPU tensors.
    """
    from workbench.driver.triton.driver import SimulatedTriton, checked_model

    wanted = checked_model(arch, model)
    watch(Watch(launches, wanted, check, trace, seconds_limit, strict, counts, fmad=fmad))
    simulated_driver(
        _model_key(arch, model), force=True, seconds_limit=seconds_limit, devices=devices,
        memory_bytes=_bytes(memory_gib), exact_name=exact_name,
    )  # fmt: skip

    def start_triton() -> SimulatedTriton:
        options = LaunchOptions(checks=check, strict=strict, statistics=trace, seconds_limit=seconds_limit, fmad=fmad)
        return SimulatedTriton(wanted, options, inductor=inductor, launches=launches, show=lambda report: None)

    torch = installed_torch()
    if inductor:
        start_triton()
    elif torch is not None and torch.problem is None:
        attach(torch, start_triton, first_config=first_config)
    else:
        when_imported("triton", start_triton)


def _run(target: str, arguments: Sequence[str], module: bool, check: bool) -> int:
    """Run a Python file or module as ``__main__`` and return its exit status.

    An exception is printed as Python prints it, with a traceback that starts in the program itself.
    """
    sys.argv = [target, *arguments]
    try:
        if module:
            runpy.run_module(target, run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(target, run_name="__main__")
        for thread in threading.enumerate():
            if thread is not threading.current_thread() and not thread.daemon:
                thread.join()
    except SystemExit as leaving:
        if leaving.code is None or isinstance(leaving.code, int):
            return leaving.code or 0
        print(leaving.code, file=sys.stderr)
        return 1
    except BaseException as error:
        own = (__file__, runpy.__file__, "<frozen runpy>")
        step = error.__traceback__
        while step is not None and step.tb_frame.f_code.co_filename in own:
            step = step.tb_next
        sys.stdout.flush()
        traceback.print_exception(type(error), error, step or error.__traceback__)
        if (advice := _advice(error, check)) is not None:
            say(f"workbench: {advice}", err=True)
        return 130 if isinstance(error, KeyboardInterrupt) else 1
    return 0


def _advice(error: BaseException, check: bool) -> str | None:
    """Return the advice for an exception that the program would not raise on a GPU, or None."""
    if any(said in str(error) for said in ("Torch not compiled with CUDA enabled", "from cudaGetDeviceCount()")):
        torch = installed_torch()
        return torch.problem if torch is not None else None
    if isinstance(error, KernelFault) and not check:
        return "--check reports what else is wrong"
    driver = current()
    said = driver.last_error if driver is not None else None
    if said is not None and "CUDA" in str(error) and said not in str(error):
        return f"the simulated driver said: {said}"
    return None


def _report_refused(launches: children.RunLaunches, all_of_them: bool) -> int:
    """Print refused launches to stderr; return FOUND if the program did not ask for the error of one, else 0.

    Those that it asked about are printed, as notes, only with ``all_of_them``.
    """
    sys.stdout.flush()
    found = [one.report for one in launches.unasked]
    notes = notes_of(launches.refused)
    for child in launches.elsewhere():
        if child.refused:
            (found if child.count else notes).extend(f"in process {child.process}: {text}" for text in child.texts)
    for text in found:
        say(f"workbench: {text}", err=True)
    for text in notes if all_of_them else ():
        say(f"workbench: note: {text}", err=True)
    return FOUND if found else 0


def _report(launches: children.RunLaunches) -> int:
    """Print the findings of the checks to stderr, and return the exit status."""
    sys.stdout.flush()
    every = launches.elsewhere()
    elsewhere = [one for one in every if not one.refused]
    refused = sum(one.count for one in launches.refused) + len(every) - len(elsewhere)
    calls = launches.all_host_calls()
    own = len(launches) + sum(not isinstance(fault, HostCallFault) for fault in launches.faults)
    total = own + sum(bool(one.kernel) or one.fault for one in elsewhere)
    if refused and _report_refused(launches, all_of_them=True) and not total:
        say(f"workbench: {_count(refused)} refused: nothing was checked", err=True)
        return FOUND
    if refused and not total and not calls:
        say("workbench: every launch was refused: nothing was checked", err=True)
        return NOTHING_RAN
    if not total and not calls:
        say("workbench: the program launched nothing on a simulated device: nothing was checked", err=True)
        return NOTHING_RAN
    found = len(launches.faults) + len(launches.unasked) + sum(one.count for one in every if one.refused)
    for launch in launches:
        for report in launches.unseen(launch):
            found += len(report)
            say(f"workbench: {report}", err=True)
    for fault in launches.faults:
        say(f"workbench: {fault_text(fault)}", err=True)
    driver = current()
    for note in [*driver.heap_leaks, *driver.memory_notes] if driver is not None else ():
        say(f"workbench: note: {note}", err=True)
    for one in elsewhere:
        found += one.count
        for text in one.texts:
            say(f"workbench: in process {one.process}: {text}", err=True)
    if calls:
        say(f"workbench: {counted(calls)} on the host, not simulated: bounds checked", err=True)
    launched = _count(total)
    if found:
        not_run = f", {refused} refused" if refused else ""
        say(f"workbench: {launched} checked{not_run}, {found} finding{'s' if found != 1 else ''}", err=True)
        return FOUND
    kernels = dict.fromkeys(
        [launch.kernel.label for launch in launches] + [one.kernel for one in elsewhere if one.kernel]
    )
    checked = f"{launched} of {', '.join(kernels)} checked: " if kernels else ""
    say(f"workbench: {checked}nothing found", err=True)
    return 0


def _count(launches: int) -> str:
    return f"{launches} launch{'es' if launches != 1 else ''}"
