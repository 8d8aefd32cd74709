"""Compilation of Triton kernels ahead of time, to a ``CompiledKernel`` for an architecture that need not be present.

The stages of Triton's own pipeline run one by one up to the PTX. The last stage, its assembler, runs when machine code
is first read; ``triton.compile`` has no way to stop before it.
"""

from __future__ import annotations

import contextlib
import functools
import io
import re
import threading
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import ModuleType
from typing import TYPE_CHECKING, Any

from workbench.base.progress import waiting
from workbench.errors import ArgumentError, CompileError, MissingToolError
from workbench.ptx.parse import Parameter, parse
from workbench.toolchain import disk_cache
from workbench.toolchain.assembly import Assembled, Assembly
from workbench.toolchain.kernel import CompiledKernel
from workbench.toolchain.remarks import split_log
from workbench.toolchain.sass import resources_of
from workbench.toolchain.shared_memory import static_shared_bytes
from workbench.toolchain.triton_descriptors import descriptor_names, is_descriptor

if TYPE_CHECKING:
    from triton.runtime.jit import JITFunction

# Triton specialises an aligned pointer for this many bytes; torch's allocations are aligned to at least as much.
_ALIGNMENT = 16
# Triton's compiler and the Python parser that it uses are not safe for several threads.
ONE_AT_A_TIME = threading.Lock()
_ONE_ASSEMBLES = threading.Lock()  # the standard output is caught
_TYPE = r"\*{0,2}k?(?:[iu](?:1|8|16|32|64)|fp(?:8\w+|16|32|64)|bf16)|constexpr|tensordesc<.*>|nvTmaDesc"


def compile_triton(
    function: JITFunction,
    signature: Mapping[str, str],
    constexprs: Mapping[str, object],
    *,
    arch: str = "sm_80",
    num_warps: int = 4,
    num_stages: int = 2,
    attributes: Mapping[str, int] | None = None,
    machine_code: bool = False,
) -> CompiledKernel:
    """Compile a ``@triton.jit`` function without a GPU.

    ``signature`` maps every run-time parameter to its Triton type (``"*fp16"``, ``"i32"``, ``"fp32"``),
    ``constexprs`` every ``tl.constexpr`` parameter to its value. ``attributes`` promises divisibility: ``{"n": 16}``
    says that n is a multiple of 16, which lets masked loads be wide. Pointers count as multiples of 16 bytes, as
    Triton's JIT finds for torch's own tensors, unless ``{"x": 1}`` takes that back. A launch checks the promises. With
    ``machine_code`` the cubin is produced at once, and an error of the assembler is a CompileError here. Without it the
    assembler runs when the cubin, the registers or figures that depend on them are first read.

    Raises CompileError with Triton's message and the Python file and line; ArgumentError for names that are not
    parameters of the function, missing or malformed types, and ``num_warps`` that is not a power of two;
    MissingToolError without Triton.
    """
    jit, signature = _checked(function, signature, constexprs)
    if num_warps < 1 or num_warps & (num_warps - 1):
        raise ArgumentError("num_warps", num_warps, "1, 2, 4, 8, 16 or 32", "Triton wants a power of two.")
    promises = _promises(jit, signature, constexprs, attributes or {})
    started = time.perf_counter()
    options = {"num_warps": num_warps, "num_stages": num_stages}
    key = _key(jit, signature, constexprs, promises, arch, options)
    blobs = disk_cache.load(key)
    if blobs is not None:
        kernel = CompiledKernel.from_blobs(blobs)
    else:
        with waiting(f"compiling {jit.__name__} for {arch}"):
            texts, metadata = _compile(jit, signature, constexprs, promises, arch, options)
        ptx = texts.pop("ptx")
        names = _names(signature, constexprs, metadata)
        kernel = kernel_of(ptx, metadata, jit.__name__, names, promises, arch, key)
        seconds = time.perf_counter() - started
        kernel = replace(kernel, stages=texts, compile_seconds=seconds, from_cache=False)
        disk_cache.store(key, kernel.to_blobs())
    assembly = assembly_of(kernel, options)
    kernel = replace(kernel, assembly=assembly)
    if machine_code and assembly.find() is None:
        assembly.result()
        kernel = replace(kernel, from_cache=False, compile_seconds=time.perf_counter() - started)
    return kernel


