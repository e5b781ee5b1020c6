"""Documents from skill folders, BEIR folders, JSON lines, tools, OpenAPI, Markdown and text.

Input that cannot be used is skipped and returned as a `Problem`. Only a path that is missing,
unreadable or of an unknown kind raises, and so does a call that finds no documents.
"""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from crossgate._sources.common import Unusable, decoded, place_of, printable
from crossgate._sources.markdown import ASCIIDOC, chunk_markdown, chunk_plain, is_stub
from crossgate._sources.rows import document_from, parse_json
from crossgate._sources.skill_files import (
    description_of,
    document_of_entry,
    front_matter,
    is_manual,
    may_be_suggested,
    text_of,
    texts_of,
    triggers_of,
)
from crossgate._sources.tools import is_openapi, operations_of, tool_from, tools_of
from crossgate._sources.yaml_documents import parse_yaml
from crossgate._support.errors import SourceError
from crossgate._support.files import EXAMPLES, POLICY, lines_of, open_source, read_source
from crossgate._support.limits import ROW_BYTES, ROWS, ROWS_BYTES, SKILL_BYTES, TEXT_BYTES
from crossgate._values.results import Document

if TYPE_CHECKING:
    from crossgate._sources.examples import Example

Kind = Literal["auto", "skills", "beir", "jsonl", "tools", "text"]

_SKILL = "SKILL.md"
_CORPUS = "corpus.jsonl"
_JSON_LINES = (".jsonl", ".ndjson")
_YAML = (".yaml", ".yml")
_TOOLS = (".json", *_YAML)
_MARKDOWN = (".md", ".markdown")
_TEXT = (*_MARKDOWN, ".txt", ".rst", *ASCIIDOC)
_SUFFIXES = {"text": _TEXT, "jsonl": _JSON_LINES, "tools": _TOOLS}
_ACCEPTED = (
    f"a folder with {_SKILL} files, a BEIR folder ({_CORPUS}), a {' or '.join(_JSON_LINES)} file, "
    f"a {', '.join(_TOOLS)} file with tools, OpenAPI 3 or Swagger 2.0, "
    f"a {', '.join(_TEXT)} file or a folder of these"
)

