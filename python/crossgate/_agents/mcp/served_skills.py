"""Skills over MCP, as SEP-2640 of 2026-09 has them: serves those of an index, and lists others'.

https://modelcontextprotocol.io/seps/2640-skills-extension
"""

from __future__ import annotations

import hashlib
import mimetypes
import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote, unquote

import anyio.to_thread
import mcp
from mcp.server.extension import Extension, MethodBinding
from mcp.server.mcpserver import MCPServer, ResourceSecurity
from mcp.server.mcpserver.exceptions import ResourceError, ResourceNotFoundError
from mcp.types import PaginatedRequestParams, RequestParams
from mcp_types import INVALID_PARAMS, CacheableResult, PaginatedResult, Request

from crossgate._sources.common import Unusable, decoded, is_unicode
from crossgate._sources.skill_files import json_of_front_matter
from crossgate._support.errors import CrossgateError
from crossgate._support.files import read_source
from crossgate._support.limits import SKILL_BYTES

if TYPE_CHECKING:
    from crossgate._retrieval.document_index import Index
    from crossgate._values.results import Document

ROOT = "skill://crossgate/"
_EXTENSION = "io.modelcontextprotocol/skills"
_FILE = "SKILL.md"
_NAME = re.compile(r"(?=.{1,64}\Z)[a-z0-9]+(?:-[a-z0-9]+)*")
_DESCRIPTION_CHARS = 1_024
_FILES, _BYTES = 512, 16 * 1024 * 1024  # the limits of the extension
_PAGE = 100
_PAGE_SECONDS = 1.0
"""A page also ends after this time, since all files of its skills are read."""


class _ListResult(PaginatedResult, CacheableResult):
    skills: list[Any]
    result_type: Literal["complete"] = "complete"


class _GetResult(CacheableResult):
    skill: dict[str, Any]
    result_type: Literal["complete"] = "complete"


class _GetParams(RequestParams):
    uri: str


class _ListRequest(Request[PaginatedRequestParams, Literal["skills/list"]]):
    method: Literal["skills/list"] = "skills/list"
    params: PaginatedRequestParams


async def skills_of(client: mcp.Client, pages: int) -> list[Any]:
    """Return the entries of all skills of a server; none if it does not have the extension."""
    if _EXTENSION not in (client.server_capabilities.extensions or {}):
        return []
    skills: list[Any] = []
    cursor: str | None = None
    for _ in range(pages):
        request = _ListRequest(params=PaginatedRequestParams(cursor=cursor))
        page = await client.session.send_request(request, _ListResult)
        skills += page.skills
        cursor = page.next_cursor
        if not cursor:
            break
    return skills


class ServedSkills(Extension):
    """Serves the skills of an index that have a file and a name as the extension wants it.

    The files are read for each request, so an entry is that of the files as they are.
    """

    identifier = _EXTENSION

    def __init__(self, index: Callable[[], Index]) -> None:
        self._index = index

    def methods(self) -> Sequence[MethodBinding]:
        """Return the two methods of the extension."""
        return (
            MethodBinding("skills/list", PaginatedRequestParams, self._list),
            MethodBinding("skills/get", _GetParams, self._get),
        )

    async def _list(self, _context: Any, params: PaginatedRequestParams) -> _ListResult:
        cursor = params.cursor or "0"
        if not re.fullmatch(r"\d{1,9}", cursor, re.ASCII):
            raise mcp.MCPError(INVALID_PARAMS, f"no page begins at the cursor {cursor[:40]!r}")
        start = int(cursor)

        def page() -> tuple[list[dict[str, Any]], int | None]:
            index = self._opened()
            entries: list[dict[str, Any]] = []
            until, following = monotonic() + _PAGE_SECONDS, start
            for id in index.ids[start : start + _PAGE]:
                following += 1
                if entry := _entry(index[id]):
                    entries.append(entry)
                if monotonic() > until:
                    break
            return entries, following if following < len(index) else None

        entries, following = await anyio.to_thread.run_sync(page)
        return _ListResult(
            skills=entries, next_cursor=None if following is None else str(following)
        )

    async def _get(self, _context: Any, params: _GetParams) -> _GetResult:
        def get() -> dict[str, Any] | None:
            id = unquote(params.uri.removeprefix(ROOT).partition("/")[0])
            document = self._opened().get(id)
            return _entry(document) if document and _uri_of(document) == params.uri else None

        entry = await anyio.to_thread.run_sync(get)
        if entry is None:
            raise mcp.MCPError(INVALID_PARAMS, f"unknown_document: no skill is at {params.uri!r}")
        return _GetResult(skill=entry)

    def _opened(self) -> Index:
        try:
            return self._index()
        except CrossgateError as error:
            raise mcp.MCPError(INVALID_PARAMS, f"{error.code}: {error}") from error


