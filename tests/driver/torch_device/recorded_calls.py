"""Calls on torch's simulated device that one process records, and another repeats with other inputs.

``record FOLDER`` records; ``repeat FOLDER`` repeats and compares; ``bad FOLDER`` repeats broken logs.
"""

import ctypes
import json
import struct
import sys
from pathlib import Path

import workbench as wb

DRIVER = wb.simulated_gpu("h100-sxm", force=True, memory_bytes=1 << 30)

import torch  # noqa: E402
import triton  # noqa: E402
import triton.language as tl  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from workbench.driver.library_files import library_path  # noqa: E402
from workbench.driver.records import recording  # noqa: E402

PTX = b"""
.version 7.8
.target sm_80
.address_size 64
.global .align 4 .f32 factor;
.visible .entry scale(.param .u64 out, .param .u64 in)
{
  .reg .f32 %f<4>;
  .reg .b64 %r<6>;
  .reg .u32 %t;
  mov.u32 %t, %tid.x;
  mul.wide.u32 %r1, %t, 4;
  ld.param.u64 %r2, [out];
  ld.param.u64 %r3, [in];
  add.u64 %r2, %r2, %r1;
  add.u64 %r3, %r3, %r1;
  ld.global.f32 %f1, [%r3];
  mov.u64 %r4, factor;
  ld.global.f32 %f2, [%r4];
  mul.f32 %f3, %f1, %f2;
  st.global.f32 [%r2], %f3;
  ret;
}
"""


@triton.jit
def add_one(x, y, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + at, tl.load(x + at, mask=at < n) + 1, mask=at < n)


def by_triton(x):
    y = torch.empty_like(x)
    add_one[(triton.cdiv(x.numel(), 64),)](x, y, x.numel(), B=64)
    return y


def by_driver(x):
    """Return 3 times the first 32 elements, the factor in a variable of the module, by the driver's own calls."""
    driver, u64 = ctypes.CDLL(str(library_path())), ctypes.c_uint64
    module, function, variable, size = ctypes.c_void_p(), ctypes.c_void_p(), u64(), u64()
    out = torch.empty(64, device="cuda")
    given, three = ctypes.c_float(3.0), u64(x.data_ptr())
    middle, result = u64(out.data_ptr() + 128), u64(out.data_ptr())
    pointers = (ctypes.c_void_p * 2)(ctypes.addressof(middle), ctypes.addressof(three))
    calls = (
        driver.cuModuleLoadData(ctypes.byref(module), PTX),
        driver.cuModuleGetFunction(ctypes.byref(function), module, b"scale"),
        driver.cuModuleGetGlobal_v2(ctypes.byref(variable), ctypes.byref(size), module, b"factor"),
        driver.cuMemcpyHtoD_v2(variable, ctypes.byref(given), u64(4)),
        driver.cuMemsetD32_v2(result, ctypes.c_uint32(0x3F800000), u64(64)),
        driver.cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, None, pointers, None),
        driver.cuMemcpyDtoD_v2(result, middle, u64(64)),
    )
    assert not any(calls), calls
    return out


def by_driver_on_host(x):
    out = torch.ones(64)
    out[:16] = out[32:] = 0
    out[:16], out[32:] = 3 * x.flatten()[:16], 3 * x.flatten()[:32]
    return out


def by_graph(x):
    kept, graph = x.clone(), torch.cuda.CUDAGraph()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        by_triton(kept)
    torch.cuda.current_stream().wait_stream(side)
    with torch.cuda.graph(graph):
        y = by_triton(kept) * 2
    kept.copy_(x)
    graph.replay()
    return y.clone()


CALLS = {
    "elementwise": (lambda x: torch.relu(x * 2.5 + 1) - x.abs(), None),
    "products": (lambda x: (x @ x.T).softmax(-1)[1:, ::2].contiguous(), None),
    "lists": (lambda x: torch.cat([x[:3], *x.split(5)[1:]]), None),
    "out": (lambda x: torch.add(x, 1, out=torch.empty(0, device=x.device)), None),
    "in place": (lambda x: x.clone().mul_(3).index_fill_(0, torch.tensor([1], device=x.device), 7.0), None),
    "narrow types": (lambda x: x.half().softmax(-1).bfloat16().float(), None),
    "indices": (lambda x: x[torch.arange(len(x), device=x.device).flip(0)].gather(1, (x > 0).long()), None),
    "complex": (lambda x: torch.view_as_real(torch.fft.fft(x).conj() * (1 + 2j)), None),
    "several results": (lambda x: torch.sort(x, -1).values + x.max(-1).values[:, None], None),
    "attention": (lambda x: F.scaled_dot_product_attention(*[x[None, None]] * 3), None),
    "a layer": (lambda x: F.layer_norm(x, x.shape[-1:]) + F.conv1d(x[:, None], x[:1, None, :3])[:, 0, :1], None),
    "foreach": (lambda x: torch._foreach_add([x, x * 2], 1.0)[1], None),
    "constants of the host": (lambda x: x * torch.tensor([2.0, 3.0], device=x.device)[1] + torch.ones(1).item(), None),
    "triton": (by_triton, lambda x: x + 1),
    "the driver": (by_driver, by_driver_on_host),
    "a graph": (by_graph, lambda x: (x + 1) * 2),
}


