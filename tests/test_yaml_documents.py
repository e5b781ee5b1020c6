"""YAML sources: the values of JSON, whatever the bytes, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from crossgate import SourceError
from crossgate._sources.common import Unusable
from crossgate._sources.reading import read_sources
from crossgate._sources.tools import tool_from
from crossgate._sources.yaml_documents import parse_yaml

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(VALUES)
@example({"\x85": None})  # written so that it is read as a space
def test_dumped_values_are_read_as_the_loader_of_pyyaml_reads_them(value: object) -> None:
    text = yaml.safe_dump(value, allow_unicode=True)
    assert parse_yaml(text) == yaml.safe_load(text)


@given(st.binary() | st.text(alphabet="{}[]&*a: -\n\"'!|>#?,%\t").map(str.encode))
def test_any_text_is_parsed_or_refused(raw: bytes) -> None:
    try:
        value = parse_yaml(raw.decode("utf-8", "replace"))
    except Unusable:
        return
    json.dumps(value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        (
            "a: yes\nb: 2026-11-24\nc: 1_000\nd: 1:30\ne: 0o17",
            ["yes", "2026-11-24", "1_000", "1:30", "0o17"],
        ),
        ("a: '5'\nb: !!str 5\nc: 5\nd: -1.5e3\ne: 1e999", ["5", "5", 5, -1500.0, "1e999"]),
        ("a: ~\nb:\nc: Null\nd: TRUE\ne: 'null'", [None, None, None, True, "null"]),
        ("200: a\ntrue: b\n~: c\nx: d\n1.0: e", ["a", "b", "c", "d", "e"]),
        ("a: &x [1]\nb: *x\nc: &y z\nd: *y\ne: !!python/object:os.x {}", [[1], [1], "z", "z", {}]),
        (f"a: {'9' * 5000}\nb: 1\nc: 2\nd: 3\ne: 4", ["9" * 5000, 1, 2, 3, 4]),
    ],
)
def test_types_are_json_types(text: str, value: list[object] | None) -> None:
    found = parse_yaml(text)
    assert (list(found.values()) if isinstance(found, dict) else found) == value


def test_keys_are_text() -> None:
    assert parse_yaml("200: a\ntrue: b\n1.0: c\n&k key: *k") == {
        "200": "a",
        "true": "b",
        "1.0": "c",
        "key": "key",
    }


@pytest.mark.parametrize(
    ("text", "reason", "line"),
    [
        ("a: 1\n---\nb: 2", "more than one YAML document", 2),
        ("a:\n  - *b", "no earlier value is named &b", 2),
        ("a: &x\n  b: [*x]", "*x is a part of itself", 2),
        ("? [a]\n: 1", "a key that is not text", 1),
        ("a: &x [1]\n*x : 2", "a key that is not text", 2),
        ("[" * 200 + "]" * 200, "nested deeper than 100", 1),
        ("a: [1", "not valid YAML: ", None),
        ("a: b: c", "not valid YAML: a value with a colon and a space", 1),
        ("a: \x01", "not valid YAML: ", None),
    ],
)
def test_values_outside_of_json_are_refused(text: str, reason: str, line: int | None) -> None:
    with pytest.raises(Unusable, match=reason.replace("*", r"\*")) as caught:
        parse_yaml(text)
    assert line is None or caught.value.line == line


@pytest.mark.timeout(20)
def test_aliases_do_not_copy() -> None:
    lines = ["a0: &a0 {description: deep, properties: {x: {enum: [1]}}}"]
    for level in range(1, 60):
        lines.append(f"a{level}: &a{level} {{anyOf: [{', '.join([f'*a{level - 1}'] * 9)}]}}")
    found: Any = parse_yaml("\n".join(lines))
    tool = tool_from({"name": "t", "parameters": {"properties": {"p": found["a59"]}}})
    assert tool.body.startswith("p")


SPECIFICATION: dict[str, Any] = {
    "openapi": "3.1.0",
    "paths": {
        "/pets/{id}": {
            "get": {
                "operationId": "pet",
                "summary": "Shows a pet.",
                "parameters": [{"name": "id", "in": "path", "description": "Number of its tag."}],
            }
        }
    },
}


@pytest.mark.parametrize("suffix", ["yaml", "yml"])
def test_openapi_and_tools_in_yaml_equal_those_in_json(tmp_path: Path, suffix: str) -> None:
    for number, value in enumerate((SPECIFICATION, {"tools": [{"name": "a", "description": "b"}]})):
        written = {"json": json.dumps(value), suffix: yaml.safe_dump(value)}
        documents = []
        for ending, text in written.items():
            path = tmp_path / f"tools{number}.{ending}"
            path.write_text(text, encoding="utf-8")
            loaded = read_sources([path])
            assert not loaded.problems
            documents.append(loaded.documents)
        assert documents[0] == documents[1]
        assert len(documents[0]) == 1


def test_a_broken_file_is_reported_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "openapi.yaml"
    path.write_text("openapi: 3.1.0\npaths: [\n", encoding="utf-8")
    with pytest.raises(SourceError, match=r"openapi\.yaml:3: not valid YAML: "):
        read_sources([path])
