"""Files that a page shows: what stands below a line `<!-- file: PATH -->` is the content of that file."""

from __future__ import annotations

import re
from pathlib import Path

_SHOWN = re.compile(r"^<!-- file: (?P<path>\S+) -->\n```(?P<language>\w*)\n.*?^```$", flags=re.M | re.S)


def with_files(page: str, root: Path) -> str:
    """The page with the files of the checkout `root` as they are now.

    Raises:
        FileNotFoundError: There is no such file.
    """

    def shown(match: re.Match[str]) -> str:
        content = (root / match["path"]).read_text(encoding="utf-8").rstrip("\n")
        return f"<!-- file: {match['path']} -->\n```{match['language']}\n{content}\n```"

    return _SHOWN.sub(shown, page)
