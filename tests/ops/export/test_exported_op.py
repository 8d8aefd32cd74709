"""Export: one file that needs torch and PyCUDA or Triton alone, and is right."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from types import ModuleType

import pytest
import torch
from click.testing import CliRunner
from sampling import long_if
from simulated_gpu.plugin import environment, missing

import workbench as wb
from workbench import ops
from workbench.cli import main
from workbench.errors import ArgumentError
from workbench.ops import registry, tuned
from workbench.ops.export.layout import WIDTH, fitted
from workbench.ops.tuned import TunedEntry, TunedTable, problem_record

HERE = Path(__file__).resolve().parent
EXPORTED = {
    "softmax_rows": "row_softmax",
    "softmax_kernel": "row_softmax",
    "split": "split_signs",
    "two_kernels": "centre",
    "scale_kernel": "normalised",
    "descriptors_kernel": "doubled",
}
"""Variant -> op."""


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """The ops of exported_ops.py, for this module alone; loaded as `load_op` does it."""
    before = dict(registry.OWN)
    spec = importlib.util.spec_from_file_location("exported_ops", HERE / "exported_ops.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    registry.OWN.clear()
    registry.OWN.update(before)


@pytest.fixture(scope="module")
def files(own: ModuleType, tmp_path_factory) -> dict[str, Path]:
    """Every variant's file."""
    folder = tmp_path_factory.mktemp("exported")
    return {name: getattr(own, op).export(folder / f"{name}.py", name) for name, op in EXPORTED.items()}


@pytest.fixture
def tuned_for_h200(own: ModuleType, monkeypatch: pytest.MonkeyPatch):
    """A table of the simulated GPU that the tests have, in which the second configuration has won."""
    variant = own.row_softmax.variant("softmax_rows")
    entries = tuple(
        TunedEntry(
            own.row_softmax.name,
            "softmax_rows",
            problem_record(own.row_softmax.case(case).problem()),
            {"NUM_THREADS": threads},
            2e-6,
            "measured",
            variant.source_hash,
            case,
            {"NUM_THREADS": 32},
            3e-6,
            "2026-01-02",
            {"torch": "2.13"},
        )
        for case, threads in (
            ("small", 64),
            ("wide cols=300" if "wide cols=300" in own.row_softmax.cases else "wide", 32),
        )
    )
    name = "H200-SXM5-141GB (simulated)"
    table = TunedTable(tuned.slug(name), "sm_90", f"{name} (sm_90) through PyCUDA", entries, Path("h200.json"))
    tables = tuned._Tables({table.device: (table,)})
    monkeypatch.setattr(tuned, "_tables_now", lambda: tables)


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"exported_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def spoilt(path: Path, old: str, new: str) -> Path:
    """A copy with a mistake in its kernel."""
    text = path.read_text()
    assert text.count(old) == 1
    other = path.with_name(f"spoilt_{path.name}")
    other.write_text(text.replace(old, new))
    return other


SPOILT = {
    "softmax_rows": ("/ sum);", "/ (sum + 9.f));"),
    "softmax_kernel": ("e / tl.sum(e, 0)", "e / (tl.sum(e, 0) + 1)"),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("names", "wrong"),
    [
        (("softmax_rows", "softmax_kernel", "two_kernels", "descriptors_kernel"), "softmax_rows"),
        long_if(True, ("split", "scale_kernel"), "softmax_kernel"),
    ],
)
def test_runs_without_the_workbench(files: dict[str, Path], names: tuple[str, ...], wrong: str):
    """On the simulated GPU: right files exit with 0, one with a mistake in its kernel with 1."""
    problem = missing()
    if problem is not None:
        assert not os.environ.get("WORKBENCH_REQUIRE_GPU_DOUBLE"), problem
        pytest.skip(problem)
    paths = [str(path) for path in (*(files[name] for name in names), spoilt(files[wrong], *SPOILT[wrong]))]
    command = [sys.executable, str(HERE / "run_exported.py"), *paths]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    streams = found.pop("streams")
    assert found == {path: int(Path(path).name.startswith("spoilt")) for path in paths}, done.stdout
    assert streams


