"""A decode step of the running model through real kernels: checked, and traced."""

import pytest
import torch

import workbench as wb
from workbench.attention.kvcache import PagedKVCache
from workbench.attention.models import PagedCache, decode_case, generate, load_gpt, make_cache
from workbench.attention.models.generation import advance
from workbench.errors import ArgumentError

KERNELS = ("cuda_thread_group", "triton_online_softmax")


@pytest.fixture(scope="module")
def gpt():
    return load_gpt()


@pytest.fixture(scope="module")
def case(gpt):
    model, tokenizer = gpt
    tokens = tokenizer.encode("The while statement is used for repeated execution as long as an expression is true:")
    return decode_case(model, [tokens, tokens[:9]], layer=2)


def test_kernels_are_right_on_the_models_own_tensors(case):
    found = wb.compare("paged_attention", case, KERNELS, device="sim")
    assert found.all_correct, found
    problem = case.problem()
    tensors = case.inputs(problem)
    assert not case.check(tensors.out).ok  # nothing computed yet,
    assert not case.check(torch.zeros_like(tensors.out)).ok  # or nothing to compute
    shifted = case.reference().roll(1, dims=1)
    assert not case.check(shifted).ok


def test_the_step_is_traced(case):
    trace = wb.trace("paged_attention", case, variant="cuda_thread_group")
    loads = [line for line in trace.lines if "key[j].load(" in line.text]
    assert sum(line.global_requests for line in loads) > 0
    assert case.label in trace.title


def test_the_case_is_what_the_layer_computed(gpt):
    """Its answer, through the rest of the layer, is the model's own: keys and values of another layer are not."""
    model, tokenizer = gpt
    tokens = tokenizer.encode("A list of names")
    exact = decode_case(model, [tokens], layer=1, dtype="float32")
    other = decode_case(model, [tokens], layer=2, dtype="float32")
    cache = make_cache("paged", model, num_tokens=32)
    advance(model, cache.begin("a", tokens[:-1]))
    step = cache.extend({"a": tokens[-1:]})
    seen = {}

    def attend(layer, query, key, value):
        seen[layer] = step.attend(layer, query, key, value)
        return seen[layer]

    model(step.tokens, step.positions, attend)
    torch.testing.assert_close(exact.reference().float(), seen[1], rtol=1e-5, atol=1e-5)
    assert not torch.allclose(other.reference().float(), seen[1], atol=1e-2)


@pytest.mark.parametrize("variant", KERNELS)
def test_the_whole_model_runs_on_a_kernel(tiny, prompt, variant):
    """Every decode step of every layer in the simulator, and the tokens are the same."""
    kv = PagedKVCache(
        num_layers=2, num_blocks=3, block_size=16, num_kv_heads=2, head_size=16, dtype=torch.float32, layout="x"
    )
    found = generate(tiny, prompt, cache=PagedCache(kv, variant=variant), max_new_tokens=4, stop=())
    assert found == generate(tiny, prompt, max_new_tokens=4, stop=())


def test_bad_steps(tiny):
    for arguments, message in (
        (([[1, 2]], 7), "0 to 1"),
        (([[1]], 0), "2 or more"),
        (([], 0), "2 or more"),
        (([[1, 999]], 0), "999"),
    ):
        with pytest.raises(ArgumentError, match=message):
            decode_case(tiny, *arguments)
    with pytest.raises(ArgumentError, match="float16"):
        decode_case(tiny, [[1, 2]], dtype="float64")


@pytest.mark.gpu
def test_kernels_are_right_on_a_gpu(case):
    assert wb.compare("paged_attention", case, KERNELS, device="cuda").all_correct


@pytest.mark.long
@pytest.mark.gpu
def test_the_model_writes_the_same_on_a_gpu():
    model, tokenizer = load_gpt()
    prompt = tokenizer.encode("The with statement")
    on_cpu = generate(model, prompt, max_new_tokens=24)
    for kind in ("none", "contiguous", "paged"):
        gpu_model, _ = load_gpt(device="cuda")
        cache = make_cache(kind, gpu_model, num_tokens=64)
        logits = advance(gpu_model, cache.begin("a", prompt))
        best = logits[0].topk(2).values
        assert float(best[0] - best[1]) > 1e-3
        cache.free("a")
        assert generate(gpu_model, prompt, cache=cache, max_new_tokens=24)[:8] == on_cpu[:8]
