"""Write what the pages in docs/ have from elsewhere; with --check, name the pages that are not up to date.

Pages of the reference are generated whole, from schemas, commands and views. In other pages the files that they show
are renewed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from cli_page import cli
from included import with_files
from investigation_page import investigation
from memory_page import memory
from numerics_page import numerics
from query_page import query
from schema_pages import layer_numerics, receipt
from tensors_page import tensors

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
GENERATED: Mapping[str, Callable[[], str]] = {
    "cli": cli,
    "investigation": investigation,
    "layer_numerics": layer_numerics,
    "memory": memory,
    "numerics": numerics,
    "query": query,
    "receipt": receipt,
    "tensors": tensors,
}


def pages() -> dict[Path, str]:
    """What each page should be."""
    generated = {DOCS / "reference" / f"{name}.md": made() for name, made in GENERATED.items()}
    written = {
        page: with_files(page.read_text(encoding="utf-8"), ROOT) for page in DOCS.rglob("*.md") if page not in generated
    }
    return {**generated, **written}


def main() -> int:
    wanted = pages()
    stale = [page for page, text in wanted.items() if not page.exists() or page.read_text(encoding="utf-8") != text]
    if "--check" in sys.argv[1:]:
        for page in stale:
            print(f"{page.relative_to(ROOT)} is not up to date: run python tools/reference.py")
        return 1 if stale else 0
    for page in stale:
        page.write_text(wanted[page], encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
