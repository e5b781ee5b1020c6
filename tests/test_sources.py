"""Sources: every kind of file and folder, with every kind of fault."""

from __future__ import annotations

import json
import os
import pickle
import re
import sys
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import crossgate._sources.reading as reading
import crossgate._sources.tools as tools_module
from conftest import refused
from crossgate._cli import run
from crossgate._retrieval.passages import pieces
from crossgate._sources.markdown import chunk_markdown, chunk_plain, sections
from crossgate._sources.reading import Loaded, read_sources
from crossgate._sources.rows import read_candidates
from crossgate._sources.skill_files import description_of, front_matter
from crossgate._sources.tools import tool_from
from crossgate._support.errors import InputError, SourceError
from crossgate._support.limits import ROW_BYTES


def write(path: Path, content: str | bytes) -> Path:
    """Write a file and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def skill(front_matter: str) -> str:
    return f"---\n{front_matter}\n---\n# Body\n"


def ids(loaded: Loaded) -> list[str]:
    return [document.id for document in loaded.documents]


def problems_of(loaded: Loaded, root: Path) -> list[str]:
    """Return the problems as text, without the folder of the test."""
    return [str(problem).replace(f"{root}{os.sep}", "") for problem in loaded.problems]


GOOD = skill("name: pdf\ndescription: Fill in forms.")
ROW = '{"_id": "a", "text": "one"}\n'


# --- which kind of source -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("files", "path", "expected"),
    [
        ({"x/SKILL.md": GOOD, "x/notes.md": "# N\ntext"}, "", ["pdf"]),
        ({"x/y/z/SKILL.md": GOOD}, "", ["pdf"]),
        ({"SKILL.md": GOOD}, "", ["pdf"]),
        ({"SKILL.md": GOOD}, "SKILL.md", ["pdf"]),
        ({"corpus.jsonl": ROW, "queries.jsonl": '{"_id": "q", "text": "t"}'}, "", ["a"]),
        ({"corpus.jsonl": ROW, "x/SKILL.md": GOOD}, "", ["a"]),
        ({"rows.jsonl": ROW}, "rows.jsonl", ["a"]),
        ({"rows.ndjson": ROW}, "rows.ndjson", ["a"]),
        ({"ROWS.JSONL": ROW}, "ROWS.JSONL", ["a"]),
        ({"a.md": "x", "b/c.markdown": "x", "d.txt": "x", "e.rst": "x", "f.png": "x"}, "",
         ["a.md", "b/c.markdown", "d.txt", "e.rst"]),
        ({"a.md": "# A\nx"}, "a.md", ["a.md#a"]),
        ({"skill.md": "# A\nx"}, "", ["skill.md#a"]),
        ({"tools.json": '[{"name": "t"}]'}, "tools.json", ["t"]),
        ({"a/t.json": '[{"name": "t"}]', "b/u.json": '[{"name": "u"}]'}, "", ["t", "u"]),
        ({"t.json": '[{"name": "t"}]', "rows.jsonl": ROW}, "", ["a"]),
        ({"x/SKILL.md": GOOD, "x/references/skill.md": "x"}, "", ["pdf"]),
    ],
)  # fmt: skip
def test_auto_detects_the_kind_from_the_path(
    tmp_path: Path, files: dict[str, str], path: str, expected: list[str]
) -> None:
    for name, content in files.items():
        write(tmp_path / name, content)
    loaded = read_sources([tmp_path / path])
    assert ids(loaded) == expected
    assert loaded.problems == ()


def test_given_kind_overrides_detection(tmp_path: Path) -> None:
    write(tmp_path / "SKILL.md", f"{GOOD}\n# Body\ntext")
    write(tmp_path / "rows.data", ROW)
    write(tmp_path / "more.jsonl", '{"_id": "b", "text": "two"}')
    assert ids(read_sources([tmp_path], kind="text")) == ["SKILL.md#body"]
    assert ids(read_sources([tmp_path / "rows.data"], kind="jsonl")) == ["a"]
    assert ids(read_sources([tmp_path / "rows.data"], kind="beir")) == ["a"]
    assert ids(read_sources([tmp_path / "rows.data"], kind="text")) == ["rows.data"]
    assert ids(read_sources([tmp_path], kind="jsonl")) == ["b"]
    assert ids(read_sources([tmp_path], kind="skills")) == ["pdf"]


def test_paths_are_read_in_order_and_a_string_is_one_path(tmp_path: Path) -> None:
    rows, text = write(tmp_path / "r.jsonl", ROW), write(tmp_path / "t.txt", "x")
    assert ids(read_sources([text, str(rows)])) == ["t.txt", "a"]
    assert ids(read_sources(str(rows))) == ["a"]


@pytest.mark.parametrize(
    ("path", "kind", "code", "says"),
    [
        ("nowhere", "auto", "source_missing", "nowhere"),
        ("nul\0", "auto", "source_missing", "nul"),
        (
            "x.pdf",
            "auto",
            "source_unknown",
            "x.pdf is a .pdf file; accepted: a folder with SKILL.md",
        ),
        ("plain", "auto", "source_unknown", "plain is a file without a suffix"),
        ("x.pdf", "pdf", "source_unknown", "unknown kind 'pdf'; accepted: auto, skills, beir"),
        ("folder", "beir", "source_missing", "it has no corpus.jsonl"),
        ("folder", "auto", "no_documents", "folder; looked for a folder with SKILL.md"),
        ("bad.jsonl", "auto", "no_documents", "2 skipped, the first: "),
    ],
)
def test_unusable_path_is_refused(
    tmp_path: Path, path: str, kind: str, code: str, says: str
) -> None:
    (tmp_path / "folder").mkdir()
    for name in ("x.pdf", "plain"):
        write(tmp_path / name, "x")
    write(tmp_path / "bad.jsonl", "1\n2\n")
    said = refused(code, read_sources, [f"{tmp_path}/{path}"], kind=kind)
    assert says in said


def test_empty_list_of_paths_is_refused() -> None:
    with pytest.raises(SourceError, match="an empty list of paths") as raised:
        read_sources([])
    assert raised.value.code == "no_documents"


OUT = "a link out of the folder, not followed: name its target as a path"
# /proc/self/mem opens and then refuses to be read, even for root.
UNREADABLE = Path("/proc/self/mem")


@pytest.mark.skipif(not UNREADABLE.exists(), reason="needs Linux's /proc for a file that fails")
@pytest.mark.parametrize(
    ("link", "good", "other"),
    [
        ("x/SKILL.md", "y/SKILL.md", GOOD),
        ("x.md", "y.md", "text"),
        ("x.jsonl", "y.jsonl", ROW),
        ("corpus.jsonl", "", ""),
    ],
)
def test_read_error_is_reported(tmp_path: Path, link: str, good: str, other: str) -> None:
    (tmp_path / link).parent.mkdir(exist_ok=True)
    (tmp_path / link).symlink_to(UNREADABLE)
    refused("source_unreadable", read_sources, [tmp_path / link])
    if good:
        write(tmp_path / good, other)
        loaded = read_sources([tmp_path], kind="jsonl" if good.endswith("jsonl") else "auto")
        assert len(loaded.documents) == 1
        assert problems_of(loaded, tmp_path) == [f"{link}: {OUT}"]


def test_unlistable_folder_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "a.md", "text")
    closed = tmp_path / "closed"
    closed.mkdir()
    real = os.listdir

    def listdir(path: str) -> list[str]:
        if Path(path) == closed:
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr(os, "listdir", listdir)
    loaded = read_sources([tmp_path])
    assert ids(loaded) == ["a.md"]
    assert problems_of(loaded, tmp_path) == ["closed: cannot be read: Permission denied"]
    with pytest.raises(SourceError, match="Permission denied") as raised:
        read_sources([closed])
    assert raised.value.code == "source_unreadable"


# --- folders ----------------------------------------------------------------------------------


def test_order_does_not_depend_on_the_file_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("b.md", "a/z.md", "a/b/c.md", "a-b/x.md", "B.md"):
        write(tmp_path / name, "text")
    expected = ["B.md", "a/b/c.md", "a/z.md", "a-b/x.md", "b.md"]
    real = os.listdir
    for turn in (sorted, lambda names: sorted(names, reverse=True)):
        monkeypatch.setattr(os, "listdir", lambda path, turn=turn: turn(real(path)))
        assert ids(read_sources([tmp_path])) == expected


def test_hidden_entries_are_left_out_unless_named(tmp_path: Path) -> None:
    write(tmp_path / ".claude/skills/pdf/SKILL.md", GOOD)
    write(tmp_path / "skills/csv/SKILL.md", skill("description: d"))
    write(tmp_path / "skills/.old/SKILL.md", skill("description: old"))
    assert ids(read_sources([tmp_path])) == ["csv"]
    assert ids(read_sources([tmp_path / ".claude/skills"])) == ["pdf"]


def test_links_to_folders_are_followed_once(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    write(outside / "far/SKILL.md", skill("name: far\ndescription: d"))
    root = tmp_path / "root"
    write(root / "z/SKILL.md", skill("name: near\ndescription: d"))
    (root / "a").symlink_to(root / "z", target_is_directory=True)
    (root / "z/up").symlink_to(root, target_is_directory=True)
    (root / "self").symlink_to(root / "self")
    (root / "other").symlink_to(outside, target_is_directory=True)
    (outside / "back").symlink_to(root, target_is_directory=True)
    loaded = read_sources([root])
    # It has its own path, although the link's name sorts first.
    paths = [(document.id, document.metadata["path"]) for document in loaded.documents]
    assert paths == [("near", "z/SKILL.md")]
    assert problems_of(loaded, root) == [f"other: {OUT}"]
    assert ids(read_sources([root, root / "other"])) == ["near", "far"]  # read, because it is named


def test_first_of_two_links_to_a_folder_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "root/.hidden/a.md", "text")
    for name in ("x", "y"):
        (tmp_path / "root" / name).symlink_to(tmp_path / "root/.hidden", target_is_directory=True)
    real = os.listdir
    for backwards in (False, True):
        monkeypatch.setattr(os, "listdir", lambda path, b=backwards: sorted(real(path), reverse=b))
        assert ids(read_sources([tmp_path / "root"])) == ["x/a.md"]


def test_broken_link_to_a_file_is_reported(tmp_path: Path) -> None:
    write(tmp_path / "a.md", "text")
    (tmp_path / "b.md").symlink_to(tmp_path / "gone.md")
    (tmp_path / "c.png").symlink_to(tmp_path / "gone.png")
    loaded = read_sources([tmp_path])
    assert ids(loaded) == ["a.md"]
    assert problems_of(loaded, tmp_path) == ["b.md: cannot be read: No such file or directory"]


def test_a_pipe_in_a_folder_is_not_opened(tmp_path: Path) -> None:
    write(tmp_path / "a.md", "text")
    os.mkfifo(tmp_path / "b.md")
    assert ids(read_sources([tmp_path])) == ["a.md"]


def test_link_out_of_the_folder_is_reported_and_not_read(tmp_path: Path) -> None:
    write(tmp_path / "root/a.md", "text")
    (tmp_path / "root/all").symlink_to("/", target_is_directory=True)
    write(tmp_path / "secret.md", "secret")
    (tmp_path / "root/b.md").symlink_to(tmp_path / "secret.md")
    write(tmp_path / "root-2/c.md", "another folder, whose name starts like the root's")
    (tmp_path / "root/c.md").symlink_to(tmp_path / "root-2/c.md")
    loaded = read_sources([tmp_path / "root"])
    assert ids(loaded) == ["a.md"]
    assert problems_of(loaded, tmp_path / "root") == [
        f"{name}: {OUT}" for name in ("all", "b.md", "c.md")
    ]


def test_corpus_that_is_a_link_out_of_its_folder_is_not_read(tmp_path: Path) -> None:
    write(tmp_path / "rows.jsonl", ROW)
    (tmp_path / "set").mkdir()
    (tmp_path / "set/corpus.jsonl").symlink_to(tmp_path / "rows.jsonl")
    with pytest.raises(SourceError, match="is a link out of the folder") as raised:
        read_sources([tmp_path / "set"])
    assert raised.value.code == "source_unreadable"


@pytest.mark.parametrize("name", ["big.md", "big.txt", "skills/big/SKILL.md", "big.jsonl"])
def test_huge_file_is_skipped_and_the_rest_read(tmp_path: Path, name: str) -> None:
    huge = tmp_path / name
    write(huge, "")
    os.truncate(huge, 8 << 30)  # sparse: 8 GiB without a block on the disk
    good = {"SKILL.md": "skills/pdf/SKILL.md", ".jsonl": "good.jsonl"}
    beside = next((path for end, path in good.items() if name.endswith(end)), "good.md")
    write(tmp_path / beside, GOOD if "SKILL" in beside else ROW)
    loaded = read_sources([tmp_path])
    assert len(loaded.documents) == 1
    [problem] = problems_of(loaded, tmp_path)
    assert problem.startswith(f"{name}: cannot be read: it exceeds the limit ")
    with pytest.raises(SourceError, match="it exceeds the limit") as raised:
        read_sources([huge])
    assert raised.value.code == "source_unreadable"


def test_huge_row_is_skipped_and_the_rest_read(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    write(path, ROW)
    os.truncate(path, len(ROW) + ROW_BYTES * 3)
    with path.open("a", encoding="utf-8") as stream:
        stream.write("\n" + ROW.replace('"a"', '"b"'))
    loaded = read_sources([path])
    assert ids(loaded) == ["a", "b"]
    assert problems_of(loaded, tmp_path) == [f"rows.jsonl:2: a row longer than {ROW_BYTES:,} bytes"]


def test_rows_beyond_the_limit_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "ROWS", 2)
    write(tmp_path / "rows.jsonl", "".join(f'{{"_id": "{n}", "text": "t"}}\n' for n in range(4)))
    loaded = read_sources([tmp_path / "rows.jsonl"])
    assert ids(loaded) == ["0", "1"]
    assert problems_of(loaded, tmp_path) == ["rows.jsonl:3: more than 2 rows, the rest is not read"]


def test_named_pipe_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "b.md")
    with pytest.raises(SourceError, match="it is a named pipe, not a regular file") as raised:
        read_sources([tmp_path / "b.md"])
    assert raised.value.code == "source_unreadable"


def test_very_deep_folders_are_reported(tmp_path: Path) -> None:
    deep = tmp_path / "/".join("d" * 12)
    write(deep / "a.md", "text")
    write(deep / "e/b.md", "text")
    loaded = read_sources([tmp_path])
    assert [document.metadata["path"] for document in loaded.documents] == ["d/" * 12 + "a.md"]
    assert problems_of(loaded, tmp_path) == ["d/" * 12 + "e: more than 12 folders deep, not read"]


def test_a_file_reached_twice_is_read_once(tmp_path: Path) -> None:
    write(tmp_path / "s/pdf/SKILL.md", GOOD)
    rows = write(tmp_path / "rows.jsonl", ROW)
    loaded = read_sources([tmp_path / "s", tmp_path / "s/pdf", rows, f"{tmp_path}/s/../rows.jsonl"])
    assert ids(loaded) == ["pdf", "a"]
    assert loaded.problems == ()


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse such file names")
def test_file_name_that_is_not_utf8_is_escaped(tmp_path: Path) -> None:
    with open(os.path.join(os.fsencode(tmp_path), b"caf\xe9.md"), "wb") as file:
        file.write(b"# T\ntext")
    with open(os.path.join(os.fsencode(tmp_path), b"\xe9.jsonl"), "wb") as file:
        file.write(b'{"text": "t"}\n1\n')
    loaded = read_sources([tmp_path])
    assert ids(loaded) == ["caf\\xe9.md#t"]
    json.dumps(loaded.documents[0].metadata["path"], ensure_ascii=False).encode()
    loaded = read_sources([tmp_path], kind="jsonl")
    assert ids(loaded) == ["\\xe9:1"]
    loaded.problems[0].path.encode()


# --- skills -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "name", "text", "more"),
    [
        (GOOD, "pdf", "Fill in forms.", {}),
        ("\ufeff" + GOOD, "pdf", "Fill in forms.", {}),
        (GOOD.replace("\n", "\r\n"), "pdf", "Fill in forms.", {}),
        ("---  \ndescription: d\n---\t", "folder", "d", {}),
        (skill("name: 12\ndescription: d"), "folder", "d", {}),
        (skill("name: '  '\ndescription: d"), "folder", "d", {}),
        (skill("name: x\nname: y\ndescription: d"), "y", "d", {}),
        (skill("description: |\n  one\n  two: three\n\n  four\nname: x"), "x",
         "one\ntwo: three\n\nfour", {}),
        (skill("description: >-\n  one\n  two\nname: x"), "x", "one two", {}),
        (skill("description: one\n  two\nname: x"), "x", "one two", {}),
        (skill('description: "yes"\nname: x'), "x", "yes", {}),
        (skill("description: !!str 5\nname: x"), "x", "5", {}),
        (skill("# note\ndescription: d # note\nname: x"), "x", "d", {}),
        (skill("description: d\nwhen_to_use: for w"), "folder", "d\nfor w", {}),
        (skill("description: d\nwhen-to-use: for w"), "folder", "d\nfor w", {}),
        (skill("description: d\nwhen_to_use: [a]"), "folder", "d", {}),
        (skill("description: d\nlicense: MIT\ntags: [a, 1, 'b']\nextra: e"), "folder", "d",
         {"license": "MIT", "tags": ("a", "b")}),
        (skill("description: &d d\nname: *d"), "d", "d", {}),
        (skill("description: d\ntags: a, b\nlicense: {a: b}"), "folder", "d", {"tags": "a, b"}),
        (skill("description: עברית 日本語 👩‍👩‍👧 \\d\nname: ראש"), "ראש",
         "עברית 日本語 👩‍👩‍👧 \\d", {}),
        # Other keys do not matter: not a date that does not exist, a tag that would run code,
        # an alias without an anchor, a merge of a merge.
        (skill("a: 2024-13-45\ndescription: d"), "folder", "d", {}),
        (skill("a: !!python/object/apply:os.abort []\ndescription: d"), "folder", "d", {}),
        (skill("a: *b\ndescription: d"), "folder", "d", {}),
        (skill("metadata:\n  description: in\n  name: in\ndescription: d"), "folder", "d", {}),
        ("---\ndescription: d\n---\nNUL \0 in the body --- does not matter", "folder", "d", {}),
        # Not valid YAML, but common, and accepted by agents.
        (skill("description: Use when: foo: bar\nname: x"), "x", "Use when: foo: bar", {}),
        (skill("description: It's: 'so'  \nname: x"), "x", "It's: 'so'", {}),
        (skill("name: x\ndescription: [Beta] forms"), "x", "[Beta] forms", {}),
        (skill("name: x\ndescription: @team forms"), "x", "@team forms", {}),
        (skill("name: x\ndescription: *all* forms"), "x", "*all* forms", {}),
        (skill("description: a: b\ntags: [a, b]\nmetadata:\n  v: 1"), "folder", "a: b",
         {"tags": ("a", "b")}),
        (skill('description: a: b\nname:  "x"'), "x", "a: b", {}),
    ],
)  # fmt: skip
def test_skill_is_read(
    tmp_path: Path, content: str, name: str, text: str, more: dict[str, object]
) -> None:
    write(tmp_path / "folder/SKILL.md", content)
    loaded = read_sources([tmp_path])
    (document,) = loaded.documents
    assert (document.id, document.title, document.text) == (name, name, text)
    assert document.metadata == {"root": str(tmp_path), "path": "folder/SKILL.md", **more}
    assert loaded.problems == ()


@pytest.mark.parametrize(
    ("written", "triggers"),
    [
        ("decks, slide shows", ("decks", "slide shows")),
        ("[decks, slide shows]", ("decks", "slide shows")),
        ('|\n  - decks\n  - "slide shows"', ("decks", "slide shows")),
        ("when the user wants a deck for a talk, or slides", ()),
        ("not for posters", ()),
    ],
)
def test_a_list_of_when_to_use_holds_triggers(
    tmp_path: Path, written: str, triggers: tuple[str, ...]
) -> None:
    write(tmp_path / "folder/SKILL.md", skill(f"description: d\nwhen_to_use: {written}"))
    (document,) = read_sources([tmp_path]).documents
    assert document.triggers == triggers


BROKEN_SKILLS: list[tuple[str | bytes, int | None, str]] = [
    ("", 1, "no front matter"),
    ("# Title\n---\ndescription: d\n---\n", 1, "no front matter"),
    ("----\ndescription: d\n----\n", 1, "no front matter"),
    ("---\ndescription: d\n", 1, "not closed"),
    ("---\ndescription: d\n ---\n--- x\n", 1, "not closed"),
    (skill("name: x"), 1, "no description"),
    ("---\n---\n", 1, "no description"),
    (skill("name: x\ndescription:"), 3, "the description is empty"),
    (skill("name: x\ndescription: '  '"), 3, "the description is empty"),
    (skill("name: x\ndescription: yes"), 3, "a YAML bool, not text: put it in quotes"),
    (skill("description: 2024-01-01"), 2, "a YAML timestamp"),
    (skill("description: 1.5"), 2, "a YAML float"),
    (skill("description: [a]"), 2, "a YAML sequence"),
    (skill("name: x\ndescription:\n  a: b"), 3, "a YAML mapping"),
    (skill("description: !!python/name:os.system x"), 2, "a YAML python/name"),
    (skill("- description: d"), 2, "not a mapping"),
    (skill("just words"), 2, "not a mapping"),
    (skill("name: x\n\tdescription: d"), 3, "not valid YAML"),
    (skill('description: "a \\ud800 b"'), 2, "surrogate|not valid YAML"),
    (skill("description: NUL \0"), None, "not valid YAML"),
    (skill("description: d\n" + "%" * 65_536), 1, "longer than 65,536 characters"),
    (b"---\ndescription: d\n---\n\n\xff", 5, "not UTF-8"),
    (GOOD.encode("utf-16"), 1, "not UTF-8"),
    (GOOD + "x" * (1_000_001 - len(GOOD)), None, "exceeds the limit of 1,000,000 bytes"),
]  # fmt: skip


@pytest.mark.parametrize("libyaml", [True, False])
@pytest.mark.parametrize(("content", "line", "reason"), BROKEN_SKILLS)
def test_a_broken_skill_is_reported_and_skipped(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    content: str | bytes,
    line: int | None,
    reason: str,
    libyaml: bool,
) -> None:
    import yaml

    if not libyaml:
        monkeypatch.delattr(yaml, "CSafeLoader", raising=False)
    write(tmp_path / "good/SKILL.md", GOOD)
    path = write(tmp_path / "broken/SKILL.md", content)
    loaded = read_sources([tmp_path])
    assert ids(loaded) == ["pdf"]
    (problem,) = loaded.problems
    assert problem.path == str(path)
    assert re.search(reason, problem.reason)
    assert "\n" not in problem.reason
    if line is not None:
        assert problem.line == line


# Values of a key that crossgate does not use; agents show them to people and accept any text.
UNUSED_VALUES = [
    "[ticket] [reason]",
    "[a] | [b]",
    "{a} {b}",
    "[file] <style> [n]",
    "'all'|'none'",
    '"[topic] for [tool]" or "[topic]"',
    "@someone, `tool`",
    "%d items",
    "Bash(git:*), Read",
    "*",
    "&",
    '"',
    "'",
    "[",
    "{",
    "!",
    "|",
    ">",
    "\n\tauthor: me\n\tversion: 1",
    "\n  a: b: c\n  - d",
    "one\n  two: three",
    " \t- x\n",
]


@pytest.mark.parametrize("value", UNUSED_VALUES)
@pytest.mark.parametrize("position", [0, 1, 2])
def test_the_value_of_an_unused_key_does_not_matter(
    tmp_path: Path, value: str, position: int
) -> None:
    lines = ["name: brewer", "description: Brew tea and coffee"]
    lines.insert(position, f"argument-hint: {value}")
    write(tmp_path / "SKILL.md", skill("\n".join(lines)))
    loaded = read_sources([tmp_path])
    assert [(found.id, found.text) for found in loaded.documents] == [
        ("brewer", "Brew tea and coffee")
    ]
    assert loaded.problems == ()


ANY_VALUE = st.lists(
    st.text(
        st.characters(codec="utf-8", exclude_characters="\r\n", exclude_categories=["Cs"]),
        max_size=20,
    )
    | st.text(" \t[]{}'\"|>&*!%@`:#,-a?<=.", max_size=8),
    min_size=1,
    max_size=4,
).map("\n  ".join)


@given(
    ANY_VALUE,
    ANY_VALUE,
    st.sampled_from(
        [
            "argument-hint",
            "metadata",
            "hooks",
            "x.y",
            "1st",
            "größe",
            '"two words"',
            "@k",
            "[k]",
            "&k",
        ]
    ),
    st.permutations(["name", "description", "when_to_use", "first", "second"]),
)
@example("[", "]", "hooks", ["first", "name", "second", "description", "when_to_use"])
@example('"', '"', "hooks", ["first", "name", "second", "description", "when_to_use"])
@example("[", "\x00", '"two words"', ["name", "first", "description", "second", "when_to_use"])
@example("a\u2028name: b", "", "hooks", ["name", "first", "second", "description", "when_to_use"])
def test_used_keys_are_read_whatever_an_unused_key_is_and_holds(
    first: str, second: str, key: str, order: list[str]
) -> None:
    lines = {
        "name": "name: brewer",
        "description": 'description: "Brew: tea"',
        "when_to_use": "when_to_use: for guests",
        "first": f"{key}: {first}",
        "second": f"other: {second}",
    }
    text = "---\n" + "\n".join(lines[part] for part in order) + "\n---\nBody.\n"
    values, body = front_matter(text)
    assert values["name"].text == "brewer"
    assert description_of(values) == "Brew: tea\nfor guests"
    assert body == "Body."


DESCRIPTIONS = {
    '"Quick wash" cycle for wool': '"Quick wash" cycle for wool',
    "'s-Gravenhage walking guide": "'s-Gravenhage walking guide",
    "'n Drie-gang ete: beplan dit": "'n Drie-gang ete: beplan dit",
    "Use this\n  when: always": "Use this when: always",
    "Plan meals.\n\n  Keywords: dinner, lunch": "Plan meals.\nKeywords: dinner, lunch",
    '"open': "open",
    '"Reads C:\\pictures and \\"albums\\""': 'Reads C:\\pictures and "albums"',
    "`tool` for knitting": "`tool` for knitting",
    "@mentions and replies": "@mentions and replies",
    "[beta] Knit socks: heel and toe": "[beta] Knit socks: heel and toe",
    "* stars for a review": "* stars for a review",
    "50% off: find bargains": "50% off: find bargains",
    ">\n  Sort mail: letters\n\tand parcels": "Sort mail: letters and parcels",
    "|\n  Sort mail.\n\tParcels: first": "Sort mail.\nParcels: first",
    "Knit\nsocks: at column zero": "Knit",
    '"Knit: socks"\nneedle sizes: [3': "Knit: socks",
    "|\n**When**: cold\n- socks: wool": "**When**: cold\n- socks: wool",
}


@pytest.mark.parametrize(("written", "read"), DESCRIPTIONS.items())
def test_a_description_that_is_not_valid_yaml_is_read_as_text(
    tmp_path: Path, written: str, read: str
) -> None:
    text = f"name: x\nargument-hint: [a] [b]\ndescription: {written}\nlicense: MIT"
    write(tmp_path / "SKILL.md", skill(text))
    (document,) = read_sources([tmp_path]).documents
    assert (document.id, document.text, document.metadata["license"]) == ("x", read, "MIT")


def test_an_indented_front_matter_is_read(tmp_path: Path) -> None:
    write(tmp_path / "SKILL.md", skill("  hint: [a] [b]\n  description: Brew: tea\n  name: x"))
    (document,) = read_sources([tmp_path]).documents
    assert (document.id, document.text) == ("x", "Brew: tea")


def test_a_manual_skill_is_reserved_for_its_name(tmp_path: Path) -> None:
    write(tmp_path / "a/SKILL.md", GOOD)
    for number, value in enumerate(("true", "yes", '"true"', "on  # for people")):
        text = f"argument-hint: [a] | [b]\ndescription: d\ndisable-model-invocation: {value}"
        write(tmp_path / str(number) / "SKILL.md", skill(text))
    write(tmp_path / "z/SKILL.md", skill("description: d\ndisable-model-invocation: false"))
    loaded = read_sources([tmp_path])
    reserved = {document.id: "implicit" in document.metadata for document in loaded.documents}
    assert reserved == dict.fromkeys("0123", True) | {"pdf": False, "z": False}
    assert (loaded.problems, loaded.left_out) == ((), ())


@pytest.mark.parametrize(
    ("settings", "implicit"),
    [
        ("policy:\n  allow_implicit_invocation: false\n", False),
        ("policy: {allow_implicit_invocation: true}", None),
        ("policy: {allow_implicit_invocation: 'false'}", None),
        ("policy: []\ninterface: {display_name: x}", None),
        ("", None),
    ],
)
def test_a_skill_that_codex_reserves_for_people_is_marked(
    tmp_path: Path, settings: str, implicit: bool | None
) -> None:
    write(tmp_path / "pdf/SKILL.md", GOOD)
    write(tmp_path / "pdf/agents/openai.yaml", settings)
    loaded = read_sources([tmp_path])
    assert loaded.documents[0].metadata.get("implicit") is implicit
    assert loaded.problems == ()


def test_broken_settings_of_a_skill_are_reported(tmp_path: Path) -> None:
    write(tmp_path / "pdf/SKILL.md", GOOD)
    write(tmp_path / "pdf/agents/openai.yaml", "policy:\n  - [")
    loaded = read_sources([tmp_path])
    assert "implicit" not in loaded.documents[0].metadata
    (problem,) = problems_of(loaded, tmp_path)
    assert problem.startswith("pdf/agents/openai.yaml:3: not valid YAML")


def test_a_skill_file_below_another_skill_is_not_a_skill(tmp_path: Path) -> None:
    names = ["a", "a/assets/t", "a/tests/skills/u", "b/skills/c", "b/skills/c/templates/v", "b"]
    names += ["node_modules/w", "a/node_modules/x"]
    for name in names:
        write(tmp_path / name / "SKILL.md", skill(f"description: about {name}"))
    loaded = read_sources([tmp_path])
    assert sorted(document.title for document in loaded.documents) == ["a", "b", "c"]
    assert loaded.problems == ()
    assert [problem.reason for problem in loaded.left_out] == [
        "a file of the skill in a",
        "a file of the skill in a",
        "a file of the skill in b/skills/c",
    ]
    # Also if the named folder is the outer skill.
    assert ids(read_sources([tmp_path / "a"])) == ["a"]


def test_deep_nesting_does_not_overflow_the_stack(tmp_path: Path) -> None:
    """An overflow in libyaml would end the process, so the parser must not recurse."""
    write(tmp_path / "a/SKILL.md", GOOD)
    for name, deep in {"b": "[" * 60_000, "c": "? " * 30_000, "d": "{a: " * 15_000}.items():
        write(tmp_path / name / "SKILL.md", skill(f"description: d\na:\n  {deep}"))
    loaded = read_sources([tmp_path])
    assert ids(loaded) == ["pdf", "b", "c", "d"]
    assert loaded.problems == ()


def test_invalid_tags_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import yaml

    monkeypatch.delattr(yaml, "CSafeLoader", raising=False)  # libyaml refuses the escape itself
    write(tmp_path / "SKILL.md", skill('description: d\ntags: ["\\ud800", ok]'))
    assert read_sources([tmp_path]).documents[0].metadata["tags"] == ("ok",)


def test_aliases_do_not_multiply(tmp_path: Path) -> None:
    """Expanded as merge keys, these lines are two to the power of 40 entries."""
    lines = ["a0: &a0 {k: v}"]
    lines += [f"a{n}: &a{n}\n  <<: [*a{n - 1}, *a{n - 1}]" for n in range(1, 41)]
    write(tmp_path / "SKILL.md", skill("\n".join([*lines, "name: x", "description: d"])))
    assert ids(read_sources([tmp_path])) == ["x"]


def test_skill_of_exactly_one_megabyte_is_read(tmp_path: Path) -> None:
    write(tmp_path / "SKILL.md", GOOD + "x" * (1_000_000 - len(GOOD)))
    assert ids(read_sources([tmp_path])) == ["pdf"]


def test_a_second_skill_of_the_same_name_keeps_its_folder_in_its_id(tmp_path: Path) -> None:
    for folder in ("a/pdf", "b/pdf", "c/pdf"):
        write(tmp_path / folder / "SKILL.md", skill(f"name: pdf\ndescription: in {folder}"))
    loaded = read_sources([tmp_path / "b", tmp_path])
    assert [(document.id, document.title, document.text) for document in loaded.documents] == [
        ("pdf", "pdf", "in b/pdf"),
        ("pdf (a/pdf)", "pdf", "in a/pdf"),
        ("pdf (c/pdf)", "pdf", "in c/pdf"),
    ]
    first = "the name 'pdf' is taken by b/pdf/SKILL.md, so its id is 'pdf (a/pdf)'"
    assert (
        problems_of(loaded, tmp_path)[0].replace(f"{tmp_path}/", "") == f"a/pdf/SKILL.md: {first}"
    )
    assert len(loaded.problems) == 2


def test_a_skill_in_a_file_of_another_name_is_reported(tmp_path: Path) -> None:
    write(tmp_path / "pdf" / "SKILL.md", GOOD)
    write(tmp_path / "csv" / "skill.md", GOOD)
    loaded = read_sources([tmp_path])
    assert ids(loaded) == ["pdf"]
    name = os.path.join("csv", "skill.md")
    assert problems_of(loaded, tmp_path) == [
        f"{name}: not read: the file of a skill must be called SKILL.md"
    ]


def test_ids_are_unique_for_folders_of_the_same_name(tmp_path: Path) -> None:
    for root in ("one", "two", "three"):
        write(tmp_path / root / "pdf/SKILL.md", skill(f"name: pdf\ndescription: {root}"))
    loaded = read_sources([tmp_path / root for root in ("one", "two", "three")])
    assert ids(loaded) == ["pdf", "pdf (pdf)", "pdf (pdf)-2"]


def test_an_exact_copy_of_a_skill_is_left_out(tmp_path: Path) -> None:
    write(tmp_path / "a/SKILL.md", GOOD)
    write(tmp_path / "b/SKILL.md", GOOD + "another body")
    loaded = read_sources([tmp_path])
    assert ids(loaded) == ["pdf"]
    assert problems_of(loaded, tmp_path) == [
        "b/SKILL.md: left out, it has the name and description of a/SKILL.md"
    ]


def test_id_shared_by_a_row_and_a_skill_is_changed_or_reported(tmp_path: Path) -> None:
    rows = write(tmp_path / "r.jsonl", '{"id": "pdf", "text": "t"}')
    write(tmp_path / "s/SKILL.md", GOOD)
    assert ids(read_sources([rows, tmp_path / "s"])) == ["pdf", "pdf (s)"]
    loaded = read_sources([tmp_path / "s", rows])
    assert ids(loaded) == ["pdf"]
    assert "r.jsonl:1: the id 'pdf' is already at s/SKILL.md" in problems_of(loaded, tmp_path)[0]


YAMLISH = st.lists(
    st.sampled_from(["name:", "description:", " ", "\n", ":", "- ", "&a", "*a", "!t", "'", '"',
                     "|", ">", "[", "{", "]", "\t", "#", "%", "---", "\\ud800", "\\U9", "é", "x"])
).map(lambda parts: skill("".join(parts)).encode())  # fmt: skip


@given(st.one_of(st.binary(), st.binary().map(lambda b: b"---\n" + b + b"\n---\n"), YAMLISH))
def test_any_bytes_are_read_or_reported(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    path = write(tmp_path_factory.getbasetemp() / "arbitrary" / "SKILL.md", content)
    beside = write(path.parent.parent / "beside" / "SKILL.md", GOOD)
    loaded = read_sources([beside, path])
    for document in loaded.documents:
        assert document.text.strip()
        assert document.id
        json.dumps(
            [document.id, document.title, document.text, dict(document.metadata)],
            ensure_ascii=False,
        ).encode()
    assert len(loaded.documents) + len(loaded.problems) == 2


# --- rows -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"_id": "a", "title": "T", "text": "x"}, ("a", "T", "x", {}, None)),
        ({"id": "a", "name": "T", "description": "x"}, ("a", "T", "x", {}, None)),
        ({"id": "a", "content": "x"}, ("a", "", "x", {}, None)),
        ({"id": "a", "title": "T"}, ("a", "T", "", {}, None)),
        ({"id": 7, "text": "x"}, ("7", "", "x", {}, None)),
        ({"id": 0, "text": "x"}, ("0", "", "x", {}, None)),
        ({"text": "x"}, ("rows:1", "", "x", {}, None)),
        ({"_id": "", "id": "b", "text": "x"}, ("b", "", "x", {}, None)),
        ({"id": None, "text": "x", "title": None, "vector": None, "metadata": None},
         ("rows:1", "", "x", {}, None)),
        ({"_id": "a", "id": 3, "text": "", "description": "x", "content": [1], "name": "n",
          "title": "T"}, ("a", "T", "x", {"id": 3, "content": [1], "name": "n"}, None)),
        ({"id": "a", "text": "x", "n": 1, "deep": {"k": [None]}, "metadata": {"n": 2, "m": 3}},
         ("a", "", "x", {"n": 2, "deep": {"k": [None]}, "m": 3}, None)),
        ({"id": "a", "text": "x", "vector": [1, -0.5, 2e-3]},
         ("a", "", "x", {}, (1.0, -0.5, 2e-3))),
        ({"id": "ש", "text": " \r\n\ttext\u2028 日本 🧪\0 "},
         ("ש", "", " \r\n\ttext\u2028 日本 🧪\0 ", {}, None)),
        ({"id": "a", "text": "x" * 1_000_000}, ("a", "", "x" * 1_000_000, {}, None)),
    ],
)  # fmt: skip
@pytest.mark.parametrize("ascii_only", [True, False])
def test_row_is_read(
    tmp_path: Path, row: object, expected: tuple[object, ...], ascii_only: bool
) -> None:
    path = write(tmp_path / "rows.jsonl", json.dumps(row, ensure_ascii=ascii_only))
    loaded = read_sources([path])
    (document,) = loaded.documents
    found = (document.id, document.title, document.text, document.metadata, document.vector)
    assert found == expected
    assert loaded.problems == ()


BROKEN_ROWS: list[tuple[str | bytes, str]] = [
    ("{", "not JSON: Expecting property name"),
    ('{"text": "a"} x', "not JSON: Extra data at column 15"),
    ("'text'", "not JSON"),
    ("[" * 100_000, "nested too deeply"),
    ("1" * 5_000, "too many digits"),
    ("[1]", "must be a JSON object, not a list"),
    ('"text"', "not a string"),
    ("null", "not null"),
    ("true", "not a boolean"),
    ("1", "not a number"),
    ("{}", "neither text nor title"),
    ('{"id": "x", "text": " ", "title": "\\t"}', "neither text nor title"),
    ('{"id": "x", "text": ["a"]}', "the text must be a string, not a list"),
    ('{"id": "x", "description": {}}', "the description must be a string, not an object"),
    ('{"id": "x", "text": "a", "title": 1}', "the title must be a string, not a number"),
    ('{"id": true, "text": "a"}', "the id must be a string, not a boolean"),
    ('{"id": 1.5, "text": "a"}', "the id must be a string, not a number"),
    ('{"text": "a", "metadata": [1]}', "the metadata must be an object, not a list"),
    ('{"text": "a", "vector": "1"}', "the vector must be a list of finite numbers"),
    ('{"text": "a", "vector": []}', "the vector must"),
    ('{"text": "a", "vector": [1, "2"]}', "the vector must"),
    ('{"text": "a", "vector": [true]}', "the vector must"),
    ('{"text": "a", "vector": [[1]]}', "the vector must"),
    ('{"text": "a", "vector": [1e999]}', "the vector must"),
    ('{"text": "a", "vector": [1' + "0" * 400 + "]}", "the vector must"),
    ('{"text": "a", "vector": [NaN]}', "NaN is not a JSON number"),
    ('{"text": "a", "vector": [-Infinity]}', "-Infinity is not a JSON number"),
    ('{"text": "a", "score": 1e999}', "number that is too large"),
    ('{"text": "\\ud800"}', "surrogate"),
    ('{"text": "a", "title": "\\udfff"}', "surrogate"),
    ('{"id": "\\ud800", "text": "a"}', "surrogate"),
    ('{"text": "a", "deep": {"k": ["\\ud800"]}}', "surrogate"),
    ('{"text": "a", "\\ud800": 1}', "surrogate"),
    (b'{"text": "\xff"}', "not UTF-8"),
    (b'{"text": "\xed\xa0\x80"}', "not UTF-8"),
]


@pytest.mark.parametrize(("row", "reason"), BROKEN_ROWS)
def test_a_broken_row_is_reported_with_its_line(
    tmp_path: Path, row: str | bytes, reason: str
) -> None:
    raw = row.encode() if isinstance(row, str) else row
    path = write(
        tmp_path / "rows.jsonl", b'{"id": "ok", "text": "t"}\n\n' + raw + b"\n" + ROW.encode()
    )
    loaded = read_sources([path])
    assert ids(loaded) == ["ok", "a"]
    (problem,) = loaded.problems
    assert (problem.path, problem.line) == (str(path), 3)
    assert reason in problem.reason


@pytest.mark.parametrize("ends", ["\n", "\r\n", "\n\n"])
@pytest.mark.parametrize("start", ["", "\ufeff"])
@pytest.mark.parametrize("last", ["", "end"])
def test_line_ends_and_byte_order_mark_are_accepted(
    tmp_path: Path, ends: str, start: str, last: str
) -> None:
    rows = start + '{"id": "a", "text": "x\u2028\x85"}' + ends + '{"id": "b", "text": "y"}'
    loaded = read_sources([write(tmp_path / "r.jsonl", rows + (ends if last else ""))])
    assert [(document.id, document.text) for document in loaded.documents] == [
        ("a", "x\u2028\x85"),
        ("b", "y"),
    ]
    assert loaded.problems == ()


def test_the_first_of_two_rows_with_one_id_wins(tmp_path: Path) -> None:
    write(tmp_path / "beir/corpus.jsonl", ROW + '{"_id": "b", "text": "two"}\n' + ROW)
    other = write(
        tmp_path / "other.jsonl", '{"id": "b", "text": "other"}\n{"id": "c", "text": "c"}'
    )
    loaded = read_sources([tmp_path / "beir", other])
    assert [(document.id, document.text) for document in loaded.documents] == [
        ("a", "one"), ("b", "two"), ("c", "c"),
    ]  # fmt: skip
    assert [text.replace(f"{tmp_path}/", "") for text in problems_of(loaded, tmp_path)] == [
        "beir/corpus.jsonl:3: the id 'a' is already at beir/corpus.jsonl:1",
        "other.jsonl:1: the id 'b' is already at beir/corpus.jsonl:2",
    ]


def test_loaded_values_are_immutable(tmp_path: Path) -> None:
    path = write(tmp_path / "r.jsonl", '{"id": "a", "text": "x", "vector": [1], "k": 1}')
    loaded = read_sources([path])
    with pytest.raises(AttributeError):
        loaded.documents[0].text = "y"  # type: ignore[misc]
    assert loaded.documents[0].vector == (1.0,)
    assert isinstance(loaded.problems, tuple)
    assert pickle.loads(pickle.dumps(loaded)) == loaded


# --- text -------------------------------------------------------------------------------------


def test_markdown_gives_a_document_per_section(tmp_path: Path) -> None:
    text = """\ufeff---\r