def _names(signature: Mapping[str, str], constexprs: Mapping[str, object], metadata: Mapping[str, Any]) -> list[str]:
    """Return the names of the PTX's parameters, of which a tensor descriptor has several."""
    mapped, names = bool(metadata.get("tensordesc_meta")), list[str]()
    for name, kind in signature.items():
        if name not in constexprs:
            names += descriptor_names(name, kind, mapped=mapped) if is_descriptor(kind) else [name]
    return names


def _checked(
    function: Any, signature: Mapping[str, str], constexprs: Mapping[str, object]
) -> tuple[Any, dict[str, str]]:
    """Validate the arguments; return the JIT function inside any autotuner, and the signature in parameter order."""
    try:
        from triton.runtime.jit import JITFunction
    except ImportError as error:
        raise MissingToolError(f"Triton cannot be imported ({error}). python -m pip install triton") from error
    while not isinstance(function, JITFunction):
        inner = getattr(function, "fn", None)
        if inner is None:
            raise ArgumentError(
                "function",
                type(function).__name__,
                "a function decorated with @triton.jit",
                "Decorate it, and unset TRITON_INTERPRET, which replaces such functions, before importing it.",
            )
        function = inner
    names = list(function.arg_names)
    for argument, given in (("signature", signature), ("constexprs", constexprs)):
        unknown = [name for name in given if name not in names]
        if unknown:
            raise ArgumentError(argument, unknown[0], ", ".join(names), f"{function.__name__} has these parameters.")
    missing = [name for name in names if name not in signature and name not in constexprs]
    if missing:
        example = f"{{{missing[0]!r}: '*fp16'}}"
        raise ArgumentError(
            "signature",
            f"nothing for {', '.join(missing)}",
            "a type for every run-time parameter",
            f"For example {example}.",
        )
    for name, kind in signature.items():
        if not re.fullmatch(_TYPE, kind):
            raise ArgumentError(
                f"signature[{name!r}]", repr(kind), "types such as *fp16, *bf16, i32, i64, fp32", "Correct it."
            )
    return function, {name: "constexpr" if name in constexprs else signature[name] for name in names}


def _promises(
    jit: Any, signature: Mapping[str, str], constexprs: Mapping[str, object], attributes: Mapping[str, int]
) -> dict[str, int]:
    """Return the divisor promised for each run-time argument, if it is more than 1."""
    unknown = [name for name in attributes if name not in signature or name in constexprs]
    if unknown:
        allowed = ", ".join(name for name in signature if name not in constexprs)
        raise ArgumentError("attributes", unknown[0], allowed, f"These are the run-time parameters of {jit.__name__}.")
    promises = {name: _ALIGNMENT for name, kind in signature.items() if kind.startswith("*")} | dict(attributes)
    return {name: promises[name] for name in signature if promises.get(name, 1) > 1}


def _key(
    jit: Any,
    signature: Mapping[str, str],
    constexprs: Mapping[str, object],
    promises: Mapping[str, int],
    arch: str,
    options: Mapping[str, int],
) -> str:
    import triton
    from triton._C.libtriton import get_cache_invalidating_env_vars
    from triton.compiler.compiler import make_backend

    # Triton's own key covers the function and the globals that it reads. File and line are added because the PTX
    # contains them, and the backend's hash because it depends on the assembler.
    code = jit.fn.__code__
    identity = {
        "language": "triton",
        "function": [_fresh_key(jit), code.co_filename, code.co_firstlineno],
        "signature": dict(signature),
        "constexprs": {name: getattr(value, "cache_key", repr(value)) for name, value in constexprs.items()},
        "promises": dict(promises),
        "target": arch,
        "options": dict(options),
        "compiler": [triton.__version__, make_backend(_target(arch)).hash()],
        "environment": dict(get_cache_invalidating_env_vars()),
    }
    if any(map(is_descriptor, signature.values())):
        identity["names"] = "of a descriptor's parameters"  # entries made before have others
    return disk_cache.content_key(identity)


def _fresh_key(jit: Any) -> str:
    """Return Triton's cache key of a function, computed anew if a function that it calls was redefined.

    Triton computes the key once. In a notebook a helper's cell may run again without the kernel's, and with the old key
    the cache would return code with the old helper.
    """
    functions = reachable(jit)
    if _SOURCES.get(jit) != [function.src for function in functions]:
        for function in functions:
            sources = [one.src for one in reachable(function)]
            if _SOURCES.get(function) != sources:
                _SOURCES[function], function.hash = sources, None
    return jit.cache_key


