"""A widget that steps through the requests of a recording and shows a picture of each."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import ipywidgets
import traitlets

from workbench.analysis.places import source_text
from workbench.base.tables import cut
from workbench.errors import ArgumentError
from workbench.ptx.recording import Recording, WarpRequest
from workbench.ui.bank_picture import BankMap
from workbench.ui.picture import Picture, plural
from workbench.ui.sector_picture import WarpMap

if TYPE_CHECKING:
    from workbench.ui.source_widget import SourceView

ALL_WARPS = -1
ALL_LINES = 0

_PICTURES: dict[str, Callable[[WarpRequest], Picture]] = {"global": WarpMap, "shared": BankMap}
_MOST_TEXT = 64


class RequestStepper(ipywidgets.VBox):
    """A picture of one request, with controls to choose it by line, warp and index.

    `warp_maps` and `bank_maps` make it. Put it last in a notebook cell; without JavaScript, the picture and text of the
    chosen request are shown instead. `follow` lets a `source_view` choose the line. A line or warp without requests
    clears the picture, and ``headline`` reports it.

    Raises:
        ArgumentError: if a line below 0, a warp that the block does not have, or an index past the last request is set.
    """

    line = traitlets.Int(ALL_LINES, help="Line of the kernel's own file; 0 for all.")
    warp = traitlets.Int(ALL_WARPS, help="Warp of the block; -1 for all.")
    index = traitlets.Int(0, help="Index among the requests of that line and warp, in the order of execution.")
    count = traitlets.Int(0, read_only=True, help="Number of requests of that line and warp.")
    headline = traitlets.Unicode(read_only=True, help="Summary of the chosen request in one sentence.")
    facts = traitlets.Dict(read_only=True, help="Line, warp, sectors or wavefronts, ideal and bytes of the request.")

    def __init__(self, recording: Recording, space: str, line: int = ALL_LINES, warp: int = ALL_WARPS, index: int = 0):
        self.recording, self.space = recording, space
        self._requests = [request for request in recording.requests if request.space == space]
        self._lines: dict[int, list[WarpRequest]] = {}
        for request in self._requests:
            self._lines.setdefault(request.kernel_line, []).append(request)
        self._drawn: tuple | None = None
        self._line_menu = ipywidgets.Dropdown(
            options=self._menu(), description="line", layout={"width": "auto", "min_width": "34em"}
        )
        warps = [("all", ALL_WARPS), *((str(number), number) for number in range(recording.warps))]
        self._warp_menu = ipywidgets.Dropdown(options=warps, description="warp", layout={"width": "11em"})
        self._slider = ipywidgets.IntSlider(description="request", continuous_update=False, layout={"width": "24em"})
        self._of = ipywidgets.Label()
        self._image = ipywidgets.HTML()
        super().__init__([self._line_menu, ipywidgets.HBox([self._warp_menu, self._slider, self._of]), self._image])
        with self.hold_trait_notifications():
            self.line, self.warp = line, warp
        self._update()
        self.index = index
        self.observe(self._on_choice, ["line", "warp"])
        self.observe(lambda change: self._update(), "index")
        self._line_menu.observe(self._on_line_menu, "value")
        self._warp_menu.observe(lambda change: self.set_trait("warp", change.new), "value")
        self._slider.observe(lambda change: self.set_trait("index", change.new), "value")
        self._update()

    @property
    def requests(self) -> list[WarpRequest]:
        """Requests of the chosen line and warp."""
        found = self._requests if self.line == ALL_LINES else self._lines.get(self.line, [])
        return found if self.warp == ALL_WARPS else [request for request in found if request.warp == self.warp]

    @property
    def picture(self) -> Picture | None:
        """`WarpMap` or `BankMap` of the chosen request; None if there is no request."""
        found = self.requests
        return _PICTURES[self.space](found[self.index]) if found else None

    @property
    def lines(self) -> dict[int, int]:
        """Number of requests of each line of the kernel's file that has any."""
        return {line: len(requests) for line, requests in sorted(self._lines.items())}

    def follow(self, source: SourceView) -> None:
        """Show the requests of the line that is selected in a `source_view`, from the next selection on.

        Only lines of the kernel's own file count.
        """
        source.observe(lambda change: self._on_selection(source), ["selected_line", "selected_file"])

    # -- forms without JavaScript -------------------------------------------------------------------------------

    def __repr__(self) -> str:
        where = f"{'all lines' if self.line == ALL_LINES else f'line {self.line}'}, " + (
            "all warps" if self.warp == ALL_WARPS else f"warp {self.warp}"
        )
        number = f"{self.index} of {self.count}" if self.count else "none"
        return f"<{self.space} requests of block {self.recording.block}: {where}, request {number}: {self.headline}>"

    def __str__(self) -> str:
        picture = self.picture
        if picture is None:
            return self.headline
        return f"request {self.index} of {self.count}\n{picture}"

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict, dict]:
        bundle = super()._repr_mimebundle_(**kwargs)
        data, metadata = bundle if isinstance(bundle, tuple) else (bundle, {})
        data = data | {"text/plain": str(self)}
        if self._image.value:
            data["text/html"] = self._image.value
        return data, metadata

    # -- internal steps -----------------------------------------------------------------------------------------

    def _menu(self) -> list[tuple[str, int]]:
        options = [(f"all lines ({plural(len(self._requests), 'request')})", ALL_LINES)]
        for line, requests in sorted(self._lines.items()):
            if line:
                text = source_text(requests[0].kernel_source, line).strip()
                options.append((f"{line}: {cut(text, _MOST_TEXT)} ({plural(len(requests), 'request')})", line))
        return options

    @traitlets.validate("line")
    def _check_line(self, proposal: traitlets.Bunch) -> int:
        if proposal.value < 0:
            raise ArgumentError("line", proposal.value, f"0 for all, or one of {list(self.lines)}", "Name a line.")
        return proposal.value

    @traitlets.validate("warp")
    def _check_warp(self, proposal: traitlets.Bunch) -> int:
        if not ALL_WARPS <= proposal.value < self.recording.warps:
            allowed = f"-1 for all, or 0 to {self.recording.warps - 1}"
            raise ArgumentError("warp", proposal.value, allowed, "The block has no other warps.")
        return proposal.value

    @traitlets.validate("index")
    def _check_index(self, proposal: traitlets.Bunch) -> int:
        if not 0 <= proposal.value <= max(0, len(self.requests) - 1):
            allowed = f"0 to {len(self.requests) - 1}" if self.requests else "0: there is no such request"
            raise ArgumentError("index", proposal.value, allowed, "Choose line and warp first.")
        return proposal.value

    def _on_choice(self, change: traitlets.Bunch) -> None:
        last = max(0, len(self.requests) - 1)
        if self.index > last:
            self.index = last  # its observer updates the picture
        else:
            self._update()

    def _on_selection(self, source: SourceView) -> None:
        own = {requests[0].kernel_source for requests in self._lines.values()}
        if source.selected_line and source.selected_file in own:
            self.line = source.selected_line

    def _on_line_menu(self, change: traitlets.Bunch) -> None:
        if change.new is not None:  # None: code has set a line without requests, which the menu does not have
            self.line = change.new

    def _update(self) -> None:
        picture, found = self.picture, self.requests
        self.set_trait("count", len(found))
        self.set_trait("headline", picture.headline if picture else self._nothing())
        self.set_trait("facts", _facts(picture, found[self.index]) if picture else {})
        known = [value for _, value in self._line_menu.options]
        self._line_menu.value = self.line if self.line in known else None
        self._warp_menu.value = self.warp
        with self._slider.hold_trait_notifications():
            self._slider.max, self._slider.disabled = max(0, len(found) - 1), len(found) < 2
            self._slider.value = self.index
        self._of.value = f"of {len(found):,}, counted from 0" if found else self.headline
        key = (self.line, self.warp, self.index)
        if key != self._drawn:
            self._drawn, self._image.value = key, picture.cell_html() if picture else ""

    def _nothing(self) -> str:
        who = "no warp" if self.warp == ALL_WARPS else f"warp {self.warp} does not"
        verb = "makes a request" if self.warp == ALL_WARPS else "make a request"
        where = "" if self.line == ALL_LINES else f" at line {self.line}"
        others = ", ".join(str(line) for line in self.lines if line)
        hint = f"; lines with some: {others}" if others else ""
        if self.line in self._lines:
            warps = sorted({request.warp for request in self._lines[self.line]})
            hint = f"; warps that do: {', '.join(map(str, warps))}"
        return f"{who} {verb} to {self.space} memory{where}{hint}"


