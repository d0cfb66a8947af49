"""A document as one HTML file, in the look of the other reports, with nothing to load from anywhere."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from urllib.parse import quote

from aorta_collectors import __version__
from aorta_collectors.investigate.report.document import Code, Document, Link, Strong
from aorta_collectors.report.html.environment import environment, resource, shown

# Output of more lines is shown when a reader opens it; a summary line says that it is there.
_MOST_OPEN = 40


def page(document: Document, folder: Path) -> str:
    """The HTML.

    Args:
        folder: Where it will lie: links are relative to that, so that the whole directory can be moved.

    Raises:
        CollectorsError: jinja2 is not installed.
    """
    templates = environment("aorta_collectors.investigate.report")
    from markupsafe import Markup

    def inline(part: Any) -> Any:
        if isinstance(part, Code):
            return Markup("<code>{}</code>").format(shown(part.text))
        if isinstance(part, Strong):
            return Markup("<strong>{}</strong>").format(shown(part.text))
        if isinstance(part, Link):
            target = quote(f"./{os.path.relpath(part.path, folder)}", safe="/", errors="surrogateescape")
            markup = '<a href="{}" title="{}">{}</a>' if part.text else '<a href="{}" title="{}"><code>{}</code></a>'
            path = shown(str(part.path))
            return Markup(markup).format(target, path, shown(part.text) if part.text else path)
        return shown(part)

    templates.filters |= {"inline": inline, "kind": lambda block: type(block).__name__}
    return templates.get_template("investigation.html.j2").render(
        document=document,
        style=Markup(resource("style.css")),
        policy="default-src 'none'; style-src 'unsafe-inline'",
        version=__version__,
        most_open=_MOST_OPEN,
    )
