"""Faults that others have reported, rebuilt small: each form of each program has the verdict that its table names."""

from __future__ import annotations

import functools
import re
import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import judged_reports
import pytest
import torch
import triton
import triton_reports

import workbench as wb
from workbench.analysis.device_models import device_model
from workbench.analysis.launches import Launches
from workbench.analysis.watching import Watch, watch
from workbench.driver.simulated import current
from workbench.errors import KernelFault, PredictedTimeWarning
from workbench.ops.declared.elsewhere import CHANGES
from workbench.ptx import Finding
from workbench.ptx.schedules import KIND

HERE = Path(__file__).parent
SOURCES = {
    "cuda": (HERE / "cuda_programs.cu", "sm_80"),
    "hopper": (HERE / "hopper_programs.cu", "sm_90a"),
}
Marks = tuple[str, ...]


class Case(NamedTuple):
    """A form of a program. ``finds`` and ``notes`` have kinds, each with the marks of all lines that it names; a strict
    launch finds both, and what is in ``strict``. ``told`` are words of notes, or of the fault that ends the launch."""

    program: str
    form: int
    finds: Mapping[str, Marks] = {}
    notes: Mapping[str, Marks] = {}
    strict: Mapping[str, Marks] = {}
    stops: Mapping[str, Marks] = {}
    told: str = ""
    lanes: int = 20

    @property
    def id(self) -> str:
        return f"{self.program}-{self.form}" + (f"-{self.lanes}" if self.program == "tail_sum" else "")


UNAWAITED, PROXY = "cp.async data read before wait", "missing fence.proxy.async"
VOLATILE, UNDEFINED = "volatile access without __syncwarp", "undefined shuffle value"
ENDED, PLACES = "barrier that threads have ended before", "barrier at several places"
IN_USE, NO_ACQUIRE = "tensor map changed while a copy reads it", "missing fence.proxy.tensormap"
OVERLAP, CONFIRMED = "missing griddepcontrol.wait", "plain load that an atomic confirms"
LATER = "wait for a block that starts later"