title: not read\r
---\r
before\r
\r
# Guide\r
hello\r
## Install\r
### On Linux\r
\r
run it\r
## Install\r
again\r
# Other\r
## C++ & `naïve` 日本\r
x\r
## 🎉\r
y\r
## Later\r
"""
    write(tmp_path / "docs/guide.md", text)
    loaded = read_sources([tmp_path])
    assert [
        (document.id, document.title, document.text, document.metadata["line"])
        for document in loaded.documents
    ] == [
        ("docs/guide.md", "Guide", "before", 4),
        ("docs/guide.md#guide", "Guide", "hello", 6),
        ("docs/guide.md#on-linux", "Guide > Install > On Linux", "run it", 9),
        ("docs/guide.md#install", "Guide > Install", "again", 12),
        ("docs/guide.md#c--naïve-日本", "Guide > Other > C++ & `naïve` 日本", "x", 15),
        ("docs/guide.md#2", "Guide > Other > 🎉", "y", 17),
    ]
    (skipped,) = loaded.problems
    assert (skipped.line, skipped.reason) == (
        19,
        "a heading, links or directives without text: not indexed",
    )
    assert loaded.documents[2].metadata == {
        "path": "docs/guide.md",
        "heading": "On Linux",
        "line": 9,
        "end_line": 11,
    }
    assert {one.metadata["path"] for one in loaded.documents} == {"docs/guide.md"}


@pytest.mark.parametrize(
    "stub",
    [
        "",
        "::: kiln.control",
        "::: kiln.control\n    options:\n      members: [Burner]",
        "- [Firing](firing.md)\n- [Glazes](glazes.md)",
        "1. <https://kiln.example/a>",
        ".. toctree::\n   :maxdepth: 2\n\n   firing\n   glazes",
        "![A kiln](kiln.png)\n<!-- draft -->",
        "{% include 'kiln.md' %}",
    ],
)
def test_stub_is_not_indexed_and_reported(tmp_path: Path, stub: str) -> None:
    write(tmp_path / "a.md", f"# Kiln\n{stub}\n# Glaze\nSee [the list](list.md).\n")
    loaded = read_sources([tmp_path])
    assert [one.title for one in loaded.documents] == ["Kiln > Glaze"]
    assert [problem.line for problem in loaded.problems] == [1]


@pytest.mark.parametrize("text", ["x", "日本", "::: a.b\n\nIt burns.", "| a |\n| - |\n| 1 |"])
def test_chunk_with_text_is_not_a_stub(tmp_path: Path, text: str) -> None:
    write(tmp_path / "a.md", f"# Kiln\n{text}\n")
    assert len(read_sources([tmp_path]).documents) == 1


def test_pieces_and_repeated_headings_are_numbered(tmp_path: Path) -> None:
    paragraph = "word " * 180
    body = f"{paragraph}\n\n{paragraph}\n\n"
    write(tmp_path / "a.md", f"## Use 2\n## Use\n{body}## Use\nmore\n## Use 2\nmore\n")
    write(tmp_path / "b.txt", f"{body}# end")
    loaded = read_sources([tmp_path])
    assert [(one.id, one.title, one.metadata["line"]) for one in loaded.documents] == [
        ("a.md#use", "a > Use", 2),
        ("a.md#use-2", "a > Use", 5),
        ("a.md#use-3", "a > Use", 7),
        ("a.md#use-2-2", "a > Use 2", 9),
        ("b.txt", "b", 1),
        ("b.txt#2", "b", 3),
    ]
    assert loaded.documents[0].text == paragraph.strip()
    assert loaded.documents[-1].text.endswith("word \n\n# end")


def test_files_of_the_same_name_in_two_folders_are_both_kept(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        write(tmp_path / folder / "README.md", f"# Start\nin {folder}")
    write(tmp_path / "r.jsonl", '{"id": "README.md#start", "text": "a row"}')
    loaded = read_sources([tmp_path / "one", tmp_path / "two/README.md"])
    assert [(document.id, document.text) for document in loaded.documents] == [
        ("README.md#start", "in one"), ("two/README.md#start", "in two"),
    ]  # fmt: skip
    loaded = read_sources([tmp_path / "r.jsonl", tmp_path / "one"])
    assert ids(loaded) == ["README.md#start", "README.md#start-2"]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"a\nb \0 c", "x.txt:2: binary, it has a NUL byte"),
        (b"a\n\n\xff", "x.txt:3: not UTF-8 text: save it as UTF-8"),
        ("text".encode("utf-16"), "x.txt:1: not UTF-8 text but UTF-16: save it as UTF-8"),
    ],
)
def test_file_that_is_not_text_is_reported(tmp_path: Path, content: bytes, reason: str) -> None:
    write(tmp_path / "x.txt", content)
    write(tmp_path / "y.txt", "text")
    write(tmp_path / "empty.txt", "\n \n")
    write(tmp_path / "empty.md", "\n#\n")
    loaded = read_sources([tmp_path])
    assert ids(loaded) == ["y.txt"]
    assert problems_of(loaded, tmp_path) == [reason]


@pytest.mark.parametrize(
    ("text", "headings"),
    [
        ("# A\n## B ##\n###### C #\n####### D\n#E\n", ["1A", "2B", "6C"]),
        ("   # A\n    # code\n\t# code\n#\tB\n# C#\n#\n", ["1A", "1B", "1C#", "1"]),
        ("A\n=\n\nB\n---\nC\n\n---\n", ["1A", "2B"]),
        ("two\nlines\n---\n- item\n---\n\n> quote\n---\n\n| a |\n---\n\n1. x\n---\n", []),
        ("    code\n---\n\n***\n---\n\nA\n--- x\n", []),
        ("# A\nB\n---\n```\n# no\n```\n# C\n", ["1A", "2B", "1C"]),
        ("~~~sh\n# no\n```\n~~\n~~~~ \n# A\n", ["1A"]),
        ("````\n```\n# no\n````\n# A\n", ["1A"]),
        ("```a`b\n# A\n", ["1A"]),
        ("- ```sh\n  # no\n  ```\n# A\n", ["1A"]),
        ("x\n```\n# no\n", []),
        ("A\n```\n---\n```\n", []),
        ("# " + "x" * 300 + "\n", []),
        # A traceback in the text, which once hid all headings below it.
        ("x\n\n      return 1 / n\n             ~~^~~\n    ~~~~~~~~~~\n    ```\n# A\n", ["1A"]),
        ("  ~~~~^^^^~~~\n# A\n", ["1A"]),
        # In a list item, the indent of a fence counts from the item's text.
        ("1. x\n\n       ```\n# A\n", ["1A"]),
        ("1. x\n\n    ```\n    # no\n# no\n    ```\n# A\n", ["1A"]),
        ("- 1. x\n\n      ```\n# no\n      ```\n# A\n", ["1A"]),
        ("- x\n\ny\n\n     ```\n# A\n", ["1A"]),
        ("\u2028# A\x0b# B\n", []),
        ("", []),
    ],
)
def test_headings_are_detected(text: str, headings: list[str]) -> None:
    found = sections(text)
    assert [f"{section.level}{section.heading}" for section in found if section.level] == headings
    assert "".join(section.head + section.body for section in found) == text
    assert all(section.level or section.body for section in found)


def test_every_heading_is_kept() -> None:
    assert [chunk.title for chunk in chunk_markdown("# A\n## \n## B\n### C\n", name="n")] == [
        "A", "A > B > C",
    ]  # fmt: skip


def test_old_line_ends_are_accepted(tmp_path: Path) -> None:
    write(tmp_path / "a.md", "# A\rone\r\rtwo")
    (document,) = read_sources([tmp_path]).documents
    assert (document.title, document.text) == ("A", "one\n\ntwo")


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("---\ntitle: x\n---\nbody", "body"),
        ("---\n# note\n\ntags:\n  - x\n---  \nbody", "body"),
        ("---\ntitle: x\nbody", "---\ntitle: x\nbody"),
        ("---\nA rule above.\n\n---\nbody", "---\nA rule above.\n\n---\nbody"),
        ("\n---\ntitle: x\n---\nbody", "---\ntitle: x\n---\nbody"),
    ],
)
def test_front_matter_of_markdown_is_left_out(text: str, first: str) -> None:
    (chunk,) = [chunk for chunk in chunk_markdown(text, name="n") if chunk.text != "body"] or [
        chunk for chunk in chunk_markdown(text, name="n")
    ]
    assert chunk.text == first


@pytest.mark.parametrize(
    ("text", "limit", "expected"),
    [
        ("", 10, []),
        ("short", 10, ["short"]),
        ("one\n\ntwo\n\nthree", 10, ["one\n\ntwo\n\n", "three"]),
        ("One. Two.\n\nThree. Four.", 18, ["One. Two.\n\n", "Three. Four."]),
        ("One is. Two is! Three", 12, ["One is. ", "Two is! ", "Three"]),
        ('He said "no." Then we left', 20, ['He said "no." ', "Then we left"]),
        ("aaaa bbbb\n\nc", 8, ["aaaa ", "bbbb\n\nc"]),
        ("one two three four", 10, ["one two ", "three four"]),
        ("- one two\n- three\n- four", 16, ["- one two\n", "- three\n- four"]),
        ("一二三。四五六。七八", 5, ["一二三。", "四五六。", "七八"]),
        ("v1.2.3 e.g.x", 8, ["v1.2.3 ", "e.g.x"]),
        ("abcdefghijkl", 5, ["abcde", "fghij", "kl"]),
        ("a\n\n```\nb\n\nc\n```\n", 14, ["a\n\n", "```\nb\n\nc\n```\n"]),
        ("```\nb. b\nc c\n```\n", 12, ["```\nb. b\n", "c c\n```\n"]),
    ],
)
def test_long_text_is_cut_at_boundaries(text: str, limit: int, expected: list[str]) -> None:
    assert pieces(text, limit) == expected


RFC = """\
Network Working Group                                         J. Doe

