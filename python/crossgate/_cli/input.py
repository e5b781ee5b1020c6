"""Inputs of commands: documents to index, and texts from files or stdin."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from crossgate._cli.output import say
from crossgate._support.errors import InputError
from crossgate._support.files import read_source
from crossgate._support.limits import CANDIDATES_BYTES
from crossgate._support.progress import progress

if TYPE_CHECKING:
    from crossgate._retrieval.document_index import Index
    from crossgate._sources.reading import Loaded


def model_or_none(text: str) -> str | None:
    """Return the model of an option, or None for `none`."""
    return None if text == "none" else text


def model_option(parser: argparse.ArgumentParser, name: str, text: str) -> None:
    """Add an option for a model, or `none`."""
    parser.add_argument(name, metavar="MODEL", type=model_or_none, default="default", help=text)


def document_arguments(parser: argparse.ArgumentParser, *, sources: str = "+") -> None:
    """Add the arguments for documents, of which `sources` is the `nargs`, and for indexing them."""
    from typing import get_args

    from crossgate._sources.reading import Kind

    parser.add_argument("source", metavar="SOURCE", nargs=sources, help="folder or file to read")
    parser.add_argument(
        "--kind",
        choices=get_args(Kind),
        default="auto",
        help="type of the sources (default: detect it)",
    )
    model_option(parser, "--embedder", "name or folder of a model, or none to use only words")
    parser.add_argument(
        "--language", default="english", help="language of the stemmer, or none (default: english)"
    )


def documents_of(options: argparse.Namespace, servers: Sequence[str] = ()) -> Loaded:
    """Return the documents of the arguments, and what the MCP servers of some commands offer."""
    from crossgate._sources.reading import read_sources

    served = []
    if servers:
        from crossgate._agents.mcp.listing import list_served

        served = [list_served(command, warn=say) for command in servers]
    return read_sources(options.source, kind=options.kind, servers=served)


def index_of(loaded: Loaded, options: argparse.Namespace) -> Index:
    """Build an index of documents with the options of the command."""
    from crossgate._retrieval.document_index import Index

    with progress("embedding") as report:
        return Index.build(
            loaded.documents,
            embedder=options.embedder,
            language=options.language,
            progress=report,
        )


def text_of(path: str) -> str:
    """Return a file, or stdin for `-`, as text.

    Raises:
        InputError: `source_missing` if it cannot be read; `invalid_text` if it is too large or not
            UTF-8.
    """
    name = "stdin" if path == "-" else path
    try:
        data = _standard_input() if path == "-" else read_source(path, CANDIDATES_BYTES)
        return data.decode("utf-8-sig")
    except OSError as error:
        raise InputError("source_missing", f"cannot read {name}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(
            "invalid_text",
            f"{name} is not UTF-8: byte {error.start} is 0x{error.object[error.start]:02x}",
        ) from error


def _standard_input() -> bytes:
    if sys.stdin is None:
        raise InputError("source_missing", "stdin is closed: use a pipe, or name a file")
    data = sys.stdin.buffer.read(CANDIDATES_BYTES + 1)
    if len(data) > CANDIDATES_BYTES:
        message = f"stdin exceeds the limit of {CANDIDATES_BYTES:,} bytes"
        raise InputError("invalid_text", message)
    return data