CUDA = [
    Case("last_block", 0),
    Case("last_block", 1, {"global race": ("store", "load")}),
    Case("last_block", 2, notes={"missing acquire fence": ("load",)}),
    Case("last_block", 3, {"global race": ("store", "load")}),
    Case("agreed_bin", 0, notes={LATER: ("wait",)}),
    Case("agreed_bin", 1, {"global race": ("count", "read")}, {LATER: ("wait",)}),
    Case("swapped_sum", 0, notes={CONFIRMED: ("first load", "swap")}),
    Case("swapped_sum", 1, {"global race": ("store", "first load", "swap")}, {CONFIRMED: ("first load", "swap")}),
    Case("warp_sum", 0),
    Case("warp_sum", 1, notes={VOLATILE: ("add",)}),
    Case("warp_sum", 2, {"warp race": ("add",)}),
    Case("divergent", 0),
    Case("divergent", 1, notes={ENDED: ("in half a warp",)}),
    Case("divergent", 2, {"warp race": ("store", "load")}, {PLACES: ("first", "second")}),
    Case("divergent", 3, {"divergent barrier": ("odd", "even")}),
    Case("divergent", 4, {"divergent barrier": ("in the loop",)}, {ENDED: ("at the loop's end",)}),
    Case("divergent", 5, notes={ENDED: ("after the return",)}),
    Case("tail_sum", 0),
    Case("tail_sum", 1, {"absent lane": ("shuffle", "ballot"), UNDEFINED: ("shuffle",)}),
    *(Case("tail_sum", 2, {UNDEFINED: ("shuffle",)}, lanes=lanes) for lanes in range(17, 32)),
    *(Case("tail_sum", 2, lanes=lanes) for lanes in (16, 32)),
    Case("tail_sum", 3, {"absent lane": ("own mask",)}),
    *(Case("tail_sum", 4, lanes=lanes) for lanes in range(16, 33)),
    Case("tail_sum", 5, {UNDEFINED: ("shuffle",)}),
    Case("tail_sum", 6),
    Case("put_back", 0),
    Case("put_back", 1, {"global race": ("load", "store")}),
    Case("two_places", 0),
    Case("two_places", 1, notes={PLACES: ("one", "other")}),
    Case("two_places", 2),
    Case("two_places", 3, {"divergent barrier": ("one, counted", "other, counted")}),
]
HOPPER = [
    Case("generic_tiles", 0),
    Case("generic_tiles", 1, {PROXY: ("a", "product")}),
    Case("generic_tiles", 2, strict={PROXY: ("a", "product")}),
    Case("generic_tiles", 3),
    Case("pipeline", 0),
    Case("pipeline", 1, {UNAWAITED: ("load a", "product")}),
    Case("pipeline", 2, {UNAWAITED: ("load b", "product"), "mbarrier misuse": ("expect b",)}),
    Case("pipeline", 3, {UNAWAITED: ("load a", "product")}),
    Case("pipeline", 4, stops={"deadlock": ("wait a",)}, told="Flip the parity after every wait"),
    Case("pipeline", 5, stops={"deadlock": ("over",)}, told="Found before: pipeline<5>: shared race"),
    Case("pipeline", 6, stops={"deadlock": ("wait a",)}, told="more arrivals than the phase waits for"),
    Case("stages", 0),
    Case("stages", 1, stops={"deadlock": ("wait",)}, told="Flip the parity after every wait"),
    Case("stages", 2, stops={"deadlock": ("wait",)}, told="expects 512 bytes, of which 256 come, 256 too few"),
    Case("stages", 3, stops={"deadlock": ("wait",)}, told="Let whoever begins it wait for warp 1 first"),
    Case("stages", 4, stops={"deadlock": ("wait",)}, told="Let all lanes meet before that: __syncwarp()"),
    Case("stages", 5, strict={PROXY: ("fill", "read")}),
    Case("retargeted", 0),
    Case("retargeted", 1, {IN_USE: ("load", "change")}),
    Case("retargeted", 2, {IN_USE: ("store", "change")}),
    Case("retargeted", 3, {NO_ACQUIRE: ("load again", "store again", "change")}),
    Case("retargeted", 4, {NO_ACQUIRE: ("plain store", "load again")}),
    Case("retargeted", 5, {IN_USE: ("plain store", "load"), NO_ACQUIRE: ("plain store", "load again")}),
    Case("staged_map", 0),
    Case("staged_map", 1, {IN_USE: ("load", "copy")}),
    Case("staged_map", 2, {NO_ACQUIRE: ("copy", "load again")}),
    Case("first_copy", 0),
    Case("first_copy", 1, {"missing fence.mbarrier_init": ("init", "copy")}),
    Case("first_copy", 2, stops={"deadlock": ("wait",)}, told="no mbarrier was initialised here"),
    Case("first_copy", 3, {"shared race": ("again", "wait")}),
    Case("cluster_sums", 0),
    Case("cluster_sums", 1, {"shared race": ("write", "remote read")}),
    Case("cluster_sums", 2, {"shared race": ("write", "remote read")}),
    Case("cluster_sums", 3, {"shared race": ("multicast", "stage read")}),
    Case("remote_writes", 0),
    Case("remote_writes", 1, {"shared race": ("remote store", "read")}),
    Case("remote_writes", 2),
    Case("remote_writes", 3, {"shared race": ("remote atomic", "read")}),
    Case("stored_async", 0),
    Case("stored_async", 1, {UNAWAITED: ("store", "read")}),
    Case("counted_copies", 0),
    Case("counted_copies", 1, {UNAWAITED: ("copy", "read")}),
    Case("dependent", 0),
    Case("dependent", 1, {OVERLAP: ("read",)}),
]
# Triton's results are right unless the words of a note, or a finding, say why not.
WRONG = {("trials_in_place", 1), ("key_without_size", 1), ("masked_maximum", 1)}
TRITONS = [
    Case("trials_in_place", 0),
    Case("trials_in_place", 1, told="the trials of @triton.autotune wrote y, which the kernel reads and writes"),
    Case("key_without_size", 0),
    Case("key_without_size", 1, told="the key of @triton.autotune lacks n: tuned with n=64, it runs BLOCK=64 with"),
    Case("masked_maximum", 0),
    Case("masked_maximum", 1, told="without other= leaves masked lanes undefined (zeros today)"),
    Case("masked_maximum", 2, told="without other= leaves masked lanes undefined (zeros today)"),
    Case("short_rows", 0),
    Case("scalar_branch", 0),
    Case("same_value_of_blocks", 0),
    Case("same_value_of_blocks", 1, {"global race": ("store",)}),
    Case("count_of_programs", 0),
    Case("count_of_programs", 1, {"global race": ("add", "load")}),
    Case("bytes_by_inline_asm", 0),
    Case("signed_reductions", 0),
    Case(
        "stored_then_loaded", 0, notes={"bulk store read before wait": ("store", "load")},
        strict={"missing fence.mbarrier_init": ("load",)},
    ),
    Case("dependent_launches", 0),
    Case("dependent_launches", 1, {OVERLAP: ("load",)}),
]  # fmt: skip


