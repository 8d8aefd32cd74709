"""The cell magic ``%%cuda``, which compiles a cell of CUDA C++ into a module; loaded by ``%load_ext workbench``."""

from __future__ import annotations

import keyword
import linecache
import re
from pathlib import Path
from typing import Any, Literal

from IPython.core.error import UsageError
from IPython.core.magic import Magics, cell_magic, magics_class
from IPython.core.magic_arguments import argument, magic_arguments, parse_argstring

from workbench.base.terminal import say
from workbench.base.time_limit import NOTEBOOK_SECONDS
from workbench.errors import CompileError
from workbench.launch import Module, load_cuda
from workbench.toolchain.source import Source, kernels_within
from workbench.ui.program_cell import is_program, run_cell_program

_MESSAGE = re.compile(r"^(In\[\d+\])\((\d+)\): ", re.MULTILINE)
_NOISE = ("Remark:", "Compilation terminated")


class CellCompileError(CompileError):
    """A cell that does not compile; a notebook shows the compiler's messages instead of a traceback."""

    def _render_traceback_(self, *_: Any) -> list[str]:
        # IPython prints these lines instead of a traceback, whose Python frames would hide the fault in the cell.
        return str(self).splitlines()


@magics_class
class CudaMagics(Magics):
    """The cell magic ``%%cuda``."""

    @magic_arguments()
    @argument("name", nargs="?", default="kernels", help="the variable that becomes the module (default: kernels)")
    @argument("--arch", help="architecture to compile for, such as sm_89 (default: the device's own)")
    @argument("-D", dest="macros", action="append", default=[], metavar="X=1", help="a macro (repeatable)")
    @argument(
        "-I", dest="include_dirs", action="append", default=[], metavar="DIR", help="folder of headers (repeatable)"
    )
    @argument("--std", help="C++ standard, such as c++20 (default: c++17)")
    @argument("--option", action="append", default=[], metavar="OPT", help="for the compiler: --option=--use_fast_math")
    @argument("--check", action="store_true", help="run every launch with all checks and show what they find")
    @argument("--trace", action="store_true", help="every launch returns a trace: memory traffic line by line")
    @argument("--strided", action="store_true", help="allow views of tensors: the kernels handle their strides")
    @argument("--device", default="auto", choices=("auto", "sim", "cuda"), help="where launches run (default: auto)")
    @argument(
        "--seconds-limit", type=float, default=NOTEBOOK_SECONDS, metavar="S",
        help="time limit of a launch in the PTX machine; 0 for no limit (default: %(default)g)",
    )  # fmt: skip
    @cell_magic
    def cuda(self, line: str, cell: str) -> None:
        """Compile a cell of CUDA C++ and put its kernels into a variable.

        ``kernels.name(grid, block, *args, shared_bytes=0)`` launches one; arguments are torch tensors, NumPy arrays and
        numbers. ``kernels["scale<float>"]`` is an instance of a template, ``kernels.globals["n"] = 4`` writes a device
        variable. Lines are counted from the ``%%cuda`` line, as in the notebook. ``--check`` and ``--trace`` run in the
        PTX machine on the CPU. With ``--check`` the launch shows its findings below the cell, runs on, and returns its
        report; with ``--trace`` it returns a Trace. A cell with a ``main`` is a program: nvcc compiles it, and the cell
        shows its output.
        """
        given = self._parse(line)
        if not given.name.isidentifier() or keyword.iskeyword(given.name):
            raise UsageError(f"%%cuda: {given.name!r} is not a valid variable name")
        # The number of the running cell: some versions of IPython count up before a cell, others after.
        number = self.shell.displayhook.prompt_count
        if is_program(cell):
            run_cell_program(cell, number, given)
            return
        source = cell_source(cell, number)
        if "__global__" not in source.text and not kernels_within(source, given.include_dirs, {}):
            raise UsageError("%%cuda: the cell defines no kernel: no function in it is __global__")
        module = _load(source, given)
        self.shell.user_ns[given.name] = module
        for remark in _remarks(module):
            say(remark)

    # IPython writes one percent sign for cell magics too.
    cuda.__doc__ = cuda.__doc__.replace("%cuda [", "%%cuda [", 1)

    def _parse(self, line: str) -> Any:
        try:
            return parse_argstring(self.cuda, line)
        except UsageError as error:
            known = " ".join(self.cuda.parser.format_usage().split()).partition("%cuda ")[2]
            raise UsageError(f"%%cuda: {error}. It takes: {known}. %%cuda? explains.") from None


def cell_source(cell: str, number: int) -> Source:
    """Return the source of a cell under the name ``In[number]``, with which traces and findings show its lines.

    Its first line is that of the magic, so that lines are counted as in the notebook.
    """
    name = f"In[{number}]"
    # An absolute path, because a compiler would prepend its folder to a relative one, and the same cell would then be
    # other code in another folder.
    path = f"/{name}"
    text = "\n" + cell
    # With None as the modification time, linecache keeps the lines although no such file exists.
    linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)
    return Source(text, path, name, Path.cwd())


def _load(source: Source, given: Any) -> Module:
    options = [*([f"--std={given.std}"] if given.std else []), *given.option]
    try:
        return load_cuda(
            source,
            arch=given.arch,
            macros=dict(_macro(text) for text in given.macros),
            options=options,
            include_dirs=given.include_dirs,
            device=given.device,
            checks=given.check,
            trace=given.trace,
            machine_code=True,  # for the remarks below the cell, which name kernels that spill
            seconds_limit=limit_of(given),
            strided=given.strided,
        )
    except CompileError as error:
        raise CellCompileError(f"The compiler refused {source.label}:", _at_lines(error.log), error.advice) from None


def limit_of(given: Any) -> float | Literal["auto"] | None:
    """Return the time limit of a magic's launches from its option, where 0 means no limit."""
    return "auto" if given.seconds_limit == NOTEBOOK_SECONDS else given.seconds_limit or None


def _macro(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    if not re.fullmatch(r"[A-Za-z_]\w*", name):
        raise UsageError(f"%%cuda: -D {text}: a macro is NAME or NAME=VALUE")
    return name, value or "1"


def _at_lines(log: str) -> str:
    """Rewrite a compiler's log: "In[5](4)" becomes "In[5], line 4", and lines without information are dropped."""
    lines = [line for line in log.replace("/In[", "In[").splitlines() if not line.startswith(_NOISE)]
    return re.sub(_MESSAGE, r"\1, line \2: ", "\n".join(lines)).strip()


def _remarks(module: Module) -> list[str]:
    """Return the compiler's warnings, and a line for each kernel that spills registers."""
    kernels = [module[name].compiled for name in module]
    logs = dict.fromkeys(_at_lines(kernel.log) for kernel in kernels if kernel.log)
    spills = [
        f"{kernel.label} spills {kernel.spill_bytes} bytes of registers per thread"
        for kernel in kernels
        if kernel.spill_bytes
    ]
    return [*logs, *spills]
