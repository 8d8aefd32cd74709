"""The runner of ``workbench run``: a program in Python or CUDA C++ on the simulated devices, each launch watched."""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import os
import runpy
import shlex
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from workbench.analysis.check_report import fault_text
from workbench.analysis.host_calls import counted
from workbench.analysis.launches import Launches
from workbench.analysis.numerics import NumericsReport
from workbench.analysis.refused_launches import notes_of
from workbench.analysis.seen_launches import SeenLaunch
from workbench.analysis.watching import Watch, watch
from workbench.base.terminal import say
from workbench.driver.attributes import device_facts
from workbench.driver.imports import when_imported
from workbench.driver.simulated import current, provide_programs, real_device, simulated_driver
from workbench.driver.torch_device.library import installed_torch
from workbench.driver.torch_device.starting import attach, refuse_interpreter
from workbench.errors import ArgumentError, DeviceUnavailableError, HostCallFault, KernelFault
from workbench.programs import children
from workbench.programs.child_commands import run_command
from workbench.programs.device_options import DeviceOptions
from workbench.programs.targets import SOURCES, TargetKind, kind_of
from workbench.ptx import LaunchOptions
from workbench.ptx.numerics import NumericsLog
from workbench.ptx.options import LaunchDebugger

_OBJECTS = (".c", ".o", ".a")
Told = Callable[[list[SeenLaunch]], int]
"""A report on the launches of a program that has ended; it returns an exit status."""
FOUND, NOTHING_RAN = 1, 2  # exit statuses under --check for a program that itself succeeds


def run_program(
    target: str,
    arguments: Sequence[str],
    options: DeviceOptions,
    *,
    module: bool = False,
    page: str | None = None,
    nvcc: str = "",
    told: Told | None = None,
) -> int:
    """Run ``python target arguments...`` (``python -m target`` with ``module``) and return its exit status.

    A ``target`` may also be a command on PATH, such as ``make``: it finds our ``nvcc``, and the programs that it builds
    and starts join this run. An executable linked with CUDA's shared runtime, by any linker, joins too. A ``.cu`` file
    is compiled, with the words of ``nvcc`` as options and further files; its ``main`` is then called in this process,
    which ends with it. A shared object that has a ``main`` and no CUDA runtime inside runs in the same way.

    With ``options.check`` the run ends with a report on stderr; the status is then 1 for a finding, and 2 if nothing
    was launched. ``options.strict`` also counts notes as findings. With ``options.trace`` the launches are written to
    ``page``, an HTML file. If there is a real GPU and not ``options.force``, the program uses it as it is.

    With ``told`` the program runs in a fork of this process. However that ends, ``told`` then reports on the launches
    that ``options.prove`` has kept, and returns the status for a program that succeeded.

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
    _check("" if command else target, module, page)
    refuse_interpreter()
    real = None if options.force else real_device()
    if real is not None and (native or options.asks_for_simulation()):
        raise DeviceUnavailableError(
            f"There is a real GPU, {real}, which a program would use. Add --simulated to run it on the PTX machine."
        )
    if real is not None:
        return run_command([target, *arguments]) if command else _run(target, arguments, module, options.check)
    library = _program(Path(target), options.code_arch, shlex.split(nvcc)) if native else None
    with contextlib.ExitStack() as stack:
        launches = stack.enter_context(children.shared(options))
        if told is not None and (status := _status_of_fork()) is not None:
            found = told(launches.seen.take_all())
            return status or found
        if command:
            facts = device_facts(options.model_key, options.exact_name)
            provide_programs(facts, options.devices, options.memory_bytes)
        else:
            start_devices(launches, options)

        words = ["workbench", "run", "--debug-on-finding", *(["-m"] if module else []), target, *arguments]
        inside = "" if command or options.debug_on_finding else shlex.join(words)

        def finish(status: int) -> int:
            with stack if told is None else contextlib.nullcontext():  # else it is the parent's
                return _finish(launches, status, options.check, page, " ".join([target, *arguments]), inside)

        if command:
            return finish(run_command([target, *arguments]))
        if library is None:
            status = finish(_run(target, arguments, module, options.check))
            return status if told is None else _leave(status)
        from workbench.programs.native import run_main
        from workbench.programs.native import told as told_by_runtime

        run_main(library, [target, *arguments], lambda status: finish(told_by_runtime(status, options.check)))


def _status_of_fork() -> int | None:
    """Fork this process; return None in the fork, and in the parent the fork's exit status once it has ended."""
    sys.stdout.flush()
    sys.stderr.flush()
    process = os.fork()
    if process == 0:
        return None
    while True:
        try:
            _, found = os.waitpid(process, 0)
            break
        except KeyboardInterrupt:  # it ends the program, too
            continue
    status = os.waitstatus_to_exitcode(found)
    if status < 0:
        name = signal.Signals(-status).name
        say(f"workbench: {name} ended the program; what it had launched by then is proved", err=True)
        return 128 - status
    return status


def _leave(status: int) -> NoReturn:
    """End a fork as Python ends, but for what only its parent may clean up."""
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _join_natively(path: Path, arguments: Sequence[str]) -> NoReturn:
    """Run a program started by another one under ``workbench run``; its launches go to the other one's report."""
    from workbench.programs.native import run_main, told

    launches, options = children.given()
    library = _program(path, options.code_arch, [])
    start_devices(launches, options)

    def finish(status: int) -> int:
        launches.settle()
        tell_numerics(launches, path.name)
        return told(status, options.check)

    run_main(library, [str(path), *arguments], finish)