_FOLDER_DEPTH = 12
_PACKAGES = "node_modules"
_KEPT = ("license", "licence", "tags")


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Something that was skipped or renamed, and why.

    Attributes:
        path: The path as the user gave it, followed by the path below it.
        line: 1-based line, or None if the whole file or folder is meant.
        reason: One line for a person to read.
        renamed: Whether the document is there, by another id.
    """

    path: str
    line: int | None
    reason: str
    renamed: bool = False

    def __str__(self) -> str:
        """Return `path:line: reason`."""
        return f"{place_of(self.path, self.line)}: {self.reason}"


class SourceLocation(NamedTuple):
    """File and 1-based line of a document; no line if the document is the whole file."""

    path: str
    line: int | None = None

    def __str__(self) -> str:
        """Return `path:line`."""
        return place_of(printable(self.path), self.line)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """The documents of the sources.

    Attributes:
        documents: The documents in the order of the paths, and below a path in that of the names.
        problems: Files and rows that cannot be used or were renamed, in the same order.
        left_out: Files below another skill, which are left out on purpose and no errors.
        places: File and line of each document, by its id.
    """

    documents: tuple[Document, ...]
    problems: tuple[Problem, ...]
    left_out: tuple[Problem, ...] = ()
    places: Mapping[str, SourceLocation] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Served:
    """The name of an MCP server, its tools, and the entries of its skills."""

    name: str
    tools: Sequence[object]
    skills: Sequence[object] = ()


def read_sources(
    paths: Sequence[str | os.PathLike[str]],
    *,
    kind: Kind = "auto",
    servers: Iterable[Served] = (),
) -> Loaded:
    """Read documents from files and folders.

    Folders are read recursively. Hidden entries and `node_modules` are left out unless named in
    `paths`. A symbolic link below a folder is followed only if it stays in that folder, and
    otherwise reported. A file that is reached twice is read once. Files above the limits of
    `_support.limits` are skipped and reported.

    Ids: a row has its own, and of two rows with the same id the first wins; a row without an id
    gets `file stem:line`. The id of a skill is its name. A second skill of the same name gets
    `name (folder)`, so that the first in the order of the paths keeps its name, and an exact copy
    is left out; both are reported. The id of a tool is its name too, or `name (file stem)` if a
    tool of another file has that name, which is reported. An operation of an OpenAPI document has
    its `operationId`, or else `GET /path`. A chunk of text has `path#heading`, with a number if
    that is taken.

    The body of a skill is the text after the front matter, that of a tool its parameters, and that
    of a row its field `body`. A chunk of text has no body: it is short enough to be read whole.

    Args:
        paths: Files and folders; a single string is one path.
        kind: The kind of all paths; `auto` detects it for each: by the suffix of a file; a folder
            is BEIR if it has a `corpus.jsonl`, skills if there is a SKILL.md anywhere below, else
            the first of text, JSON lines and tools that it has files of.
        servers: MCP servers with their tools and skills; they come after the paths, and a server's
            name is used as the name of a file would be.

    Raises:
        SourceError: `source_missing`, `source_unreadable` or `source_unknown` for a path, and
            `no_documents` if nothing usable was found in any of them.
    """
    if kind not in get_args(Kind):
        expected = ", ".join(get_args(Kind))
        raise SourceError("source_unknown", f"unknown kind {kind!r}; accepted: {expected}")
    roots = [os.fspath(path) for path in ([paths] if isinstance(paths, str) else paths)]
    reader = _Reader()
    for root in roots:
        reader.read(root, kind)
    for server in servers:
        reader.add_tools(server.name, server.name, server.tools)
        reader.add_skills(server.name, server.skills)
        roots.append(server.name)
    if not reader.documents:
        message = f"no documents in {', '.join(map(printable, roots)) or 'an empty list of paths'}"
        if reader.problems:
            message += f", {len(reader.problems)} skipped, the first: {reader.problems[0]}"
        if reader.left_out:
            message += f", {len(reader.left_out)} left out, the first: {reader.left_out[0]}"
        raise SourceError("no_documents", f"{message}; looked for {_ACCEPTED}")
    return Loaded(
        documents=tuple(reader.documents),
        problems=tuple(reader.problems),
        left_out=tuple(reader.left_out),
        places=reader.places,
    )


def skill_files(paths: Iterable[str | os.PathLike[str]]) -> list[str]:
    """Return every SKILL.md in folders, also those that `read_sources` leaves out.

    Links are not followed.
    """
    files: list[str] = []
    for path in [os.fspath(path) for path in paths]:
        if os.path.basename(path) == _SKILL and os.path.isfile(path):
            files.append(path)
        for folder, _, names in os.walk(path):
            files += [os.path.join(folder, name) for name in names if name == _SKILL]
    return sorted(files)


class _Reader:
    """Collects documents, problems and places over all paths."""

    def __init__(self) -> None:
        self.documents: list[Document] = []
        self.problems: list[Problem] = []
        self.left_out: list[Problem] = []
        self.places: dict[str, SourceLocation] = {}
        self._numbers: dict[str, int] = {}
        self._skills: dict[tuple[str, str], str] = {}
        self._files: set[str] = set()
        self._names: set[str] = set()

    def read(self, root: str, kind: Kind) -> None:
        """Read one path that the user gave."""
        if not os.path.exists(root):
            raise SourceError("source_missing", f"no such file or folder: {printable(root)}")
        if not os.path.isdir(root):
            kind = _kind_of_file(root) if kind == "auto" else kind
            self._read_file(kind, *os.path.split(root), named=True)
            return
        has_corpus = os.path.exists(os.path.join(root, _CORPUS))
        if kind == "beir" and not has_corpus:
            message = f"not a BEIR folder, it has no {_CORPUS}: {printable(root)}"
            raise SourceError("source_missing", message)
        if kind == "beir" or (kind == "auto" and has_corpus):
            corpus = os.path.join(root, _CORPUS)
            if not _is_below(corpus, os.path.join(os.path.realpath(root), "")):
                message = (
                    f"{printable(corpus)} is a link out of the folder: name its target as a path"
                )
                raise SourceError("source_unreadable", message)
            self._read_file("beir", root, _CORPUS, named=True)
            return
        files = self._walk(root)
        skills = [file for file in files if os.path.basename(file) == _SKILL]
        if kind == "auto":
            kind = "skills" if skills else _kind_of_folder(files)
        if kind == "skills":
            self._read_skills(root, files, skills)
            return
        for file in files:
            if _suffix(file) in _SUFFIXES[kind]:
                self._read_file(kind, root, file)

    def _read_skills(self, root: str, files: Sequence[str], skills: Sequence[str]) -> None:
        """Read the skills of a folder, and report files that are named almost like a skill's."""
        listed = set(skills)
        folders = {PurePath(file).parent for file in skills}
        for file in files:
            if file in listed:
                outer = _outer_skill(file, folders)
                if outer is None:
                    self._read_file("skills", root, file)
                else:
                    reason = f"a file of the skill in {_portable(str(outer))}"
                    self._leave_out(os.path.join(root, file), reason)
                continue
            named_alike = os.path.basename(file).lower() == _SKILL.lower()
            # Below a skill, it is one of that skill's own files.
            if named_alike and folders.isdisjoint(PurePath(file).parents):
                reason = f"not read: the file of a skill must be called {_SKILL}"
                self._report(os.path.join(root, file), None, reason)

    def _walk(self, root: str) -> list[str]:
        """Return the paths of all files below a folder, relative to it, sorted by their parts.

        Links to folders are followed after the folders themselves, so that a file is listed under
        its real path if that is below `root`.
        """
        files: list[str] = []
        seen: set[str] = set()
        pending = deque([("", 0)])
        inside = os.path.join(os.path.realpath(root), "")
        while pending:
            below, depth = pending.popleft()
            folder = os.path.join(root, below)
            real = os.path.realpath(folder)
            if real in seen:
                continue
            seen.add(real)
            if depth > _FOLDER_DEPTH:
                self._report(folder, None, f"more than {_FOLDER_DEPTH} folders deep, not read")
                continue
            try:
                names = os.listdir(folder)
            except OSError as error:
                if not below:
                    message = f"{printable(root)} cannot be read: {error.strerror}"
                    raise SourceError("source_unreadable", message) from error
                self._report(folder, None, f"cannot be read: {error.strerror}")
                continue
            for name in sorted(names):
                path, inner = os.path.join(folder, name), os.path.join(below, name)
                if name.startswith(".") or name == _PACKAGES:
                    continue
                if os.path.islink(path) and not _is_below(path, inside):
                    if os.path.isdir(path) or _suffix(path) in (*_TEXT, *_JSON_LINES):
                        reason = "a link out of the folder, not followed: name its target as a path"
                        self._report(path, None, reason)
                    continue
                if os.path.isdir(path):
                    add = pending.append if os.path.islink(path) else pending.appendleft
                    add((inner, depth + 1))
                elif os.path.isfile(path) or not os.path.exists(path):
                    files.append(inner)  # also a broken link, since opening it gives the error
        return sorted(files, key=lambda path: path.split(os.sep))

    def _read_file(self, kind: Kind, root: str, below: str, *, named: bool = False) -> None:
        """Read the file `below` a folder; a file that the user `named` must be readable."""
        path = os.path.join(root, below)
        real = os.path.realpath(path)
        if real in self._files:
            return
        self._files.add(real)
        try:
            if kind == "skills":
                self._read_skill(path, root, below)
            elif kind == "text":
                self._read_text(path, root, below)
            elif kind == "tools":
                self._read_tools(path)
            else:
                self._read_rows(path)
        except Unusable as error:
            self._report(path, error.line, str(error))
        except OSError as error:
            if named:
                message = f"{printable(path)} cannot be read: {error.strerror}"
                raise SourceError("source_unreadable", message) from error
            self._report(path, None, f"cannot be read: {error.strerror}")

    def _read_skill(self, path: str, root: str, below: str) -> None:
        """Add the skill of one SKILL.md."""
        values, body = front_matter(decoded(read_source(path, SKILL_BYTES)))
        text = description_of(values)
        folder = _portable(os.path.dirname(below)) or _folder_name(root)
        name = text_of(values, "name") or os.path.basename(folder) or _SKILL
        # Together they give the file's path, whatever the current folder is.
        metadata: dict[str, Any] = {
            "root": printable(os.path.abspath(root)),
            "path": _portable(below),
        }
        for key in _KEPT:
            if value := text_of(values, key) or texts_of(values, key):
                metadata[key] = value
        if is_manual(values) or self._is_reserved(os.path.dirname(path)):
            metadata["implicit"] = False
        place = printable(path)
        first = self._skills.setdefault((name, text), place)
        if first != place:
            raise Unusable(f"left out, it has the name and description of {first}")
        examples = self._examples(os.path.dirname(path))
        document = Document(
            id=name,
            text=text,
            title=name,
            body=body,
            metadata=metadata,
            triggers=triggers_of(values),
            examples=tuple(example.prompt for example in examples if example.fits),
            counterexamples=tuple(example.prompt for example in examples if not example.fits),
        )
        self._add(document, SourceLocation(path), other=f"{name} ({folder})")

    def _is_reserved(self, folder: str) -> bool:
        """Return whether Codex uses a skill only if a person names it."""
        path = os.path.join(folder, POLICY)
        try:
            return not may_be_suggested(decoded(read_source(path, SKILL_BYTES)))
        except (FileNotFoundError, NotADirectoryError):
            pass
        except OSError as error:
            self._report(path, None, f"cannot be read: {error.strerror}")
        except Unusable as error:
            self._report(path, error.line, str(error))
        return False

    def _examples(self, folder: str) -> list[Example]:
        """Return the examples in the folder of a skill, and report broken lines."""
        from crossgate._sources.examples import Example, examples_of_skill

        path, examples = os.path.join(folder, EXAMPLES), []
        try:
            for example in examples_of_skill(folder):
                if isinstance(example, Example):
                    examples.append(example)
                else:
                    self._report(path, example.line, str(example))
        except Unusable as error:
            self._report(path, error.line, str(error))
        return examples

    def _read_text(self, path: str, root: str, below: str) -> None:
        """Add the chunks of one Markdown or plain-text file."""
        text = decoded(read_source(path, TEXT_BYTES))
        if "\0" in text:
            raise Unusable("binary, it has a NUL byte", text.count("\n", 0, text.index("\0")) + 1)
        # Two folders may both have a README.md: the second one is prefixed with its folder's name.
        name = _portable(below)
        if name in self._names:
            name = f"{_folder_name(root)}/{name}"
        self._names.add(name)
        stem, suffix = os.path.splitext(os.path.basename(name))
        if suffix.lower() in _MARKDOWN:
            pieces = chunk_markdown(text, name=stem)
        else:
            pieces = chunk_plain(text, name=stem, suffix=suffix.lower())
        for piece in pieces:
            if is_stub(piece.text):
                stub = "a heading, links or directives without text: not indexed"
                self._report(path, piece.line, stub)
                continue
            slug = re.sub(r"[^\w\- ]", "", piece.heading.lower()).strip().replace(" ", "-")
            unique = self._unique(f"{name}#{slug}", "-") if slug else self._unique(name, "#")
            metadata = {
                "path": _portable(below),
                "heading": piece.heading,
                "line": piece.line,
                "end_line": piece.end_line,
            }
            document = Document(id=unique, text=piece.text, title=piece.title, metadata=metadata)
            self._add(document, SourceLocation(path, piece.line))

    def _read_tools(self, path: str) -> None:
        """Add the tools of one file, or the operations of an OpenAPI document.

        Two servers may both have a `search`: the file's name is added to the second one.
        """
        parse = parse_yaml if _suffix(path) in _YAML else parse_json
        value = parse(decoded(read_source(path, TEXT_BYTES)))
        stem = printable(os.path.splitext(os.path.basename(path))[0])
        if isinstance(value, dict) and is_openapi(value):
            self._add_named(path, stem, operations_of(value))
        else:
            self.add_tools(path, stem, tools_of(value))

    def add_tools(self, path: str, stem: str, tools: Sequence[object]) -> None:
        """Add the tools of a file or server."""
        named = ((f"tool {number}", tool) for number, tool in enumerate(tools, 1))
        self._add_named(path, stem, named)

    def add_skills(self, server: str, entries: Sequence[object]) -> None:
        """Add the skills of a server by their entries alone, since hosts read files when needed."""
        for number, entry in enumerate(entries, 1):
            try:
                document = document_of_entry(entry, server)
                other = f"{document.id} ({server})"
                self._add(document, SourceLocation(server), other=other, label=f"skill {number}: ")
            except Unusable as error:
                self._report(server, None, f"skill {number}: {error}")

    def _add_named(self, path: str, stem: str, tools: Iterable[tuple[str, object]]) -> None:
        """Add tools, each with a label for reports."""
        own: set[str] = set()
        for label, tool in tools:
            try:
                document = tool_from(tool)
                name = document.id
                if name in own:
                    raise Unusable(f"the name {name!r} is already in {SourceLocation(path)}")
                own.add(name)
                place = SourceLocation(path)
                self._add(document, place, other=f"{name} ({stem})", label=f"{label}: ")
            except Unusable as error:
                self._report(path, None, f"{label}: {error}")

    def _read_rows(self, path: str) -> None:
        """Add the documents of one file of JSON lines."""
        stem = printable(os.path.splitext(os.path.basename(path))[0])
        with open_source(path, ROWS_BYTES) as file:
            for number, raw in lines_of(file, ROW_BYTES):
                if number > ROWS:
                    self._report(path, number, f"more than {ROWS:,} rows, the rest is not read")
                    break
                try:
                    if raw is None:
                        raise Unusable(f"a row longer than {ROW_BYTES:,} bytes")
                    line = decoded(raw)
                    if line.strip():
                        document = document_from(parse_json(line), f"{stem}:{number}")
                        self._add(document, SourceLocation(path, number))
                except Unusable as error:
                    self._report(path, number, str(error))

    def _add(
        self, document: Document, place: SourceLocation, *, other: str = "", label: str = ""
    ) -> None:
        """Add a document; one whose id is taken gets the `other` id, which is reported.

        Raises:
            Unusable: If the id is taken and there is no other.
        """
        first = self.places.get(document.id)
        if first is not None and not other:
            raise Unusable(f"the id {document.id!r} is already at {first}")
        if first is not None:
            unique = self._unique(other)
            reason = f"the name {document.id!r} is taken by {first}, so its id is {unique!r}"
            self._report(place.path, None, label + reason, renamed=True)
            document = replace(document, id=unique)
        self.places[document.id] = place
        self.documents.append(document)

    def _report(self, path: str, line: int | None, reason: str, *, renamed: bool = False) -> None:
        problem = Problem(path=printable(path), line=line, reason=reason, renamed=renamed)
        self.problems.append(problem)

    def _leave_out(self, path: str, reason: str) -> None:
        self.left_out.append(Problem(path=printable(path), line=None, reason=reason))

    def _unique(self, plain: str, separator: str = "-") -> str:
        """Return a free id: `plain`, or `plain` with the next free number."""
        unique = plain
        while unique in self.places:
            self._numbers[plain] = self._numbers.get(plain, 1) + 1
            unique = f"{plain}{separator}{self._numbers[plain]}"
        return unique


