"""The command line: what it prints, what it returns, and the README's first command as it stands there."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from every_command import every_command
from sampling import long_if

from workbench.cli import main
from workbench.errors import DeviceUnavailableError
from workbench.tuning import Store

README = (Path(__file__).resolve().parent.parent / "README.md").read_text()


@pytest.fixture
def workbench(fresh_home):
    return lambda *arguments: CliRunner().invoke(main, arguments)


@pytest.mark.parametrize("only", [("cuda_thread_group", "triton_online_softmax"), long_if(True, (), id="all")])
def test_the_readmes_tune_command_ends_with_a_winner_and_does_nothing_twice(workbench, fresh_home, only):
    command = shlex.split(re.search(r"^python -m pip .*&& workbench (tune .*)$", README, re.MULTILINE)[1])
    command += [word for name in only for word in ("--variant", name)] + (["--budget", "3"] if only else [])
    first = workbench(*command)
    assert first.exit_code == 0, first.output
    with Store(fresh_home / "tuning.sqlite") as store:
        rows = store.trials()
    by_language = {language: [t for t in rows if t.language == language] for language in ("cuda", "triton")}
    assert all(len(trials) >= (3 if only else 12) for trials in by_language.values())
    assert all(trial.outcome for trial in rows)
    assert "winner: " in first.output

    again = workbench(*command)
    assert again.exit_code == 0
    assert "0 new" in again.output
    winner = re.search(r"winner: (.*)", first.output)[1]
    assert winner in again.output

    from workbench import ops
    from workbench.ops.dispatch import choose

    name, config = winner.split(": predicted")[0].split(" ", 1)
    op = ops.get("paged_attention")
    problem = next(iter(op.cases.values())).problem({"BLOCK_SIZE": int(re.search(r"BLOCK_SIZE=(\d+)", config)[1])})
    variant, chosen = choose(op, problem, "tuned", None, device="sim")
    assert variant.name == name
    assert " ".join(f"{key}={value}" for key, value in chosen.items()) == config


def test_compare_prints_the_table(workbench):
    only = [word for name in ("cuda_thread_group", "triton_online_softmax") for word in ("--variant", name)]
    done = workbench("compare", "paged_attention", "--device", "sim", *only)
    assert done.exit_code == 0
    assert "cuda_thread_group" in done.output
    assert "triton_online_softmax" in done.output


def test_trace_prints_source_lines(workbench):
    done = workbench("trace", "paged_attention", "--variant", "cuda_thread_group")
    assert done.exit_code == 0
    assert "lines of paged_attention_thread_group.cu" in done.output
    assert "key[j].load" in done.output


def test_doctor_in_words_and_json(workbench):
    assert "PTX machine" in workbench("doctor").output
    found = json.loads(workbench("doctor", "--json").stdout)
    assert found["schema"] == "workbench-doctor/1"
    assert {"name", "ok", "detail", "remedy"} <= set(found["checks"][0])


def test_what_commands_find_as_json(workbench, fresh_home):
    op = ("copy_blocks", "--variant", "cuda_vectors")
    compared = json.loads(workbench("compare", *op, "--device", "sim", "--json").stdout)
    assert compared["schema"] == "workbench-compare/1"
    assert [(row["variant"], row["outcome"]) for row in compared["variants"]] == [("cuda_vectors", "ok")]
    traced = json.loads(workbench("trace", *op, "--json").stdout)
    assert traced["schema"] == "workbench-trace/1"
    assert sum(line["global_requests"] for line in traced["lines"]) > 0
    tuned = json.loads(workbench("tune", *op, "--device", "sim", "--budget", "2", "--json").stdout)
    assert tuned["schema"] == "workbench-tune/1"
    assert tuned["outcomes"] == {"ok": len(tuned["trials"])}


def test_an_error_is_one_message_and_exit_code_2(workbench):
    done = workbench("compare", "paged_attention", "--case", "llama-9")
    assert done.exit_code == 2
    assert "llama-9" in done.output
    assert "Traceback" not in done.output


def test_a_sweep_is_saved_under_a_name_that_will_do_and_only_when_it_is_whole(workbench, monkeypatch, tmp_path):
    from workbench.tuning import ProgressBar
    from workbench.tuning.recorded.sweep import shipped

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(ProgressBar, "__call__", interrupt)
    kept = tmp_path / "kept.json"
    command = ("tune", shipped()[0].split("-")[0], "--device", f"replay:{shipped()[0]}", "--save")
    refused = workbench(*command, str(tmp_path / "kept.txt"))
    assert (refused.exit_code, "ending in .json.gz or .json" in refused.output) == (2, True), "before anything is tried"
    assert workbench(*command, str(kept)).exit_code == 130
    assert not kept.exists()


def test_isolation_reaches_the_tuner(workbench, monkeypatch):
    from workbench.tuning.measuring import attempt, isolation

    commands = dict(every_command(main))
    choice = next(option for option in commands["tune"].params if option.name == "isolation").type
    assert set(choice.choices) == set(attempt.ISOLATION)
    monkeypatch.setattr(isolation, "InWorker", Refusing)
    command = ("tune", "copy_blocks", "--device", "sim", "--budget", "1")
    assert "asked for a process" in workbench(*command, "--isolation", "process").output
    assert workbench(*command, "--isolation", "none").exit_code == 0


class Refusing:
    """Stands where a process would be started."""

    def __init__(self, *_):
        raise DeviceUnavailableError("asked for a process")


def test_a_recorded_sweep_is_replayed_exported_and_searched(workbench, tmp_path):
    from workbench.tuning.recorded.sweep import load, shipped

    name = next(name for name in shipped() if name.startswith("contiguous_attention"))
    kept = tmp_path / "kept.json.gz"
    options = ("--strategy", "bayesian", "--budget", "12", "--save", str(kept))
    done = workbench("tune", "contiguous_attention", "--device", f"replay:{name}", *options)
    assert done.exit_code == 0, done.output
    assert "winner: cuda_register_softmax" in done.output
    assert "replayed: simulator sweep" in done.output
    assert load(kept).label == load(name).label

    cache = tmp_path / "cache.json"
    assert workbench("export", name, str(cache), "--format", "kernel-tuner").exit_code == 0
    assert len(json.loads(cache.read_text())["cache"]) == len(load(name).trials)
    again = workbench("tune", "contiguous_attention", "--device", f"replay:{cache}", "--budget", "5")
    assert "replayed: simulator sweep" in again.output, "a prediction stays labelled in another tool's format"
    refused = workbench("tune", "paged_attention", "--device", f"replay:{name}")
    assert refused.exit_code == 2
    assert "It holds contiguous_attention/cuda_register_softmax" in refused.output

    table = workbench("bench", "tune", "--sweep", name, "--seeds", "2", "--skip-peers")
    assert table.exit_code == 0, table.output
    assert "bayesian, from the untuned rule" in table.output


def test_doctor_takes_parts_only_to_fix(workbench):
    done = workbench("doctor", "--part", "PyCUDA")
    assert done.exit_code == 2
    assert "Add --fix." in done.output


@pytest.mark.parametrize(
    ("words", "offered"),
    [(["complet"], ["completion"]), (["tune", "copy"], ["copy_blocks"]), (["compare", "x", "--dev"], ["--device"])],
)
def test_a_shell_completes_commands_ops_and_options(words, offered):
    from click.shell_completion import BashComplete

    found = BashComplete(main, {}, "workbench", "_WORKBENCH_COMPLETE").get_completions(words[:-1], words[-1])
    assert [item.value for item in found if item.type != "file"] == offered


def test_completion_prints_the_script_of_a_shell(workbench):
    assert "_WORKBENCH_COMPLETE=bash_complete" in workbench("completion", "bash").output


def test_help_and_completion_import_no_room_that_runs_kernels():
    """All commands are imported, and nothing that takes seconds: torch, the machine, terminal tables, notebooks."""
    script = (
        "import sys; sys.path.insert(0, 'tests'); from every_command import every_command\n"
        "from workbench.cli import main; names = [name for name, _ in every_command(main)]\n"
        "heavy = {'torch', 'numpy', 'triton', 'rich', 'tqdm', 'matplotlib', 'IPython', 'workbench.ptx'}\n"
        "print(len(names), sorted(heavy & sys.modules.keys()))"
    )
    folder = Path(__file__).resolve().parent.parent
    done = subprocess.run([sys.executable, "-c", script], cwd=folder, capture_output=True, text=True, check=True)
    count, heavy = done.stdout.split(" ", 1)
    assert int(count) > 25
    assert heavy.strip() == "[]"
