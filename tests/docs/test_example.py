"""The examples of a collector work: a package, installed as anybody's would be, and the one in the contract."""

from __future__ import annotations

import contextlib
import re
import textwrap
from pathlib import Path

import pytest

from aorta_collectors import api
from aorta_collectors.evidence.directory import Anchor
from tests.support import PYTHON, ROOT, run

EXAMPLE = ROOT / "examples" / "loss_collector"


@pytest.mark.sweep
def test_the_example_can_be_installed_and_its_tests_pass(tmp_path: Path) -> None:
    site = tmp_path / "site"
    install = ["install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--target", str(site)]
    run([PYTHON, "-m", "pip", *install, str(EXAMPLE)], tmp_path).ok()
    env = {"PYTHONPATH": str(site)}
    tested = [PYTHON, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(EXAMPLE / "tests")]
    assert "6 passed" in run(tested, tmp_path, env).ok().out
    listed = run(["aorta-collectors", "list"], tmp_path, env).ok()
    assert "Writes down what backward() is called on" in listed.out


def test_the_collector_in_the_contract_is_one(tmp_path: Path) -> None:
    code = re.search(r"^    class Heartbeat.*?(?=^\S)", api.__doc__ or "", flags=re.M | re.S)
    assert code is not None
    names = {name: getattr(api, name) for name in api.__all__} | {"contextlib": contextlib}
    exec(textwrap.dedent(code.group()), names)
    collector = names["Heartbeat"]()
    options = collector.validate({})
    with collector.armed(options, lambda: api.Capture(tmp_path, "this")):
        pass
    expected = api.Expected(options, frozenset({"this"}))
    with Anchor(tmp_path).open(tmp_path) as artifacts:
        assert collector.verify(artifacts, expected).verdict is api.Verdict.CAPTURED
    launch = collector.plan(api.Launch.of_this_process(("python", "train.py")), options, api.Capture(tmp_path, "this"))
    assert launch.env["HEARTBEAT_RUN_ID"] == "this"
