"""Readers of bytes that somebody else wrote: real samples, a way to change them, and the reader."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gzip
import json
import random
import struct
import warnings
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from ptx_mbarrier_cases import random_steps
from ptx_mbarrier_cases import text as mbarrier_text
from ptx_sparse_cases import SPARSE_MMAS
from ptx_support import module
from ptx_tcgen05_cases import TCGEN05
from ptx_wgmma_cases import PRODUCTS as WGMMAS
from ptx_wmma_cases import PRODUCTS

from fuzz.damage import changed_bytes, changed_json, changed_text, draw_steps, one_kernel
from workbench import ptx
from workbench.analysis.difference import diff
from workbench.analysis.difference.lines import COUNTS
from workbench.analysis.prediction import confidence
from workbench.attention.bench.paged_attention.ledger import FORMAT, Ledger
from workbench.base.documents import COMPARED, document
from workbench.base.recorded import recorded_folders
from workbench.base.trials.store import Store
from workbench.driver import simulated_driver
from workbench.driver.images import image, resources_of
from workbench.errors import ArgumentError, KernelFault, StoreWarning, UnsupportedInstructionError
from workbench.judge.description import Description, InvalidDescription
from workbench.ops import tuned
from workbench.toolchain import compile_cuda_module
from workbench.toolchain.cubin import Cubin
from workbench.toolchain.ptx_text import kernels_of_ptx
from workbench.tuning.recorded import sweep

HERE = Path(__file__).parents[1]
_SOURCES = (
    "suite/transposes.cu",
    "suite/reductions.cu",
    "cuda_calls.cu",
    "cuda_mbarrier.cu",
    "outside/swizzled_gemm.cu",
)
_HOPPER_SOURCES = ("cuda_hopper.cu", "cuda_cluster_matmul.cu")
_CODES = (0, 1, 2, 200, 201, 209, 218, 400, 500, 700, 702, 709, 710, 714, 716, 717, 718, 719, 720, 801)


class Reader(NamedTuple):
    """``samples`` makes real ones, ``change`` a damaged copy; ``read`` may raise WorkbenchErrors and nothing else."""

    samples: Callable[[], list[bytes]]
    change: Callable[[bytes, random.Random], bytes]
    read: Callable[[bytes, Path], object]


def read_and_run(text: str) -> int:
    """Decode every kernel and launch what can be; return how many came so far."""
    program, ran = ptx.Program(text), 0
    # A warpgroup has four warps, and reads its tiles whole.
    threads, elements = (64, 512) if ".target sm_80" in text else (128, 1 << 14)
    for name in list(program):
        with contextlib.suppress(ptx.PtxSyntaxError, UnsupportedInstructionError):
            kernel = program[name]
            ran += 1
            args = [np.zeros(elements, np.float32) if p.size == 8 else bytes(p.size) for p in kernel.parameters]
            with contextlib.suppress(KernelFault, ArgumentError):
                kernel.launch(1, threads, args, checks=True, statistics=True, instruction_limit=5_000, threads=1)
    return ran


# ---- PTX ----


@functools.cache
def own_texts() -> list[str]:
    """Modules of NVRTC, and texts of our own; all of them run but for a kernel with malloc."""
    sources = [(name, "sm_80") for name in _SOURCES] + [(name, "sm_90a") for name in _HOPPER_SOURCES]
    compiled = [next(iter(compile_cuda_module(HERE / name, arch=arch).kernels.values())).ptx for name, arch in sources]
    offsets = (128, 128), (256, 256)
    tiles = [case.text(*offsets) for case in (*WGMMAS[::9], *TCGEN05[::7])]
    sparse = [case.text for case in SPARSE_MMAS[::19]]
    return [*compiled, mbarrier_text(*random_steps(1)), PRODUCTS[0].text, *tiles, *sparse]


@functools.cache
def ptx_samples() -> list[bytes]:
    """They, and what other compilers wrote."""
    others = sorted((HERE.parent / "driver" / "ptx_texts").glob("*.ptx"))
    return [*(text.encode() for text in own_texts()), *(path.read_bytes() for path in others)]


def _changed_ptx(data: bytes, draw: random.Random) -> bytes:
    if draw.randrange(8) == 0:
        return changed_bytes(data, draw)
    return changed_text(one_kernel(data.decode(), draw.randrange(20)), draw_steps(draw)).encode(errors="replace")


def _read_ptx(data: bytes, folder: Path) -> None:
    text = data.decode(errors="replace")
    for read in (read_and_run, kernels_of_ptx):
        read(text)


# ---- machine code ----


@functools.cache
def _kernel() -> tuple[str, bytes]:
    made = next(iter(compile_cuda_module(HERE / "cuda_micro.cu", arch="sm_80").kernels.values()))
    return made.name, made.cubin or b""


def _read_cubin(data: bytes, folder: Path) -> None:
    cubin, (name, _) = Cubin(data), _kernel()
    cubin.lines(name), cubin.subroutines(name), cubin.code(name)


# ---- the driver ----


@functools.cache
def _driver() -> ctypes.CDLL:
    simulated_driver(force=True, memory_bytes=64 << 20, seconds_limit=2.0)
    library, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
    assert library.cuInit(0) == library.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
    return library


def _image_samples() -> list[bytes]:
    fatbin = struct.pack("<IHHQ", 0xBA55ED50, 1, 16, 64) + bytes(64)
    with_facts = image(ptx_samples()[0].decode(), {})
    return [*ptx_samples(), with_facts, _kernel()[1], fatbin, b"", b"\x7fE"]


def _changed_image(data: bytes, draw: random.Random) -> bytes:
    return (
        _changed_ptx(data, draw)
        if b".version" in data and data.isascii() and draw.randrange(3)
        else changed_bytes(data, draw)
    )


def _says_its_length(data: bytes) -> bool:
    """Return whether an image is no fat binary, or one of the length that it names: the driver is told no other."""
    if data[:4] == struct.pack("<I", 0x466243B1):
        return False  # a pointer to a fat binary
    if data[:4] != struct.pack("<I", 0xBA55ED50):
        return True
    header, length = struct.unpack("<HQ", data[6:16].ljust(10, b"\xff"))
    return header + length <= len(data)


def _read_image(data: bytes, folder: Path) -> None:
    if not _says_its_length(data):
        return
    cuda, loaded, function = _driver(), ctypes.c_void_p(), ctypes.c_void_p()
    _check(cuda.cuLinkCreate_v2(0, None, None, ctypes.byref(loaded)))
    _check(cuda.cuLinkAddData_v2(loaded, 1, data, ctypes.c_size_t(len(data)), b"one", 0, None, None))
    linked, size = ctypes.c_void_p(), ctypes.c_size_t()
    _check(cuda.cuLinkComplete(loaded, ctypes.byref(linked), ctypes.byref(size)))
    _check(cuda.cuLinkDestroy(loaded))
    code = _check(cuda.cuModuleLoadData(ctypes.byref(loaded), data + b"\0"))
    if code:
        return
    with contextlib.suppress(ptx.PtxSyntaxError):
        for name in list(ptx.Program(data.partition(b"\0")[0].decode(errors="replace"))):
            _check(cuda.cuModuleGetFunction(ctypes.byref(function), loaded, name.encode()))
    resources_of(data.decode(errors="replace"), "sm_80")
    _check(cuda.cuModuleUnload(loaded))


def _check(code: int) -> int:
    if code not in _CODES:
        text = ctypes.c_char_p()
        _driver().cuGetErrorString(code, ctypes.byref(text))
        raise AssertionError(f"the driver answers {code}: {(text.value or b'').decode(errors='replace')}")
    return code


# ---- tensor maps ----

_COPY = """.shared .align 1024 .b8 tile[8192]; .shared .align 8 .b64 bar;
mov.b64 %d1, map; cvta.param.u64 %d1, %d1; mbarrier.init.shared::cta.b64 [bar], 1;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 1024;
cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [tile], [%d1, {1, 1}], [bar];
mbarrier.try_wait.parity.shared::cta.b64 %p1, [bar], 0;
cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%d1, {0, 0}], [tile];
cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%d1, {-1, 2}], [tile];
cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;"""


@functools.cache
def _copy() -> tuple[ptx.PtxKernel, np.ndarray]:
    text = module("copy", ".param .align 64 .b8 map[128], .param .u64 out", _COPY).replace("sm_80", "sm_90a")
    return ptx.Program(text)["copy"], np.zeros((64, 64), np.float32)


def _map_samples() -> list[bytes]:
    from workbench.ptx.tensor_map import TensorMap

    _, array = _copy()
    shape = ((64, 64), (256,), (16, 16))
    return [
        bytes(TensorMap(kind, array.ctypes.data, *shape, swizzle=64 if kind == "f32" else 0)) for kind in ("f32", "u32")
    ]


def _read_map(data: bytes, folder: Path) -> None:
    kernel, array = _copy()
    data = (data + bytes(128))[:128]
    for checks in (False, True):
        with contextlib.suppress(KernelFault):
            kernel.launch(1, 1, [data, array], checks=checks, instruction_limit=10_000, threads=1)
    numbers = struct.unpack("<Q4Q5I5I5I6B22x", data)
    sizes, strides, box, steps = ((kind * 5)(*part) for kind, part in (
        (ctypes.c_uint64, numbers[5:10]), (ctypes.c_uint64, numbers[1:5]), (ctypes.c_uint32, numbers[10:15]),
        (ctypes.c_uint32, numbers[15:20]),
    ))  # fmt: skip
    rank, kind, interleave, swizzle, _, fill = numbers[20:26]
    out = ctypes.create_string_buffer(128)
    _check(_driver().cuTensorMapEncodeTiled(
        out, kind, ctypes.c_uint32(rank), ctypes.c_uint64(numbers[0]), sizes, strides, box, steps, interleave, swizzle,
        0, fill,
    ))  # fmt: skip


# ---- files of results ----


def _changed_file(data: bytes, draw: random.Random) -> bytes:
    if data[:2] == b"\x1f\x8b":
        if draw.randrange(4) == 0:
            return changed_bytes(data, draw)
        return gzip.compress(changed_json(gzip.decompress(data).decode(), draw).encode(errors="replace"), 1)
    return changed_json(data.decode(), draw).encode(errors="replace")


@functools.cache
def _sweep_samples() -> list[bytes]:
    from workbench.tuning.recorded import kernel_tuner_files

    smallest = min(
        (path for folder in recorded_folders("sweeps") for path in folder.glob("*.json.gz")),
        key=lambda path: path.stat().st_size,
    )
    whole = json.loads(gzip.decompress(smallest.read_bytes()))
    count = len(whole["configs"])
    for values in (whole, whole["columns"]):  # twenty rows are enough
        for name, one in values.items():
            if isinstance(one, list) and len(one) == count:
                values[name] = one[:20]
    path = Path(smallest.name)
    read = sweep.load(smallest)
    read = read.__class__(**{**vars(read), "trials": read.trials[:20], "path": path})
    return [
        gzip.compress(json.dumps(whole).encode()),
        json.dumps(kernel_tuner_files.to_cache(read)).encode(),
        json.dumps(kernel_tuner_files.to_t4_results(read)).encode(),
    ]


def _written(data: bytes, folder: Path, name: str) -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


def _read_sweep(data: bytes, folder: Path) -> None:
    read = sweep.load(_written(data, folder, "sweep.json"))
    str(read.label)


def _table_samples() -> list[bytes]:
    return [
        path.read_bytes()
        for path in [path for folder in recorded_folders("tuned") for path in sorted(folder.glob("*.json"))]
    ] or [b'{"format": 1, "entries": []}']


def _record_samples() -> list[bytes]:
    return [confidence.RECORD.read_bytes()]


@functools.cache
def _saved_samples() -> list[bytes]:
    figures: dict[str, Any] = dict.fromkeys(COMPARED.split(), 10)
    row = {"variant": "f", "language": "cuda", "arch": "sm_80", "outcome": "ok", "message": "", "config": {"N": 32}}
    row |= {"sample": {"blocks": 1, "of": 2}, "compiler": "c", "time_is": "predicted", "predicted_for": "a100"}
    head = {"op": "o", "case": "c", "written": "", "versions": {"triton": "3.7.1"}}
    compared = document(
        "compare", **head, device="sim", machine="", all_correct=True, variants=[row | figures, {**row, **figures}]
    )
    line = {"path": "f.cu", "line": 1, "text": "a = 1;", "mix": {}, "share": 0.5, "active_lanes": 32}
    line |= dict.fromkeys("global_ideal_sectors bytes_used shared_requests".split(), 1)  # noqa: SIM905
    line |= dict.fromkeys(["shared_ideal_wavefronts", "filled_bytes", "copied_bytes", *COUNTS], 1)
    facts = [{"fact": "warp instructions", "value": 10, "at_best": None, "meaning": ""}]
    traced = document(
        "trace", **head, title="t", variant="f", arch="", compiler="", predicted_for="a100", config={}, facts=facts,
        lines=[line, line | {"line": 2, "text": "b = 2;"}], hints=[],
    )  # fmt: skip
    return [compared.encode(), traced.encode()]


def _read_saved(data: bytes, folder: Path) -> None:
    path = _written(data, folder, "saved.json")
    for sample in _saved_samples():
        good = folder / "good.json"
        good.write_bytes(sample)
        for before, now in ((path, good), (good, path), (path, path)):
            with contextlib.suppress(ArgumentError):  # of two kinds
                found = diff(before, now, fail_if="warp_instructions > 1")
                str(found), found.markdown(), found.to_json(), found.sections()


def _ledger_samples() -> list[bytes]:
    head = {"format": FORMAT, "basis": "predicted", "machine": "m", "versions": {}}
    return [json.dumps({"head": head, "rows": []}).encode()]


def _description_samples() -> list[bytes]:
    launch = {"program": 0, "entry": "f", "label": "f", "grid": [1, 1, 1], "block": [32, 1, 1], "shared_bytes": 0}
    launch |= {"arguments": [["tensor", "x"], ["i32", 3], ["null", None]]}
    workspace = [{"name": "w", "dtype": "float32", "shape": [4], "fill": 0.0}]
    kernel = {"program": 0, "entry": "f", "label": "f", "parameters": ["x"], "shared_bytes": 0, "scratch_bytes": 0}
    record = {
        "programs": ["x"],
        "launches": [launch],
        "workspace": workspace,
        "constants": {},
        "text": "",
        "macros": {},
    }
    return [json.dumps(record).encode(), json.dumps({"programs": ["x"], "kernels": [kernel]}).encode()]


def _read_description(data: bytes, folder: Path) -> None:
    try:
        record = json.loads(data)
    except (ValueError, RecursionError):
        return
    with contextlib.suppress(InvalidDescription):
        asdict(Description.of(record))


@functools.cache
def _store_samples() -> list[bytes]:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store.sqlite"
        with Store(path):
            pass
        return [path.read_bytes()]


def _read_store(data: bytes, folder: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StoreWarning)
        try:
            with Store(_written(data, folder, "store.sqlite")) as store:
                list(store.trials())
        finally:
            for path in folder.glob("store.sqlite*"):
                path.unlink()


READERS = {
    "PTX": Reader(ptx_samples, _changed_ptx, _read_ptx),
    "cubin": Reader(lambda: [_kernel()[1]], changed_bytes, _read_cubin),
    "image": Reader(_image_samples, _changed_image, _read_image),
    "tensor map": Reader(_map_samples, changed_bytes, _read_map),
    "sweep": Reader(_sweep_samples, _changed_file, _read_sweep),
    "tuned table": Reader(
        _table_samples, _changed_file, lambda data, folder: tuned.read_table(_written(data, folder, "table.json"))
    ),
    "predictions": Reader(
        _record_samples, _changed_file, lambda data, folder: confidence.read(_written(data, folder, "record.json"))
    ),
    "ledger": Reader(
        _ledger_samples,
        _changed_file,
        lambda data, folder: Ledger.open(
            {"basis": "predicted", "machine": "m", "versions": {}}, _written(data, folder, "ledger.json")
        ),
    ),
    "saved result": Reader(_saved_samples, _changed_file, _read_saved),
    "description": Reader(_description_samples, _changed_file, _read_description),
    "store": Reader(_store_samples, changed_bytes, _read_store),
}
