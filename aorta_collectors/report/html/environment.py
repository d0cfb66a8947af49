"""The templates of pages: whatever a program chose is text in them, escaped and printable."""

from __future__ import annotations

from importlib import resources
from typing import TYPE_CHECKING, Any

from aorta_collectors.errors import CollectorsError
from aorta_collectors.printable import printable

if TYPE_CHECKING:
    from jinja2 import Environment

_MOST_TEXT = 20_000


def missing(error: ImportError) -> CollectorsError:
    """What to say where a page cannot be drawn, since a library is not installed."""
    return CollectorsError(
        f"{error.name} is not installed. It draws the report: pip install 'aorta-collectors[report]'"
    )


def shown(value: Any) -> Any:
    """Text of others, without what moves or hides text. Markup is ours."""
    import markupsafe

    is_ours = isinstance(value, markupsafe.Markup) or not isinstance(value, str)
    return value if is_ours else printable(value, _MOST_TEXT)


def environment(package: str) -> Environment:
    """The templates of a package. `lines` is a filter there: text line by line, each of them as shown.

    Raises:
        CollectorsError: jinja2 is not installed.
    """
    try:
        import jinja2
        import markupsafe
    except ImportError as error:
        raise missing(error) from None
    made = jinja2.Environment(
        loader=jinja2.PackageLoader(package),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=shown,
    )
    made.filters["lines"] = lambda value: markupsafe.Markup("\n").join(shown(line) for line in str(value).splitlines())
    return made


def resource(name: str) -> str:
    """A file beside this one, such as style.css."""
    return resources.files(__package__).joinpath(name).read_text("utf-8")
