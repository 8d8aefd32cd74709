"""Compilation of CUDA C++ to a ``CompiledKernel``: one interface to NVRTC and nvcc, with a cache on disk."""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from workbench.base.demangle import demangle
from workbench.base.home import cuda_sources
from workbench.base.progress import waiting
from workbench.errors import ArgumentError, CompileError, UnknownNameError
from workbench.ptx.decode import is_installed
from workbench.ptx.parse import Parameter, parse
from workbench.toolchain import disk_cache, nvcc, nvrtc, tools
from workbench.toolchain.assembly import Assembled, Assembly
from workbench.toolchain.kernel import CompiledKernel, CompiledModule
from workbench.toolchain.remarks import split_log
from workbench.toolchain.sass import parse_ptxas_log
from workbench.toolchain.shared_memory import static_shared_bytes
from workbench.toolchain.source import KernelDeclaration, Source, include_closure, kernels_within, read_source

_COMPILERS = {"nvrtc": nvrtc, "nvcc": nvcc}

Macro = str | int | float


def compile_cuda(
    source: str | Path | Source,
    kernel: str,
    *,
    arch: str = "sm_80",
    macros: Mapping[str, Macro] | None = None,
    options: Sequence[str] = (),
    include_dirs: Sequence[str | Path] = (),
    compiler: str = "nvrtc",
    threads_per_block: int | None = None,
    dynamic_shared_bytes: int = 0,
    machine_code: bool = False,
) -> CompiledKernel:
    """Compile one kernel of a CUDA C++ source.

    ``source`` is the text or a .cu file; ``kernel`` a plain name (``"scale"``) or a C++ name expression
    (``"scale<float, 4>"``). ``macros`` become ``-D`` options; ``options`` go to the compiler unchanged. Headers are
    searched beside the file, in ``include_dirs``, in the package's ``cuda_src`` and in the CUDA toolkit.
    ``threads_per_block`` and ``dynamic_shared_bytes`` (per block) describe the intended launch, for its occupancy. With
    ``machine_code`` the same pass produces the cubin, and an error of the assembler is a CompileError here. Without it
    a second pass does so when the cubin, the registers or figures that depend on them are first read.

    Raises CompileError with the compiler's messages; UnknownNameError, with the list of kernels, for a kernel that the
    source does not have, and for an unknown compiler; ArgumentError for an unknown architecture or option;
    MissingToolError, with the remedy, without the compiler.
    """
    module = compile_cuda_module(
        source,
        kernels=[kernel],
        arch=arch,
        macros=macros,
        options=options,
        include_dirs=include_dirs,
        compiler=compiler,
        threads_per_block=threads_per_block,
        dynamic_shared_bytes=dynamic_shared_bytes,
        machine_code=machine_code,
    )
    return module[kernel]


def compile_cuda_module(
    source: str | Path | Source,
    *,
    kernels: Sequence[str] = (),
    arch: str = "sm_80",
    macros: Mapping[str, Macro] | None = None,
    options: Sequence[str] = (),
    include_dirs: Sequence[str | Path] = (),
    compiler: str = "nvrtc",
    threads_per_block: int | None = None,
    dynamic_shared_bytes: int = 0,
    machine_code: bool = False,
) -> CompiledModule:
    """Compile every kernel of a CUDA C++ source, and the instances of its templates named in ``kernels``.

    The result has the names in ``kernels`` as given, then those of the other kernels. The other arguments and the
    errors are those of `compile_cuda`.
    """
    unit = read_source(source)
    if compiler not in _COMPILERS:
        raise UnknownNameError("compiler", repr(compiler), ", ".join(_COMPILERS), "Choose one of these.")
    kernels = list(dict.fromkeys(kernels))
    own = _include_dirs(unit, include_dirs)
    flags = [*_standard(options), *_macro_flags(macros or {}), *options]
    program = _Program(compiler, unit, tuple(kernels), arch, tuple(flags), tuple(own))
    started = time.perf_counter()
    key = _key(program, macros or {})
    module = _cached(key, program, machine_code)
    if module is None:
        module = _build(program, key, started, machine_code)
    return module.for_launch(threads_per_block, dynamic_shared_bytes)


