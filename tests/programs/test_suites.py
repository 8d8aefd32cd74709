"""``suites.py``: which programs of a public suite it takes, and how it judges what they print."""

from __future__ import annotations

import pytest
import suites

JUDGED = {
    "a comparison": (0, "Max error 0\nPASS\n", "right", "", True),
    "no comparison": (0, "Time: 3 us\n", "right", "", False),
    "a failure that it survives": (0, "device: 3\nTest FAILED\n", "other", "says 'FAILED'", False),
    "NaN": (0, "loss: -nan\n", "other", "says 'nan'", False),
    "a status": (7, "PASS\n", "other", "ends with 7", False),
    "no file": (1, "cannot open file mesh.txt\n", "no input", "", False),
    "a function": (1, "workbench: not supported: cudaMallocArray: textures\n", "refused", "cudaMallocArray", False),
    "a part": (
        1, "workbench: not supported: kernel fill: the machine has no device heap; pass memory\n", "refused",
        "device heap", False,
    ),
    "a header": (1, "main.cu:54:10: fatal error: cublas_v2.h: No such file or directory\n", "refused", "cublas", False),
    "a texture": (1, 'a.cu(1): error: identifier "cudaBindTexture" is undefined\n', "refused", "textures", False),
    "a picture": (127, "cannot be loaded: undefined symbol: glutSwapBuffers\n", "refused", "OpenGL", False),
    "what the checks say": (1, "workbench: the checks found a mismatch\n", "other", "ends with 1", False),
}  # fmt: skip


@pytest.mark.parametrize("name", JUDGED)
def test_output_is_judged(name):
    status, output, verdict, reason, compares = JUDGED[name]
    found = suites.judged("program", (status, output), {})
    assert (found.verdict, found.reason, found.compares) == (verdict, reason, compares)


def test_programs_are_chosen_built_and_counted(tmp_path, monkeypatch):
    for name in ("a-cuda", "b-cuda", "b_nvrtc-cuda", "c-cuda", "c-hip"):
        (tmp_path / "src" / name).mkdir(parents=True)
        if name != "c-cuda":
            (tmp_path / "src" / name / "main.cu").write_text("constexpr int n = 1000000;\n")
    rules = {
        "programs": ["src/*-cuda"], "suffix": "-cuda", "without": "_nvrtc", "holds": "*.cu", "build": "make {name}",
        "binary": "main", "replace": [["n = \\d+", "n = 8"]],
        "program": {"a": {"arguments": "3 points", "data": {"points": "graph 4 2"}}, "b": {"needs": "data"}},
    }  # fmt: skip
    chosen = list(suites.programs(tmp_path, rules))
    assert [name for name, _ in chosen] == ["a", "b"]
    called = []
    monkeypatch.setattr(suites, "subprocess_of", lambda command, *_: called.append(command) or (0, "PASS"))
    outcomes = [suites.run(name, path, rules, tmp_path, seconds=1, check=True) for name, path in chosen]
    folder = tmp_path / "src" / "a-cuda"
    assert (folder / "main.cu").read_text() == "constexpr int n = 8;\n"
    numbers = list(map(int, (folder / "points").read_text().split()))
    assert numbers[:9] == [4, 0, 2, 2, 2, 4, 2, 6, 2]
    assert len(numbers) == 11 + 2 * 4 * 2
    assert called == [[*suites.RUN, "bash", "-c", "make a"], [*suites.RUN, "--check", f"{folder}/main", "3", "points"]]
    assert suites.row("mine", outcomes) == "| mine | 2 | 1 | 1 | 0 | 0 | 1 | 0 |"


def test_a_run_without_end_is_stopped(tmp_path):
    assert suites.subprocess_of(["sleep", "60"], tmp_path, 0.1) is None
    assert suites.subprocess_of(["sh", "-c", "echo said; exit 3"], tmp_path, 60) == (3, "said\n")
