"""Splits labelled queries into a half to fit on and a held-out half, by group.

Queries that share a document are kept in the same half. Otherwise a fit would be tested on data
that it has seen: ten prompts for one skill are much alike, and so are their scores.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from crossgate._evaluation.runs.stored_runs import StoredQuery


def groups(
    queries: Sequence[StoredQuery], corpora: Sequence[str], *, loosely: bool = False
) -> list[int]:
    """Return the number of each query's group.

    Two queries are in one group if a chain of documents in their labels, right or wrong ones,
    connects them, or if they have the same text.

    Args:
        queries: The queries.
        corpora: The corpus of each; the same id in two corpora means two documents.
        loosely: Whether only the strongest label of each query counts: the document that fits best
            or, if nothing fits, one that is known not to fit.
    """
    root: dict[tuple[str, ...], tuple[str, ...]] = {}

    def find(node: tuple[str, ...]) -> tuple[str, ...]:
        while root.setdefault(node, node) != node:
            root[node] = root[root[node]]
            node = root[node]
        return node

    for query, corpus in zip(queries, corpora, strict=True):
        fitting = sorted(query.relevant, key=lambda id: (-query.relevant[id], id))
        labels = [*fitting, *sorted(query.wrong)]
        for document in labels[:1] if loosely else labels:
            root[find((corpus, document))] = find((query.text,))
    names = [find((query.text,)) for query in queries]
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return [numbers[name] for name in names]


def is_chained(queries: Sequence[StoredQuery], corpora: Sequence[str]) -> bool:
    """Return whether labels connect more than half of the queries into one group."""
    numbers = groups(queries, corpora)
    return 2 * max((numbers.count(number) for number in set(numbers)), default=0) > len(numbers)


def split(
    queries: Sequence[StoredQuery], corpora: Sequence[str], *, seed: int
) -> tuple[list[int], list[int]]:
    """Return the positions of two halves of the queries, with no group in both.

    The groups are dealt in an order drawn by the seed, each to the half that has fewer queries of
    its kind. Queries with and without a match are counted separately, so that both halves have
    their share of each; a group with both kinds counts as the kind of its larger part. If labels
    connect most queries into one group, it could not be halved, so the groups are made loosely.

    Args:
        queries: The queries; their order matters.
        corpora: The corpus of each, as for `groups`.
        seed: Seed of the order in which groups are dealt.
    """
    members: dict[int, list[int]] = defaultdict(list)
    loosely = is_chained(queries, corpora)
    for position, group in enumerate(groups(queries, corpora, loosely=loosely)):
        members[group].append(position)
    dealt = list(members.values())
    order = np.random.default_rng(seed).permutation(len(dealt))
    halves: tuple[list[int], list[int]] = ([], [])
    counts = {True: [0, 0], False: [0, 0]}
    # The largest first: a large group at the end would unbalance the halves.
    for number in sorted(order, key=lambda number: -len(dealt[number])):
        positions = dealt[number]
        matched = sum(bool(queries[position].relevant) for position in positions)
        kind = 2 * matched >= len(positions)
        half = int(counts[kind][1] < counts[kind][0])
        halves[half].extend(positions)
        counts[True][half] += matched
        counts[False][half] += len(positions) - matched
    return sorted(halves[0]), sorted(halves[1])