class Judged(NamedTuple):
    """The outcomes of an op's variant, by case; inputs of other magnitudes than the case's have their own rows.

    With some draws it is also wrong for the ``structures``, named in `workbench.ops.declared.elsewhere.CHANGES`.
    """

    op: str
    variant: str
    outcomes: Mapping[str, str]
    structures: frozenset[str] = frozenset()

    @property
    def id(self) -> str:
        return f"{self.op}-{self.variant}"


STRUCTURES = frozenset(CHANGES) - {"x100", "x10000", "negative"}
JUDGED = [
    Judged("row_max", "right", {"negative": "ok", "around 0": "ok"}, frozenset({"nan"})),  # tl.max passes NaN over
    Judged(
        "row_max",
        "wrong",
        {"negative": "wrong_result", "around 0": "ok", "around 0, negative": "wrong_elsewhere"},
        STRUCTURES,
    ),
    Judged("soft_cap", "right", {"large": "ok", "small": "ok"}),
    Judged(
        "soft_cap",
        "wrong",
        {"large": "wrong_result", "small": "ok", "small, x10000": "wrong_elsewhere"},
        STRUCTURES,
    ),
    Judged("column_sum", "right", dict.fromkeys(("8 rows", "64 rows", "300 rows"), "ok")),
    Judged("column_sum", "wrong", dict.fromkeys(("8 rows", "64 rows", "300 rows"), "wrong_result")),
]


def in_memory(target: torch.Tensor, kept: list[torch.Tensor]) -> torch.Tensor:
    """A tensor map in global memory, aligned as maps are."""
    room = torch.zeros(256, dtype=torch.uint8)
    kept += [room, target]
    at = -room.data_ptr() % 64
    encoded = bytearray(bytes(wb.TensorMap.of(target, (8, 32))))
    room[at : at + 128] = torch.frombuffer(encoded, dtype=torch.uint8)
    return room[at : at + 128]


def given(case: Case, kept: list[torch.Tensor]) -> tuple[int, int, list[Any]]:
    """Grid, block and arguments of a CUDA program's launch; ``kept`` has what only addresses lead to."""
    x, y = torch.arange(1024.0), torch.zeros(1024)
    match case.program:
        case "last_block":
            return 8, 8, [y, torch.zeros(8), torch.zeros(1, dtype=torch.int32), x]
        case "agreed_bin":
            return 4, 64, [torch.zeros(4, dtype=torch.int32), *torch.zeros(2, 32, dtype=torch.int32), x]
        case "swapped_sum":
            return 3, 32, [torch.zeros(1), x]
        case "divergent":
            return 1, 64, [y, x, 64]
        case "tail_sum":
            return 1, 32, [y, x, case.lanes, 8 if case.lanes == 16 else 16]
        case "put_back":
            return 3, 32, [x]
        case "generic_tiles":
            return 1, 128, [y, torch.ones(64 * 64, dtype=torch.float16)]
        case "pipeline":
            a, b = (torch.ones(rows, 4 * 64, dtype=torch.float16) for rows in (128, 8))
            return 1, 288, [wb.TensorMap.of(a, (128, 64), swizzle=128), wb.TensorMap.of(b, (8, 64), swizzle=128), y, 4]
        case "stages":
            return 1, 32 if case.form == 4 else 64, [y, x, 6]
        case "retargeted":
            maps = [in_memory(torch.zeros(8, 32), kept) for _ in range(2)]
            return 1, 32, [*maps, torch.zeros(8, 32), torch.zeros(8, 32)]
        case "staged_map":
            return 1, 32, [in_memory(torch.zeros(8, 32), kept), torch.zeros(8, 32)]
        case "cluster_sums":
            return 2, 64, [y, x, 4]
        case "remote_writes" | "stored_async":
            return 2, 32, [torch.zeros(64, dtype=torch.int32)]
        case _:
            return 1, 64, [y, x]


