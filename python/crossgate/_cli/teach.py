"""`crossgate teach`: add a prompt that should, or should not, select a skill of an index."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crossgate._cli import DONE
from crossgate._cli.input import model_or_none, text_of
from crossgate._cli.output import json_option, plain, show, show_json
from crossgate._support.sanitize import fit
from crossgate._support.wording import share_of

if TYPE_CHECKING:
    from crossgate._decision.router import Router
    from crossgate._retrieval.document_index import Index
    from crossgate._sources.examples import Example

MOST_KNOWN = 500
"""Known prompts that are routed before and after, the last ones."""

_SHOWN = 5


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.set_defaults(run=run)
    json_option(parser)
    parser.add_argument("prompt", metavar="PROMPT", help="the prompt, or - to read it from stdin")
    parser.add_argument("-i", "--index", metavar="FILE", required=True, help="index file")
    lesson = parser.add_mutually_exclusive_group(required=True)
    lesson.add_argument("--skill", metavar="NAME", help="the prompt should select this skill")
    lesson.add_argument(
        "--not", dest="wrong", metavar="NAME", help="the prompt should not select this skill"
    )
    lesson.add_argument(
        "--nothing", action="store_true", help="the prompt should select no skill at all"
    )
    parser.add_argument(
        "--reranker",
        metavar="MODEL",
        type=model_or_none,
        default="default",
        help="model of stage 2 by which known prompts are decided, or none",
    )


def run(options: argparse.Namespace) -> int:
    """Teach and print what changed."""
    prompt = text_of("-").rstrip("\n") if options.prompt == "-" else options.prompt
    name = options.skill if options.skill is not None else options.wrong
    learned = teach(
        Path(options.index),
        prompt,
        name,
        fits=options.skill is not None,
        reranker=options.reranker,
    )
    if options.json:
        show_json(learned)
    else:
        show("\n".join(told(learned)))
    return DONE


def teach(
    path: Path, prompt: str, name: str | None, *, fits: bool, reranker: Any = "default"
) -> dict[str, Any]:
    """Teach an index a prompt, in its file and in the file of examples beside it.

    The file keeps lessons in their order, because a rebuilt index learns them again one by one, and
    the last lesson about a prompt counts.

    Args:
        path: The file of the index.
        prompt: The prompt.
        name: Id or name of the skill; None if no skill fits.
        fits: Whether the prompt should select the skill.
        reranker: Stage 2, by which the known prompts are decided.

    Returns:
        The decision about the prompt, and the known prompts that are decided differently now.

    Raises:
        InputError: `unknown_document`; `malformed_example` for a broken line in the file beside the
            index; as `Index.teach`.
        IndexFileError: If the index cannot be read or written.
    """
    from crossgate._decision.router import Router
    from crossgate._retrieval.document_index import Index, id_of
    from crossgate._sources.examples import Example, examples_beside, read_examples

    index = Index.open(path)
    examples = examples_beside(path)
    written = read_examples(examples)
    id = None if name is None else id_of(index, name)
    router = Router(index, reranker=reranker)
    known = [text for text in dict.fromkeys(_known(index)) if text != prompt][-MOST_KNOWN:]
    before = _picks(router, known)
    is_new = index.teach(prompt, id, fits=fits)
    example = Example(prompt, id, id is not None and fits)
    _write(examples, [*(row for row in written if row != example), example])
    if is_new:
        index.save(path)
    after = _picks(router, known)
    result = router.route(prompt, limit=1)
    changed = zip(known, before, after, strict=True)
    return {
        "index": str(path),
        "examples": str(examples),
        "prompt": prompt,
        "skill": id,
        "fits": example.fits,
        "new": is_new,
        "selected": result.ids,
        "confidence": result.confidence,
        "known": len(known),
        "changed": [
            {"prompt": text, "before": old, "after": new}
            for text, old, new in changed
            if old != new
        ],
    }


def told(learned: dict[str, Any]) -> Iterator[str]:
    """Yield the lines that say what an index has learned."""
    picked = ", ".join(learned["selected"]) or "nothing"
    yield f"{learned['index']}: the prompt selects {picked} now"
    if not learned["new"]:
        yield "the index knew this example already"
    changed = learned["changed"]
    share = share_of(len(changed), learned["known"], "known prompt")
    yield f"decided differently now: {share}"
    for row in changed[:_SHOWN]:
        old, new = (", ".join(row[when]) or "nothing" for when in ("before", "after"))
        yield f"  {fit(plain(row['prompt']), 50)}: {old} -> {new}"


def _write(path: Path, examples: Sequence[Example]) -> None:
    """Write the file of examples.

    Raises:
        IndexFileError: `index_unwritable`.
    """
    from crossgate._support.errors import IndexFileError
    from crossgate._support.files import atomic_write, cannot_write

    try:
        with atomic_write(path) as stream:
            stream.writelines(example.line() for example in examples)
    except OSError as error:
        message = cannot_write(f"the examples {path}", error)
        raise IndexFileError("index_unwritable", message) from error


def _known(index: Index) -> Iterator[str]:
    """Yield the examples of an index."""
    for id in index:
        yield from (*index[id].examples, *index[id].counterexamples)
    yield from index.nothing


def _picks(router: Router, prompts: Sequence[str]) -> list[list[str]]:
    return [result.ids for result in router.route_many(prompts, progress=False, limit=1)]