def _outer_skill(file: str, folders: Container[PurePath]) -> PurePath | None:
    """Return the folder of the skill that a SKILL.md is a file of, or None if it is a skill itself.

    A template or test case of a skill may contain a SKILL.md, which no agent installs. The folder
    `skills` of a plug-in holds skills even if there is a SKILL.md beside it.
    """
    folder = PurePath(file).parent
    for outer in folder.parents:
        if outer in folders and folder.relative_to(outer).parts[0] != "skills":
            return outer
    return None


def _is_below(path: str, folder: str) -> bool:
    """Return whether a path is a folder, given with a trailing separator, or leads into it."""
    try:
        return os.path.join(os.path.realpath(path), "").startswith(folder)
    except OSError:  # a link that disappears while it is followed
        return False


def _kind_of_folder(files: Sequence[str]) -> Kind:
    """Return the first kind that a folder without skills has files of."""
    suffixes = {_suffix(file) for file in files}
    kinds: tuple[Kind, ...] = ("text", "jsonl", "tools")
    return next((kind for kind in kinds if not suffixes.isdisjoint(_SUFFIXES[kind])), "text")


def _kind_of_file(path: str) -> Kind:
    suffix = _suffix(path)
    if os.path.basename(path) == _SKILL:
        return "skills"
    if suffix in _JSON_LINES:
        return "jsonl"
    if suffix in _TOOLS:
        return "tools"
    if suffix in _TEXT:
        return "text"
    seen = f"a {suffix} file" if suffix else "a file without a suffix"
    raise SourceError("source_unknown", f"{printable(path)} is {seen}; accepted: {_ACCEPTED}")


def _suffix(path: str) -> str:
    return os.path.splitext(path)[1].lower()


def _folder_name(path: str) -> str:
    return printable(os.path.basename(os.path.abspath(path)))


def _portable(path: str) -> str:
    """Return a relative path with `/`, the same on every system."""
    return printable(path).replace(os.sep, "/")
