"""``trace_kernel``: facts by hand, for kernels in CUDA C++. A request is one warp's, a sector 32 bytes."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import workbench as wb
from workbench.analysis.trace import heat_colour
from workbench.errors import ArgumentError, UnknownNameError
from workbench.launch import Trace, lines_of
from workbench.toolchain import compile_cuda

SOURCE = """\
__global__ void copy(float *out, const float *in) {
  int i = blockIdx.x * 128 + threadIdx.x;
  float value = in[i];  // load
  out[i] = value;  // store
}
__global__ void stride_two(float *out, const float *in) {
  int i = blockIdx.x * 128 + threadIdx.x;
  out[i] = in[2 * i];  // both
}
__global__ void column(float *out, const float *in) {
  out[threadIdx.x] = in[32 * threadIdx.x];  // both
}
__global__ void same_word(float *out, const float *in) {
  out[threadIdx.x] = in[0];  // both
}
__global__ void same_tile(float *out, const float *in) {
  out[blockIdx.x * 32 + threadIdx.x] = in[threadIdx.x];  // both
}
__global__ void vectors(float4 *out, const float4 *in) {
  __shared__ float4 tile[128];
  tile[threadIdx.x] = in[threadIdx.x];  // in
  __syncthreads();  // barrier
  out[threadIdx.x] = tile[127 - threadIdx.x];  // out
}
__global__ void bank_column(float *out, const float *in) {
  __shared__ float tile[32 * 32];
  tile[32 * threadIdx.x] = in[threadIdx.x];  // write
  __syncwarp();
  out[threadIdx.x] = tile[32 * (31 - threadIdx.x)];  // read
}
__global__ void eight_lanes(float *x) {
  if (threadIdx.x < 8)
    x[threadIdx.x] *= 3;  // eight
}
__global__ void late(float *x, int n) {
  float sum = 0;
  if (threadIdx.x < 32)
    for (int i = 0; i < n; ++i) sum += x[i] * sum;  // loop
  __syncthreads();  // barrier
  x[threadIdx.x] = sum;
}
__global__ void large_tile(float *x) {
  __shared__ float tile[12 * 1024];
  tile[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  x[threadIdx.x] = tile[threadIdx.x ^ 1];
}
__global__ void dynamic_tile(float *x) {
  extern __shared__ float tile[];
  tile[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  x[threadIdx.x] = tile[threadIdx.x ^ 1];
}
"""


@pytest.fixture(scope="module")
def module():
    return wb.load_cuda(SOURCE, device="sim")


def line_of(kernel: str, mark: str) -> int:
    start = next(i for i, text in enumerate(SOURCE.splitlines()) if f"void {kernel}(" in text)
    return 1 + next(i for i, text in enumerate(SOURCE.splitlines()) if i > start and text.endswith(f"// {mark}"))


def trace(module, name: str, grid: int, block: int, n_in: int, n_out: int | None = None, **options) -> Trace:
    arrays = [np.zeros(n_out or n_in, np.float32), np.arange(n_in, dtype=np.float32)]
    return wb.trace_kernel(getattr(module, name), grid=grid, block=block, args=arrays, **options)


def test_a_coalesced_copy_wastes_nothing(module):
    found = trace(module, "copy", 4, 128, 512)
    load, store = found.line(line_of("copy", "load")), found.line(line_of("copy", "store"))
    for line in (load, store):
        assert (line.global_requests, line.global_sectors, line.global_ideal_sectors) == (16, 64, 64)
        assert (line.sectors_per_request, line.used_fraction, line.active_lanes) == (4.0, 1.0, 32.0)
    assert (found.bytes_moved, found.bytes_used, found.unique_bytes, found.reuse) == (4096, 4096, 4096, 1.0)
    assert (found.reuse_in_blocks, found.reuse_between_blocks) == (1.0, 1.0)
    assert found.shared_requests == found.barrier_waits == 0


@pytest.mark.parametrize(
    ("name", "n_in", "sectors", "ideal", "used"),
    [
        # the load of one warp; the store beside it takes 4 sectors, all used
        ("stride_two", 64, 8, 4, 128),
        ("column", 1024, 32, 4, 128),
        ("same_word", 32, 1, 1, 4),
    ],
)
def test_waste_shows_against_the_ideal(module, name: str, n_in: int, sectors: int, ideal: int, used: int):
    found = trace(module, name, 1, 32, n_in, 32)
    line = found.line(line_of(name, "both"))
    assert (line.global_requests, line.global_sectors, line.global_ideal_sectors) == (2, sectors + 4, ideal + 4)
    assert line.bytes_used == used + 128
    assert found.used_fraction == pytest.approx((used + 128) / (32 * (sectors + 4)))
    assert found.sectors_per_request == (sectors + 4) / 2
    assert found.ideal_sectors_per_request == (ideal + 4) / 2


def test_reuse_between_blocks(module):
    """8 blocks read the same 128 bytes and write 128 bytes each: 2048 moved, 128 + 1024 distinct."""
    found = trace(module, "same_tile", 8, 32, 32, 256)
    assert (found.bytes_moved, found.unique_bytes) == (2048, 1152)
    assert found.reuse == pytest.approx(2048 / 1152)
    assert (found.reuse_in_blocks, found.reuse_between_blocks) == (1.0, 8.0)
    with pytest.raises(UnknownNameError, match=r"buffer.*input.*out, in"):
        found.buffers["input"]
    read = found.buffers["in"]
    assert (read.read_moved, read.read_unique, read.read_reuse_between_blocks) == (1024, 128, 8.0)
    assert (found.buffers["out"].written_unique, found.buffers["out"].read_moved) == (1024, 0)
    assert "in" in str(found.buffers)
    assert list(found.buffers.to_frame()["buffer"]) == ["out", "in"]


def test_bank_conflicts(module):
    found = trace(module, "bank_column", 1, 32, 32)
    for mark in ("write", "read"):
        line = found.line(line_of("bank_column", mark))
        assert (line.shared_requests, line.shared_wavefronts, line.shared_ideal_wavefronts) == (1, 32, 1)
        assert line.shared_conflicts == 31
    assert found.shared_conflicts == 62


def test_active_lanes(module):
    found = wb.trace_kernel(module.eight_lanes, grid=1, block=32, args=[np.ones(8, np.float32)])
    assert found.line(line_of("eight_lanes", "eight")).active_lanes == 8.0
    assert found.active_lanes == pytest.approx(found.report.thread_instructions / found.instructions)


def test_barrier_waits_are_those_of_the_recording(module):
    """Two warps, of which one runs a loop before the barrier: the other waits as many instructions as that takes."""
    shorter, longer = (
        wb.trace_kernel(module.late, grid=1, block=64, args=[np.zeros(400, np.float32), n], record_block=0)
        for n in (4, 400)
    )
    barrier = line_of("late", "barrier")
    for found in (shorter, longer):
        waits = [span for span in found.recording.spans if span.kind == "wait"]
        assert {(span.warp, span.kernel_line) for span in waits} == {(1, barrier)}
        assert found.line(barrier).barrier_waits == found.barrier_waits == sum(span.end - span.start for span in waits)
        ran = [line.instructions for line in found.lines if line.line <= line_of("late", "loop")]
        assert 0 < found.barrier_waits < sum(ran)
    # 396 more rounds of the loop, each of the same instructions: the wait grows by exactly what warp 0 runs more.
    assert longer.barrier_waits - shorter.barrier_waits == longer.instructions - shorter.instructions
    assert wb.trace_kernel(module.late, grid=1, block=64, args=[np.zeros(64, np.float32), 4]).recording is None


def test_the_mix_is_dynamic_and_complete(module):
    found = trace(module, "vectors", 1, 128, 512)
    assert found.mix.total == found.instructions == sum(line.instructions for line in found.lines)
    assert (found.mix["global"], found.mix["shared"], found.mix["sync"]) == (8, 8, 4)
    assert (found.mix["tensor"], "tensor" in found.mix, found.mix.share("tensor")) == (0, False, 0.0)
    assert sum(sum(line.mix.values()) for line in found.lines) == found.mix.total
    assert list(found.mix.to_frame()["class"]) == list(found.mix)


def test_machine_code_by_line(module):
    found = trace(module, "vectors", 1, 128, 512)
    path = found.lines[0].path

    def at(mark: str) -> dict[str, int]:
        return dict(found.sass.at(path, line_of("vectors", mark)).starting("LD", "ST", "BAR"))

    assert at("in") == {"LDG.128": 1, "STS.128": 1}
    assert at("barrier") == {"BAR": 1}
    assert at("out") == {"LDS.128": 1, "STG.128": 1}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", ["vectors", "late", "copy"])
def test_machine_code_accounts_for_every_instruction(module, name: str):
    kernel = getattr(module, name).compiled
    args = [np.zeros(512, np.float32), 4 if name == "late" else np.zeros(512, np.float32)]
    made = wb.trace_kernel(kernel, grid=1, block=128, args=args).sass
    # Independently: every address of the SASS but padding, which is NOPs behind a branch to itself.
    listed = re.findall(r"/\*[0-9a-f]{4}\*/\s+(?:@!?U?P\d?T?\s+)?([A-Z]\w*)", kernel.sass)
    bases = Counter(word for word in listed if word != "NOP")
    bases["BRA"] -= 1
    counted = Counter()
    for kind, count in made.counts.items():
        counted[kind.split(".")[0]] += count
    assert counted == +bases
    assert sum(counts.total for counts in made.by_line.values()) == made.counts.total
    assert made.text == kernel.sass
    assert made.to_frame()["instructions"].sum() == made.counts.total
    assert made.at("nowhere.cu", 1).total == 0


def test_occupancy_of_static_and_dynamic_shared_memory(module):
    """48 KiB and 1 KiB of the system's: 164 KiB of an sm_80 multiprocessor hold three such blocks."""
    x = np.zeros(128, np.float32)
    static = wb.trace_kernel(module.large_tile, grid=1, block=128, args=[x])
    dynamic = wb.trace_kernel(module.dynamic_tile, grid=1, block=128, args=[x], shared_bytes=48 * 1024)
    for found in (static, dynamic):
        occupancy = found.occupancy
        assert (occupancy.blocks_per_sm, occupancy.warps_per_sm, occupancy.limited_by) == (3, 12, "shared memory")
        assert occupancy.fits["shared memory"] == 3
        assert occupancy.fits["warps"] == 16
        assert found.summary()["shared bytes"].value == 48 * 1024
        assert found.summary()["registers"].value == found.kernel.registers
    small = wb.trace_kernel(module.dynamic_tile, grid=1, block=128, args=[x], shared_bytes=512)
    assert (small.occupancy.limited_by, small.occupancy.fraction) == ("warps", 1.0)


def test_code_of_a_header_counts_where_it_is_used(tmp_path: Path):
    (tmp_path / "twice.cuh").write_text("__device__ float twice(float x) {\n  return x + x;\n}\n")
    file = tmp_path / "user.cu"
    file.write_text(
        '#include "twice.cuh"\nextern "C" __global__ void k(float *x) {\n  float y = x[threadIdx.x];\n'
        "  y = twice(y);\n  x[threadIdx.x] = y;\n}\n"
    )
    found = wb.trace_kernel(compile_cuda(file, "k"), grid=1, block=32, args=[np.ones(32, np.float32)])
    assert {line.file for line in found.lines} == {"user.cu"}
    assert found.line(4).mix == {"fp32": 1}
    assert dict(found.sass.at(str(file), 4)) == {"FADD": 1}
    unfolded = found.unfolded()
    assert unfolded.line(2, "twice.cuh").mix == {"fp32": 1}
    assert dict(unfolded.sass.at(str(tmp_path / "twice.cuh"), 2)) == {"FADD": 1}
    assert re.search(r"^ *twice\.cuh:2 .*return x \+ x;", str(unfolded), re.MULTILINE)
    assert sum(line.instructions for line in unfolded.lines) == found.instructions


def test_how_a_trace_reads(module):
    found = trace(module, "vectors", 1, 128, 512)
    text = str(found)
    assert max(map(len, text.splitlines())) <= 80
    assert text.startswith("vectors, grid 1, block 128\n")
    assert "Instructions are those of the PTX" in text
    source, facts = r"tile\[threadIdx\.x\] = in\[threadIdx\.x\];", r".* 16\.0/16\.0 .* 16/16"
    assert re.search(rf"^ *\d+  {source}.*\n{facts}", text, re.MULTILINE), "the source first, its numbers below"
    assert "; in each all 32 lanes are active and all bytes that move are used" in " ".join(text.split())
    assert not re.search(r"^ *instr\..* lanes", text, re.MULTILINE), "what is alike everywhere is no column"
    assert re.fullmatch(r"<trace of vectors, grid 1, block 128: \d+ lines, \d+ warp instructions>", repr(found))
    page = found._repr_html_()
    heads = re.findall(r"<th[^>]*>([^<]*)</th>", page.split("</table>")[0])
    assert heads == ["line", "source", "instr.", "requests", "sectors", "wavefronts"]
    assert "white-space:pre;" not in page, "code wraps, or the page has to scroll"
    assert re.search(r"text-align:right;white-space:nowrap[^>]*>16\.0/16\.0<", page), "numbers do not"
    folded = page.split("<details><summary>machine code by line</summary>")[1]
    assert "1 LDG.128, 1 STS.128" in folded
    assert "In each line all 32 lanes are active and all bytes that move are used." in page
    assert "Instructions are those of the PTX" in page
    assert "&lt;" not in trace(module, "copy", 1, 128, 128)._repr_html_()
    summary = str(found.summary())
    assert re.search(r"^sectors per request +16\.00 +16\.00", summary, re.MULTILINE)
    for shown in (found.summary(), found.mix, found.sass, found.buffers):
        assert str(shown)
        assert repr(shown).startswith("<")
        assert shown._repr_html_().startswith("<table>")
        assert len(shown.to_frame())
    frame = found.to_frame()
    assert len(frame) == len(found.lines)
    assert frame.set_index("line").loc[line_of("vectors", "out"), "used_fraction"] == 1.0
    assert frame.set_index("line").loc[line_of("vectors", "barrier"), "sass"] == "1 BAR"


def test_checks_can_run_along(module):
    racy = wb.load_cuda(
        "__global__ void k(float *x) {\n"
        "  __shared__ float t[64];\n  t[threadIdx.x] = 1;\n  x[threadIdx.x] = t[threadIdx.x ^ 32];\n}\n",
        device="sim",
    )
    found = wb.trace_kernel(racy.k, grid=1, block=64, args=[np.zeros(64, np.float32)], checks=True)
    assert any(finding.kind == "shared race" for finding in found.report.findings)
    assert found.summary()["findings"].value == len(found.report.findings)
    assert f"checks: {len(found.report.findings)} findings" in str(found)
    assert all(line in str(found) for line in found.check.lines())
    alone = wb.trace_kernel(racy.k, grid=1, block=64, args=[np.zeros(64, np.float32)])
    assert "checks: not run; checks=True, or --check, runs them" in str(alone)
    assert alone.findings is None
    with pytest.raises(ArgumentError, match="a launch without checks"):
        _ = alone.check


@pytest.fixture(scope="module")
def reversed_rows():
    """An op with a kernel that races, and its twin with a barrier."""

    @wb.op
    def reversed_rows(x):
        return x.flip(1)

    reversed_rows.case("small", x=wb.randn(4, 64))
    text = """extern "C" __global__ void NAME(float *out, const float *x) {
    __shared__ float row[64];
    row[threadIdx.x] = x[blockIdx.x * 64 + threadIdx.x];
    BARRIER
    out[blockIdx.x * 64 + threadIdx.x] = row[63 - threadIdx.x];
}"""
    for name, barrier in (("racy", ""), ("clean", "__syncthreads();")):
        source = text.replace("NAME", name).replace("BARRIER", barrier)
        reversed_rows.cuda(source, name=name, grid=lambda x: x.shape[0], block=64, args=("out", "x"))
    return reversed_rows


def test_a_trace_of_an_op_runs_the_checks_once(reversed_rows):
    found, clean = (wb.trace(reversed_rows, variant=name) for name in ("racy", "clean"))
    assert "shared race" in {finding.kind for finding in found.findings}
    assert "findings of the checks:" in str(found)
    assert "row[63 - threadIdx.x]" in str(found).partition("findings of the checks:")[2]
    assert "shared race" in found._repr_html_()
    assert (clean.findings, clean.check.ok) == ((), True)
    assert "checks: no findings" in str(clean)
    assert "findings of the checks:" not in str(clean)


def test_a_trace_says_that_it_ran_no_checks(reversed_rows, monkeypatch):
    from workbench.ops import tracing

    sampled = wb.trace(reversed_rows, variant="racy", sample=2)
    command = "wb.check(reversed_rows, variants='racy', cases='small') runs them"
    assert sampled.checks_brief == f"not run on a sample of the blocks; {command}"
    monkeypatch.setattr(tracing, "MOST_CHECKED", 100)
    large = wb.trace(reversed_rows, variant="racy")
    assert large.checks_brief == f"not run beyond 100 warp instructions; {command}"
    assert "findings" not in {fact.name for fact in large.summary().facts}


def test_several_kernels_keep_the_findings_of_each(reversed_rows):
    from workbench.ptx.joined import join_reports, with_findings_of

    reports = [wb.trace(reversed_rows, variant=name).report for name in ("racy", "clean")]
    plain = [replace(report, findings=[], has_checks=False) for report in reports]
    both = with_findings_of(join_reports(plain), join_reports(reports))
    assert both.has_checks
    assert [len(part.findings) for part in both.parts] == [len(report.findings) for report in reports]
    assert len(both.findings) == len(reports[0].findings) > 0


def test_several_kernels_are_traced_together_and_apart(module):
    from workbench.ptx.joined import join_reports

    first, second = trace(module, "copy", 1, 128, 128), trace(module, "column", 1, 32, 1024)
    report = join_reports([first.report, second.report])
    both = Trace("both", lines_of(report), report, (first.kernel, second.kernel))
    assert both.instructions == first.instructions + second.instructions
    assert both.unique_bytes == first.unique_bytes + second.unique_bytes
    assert [part.instructions for part in both.parts] == [first.instructions, second.instructions]
    assert [part.sass.counts.total for part in both.parts] == [first.sass.counts.total, second.sass.counts.total]
    assert both.sass.counts.total == first.sass.counts.total + second.sass.counts.total
    assert {fact.name for fact in both.summary().facts} >= {"registers of copy", "registers of column"}
    assert both.buffers["column: in"].read_unique == 1024
    assert first.parts == (first,)


def test_what_is_refused(module):
    x = np.zeros(128, np.float32)
    with pytest.raises(ArgumentError, match="kernel of load_cuda"):
        wb.trace_kernel("copy", grid=1, block=1, args=[])
    with pytest.raises(ArgumentError, match="block: missing"):
        wb.trace_kernel(module.copy, grid=1, args=[x, x])
    with pytest.raises(ArgumentError, match="record_block"):
        wb.trace_kernel(module.copy, grid=1, block=128, args=[x, x], record_block=(1, 0, 0))
    with pytest.raises(ArgumentError, match="arguments of copy"):
        wb.trace_kernel(module.copy, grid=1, block=128, args=[x])
    with pytest.raises(UnknownNameError, match="line: got 99"):
        wb.trace_kernel(module.copy, grid=1, block=128, args=[x, x]).line(99)


THEMES = {  # text and background
    "pages, light": ("222222", "ffffff"),
    "pages, dark": ("e6e6e6", "1b1b1b"),
    "documentation, dark": ("cfd0d0", "131416"),
    "JupyterLab, dark": ("e1e1e1", "111111"),
}


@pytest.mark.parametrize("theme", THEMES)
def test_the_hottest_number_is_readable(theme):
    """Contrast as WCAG 2 defines it."""

    def luminance(colour):
        linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in colour]
        return np.dot(linear, (0.2126, 0.7152, 0.0722)) + 0.05

    text, below = (np.array(list(bytes.fromhex(colour))) / 255 for colour in THEMES[theme])
    *orange, opacity = map(float, re.findall(r"[\d.]+", heat_colour(1)))
    behind = opacity * np.array(orange) / 255 + (1 - opacity) * below
    light = luminance(text), luminance(behind)
    assert max(light) / min(light) >= 4.5