@functools.cache
def loaded(family: str) -> Any:
    """The module of all programs of a family, each form a kernel."""
    source, arch = SOURCES[family]
    return wb.load_cuda(source, arch=arch, include_dirs=[HERE, HERE.parent / "ptx"], device="sim")


def named(findings: Iterable[Finding], program: str) -> dict[str, set[str]]:
    """The marks of the lines that findings name, by kind."""
    names: dict[str, set[str]] = {}
    for finding in findings:
        lines = Path(finding.kernel_source).read_text().splitlines()
        for line in filter(None, (finding.kernel_line, finding.other_kernel_line)):
            names.setdefault(finding.kind, set()).add(lines[line - 1].rpartition(f" {program}: ")[2])
    return names


def marks(*kinds: Mapping[str, Marks]) -> dict[str, set[str]]:
    """Return a row's expectation as `named` returns it."""
    return {kind: set(lines) for each in kinds for kind, lines in each.items()}


def check_cuda(family: str, case: Case, strict: bool) -> None:
    kept: list[torch.Tensor] = []
    grid, block, args = given(case, kept)
    kernel = loaded(family)[f"{case.program}<{case.form}>"]
    options: dict[str, Any] = {"strict": strict}
    if case.program == "dependent":
        first = loaded(family)["dependent<0>"]
        options["after"] = first, grid, block, [args[1], torch.zeros(1024)]
    if case.stops:
        with pytest.raises(KernelFault) as caught:
            wb.check_kernel(kernel, grid=grid, block=block, args=args, **options)
        assert named([caught.value.finding], case.program) == marks(case.stops)
        assert case.told in str(caught.value)
        return
    report = wb.check_kernel(kernel, grid=grid, block=block, args=args, **options)
    found, noted = (named(each, case.program) for each in (report.findings, report.launch.notes))
    if strict:
        assert (found, noted) == (marks(case.finds, case.notes, case.strict), {}), report
    else:
        assert (found, noted) == (marks(case.finds), marks(case.notes)), report
    assert report.notes == ()


def check_triton(case: Case) -> None:
    needs_hopper = case.program in ("signed_reductions", "stored_then_loaded", "dependent_launches")
    triton.set_allocator(lambda size, align, stream: torch.empty(size, dtype=torch.int8))
    with (
        warnings.catch_warnings(),
        wb.simulated_triton("sm_90" if needs_hopper else "sm_80", checks=True, force=True) as device,
    ):
        warnings.simplefilter("ignore", PredictedTimeWarning)
        got, right = getattr(triton_reports, case.program)(case.form)
    assert (got == right) == ((case.program, case.form) not in WRONG)
    assert named(device.findings, case.program) == marks(case.finds)
    notes = [note for launch in device.launches for note in launch.report.notes]
    assert named(notes, case.program) == marks(case.notes)
    told = "\n".join(note for launch in device.launches for note in launch.notes)
    assert case.told in told
    assert bool(told) == bool(case.told)


def check_strict_triton(case: Case) -> None:
    """A descriptor's store and load, with what Triton itself leaves out."""
    report = wb.check_kernel(
        triton_reports.add_twice, grid=1, args=[torch.zeros(8, 32)], kwargs={"M": 8, "N": 32}, arch="sm_90", strict=True
    )
    assert named(report, case.program) == marks(case.notes, case.strict)