def test_without_pycuda_a_kernel_names_it_and_the_cpu_is_served(
    own: ModuleType, files: dict[str, Path], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setitem(sys.modules, "pycuda.driver", None)
    module = load(files["softmax_rows"])
    x = torch.randn(2, 8)
    torch.testing.assert_close(getattr(module, own.row_softmax.name)(x), torch.softmax(x, -1))
    with pytest.raises(ImportError, match=r"needs PyCUDA.*: pip install pycuda; .*workbench setup pycuda"):
        module.torch_stream(0).__enter__()


@pytest.mark.parametrize("name", EXPORTED)
def test_computes_the_reference_on_the_cpu(own: ModuleType, files: dict[str, Path], name: str):
    module, op = load(files[name]), getattr(own, EXPORTED[name])
    exported = getattr(module, op.name)
    for (case_name, given), case in zip(module.cases(), op.cases.values(), strict=True):
        expected = case.arguments()
        assert case_name == case.name
        for one, same in zip(given, expected.values(), strict=True):
            assert torch.equal(one, same) if isinstance(one, torch.Tensor) else one == same
        torch.library.opcheck(exported, given, test_utils=("test_schema", "test_faketensor"))
        found, wanted = exported(*given), op.contract.function(**expected)
        torch.testing.assert_close(found, wanted)
        torch.testing.assert_close(given, tuple(expected.values()))


def test_a_configuration_that_no_call_decides_is_a_constant(files: dict[str, Path]):
    text = files["scale_kernel"].read_text()
    assert 'CONFIGURATION = {"BLOCK": 256}\n' in text
    assert "launch(CONFIGURATION, x, out)" in text
    assert not re.search("UNTUNED|first_legal|described|chosen", text)


def test_gradients(files: dict[str, Path]):
    module = load(files["split"])
    x = torch.randn(7, requires_grad=True)
    low, high = module.split_signs(x, -1.0)
    (2 * low.sum() + 3 * high.sum()).backward()
    assert torch.equal(x.grad, torch.where(x > 0, 2.0, 3.0))


def test_configurations(own: ModuleType, tmp_path: Path, tuned_for_h200, monkeypatch: pytest.MonkeyPatch):
    path = own.row_softmax.export(tmp_path / "one.py")
    text = path.read_text()
    assert "# Case small: measured 2.00 µs, untuned 3.00 µs" in text
    assert "- H200-SXM5-141GB (simulated): times measured, 2026-01-02 (torch 2.13)" in text
    module = load(path)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "H200-SXM5-141GB (simulated)")

    def chosen(x, legal=lambda config: True):
        return module.choose(x.device, (x,), legal)["NUM_THREADS"]

    half = torch.empty(6, 80, dtype=torch.float16)
    assert chosen(half) == 64
    assert chosen(torch.empty(2, 512, dtype=torch.float16)) == 32
    assert chosen(half, lambda config: config["NUM_THREADS"] < 64) == 32
    assert chosen(torch.empty(6, 80)) == 32  # nothing is tuned for float32
    assert not module.is_legal({"NUM_THREADS": 64}, torch.empty(2, 33))
    with pytest.raises(ValueError, match="no configuration is legal"):
        chosen(half, lambda config: False)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Another of this architecture")
    assert chosen(half) == 64
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    assert chosen(half) == 32


def test_same_bytes(own: ModuleType, files: dict[str, Path], tmp_path: Path):
    for name in ("softmax_rows", "scale_kernel"):
        again = getattr(own, EXPORTED[name]).export(tmp_path / "again.py", name)
        assert again.read_bytes() == files[name].read_bytes()


