"""The plugin's side in amd-aorta: the only code that knows the host's inside.

`no_collectors` is an entry of aorta.mitigations: a cell with this mitigation runs uninstrumented, which shows a
collector's own effect on the run. aorta loads every mitigation in every sweep, and loading this one attaches the
plugin. Importing this package does nothing; only taking the attribute attaches.
"""

from __future__ import annotations


def __getattr__(name: str) -> dict[str, str]:
    if name != "no_collectors":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from aorta_collectors.host.attach import attach

    attach()
    return {"AORTA_COLLECTORS": "off"}