class SkillServer(MCPServer):
    """A server that names the media type of each file of a skill."""

    async def read_resource(self, uri: Any, context: Any = None) -> Any:
        """Read a resource."""
        found = await super().read_resource(uri, context)
        guessed = mimetypes.guess_type(str(uri).removeprefix(ROOT))[0]
        if guessed is None or "/" not in str(uri).removeprefix(ROOT) or not isinstance(found, list):
            return found
        return [replace(part, mime_type=guessed) for part in found]


def offer_files(made: MCPServer, index: Callable[[], Index]) -> None:
    """Serve the files that the entries of skills list, unchanged, as their digests demand."""

    @made.resource(
        ROOT + "{id}/{+path}",
        name="skill_file",
        description="A file of a skill of skills/list.",
        security=ResourceSecurity(exempt_params={"id"}),
    )
    def skill_file(id: str, path: str) -> str | bytes:
        try:
            document = index().get(id)
        except CrossgateError as error:
            raise ResourceError(f"{error.code}: {error}") from error
        uri = f"{ROOT}{quote(id, safe='')}/{quote(path)}"
        with suppress(OSError, Unusable):
            folder = _skill_of(document)[0] if document else ""
            for own, file in _files(document, folder) if document and folder else ():
                if own == uri:
                    data = read_source(file, _BYTES)
                    with suppress(UnicodeDecodeError):
                        return data.decode()
                    return data
        raise ResourceNotFoundError(f"unknown_document: no skill has the file {uri}")


def _base(document: Document) -> str:
    """Return the URI of a skill's folder, which ends with its name."""
    base = ROOT + quote(document.id, safe="")
    return base if document.id == document.title else f"{base}/{document.title}"


def _uri_of(document: Document) -> str:
    return f"{_base(document)}/{_FILE}"


def _skill_of(document: Document) -> tuple[str, dict[str, Any]]:
    """Return folder and front matter of a skill; both empty if the extension does not allow it.

    A document can name any folder, so only that of a SKILL.md with the document's name counts.

    Raises:
        OSError: If its SKILL.md cannot be read.
        Unusable: If its SKILL.md has no front matter.
    """
    root, path = document.metadata.get("root"), document.metadata.get("path")
    if not isinstance(root, str) or not isinstance(path, str) or os.path.basename(path) != _FILE:
        return "", {}
    file = os.path.join(root, path)
    if not _NAME.fullmatch(document.title) or os.path.islink(file):
        return "", {}
    front = json_of_front_matter(decoded(read_source(file, SKILL_BYTES)))
    text = front.get("description")
    fits = isinstance(text, str) and len(text.strip()) > 0 and len(text) <= _DESCRIPTION_CHARS
    return (
        (os.path.dirname(file), front) if fits and front.get("name") == document.title else ("", {})
    )


def _files(document: Document, folder: str) -> list[tuple[str, str]]:
    """Return URI and path of each file of a skill, without hidden files and links.

    A skill above the limits of the extension, such as a SKILL.md in the home folder, has none.
    """
    files: list[tuple[str, str]] = []
    size = 0
    for below, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = os.path.join(below, name)
            relative = os.path.relpath(path, folder).replace(os.sep, "/")
            is_hidden = name.startswith(".") or not is_unicode(relative)  # no URI names the latter
            if is_hidden or os.path.islink(path) or not os.path.isfile(path):
                continue
            files.append((f"{_base(document)}/{quote(relative)}", path))
            size += os.path.getsize(path)
            if len(files) > _FILES or size > _BYTES:
                return []
    return files


def _entry(document: Document) -> dict[str, Any] | None:
    """Return the entry of a skill; None if the extension does not allow it, or cannot be read."""
    resources: list[dict[str, Any]] = []
    try:
        folder, front = _skill_of(document)
        for uri, path in _files(document, folder) if folder else ():
            data = read_source(path, _BYTES)
            digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
            resources.append({"uri": uri, "digest": digest, "size": len(data)})
    except (OSError, Unusable):
        return None
    if not resources:
        return None
    return {"uri": _uri_of(document), "frontmatter": front, "resources": resources}
