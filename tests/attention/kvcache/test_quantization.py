"""What a code means, by the formats' own formulas; and scales that are found from samples."""

import pytest
import torch

from workbench.attention.cache_formats import nvfp4
from workbench.attention.cache_formats.quantization import (
    CACHE_DTYPES,
    EIGHT_BITS,
    LARGEST,
    dequantize,
    quantize,
    store_token_scales,
    token_scales,
    usable,
)
from workbench.attention.kvcache import Calibration
from workbench.errors import ArgumentError

KINDS = EIGHT_BITS


def value_of(code, kind):
    """A code by the text of the OCP specification (or two's complement), as a Python float."""
    if kind == "int8":
        return float(code - 256 if code >= 128 else code)
    mantissa_bits, bias = (3, 7) if kind == "fp8_e4m3" else (2, 15)
    sign = -1.0 if code & 0x80 else 1.0
    exponent, mantissa = (code & 0x7F) >> mantissa_bits, code & ((1 << mantissa_bits) - 1)
    if kind == "fp8_e4m3" and code & 0x7F == 0x7F:
        return float("nan")
    if kind == "fp8_e5m2" and exponent == 31:
        return float("nan") if mantissa else sign * float("inf")
    if exponent == 0:
        return sign * mantissa * 2.0 ** (1 - bias - mantissa_bits)
    return sign * (1 + mantissa / (1 << mantissa_bits)) * 2.0 ** (exponent - bias)


def all_codes(kind):
    return torch.arange(256, dtype=torch.uint8).view(CACHE_DTYPES[kind]).view(1, 256)


@pytest.mark.parametrize("kind", KINDS)
def test_every_code_has_the_value_of_its_format(kind):
    found = dequantize(all_codes(kind), 1.0).flatten()
    expected = torch.tensor([value_of(code, kind) for code in range(256)])
    torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)
    assert found[expected.isfinite() & (expected != -128)].abs().max() == LARGEST[kind]


@pytest.mark.parametrize("kind", KINDS)
def test_a_number_gets_the_nearest_code(kind):
    """By search through all of them in float64; of two that are as near, the even one."""
    generator = torch.Generator().manual_seed(0)
    codes = [code for code in range(256) if abs(value_of(code, kind)) <= LARGEST[kind]]
    values = torch.tensor([value_of(code, kind) for code in codes], dtype=torch.float64)
    ordered = values.unique()
    middles = (ordered[1:] + ordered[:-1]) / 2
    random = torch.randn(4000, generator=generator).double() * 2.0 ** torch.randint(
        -18, 17, (4000,), generator=generator
    )
    numbers = torch.cat([middles, random]).float()
    found = quantize(numbers.view(1, -1), 1.0, kind).view(torch.uint8).flatten()
    distance = (numbers.double()[:, None] - values).abs()
    nearest = distance == distance.amin(1, keepdim=True)
    assert nearest[torch.arange(len(numbers)), [codes.index(code) for code in found.tolist()]].all()
    tied = (nearest & (values != 0)).sum(1) == 2
    assert tied.sum() >= len(middles) - 2
    assert (found[tied] % 2 == 0).all()


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_out_of_range(kind):
    """Saturated, also where torch's own cast gives infinity."""
    largest = LARGEST[kind]
    numbers = torch.tensor([[largest * 1.01, -1e30, torch.inf, -torch.inf, torch.nan, -torch.nan, 0.0, -0.0]])
    codes = quantize(numbers, 1.0, kind)
    found = codes.float()[0]
    assert found[:4].tolist() == [largest, -largest, largest, -largest]
    assert found[6:].tolist() == [0.0, 0.0]
    if kind == "int8":
        assert found[4:6].tolist() == [0.0, 0.0]
    else:
        assert codes.view(torch.uint8)[0, 4:].tolist() == [0x7F, 0x7F, 0x00, 0x80]
        assert kind == "fp8_e4m3" or torch.tensor([1e6]).to(torch.float8_e5m2).float().isinf()


@pytest.mark.parametrize("kind", KINDS)
def test_reading_and_storing_again_changes_nothing(kind):
    codes = all_codes(kind)
    finite = codes.float().abs() <= LARGEST[kind]
    scales = torch.rand(200, generator=torch.Generator().manual_seed(0)) * 10 ** torch.linspace(-6, 3, 200)
    for scale in (*scales, torch.tensor(2.0**-100)):
        again = quantize(dequantize(codes, scale), scale, kind)
        assert torch.equal(again.view(torch.uint8)[finite], codes.view(torch.uint8)[finite])