_SOURCES: weakref.WeakKeyDictionary[Any, list[str]] = weakref.WeakKeyDictionary()


def reachable(jit: Any) -> list[Any]:
    """Return ``jit`` and the JIT functions that it calls, directly or not, as their names are bound now."""
    found, pending = list[Any](), [jit]
    while pending:
        function = pending.pop()
        if any(function is other for other in found):
            continue
        found.append(function)
        code = function.fn.__code__
        scope = function.fn.__globals__ | {
            name: cell.cell_contents for name, cell in zip(code.co_freevars, function.fn.__closure__ or (), strict=True)
        }
        values = [scope.get(name) for name in (*code.co_names, *code.co_freevars)]
        for module in [value for value in values if isinstance(value, ModuleType)]:
            if not module.__name__.startswith("triton"):
                values += [getattr(module, name, None) for name in code.co_names]
        pending += [value for value in values if isinstance(value, type(jit))]
    return found


def _target(arch: str) -> Any:
    from triton.backends.compiler import GPUTarget

    number = re.fullmatch(r"sm_(\d+)a?", arch)
    if number is None:
        raise ArgumentError("arch", repr(arch), "sm_ and a number, such as sm_80", "Name a real architecture.")
    return GPUTarget("cuda", int(number[1]), 32)


def _compile(
    jit: Any,
    signature: Mapping[str, str],
    constexprs: Mapping[str, object],
    promises: Mapping[str, int],
    arch: str,
    options: Mapping[str, int],
) -> tuple[dict[str, str], dict[str, Any]]:
    """Run the stages up to the PTX; return the text of each by name, and the metadata that they wrote.

    Raises CompileError with Triton's message and the Python file and line.
    """
    import triton
    from triton._C.libtriton import ir
    from triton.compiler import ASTSource

    names = list(signature)
    attrs = {(names.index(name),): [["tt.divisibility", value]] for name, value in promises.items()}
    source = ASTSource(jit, dict(signature), dict(constexprs), attrs)
    try:
        with ONE_AT_A_TIME, _seen_as(_target(arch)):
            backend, chosen, stages = _pipeline(arch, options)
            context = ir.context()
            ir.load_dialects(context)
            backend.load_dialects(context)
            codegen, modules = backend.get_codegen_implementation(chosen), backend.get_module_map()
            code = source.make_ir(_target(arch), chosen, codegen, modules, context)
            metadata = dict(vars(chosen))
            texts = {}
            for name, stage in stages.items():
                if name != "cubin":
                    code = stage(code, metadata)
                    texts[name] = str(code)
            return texts, metadata
    except Exception as error:
        # Triton raises many types, assertion errors of its own among them.
        raise CompileError(
            f"Triton {triton.__version__} refused {jit.__name__} for {arch}:", explain(error, jit)
        ) from error


def _pipeline(arch: str, options: Mapping[str, int]) -> tuple[Any, Any, dict[str, Any]]:
    """Return Triton's backend for ``arch``, all its options, and its stages by name: (code, metadata) -> code."""
    from triton.compiler.compiler import Language, make_backend

    backend = make_backend(_target(arch))
    chosen = backend.parse_options(dict(options))
    stages: dict[str, Any] = {}
    backend.add_stages(stages, chosen, Language.TRITON)
    return backend, chosen, stages


class _Aimed:
    """Triton's active driver, but with another target in the compiling thread: ``tl.target_info`` asks the driver."""

    def __init__(self, target: Any, active: Any):
        self._target, self._active, self._thread = target, active, threading.get_ident()

    def get_current_target(self) -> Any:
        return self._target if threading.get_ident() == self._thread else self._others.get_current_target()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._others, name)

    @property
    def _others(self) -> Any:
        from triton.runtime import driver

        return self._active or driver.default  # which raises Triton's own error if there is no driver


@contextlib.contextmanager
def _seen_as(target: Any) -> Iterator[None]:
    """Make functions such as ``tl.target_info.is_cuda()`` see ``target`` in a block, whatever this machine has."""
    from triton.runtime import driver

    active = driver._active  # ``driver.active`` would look for a GPU
    driver.set_active(_Aimed(target, active))
    try:
        yield
    finally:
        driver.set_active(active)


