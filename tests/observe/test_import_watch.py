"""Noticing an import without causing it, and without a trace in the module."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from aorta_collectors.import_watch import ImportWatch

Make = Callable[[str, str], str]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Writes a module that exists in this test alone."""
    monkeypatch.syspath_prepend(str(tmp_path))
    finders = list(sys.meta_path)
    made: list[str] = []

    def write(name: str, source: str) -> str:
        path = tmp_path.joinpath(*name.split(".")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
        importlib.invalidate_caches()
        made.append(name)
        return name

    yield write
    for name in list(sys.modules):
        if name.split(".")[0] in {entry.split(".")[0] for entry in made}:
            del sys.modules[name]
    assert sys.meta_path == finders


def test_the_callback_runs_when_the_module_is_complete_and_before_the_import_returns(make: Make) -> None:
    name = make("watched_complete", "value = 1\nlast = 2\n")
    seen: list[int] = []
    ImportWatch(name, lambda: seen.append(sys.modules[name].last)).start()
    assert seen == []
    importlib.import_module(name)
    assert seen == [2]


def test_the_callback_runs_once(make: Make) -> None:
    name = make("watched_once", "")
    calls: list[int] = []
    ImportWatch(name, lambda: calls.append(1)).start()
    module = importlib.import_module(name)
    importlib.reload(module)
    assert calls == [1]


def test_a_module_that_is_there_already_is_reported_at_once() -> None:
    calls: list[int] = []
    ImportWatch("json", lambda: calls.append(1)).start()
    assert calls == [1]


def test_a_stopped_watch_is_silent_and_can_be_stopped_again(make: Make) -> None:
    name = make("watched_stopped", "")
    calls: list[int] = []
    watch = ImportWatch(name, lambda: calls.append(1))
    watch.start()
    watch.stop()
    watch.stop()
    importlib.import_module(name)
    assert calls == []


def test_a_submodule_of_a_package_is_noticed(make: Make) -> None:
    make("watched_package.__init__", "")
    name = make("watched_package.part", "here = True\n")
    calls: list[bool] = []
    ImportWatch(name, lambda: calls.append(sys.modules[name].here)).start()
    importlib.import_module("watched_package")
    assert calls == []
    importlib.import_module(name)
    assert calls == [True]


def test_the_module_keeps_its_own_loader_and_source(make: Make) -> None:
    name = make("watched_loader", "def f():\n    return 1\n")
    ImportWatch(name, lambda: None).start()
    module = importlib.import_module(name)
    assert module.__spec__ is not None
    assert type(module.__spec__.loader).__name__ == type(module.__loader__).__name__ == "SourceFileLoader"
    assert inspect.getsource(module.f).startswith("def f()")


def test_an_import_that_fails_is_not_reported_and_one_that_then_succeeds_is(make: Make) -> None:
    name = make("watched_failing", "import sys\nif not hasattr(sys, '_watched_ready'):\n    raise ValueError('x')\n")
    calls: list[int] = []
    ImportWatch(name, lambda: calls.append(1)).start()
    with pytest.raises(ValueError, match="x"):
        importlib.import_module(name)
    assert calls == []
    try:
        sys._watched_ready = True  # type: ignore[attr-defined]
        importlib.import_module(name)
    finally:
        del sys._watched_ready  # type: ignore[attr-defined]
    assert calls == [1]


def test_looking_for_a_module_is_not_importing_it(make: Make) -> None:
    name = make("watched_probed", "")
    calls: list[int] = []
    watch = ImportWatch(name, lambda: calls.append(1))
    watch.start()
    spec = importlib.util.find_spec(name)
    assert spec is not None
    assert calls == []
    importlib.import_module(name)
    assert calls == [1]


def test_a_module_that_does_not_exist_still_raises_its_own_error() -> None:
    watch = ImportWatch("no_such_module_anywhere", lambda: None)
    watch.start()
    try:
        with pytest.raises(ModuleNotFoundError, match="no_such_module_anywhere"):
            importlib.import_module("no_such_module_anywhere")
    finally:
        watch.stop()


def test_two_watches_of_one_module_are_both_told(make: Make) -> None:
    name = make("watched_by_two", "")
    calls: list[str] = []
    first, second = (ImportWatch(name, lambda who=who: calls.append(who)) for who in ("first", "second"))
    first.start()
    second.start()
    try:
        importlib.import_module(name)
        assert sorted(calls) == ["first", "second"]
    finally:
        first.stop()
        second.stop()