def test_reads_as_the_project_does(files: dict[str, Path]):
    """No workbench in the code; ruff has nothing to say, where it is installed."""
    for path in files.values():
        lines = path.read_text().splitlines()
        assert not any("import" in line and "workbench" in line for line in lines)
        assert len(lines) < 370
    ruff = shutil.which("ruff")
    if ruff is None:
        pytest.skip("ruff is not installed")
    config = ["--config", str(HERE.parents[2] / "pyproject.toml"), "--no-cache"]
    for command in (["check"], ["format", "--check"]):
        done = subprocess.run([ruff, *command, *config, *map(str, files.values())], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout


NAMES = ", ".join(f"argument_{place}_with_a_long_name" for place in range(5))


@pytest.mark.parametrize(
    "line",
    [
        f"def f({NAMES}) -> tuple[int, int]:",
        f"    return reference({NAMES}).clone(memory_format=torch.contiguous_format)",
        f"    for case, ({NAMES}) in cases():",
        f'    results = {{"out (a, b": (kernel[(1, 1, 1)]({NAMES}, num_warps=4), reference({NAMES}))}}',
        f"    x = [one for one in sorted(each for each in ({NAMES})) if one]",
        f"    x = ({NAMES.replace(', ', ' + ')})",
        f'    x = f"{{cases()}} (one,", ({NAMES})',
    ],
)
def test_long_lines_are_broken_at_brackets(line: str):
    broken = fitted(line)
    assert all(len(one) <= WIDTH for one in broken.splitlines()) or "+" in line
    same = [ast.dump(ast.parse(textwrap.dedent(one) + ("pass" if one.endswith(":") else ""))) for one in (line, broken)]
    assert same[0] == same[1]
    assert fitted(broken) == broken


def test_command_line(tmp_path: Path, own: ModuleType, files: dict[str, Path]):
    path = tmp_path / "one.py"
    done = CliRunner().invoke(main, ["export", f"{HERE / 'exported_ops.py'}:normalised", str(path)])
    assert done.exit_code == 0, done.output
    assert path.read_bytes() == files["scale_kernel"].read_bytes()


def test_command_line_refuses_an_op_that_the_package_has(tmp_path: Path):
    (tmp_path / "with_paged.py").write_text("from workbench.attention.ops.paged_attention import OP\n")
    done = CliRunner().invoke(main, ["export", f"{tmp_path / 'with_paged.py'}:OP", str(tmp_path / "one.py")])
    assert done.exit_code == 2
    assert "paged_attention of an installed package; allowed: an op made by @workbench.op" in done.output


COPY = """extern "C" __global__ void copy(float *out, const float *x, int n) {
    if (threadIdx.x < n) out[threadIdx.x] = x[threadIdx.x];
}"""
KEPT = object()
WITHOUT_SOURCE = eval("lambda x: 1")


def _clone(x):
    return x.clone()


def _names_an_object(x):
    return x.clone() if KEPT else x


def _names_the_workbench(x):
    return x.clone() if ops else x


def _copying(reference=_clone, **declared):
    op = wb.op(reference, name="copied")
    op.case("one", x=wb.randn(8))
    op.cuda(COPY, **{"grid": 1, "block": 32, "args": ("out", "x", "x.numel()")} | declared)
    return op


REFUSED = {
    "export: 'KEPT': got a builtins.object": {"reference": _names_an_object},
    "export: 'ops': got the module workbench.ops": {"reference": _names_the_workbench},
    "export: grid: got a lambda without source": {"grid": WITHOUT_SOURCE},
    "export: 'launch': got a name that the exported file has": {"tune": {"launch": (1,)}, "grid": "launch"},
    "export: where.*x.aligned": {"where": lambda x: x.aligned},
}


@pytest.mark.parametrize("message", REFUSED)
def test_refuses_what_cannot_be_written(own: ModuleType, tmp_path: Path, message: str):
    op = _copying(**REFUSED[message])
    with pytest.raises(ArgumentError, match=message):
        op.export(tmp_path / "refused.py")
    assert not [*tmp_path.iterdir()]


def test_refuses_other_arguments(own: ModuleType, tmp_path: Path):
    bare = wb.op(_clone, name="bare")
    bare.case("one", x=wb.randn(8))
    with pytest.raises(ArgumentError, match="an op without a kernel"):
        bare.export(tmp_path / "refused.py")
    with pytest.raises(ArgumentError, match="Plain torch needs no export"):
        own.normalised.export(tmp_path / "refused.py", "torch")
    with pytest.raises(ArgumentError, match="a Python file that can be imported"):
        own.normalised.export(tmp_path / "not-a-module.py")
    with pytest.raises(ArgumentError, match="existing folder"):
        own.normalised.export(tmp_path / "nowhere" / "one.py")