def warp_maps(recording: Any, *, line: int = ALL_LINES, warp: int = ALL_WARPS, index: int = 0) -> RequestStepper:
    """Show the `warp_map` of each request to global memory in a recording, with controls to step through them.

    Args:
        recording: a `Recording`, or a trace or launch report that has one (``record_block=``).
        line: a line of the kernel's own file; 0 for all.
        warp: a warp of the block; -1 for all.
        index: index among the requests of that line and warp.

    Raises:
        ArgumentError: if nothing was recorded, or the index is past the last request.
    """
    return RequestStepper(recording_of(recording), "global", line, warp, index)


def bank_maps(recording: Any, *, line: int = ALL_LINES, warp: int = ALL_WARPS, index: int = 0) -> RequestStepper:
    """Show the `bank_map` of each request to shared memory; arguments and errors as for `warp_maps`."""
    return RequestStepper(recording_of(recording), "shared", line, warp, index)


def recording_of(source: Any) -> Recording:
    """Return the recording of a trace or report, or ``source`` itself if it is one.

    Raises:
        ArgumentError: if there is no recording.
    """
    if isinstance(source, Recording):
        return source
    report = getattr(source, "report", source)
    found = getattr(report, "recording", None)
    if not isinstance(found, Recording):
        raise ArgumentError(
            "recording", f"{type(source).__name__} without a recording",
            "a Recording, or a trace or report with a recording", "Trace again with record_block=(0, 0, 0).",
        )  # fmt: skip
    return found


def _facts(picture: Picture, request: WarpRequest) -> dict[str, Any]:
    facts: dict[str, Any] = {"line": request.kernel_line, "warp": request.warp, "order": request.order}
    facts |= {"bytes_per_lane": request.bytes_per_lane, "buffer": request.buffer, "ptx": request.text}
    if isinstance(picture, WarpMap):
        names = ("ideal_sectors", "bytes_used", "bytes_moved")
        return facts | {"sectors": len(picture.sectors)} | {name: getattr(picture, name) for name in names}
    assert isinstance(picture, BankMap)
    facts |= {"wavefronts": len(picture.wavefronts), "ideal_wavefronts": request.ideal_wavefronts}
    return facts | {"words": picture.words, "conflicts": picture.conflicts}
