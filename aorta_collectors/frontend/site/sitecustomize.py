"""Arms collectors in a Python process that was started by something opaque, such as a shell script.

Python imports a module of this name at start-up when its directory is on PYTHONPATH. It then behaves as if it had
never been there: the directory leaves sys.path, and the user's or the distribution's own sitecustomize is run.
"""

import importlib.machinery
import importlib.util
import os
import sys


def _load_package() -> None:
    """Import the package to which this file belongs, whatever else is installed, without touching sys.path.

    It may lie in a zip file, and need not be installed.
    """
    if "aorta_collectors" in sys.modules:
        return
    package = os.path.dirname(os.path.dirname(_here))
    spec = importlib.machinery.PathFinder.find_spec("aorta_collectors", [os.path.dirname(package)])
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["aorta_collectors"] = module
    spec.loader.exec_module(module)


def _arm() -> None:
    if not os.environ.get("AORTA_COLLECTORS_ARM") or os.environ.get("AORTA_COLLECTORS", "").lower() == "off":
        return
    try:
        _load_package()
        from aorta_collectors.frontend.arming import arm_from_environment

        arm_from_environment()
    except Exception as error:
        sys.stderr.write(f"aorta-collectors: could not arm: {type(error).__name__}: {error}\n")


def _chain() -> None:
    """Run the sitecustomize that this one hides."""
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


_here = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or os.curdir) != _here]
_arm()
_chain()
