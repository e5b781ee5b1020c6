"""`crossgate route`: the documents of an index that fit a query, or none."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from crossgate._cli import DONE
from crossgate._cli.decision_output import (
    decision_keywords,
    decision_options,
    log_of,
    pairs,
    say_notes,
    show_decision,
)
from crossgate._cli.input import text_of
from crossgate._cli.output import WIDTH, paint, plain, say, show_result
from crossgate._support.checks import MAX_QUERY_CHARACTERS, check_text
from crossgate._support.errors import InputError
from crossgate._support.wording import counted, did_you_mean
from crossgate._values.agent_prompts import is_hook_input

if TYPE_CHECKING:
    from crossgate._decision.explain import Explanation
    from crossgate._retrieval.document_index import Index


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("query", metavar="QUERY", help="the query, or - to read it from stdin")
    parser.add_argument("-i", "--index", metavar="FILE", required=True, help="index file")
    parser.add_argument(
        "--embedder",
        metavar="MODEL",
        help="name or folder of the model that made the index, or none for an index without "
        "vectors (default: the model that the index names)",
    )
    parser.add_argument(
        "--why",
        metavar="NAME",
        help="explain why the document with this id or title was not selected, or that it was",
    )
    decision_options(parser, limit="2, or all passages that answer")


def run(options: argparse.Namespace) -> int:
    """Decide and print."""
    from crossgate._decision.router import Router
    from crossgate._retrieval.document_index import Index, embedder_mismatch

    query = _checked_query(text_of("-").rstrip("\n") if options.query == "-" else options.query)
    embedder = None if options.embedder == "none" else options.embedder
    opened = Index.open(options.index, embedder=embedder)
    if options.embedder == "none" and opened.embedder:
        raise embedder_mismatch(options.index, opened.embedder, "none")
    for option, ids in (("--allow", options.allow), ("--deny", options.deny)):
        _check_known(option, ids or (), opened)
    router = Router(
        opened,
        reranker=options.reranker,
        profile=options.profile,
        policy=options.policy,
        telemetry=log_of(options),
    )
    keywords = decision_keywords(options)
    if options.why is not None:
        return _show_explanation(router.explain(query, options.why, **keywords), options)
    return show_decision(router.route(query, **keywords), options, query=query)


def _show_explanation(explanation: Explanation, options: argparse.Namespace) -> int:
    """Print why a document was not selected, and return the exit code."""
    lines = [paint(plain(f"{explanation.id}: {explanation.step}"), "1")]
    remedy = f"to change that: {explanation.remedy}" if explanation.remedy else ""
    for line in filter(None, (explanation.text, remedy, pairs(explanation.figures))):
        text = textwrap.fill(plain(line), WIDTH, initial_indent="    ", subsequent_indent="    ")
        lines.append(text)
    show_result(options.json, explanation.to_dict(), lines)
    say_notes(explanation.result)
    return DONE


def _check_known(option: str, ids: Sequence[str], index: Index) -> None:
    """Refuse an id that no document has.

    Raises:
        InputError: `unknown_document`.
    """
    for id in ids:
        check_text(f"{option} ID", id)
        if id not in index:
            raise InputError(
                "unknown_document",
                f"{option} {id}: no document of the index has this id{did_you_mean(id, index.ids)}",
            )


def _checked_query(query: str) -> str:
    """Return the query, cut to the maximum length.

    Raises:
        InputError: `hook_call` for the JSON input of a hook.
    """
    if is_hook_input(query):
        raise InputError(
            "hook_call",
            "the query is the JSON that an agent passes to its prompt hook: have the agent call "
            "`crossgate hook claude`, which never exits with 2; `crossgate hook install` sets it "
            "up",
        )
    if len(query) > MAX_QUERY_CHARACTERS:
        say(
            f"the query has {counted(len(query), 'character')}: only the first "
            f"{MAX_QUERY_CHARACTERS:,} are read"
        )
    return query[:MAX_QUERY_CHARACTERS]
