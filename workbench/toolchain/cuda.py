"""CUDA C++ to a ``CompiledKernel``: one front for NVRTC and nvcc, with the cache on disk before both."""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from workbench.errors import ArgumentError, CompileError, UnknownNameError
from workbench.home import cuda_sources
from workbench.toolchain import disk_cache, nvcc, nvrtc, tools
from workbench.toolchain.demangle import demangle
from workbench.toolchain.kernel import CompiledKernel, CompiledModule, Parameter, entry_parameters
from workbench.toolchain.sass import Resources, parse_ptxas_log, without_ptxas_lines
from workbench.toolchain.source import Declaration, Source, declared_kernels, include_closure, read_source

_COMPILERS = {"nvrtc": nvrtc, "nvcc": nvcc}

Macro = str | int | float


def compile_cuda(
    source: str | Path,
    kernel: str,
    *,
    arch: str = "sm_80",
    macros: Mapping[str, Macro] | None = None,
    options: Sequence[str] = (),
    include_dirs: Sequence[str | Path] = (),
    compiler: str = "nvrtc",
    threads_per_block: int | None = None,
    dynamic_shared_bytes: int = 0,
) -> CompiledKernel:
    """Compile one kernel of a CUDA C++ source.

    ``source`` is the text or a .cu file; ``kernel`` a plain name (``"scale"``) or a C++ name expression
    (``"scale<float, 4>"``). ``macros`` become ``-D``, ``options`` go to the compiler as they are. Headers are looked
    for beside the file, in ``include_dirs``, in the package's ``cuda_src`` and in the CUDA toolkit.
    ``threads_per_block`` and ``dynamic_shared_bytes`` (per block) describe the launch that is meant; occupancy needs
    them.

    Raises CompileError with the compiler's lines; UnknownNameError, listing those that are there, for a kernel that the
    source does not have; ArgumentError for an unknown architecture, compiler or option; MissingToolError with the
    remedy.
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
    )
    return module[kernel]


def compile_cuda_module(
    source: str | Path,
    *,
    kernels: Sequence[str] = (),
    arch: str = "sm_80",
    macros: Mapping[str, Macro] | None = None,
    options: Sequence[str] = (),
    include_dirs: Sequence[str | Path] = (),
    compiler: str = "nvrtc",
    threads_per_block: int | None = None,
    dynamic_shared_bytes: int = 0,
) -> CompiledModule:
    """Compile every kernel of a CUDA C++ source, and with ``kernels`` the named instances of its templates.

    The names of the result are those of ``kernels`` as given, then those of the other kernels. Everything else as in
    ``compile_cuda``.
    """
    unit = read_source(source)
    if compiler not in _COMPILERS:
        raise UnknownNameError("compiler", repr(compiler), ", ".join(_COMPILERS), "Choose one of these.")
    kernels = list(dict.fromkeys(kernels))
    own = _include_dirs(unit, include_dirs)
    flags = [*_standard(options), *_macro_flags(macros or {}), *options]
    started = time.perf_counter()
    key = _key(unit, kernels, arch, flags, macros or {}, own, compiler)
    launch = {"threads_per_block": threads_per_block, "dynamic_shared_bytes": dynamic_shared_bytes}
    module = _cached(key, launch)
    if module is None:
        module = _build(unit, kernels, arch, flags, own, compiler, key, started, launch)
    return module


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
    """The folders of the user's and the project's headers, in the order in which they are searched."""
    own = [unit.folder] if unit.folder is not None else []
    for folder in map(Path, include_dirs):
        if not folder.is_dir():
            raise ArgumentError("include_dirs", repr(str(folder)), "existing folders", "Check the path.")
        own.append(folder.absolute())
    return [*own, cuda_sources()]


def _key(
    unit: Source,
    kernels: Sequence[str],
    arch: str,
    flags: Sequence[str],
    macros: Mapping[str, Macro],
    own: Sequence[Path],
    compiler: str,
) -> str | None:
    """The hash of everything that the result depends on; None where that cannot be known."""
    from_flags = [Path(match[2]) for match in (re.match(r"(-I|--include-path=)(.+)", flag) for flag in flags) if match]
    forced = "".join(
        f'\n#include "{match[1]}"' for match in (re.match(r"--?(?:pre-)?include=(.+)", flag) for flag in flags) if match
    )
    with_forced = replace(unit, text=unit.text + forced)
    toolkit = _COMPILERS[compiler].toolkit_dirs()
    closure = include_closure(with_forced, [*own, *from_flags], toolkit, macros)
    if not closure.complete:
        return None
    identity = {
        "language": "cuda",
        "text": unit.text,
        "name": unit.name,
        "includes": closure.digests,
        "include_dirs": [str(folder) for folder in own],
        "toolkit": [] if compiler == "nvcc" else [tools.headers_version(tools.cuda_include()), _stubs_digest()],
        "kernels": list(kernels),
        "arch": arch,
        "flags": list(flags),
        "compiler": [compiler, _COMPILERS[compiler].version()],
    }
    return disk_cache.content_key(identity)


@functools.cache
def _stubs_digest() -> str:
    """The hash of our stub headers, which are part of the compiler as far as a source can see."""
    stubs = sorted((path.name, path.read_text()) for path in tools.stub_headers().iterdir() if path.is_file())
    return disk_cache.content_key(stubs)


def _cached(key: str | None, launch: Mapping[str, int | None]) -> CompiledModule | None:
    blobs = disk_cache.load(key) if key is not None else None
    if blobs is None:
        return None
    module = CompiledModule.from_blobs(blobs)
    return module.for_launch(**launch)


def _build(
    unit: Source,
    kernels: Sequence[str],
    arch: str,
    flags: Sequence[str],
    include_dirs: Sequence[Path],
    compiler: str,
    key: str | None,
    started: float,
    launch: Mapping[str, int | None],
) -> CompiledModule:
    module = _COMPILERS[compiler]
    declared = declared_kernels(unit.text, (flag[2:].split("=")[0] for flag in flags if flag.startswith("-D")))
    try:
        output = module.compile(unit, kernels, arch, flags, include_dirs)
    except CompileError as error:
        # Only where the source itself is right do errors in the name expressions reach the log.
        if "__nv_name_map" in error.log:
            for name in kernels:
                declaration = declared.get(_base(name))
                if declaration is None or (declaration.template and "<" not in name):
                    raise _unknown_kernel(unit, name, declared) from error
        raise
    parameters = entry_parameters(output.ptx)
    for name in kernels:
        if output.entries.get(name) not in parameters:
            raise _unknown_kernel(unit, name, declared or dict.fromkeys(map(demangle, parameters)))
    labels = {entry: name for name, entry in output.entries.items()}
    for entry in parameters:
        # Overloads read the same; then the mangled name tells them apart.
        readable = demangle(entry)
        labels.setdefault(entry, entry if readable in labels.values() else readable)
    resources = parse_ptxas_log(output.log)
    seconds = time.perf_counter() - started
    built = {}
    for entry, label in labels.items():
        named = _named(parameters[entry], declared.get(_base(label)))
        used = resources.get(entry, Resources(0, 0, 0, 0))
        built[label] = CompiledKernel(
            name=entry,
            label=label,
            language="cuda",
            arch=arch,
            ptx=output.ptx,
            cubin=output.cubin,
            key=disk_cache.content_key([key or output.ptx, entry]),
            registers=used.registers,
            spill_bytes=used.spill_bytes,
            stack_bytes=used.stack_bytes,
            shared_bytes=used.shared_bytes,
            threads_per_block=None,
            dynamic_shared_bytes=0,
            compiler=f"{compiler} {module.version()}",
            compile_seconds=seconds,
            from_cache=False,
            parameters=named,
            log=without_ptxas_lines(output.log),
        )
    result = CompiledModule(built)
    if key is not None:
        disk_cache.store(key, result.to_blobs())
    return result.for_launch(**launch)


def _base(name: str) -> str:
    """The function's own name: ``"scale"`` of ``"ns::scale<float, 4>"``."""
    return name.split("<")[0].split("::")[-1].strip(" &")


def _named(parameters: tuple[Parameter, ...], declaration: Declaration | None) -> tuple[Parameter, ...]:
    """The parameters under the names of the source, where the text could be read and the counts agree."""
    if declaration is None or len(declaration.parameters) != len(parameters):
        return parameters
    return tuple(
        replace(parameter, name=name) for parameter, name in zip(parameters, declaration.parameters, strict=True)
    )


def _unknown_kernel(unit: Source, name: str, known: Mapping[str, Declaration | None]) -> UnknownNameError:
    names = [f"{known_name}<...>" if entry and entry.template else known_name for known_name, entry in known.items()]
    listing = ", ".join(names) or f"none, {unit.label} defines no kernel"
    return UnknownNameError(
        "kernel", repr(name), listing, 'Name one of these; a template needs its arguments: "f<float>".'
    )