def assembly_of(kernel: CompiledKernel, options: Mapping[str, Any]) -> Assembly:
    """Return a kernel's lazy assembly by Triton's assembler, with the Triton options of its compilation."""
    return Assembly(
        kernel.key, functools.partial(_assemble, kernel.ptx, kernel.name, kernel.label, kernel.arch, dict(options))
    )


def _assemble(ptx: str, name: str, label: str, arch: str, options: Mapping[str, Any]) -> Assembled:
    """Run the last stage, with the assembler and the flags that Triton's own launch would use."""
    import triton

    _, _, stages = _pipeline(arch, options)
    stage = stages["cubin"]
    assemble = getattr(stage, "assemble", stage)  # the simulated driver wraps the stage to defer it
    try:
        with _heard() as said:
            cubin = assemble(ptx, {"name": name})
    except Exception as error:
        raise CompileError(f"Triton {triton.__version__} refused {label} for {arch}:", str(error)) from error
    return Assembled(cubin, resources_of(cubin, arch), split_log(said.getvalue())[1])


@contextlib.contextmanager
def _heard() -> Iterator[io.StringIO]:
    """Catch the messages of Triton's assembler within a block, by one thread at a time.

    Triton deletes its log unless it is asked to print it. For errors it prints all of the PTX, too.
    """
    from triton import knobs

    said = io.StringIO()
    with _ONE_ASSEMBLES, contextlib.redirect_stdout(said), knobs.nvidia.scope():
        knobs.nvidia.dump_ptxas_log = True
        yield said


def explain(error: BaseException, jit: Any) -> str:
    """Return Triton's message for an error, with file and line of the Python source that caused it.

    An error inside a function that the kernel calls is chained; the innermost one has the line.
    """
    chain: list[Any] = [error]
    while chain[-1].__cause__ is not None:
        chain.append(chain[-1].__cause__)
    located = [link for link in chain if getattr(getattr(link, "node", None), "lineno", None)]
    function, line = jit, 1
    if located:
        function = _function_of(getattr(located[-1], "src", None), jit)
        line = located[-1].node.lineno
    where = f"{function.fn.__code__.co_filename}:{_first_line(function) + line - 1}"
    texts = list[str]()
    for link in chain[len(located) - 1 :] if located else chain:
        text = str(link).strip() or type(link).__name__
        if not any(text in earlier for earlier in texts):
            texts.append(text)
    return "\n".join([f"{where}: {type((located or chain)[-1]).__name__}", *texts])


def _first_line(jit: Any) -> int:
    """Return the line of ``def`` in the file, below any decorators, from which Triton counts."""
    definition = next((index for index, text in enumerate(jit.raw_src) if text.strip().startswith("def ")), 0)
    return jit.starting_line_number + definition


def _function_of(source: str | None, jit: Any) -> Any:
    """Return the JIT function with this source among those that ``jit`` may call, or ``jit`` itself."""
    return next((function for function in reachable(jit) if function.src == source), jit)


def kernel_of(
    ptx: str,
    metadata: Mapping[str, Any],
    label: str,
    arguments: Sequence[str],
    promises: Mapping[str, int],
    arch: str,
    key: str,
) -> CompiledKernel:
    """Build the ``CompiledKernel`` from the PTX and the metadata of Triton's stages, as one from the cache.

    ``arguments`` are the names of the run-time parameters in order.
    """
    import triton

    name, module = metadata["name"], parse(ptx)
    return CompiledKernel(
        name=name,
        label=label,
        language="triton",
        arch=arch,
        ptx=ptx,
        key=key,
        shared_bytes=static_shared_bytes(module).get(name, 0) + metadata["shared"],
        threads_per_block=32 * metadata["num_warps"],
        dynamic_shared_bytes=metadata["shared"],
        compiler=f"triton {triton.__version__}",
        compile_seconds=0.0,
        from_cache=True,
        parameters=_parameters(module.entries[name].parameters, arguments, promises),
        scratch_bytes=metadata.get("global_scratch_size", 0),
    )


def _parameters(
    declared: tuple[Parameter, ...], names: Sequence[str], promises: Mapping[str, int]
) -> tuple[Parameter, ...]:
    """Give the PTX parameters their Python names; those that Triton appended are scratch buffers."""
    named = [
        replace(parameter, name=name, divisibility=promises.get(name, 1))
        for parameter, name in zip(declared, names, strict=False)
    ]
    return (*named, *(replace(parameter, scratch=True) for parameter in declared[len(names) :]))