1.  Introduction

   A text.

1.1.  Terms

   1. An item.

   2. An item.

2.  Design

4.2.  Limits

   Of a section that is not here.

4.2.1.  Bytes

   Sixty-four.

3.  A number that falls is none

   Text.
"""
MANUAL = """\
LS(1)                            User Commands                           LS(1)

NAME
       ls - list directory contents

EXIT STATUS
       0      if OK,
"""
RST = """\
=====
Title
=====

.. note::

   Text
   ----

Usage
-----
Run it.

Options
~~~~~~~
Name   Value
------------
a      1
"""
ASCIIDOC = """\
= Title

== Usage
----
== no
----
=== Options ===
None.
"""
LISTED = "1. Install the package\n\n2. Run it\n\nName  Age\n---------\n\nTODO\nall\n"


@pytest.mark.parametrize(
    ("suffix", "text", "titles"),
    [
        (
            ".txt",
            RFC,
            [
                "n",
                "n > 1.  Introduction",
                "n > 1.  Introduction > 1.1.  Terms",
                "n > 2.  Design",
                "n > 4.2.  Limits",
                "n > 4.2.  Limits > 4.2.1.  Bytes",
            ],
        ),
        (".txt", MANUAL, ["n", "n > NAME", "n > EXIT STATUS"]),
        (".txt", "Title\n=====\n\nOne\n---\na\n\nTwo\n---\nb\n", ["Title > One", "Title > Two"]),
        (".txt", LISTED, ["n"]),
        (".rst", RST, ["Title", "Title > Usage", "Title > Usage > Options"]),
        (".adoc", ASCIIDOC, ["Title > Usage", "Title > Usage > Options"]),
        (
            ".adoc",
            "Title\n=====\n\nUse\n---\na\n\n----\n== no\n----\n\nEnd\n---\nb\n",
            ["Title > Use", "Title > End"],
        ),
    ],
    ids=["numbered", "manual", "underlined", "list", "rst", "asciidoc", "asciidoc underlined"],
)
def test_chunks_of_text_have_the_headings_of_its_format(
    suffix: str, text: str, titles: list[str]
) -> None:
    chunks = chunk_plain(text, name="n", suffix=suffix)
    assert [chunk.title for chunk in chunks] == titles
    lines = text.split("\n")
    assert all(chunk.heading in lines[chunk.line - 1 : chunk.line + 1] or not chunk.heading
               or chunk.heading in lines[chunk.line - 1] for chunk in chunks)  # fmt: skip


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "line",
    ["- " * 300_000, "= a" + " " * 300_000 + "b", "1.1 A" + " " * 300_000 + "b", "=" * 300_000],
)
def test_a_long_line_is_read_in_linear_time(line: str) -> None:
    text = f"{line}\n\n# A\n"
    assert sections(text)[-1].heading == "A"
    for suffix in (".txt", ".rst", ".adoc"):
        assert chunk_plain(text, name="n", suffix=suffix)


def test_each_part_of_a_table_has_its_header() -> None:
    header = "| Name | Limit |\n|------|------:|\n"
    rows = [f"| part {number} | {number} MB |" for number in range(60)]
    text = f"# Limits\n\n{header}" + "\n".join(rows) + "\n\nA text after it.\n"
    chunks = chunk_markdown(text, name="n", max_chars=400)
    assert len(chunks) > 3
    assert all(chunk.text.startswith(header) for chunk in chunks)
    assert [row for chunk in chunks for row in chunk.text.split("\n") if "part" in row] == rows
    second = chunks[1].text.split("\n")[2]
    assert text.split("\n")[chunks[1].line - 1] == second


def test_plain_text_has_no_fences_and_no_headings_of_markdown() -> None:
    text = "# a\n\n```\n\n" + "b " * 6 + "\n\nc"
    assert [chunk.text for chunk in chunk_plain(text, name="n", max_chars=13)] == [
        "# a\n\n```", "b b b b b b", "c",
    ]  # fmt: skip


MARKDOWN_LINES = st.lists(
    st.sampled_from(
        ["# A", "## B", "### ", "C", "===", "---", "```", "~~~~", "- ```", "    code", "", " ",
         "> q", "word " * 9, "One. Two! Three?", "x" * 50, "日本語。" * 12, "שלום", "👩‍👩‍👧",
         "key: v", "| a |"]
    ) | st.text(max_size=30),
    max_size=40,
).map("\n".join)  # fmt: skip


@given(MARKDOWN_LINES, st.integers(1, 80))
def test_splitting_keeps_all_text(text: str, limit: int) -> None:
    found = sections(text)
    assert "".join(section.head + section.body for section in found) == text
    for fences in (True, False):
        cut = pieces(text, limit, fences=fences)
        assert "".join(cut) == text
        assert all(0 < len(piece) <= limit for piece in cut)

    def solid(parts: list[str]) -> str:
        return re.sub(r"\s", "", "".join(parts))

    plain = chunk_plain(text, name="n", max_chars=limit)
    assert solid([chunk.text for chunk in plain]) == solid([text])
    without = text if not text.startswith("---") else f"\n{text}"  # no front matter
    chunks = chunk_markdown(without, name="n", max_chars=limit)
    assert solid([chunk.text for chunk in chunks]) == solid(
        [section.body for section in sections(without)]
    )
    titles = {step for chunk in chunks for step in chunk.title.split(" > ")}
    assert {
        section.heading for section in found if section.heading and " > " not in section.heading
    } <= titles
    lines = without.split("\n")
    for chunk in chunks:
        start = chunk.text.split("\n")[0].rstrip()
        assert start in lines[chunk.line - 1] or chunk.heading in lines[chunk.line - 1]


@given(
    st.lists(st.tuples(st.sampled_from(["```", "~~~"]), st.lists(
        st.sampled_from(["# a", "", "b. c d", "e " * 8, "--"]), max_size=6)), max_size=6),
    st.sampled_from(["", "\n", "\n\n\n", "text\n", "\n" + "text. " * 9 + "\n\n", "# H\n"]),
    st.integers(1, 70),
)  # fmt: skip
def test_fence_that_fits_is_not_cut(
    fences: list[tuple[str, list[str]]], between: str, limit: int
) -> None:
    blocks = [
        f"{mark}{number}\n" + "".join(f"{line}\n" for line in lines) + f"{mark}\n"
        for number, (mark, lines) in enumerate(fences)
    ]
    cut = pieces(between.join(blocks), limit)
    for block in blocks:
        assert len(block) > limit or any(block in piece for piece in cut)


# --- candidates -------------------------------------------------------------------------------


def test_candidates_are_read_from_json_lines() -> None:
    lines = [
        '\ufeff{"id": "a", "text": "x", "title": "T", "cosine": 0.5, "score": -3, "vector": [1]}\n',
        "\n",
        '"just text"\n',
        '{"_id": 9, "content": "y", "metadata": {"k": 1}, "page": 2, "cosine": null}',
        '{"text": "z", "cosine": 1.0000001}',
    ]
    one, two, three, four = read_candidates(iter(lines), name="c.jsonl")
    assert (one.id, one.text, one.title, one.cosine, one.score) == ("a", "x", "T", 0.5, -3.0)
    assert one.vector == [1]
    assert one.metadata == {}
    assert (two.id, two.text, two.cosine, two.score) == ("1", "just text", None, None)
    assert (three.id, three.text, three.cosine) == ("9", "y", None)
    assert three.metadata == {"k": 1, "page": 2}
    assert (four.id, four.cosine) == ("3", 1.0)


def test_candidates_are_read_from_a_json_array() -> None:
    text = json.dumps(["a", {"id": "x", "text": "b", "score": 2}], indent=1)
    found = read_candidates(["\n", *f"\ufeff{text}".splitlines(keepends=True)], name="c")
    assert [(one.id, one.text, one.score) for one in found] == [("0", "a", None), ("x", "b", 2.0)]
    (empty,) = read_candidates(['{"text": ""}'], name="c")
    assert empty.text == ""
    assert read_candidates(["[]"], name="c") == ()
    assert read_candidates([], name="c") == ()


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (["", "{"], "c:2: not JSON"),
        (['"a"', "NaN"], "c:2: NaN is not a JSON number"),
        (['"a"', "3"], "c:2 must be a string, a mapping"),
        (['"a"', '["b"]'], "c:2 must be a string, a mapping"),
        (['"\\ud800"'], "c:1: has a lone surrogate"),
        (['"\udcff"'], "c:1: has a lone surrogate"),
        (['{"id": "a"}'], "c:1 has no text"),
        (['{"text": "a", "cosine": 1.1}'], "cosine of c:1 is 1.1: it must"),
        (['{"text": "a", "score": 1e999}'], "the score of c:1 is inf"),
        (['{"text": "a", "vector": [1e999]}'], "c:1: a number that is too"),
        (['{"text": "a", "page": 1e999}'], "c:1: a number that is too"),
        (["[", '"a",', "]"], "c:3: not JSON"),
        (["", '["a", 1]'], "c: item 2 must be a string, a mapping"),
        (["[" * 100_000], "nested too deeply"),
    ],
)
def test_invalid_candidate_is_refused(lines: list[str], says: str) -> None:
    assert says in refused("malformed_candidate", read_candidates, lines, name="c")


# --- bodies and tools ------------------------------------------------------------------------


def test_text_after_the_front_matter_is_the_body(tmp_path: Path) -> None:
    head = "---\nname: pdf\ndescription: Forms.\n---\n"
    path = write(tmp_path / "SKILL.md", f"{head}\n# Use\n\nRun it.\n\n")
    (document,) = read_sources([path]).documents
    assert (document.text, document.body) == ("Forms.", "# Use\n\nRun it.")
    write(path, head)
    assert read_sources([path]).documents[0].body == ""


def test_a_row_may_have_a_body(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.jsonl", '{"_id": "a", "text": "one", "body": "long"}\n')
    assert read_sources([path]).documents[0].body == "long"
    loaded = read_candidates(['{"text": "one", "body": "long"}'], name="stdin")
    assert loaded[0].body == "long"
    with pytest.raises(InputError, match="the body of stdin:1 must be a string"):
        read_candidates(['{"text": "one", "body": ["long"]}'], name="stdin")


MCP = {
    "name": "issue_update",
    "title": "Update an issue",
    "description": "Changes an issue.",
    "inputSchema": {
        "type": "object",
        "$defs": {"Person": {"properties": {"login": {"description": "Who"}}}},
        "properties": {
            "state": {"type": "string", "description": "New state", "enum": ["open", "closed"]},
            "labels": {"type": "array", "items": {"type": "string", "description": "A label"}},
            "due": {"anyOf": [{"type": "string", "description": "A day"}, {"type": "null"}]},
            "assignee": {"$ref": "#/$defs/Person"},
            "kind": {"const": "bug"},
            "fields": {"type": "object", "properties": {"estimate": {"type": "number"}}},
        },
    },
}
BODY = """Update an issue
state: New state (open, closed)
labels: A label
due: A day
assignee
assignee.login: Who
kind (bug)
fields
fields.estimate"""
SCHEMA = MCP["inputSchema"]
BARE = {"name": "issue_update", "title": "Update an issue", "description": "Changes an issue."}
FUNCTION = {**BARE, "parameters": SCHEMA}


@pytest.mark.parametrize(
    "content",
    [
        {"tools": [MCP]},
        {"jsonrpc": "2.0", "id": 1, "result": {"tools": [MCP]}},
        [MCP],
        [{**BARE, "input_schema": SCHEMA}],
        [{"type": "function", "function": FUNCTION}],
        [{"type": "function", **FUNCTION}],
        {"toolConfig": {"tools": [{"toolSpec": {**BARE, "inputSchema": {"json": SCHEMA}}}]}},
        [{"toolSpec": {**BARE, "inputSchema": {"json": SCHEMA}}}],
        {"tools": [{"functionDeclarations": [FUNCTION]}, {"googleSearch": {}}]},
        {"functionDeclarations": [{**BARE, "parametersJsonSchema": SCHEMA}]},
        [{"function_declarations": [{**BARE, "parameters_json_schema": SCHEMA}]}],
    ],
    ids=[
        *("mcp", "answer of a server", "list", "anthropic", "openai chat", "openai responses"),
        *("bedrock", "bedrock's list", "gemini", "gemini's tool", "gemini in python"),
    ],
)
def test_a_tool_is_a_document(tmp_path: Path, content: object) -> None:
    path = write(tmp_path / "tools.json", json.dumps(content))
    (document,) = read_sources([path]).documents
    assert (document.id, document.title, document.text) == (
        "issue_update",
        "issue_update",
        "Changes an issue.",
    )
    assert document.body == BODY


@pytest.mark.parametrize(
    ("tool", "reason"),
    [
        (3, "must be a JSON object"),
        ({"description": "x"}, "without a name"),
        ({"name": " "}, "without a name"),
        ({"name": ["a"]}, "the name of a tool must be a string"),
        ({"name": "b", "description": 5}, "the description of a tool must be a string"),
        ({"name": "b", "description": "\ud800"}, "surrogate"),
        ({"name": "good"}, "the name 'good' is already in"),
    ],
)
def test_a_broken_tool_is_reported_and_the_others_read(
    tmp_path: Path, tool: object, reason: str
) -> None:
    path = write(tmp_path / "tools.json", json.dumps([{"name": "good"}, tool]))
    loaded = read_sources([path])
    assert ids(loaded) == ["good"]
    (problem,) = problems_of(loaded, tmp_path)
    assert problem.startswith("tools.json: tool 2: ")
    assert reason in problem


PETS: dict[str, object] = {
    "openapi": "3.1.0",
    "paths": {
        "x-internal": {"get": {"operationId": "hidden"}},
        "/empty": {},
        "/pets": {
            "parameters": [
                {"$ref": "#/components/parameters/Shop"},
                {"name": "limit", "in": "query", "description": "of the path"},
            ],
            "get": {
                "operationId": "listPets",
                "summary": "List pets",
                "description": "Newest first.",
                "parameters": [
                    {
                        "name": "limit",
                        "in": "query",
                        "description": "How many",
                        "schema": {"enum": [10, 100]},
                    }
                ],
            },
            "post": {"summary": "Add a pet", "requestBody": {"$ref": "#/components/bodies/a~1b"}},
        },
        "/again": {"$ref": "#/components/pathItems/Again"},
    },
    "webhooks": {"sold": {"post": {"operationId": "sold"}}},
    "components": {
        "parameters": {
            "Shop": {
                "name": "shop",
                "in": "header",
                "content": {"text/plain": {"schema": {"description": "Which shop"}}},
            }
        },
        "pathItems": {"Again": {"delete": {"summary": "Away"}}},
        "bodies": {
            "a/b": {
                "content": {
                    "text/csv": {"schema": {"properties": {"column": {}}}},
                    "application/json": {"schema": {"$ref": "#/components/schemas/Pet"}},
                }
            }
        },
        "schemas": {
            "Pet": {
                "properties": {
                    "name": {"description": "What it is called"},
                    "parent": {"$ref": "#/components/schemas/Kind"},
                }
            },
            "Kind": {"enum": ["cat", "dog"]},
        },
    },
}


def test_each_operation_of_an_openapi_document_is_a_document(tmp_path: Path) -> None:
    loaded = read_sources([write(tmp_path / "pets.json", json.dumps(PETS))])
    assert [
        (document.id, document.title, document.text, document.body) for document in loaded.documents
    ] == [
        (
            "listPets",
            "listPets",
            "List pets\n\nNewest first.",
            "GET /pets\nshop: Which shop\nlimit: How many (10, 100)",
        ),
        (
            "POST /pets",
            "POST /pets",
            "Add a pet",
            "shop: Which shop\nlimit: of the path\nname: What it is called\nparent (cat, dog)",
        ),
        ("DELETE /again", "DELETE /again", "Away", ""),
    ]
    assert loaded.problems == ()


def test_a_broken_operation_is_reported_and_the_others_read(tmp_path: Path) -> None:
    paths = {
        "/a": {"get": 5, "put": {"operationId": 6}, "post": {"operationId": "same"}},
        "/b": {"get": {"operationId": "same"}, "put": {"parameters": [7, {"$ref": 8}]}},
        "/c": [],
        "/d": {"$ref": "#/paths/~1d"},
        "/e\n\ud800": {"get": {}},
    }
    path = write(tmp_path / "a.json", json.dumps({"openapi": "3.0.3", "paths": paths}))
    loaded = read_sources([path])
    assert ids(loaded) == ["same", "PUT /b"]
    assert problems_of(loaded, tmp_path) == [
        "a.json: GET /a: a tool must be a JSON object",
        "a.json: PUT /a: the name of a tool must be a string",
        "a.json: GET /b: the name 'same' is already in a.json",
        "a.json: /c: a tool must be a JSON object",
        "a.json: /d: a tool must be a JSON object",
        "a.json: 'GET /e\\n\\ud800': has a lone surrogate, half of an escaped character",
    ]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ({"swagger": "1.2", "paths": {}}, "OpenAPI '1.2' is not read: convert the document"),
        ({"openapi": 2, "paths": {}}, "OpenAPI 2 is not read"),
        ({"openapi": ["3.0.0"], "paths": {}}, "OpenAPI ['3.0.0'] is not read"),
        ({"openapi": "4.0.0", "paths": {}}, "OpenAPI '4.0.0' is not read"),
        ({"openapi": "3.0.0", "paths": []}, 'expected an object "paths"'),
    ],
)
def test_unsupported_openapi_document_is_refused(
    tmp_path: Path, content: object, reason: str
) -> None:
    with pytest.raises(SourceError, match=re.escape(reason)) as caught:
        read_sources([write(tmp_path / "a.json", json.dumps(content))])
    assert caught.value.code == "no_documents"


def test_operations_of_swagger_2_are_documents(tmp_path: Path) -> None:
    document = {
        "swagger": "2.0",
        "paths": {
            "/pets": {
                "parameters": [{"$ref": "#/parameters/Shop"}],
                "post": {
                    "operationId": "addPet",
                    "summary": "Add a pet",
                    "parameters": [
                        {"name": "kind", "in": "query", "type": "string", "enum": ["cat", "dog"]},
                        {
                            "name": "tags",
                            "in": "formData",
                            "type": "array",
                            "description": "Its tags",
                            "items": {"type": "string", "enum": ["new", "old"]},
                        },
                        {"name": "pet", "in": "body", "schema": {"$ref": "#/definitions/Pet"}},
                    ],
                },
            }
        },
        "parameters": {"Shop": {"name": "shop", "in": "header", "description": "Which shop"}},
        "definitions": {
            "Pet": {
                "properties": {
                    "name": {"description": "What it is called"},
                    "owner": {"$ref": "#/definitions/Owner"},
                }
            },
            "Owner": {"properties": {"street": {}}},
        },
    }
    (tool,) = read_sources([write(tmp_path / "pets.json", json.dumps(document))]).documents
    assert (tool.id, tool.text) == ("addPet", "Add a pet")
    assert tool.body.split("\n") == [
        "POST /pets",
        "shop: Which shop",
        "kind (cat, dog)",
        "tags: Its tags (new, old)",
        "name: What it is called",
        "owner",
        "owner.street",
    ]


@pytest.mark.parametrize(
    ("annotations", "metadata"),
    [
        ({"readOnlyHint": True, "title": "x"}, {"read_only": True}),
        (
            {"readOnlyHint": False, "destructiveHint": True},
            {"read_only": False, "destructive": True},
        ),
        ({"readOnlyHint": "yes", "destructiveHint": [1]}, {}),
        (["readOnlyHint"], {}),
        (None, {}),
    ],
)
def test_hints_of_a_tool_are_metadata(annotations: object, metadata: dict[str, bool]) -> None:
    assert tool_from({"name": "a", "annotations": annotations}).metadata == metadata


def test_openapi_version_may_be_unquoted(tmp_path: Path) -> None:
    document = {"openapi": 3.1, "paths": {"/a": {"get": {}}}}
    assert ids(read_sources([write(tmp_path / "a.json", json.dumps(document))])) == ["GET /a"]


def test_tools_of_the_same_name_in_several_files_are_kept(tmp_path: Path) -> None:
    first = write(tmp_path / "issues.json", json.dumps([{"name": "search"}]))
    second = write(tmp_path / "mail.json", json.dumps([{"name": "search"}, {"name": "search"}]))
    third = write(tmp_path / "x" / "mail.json", json.dumps([{"name": "search"}]))
    loaded = read_sources([first, second, third])
    assert ids(loaded) == ["search", "search (mail)", "search (mail)-2"]
    assert {document.title for document in loaded.documents} == {"search"}
    assert [problem.renamed for problem in loaded.problems] == [True, False, True]
    taken = "the name 'search' is taken by issues.json, so its id is"
    assert problems_of(loaded, tmp_path) == [
        f"mail.json: tool 1: {taken} 'search (mail)'",
        "mail.json: tool 2: the name 'search' is already in mail.json",
        f"{os.path.join('x', 'mail.json')}: tool 1: {taken} 'search (mail)-2'",
    ]


def test_index_does_not_call_renamed_tools_skipped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = [
        write(tmp_path / name, json.dumps([{"name": "search"}, {"name": " "}]))
        for name in ("issues.json", "mail.json")
    ]
    options = ["--embedder", "none", "-o", str(tmp_path / "tools.cgx")]
    assert run(["index", *map(str, paths), *options]) == 0
    shown = capsys.readouterr()
    assert "2 documents, 2 skipped, " in shown.out
    firsts = [line.split()[1] for line in shown.err.splitlines()]
    assert firsts == ["skipped", "renamed", "skipped", "without"]
    assert run(["index", *map(str, paths), *options, "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert (values["skipped"], values["renamed"]) == (2, 1)


def test_file_without_tools_is_refused(tmp_path: Path) -> None:
    for content in ("{}", '{"tools": {}}', "5", "[", '{"result": {}}'):
        refused("no_documents", read_sources, [write(tmp_path / "tools.json", content)])


def test_recursive_schema_is_read() -> None:
    itself = {"$ref": "#/$defs/A"}
    loop = {"$defs": {"A": {"properties": {"x": itself, "y": itself}}}}
    tool = tool_from({"name": "a", "inputSchema": {**loop, **itself}})
    assert 0 < tool.body.count("\n") < 500
    refs = [itself] * 9_000
    hostile = {"$defs": {"A": {"anyOf": refs}}, "anyOf": refs}
    assert tool_from({"name": "a", "inputSchema": hostile}).body == ""


def test_shared_schema_is_not_expanded_per_operation(tmp_path: Path) -> None:
    """With the schema copied to each operation, the bodies of this 600 kB file would be 200 MB."""
    said = {"description": "d" * 1_000, "enum": ["v" * 1_000] * 3}
    schema = {"properties": {f"p{number}": said for number in range(100)}}
    body = {"content": {"application/json": {"schema": schema}}}
    shared = {"requestBody": {"$ref": "#/components/body"}}
    path = tmp_path / "api.json"
    document = {
        "openapi": "3.0.0",
        "paths": {f"/{number}": {"get": shared} for number in range(500)},
        "components": {"body": body, "far": {"$ref": "#/" + "x/" * 3_000_000}},
    }
    path.write_text(json.dumps(document))
    documents = read_sources([path]).documents
    assert len(documents) == 500
    assert all(5_000 < len(document.body) <= 6_000 for document in documents)


def test_operations_beyond_the_limit_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tools_module, "_OPERATIONS", 3)
    path = tmp_path / "api.json"
    paths = {f"/{number}": {"get": {"summary": "x"}} for number in range(9)}
    path.write_text(json.dumps({"openapi": "3.0.0", "paths": paths}))
    loaded = read_sources([path])
    assert len(loaded.documents) == 3
    assert "more than 3 operations" in str(loaded.problems[0])
