"""Asks an installed nvcc which names it has without an ``#include``, and what they are.

``python nvcc_names.py`` prints a line for each: a macro with its type and value, or an arithmetic type.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path

_SHOW = r"""
#include <cstdio>
#include <type_traits>
template <class T> void show(const char *name, T value) {
    if constexpr (std::is_floating_point<T>::value) printf("%s real %d %a\n", name, (int)sizeof(T), (double)value);
    else if constexpr (std::is_integral<T>::value) printf("%s whole %d %lld\n", name, (int)sizeof(T), (long long)value);
}
"""
_EXTENDED = re.compile(r"[fF](?:32|64|128)[xX]?$")
"""Names of types that device code does not have."""


def names(nvcc: Path) -> dict[str, tuple[str, int, float]]:
    """Name -> kind ("real", "whole", "type of ..."), bytes and value of all numbers and their types that nvcc has."""
    with tempfile.TemporaryDirectory() as folder:
        empty = Path(folder, "empty.cu")
        empty.write_text("")
        run = [str(nvcc), "-arch=sm_80", str(empty), "-E"]
        macros = re.findall(r"^#define ([A-Za-z]\w*) ", _output([*run, "-Xcompiler", "-dM"]), re.MULTILINE)
        text = re.sub(r"^#.*$", "", _output(run), flags=re.MULTILINE)
        types = re.findall(r"\btypedef\s+[^;{}()]*?\b([A-Za-z]\w*)\s*;", text)
        found = {}
        for form, given in (('show("{0}", {0});', macros), ('show("type {0}", ({0})0);', types)):
            wanted = sorted({name for name in given if not _EXTENDED.search(name)})
            found |= _shown(nvcc, Path(folder), form, wanted)
        return found


def _shown(nvcc: Path, folder: Path, form: str, wanted: list[str]) -> dict[str, tuple[str, int, float]]:
    source, program = folder / "shown.cu", folder / "shown"
    first = _SHOW.count("\n") + 1
    while True:
        lines = [f"void f{index}() {{ {form.format(name)} }}" for index, name in enumerate(wanted)]
        calls = "".join(f"f{index}();" for index in range(len(wanted)))
        source.write_text(_SHOW + "\n".join([*lines, f"int main() {{ {calls} }}"]))
        command = [str(nvcc), "-w", "-std=c++17", "-arch=sm_80", str(source), "-o", str(program)]
        command.append(f"-L{nvcc.parent.parent / 'lib'}")  # pip's nvcc looks in lib64
        done = subprocess.run(command, capture_output=True, text=True)
        wrong = {int(line) - first for line in re.findall(r"shown\.cu[(:](\d+)\D", done.stderr)}
        if done.returncode == 0:
            break
        kept = [name for index, name in enumerate(wanted) if index not in wrong]
        if len(kept) == len(wanted):
            raise RuntimeError(done.stderr)
        wanted = kept
    found = {}
    for line in _output([str(program)]).splitlines():
        name, kind, size, value = line.removeprefix("type ").split()
        kind = f"type of {kind}" if line.startswith("type ") else kind
        found[name] = kind, int(size), float.fromhex(value) if "real" in kind else int(value)
    return found


def _output(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    from workbench.toolchain.nvcc import program

    for name, (kind, size, value) in names(program()).items():
        print(name, kind, size, value)
