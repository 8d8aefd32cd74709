"""The doubles have the signatures of the real packages; FlexAttention itself, compiled for the CPU."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
import zipfile

import flashinfer_double
import pytest
import xformers_double
from test_attention_peers import flex_double

from workbench.attention.bench.paged_attention import Cell
from workbench.attention.bench.paged_attention.inputs import Inputs
from workbench.attention.bench.paged_attention.peers import FlexAttention

pytestmark = pytest.mark.long


def written(function: ast.FunctionDef) -> list[tuple[str, str]]:
    """Name and default of every parameter, with what kind it is; as `of_double`."""
    args = function.args
    plain = [*args.posonlyargs, *args.args]
    defaults = [None] * (len(plain) - len(args.defaults)) + args.defaults
    pairs = list(zip(plain, defaults, strict=True))
    pairs += [(args.vararg, "*")] if args.vararg else [(None, "only")] if args.kwonlyargs else []
    pairs += list(zip(args.kwonlyargs, args.kw_defaults, strict=True)) + ([(args.kwarg, "**")] if args.kwarg else [])
    return [
        (arg.arg if arg else "", default if isinstance(default, str) else ast.unparse(default) if default else "")
        for arg, default in pairs
    ]


def of_double(function) -> list[tuple[str, str]]:
    (node,) = ast.parse(inspect.cleandoc("\n" + inspect.getsource(inspect.unwrap(function)))).body
    return written(node)


def wheel(package: str, version: str, folder) -> zipfile.ZipFile:
    """The package's wheel; skips where no index has it."""
    command = [sys.executable, "-m", "pip", "download", f"{package}=={version}", "--no-deps", "-q", "-d", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if done.returncode:
        pytest.skip(f"{package} {version} cannot be had: {done.stderr.strip().splitlines()[-1:]}")
    return zipfile.ZipFile(next(folder.glob("*.whl")))


def real(archive: zipfile.ZipFile, file: str, *path: str) -> list[tuple[str, str]]:
    """A function's parameters, of several definitions the last (overloads come before)."""
    node = ast.parse(archive.read(file))
    for name in path:
        node = [child for child in node.body if getattr(child, "name", None) == name][-1]
    return written(node)


@pytest.mark.parametrize("version", flashinfer_double.VERSIONS)
def test_flashinfers_double_has_its_signatures(version, tmp_path):
    archive, file = wheel("flashinfer-python", version, tmp_path), "flashinfer/decode.py"
    wrapper, decode = flashinfer_double.DOUBLES[version]
    assert of_double(decode) == real(archive, file, "trtllm_batch_decode_with_kv_cache")
    for name in ("__init__", "plan", "run"):
        expected = real(archive, file, "BatchDecodeWithPagedKVCacheWrapper", name)
        assert of_double(getattr(wrapper, name)) == expected, name


def test_xformers_double_has_its_signatures(tmp_path):
    archive, folder = wheel("xformers", xformers_double.VERSION, tmp_path), "xformers/ops/fmha"
    mask = xformers_double.PagedBlockDiagonalPaddedKeysMask
    assert of_double(xformers_double.memory_efficient_attention_forward) == real(
        archive, f"{folder}/__init__.py", "memory_efficient_attention_forward"
    )
    assert of_double(mask.from_seqlens.__func__) == real(
        archive, f"{folder}/attn_bias.py", mask.__name__, "from_seqlens"
    )
    for name in ("get_split_k", "get_operator"):
        function = getattr(xformers_double.FwOp, name).__func__
        assert of_double(function) == real(archive, f"{folder}/triton_splitk.py", "FwOp", name), name


def test_flex_attentions_double_has_its_signature():
    from torch.nn.attention.flex_attention import flex_attention as real_one

    def plain(function):
        return [(p.name, p.kind, p.default) for p in inspect.signature(function).parameters.values()]

    assert plain(flex_double) == plain(real_one)


def test_flex_attention_compiled_for_the_cpu_reads_the_pages_of_the_block_table():
    inputs = Inputs.draw(Cell(8, 2, num_seqs=3, context=256, head_size=64), "cpu")
    prepared = FlexAttention().ways(inputs.cell)[0].prepare(inputs, None)
    prepared.run()
    check = inputs.check(prepared.result)
    assert check.ok, check
