"""Workloads of ours, entries of aorta.workloads.

Taking `script` attaches the plugin as well. aorta loads every workload where it looks for one, also in the process of
its own that an isolated trial runs in, where no mitigation is loaded.
"""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    if name != "script":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from aorta_collectors.host.attach import attach

    attach()
    from aorta_collectors.workloads.workload import ScriptWorkload

    return ScriptWorkload
