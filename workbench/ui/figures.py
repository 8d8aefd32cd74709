"""Turn figures of matplotlib into vector pictures that follow the theme of the page around them.

A picture is a small SVG, embedded as the source of an ``<img>``: JupyterLab shows that in notebooks that nobody has
trusted, and the text stays sharp at any size. Its colours turn with the page: where that is dark, lightness is
inverted and hues stay, so that every contrast within the picture stays too.
"""

from __future__ import annotations

import html
import io
import re
import sys
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SVG, _LINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
_THEME = (
    "svg{background:#fff}"
    "@media(prefers-color-scheme:dark){svg{background:none;filter:invert(.93) hue-rotate(180deg)}}"
    "*{stroke-linejoin:round;stroke-linecap:butt}"
)
"""Paper is #fff in the light; in the dark it is that of the page, and white in the picture becomes #121212."""

_KEPT = "@media(prefers-color-scheme:dark){image{filter:invert(1) hue-rotate(180deg)}}"
"""Turns bitmaps back, in figures of images whose lowest value is dark in both themes."""

DARK = "<style>[data-jp-theme-light=false] img.workbench,.vscode-dark img.workbench{color-scheme:dark}</style>"
"""Tells pictures that the page is dark: ``prefers-color-scheme`` in an image asks the element that shows it."""

_MOST_MARKS = 1_500
"""Points or patches of one artist above which a bitmap of it is the lighter picture (measured: 60 bytes each)."""

_TAKEN = "workbench_shows_vectors"
_SETTINGS: dict[str, Any] = {
    "svg.fonttype": "none",  # text as text
    "svg.hashsalt": "workbench",  # the same figure is the same text
    "font.sans-serif": ["DejaVu Sans", "Verdana"],  # the font that it is laid out with, and one as wide
}


def svg_of(figure: Figure) -> str:
    """Return a figure of matplotlib as an SVG in the reader's theme, and close the figure.

    What has thousands of marks in the figure becomes a bitmap in it.
    """
    import matplotlib.pyplot as plt

    data = io.BytesIO()
    kept = _KEPT if any(_dark_first(image) for ax in figure.axes for image in ax.images) else ""
    _rasterize_crowds(figure)
    _draw_formulas(figure)
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    with plt.rc_context(_SETTINGS):
        figure.savefig(data, format="svg", bbox_inches="tight", facecolor="none", dpi=144, metadata=nothing)
    plt.close(figure)
    return _smaller(data.getvalue(), _THEME + kept)


def image(svg: str, label: str) -> str:
    """Return the HTML of an SVG of `svg_of`, with the words that a screen reader says."""
    source = svg.replace("%", "%25").replace("#", "%23").replace('"', "'")
    return f'<img class="workbench" alt="{html.escape(label)}" src="data:image/svg+xml,{html.escape(source, False)}">'


def embedded(svg: str, label: str) -> str:
    """Return `image` for a page that is not ours, such as a notebook: with the style that tells it of the theme."""
    return f"{DARK}{image(svg, label)}"


def figure_html(figure: Figure, label: str = "") -> str:
    """Return a figure of matplotlib as HTML for a notebook, and close the figure.

    Args:
        figure: a figure; what has thousands of marks in it becomes a bitmap.
        label: the words that a screen reader says; default the figure's titles, or the labels of its axes.
    """
    label = label or _label(figure)
    return embedded(svg_of(figure), label)


def show_as_vectors() -> None:
    """Have the notebook of this process show figures in the reader's theme, those of plain matplotlib included.

    Does nothing outside notebooks.
    """
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if shell is None or not hasattr(shell, "kernel"):
        return

    def take_over() -> None:
        if "matplotlib.pyplot" in sys.modules:
            from matplotlib.figure import Figure

            formatters = shell.display_formatter.formatters
            formatters["image/png"].pop(Figure, None)
            formatters["text/html"].for_type(Figure, figure_html)

    take_over()
    if not hasattr(shell, _TAKEN):
        setattr(shell, _TAKEN, True)
        # pyplot, when it loads, registers PNG, and a callback that shows the figures of a cell: ours is before that.
        shell.events.register("post_execute", take_over)


def _label(figure: Figure) -> str:
    """Return the titles of a figure, else the labels of its axes."""
    titles = [figure.get_suptitle(), *(ax.get_title() for ax in figure.axes)]
    labels = [f"{ax.get_ylabel()} over {ax.get_xlabel()}" for ax in figure.axes if ax.get_xlabel() and ax.get_ylabel()]
    return "; ".join(filter(None, titles)) or "; ".join(labels) or "figure"


