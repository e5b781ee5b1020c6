"""Splitting labelled queries into a half to fit on and a half to report on, by group.

Queries that share a document stand in the same half. Otherwise a fit would be tried on what it has
seen: ten prompts for one skill are much alike, and so are their scores.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from crossgate._evaluation.runs.runs import StoredQuery


def groups(
    queries: Sequence[StoredQuery], corpora: Sequence[str], *, loosely: bool = False
) -> list[int]:
    """Return the number of each query's group.

    Two queries are of one group if a chain of documents that they are labelled with, as fitting or
    as not fitting, joins them, or if they are the same text.

    Args:
        queries: The queries.
        corpora: The corpus of each; ids of two corpora have nothing to do with each other.
        loosely: Whether only the label that says most counts of each query: the document that fits
            best, or where nothing fits one that is known not to.
    """
    root: dict[tuple[str, ...], tuple[str, ...]] = {}

    def find(node: tuple[str, ...]) -> tuple[str, ...]:
        while root.setdefault(node, node) != node:
            root[node] = root[root[node]]
            node = root[node]
        return node

    for query, corpus in zip(queries, corpora, strict=True):
        fitting = sorted(query.relevant, key=lambda one: (-query.relevant[one], one))
        labels = [*fitting, *sorted(query.wrong)]
        for document in labels[:1] if loosely else labels:
            root[find((corpus, document))] = find((query.text,))
    names = [find((query.text,)) for query in queries]
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return [numbers[name] for name in names]


def is_chained(queries: Sequence[StoredQuery], corpora: Sequence[str]) -> bool:
    """Return whether labels join more than half of the queries into one group."""
    numbers = groups(queries, corpora)
    return 2 * max((numbers.count(one) for one in set(numbers)), default=0) > len(numbers)


def split(
    queries: Sequence[StoredQuery], corpora: Sequence[str], *, seed: int
) -> tuple[list[int], list[int]]:
    """Return the places of two halves of the queries, no group in both.

    The groups are dealt in an order drawn by the seed, each to the half that has fewer queries of
    its kind: those that something fits and those that nothing does are dealt apart, so that both
    halves have their share of either. A group with both goes where its larger part belongs. Where
    labels chain most queries into one group no half could be had, and the groups are loose ones.

    Args:
        queries: The queries; their order counts.
        corpora: The corpus of each, as for `groups`.
        seed: Of the order in which groups are dealt.
    """
    members: dict[int, list[int]] = defaultdict(list)
    loosely = is_chained(queries, corpora)
    for place, group in enumerate(groups(queries, corpora, loosely=loosely)):
        members[group].append(place)
    dealt = list(members.values())
    order = np.random.default_rng(seed).permutation(len(dealt))
    halves: tuple[list[int], list[int]] = ([], [])
    counts = {True: [0, 0], False: [0, 0]}
    # The largest first: a late large group would upset halves that were even.
    for number in sorted(order, key=lambda one: -len(dealt[one])):
        places = dealt[number]
        matched = sum(bool(queries[place].relevant) for place in places)
        kind = 2 * matched >= len(places)
        half = int(counts[kind][1] < counts[kind][0])
        halves[half].extend(places)
        counts[True][half] += matched
        counts[False][half] += len(places) - matched
    return sorted(halves[0]), sorted(halves[1])
