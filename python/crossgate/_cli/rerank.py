"""`crossgate rerank`: reorders and filters the candidates of another retriever."""

from __future__ import annotations

import argparse

from crossgate._cli.decision_output import (
    decision_keywords,
    decision_options,
    log_of,
    show_decision,
)
from crossgate._cli.input import text_of


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("query", metavar="QUERY", help="the query")
    parser.add_argument(
        "candidates",
        metavar="FILE",
        nargs="?",
        default="-",
        help="JSON lines with text and optionally id, title, body, score, cosine (default: stdin)",
    )
    decision_options(parser, left_out=("allow", "deny"))


def run(options: argparse.Namespace) -> int:
    """Decide and print."""
    from crossgate._decision.rerank_candidates import rerank
    from crossgate._sources.rows import read_candidates

    name = "stdin" if options.candidates == "-" else options.candidates
    candidates = read_candidates(text_of(options.candidates).split("\n"), name=name)
    result = rerank(
        options.query,
        candidates,
        reranker=options.reranker,
        profile=options.profile,
        policy=options.policy,
        telemetry=log_of(options),
        **decision_keywords(options),
    )
    return show_decision(result, options, query=options.query, text=True)
