"""Programs with host code: linked with the simulated driver, its runtime, and an entry point that starts both.

The ``nvcc`` on PATH of a simulated process passes such programs to NVIDIA's nvcc. The result is a shared object,
because its kernels run inside a Python process that loads it. It can be started all the same: Linux jumps to its entry
point, which executes ``python -m workbench.cli run`` with the program's own name and arguments.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from workbench.base.files import replace_file
from workbench.base.home import cache_part
from workbench.base.kept_entries import hold
from workbench.base.own_files import seal, sealed
from workbench.driver.clients.torch_headers import compile_shorter
from workbench.driver.imports import load_beside
from workbench.driver.library_files import runtime_path
from workbench.driver.toolkit import toolkit_folder
from workbench.errors import CompileError, MissingToolError
from workbench.toolchain import nvcc, tools

# Line numbers of host code, too: a refused launch is reported at the line that made it.
FLAGS = ("-lineinfo", "-no-compress", "-Xcompiler", "-fPIC,-g1", "-cudart=shared", "-cudadevrt=none")
_ARCH = "compute_90"  # fits simulated_driver()'s default device; WORKBENCH_NVCC_ARCH names another
_CMAKE_PROBE = "__cmake_determine_cuda"  # the file name with which CMake asks nvcc for its toolkit's folder
_NO_LINK = (
    "-c", "--compile", "-dc", "--device-c", "-dw", "-dlink", "--device-link", "-lib", "--lib", "-M", "-MM", "-shared",
    "--shared", "-E", "--dryrun",
)  # fmt: skip
_WITH_VALUE = (
    "-arch", "--gpu-architecture", "-code", "--gpu-code", "-gencode", "--generate-code", "-cudart", "--cudart",
)  # fmt: skip
_LIBRARIES = ("-lcudart", "-lcudart_static", "-lcuda", "-lcudadevrt")
_ENTRY = r"""
#include <elf.h>
#include <sys/syscall.h>
static long call(long number, long a, long b, long c, long d) {
#ifdef __x86_64__
  register long r10 __asm__("r10") = d;
  long result;
  __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10) : "rcx", "r11", "memory");
  return result;
#else
  register long x8 __asm__("x8") = number, x0 __asm__("x0") = a, x1 __asm__("x1") = b, x2 __asm__("x2") = c;
  register long x3 __asm__("x3") = d;
  __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3) : "memory");
  return x0;
#endif
}
enum { kOwn = 5, kMost = 4096, kCurrent = -100 };
__attribute__((used, visibility("hidden"))) void workbench_exec(long* stack) {
  static char path[kMost];
  static const char python[] = PYTHON, option[] = "-m", module[] = "workbench.cli", run[] = "run";
  static const char self[] = "/proc/self/exe";
  const long count = stack[0];
  char **given = (char**)(stack + 1), **environment = given + count + 1;
  const char* words[kMost + kOwn];
  long used = kOwn;
  call(SYS_readlinkat, kCurrent, (long)self, (long)path, kMost - 1);
  words[0] = python, words[1] = option, words[2] = module, words[3] = run, words[4] = path;
  for (long i = 1; i < count && used < kMost; ++i) words[used++] = given[i];
  words[used] = 0;
  call(SYS_execve, (long)python, (long)words, (long)environment, 0);
  call(SYS_exit_group, 127, 0, 0, 0);
}
#ifdef __x86_64__
__asm__(".globl workbench_start\n.type workbench_start, @function\nworkbench_start:\n"
        "  mov %rsp, %rdi\n  and $-16, %rsp\n  call workbench_exec\n");
#else
__asm__(".globl workbench_start\n.type workbench_start, %function\nworkbench_start:\n"
        "  mov x0, sp\n  bl workbench_exec\n");
#endif
"""


def load_libraries() -> None:
    """Load our CUDA runtime, cuBLAS, cuRAND and NCCL, so that programs and modules bind to them, not to NVIDIA's."""
    load_beside(runtime_path())


def link_options() -> list[str]:
    """Return the options that link a program with the simulated driver and let it find the libraries over it."""
    return [f"-L{toolkit_folder() / 'lib64'}", "-lcuda"]


def include_options() -> list[str]:
    """Return the options for the headers of the CUDA runtime, of CCCL, and for one that pip's packages lack."""
    folders = (tools.cuda_include(), *tools.library_includes(), Path(__file__).parent / "headers")
    return [f"-I{folder}" for folder in folders]


def call_nvcc(words: Sequence[str]) -> int:
    """Run NVIDIA's nvcc with the command line of a program's build, and return its exit status.

    The code is compiled for the simulated device. An executable becomes a shared object that can be started. Raises
    MissingToolError if there is no nvcc.
    """
    if _CMAKE_PROBE in words:
        print(f"#$ TOP={toolkit_folder()}", file=sys.stderr)
        return 1  # nvcc fails as well, because there is no such file
    own = _without_targets(words)
    virtual = os.environ.get("WORKBENCH_NVCC_ARCH", _ARCH)
    command = [str(nvcc.program()), f"-gencode=arch={virtual},code={virtual}", *FLAGS]
    if not any(word in _NO_LINK for word in own):
        command += ["-shared", "-Xlinker", "-e,workbench_start,-Bsymbolic", str(entry_object())]
    command += include_options()
    libraries = link_options()
    if compile_shorter(command, own, libraries) is not None:
        return 0
    return subprocess.run([*command, *own, *libraries], check=False).returncode


def _without_targets(words: Sequence[str]) -> list[str]:
    own, skipped = [], False
    for word in words:
        if not skipped and word.split("=")[0] not in _WITH_VALUE and word not in _LIBRARIES:
            own.append(word)
        skipped = not skipped and word in _WITH_VALUE
    return own


def entry_object(compiler: str = "gcc") -> Path:
    """Return the object file of ``workbench_start``, the entry point that executes this Python; it is compiled once.

    Raises CompileError with the compiler's messages, MissingToolError without a compiler.
    """
    if shutil.which(compiler) is None:
        raise MissingToolError(f"Linking programs needs {compiler}, which was not found: apt-get install g++")
    text = f'#define PYTHON "{sys.executable}"\n{_ENTRY}'
    path = cache_part("programs") / f"entry-{hashlib.sha256(f'sealed {compiler} {text}'.encode()).hexdigest()[:12]}.o"
    hold(path)  # as long as this process lives
    if not sealed(path):
        source = path.with_suffix(".c")
        replace_file(source, text)
        command = [compiler, "-O1", "-fPIC", "-fno-stack-protector", "-fcf-protection=none", "-c", str(source), "-o"]
        made = path.with_suffix(f".{os.getpid()}.new")
        done = subprocess.run([*command, str(made)], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise CompileError(
                f"{compiler} cannot compile the entry point of programs:", re.sub(r"\s+\n", "\n", done.stderr)
            )
        seal(made)
        made.replace(path)
    return path
