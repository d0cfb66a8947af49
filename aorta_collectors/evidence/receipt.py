"""The receipt: what verification found after one trial, for one collector. It outlives the artifacts."""

from __future__ import annotations

import datetime
import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from aorta_collectors import strict_json
from aorta_collectors.api import Verdict
from aorta_collectors.errors import ArtifactError
from aorta_collectors.evidence.directory import ArtifactDirectory
from aorta_collectors.schema_check import first_error

SCHEMA_VERSION = 1
_TRIAL_FILE = re.compile(r"trial_(d\d+_m\d+_t\d+)\.json$")


@dataclass(frozen=True)
class Receipt:
    """Fields as in schemas/receipt.json, which describes them."""

    collector: str
    trial: str
    cell: str | None
    run_ids: tuple[str, ...]
    verdict: str
    reason: str
    route: str
    options: Mapping[str, str]
    artifacts: str
    files: Mapping[str, int]
    metrics: Mapping[str, Any]
    sha256: Mapping[str, str] = field(default_factory=dict)
    on_missing: str = "error"
    launch: Mapping[str, Any] | None = None
    note: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)
    ignored_environment: tuple[str, ...] = ()
    verified_at: str = field(
        default_factory=lambda: datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    )
    schema_version: int = SCHEMA_VERSION

    @property
    def satisfied(self) -> bool:
        return Verdict(self.verdict).satisfied

    def to_json(self) -> bytes:
        return (json.dumps(_finite(asdict(self)), indent=2, default=str, allow_nan=False) + "\n").encode()


def _finite(value: Any) -> Any:
    """The value with "nan", "inf" and "-inf" as text: JSON has no such numbers, and `read_receipt` takes none."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def receipt_name(coordinates: str, collector: str) -> str:
    """The file beside trial_<coordinates>.json. It must not match the host's glob trial_*.json."""
    return f"receipt_{coordinates}_{collector}.json"


def trial_coordinates(name: str) -> str | None:
    """ "d0_m0_t3" of "trial_d0_m0_t3.json"; None for any other file."""
    found = _TRIAL_FILE.match(name)
    return found.group(1) if found else None


def read_receipt(directory: ArtifactDirectory, name: str) -> Receipt | None:
    """The receipt `name`, or None if there is none. Raises ArtifactError if it is not one."""
    if name not in directory.sizes():
        return None
    try:
        content = strict_json.loads(directory.read(name))
    except ValueError as error:
        raise ArtifactError(f"{directory.path / name}: not JSON ({error})") from None
    fault = first_error("receipt", content)
    if fault is not None:
        path, message = fault
        raise ArtifactError(f"{directory.path / name}: {path}: {message}")
    for key in ("run_ids", "ignored_environment"):
        content[key] = tuple(content.get(key, ()))
    return Receipt(**content)
