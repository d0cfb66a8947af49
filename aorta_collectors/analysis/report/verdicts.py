"""One row for each trial: what the host said, what its evidence is worth, and where something first goes bad."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aorta_collectors.analysis.captures import NONE
from aorta_collectors.analysis.first_bad import OfTrial
from aorta_collectors.analysis.mitigations import OfCell
from aorta_collectors.evidence.receipt import Receipt

# What the host says of a trial that ran; anything else kept it from running.
_FAILED = ("", "ok", "workload_failed")
_MOST_REASONS = 3


@dataclass(frozen=True)
class Row:
    """One trial.

    Attributes:
        host: pass, fail, error, or "-" where the host left no verdict.
        host_reason: Why; empty for a pass.
        evidence: The receipt's verdict; "-" without a receipt. Of several collectors, one that is not satisfied.
        satisfied: Whether that satisfies the request for evidence; None without a receipt.
        reason: The receipt's.
    """

    of: OfTrial
    cell: OfCell
    host: str
    host_reason: str
    evidence: str
    satisfied: bool | None
    reason: str

    @property
    def fault(self) -> Mapping[str, Any] | None:
        """Where it first goes bad; None where it does not, or nobody looked."""
        return self.of.earliest.fault if self.of.earliest is not None else None


def row_of(of: OfTrial, cell: OfCell) -> Row:
    # What one collector lacks is not made up for by the other.
    receipts = sorted(of.trial.receipts.values(), key=lambda receipt: (receipt.satisfied, receipt.collector))
    receipt = receipts[0] if receipts else None
    host, host_reason = _of_host(of.trial.record)
    return Row(
        of,
        cell,
        host,
        host_reason,
        receipt.verdict if receipt is not None else NONE,
        receipt.satisfied if receipt is not None else None,
        _reason(receipt, len(receipts)) if receipt is not None else "",
    )


def _reason(receipt: Receipt, count: int) -> str:
    """With the collector's name where there is another."""
    return f"{receipt.collector}: {receipt.reason}" if count > 1 and receipt.reason else receipt.reason


def _of_host(record: Mapping[str, Any]) -> tuple[str, str]:
    """The host's word, and why."""
    if not record:
        return NONE, ""
    result = record.get("result")
    result = result if isinstance(result, dict) else {}
    if result.get("passed") is True:
        return "pass", ""
    status = str(record.get("exit_status") or "")
    host = "fail" if status in _FAILED else "error"
    details = result.get("failure_details")
    reasons = []
    for detail in details[:_MOST_REASONS] if isinstance(details, list) else ():
        if isinstance(detail, dict):
            code = detail.get("exit_code")
            said = f"exit code {code}" if code else detail.get("message") or detail.get("type")
            reasons.append(str(said or status))
    return host, "; ".join(reasons) or status
