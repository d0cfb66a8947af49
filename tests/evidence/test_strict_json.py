"""JSON text that is taken for evidence: what a strict reader would take, and each key once."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aorta_collectors.strict_json import loads, loads_lines

texts = st.text(st.characters(codec="utf-8"), max_size=5) | st.sampled_from(["a", "b", ":", '":', "\\", '"', "a:b"])
scalars = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
)
values = st.recursive(
    scalars | texts, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3), max_leaves=8
)


@given(values, st.booleans(), st.sampled_from([None, 1]))
def test_what_python_writes_is_read_as_it_was(value: Any, ascii_alone: bool, indent: int | None) -> None:
    assert loads(json.dumps(value, ensure_ascii=ascii_alone, indent=indent).encode()) == value


@given(st.lists(st.dictionaries(texts, values, max_size=4), min_size=1, max_size=4), st.booleans())
def test_many_lines_are_read_like_each_of_them(records: list[dict[str, Any]], ascii_alone: bool) -> None:
    lines = [json.dumps(record, ensure_ascii=ascii_alone).encode() + b"\n" for record in records]
    assert loads_lines(lines) == records


@given(st.dictionaries(texts, values, min_size=1, max_size=3), st.sampled_from([None, 1]), st.integers(0, 3))
def test_a_key_that_stands_twice_is_refused_wherever_it_is(
    twice: dict[str, Any], indent: int | None, depth: int
) -> None:
    text = json.dumps(twice, indent=indent)
    assert text.startswith("{")
    key, value = next(iter(twice.items()))
    text = f"{{{json.dumps(key)} : {json.dumps(value)},{text[1:]}"
    text = '{"x": [' * depth + text + "]}" * depth
    with pytest.raises(ValueError, match="twice in one object"):
        loads(text.encode())
    with pytest.raises(ValueError, match="twice in one object"):
        loads_lines([b'{"b": "a:b"}', text.replace("\n", " ").encode(), b'["::::", ":"]'])


@pytest.mark.parametrize(
    "text", ["NaN", '{"a": -Infinity}', "1e999", '{"a": "\\udc80", "b": NaN}', '["\\udc80", 1e999]']
)
def test_a_number_that_is_none_in_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"number|unexpected|expected|digit"):
        loads(text.encode())


def test_lone_surrogates_are_the_bytes_of_a_name() -> None:
    assert loads(b'{"path": "/r\\udce9sultats"}') == {"path": "/r\udce9sultats"}
    with pytest.raises(ValueError, match="twice"):
        loads(b'{"path": "\\udce9", "path": 1}')


@pytest.mark.parametrize("depth", [101, 1000, 100_000])
def test_too_many_levels_are_refused_and_a_hundred_are_read(depth: int) -> None:
    assert loads(b"[" * 100 + b"]" * 100)
    for start in (b"", b'["\\udce9",'):
        with pytest.raises(ValueError, match=r"deep|depth"):
            loads(start + b"[" * depth + b"]" * depth + (b"]" if start else b""))
