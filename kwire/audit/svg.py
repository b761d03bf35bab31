"""SVG of matplotlib for the inside of a page: small, without names of its own, in the page's colours, with tooltips.

Text stays text, in the page's font. A colour is written twice: as an attribute, for viewers that refuse styles, and
as a class (`f-red` fills, `s-red` strokes), which the page's style sheet maps to its variable for light or dark.
"""

from __future__ import annotations

import html
import io
import re
from typing import Final
from xml.etree import ElementTree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from matplotlib.figure import Figure

COLOURS: Final = {
    "bg": "#ffffff",
    "panel": "#f6f7f9",
    "ink": "#16202c",
    "dim": "#566372",
    "line": "#d6dce3",
    "grid": "#e6eaef",
    "up": "#c4d3e2",
    "band": "#ffd9a0",
    "red": "#c23b00",
    "amber": "#b36b00",
    "green": "#00795a",
    "purple": "#8a3c78",
    "blue": "#0063a5",
    "b0": "#0063a6",
    "b1": "#d29200",
    "b2": "#00795b",
    "b3": "#c793bb",
    "b4": "#3a3f86",
    "b5": "#7cc4ec",
    "b6": "#7a4a22",
    "b7": "#a3abb4",
    "t0": "#fffffe",
    "t1": "#16202d",
    "t2": "#fffffd",
    "t3": "#16202e",
    "t4": "#fffffc",
    "t5": "#16202f",
    "t6": "#fffffb",
    "t7": "#162030",
}
"""The page's colours by the names of its CSS variables, as in light; each of its own value, by which it is found
again. b0 to b7 are those of brokers (told apart with every kind of colour blindness, with their numbers beside them),
t0 to t7 those of text on them."""

_NAMES: Final = {value: name for name, value in COLOURS.items()}
_SVG: Final = "{http://www.w3.org/2000/svg}"
_KEPT: Final = ("x", "y", "width", "height", "patternUnits", "viewBox")
_DEFAULTS: Final = {
    ("stroke-linejoin", "miter"),
    ("stroke-linecap", "butt"),
    ("stroke-linecap", "square"),
    ("stroke-dashoffset", "0"),
    ("stroke-width", "1"),
    ("text-anchor", "start"),
    ("font-weight", "400"),
}
_UNPRINTABLE: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\uffff]"
)


def printable(text: object, limit: int = 300) -> str:
    """A text in which every character can be seen: control characters and lone surrogates as escapes; cut."""
    found = str(text)
    if len(found) > limit:
        found = found[: limit - 1] + "…"
    return _UNPRINTABLE.sub(lambda each: ascii(each[0])[1:-1], found)


def render(figure: Figure, name: str, label: str, tips: Mapping[str, str]) -> str:
    """A figure as an `svg` element. `name`: unique in its page; `tips`: tooltips by gid of the artists."""
    import matplotlib

    found = io.BytesIO()
    options: dict[str, Any] = {"svg.fonttype": "none", "svg.hashsalt": name, "hatch.linewidth": 2.2}
    with matplotlib.rc_context(options):
        figure.savefig(
            found,
            format="svg",
            transparent=True,
            metadata={"Date": None, "Creator": None, "Format": None, "Type": None},
        )
    root = ElementTree.fromstring(found.getvalue())
    width, height = root.get("viewBox", "0 0 1 1").split()[2:]
    drawn = "".join(_Writer(name, tips).inside(root))
    return (
        f'<svg viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img"'
        f' aria-label="{html.escape(printable(label, 2000))}">{drawn}</svg>'
    )


class _Writer:
    """Writes elements again, without groups and names that nothing refers to."""

    def __init__(self, name: str, tips: Mapping[str, str]) -> None:
        self._name = name
        self._tips = tips

    def inside(self, element: ElementTree.Element) -> Iterator[str]:
        for child in element:
            yield from self._element(child)

    def _element(self, element: ElementTree.Element) -> Iterator[str]:
        tag = element.tag.removeprefix(_SVG)
        if tag in ("style", "metadata") or element.get("id") == "patch_1":
            return  # the figure's own background
        tip = self._tips.get(element.get("id", ""))
        title = f"<title>{html.escape(printable_lines(tip))}</title>" if tip else ""
        if tag == "g":
            inner = "".join(self.inside(element))
            yield f"<g>{title}{inner}</g>" if title and inner else inner
        elif tag == "defs":
            inner = "".join(self.inside(element))
            yield f"<defs>{inner}</defs>" if inner else ""
        else:
            text = html.escape(element.text or "") if tag == "text" else ""
            inner = "".join(self.inside(element))
            yield f"<{tag}{self._attributes(element)}>{title}{text}{inner}</{tag}>"

    def _attributes(self, element: ElementTree.Element) -> str:
        found = {name: value for name in _KEPT if (value := element.get(name)) is not None}
        for name in ("x", "y"):
            if name in found:
                found[name] = _short(found[name])
        if path := element.get("d"):
            found["d"] = _short(path)
        if element.tag in (f"{_SVG}clipPath", f"{_SVG}pattern"):
            found["id"] = f"{self._name}-{element.get('id')}"
        if clip := element.get("clip-path"):
            found["clip-path"] = clip.replace("url(#", f"url(#{self._name}-")
        classes = []
        for name, value in self._style(element):
            if value in _NAMES:
                classes.append(f"{name[0]}-{_NAMES[value]}")
            found[name] = value.replace("url(#", f"url(#{self._name}-")
        if classes:
            found["class"] = " ".join(classes)
        return "".join(f' {name}="{html.escape(value)}"' for name, value in found.items())

    @staticmethod
    def _style(element: ElementTree.Element) -> Iterator[tuple[str, str]]:
        for name in ("fill", "stroke"):
            if value := element.get(name):
                yield name, value
        for each in (element.get("style") or "").split(";"):
            name, _, value = (part.strip() for part in each.partition(":"))
            if name and name != "font-family" and (name, value) not in _DEFAULTS:
                yield name, value


def printable_lines(text: str) -> str:
    """As `printable`, with its line breaks."""
    return "\n".join(printable(line) for line in text[:2000].split("\n"))


def _short(path: str) -> str:
    """Coordinates with two digits: a fiftieth of a pixel is not seen."""
    numbers = re.sub(
        r"-?\d+\.\d+",
        lambda each: f"{float(each[0]):.2f}".rstrip("0").rstrip("."),
        path,
    )
    return re.sub(r"\s*([A-Za-z])\s*", r"\1", numbers).strip()