def row_of(tensor):
    kind = str(tensor.dtype).removeprefix("torch.")
    return {
        "type": kind, "address": tensor.data_ptr(), "sizes": list(tensor.shape), "strides": list(tensor.stride())
    }  # fmt: skip


def record(folder):
    recording.start(recording.FIRST_ADDRESS + 3 * recording.ALIGNMENT)
    rows = {}
    for name, (call, _) in CALLS.items():
        x = torch.empty(8, 16, device="cuda")
        with recording.paused():
            x.copy_(torch.randn(8, 16))
        given = recording.take()
        y = call(x).contiguous()
        during = recording.take()
        rows[name] = row_of(x), row_of(y)
        for part, log in (("given", given), ("during", during)):
            (folder / f"{name}.{part}").write_bytes(log)
    (folder / "rows.json").write_text(json.dumps(rows))


def repeat(folder):
    from workbench.analysis.device_models import device_model
    from workbench.analysis.launches import Launches
    from workbench.analysis.watching import Watch, watch
    from workbench.driver.records.replaying import Replay

    launches = Launches()
    watch(Watch(launches, device_model("h100-sxm"), checks=True))
    rows, replay = json.loads((folder / "rows.json").read_text()), Replay()
    for name, (given, result) in rows.items():
        call, on_host = CALLS[name]
        replay.run((folder / f"{name}.given").read_bytes())
        for turn in range(2):  # the second time what it allocated is there already
            x = torch.randn(8, 16, generator=torch.Generator().manual_seed(turn))
            replay.tensor(given).copy_(x)
            replay.run((folder / f"{name}.during").read_bytes())
            torch.testing.assert_close(replay.content(result), (on_host or call)(x).contiguous(), msg=name)
    assert not launches.findings, launches.findings
    print(len(launches), "launches repeated")


def entry(kind, numbers=(), content=b""):
    return (
        struct.pack("<IIQ", ord(kind), len(numbers), len(content))
        + struct.pack(f"<{len(numbers)}Q", *numbers)
        + content
    )


def operation(name, overload, arguments, results=()):
    content = json.dumps(
        {"name": name, "overload": overload, "arguments": arguments, "results": list(results)}
    ).encode()
    return entry("O", [len(content)], content)


def bad(folder):
    from workbench.driver.records.replaying import Replay

    replay, here = Replay(), recording.FIRST_ADDRESS
    tensor = {"type": "float32", "address": here, "sizes": [4], "strides": [1]}
    memory = entry("A", [here, 16])
    logs = {
        "cut": memory[:-4],
        "unknown": entry("?"),
        "numbers": entry("A", [here]),
        "elsewhere": entry("A", [1 << 20, 16]),
        "not allocated": entry("W", [here + 4096], b"abcd"),
        "too long": entry("W", [here], bytes(17)),
        "no module": entry("L", [7] + [1] * 11, b"kernel\0"),
        "no tensor": operation("aten::relu", "", [tensor | {"sizes": [5]}]),
        "negative": operation("aten::relu", "", [tensor | {"strides": [-1]}]),
        "own tensor": operation("aten::relu", "", [tensor | {"address": torch.zeros(4, device="cuda").data_ptr()}]),
        "no operator of the device": operation("aten::from_file", "", ["/etc/hostname"]),
        "not torch's": operation("os::system", "", ["true"]),
        "results": operation("aten::relu", "", [tensor]),
        "no JSON": entry("O", [3], b"abc"),
        "beyond": entry("X", (), b"cublasSgemm_v2"),
    }
    replay.run(memory)
    for name, log in logs.items():
        try:
            replay.run(log)
        except Exception as error:
            print(f"{name}: {type(error).__name__}: {error}")
        else:
            print(f"{name}: repeated")


if __name__ == "__main__":
    {"record": record, "repeat": repeat, "bad": bad}[sys.argv[1]](Path(sys.argv[2]))
