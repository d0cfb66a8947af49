"""What all charts have in common: axes, fonts and colours.

Colours are names of the style sheet's variables, so that the page's script can draw in light and in dark. Plotly takes
a part of HTML in its texts, so whatever a program chose is escaped in them.
"""

from __future__ import annotations

import html
from typing import Any

Figure = dict[str, Any]

#: Characters of a name that stand beside a chart.
LABEL = 44


def escaped(words: str) -> str:
    """A text that plotly shows as it is."""
    return html.escape(words, quote=False)


def axis(title: str | None) -> Figure:
    words = {} if title is None else {"title": {"text": title, "standoff": 8}}
    return {**words, "gridcolor": "var(--grid)", "zeroline": False, "linecolor": "var(--rule)", "ticks": "outside"} | {
        "tickcolor": "var(--rule)"
    }


def layout(height: int) -> Figure:
    return {
        "height": height,
        "margin": {"l": 64, "r": 16, "t": 24, "b": 44},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"color": "var(--ink)", "size": 12},
        "hoverlabel": {
            "bgcolor": "var(--panel)",
            "bordercolor": "var(--rule)",
            "align": "left",
            "font": {"color": "var(--ink)"},
        },
        "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": "var(--soft)", "activecolor": "var(--ink)"},
    }
