"""`crossgate index`: writes documents to an index file."""

from __future__ import annotations

import argparse
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from crossgate._cli import DONE
from crossgate._cli.input import document_arguments, documents_of, index_of
from crossgate._cli.output import say, say_left_out, say_skipped, show_result, size
from crossgate._support.errors import IndexFileError
from crossgate._support.files import cannot_write, is_free_for_index, try_writing
from crossgate._support.progress import progress
from crossgate._support.wording import counted

if TYPE_CHECKING:
    from crossgate._retrieval.document_index import Index
    from crossgate._sources.reading import Loaded


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    document_arguments(parser, sources="*")
    parser.add_argument(
        "--mcp",
        metavar="COMMAND",
        action="append",
        default=[],
        help="an MCP server to start, whose tools and skills are read; repeat it for more",
    )
    parser.add_argument("-o", "--output", metavar="FILE", required=True, help="index file to write")


def run(options: argparse.Namespace) -> int:
    """Read, embed and save."""
    from crossgate._sources.examples import (
        examples_beside,
        examples_lock,
        read_examples,
        teach_examples,
    )

    start = perf_counter()
    output = Path(options.output)
    try:
        try_writing(output)  # before documents are embedded
    except OSError as error:
        what = cannot_write(f"the index {output}", error)
        raise IndexFileError("index_unwritable", what) from error
    examples = examples_beside(output)
    read_examples(examples)  # before documents are embedded, which takes long
    earlier = _earlier_index(output)
    loaded = documents_of(options, options.mcp)
    say_skipped(loaded.problems, ", ".join([*options.source, *options.mcp]))
    say_left_out(loaded.left_out)
    if options.embedder is None:
        say(
            "without vectors, nothing can be refused: only for passages of text does the "
            "cross-encoder tell that none answers"
        )
    unfinished = output.with_name(f"{output.name}.unfinished")
    built = _built(loaded, options, earlier, unfinished)
    with examples_lock(examples):
        for unknown in teach_examples(built, examples):
            say(f"{examples}: no document has the id {unknown!r}: its examples wait")
        built.save(output)
    if is_free_for_index(unfinished):
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
    seconds = perf_counter() - start
    skipped = sum(not problem.renamed for problem in loaded.problems)
    values: dict[str, Any] = {
        "index": str(output),
        "documents": len(built),
        "skipped": skipped,
        "renamed": len(loaded.problems) - skipped,
        "problems": [asdict(problem) for problem in loaded.problems],
        "left_out": [asdict(problem) for problem in loaded.left_out],
        "bytes": output.stat().st_size,
        "embedder": built.embedder,
        "fingerprint": built.fingerprint,
        "seconds": seconds,
    }
    parts = [counted(len(built), "document"), *([f"{skipped:,} skipped"] if skipped else [])]
    lines = [f"{output}: {', '.join(parts)}, {size(values['bytes'])}, {seconds:.1f} s"]
    beside = output.with_suffix(".profile.json")
    if beside.is_file():
        lines.append(f"the profile {beside} decides for it, not the bundled one")
    show_result(options.json, values, lines)
    return DONE


def _built(
    loaded: Loaded, options: argparse.Namespace, earlier: Index | None, unfinished: Path
) -> Index:
    """Build the index, from what an interrupted call has embedded if there is such a file."""
    from crossgate._retrieval.document_index import build_in_blocks

    if not loaded.documents:
        return index_of(loaded, options)  # which says so
    with progress("embedding") as report:
        return build_in_blocks(
            loaded.documents,
            unfinished,
            embedder=options.embedder,
            language=options.language,
            reuse=earlier,
            progress=report,
        )


def _earlier_index(path: Path) -> Index | None:
    """Return the index at the path, whose vectors can be reused."""
    from crossgate._retrieval.document_index import Index

    try:
        earlier = Index.open(path)
        earlier.load()  # a damaged index is not reused
        return earlier
    except IndexFileError as error:
        if error.code == "not_an_index" and path.stat().st_size > 0:
            raise IndexFileError(
                "not_an_index",
                f"{path} is not a crossgate index and would be overwritten: choose another file "
                "with -o, or remove it first",
            ) from error
        return None
