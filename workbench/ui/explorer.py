"""Sliders over a kernel's tunables, which run the kernel again and show what changed."""

from __future__ import annotations

import html
import textwrap
from collections.abc import Callable, Sequence
from typing import Any

import ipywidgets
import traitlets

from workbench.base.tables import Table
from workbench.errors import ArgumentError
from workbench.launch import Trace
from workbench.ops import registry
from workbench.ops.tracing import trace
from workbench.ops.variant import Case, Variant
from workbench.ui.picture import Picture

_START = "at the start"


class KernelExplorer(ipywidgets.VBox):
    """A widget with a slider per tunable; each change compiles and runs the kernel in the PTX machine.

    The table shows the counts of the kernel beside those of the first configuration. While a configuration compiles and
    runs, the table still has the previous counts, faded. It also has them while the configuration is illegal, beside
    the rules that it breaks; the picture is hidden then. Put the widget last in a notebook cell; without JavaScript,
    the table and the picture are shown instead.

    Args:
        op: the name of an op.
        case: a case of the op, by name or value; take a small one, because every change runs it.
        variant: a variant in CUDA C++ or Triton.
        tunables: the names that get sliders, default all; the others keep their values in ``config``.
        config: the first configuration; default the variant's untuned rule for the case.
        picture: function of a trace that returns a picture to show below the table, for example a `warp_map`.
        record_block: the block whose requests are recorded for the picture.

    Raises:
        UnknownNameError: if the op, variant or case does not exist.
        ArgumentError: if the variant does not have a tunable.
        ConfigurationError: if the first configuration is illegal.
    """

    config = traitlets.Dict(help="Configuration of the sliders, a value for every tunable; may be set.")
    broken = traitlets.List(traitlets.Unicode(), help="Rules that the configuration breaks; empty if it is legal.")
    trace = traitlets.Instance(Trace, allow_none=True, help="Trace of the last legal configuration.")
    busy = traitlets.Bool(False, read_only=True, help="True while the kernel compiles and runs.")

    def __init__(
        self,
        op: str,
        case: str | Case,
        *,
        variant: str | Variant,
        tunables: Sequence[str] | None = None,
        config: dict | None = None,
        picture: Callable[[Trace], Picture] | None = None,
        record_block: tuple[int, int, int] | None = (0, 0, 0),
    ):
        found = registry.get(op)
        self.variant, self.case = found.variant(variant), found.case(case)
        self._op, self._picture, self._record_block = op, picture, record_block
        begin = dict(config or self.variant.default_config(self.variant.machine_problem(self.case)))
        self.variant.check(begin, self.variant.machine_problem(self.case, begin))
        self.sliders = {name: self._slider(name, begin[name]) for name in self._names(tunables)}
        self._table, self._image = ipywidgets.HTML(), ipywidgets.HTML()
        super().__init__([*self.sliders.values(), self._table, self._image])
        self._start: dict[str, str] = {}
        self.observe(self._on_config, "config")
        self.config = begin
        for name, slider in self.sliders.items():
            slider.observe(lambda change, name=name: self._on_slider(name, change.new), "value")

    # -- forms without JavaScript -------------------------------------------------------------------------------

    def __repr__(self) -> str:
        lines = [f"{self.variant} on {self.case.label}, {_settings(self.config)}"]
        lines += [f"breaks {rule}" for rule in self.broken]
        table = Table(self._columns, self._rows, "lrr")
        return "\n".join([*lines, textwrap.indent(str(table), "  ")])

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict, dict]:
        bundle = super()._repr_mimebundle_(**kwargs)
        data, metadata = bundle if isinstance(bundle, tuple) else (bundle, {})
        data = data | {"text/plain": repr(self)}
        if self._image.value and not self.broken:
            data["text/html"] = f"{self._table_html()}{self._image.value}"
        return data, metadata

    # -- internal steps -----------------------------------------------------------------------------------------

    @property
    def _columns(self) -> tuple[str, str, str]:
        return "", "before" if self.busy or self.broken else "now", _START

    @property
    def _rows(self) -> list[tuple[str, str, str]]:
        return [(name, now, self._start[name]) for name, now in _facts(self.trace).items()]

    def _names(self, tunables: Sequence[str] | None) -> tuple[str, ...]:
        names = tuple(self.variant.space if tunables is None else tunables)
        for name in names:
            if name not in self.variant.space:
                raise ArgumentError("tunables", repr(name), ", ".join(self.variant.space), "Name a tunable.")
        return names

    def _slider(self, name: str, value: Any) -> ipywidgets.SelectionSlider:
        values = sorted({*self.variant.space[name], value})
        return ipywidgets.SelectionSlider(
            options=values,
            value=value,
            description=name,
            continuous_update=False,
            layout={"width": "36em"},
            style={"description_width": "13em"},
        )

    def _on_slider(self, name: str, value: Any) -> None:
        if self.config[name] != value:
            self.config = {**self.config, name: value}

    def _on_config(self, change: traitlets.Bunch) -> None:
        for name, slider in self.sliders.items():
            slider.value = self.config[name]
        self.broken = [
            str(rule) for rule in self.variant.broken(self.config, self.variant.machine_problem(self.case, self.config))
        ]
        try:
            if not self.broken:
                self._run()
        finally:
            self._show()

    def _run(self) -> None:
        self.set_trait("busy", True)
        self._show()
        try:
            self.trace = trace(
                self._op, self.case, variant=self.variant, config=self.config, record_block=self._record_block
            )
            self._start = self._start or _facts(self.trace)
            if self._picture is not None:
                self._image.value = self._picture(self.trace).cell_html()
        finally:
            self.set_trait("busy", False)

    def _show(self) -> None:
        self._image.layout.visibility = "hidden" if self.busy or self.broken else "visible"
        self._table.value = self._table_html()

    def _table_html(self) -> str:
        rows = self._rows
        styles = [("", "font-weight:bold" if now != start else "", "opacity:0.7") for _, now, start in rows]
        table = Table(self._columns, rows, "lrr", styles=styles).html()
        settings = html.escape(_settings(self.config))
        rules = "".join(f"<li>{html.escape(rule)}</li>" for rule in self.broken)
        said = f"<b>{settings} is illegal:</b><ul>{rules}</ul>" if rules else ""
        said = f"<b>compiling and running {settings} …</b>" if self.busy else said
        return f'{said}<div style="opacity:0.45">{table}</div>' if said else table


def _settings(config: dict) -> str:
    return " ".join(f"{name}={value}" for name, value in config.items())


def _facts(traced: Trace | None) -> dict[str, str]:
    """Return the counts of a trace as text, by name; nothing before the first run."""
    if traced is None:
        return {}
    occupancy = traced.occupancy
    return {
        "warp instructions": f"{traced.report.instructions:,}",
        "global requests": f"{traced.global_requests:,}",
        "sectors per request (ideal)": f"{traced.sectors_per_request:.1f} ({traced.ideal_sectors_per_request:.1f})",
        "bytes moved (of them used)": f"{traced.bytes_moved:,} ({traced.used_fraction:.0%})",
        "shared wavefronts (ideal)": f"{traced.shared_wavefronts:,} ({traced.shared_ideal_wavefronts:,})",
        "waiting at barriers": f"{traced.barrier_waits:,} warp instructions",
        "registers per thread": f"{traced.kernel.registers}",
        "occupancy": f"{occupancy.fraction:.0%}, limited by {occupancy.limited_by}",
    }
