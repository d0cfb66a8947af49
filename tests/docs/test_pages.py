"""The documentation says what is true: pages, commands, options and error names exist."""

from __future__ import annotations

import importlib
import inspect
import itertools
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator

import click
import pytest

from aorta_collectors import errors
from aorta_collectors.cli import VERBS, main
from aorta_collectors.investigate.collecting import collecting_for
from aorta_collectors.investigate.report.conclusion import Standing
from aorta_collectors.memory.standalone import standalone as memory
from aorta_collectors.numerics.standalone import standalone as numerics
from aorta_collectors.schema_check import load_schema
from aorta_collectors.tensors.standalone import standalone as tensors
from tests.support import ROOT

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
TEXT = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
#: How the variables of each collector begin, and the schema of its options.
PREFIXES = {
    "NANLOG_": "layer_numerics.options",
    "NUMERICS_": "numerics.options",
    "TENSORS_": "tensors.options",
    "MEMORY_": "memory.options",
}
STANDALONE = {"numerics": numerics, "tensors": tensors, "memory": memory}


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_what_is_generated_is_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "reference.py"), "--check"], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_error_has_its_section_and_every_section_its_error() -> None:
    kinds = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, Exception)]
    page = (ROOT / "docs" / "reference" / "messages.md").read_text(encoding="utf-8")
    assert {kind.slug for kind in kinds} == set(re.findall(r"^## (\S+)$", page, flags=re.M))


def test_every_variable_that_the_pages_name_is_an_option() -> None:
    for prefix, schema in PREFIXES.items():
        of_the_sweep = {f"{prefix}DIR", f"{prefix}RUN_ID"}
        own = "" if prefix == "NANLOG_" else prefix  # those of the stock logger are written out in the schema
        options = {own + (name.upper() if own else name) for name in load_schema(schema)["properties"]}
        named = set(re.findall(rf"(?<![A-Z_]){prefix}[A-Z_]+", TEXT))
        assert named, prefix
        assert named <= options | of_the_sweep


@pytest.mark.parametrize("collector", STANDALONE)
def test_options_of_the_standalone_front_end_that_the_pages_name_exist(collector: str) -> None:
    named: set[str] = set()
    for words in re.findall(rf"-m aorta_collectors\.{collector} ((?:--[a-z-]+ \S+ )*)", TEXT):
        named |= set(re.findall(r"--[a-z-]+", words))
    assert named
    assert named <= set(STANDALONE[collector]().options)


def _typed() -> Iterator[tuple[str, list[str]]]:
    """(page, words) of each command of ours in a block of code."""
    for page in PAGES:
        for block in re.findall(r"^```\w*\n(.*?)^```$", page.read_text(encoding="utf-8"), flags=re.M | re.S):
            for line in block.replace("\\\n", " ").splitlines():
                command = re.match(r"(?:\$ )?(aorta-collectors .*)", line)
                if command is not None:
                    words = shlex.split(command.group(1).partition("  #")[0], comments=True)
                    yield page.name, words[: words.index("|")] if "|" in words else words


@pytest.mark.parametrize("verb", VERBS)
def test_commands_in_the_pages_are_of_verbs_and_options_that_exist(verb: str) -> None:
    context = click.Context(main)
    command = main.get_command(context, verb)
    assert command is not None
    for page, (_, called, *words) in _typed():
        if called == verb:
            own = words[: words.index("--")] if "--" in words else words
            options = {word.partition("=")[0] for word in own if re.match(r"--?[a-z]", word)}
            assert options <= _options(context, command, own), f"{page}: {called} {' '.join(words)}"


def _options(context: click.Context, command: click.Command, words: list[str]) -> set[str]:
    """Of a verb, and of the command below it where its words name one."""
    below = command.get_command(context, words[0]) if isinstance(command, click.Group) and words else None
    params = [*command.params, *(below.params if below is not None else [])]
    return {name for parameter in params for name in (*parameter.opts, *parameter.secondary_opts)} | {"--help"}


def test_verbs_that_the_pages_name_exist() -> None:
    named = set(re.findall(r"`aorta-collectors ([a-z-]+)", TEXT)) | {words[1] for _, words in _typed()}
    assert named - {"VERB"} <= set(VERBS)


def test_make_targets_that_the_pages_name_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in set(re.findall(r"(?:`|^|^\$ )make ([a-z-]+)", TEXT, flags=re.M)):
        assert re.search(rf"^{target}:", makefile, flags=re.M), target


def test_every_verdict_is_explained() -> None:
    page = (ROOT / "docs" / "explanation" / "verification.md").read_text(encoding="utf-8")
    verdicts = load_schema("receipt")["properties"]["verdict"]["enum"]
    assert set(re.findall(r"^\| `(\w+)` \|", page, flags=re.M)) == set(verdicts)


def test_the_specs_in_the_pages_are_valid() -> None:
    from aorta_collectors.layer_numerics.support import check_spec

    found = re.findall(r"NANLOG_SPEC(?:: |=)'(\{.*?\})'", TEXT) + re.findall(r'`(\{"(?:follow|watch)": [^`]*\})`', TEXT)
    assert len(found) >= 8
    for text in found:
        check_spec(json.loads(text))


def test_options_of_a_collector_that_the_pages_give_an_investigation_exist() -> None:
    found = [
        word
        for _, (_, called, *words) in _typed()
        if called == "investigate"
        for option, word in itertools.pairwise(words)
        if option == "--collect"
    ]
    assert found
    collecting_for("values", found, ())


def test_calls_that_the_pages_show_are_in_the_public_modules() -> None:
    imported = re.findall(r"^ *from (aorta_collectors\.(?:tensors|memory)) import (.+)$", TEXT, flags=re.M)
    assert {module for module, _ in imported} == {"aorta_collectors.tensors", "aorta_collectors.memory"}
    for module, names in imported:
        for name in names.split(", "):
            assert name in importlib.import_module(module).__all__, f"{module}.{name}"


def test_every_standing_of_a_conclusion_is_explained() -> None:
    page = (ROOT / "docs" / "explanation" / "evidence-and-inference.md").read_text(encoding="utf-8")
    for standing in Standing:
        assert f"*{re.split('[:,;]', standing.value)[0]}*" in page