def _program(path: Path, arch: str, words: list[str]) -> Path:
    """Return the shared object of a CUDA program; compile it if ``path`` is a source file."""
    from workbench.programs.compiling import compiled_program

    if path.suffix not in SOURCES:
        return path
    files = [Path(word) for word in words if Path(word).suffix in SOURCES + _OBJECTS]
    options = [word for word in words if Path(word).suffix not in SOURCES + _OBJECTS]
    return compiled_program([path, *files], arch, options)


def _finish(
    launches: children.RunLaunches, status: int, check: bool, page: str | None, title: str, inside: str = ""
) -> int:  # fmt: skip
    """Print the report and write the page, if asked for, and return the exit status.

    Refused launches that the program did not ask about are printed in any case.
    """
    found = _report(launches, inside) if check else _report_refused(launches, all_of_them=False)
    status = status or found
    tell_numerics(launches, title)
    if page is not None:
        from workbench.programs.launch_page import write_page

        others = launches.elsewhere()
        rows = [one.row for one in others if one.row is not None]
        faults = [f"in process {one.process}: {text}" for one in others if one.fault for text in one.texts]
        write_page(launches, Path(page), title=title, elsewhere=rows, faults=faults)
        say(f"workbench: {_count(len(launches) + len(rows))} written to {page}", err=True)
    return status


def tell_numerics(launches: Launches, title: str) -> None:
    """Print to stderr where infinities and NaN were born in this process, if its launches followed them."""
    numerics = tuple(one for row in launches for one in row.report.numerics)
    if numerics:
        say(str(NumericsReport(title, numerics)), err=True)


def join_run() -> children.RunLaunches:
    """Start the run's simulated devices in this child process of a program under ``workbench run``.

    Returns the launches, which are settled when Python ends.
    """
    launches, options = children.given()
    start_devices(launches, options)
    atexit.register(launches.settle)
    atexit.register(tell_numerics, launches, f"process {os.getpid()}")
    return launches


def _check(target: str, module: bool, page: str | None) -> None:
    if module:
        with contextlib.suppress(ModuleNotFoundError, ValueError):
            if importlib.util.find_spec(target) is not None:
                target = ""
        if target:
            raise ArgumentError("module", repr(target), "a module that can be imported", "Check its name.")
    elif target and not Path(target).is_file():
        raise ArgumentError("script", repr(target), "a Python or CUDA file", "Check the path.")
    if page is not None:
        if importlib.util.find_spec("anywidget") is None:
            remedy = "Traces need anywidget: python -m pip install anywidget"
            raise ArgumentError("trace", repr(page), "no value here", remedy)
        if not Path(page).resolve().parent.is_dir():
            raise ArgumentError("trace", repr(page), "a file in a folder that exists", "Make the folder first.")


def start_devices(launches: Launches, options: DeviceOptions) -> None:
    """Watch every launch, start the simulated driver, and prepare torch and Triton for when the program imports them.

    torch's CUDA build gets a ``cuda`` device. With the CPU build, Triton kernels take CPU tensors.
    """
    from workbench.driver.triton.driver import SimulatedTriton, checked_model

    wanted = checked_model(options.arch, options.model)
    seconds = options.seconds_limit
    log = NumericsLog(options.errors) if options.numerics else None
    debugger = _debugger() if options.debug_on_finding else None
    watch(
        Watch(
            launches, wanted, checks=options.check, trace=options.trace, seconds_limit=seconds, strict=options.strict,
            counts=options.counts, fmad=options.fmad, schedules=options.schedules,
            first_schedule=options.first_schedule, seen=launches.seen if options.prove else None,
            exact=options.exact, late=options.late, numerics=log, debugger=debugger,
        )
    )  # fmt: skip
    simulated_driver(
        options.model_key, force=True, seconds_limit=seconds, devices=options.devices,
        memory_bytes=options.memory_bytes, exact_name=options.exact_name,
    )  # fmt: skip

    def start_triton() -> SimulatedTriton:
        launch = LaunchOptions(
            checks=options.check, strict=options.strict, statistics=options.trace, seconds_limit=seconds,
            fmad=options.fmad, schedules=options.schedules, first_schedule=options.first_schedule, exact=options.exact,
            numerics=log or False, debugger=debugger,
        )  # fmt: skip
        return SimulatedTriton(wanted, launch, inductor=options.inductor, launches=launches)

    torch = installed_torch()
    if options.inductor:
        start_triton()
    elif torch is not None and torch.problem is None:
        attach(torch, start_triton, first_config=options.first_config)
    else:
        when_imported("triton", start_triton)


def _debugger() -> LaunchDebugger:
    from workbench.launch.debug.on_finding import FindingDebugger

    return FindingDebugger()


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


def _report(launches: children.RunLaunches, command: str = "") -> int:
    """Print the findings of the checks to stderr, and return the exit status.

    ``command`` is the one that stops the program at its first finding in a kernel.
    """
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
    of_host = bool(launches.faults) or any(one.count for one in elsewhere)  # copies and operators have findings, too
    if not total and not calls and not of_host:
        say("workbench: the program launched nothing on a simulated device: nothing was checked", err=True)
        return NOTHING_RAN
    found = len(launches.faults) + len(launches.unasked) + sum(one.count for one in every if one.refused)
    in_kernels = any(not isinstance(fault, HostCallFault) for fault in launches.faults)
    for launch in launches:
        for report in launches.unseen(launch):
            found += len(report)
            in_kernels = in_kernels or len(report) > 0
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
        if command and in_kernels:
            say(f"workbench: to stop inside: {command}", err=True)
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