@dataclass(frozen=True)
class _Program:
    """A compiler's input: the source, its kernels, the architecture and the options."""

    compiler: str
    unit: Source
    kernels: tuple[str, ...]
    arch: str
    flags: tuple[str, ...]
    include_dirs: tuple[Path, ...]

    def compile(self, *, machine_code: bool) -> nvrtc.Output:
        """Run the compiler."""
        return _COMPILERS[self.compiler].compile(
            self.unit, self.kernels, self.arch, self.flags, self.include_dirs, machine_code=machine_code
        )

    def assembly(self, key: str | None, ptx: str) -> Assembly:
        """Return the lazy assembly of ``ptx``, this program's PTX, to machine code."""
        return Assembly(key, functools.partial(_assemble, self, ptx))


def _assemble(program: _Program, ptx: str) -> Assembled:
    compiler = _COMPILERS[program.compiler]
    return _assembled(
        compiler.assemble(ptx, program.unit, program.kernels, program.arch, program.flags, program.include_dirs)
    )


def _assembled(output: nvrtc.Output) -> Assembled:
    return Assembled(output.cubin, parse_ptxas_log(output.log), split_log(output.log)[1])


def _standard(options: Sequence[str]) -> list[str]:
    return [] if any(re.match(r"--?std\b", option) for option in options) else ["--std=c++17"]


def _macro_flags(macros: Mapping[str, Macro]) -> list[str]:
    flags = []
    for name, value in macros.items():
        if not re.fullmatch(r"[A-Za-z_]\w*", name):
            raise ArgumentError("macros", repr(name), "C identifiers", "Rename the macro.")
        flags.append(f"-D{name}={int(value) if isinstance(value, bool) else value}")
    return flags


def _include_dirs(unit: Source, include_dirs: Sequence[str | Path]) -> list[Path]:
    """Return the folders of the user's and the project's headers, in the order in which they are searched."""
    own = [unit.folder] if unit.folder is not None else []
    for folder in map(Path, include_dirs):
        if not folder.is_dir():
            raise ArgumentError("include_dirs", repr(str(folder)), "existing folders", "Check the path.")
        own.append(folder.absolute())
    return [*own, cuda_sources()]


def _key(program: _Program, macros: Mapping[str, Macro]) -> str | None:
    """Hash everything that the result depends on; return None if the included files cannot be determined."""
    unit, flags, own, compiler = program.unit, program.flags, program.include_dirs, _COMPILERS[program.compiler]
    from_flags = [Path(match[2]) for match in (re.match(r"(-I|--include-path=)(.+)", flag) for flag in flags) if match]
    forced = "".join(
        f'\n#include "{match[1]}"' for match in (re.match(r"--?(?:pre-)?include=(.+)", flag) for flag in flags) if match
    )
    with_forced = replace(unit, text=unit.text + forced)
    closure = include_closure(with_forced, [*own, *from_flags], compiler.toolkit_dirs(), macros)
    if not closure.complete:
        return None
    identity = {
        "language": "cuda",
        "text": unit.text,
        "name": unit.name,
        "includes": closure.digests,
        "include_dirs": [str(folder) for folder in own],
        "toolkit": [] if compiler is nvcc else [tools.headers_version(tools.cuda_include()), _stubs_digest()],
        "kernels": program.kernels,
        "arch": program.arch,
        "flags": flags,
        "compiler": [program.compiler, compiler.version()],
    }
    if nvrtc.keeps_rounding(flags):
        identity["assembler"] = "--fmad=false"
    return disk_cache.content_key(identity)


@functools.cache
def _stubs_digest() -> str:
    """Hash our stub headers, which belong to the compiler from a source's point of view."""
    stubs = sorted((path.name, path.read_text()) for path in tools.stub_headers().iterdir() if path.is_file())
    return disk_cache.content_key(stubs)


def _cached(key: str | None, program: _Program, machine_code: bool) -> CompiledModule | None:
    """Load the module from the cache; return None unless the cache has all requested parts."""
    blobs = disk_cache.load(key) if key is not None else None
    if blobs is None:
        return None
    module = CompiledModule.from_blobs(blobs)
    assembly = program.assembly(key, next((kernel.ptx for kernel in module.values()), ""))
    if machine_code and assembly.find() is None:
        return None
    return module.with_assembly(assembly)


