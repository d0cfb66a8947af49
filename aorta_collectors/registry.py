"""Collectors by name, from the entry-point group aorta.collectors.

Names are read from package metadata alone, so that a sweep which asks for none of them loads none of them.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import Any

from aorta_collectors.api import Collector
from aorta_collectors.errors import CollectorLoadError

GROUP = "aorta.collectors"


def collector_names() -> frozenset[str]:
    return frozenset(entry.name for entry in entry_points(group=GROUP))


def load_collector(name: str) -> Collector:
    """Load and instantiate one collector.

    Raises:
        CollectorLoadError: No package offers it, several do, or it cannot be imported; names the package and the cause.
    """
    offers = [entry for entry in entry_points(group=GROUP) if entry.name == name]
    if not offers:
        known = ", ".join(sorted(collector_names())) or "none"
        raise CollectorLoadError(f"no installed package offers a collector named {name!r}; installed: {known}")
    packages = sorted({_package(entry) for entry in offers})
    if len({(entry.value, _package(entry)) for entry in offers}) > 1:
        raise CollectorLoadError(
            f"collector {name!r} is offered by {' and '.join(packages)}; uninstall one, since neither is preferred"
        )
    return _load(name, packages[0])


def _load(name: str, package: str) -> Collector:
    # Imported here: loading the plugin must stay cheap where no collector is asked for.
    from stevedore.named import NamedExtensionManager

    failures: list[BaseException] = []
    manager: Any = NamedExtensionManager(
        GROUP,
        [name],
        invoke_on_load=True,
        on_load_failure_callback=lambda _manager, _entry, error: failures.append(error),
    )
    if failures:
        cause = failures[0]
        raise CollectorLoadError(
            f"collector {name!r} of package {package} cannot be loaded: {type(cause).__name__}: {cause}"
        ) from cause
    collector = manager[name].obj
    if not isinstance(collector, Collector):
        raise CollectorLoadError(
            f"collector {name!r} of package {package} is a {type(collector).__name__}, "
            "not an aorta_collectors.api.Collector"
        )
    if collector.name != name:
        raise CollectorLoadError(
            f"collector {name!r} of package {package} calls itself {collector.name!r}; "
            "the entry point must have that name"
        )
    return collector


def _package(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else entry.value.split(".", 1)[0]
