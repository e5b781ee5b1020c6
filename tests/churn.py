"""Reads one index from many threads while others write to it, and checks every result.

Each change also writes a document whose text is the number of the version. So a result contains its
version, and is compared with a naive model of that version.
"""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass, field

from crossgate import Document, Index
from crossgate._retrieval.document_index import SearchResult

NAMES = [f"d{place}" for place in range(40)]
WORDS = ["red", "blue", "old", "quick", "lazy", "small", "loud", "wet"]
CLOCK = "clock"


@dataclass(kw_only=True)
class Report:
    """The results of a churn.

    Attributes:
        reads: Results that were checked, each against the texts of its version.
        scored: How many of them were also compared with a new index of that version.
        changes: Versions that were written.
        wrong: Results that do not match any version.
    """

    reads: int = 0
    scored: int = 0
    changes: int = 0
    wrong: list[str] = field(default_factory=list)


def churn(*, changes: int, readers: int = 4, writers: int = 2, seed: int = 7) -> Report:
    """Change an index a number of times while readers search it, and report."""
    report = Report()
    lock = threading.Lock()
    done = threading.Event()
    # The ids of each version: after its upsert, and after the delete that follows.
    versions: list[tuple[dict[str, str], dict[str, str]]] = [({CLOCK: "fox 0"},) * 2]
    index = Index.build([_document(*pair) for pair in versions[0][0].items()], embedder=None)

    def write(number: int) -> None:
        draw = random.Random(seed + number)
        while not done.is_set():
            with lock:
                at = len(versions)
                if at > changes:
                    done.set()
                    return
                changed = {name: _text(draw) for name in draw.sample(NAMES, draw.randrange(1, 12))}
                changed[CLOCK] = f"fox {at}"
                there = {**versions[-1][1], **changed}
                gone = draw.sample(sorted(set(there) - {CLOCK}), draw.randrange(len(there)) // 2)
                after = {key: text for key, text in there.items() if key not in gone}
                # Added before a reader can see the version.
                versions.append((there, after))
                index.upsert(_document(*pair) for pair in changed.items())
                index.delete(gone)

    def read(number: int) -> None:
        draw = random.Random(-seed - number)
        last = False
        while not last:  # at least once
            last = done.is_set()
            query = f"fox {draw.choice(WORDS)}"
            found = index.search(query, per_channel=100)
            wrong, scored = _wrong(query, found, versions, compare=draw.random() < 0.05)
            with report_lock:
                report.reads += 1
                report.scored += scored
                report.wrong += [wrong] if wrong else []

    report_lock = threading.Lock()
    threads = [threading.Thread(target=write, args=(number,)) for number in range(writers)]
    threads += [threading.Thread(target=read, args=(number,)) for number in range(readers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    report.changes = len(versions) - 1
    return report


def _document(name: str, text: str) -> Document:
    return Document(id=name, text=text)


def _text(draw: random.Random) -> str:
    return f"fox {' '.join(draw.choices(WORDS, k=draw.randrange(1, 9)))}"


def _wrong(
    query: str,
    found: SearchResult,
    versions: list[tuple[dict[str, str], dict[str, str]]],
    *,
    compare: bool,
) -> tuple[str, bool]:
    """Return a result's fault, if any, and whether its scores were compared."""
    texts = {id: document.text for id, document in found.documents.items()}
    if CLOCK not in texts:
        return f"no version in {sorted(texts)}", False
    at = int(texts[CLOCK].split()[1])
    state = next((version for version in versions[at] if version == texts), None)
    if state is None:
        return f"texts of no state of version {at}", False
    if not compare:
        return "", False
    anew = Index.build([_document(*pair) for pair in sorted(state.items())], embedder=None)
    expected = {
        candidate.id: (candidate.bm25, candidate.blend)
        for candidate in anew.search(query, per_channel=100).scored
    }
    same = {
        candidate.id: (candidate.bm25, candidate.blend) for candidate in found.scored
    } == expected
    return "" if same else f"scores of no state of version {at}", True
