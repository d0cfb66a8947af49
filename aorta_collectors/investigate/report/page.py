"""A document as one HTML file, in the look of the other reports, with nothing to load from anywhere."""

from __future__ import annotations

import os
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import quote

from aorta_collectors import __version__
from aorta_collectors.errors import CollectorsError
from aorta_collectors.investigate.report.document import Code, Document, Link, Strong
from aorta_collectors.printable import printable

_MOST = 20_000
# Output of more lines is shown when a reader opens it; a summary line says that it is there.
_MOST_OPEN = 40


def page(document: Document, folder: Path) -> str:
    """The HTML.

    Args:
        folder: Where it will lie: links are relative to that, so that the whole directory can be moved.

    Raises:
        CollectorsError: jinja2 is not installed.
    """
    try:
        import jinja2
        import markupsafe
    except ImportError as error:
        raise CollectorsError(
            f"{error.name} is not installed. It draws the report: pip install 'aorta-collectors[report]'"
        ) from None

    def shown(value: Any) -> Any:
        """Text of others, without what moves or hides text. Markup is ours."""
        is_ours = isinstance(value, markupsafe.Markup) or not isinstance(value, str)
        return value if is_ours else printable(value, _MOST)

    def inline(part: Any) -> Any:
        if isinstance(part, Code):
            return markupsafe.Markup("<code>{}</code>").format(shown(part.text))
        if isinstance(part, Strong):
            return markupsafe.Markup("<strong>{}</strong>").format(shown(part.text))
        if isinstance(part, Link):
            target = quote(f"./{os.path.relpath(part.path, folder)}", safe="/", errors="surrogateescape")
            markup = '<a href="{}" title="{}">{}</a>' if part.text else '<a href="{}" title="{}"><code>{}</code></a>'
            path = shown(str(part.path))
            return markupsafe.Markup(markup).format(target, path, shown(part.text) if part.text else path)
        return shown(part)

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("aorta_collectors.investigate.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=shown,
    )
    environment.filters |= {
        "inline": inline,
        "kind": lambda block: type(block).__name__,
        "lines": lambda value: markupsafe.Markup("\n").join(shown(line) for line in value.splitlines()),
    }
    style = resources.files("aorta_collectors.report.html").joinpath("style.css").read_text("utf-8")
    return environment.get_template("investigation.html.j2").render(
        document=document,
        style=markupsafe.Markup(style),
        policy="default-src 'none'; style-src 'unsafe-inline'",
        version=__version__,
        most_open=_MOST_OPEN,
    )
