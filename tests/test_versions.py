"""A search uses one version of the index, and does not wait for a writer."""

from __future__ import annotations

import threading
from typing import Any

from churn import churn
from crossgate import _core

BLEND = _core.Blend()


def test_readers_do_not_wait_for_a_writer() -> None:
    index = _core.Index("english", "", 0)
    index.upsert([("first", "", "a quick red fox", "", [], "{}", None)])
    text = " ".join(f"word{number} fox" for number in range(400))
    rows: list[Any] = [
        (f"{number}", "", f"{text} {number}", "", [], "{}", None) for number in range(4_000)
    ]
    started, done = threading.Event(), threading.Event()

    def write() -> None:
        started.set()
        index.upsert(rows)
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    started.wait()
    answered = 0
    # The pause lets the writer into the core, whichever of the two threads runs first.
    while not done.wait(0.01):
        found, texts = index.search("fox", None, blend=BLEND, per_channel=2)
        if len(index) == 1:
            assert [candidate.id for candidate in found] == ["first"]
            assert [text for _, text, *_ in texts] == ["a quick red fox"]
            answered += 1
    writer.join()
    # A reader that waits gets its first or second answer only after the writer is done.
    assert answered > 4
    assert len(index) == 4_001


def test_concurrent_readers_and_writers_agree_with_a_naive_model() -> None:
    found = churn(changes=300)
    assert found.wrong == []
    assert found.changes == 300
    assert found.reads > 0
