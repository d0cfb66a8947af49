"""What was asked for: a sweep and where it is run from, so that a later call can tell whether it is the same."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from aorta_collectors.errors import CollectorsError


@dataclass(frozen=True)
class Request:
    """A sweep.

    Attributes:
        recipe: Absolute path.
        recipe_sha256: Of the file's content.
        command: The command of a probe recipe; empty for a workload.
        collect: Names that replace the recipe's, separated by commas; empty leaves them.
        mitigation_files: Absolute path and sha256 of each.
        cwd: Where the sweep is run from; relative paths in the recipe and the command are meant from there.
    """

    recipe: str
    recipe_sha256: str
    command: tuple[str, ...]
    collect: str
    mitigation_files: tuple[tuple[str, str], ...]
    cwd: str

    @classmethod
    def of(
        cls, recipe: Path, command: Sequence[str] = (), collect: str = "", mitigation_files: Sequence[Path] = ()
    ) -> Request:
        """Raises CollectorsError if a file cannot be read."""
        files = tuple((str(path.resolve()), _sha256(path)) for path in mitigation_files)
        return cls(str(recipe.resolve()), _sha256(recipe), tuple(command), collect, files, os.getcwd())

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Request:
        """Raises KeyError or TypeError if it is none."""
        files = tuple((path, digest) for path, digest in content["mitigation_files"])
        return cls(**{**content, "command": tuple(content["command"]), "mitigation_files": files})

    @property
    def digest(self) -> str:
        """Of all of it but the recipe's place: the same recipe may have moved."""
        content = {name: value for name, value in asdict(self).items() if name != "recipe"}
        content["mitigation_files"] = [digest for _, digest in self.mitigation_files]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def differences(self, other: Request) -> list[str]:
        """What `other` asks for differently, in words."""
        pairs = [
            ("recipe", self.recipe_sha256, other.recipe_sha256),
            ("command", self.command, other.command),
            ("--collect", self.collect, other.collect),
            (
                "mitigations files",
                [file[1] for file in self.mitigation_files],
                [file[1] for file in other.mitigation_files],
            ),
            ("working directory", self.cwd, other.cwd),
        ]
        return [name for name, mine, theirs in pairs if mine != theirs]

    def words(self, recipe: Path) -> list[str]:
        """What follows `aorta sweep run` to run `recipe`, one that was made from this request's or that one itself."""
        words = ["--recipe", str(recipe)]
        if self.collect:
            words += ["--collect", self.collect]
        for path, _ in self.mitigation_files:
            words += ["--mitigations-file", path]
        return words

    @property
    def tail(self) -> list[str]:
        return ["--", *self.command] if self.command else []


def _sha256(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise CollectorsError(f"cannot read {path}: {error.strerror}") from None