def _build(program: _Program, key: str | None, started: float, machine_code: bool) -> CompiledModule:
    unit, kernels, flags = program.unit, program.kernels, program.flags
    macros = dict(flag[2:].partition("=")[::2] for flag in flags if flag.startswith("-D"))
    declared = kernels_within(unit, program.include_dirs, macros)
    try:
        with waiting(f"compiling {Path(unit.label).name} for {program.arch}"):
            output = program.compile(machine_code=machine_code)
    except CompileError as error:
        # Errors in the name expressions reach the log only if the source itself has none.
        if "__nv_name_map" in error.log:
            for name in kernels:
                declaration = declared.get(_base(name))
                if declaration is None or (declaration.template and "<" not in name):
                    raise _unknown_kernel(unit, name, declared) from error
        if (taken := _taken_names(error.log, macros)) is not None:
            raise CompileError(f"{taken[0]}\n{str(error).splitlines()[0]}", error.log, taken[1]) from error
        raise
    module = parse(output.ptx)
    parameters = {name: entry.parameters for name, entry in module.entries.items()}
    for name in kernels:
        if output.entries.get(name) not in parameters:
            raise _unknown_kernel(unit, name, declared or dict.fromkeys(map(demangle, parameters)))
    labels = {entry: name for name, entry in output.entries.items()}
    for entry in parameters:
        # Overloads have the same readable name; then the mangled name distinguishes them.
        readable = demangle(entry)
        labels.setdefault(entry, entry if readable in labels.values() else readable)
    shared = static_shared_bytes(module)
    assembly = program.assembly(key, output.ptx)
    seconds = time.perf_counter() - started
    built = {}
    for entry, label in labels.items():
        built[label] = CompiledKernel(
            name=entry,
            label=label,
            language="cuda",
            arch=program.arch,
            ptx=output.ptx,
            key=disk_cache.content_key([key or output.ptx, entry]),
            shared_bytes=shared.get(entry, 0),
            threads_per_block=None,
            dynamic_shared_bytes=0,
            compiler=f"{program.compiler} {_COMPILERS[program.compiler].version()}",
            compile_seconds=seconds,
            from_cache=False,
            parameters=_named(parameters[entry], declared.get(_base(label))),
            front_log=split_log(output.log)[0],
            assembly=assembly,
        )
    result = CompiledModule(built)
    if key is not None:
        disk_cache.store(key, result.to_blobs())
    if machine_code:
        assembly.keep(_assembled(output))
    return result


_ERROR = re.compile(r"^(\S[^\n]*?)\((\d+)\): error[^\n]*\n([^\n]*)", re.MULTILINE)


def _taken_names(log: str, macros: Mapping[str, str]) -> tuple[str, str] | None:
    """Explain a log whose first error is in one of CUDA's own headers, in a line that uses the user's macros."""
    found = _ERROR.search(log)
    if found is None or not (is_installed(found[1]) or found[1].startswith("__nv")):
        return None
    names = [name for name in macros if re.search(rf"\b{re.escape(name)}\b", found[3])]
    if not names:
        return None
    what = f"The macro{'s' * (len(names) > 1)} {', '.join(f'{name}={macros[name]}' for name in names)}"
    where = f"{Path(found[1]).name}:{found[2]}"
    said = f"{what} replace{'s' * (len(names) == 1)} a name that a header of CUDA's own uses, {where}."
    return said, f"Rename {', '.join(names)}: a macro or tunable needs a name that CUDA's headers do not use."


def _base(name: str) -> str:
    """Return the function's own name: ``"scale"`` for ``"ns::scale<float, 4>"``."""
    return name.split("<")[0].split("::")[-1].strip(" &")


def _named(parameters: tuple[Parameter, ...], declaration: KernelDeclaration | None) -> tuple[Parameter, ...]:
    """Give the parameters their names from the source, if it could be read and the counts agree."""
    if declaration is None or len(declaration.parameters) != len(parameters):
        return parameters
    return tuple(
        replace(parameter, name=name, pointer="*" in type_)
        for parameter, name, type_ in zip(parameters, declaration.parameters, declaration.types, strict=True)
    )


def _unknown_kernel(unit: Source, name: str, known: Mapping[str, KernelDeclaration | None]) -> UnknownNameError:
    names = [f"{known_name}<...>" if entry and entry.template else known_name for known_name, entry in known.items()]
    listing = ", ".join(names) or f"none, {unit.label} defines no kernel"
    return UnknownNameError(
        "kernel", repr(name), listing, 'Name one of these; a template needs its arguments: "f<float>".'
    )
