"""Figures of quantization: the values of codes, magnitudes of keys and values, error against bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch

from workbench.attention.cache_formats.nvfp4 import LARGEST_ELEMENT, VALUES
from workbench.attention.cache_formats.quantization import CACHE_DTYPES, LARGEST
from workbench.ui import OKABE_ITO, marked, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def codes_on_a_line(kinds: Sequence[str] = tuple(CACHE_DTYPES)) -> Figure:
    """Draw the non-negative values of all codes on a linear axis (left) and a logarithmic one (right).

    Each kind is scaled so that its largest value is 1; of "nvfp4" these are the elements of one group, which share a
    scale. Returns the matplotlib Figure.
    """
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(11, 2.2), sharey=True)
    for row, kind in enumerate(kinds):
        if kind == "nvfp4":
            codes = torch.tensor(VALUES) / LARGEST_ELEMENT
        else:
            codes = torch.arange(256, dtype=torch.uint8).view(CACHE_DTYPES[kind]).float() / LARGEST[kind]
        codes = codes[codes.isfinite() & (codes >= 0) & (codes <= 1)].unique()
        for ax, points in ((axes[0], codes), (axes[1], codes[codes > 0])):
            color = OKABE_ITO[row % len(OKABE_ITO)]
            ax.plot(points, torch.full_like(points, -row), "|", color=color, markersize=16, markeredgewidth=1)
    axes[1].set_xscale("log")
    axes[0].set(ylim=(0.6 - len(kinds), 0.6), xlabel="value / largest value")
    axes[0].set_yticks([-row for row in range(len(kinds))], labels=kinds)
    axes[1].set_xlabel("the same, logarithmic")
    for ax in axes:
        ax.spines[["top", "right", "left"]].set_visible(False)
        ax.tick_params(left=False)
    figure.tight_layout()
    return figure


def token_maps(tensors: Mapping[str, torch.Tensor]) -> Figure:
    """Draw the magnitude of each element of one head: tokens are rows, channels are columns.

    ``tensors`` has ``[tokens, head_size]`` for each name. Returns the matplotlib Figure.
    """
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(tensors), figsize=(11, 2.6), sharey=True, squeeze=False)
    largest = max(float(tensor.abs().max()) for tensor in tensors.values())
    for ax, (name, tensor) in zip(axes[0], tensors.items(), strict=True):
        image = ax.imshow(tensor.abs(), cmap="cividis", vmin=0, vmax=largest, aspect="auto", interpolation="nearest")
        ax.set(title=name, xlabel="channel")
    axes[0][0].set_ylabel("token")
    figure.colorbar(image, ax=axes[0], label="magnitude")
    return figure


def error_against_bytes(
    errors: Mapping[str, Mapping[str, tuple[float, float]]], *, ylabel: str, ax: Axes | None = None
) -> Axes:
    """Plot errors by the granularity of scales: ``{kind: {granularity: (bytes, error)}}``.

    Granularities are ordered by their bytes per element, which are written below them. The kinds of one granularity are
    side by side, so that none hides another, with a colour and a marker each. Returns the matplotlib Axes.
    """
    ax = new_axes(7, 3.8) if ax is None else ax
    size_of = {name: size for points in errors.values() for name, (size, _) in points.items()}
    granularities = sorted(size_of, key=size_of.__getitem__)
    for row, (kind, points) in enumerate(errors.items()):
        aside = 0.6 * ((row + 0.5) / len(errors) - 0.5)
        places = [granularities.index(name) + aside for name in points]
        ax.plot(
            places, [error for _, error in points.values()], **marked(row), label=kind,
            linestyle=("-", "--", ":", "-.")[row % 4], linewidth=1, markersize=8,
        )  # fmt: skip
    ax.legend(frameon=False, fontsize=8)
    ax.set_xticks(range(len(granularities)), [f"{name}\n{size_of[name]:.3g} B" for name in granularities])
    ax.set(xlim=(-0.5, len(granularities) - 0.5), xlabel="scale, and bytes per element with it", ylabel=ylabel)
    ax.set_yscale("log")
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(axis="y", alpha=0.25)
    return ax