def _rasterize_crowds(figure: Figure) -> None:
    """Make bitmaps of the artists that have more marks than a vector picture should."""
    from matplotlib.collections import Collection

    for ax in figure.axes:
        for artist in ax.collections:
            assert isinstance(artist, Collection)
            paths = artist.get_paths()
            marks = max(len(artist.get_offsets()), len(paths), sum(len(path.vertices) for path in paths) // 4)
            if marks > _MOST_MARKS:
                artist.set_rasterized(True)
        for line in ax.lines:
            if line.get_marker() not in ("None", "", None) and len(line.get_xydata()) > _MOST_MARKS:
                line.set_rasterized(True)


def _dark_first(image: Any) -> bool:
    """Return whether the lowest value of an image has a dark colour, so that high ones are bright."""
    return image.cmap is not None and sum(image.cmap(0.0)[:3]) < 1.5


def _draw_formulas(figure: Figure) -> None:
    """Draw the texts with signs of TeX, which are made of several fonts, as outlines."""
    from matplotlib.patheffects import Normal
    from matplotlib.text import Text

    for text in figure.findobj(Text):
        if isinstance(text, Text) and "$" in text.get_text() and "\\" in text.get_text():
            text.set_path_effects([Normal()])


# -- a smaller file ---------------------------------------------------------------------------------------------


def _smaller(svg: bytes, sheet: str) -> str:
    """Return matplotlib's SVG without ids, groups and digits that nothing needs, and with its styles as classes."""
    for prefix, name in (("", _SVG), ("xlink", _LINK)):
        ElementTree.register_namespace(prefix, name)
    root = ElementTree.fromstring(svg)
    ids = {
        name: f"i{at}" for at, name in enumerate(dict.fromkeys(re.findall(r'(?:url\(|href=")#([^)"]+)', svg.decode())))
    }
    styles: dict[str, str] = {}
    for path in root.iterfind(f".//{{{_SVG}}}pattern/{{{_SVG}}}path"):
        _shorten_dots(path)
    for element in root.iter():
        _shorten(element, ids, styles)
    _unwrap(root)
    rules = "".join(f".{name}{{{style}}}" for style, name in styles.items())
    style = next(element for element in root.iter(f"{{{_SVG}}}style"))
    style.attrib.clear()
    style.text = sheet + rules
    return ElementTree.tostring(root, "unicode")


def _shorten(element: ElementTree.Element, ids: dict[str, str], styles: dict[str, str]) -> None:
    element.tail = None
    if element.tag != f"{{{_SVG}}}text" and not (element.text or "").strip():
        element.text = None
    attributes, style = {}, []
    for name, value in element.attrib.items():
        value = re.sub(r"url\(#([^)]+)\)", lambda use: f"url(#{ids[use[1]]})", value)
        if name == "id":
            if value in ids:
                attributes["id"] = ids[value]
        elif name == "style":
            style.append(re.sub(r"([:;,]) +", r"\1", _rounded(value)))
        elif name == "clip-path":
            style.append(f"clip-path:{value}")
        elif name == "d":
            attributes[name] = _path(value)
        elif name == "transform":
            if not value.startswith(("rotate(-0 ", "rotate(0 ")):
                attributes[name] = _rounded(value, 4)
        elif name.endswith("href"):
            attributes[name] = f"#{ids[value[1:]]}" if value.startswith("#") else value
        else:
            attributes[name] = _rounded(value)
    if style:
        attributes["class"] = styles.setdefault(";".join(style), f"c{len(styles)}")
    element.attrib = attributes


def _shorten_dots(hatch: ElementTree.Element) -> None:
    """Write the circles of a hatch, eight curves each, as the round ends of lines without length."""
    circles = [part for part in hatch.attrib["d"].split("z") if part.strip()]
    if len(circles) < 2 or not all(part.count("C") == 8 for part in circles):
        return
    dots, across = [], 0.0
    for part in circles:
        numbers = [float(number) for number in re.findall(r"-?[\d.]+", part)]
        xs, ys = numbers[::2], numbers[1::2]
        across = max(xs) - min(xs)
        dots.append(f"M {(max(xs) + min(xs)) / 2:f} {(max(ys) + min(ys)) / 2:f} h 0")
    hatch.attrib["d"] = " ".join(dots)
    style = hatch.attrib["style"].replace("stroke-linecap: butt", "stroke-linecap: round")
    hatch.attrib["style"] = re.sub(
        r"stroke-width: ([\d.]+)", lambda was: f"stroke-width: {float(was[1]) + across}", style
    )


def _rounded(text: str, digits: int = 2) -> str:
    return re.sub(r"-?\d+\.\d+(?:e-?\d+)?", lambda number: f"{round(float(number[0]), digits):g}", text)


def _path(text: str) -> str:
    return re.sub(r" ?([A-Za-z]) ?", r"\1", re.sub(r"\s+", " ", _rounded(text, 1))).strip()


def _unwrap(element: ElementTree.Element) -> None:
    """Put the content of groups without attributes in their place."""
    children: list[ElementTree.Element] = []
    for child in element:
        _unwrap(child)
        if child.tag == f"{{{_SVG}}}g" and not child.attrib:
            children += child
        else:
            children.append(child)
    element[:] = children