@pytest.mark.parametrize(
    ("kind", "absolute", "relative"), [("int8", 0.5, 0), ("fp8_e4m3", 0, 1 / 17), ("fp8_e5m2", 0, 1 / 9)]
)
def test_the_error_is_half_a_step(kind, absolute, relative):
    tokens = torch.randn(500, 2, 64, generator=torch.Generator().manual_seed(0))
    scale = token_scales(tokens, kind)
    error = (dequantize(quantize(tokens, scale, kind), scale) - tokens).abs()
    smallest = 2.0 ** (-9 if kind == "fp8_e4m3" else -16)  # below the normal numbers steps are all alike
    bound = (absolute + smallest / 2) * scale[..., None] + relative * tokens.abs()
    assert (error <= bound * (1 + 1e-6)).all()
    assert (error > 0.9 * bound).any()


class TestNvfp4:
    """Groups of 16 with a scale each."""

    def test_a_number_gets_the_nearest_code_of_its_group(self):
        """By search through all eight magnitudes in float64, under the scale that the group has."""
        numbers = torch.randn(300, 2, 32, generator=torch.Generator().manual_seed(0))
        rows = quantize(numbers, 0.01, "nvfp4")
        assert rows.shape == (300, 2, nvfp4.row_bytes(32)) == (300, 2, 18)
        blocks = rows[..., 16:].contiguous().view(torch.float8_e4m3fn).double()
        wanted = numbers.unflatten(-1, (2, 16)).abs().amax(-1).double() / 0.01 / 6
        assert ((blocks - wanted).abs() <= wanted / 16 * (1 + 1e-6)).all(), "rounded to four bits"
        steps = blocks.repeat_interleave(16, -1) * 0.01
        choices = torch.tensor(nvfp4.VALUES).double()
        distance = (numbers.double().abs()[..., None] - choices * steps[..., None]).abs()
        found = dequantize(rows, 0.01).double()
        assert ((found - numbers).abs() <= distance.amin(-1) + 1e-6 * steps).all()
        assert (found * numbers >= 0).all()

    def test_the_error_is_half_a_step(self):
        tokens = torch.randn(500, 2, 64, generator=torch.Generator().manual_seed(0))
        rows = quantize(tokens, tokens.abs().max() / LARGEST["nvfp4"], "nvfp4")
        steps = rows[..., 32:].contiguous().view(torch.float8_e4m3fn).float() * tokens.abs().max() / LARGEST["nvfp4"]
        error = (dequantize(rows, tokens.abs().max() / LARGEST["nvfp4"]) - tokens).abs()
        bound = torch.maximum(tokens.abs() / 5, steps.repeat_interleave(16, -1) / 4)
        assert (error <= bound * (1 + 1e-5)).all()
        assert (error > 0.9 * bound).any()

    def test_what_is_out_of_range(self):
        numbers = torch.zeros(6, 16)
        numbers[0, 2], numbers[1, 4], numbers[2, :2] = torch.nan, -torch.inf, torch.tensor([1e30, 1.0])
        numbers[3, 0], numbers[4] = 1e-6, -0.0
        rows = quantize(numbers[:, None], 1.0, "nvfp4")[:, 0]
        found = dequantize(rows[:, None], 1.0)[:, 0]
        assert found[0].isnan().all()
        assert found[1, 4] == -LARGEST["nvfp4"]
        assert found[2, :2].tolist() == [LARGEST["nvfp4"], 0.0]
        assert (found[3:] == 0).all()
        assert rows[0].tolist() == [0] * 8 + [0x7F]
        assert rows[4].tolist() == [0x88] * 8 + [0], "a zero keeps its sign"

    def test_reading_and_storing_again_changes_nothing(self):
        rows = torch.randint(256, (2000, 1, 18), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
        rows[..., 0] |= 7  # a 6 in each group, so that the scale is found again
        rows[..., 8] |= 7
        rows[..., 16:] = rows[..., 16:] % 126 + 1  # a scale is positive and finite
        for scale in (1.0, 0.037, 2.0**-100):
            again = quantize(dequantize(rows, scale), scale, "nvfp4")
            assert torch.equal(again, rows)

    def test_a_calibrated_scale_covers_the_samples(self):
        tokens = (
            torch.randn(50, 3, 32, generator=torch.Generator().manual_seed(0)) * torch.tensor([1.0, 20, 3e-3])[:, None]
        )
        keys = Calibration("nvfp4", per_head=True)
        keys.add(tokens)
        rows = quantize(tokens, keys.scale(), "nvfp4")
        largest = rows[..., 16:].contiguous().view(torch.float8_e4m3fn).float().amax((0, 2))
        assert largest.tolist() == [448.0] * 3

    def test_no_head_of_half_a_group(self):
        with pytest.raises(ArgumentError, match=r"head_size: got 24.*16 for nvfp4.*fp8_e4m3"):
            quantize(torch.ones(1, 1, 24), 1.0, "nvfp4")


class TestTokenScales:
    @pytest.mark.parametrize("kind", KINDS)
    def test_the_largest_element_becomes_the_largest_code(self, kind):
        tokens = (
            torch.randn(9, 3, 32, generator=torch.Generator().manual_seed(0))
            * 10 ** torch.linspace(-8, 8, 9)[:, None, None]
        )
        scale = token_scales(tokens, kind)
        assert scale.shape == (9, 3)
        codes = quantize(tokens, scale, kind).float()
        assert (codes.abs().amax(-1) == LARGEST[kind]).all()

    def test_zeros_and_tiny_numbers(self):
        tokens = torch.tensor([0.0, 1e-45, 1e-38]).view(3, 1, 1)
        scale = token_scales(tokens, "int8")
        assert usable(scale)
        assert scale[0] == 1
        assert quantize(tokens, scale, "int8").isfinite().all()

    def test_they_go_beside_their_slots(self):
        tokens = torch.randn(4, 2, 8)
        scales = torch.full((3, 4, 2), torch.nan)
        store_token_scales(tokens, scales, torch.tensor([9, -1, 2, 0]), "fp8_e4m3")
        expected = tokens.abs().amax(-1) / 448
        assert torch.equal(scales.view(12, 2)[[9, 2, 0]], expected[[0, 2, 3]])
        assert int(scales.isnan().sum()) == 24 - 6


class TestCalibration:
    @staticmethod
    def batches(dtype=torch.float32):
        generator = torch.Generator().manual_seed(0)
        heads = torch.tensor([1.0, 20.0, 0.003])[:, None]
        return [(torch.randn(n, 3, 16, generator=generator) * heads).to(dtype) for n in (40, 1, 700)]

    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("per_head", [False, True])
    def test_the_absolute_maximum(self, kind, per_head):
        found, seen = Calibration(kind, per_head=per_head), self.batches()
        for batch in seen:
            found.add(batch)
        everything = torch.cat(seen).abs()
        expected = everything.amax((0, 2)) if per_head else everything.max().view(1)
        assert torch.equal(found.scale(), expected / LARGEST[kind])

    @pytest.mark.parametrize("per_head", [False, True])
    @pytest.mark.parametrize("percentile", [1.0, 50.0, 99.0, 99.9, 99.9999])
    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
    def test_percentiles(self, dtype, percentile, per_head):
        """The smallest magnitude that so many do not exceed: exact for bfloat16, else up to 1/128 larger."""
        found, seen = Calibration("int8", per_head=per_head), self.batches(dtype)
        for batch in seen:
            found.add(batch)
        everything = torch.cat(seen).abs().float().movedim(1, 0).reshape(3 if per_head else 1, -1)
        rank = -(-everything.shape[1] * round(percentile * 1e4) // 10**6)
        exact = everything.kthvalue(rank, 1).values / 127
        scale = found.scale(percentile)
        if dtype == torch.bfloat16:
            assert torch.equal(scale, exact)
        assert (scale >= exact).all()
        assert (scale <= exact * (1 + 1 / 128)).all()

    def test_outliers_saturate_and_the_others_get_finer_steps(self):
        tokens = torch.randn(10_000, 1, 16, generator=torch.Generator().manual_seed(0))
        tokens[0, 0, 0] = 1000
        found = Calibration("int8")
        found.add(tokens)
        errors = []
        for percentile in (100, 99.9):
            scale = found.scale(percentile)
            errors.append((dequantize(quantize(tokens, scale, "int8"), scale) - tokens)[1:].square().mean())
        assert errors[1] < errors[0] / 1000

    def test_zeros(self):
        found = Calibration("int8", per_head=True)
        found.add(torch.stack([torch.zeros(5, 8), torch.ones(5, 8)], 1))
        for percentile in (100, 50):
            assert torch.equal(found.scale(percentile), torch.tensor([1.0, 1 / 127]))

    @pytest.mark.parametrize(
        ("tokens", "message"),
        [
            (torch.tensor([[[1.0], [torch.nan]]]), "NaN"),
            (torch.tensor([[[1.0], [-torch.inf]]]), "infinity"),
            (torch.zeros(0, 2, 8), "at least one"),
            (torch.zeros(4), "num_kv_heads"),
            (torch.zeros(4, 2, 8, dtype=torch.int8), "floating-point"),
            (torch.zeros(4, 3, 8), "3 KV heads"),
        ],
    )
    def test_bad_samples_change_nothing(self, tokens, message):
        found = Calibration("int8")
        found.add(torch.ones(5, 2, 8))
        with pytest.raises(ArgumentError, match=f"^tokens: .*{message}"):
            found.add(tokens)
        assert found.scale() == 1 / 127
        assert found.scale(50) == 1 / 127

    def test_bad_questions(self):
        with pytest.raises(ArgumentError, match=r"kv_cache_dtype: .*int8"):
            Calibration("int4")
        found = Calibration("int8")
        with pytest.raises(ArgumentError, match="Call add first"):
            found.scale()
        found.add(torch.ones(5, 2, 8))
        for wrong in (0, -1, 100.1, float("nan")):
            with pytest.raises(ArgumentError, match="percentile"):
                found.scale(wrong)
