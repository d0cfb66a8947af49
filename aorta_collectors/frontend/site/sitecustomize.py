"""Arms collectors in a Python process that was started by something opaque, such as a shell script.

Python imports a module of this name at start-up when its directory is on PYTHONPATH. It then behaves as if it had
never been there: the directory leaves sys.path, and the user's or the distribution's own sitecustomize is run. Nothing
is imported until the program asks for torch, since most processes below a script never do.

Any Python may come by here, so this file keeps to what Python 2 understands.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any  # noqa: F401  (the comments name it)

_OLDEST = (3, 10)


class _UntilTorch:
    """Finds nothing. Once torch is looked for, it arms what was named when the process began, and is gone."""

    def __init__(self, names):
        # type: (list[str]) -> None
        self._names = names
        self._pid = os.getpid()
        try:
            self._started_in = os.getcwd()
        except OSError:
            self._started_in = os.curdir  # it was removed; the program may yet go to another

    def find_spec(self, name, path=None, target=None):
        # type: (str, Any, Any) -> Any
        if name != "torch" or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)
        try:
            self._arm()
        except Exception as error:
            sys.stderr.write("aorta-collectors: could not arm: " + type(error).__name__ + ": " + str(error) + "\n")
        # What arms has been put before the finders that have been asked by now.
        for finder in list(sys.meta_path):
            find_spec = getattr(finder, "find_spec", None)
            spec = find_spec(name, path, target) if find_spec is not None else None
            if spec is not None:
                return spec
        return None

    def _arm(self):
        # type: () -> None
        if sys.version_info < _OLDEST:
            raise RuntimeError("this is Python {}.{}, older than {}.{}".format(*sys.version_info[:2] + _OLDEST))
        _load_package()
        from aorta_collectors.frontend.arming import arm_when_torch_is_there

        for name in self._names:
            arm_when_torch_is_there(name, self._started_in, self._pid)


def _load_package():
    # type: () -> None
    """Import the package to which this file belongs, whatever else is installed, without touching sys.path.

    It may lie in a zip file, and need not be installed.
    """
    if "aorta_collectors" in sys.modules:
        return
    import importlib.machinery
    import importlib.util

    package = os.path.dirname(os.path.dirname(_here))
    spec = importlib.machinery.PathFinder.find_spec("aorta_collectors", [os.path.dirname(package)])
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["aorta_collectors"] = module
    spec.loader.exec_module(module)


def _is_here(entry):
    # type: (str) -> bool
    return entry == _here or (os.path.isabs(entry) and os.path.normpath(entry) == _here)


_here = os.path.normpath(os.path.dirname(__file__))
sys.path[:] = [entry for entry in sys.path if not _is_here(entry)]
sys.path_importer_cache.pop(_here, None)
_names = os.environ.get("AORTA_COLLECTORS_ARM", "").split()
if _names and os.environ.get("AORTA_COLLECTORS", "").lower() != "off" and sys.version_info >= (3,):
    sys.meta_path.insert(0, _UntilTorch(_names))

# The one that this hides takes its place. Where there is none, the import fails as it would have, and python expects
# that. Python 2 clears a module that nobody holds.
_self = sys.modules.pop(__name__)
__import__(__name__)
