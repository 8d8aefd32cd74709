"""Pictures of one-byte numbers: where the codes lie, what keys and values look like, what an error costs in bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from workbench.kvcache.quantization import CACHE_DTYPES, LARGEST
from workbench.ui.plots import OKABE_ITO

_MARKERS = "osD^vPX*"


def codes_on_a_line(kinds: Sequence[str] = tuple(CACHE_DTYPES)):
    """Every value that a code has, each kind scaled so that its largest is 1: the positive ones, on a plain line on the
    left and on a logarithmic one on the right. Returns the matplotlib Figure."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(11, 2.2), sharey=True)
    for row, kind in enumerate(kinds):
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


def token_maps(tensors: Mapping[str, torch.Tensor]):
    """The magnitude of each element of one head, tokens down and channels across: ``{name: [tokens, head_size]}``.

    Returns the matplotlib Figure.
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


def error_against_bytes(errors: Mapping[str, Mapping[str, tuple[float, float]]], *, ylabel: str, ax=None):
    """Points of error over bytes per element: ``{kind: {granularity: (bytes, error)}}``. Returns the matplotlib Axes.

    Colour and dashes tell the kinds apart, markers the granularity.
    """
    import matplotlib.pyplot as plt
    from matplotlib.lines import Line2D

    if ax is None:
        _, ax = plt.subplots(figsize=(7, 3.8))
    granularities = list(dict.fromkeys(name for points in errors.values() for name in points))
    handles = []
    for row, (kind, points) in enumerate(errors.items()):
        style = {"color": OKABE_ITO[row % len(OKABE_ITO)], "linestyle": ("-", "--", ":", "-.")[row % 4]}
        ax.plot(*zip(*points.values(), strict=True), linewidth=1, **style)
        handles.append(Line2D([], [], label=kind, **style))
        for name, (size, error) in points.items():
            ax.plot(size, error, _MARKERS[granularities.index(name)], color=style["color"], markersize=8)
    handles += [
        Line2D([], [], color="black", linestyle="", marker=_MARKERS[row], label=name)
        for row, name in enumerate(granularities)
    ]
    ax.legend(handles=handles, frameon=False, ncols=2)
    ax.set(xlabel="bytes per element, scales included", ylabel=ylabel, yscale="log")
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(alpha=0.25)
    return ax
