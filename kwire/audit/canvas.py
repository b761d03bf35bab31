"""A drawing on which time runs from left to right, in pixels, by matplotlib.

Times are in microseconds since 1970.
"""

from __future__ import annotations

from typing import Final

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import PathPatch, Rectangle
from matplotlib.path import Path
from matplotlib.transforms import Affine2D

from kwire.audit import svg, words
from kwire.audit.svg import COLOURS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from matplotlib.axes import Axes

WIDE: Final = 1160
NARROW: Final = 380
NARROW_BELOW: Final = 600
LEFT: Final = 150
"""Where time begins in all wide plots, so that they can be compared."""
SMALL: Final = 11
TEXT: Final = 12
_STEPS: Final = (
    *(n * 10**power for power in range(3, 7) for n in (1, 2, 5)),
    *(n * 1_000_000 for n in (10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200)),
)
"""Between two labels of the axis of time, in microseconds."""
_DAY: Final = 86_400_000_000
_BROKERS: Final = 8
_SHAPES: Final[dict[str, list[list[tuple[float, float]]]]] = {
    "cross": [[(-4.5, -4.5), (4.5, 4.5)], [(-4.5, 4.5), (4.5, -4.5)]],
    "diamond": [[(0, -6), (6, 0), (0, 6), (-6, 0), (0, -6)]],
    "back": [[(5.5, -5.5), (-2.5, 0), (5.5, 5.5), (5.5, -5.5)], [(-5, -5.5), (-5, 5.5)]],
    "dot": [[(-2.5, 0), (0, -2.5), (2.5, 0), (0, 2.5), (-2.5, 0)]],
}


class Canvas:
    """A figure in pixels, y downwards, on which time runs from `left` to `right`."""

    def __init__(self, width: int, height: float, left: float, begin: int, end: int) -> None:
        self.width, self.height = width, height
        self.left, self.right = left, width - (10.0 if width < NARROW_BELOW else 56.0)
        self.begin, self.end = begin, max(end, begin + 1)
        self.figure = Figure(figsize=(width / 72, height / 72), dpi=72)
        self.axes: Axes = self.figure.add_axes((0, 0, 1, 1))
        self.axes.axis("off")
        self.axes.set_xlim(0, width)
        self.axes.set_ylim(height, 0)
        self.tips: dict[str, str] = {}
        self._drawn = 0

    def _order(self) -> int:
        """What is drawn later lies above."""
        self._drawn += 1
        return self._drawn

    def x(self, time: int) -> float:
        """Where a time is, at the edge where it is outside."""
        share = (time - self.begin) / (self.end - self.begin)
        return self.left + min(max(share, 0.0), 1.0) * (self.right - self.left)

    def tip(self, text: str) -> str:
        """A name for an artist with this tooltip."""
        name = f"t{len(self.tips)}"
        self.tips[name] = text
        return name

    def box(
        self, x: float, y: float, width: float, height: float, colour: str, **more: Any
    ) -> None:
        given: dict[str, Any] = {"facecolor": COLOURS[colour], "linewidth": 0, **more}
        given["zorder"] = self._order()
        self.axes.add_artist(Rectangle((x, y), width, height, clip_on=False, **given))

    def text(self, x: float, y: float, text: str, colour: str = "ink", **more: Any) -> None:
        if not text:
            return
        given: dict[str, Any] = {"fontsize": SMALL, "color": COLOURS[colour], **more}
        given["zorder"] = self._order()
        self.axes.text(x, y, text, parse_math=False, va="baseline", clip_on=False, **given)

    def line(
        self, x: Sequence[float], y: Sequence[float], colour: str, width: float = 1, **more: Any
    ) -> None:
        given: dict[str, Any] = {"color": COLOURS[colour], "linewidth": width, **more}
        given["zorder"] = self._order()
        given["clip_on"] = False
        self.axes.add_artist(Line2D(x, y, **given))

    def shape(self, name: str, x: float, y: float, colour: str, tip: str) -> None:
        strokes = [point for stroke in _SHAPES[name] for point in stroke]
        moves = ([Path.MOVETO] + [Path.LINETO] * (len(stroke) - 1) for stroke in _SHAPES[name])
        codes = [code for stroke in moves for code in stroke]
        path = Path(strokes, codes).transformed(Affine2D().translate(x, y))
        filled = COLOURS[colour] if name in ("diamond", "dot", "back") else "none"
        more = {"linewidth": 2.4, "capstyle": "round", "joinstyle": "round", "clip_on": False}
        colours = {"facecolor": filled, "edgecolor": COLOURS[colour]}
        self.axes.add_artist(PathPatch(path, gid=tip, zorder=self._order(), **colours, **more))

    def time_axis(self, top: float, bottom: float) -> None:
        """Lines from top to bottom at round times, with labels above."""
        room = max((self.right - self.left) / 92, 2)
        span = self.end - self.begin
        step = next((each for each in _STEPS if span / each <= room), None)
        step = step or (span // int(room) // _DAY + 1) * _DAY
        digits = 3 if step < 1_000_000 else 0
        time = -(-self.begin // step) * step
        while time <= self.end:
            x = self.x(time)
            self.line([x, x], [top, bottom], "grid")
            if self.left + 22 < x < self.right - 22:
                label = words.clock(time, digits, day=step >= _DAY)
                self.text(x, top - 6, label[:10] if step >= _DAY else label, "dim", ha="center")
            time += step

    def render(self, name: str, label: str) -> str:
        return svg.render(self.figure, name, label, self.tips)


def text_width(text: str, size: float = SMALL, bold: bool = False) -> float:
    """About how wide a text is in the page's font, in pixels; rather too much."""
    narrow = sum(each in "ijlt.,:;|'()[] fI!" for each in text)
    wide = sum(each in "mwMW@%" or ord(each) > 0x2000 for each in text)
    return ((len(text) - narrow - wide) * 0.6 + narrow * 0.34 + wide) * size * (1.07 if bold else 1)


def clip(text: str, room: float, size: float = SMALL, bold: bool = False) -> str:
    """As much of a text as has room."""
    if text_width(text, size, bold) <= room:
        return text
    while text and text_width(text + "…", size, bold) > room:
        text = text[:-1]
    return text + "…" if text else ""


def clip_name(name: str, room: float, size: float = SMALL, bold: bool = False) -> str:
    """As much of a partition's name as has room, its number in any case: partitions of a topic differ in that alone."""
    tail = name[name.rfind("-") :]
    if text_width(name, size, bold) <= room or len(tail) > 6 or tail == name:
        return clip(name, room, size, bold)
    head = clip(name[: -len(tail)], room - text_width(tail, size, bold), size, bold)
    return head + tail if head else clip(name, room, size, bold)


def broker_colour(broker: int | None) -> str:
    """The name of a broker's colour; brokers 1 to 8 have colours of their own."""
    return "line" if broker is None else f"b{(broker - 1) % _BROKERS}"