def check_one_launch() -> None:
    """A launch as `workbench run` makes it, once: whether the kernel uses what is undefined is not known."""
    case = Case("tail_sum", 2, notes={UNDEFINED: ("shuffle",)})
    grid, block, args = given(case, [])
    report = loaded("cuda")["tail_sum<2>"](grid, block, *args, checks=True)
    assert (report.findings, named(report.notes, case.program)) == ([], marks(case.notes))


def check_over_the_driver() -> None:
    """Triton's own launcher on the simulated driver: a row shorter than the block has threads is no race."""
    driver = current()
    if driver is None or driver.model is None:
        pytest.skip("a real GPU checks nothing")
    launches = Launches()
    watch(Watch(launches, device_model(driver.model), checks=True))
    try:
        x = torch.ones(8, device="cuda")
        triton_reports.tanh_in_place[(1,)](x, 8, BLOCK=8, num_warps=4)
        torch.testing.assert_close(x.cpu(), torch.ones(8).tanh())
    finally:
        watch(None)
    assert [launch.findings for launch in launches] == [()]


@functools.cache
def judgement(op: str) -> dict[str, dict[str, str]]:
    """The outcomes of an op's variants by case, in one judgement."""
    outcomes: dict[str, dict[str, str]] = {}
    for verdict in wb.check(judged_reports.OPS[op], seeds=1):
        outcomes.setdefault(verdict.variant, {})[verdict.case] = verdict.outcome
    return outcomes


def check_judged(judged: Judged) -> None:
    found = judgement(judged.op)[judged.variant]
    assert {case: found.get(case) for case in judged.outcomes} == judged.outcomes
    others = {case.rpartition(", ")[2]: outcome for case, outcome in found.items() if case not in judged.outcomes}
    assert others.keys() <= judged.structures
    assert set(others.values()) <= {"wrong_elsewhere"}


def rows() -> list[Any]:
    """Every form of every program with its check."""
    found = []
    for family, cases in (("cuda", CUDA), ("hopper", HOPPER)):
        for case in cases:
            found.append(pytest.param(functools.partial(check_cuda, family, case, False), id=case.id))
            if not case.stops:
                found.append(pytest.param(functools.partial(check_cuda, family, case, True), id=f"{case.id}-strict"))
    for case in TRITONS:
        found.append(pytest.param(functools.partial(check_triton, case), id=case.id))
        if case.strict:
            found.append(pytest.param(functools.partial(check_strict_triton, case), id=f"{case.id}-strict"))
    found.append(pytest.param(check_one_launch, id="tail_sum-2-launched-once"))
    found.append(pytest.param(check_over_the_driver, id="short_rows-over-the-driver", marks=pytest.mark.gpu))
    found += [pytest.param(functools.partial(check_judged, judged), id=judged.id) for judged in JUDGED]
    return found


@pytest.mark.parametrize("check", rows())
def test_the_verdict_is_the_expected_one(check: Callable[[], None]) -> None:
    check()


# Faults that change values in some order; a barrier that threads miss changes none on this machine.
SHOWN = {"last_block": 3, "agreed_bin": 1, "warp_sum": 2, "divergent": 2, "put_back": 1}


@pytest.mark.parametrize("program", SHOWN)
def test_an_order_shows_what_a_race_does_to_values(program: str) -> None:
    for form, shown in ((0, False), (SHOWN[program], True)):
        grid, block, args = given(Case(program, form), [])
        kernel = loaded("cuda")[f"{program}<{form}>"]
        report = wb.check_kernel(kernel, grid=grid, block=block, args=args, schedules=8)
        assert any(one.kind == KIND for one in report.findings) == shown, report


def test_every_form_is_in_the_table() -> None:
    for family, cases in (("cuda", CUDA), ("hopper", HOPPER)):
        forms = re.findall(r"^FORMS_(\d)\((\w+)\)", SOURCES[family][0].read_text(), re.MULTILINE)
        written = {(program, form) for count, program in forms for form in range(int(count))}
        assert written == {(case.program, case.form) for case in cases}
