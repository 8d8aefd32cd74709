"""Shorter torch headers for the files of an extension.

For a small file a compiler spends nearly all of its time in torch/extension.h: 17 MB of modules, optimizers, data
loaders, TorchScript and declarations of 2,500 operators. nvcc reads it three times (its host front end, its device
front end, the host compiler). So a file first gets shorter headers in its place, as far as they suffice:

* ``operators_by_name``: tensors, dispatch, and of torch's functions those whose names the file has. torch supports that
  by its macro AT_PER_OPERATOR_HEADERS;
* ``bindings``: the same with pybind11 and torch's conversions, for a file that names pybind11;
* ``tensors``: tensors, all operators and dispatch, for a CUDA file that needs more than its names show.

They declare the same functions, so that a file that compiles with them does the same. One that uses other names, or
does not compile this way, gets torch's own header.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

_FOLDER = Path(__file__).with_name("headers_of_torch")
OPERATORS, BINDINGS, TENSORS = _FOLDER / "operators_by_name", _FOLDER / "bindings", _FOLDER / "tensors"

_INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"\n]+)[>"]', re.MULTILINE)
_WHOLE = ("torch/extension.h", "torch/all.h")
_LONG = (*_WHOLE, "torch/types.h", "ATen/ATen.h")
# Headers that name no operator in a function of their own, or include its header.
_KNOWN = re.compile(
    r"(?:ATen|c10|torch|cuda|cub|thrust|cooperative_groups|cutlass|cute|nv|pybind11)/.*|[a-z_]+|"
    r"(?:cu\w+|c?math|mma|nvToolsExt|vector_types|device_launch_parameters|cooperative_groups|"
    r"assert|float|inttypes|limits|std\w+|string|time)\.h(?:pp)?"
)
_PYTHON = re.compile(r"PYBIND11_|\bpybind11\b|\bpy::")
_BEYOND = re.compile(r"\bTHP|\btorch::(?:nn|optim|data|jit|autograd|serialize)\b")
# Functions of other headers; gradients, which torch's functions track and at's do not; and overloads for an int of var
# and std, without which another one fits.
_BEYOND_NAMES = re.compile(
    r"\bTORCH_LIBRARY|\bIValue\b|\b(?:indexing|Slice|requires_grad\w*|TensorList|ITensorListRef)\b|"
    r"\b(?:torch|at)::(?:fft|linalg|special|sparse|nested|tensor)\b|"
    r"(?<!std::)(?<!\w)(?:var|var_mean|std_mean)\s*\(|\b(?:torch|at)::(?:var|std)\b|\bstd\s*\("
)
_NAME = re.compile(r"(?<![\w.])(?<!->)[a-zA-Z_]\w*")


def shorter_headers(words: Sequence[str]) -> list[str]:
    """Return a compiler's options for shorter headers.

    The list is empty unless the command compiles exactly one file of C++ or CUDA C++, which includes torch's headers
    and can do with the shorter ones.
    """
    sources = [Path(word) for word in words if word.endswith((".cu", ".cpp")) and not word.startswith("-")]
    if not {"-c", "--compile"} & set(words) or len(sources) != 1:
        return []
    try:
        text = sources[0].read_text(errors="replace")
    except OSError:
        return []  # the compiler reports the unreadable file
    included = [name for _, name in _INCLUDE.findall(text)]
    if not set(_LONG) & set(included) or _BEYOND.search(text):
        return []
    python = bool(_PYTHON.search(text))
    if not _BEYOND_NAMES.search(text) and all(map(_KNOWN.fullmatch, included)):
        return _by_name(text, words, python)
    fits = sources[0].suffix == ".cu" and set(_WHOLE) & set(included) and not python
    return [f"-I{TENSORS}"] if fits else []


def _by_name(text: str, words: Sequence[str], python: bool) -> list[str]:
    """Return options for the headers of the operators that a text names; none if torch's are not found."""
    folders = [folder for folder in _include_folders(words) if (folder / "ATen" / "ops").is_dir()]
    if not folders:
        return []
    operators = sorted(name for name in {*_NAME.findall(text)} if (folders[0] / "ATen" / "ops" / f"{name}.h").is_file())
    options = [f"-I{BINDINGS}"] if python else []
    options += [f"-I{OPERATORS}", "-DAT_PER_OPERATOR_HEADERS"]
    return [*options, *(word for name in operators for word in ("-include", f"ATen/ops/{name}.h"))]


def _include_folders(words: Sequence[str]) -> Iterator[Path]:
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if word in ("-I", "-isystem"):
            yield Path(following)
        elif word.startswith("-I"):
            yield Path(word[2:])
        elif word.startswith("-isystem"):
            yield Path(word[len("-isystem") :])


def compile_shorter(before: Sequence[str], own: Sequence[str], after: Sequence[str] = ()) -> int | None:
    """Run a compiler with shorter headers for its ``own`` words; return 0, or None if that is not to be or fails.

    ``before`` are the compiler and options in front of its own words, ``after`` those behind them.
    """
    shorter = shorter_headers(own)
    if not shorter:
        return None
    done = subprocess.run([*before, *shorter, *own, *after], capture_output=True, check=False)
    if done.returncode != 0:
        return None
    sys.stdout.buffer.write(done.stdout)
    sys.stderr.buffer.write(done.stderr)
    return 0


def main(words: Sequence[str]) -> int:
    """Run the host compiler, ``c++``, for a build of torch's: the program ``torch-c++`` beside our nvcc."""
    compiler = shutil.which("c++")
    if compiler is None:
        sys.stderr.write("torch-c++: c++ was not found: apt-get install g++\n")
        return 127
    status = compile_shorter([compiler], words)
    return subprocess.run([compiler, *words], check=False).returncode if status is None else status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
