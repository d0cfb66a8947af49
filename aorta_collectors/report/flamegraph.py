"""A flamegraph of module paths as one SVG file that works on its own.

After Brendan Gregg's flame graphs, growing downwards: a frame is as wide as the time of its module with all parts, and
hangs on the one that encloses it. A click makes a frame as wide as the picture, one on the background goes back; the
pointer on a frame tells its numbers. The file loads nothing. The same profile gives the same bytes.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from html import escape

from aorta_collectors.analysis.profile_stacks import Frame
from aorta_collectors.printable import printable
from aorta_collectors.report.profile_words import duration, percent, ratio

_WIDTH, _MARGIN, _ROW = 1200, 10, 18
_TOP = 46
_FONT_PX = 12
# Of the monospaced font, somewhat more than it needs.
_CHARACTER_PX = 7.3
_PADDING_PX = 3
# Narrower frames cannot be seen; their time shows in the one below them.
_NARROWEST_PX = 0.2
_HUES = {"forward": (20, 45), "backward": (200, 225)}

_STYLE = f"""
text {{ font: {_FONT_PX}px ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace }}
text {{ fill: #1a1a1a; pointer-events: none }}
text.title {{ font-size: 16px }}
text.said {{ fill: #555 }}
g.frame {{ cursor: pointer }}
g.frame:hover rect {{ stroke: #000 }}
rect {{ stroke: #fff; stroke-width: 0.5 }}
"""

# A frame's part of the picture stands in data-x and data-w; zooming scales all by that of the one that was clicked.
_SCRIPT = f"""
(function () {{
  var svg = document.currentScript ? document.currentScript.ownerSVGElement : document.documentElement;
  var frames = Array.prototype.slice.call(svg.querySelectorAll("g.frame"));
  var left = {_MARGIN}, width = {_WIDTH - 2 * _MARGIN};
  function show(from, part, level) {{
    frames.forEach(function (g) {{
      var x = +g.dataset.x, w = +g.dataset.w, above = +g.dataset.level < level;
      var begin = Math.max((x - from) / part, 0), end = Math.min((x + w - from) / part, 1);
      var visible = end - begin > 1e-6 && (above ? x <= from + 1e-9 && x + w >= from + part - 1e-9 : true);
      g.style.display = visible ? "" : "none";
      if (!visible) return;
      var rect = g.querySelector("rect"), text = g.querySelector("text");
      var px = (end - begin) * width;
      rect.setAttribute("x", left + begin * width);
      rect.setAttribute("width", px);
      rect.style.opacity = above ? 0.5 : 1;
      var room = Math.floor((px - {2 * _PADDING_PX}) / {_CHARACTER_PX}), name = g.dataset.name;
      if (name.length > room) name = g.dataset.short;
      text.setAttribute("x", left + begin * width + {_PADDING_PX});
      text.textContent = name.length <= room ? name : room > 2 ? name.slice(0, room - 2) + ".." : "";
    }});
  }}
  frames.forEach(function (g) {{
    g.addEventListener("click", function () {{ show(+g.dataset.x, +g.dataset.w, +g.dataset.level); }});
  }});
  svg.querySelector("#whole").addEventListener("click", function () {{ show(0, 1, 0); }});
}})();
"""


def flamegraph(roots: Sequence[Frame], title: str, said: str) -> str:
    """The SVG.

    Args:
        title: Above it; said: below the title, in small letters. Any text.
    """
    total = sum(root.total_us for root in roots)
    depth = max((root.depth() for root in roots), default=1)
    height = _TOP + depth * _ROW + _MARGIN
    rects: list[str] = []
    begin = 0.0
    for root in roots:
        rects += _frames(root, begin / total, 0, total, root.name)
        begin += root.total_us
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}">\n'
        f"<style>{_STYLE}</style>\n"
        f'<rect id="whole" x="0" y="0" width="{_WIDTH}" height="{height}" fill="#fff"/>\n'
        f'<text class="title" x="{_MARGIN}" y="20">{_escaped(_cut(title, 1.3))}</text>\n'
        f'<text class="said" x="{_MARGIN}" y="36">{_escaped(_cut(said, 1.0))}</text>\n'
        + "".join(rects)
        + f"<script><![CDATA[{_SCRIPT}]]></script>\n</svg>\n"
    )


def _cut(text: str, scale: float) -> str:
    return _fitted(printable(text), (_WIDTH - 2 * _MARGIN) / scale)


def _frames(frame: Frame, begin: float, level: int, total: float, direction: str) -> Iterator[str]:
    """The frame and all inside it, from `begin`, which is a part of the picture's width."""
    part = frame.total_us / total
    width = part * (_WIDTH - 2 * _MARGIN)
    if width < _NARROWEST_PX:
        return
    x, y = _MARGIN + begin * (_WIDTH - 2 * _MARGIN), _TOP + level * _ROW
    name, short = printable(_label(frame)), printable(frame.name)
    yield (
        f'<g class="frame" data-x="{begin:.8f}" data-w="{part:.8f}" data-level="{level}" data-name="{_escaped(name)}" '
        f'data-short="{_escaped(short)}">'
        f"<title>{_escaped(_told(frame, total))}</title>"
        f'<rect x="{x:.2f}" y="{y}" width="{width:.2f}" height="{_ROW - 1}" rx="2" fill="{_colour(frame, direction)}"/>'
        f'<text x="{x + _PADDING_PX:.2f}" y="{y + _ROW - 5}">{_escaped(_fitted(name, width, short))}</text></g>\n'
    )
    for inner in frame.inner:
        yield from _frames(inner, begin, level + 1, total, direction)
        begin += inner.total_us / total


def _label(frame: Frame) -> str:
    """With the class of a module that is not named by it."""
    kind = "" if frame.brick is None or frame.brick.module_type == frame.name else f" {frame.brick.module_type}"
    return f"{frame.name}{kind}"


def _fitted(name: str, width: float, short: str = "") -> str:
    """As much of the name, or of a shorter one, as there is room for; nothing where that is not three characters."""
    room = int((width - 2 * _PADDING_PX) / _CHARACTER_PX)
    name = short if short and len(name) > room else name
    return name if len(name) <= room else f"{name[: room - 2]}.." if room > 2 else ""


def _told(frame: Frame, total: float) -> str:
    """What the pointer shows."""
    brick = frame.brick
    whole = f"{duration(frame.total_us)} ({percent(frame.total_us / total)})"
    if brick is None:
        return f"{frame.name}: {whole}"
    parts = [f"{whole} with its parts, {duration(frame.own_us)} ({percent(frame.own_us / total)}) its own"]
    parts.append(
        f"{brick.calls} calls, {duration(brick.mean_us)} each, p99 {duration(brick.p99_us)}, CV {ratio(brick.cv)}"
    )
    if brick.efficiency is not None:
        parts.append(
            f"{percent(brick.efficiency)} of the roofline" + (f", bound: {brick.bound}" if brick.bound else "")
        )
    return "\n".join([f"{printable(brick.layer)} ({printable(brick.module_type)}), {brick.direction}", *parts])


def _colour(frame: Frame, direction: str) -> str:
    """Of the direction's hues one by the module's class: equal modules look alike."""
    low, high = _HUES.get(direction, (0, 360))
    seed = zlib.crc32((frame.brick.module_type if frame.brick is not None else direction).encode(errors="replace"))
    return f"hsl({low + seed % (high - low)},{55 + seed // 64 % 25}%,{68 + seed // 4096 % 12}%)"


def _escaped(text: str) -> str:
    """For XML: what no XML may hold has been made visible by `printable`, all but line ends."""
    return escape(text, quote=True).replace("\n", "&#10;")
