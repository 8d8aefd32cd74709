"""Input tensors of one cell, drawn on the device under test, and a float64 reference for some sequences.

A cell can fill a GPU, so its inputs are drawn there, and the reference is computed for a sample of the sequences only.
The values are N(0, 1). In each sampled sequence one key per KV head points along a query of its group and takes most of
its weight (a *needle*), so that a kernel which skips or confuses a token is caught, however long the context is. Pages
are shuffled; free ones hold NaN. A quantized cache has one scale for all keys and one for all values, which every
contender that reads such a cache supports.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch

from workbench.attention.bench.paged_attention.cells import CACHES, BenchmarkCell
from workbench.attention.cache_formats.layouts import bits_of, from_canonical, unused_value
from workbench.attention.cache_formats.quantization import CACHE_DTYPES
from workbench.attention.ops.paged_attention.problem import PagedAttentionTensors
from workbench.attention.ops.paged_attention.reference import attend
from workbench.ops import Check

DTYPE = torch.bfloat16
FREE_PAGES = 3
_SCALES = {"bf16": (1.0, 1.0), "fp8": (0.05, 0.0625), "int8": (0.04, 0.05)}
_DRAWN_AT_ONCE = 1 << 26  # float32 elements: drawing must need little memory beside the cache
_MOST_SAMPLED = 4


@dataclass
class BenchmarkInputs:
    """Tensors of one cell on one device; ``key_cache`` and ``value_cache`` are in layout "nhd"."""

    cell: BenchmarkCell
    query: torch.Tensor  # [num_seqs, num_heads, head_size] bfloat16
    key_cache: torch.Tensor  # [num_blocks, block_size, num_kv_heads, head_size]
    value_cache: torch.Tensor
    block_tables: torch.Tensor  # [num_seqs, pages] int32
    seq_lens: torch.Tensor  # [num_seqs] int32
    k_scale: float
    v_scale: float
    sample: tuple[int, ...]
    """Indices of the sequences with a reference."""
    _answers: tuple[torch.Tensor, torch.Tensor] | None = field(default=None, repr=False)
    _made: dict[str, tuple[torch.Tensor, torch.Tensor]] = field(default_factory=dict, repr=False)

    @classmethod
    def draw(cls, cell: BenchmarkCell, device: str | torch.device, seed: int = 0) -> BenchmarkInputs:
        """Draw the tensors of a cell."""
        generator = torch.Generator(device).manual_seed(seed)
        num_blocks = cell.num_seqs * cell.pages + FREE_PAGES
        pages = torch.randperm(num_blocks, generator=generator, device=device).int()
        tables = pages[FREE_PAGES:].view(cell.num_seqs, cell.pages).contiguous()
        shape = (num_blocks, cell.block_size, cell.num_kv_heads, cell.head_size)
        k_scale, v_scale = _SCALES[cell.cache]
        query = torch.randn(cell.num_seqs, cell.num_heads, cell.head_size, generator=generator, device=device)
        made = cls(
            cell=cell,
            query=query.to(DTYPE),
            key_cache=_draw(shape, cell.cache, k_scale, generator),
            value_cache=_draw(shape, cell.cache, v_scale, generator),
            block_tables=tables,
            seq_lens=torch.full((cell.num_seqs,), cell.context, dtype=torch.int32, device=device),
            k_scale=k_scale,
            v_scale=v_scale,
            sample=_spread(cell.num_seqs),
        )
        for cache in (made.key_cache, made.value_cache):
            nan = torch.full((1,), unused_value(cache.dtype), device=device).to(cache.dtype)
            bits_of(cache)[pages[:FREE_PAGES].long()] = bits_of(nan)
        made._plant_needles()
        return made

    # -- inputs of contenders ---------------------------------------------------------------------------------------

    def caches(self, form: str) -> tuple[torch.Tensor, torch.Tensor]:
        """Return keys and values in a layout ("nhd", "hnd", "x") or "gathered"; all but "nhd" are copies, made once.

        "gathered" is ``[num_seqs, context, num_kv_heads, head_size]``: the tokens of every sequence in order.
        """
        if form == "nhd":
            return self.key_cache, self.value_cache
        if form not in self._made:
            if form == "gathered":
                made = torch.empty_like(self.key_cache[FREE_PAGES:]), torch.empty_like(self.value_cache[FREE_PAGES:])
                shape = (self.cell.num_seqs, self.cell.context, self.cell.num_kv_heads, self.cell.head_size)
                self._made[form] = made[0].view(shape), made[1].view(shape)
                self.gather()
            else:
                keys, values = from_canonical(bits_of(self.key_cache), bits_of(self.value_cache), form)
                self._made[form] = keys.view(self.key_cache.dtype), values.view(self.value_cache.dtype)
        return self._made[form]

    def gather(self) -> None:
        """Copy every sequence's pages, in order, into the tensors of ``caches("gathered")``."""
        pages = self.block_tables.flatten()
        for to, cache in zip(self.caches("gathered"), self.caches("nhd"), strict=True):
            torch.index_select(cache, 0, pages, out=to.view(-1, *cache.shape[1:]))

    def tensors(self, layout: str) -> PagedAttentionTensors:
        """Return the arguments of a variant of the op, with a new ``out`` filled with NaN."""
        key_cache, value_cache = self.caches(layout)
        scales = [None, None]
        if self.cell.cache != "bf16":
            scales = [torch.full((1,), scale, device=self.query.device) for scale in (self.k_scale, self.v_scale)]
        return PagedAttentionTensors(
            query=self.query,
            key_cache=key_cache,
            value_cache=value_cache,
            block_tables=self.block_tables,
            seq_lens=self.seq_lens,
            scale=self.cell.head_size**-0.5,
            out=torch.full_like(self.query, math.nan),
            k_scale=scales[0],
            v_scale=scales[1],
        )

    # -- the reference ----------------------------------------------------------------------------------------------

    def check(self, out: torch.Tensor) -> Check:
        """Check ``out [num_seqs, num_heads, head_size]``.

        The sampled sequences must keep the bound of the op's cases: 2 times the error of torch in bfloat16, 4 times for
        a quantized cache, plus 1e-5. All others must be finite.
        """
        if self._answers is None:
            self._answers = self._answer()
        reference, bound = self._answers
        out = out.view(self.query.shape)
        error = (out[list(self.sample)].double() - reference).abs().flatten(1).amax(1)
        error = torch.where(error.isnan(), torch.inf, error)
        worst = int((error / bound).argmax())
        ok = bool((error <= bound).all()) and bool(out.isfinite().all())
        return Check(float(error[worst]), float(bound[worst]), ok)

    def _answer(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the float64 outputs of the sampled sequences and the error bound of each."""
        group, options = self.cell.group, {"scale": self.cell.head_size**-0.5}
        exact, same = [], []
        for seq in self.sample:
            pages = self.block_tables[seq].long()
            rows: tuple[list[torch.Tensor], list[torch.Tensor]] = [], []
            for head in range(self.cell.num_kv_heads):  # one by one, because float64 takes four times the memory
                keys, values = (
                    bits_of(cache)[pages, :, head].view(cache.dtype).flatten(0, 1)[:, None].double() * scale
                    for cache, scale in ((self.key_cache, self.k_scale), (self.value_cache, self.v_scale))
                )
                query = self.query[seq, head * group : (head + 1) * group]
                rows[0].append(attend(query, keys, values, **options))
                rows[1].append(attend(query, keys, values, dtype=DTYPE, **options).double())
            exact.append(torch.cat(rows[0]))
            same.append(torch.cat(rows[1]))
        exact, same = torch.stack(exact), torch.stack(same)
        factor = 2 if self.cell.cache == "bf16" else 4
        return exact, factor * (same - exact).abs().flatten(1).amax(1) + 1e-5

    def _plant_needles(self) -> None:
        cell = self.cell
        heads = torch.arange(cell.num_kv_heads, device=self.query.device)
        places = (cell.context - 1, 0, cell.context // 3, cell.context - 2)
        tokens = torch.tensor([places[head % 4] for head in range(cell.num_kv_heads)], device=heads.device)
        keys = bits_of(self.key_cache).flatten(0, 1)
        for seq in self.sample:
            direction = self.query[seq].float().view(cell.num_kv_heads, cell.group, cell.head_size)
            direction = direction[heads, heads % cell.group]
            score = math.log(cell.context) + 2.5  # the log of the sum of all other weights is about log(context) + 1/2
            needle = direction * (score * math.sqrt(cell.head_size)) / direction.square().sum(-1, keepdim=True)
            slots = self.block_tables[seq].long()[tokens // cell.block_size] * cell.block_size
            keys[slots + tokens % cell.block_size, heads] = bits_of(_stored(needle, cell.cache, self.k_scale))


def _draw(shape: tuple[int, ...], cache: str, scale: float, generator: torch.Generator) -> torch.Tensor:
    dtype = DTYPE if cache == "bf16" else CACHE_DTYPES[CACHES[cache]]
    made = torch.empty(shape, dtype=dtype, device=generator.device)
    step = max(1, _DRAWN_AT_ONCE // math.prod(shape[1:]))
    for part in bits_of(made).split(step):
        drawn = torch.randn(part.shape, generator=generator, device=generator.device)
        part.copy_(bits_of(_stored(drawn, cache, scale)))
    return made


def _stored(values: torch.Tensor, cache: str, scale: float) -> torch.Tensor:
    """Convert float32 values to cache elements."""
    if cache == "bf16":
        return values.to(DTYPE)
    if cache == "int8":
        return (values / scale).round_().clamp_(-127, 127).to(torch.int8)
    dtype = CACHE_DTYPES[CACHES[cache]]
    limit = torch.finfo(dtype).max
    return (values / scale).clamp_(-limit, limit).to(dtype)


def _spread(num_seqs: int) -> tuple[int, ...]:
    """Return up to four evenly spread sequences, the first and the last among them."""
    count = min(num_seqs, _MOST_SAMPLED)
    return tuple(sorted({round(at * (num_seqs - 1) / max(count - 1, 1)) for at in range(count)}))
