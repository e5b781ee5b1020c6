"""Temporal decay: the formula, the overrides, and every way in which a time can be odd."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import refused
from crossgate import Candidate
from crossgate._pipelines.hits import decay

NOW = datetime(2031, 3, 15, 12, tzinfo=UTC)


def written(time: object, *, id: str = "a", score: float | None = 1.0, **more: Any) -> Candidate:
    """Return a candidate that was written at a time."""
    metadata = {**more} if time is None else {"timestamp": time, **more}
    return Candidate(id=id, text="text", score=score, metadata=metadata)


def factor(time: object, **options: Any) -> float | None:
    """Return what a score of 1 becomes."""
    (aged,) = decay([written(time)], now=NOW, **options)
    return aged.score


@given(st.floats(0, 5_000), st.floats(0.01, 1_000), st.floats(0, 1), st.floats(0, 1e6))
def test_equals_its_definition(days: float, half_life: float, floor: float, score: float) -> None:
    time = NOW - timedelta(days=days)
    age = (NOW - time).total_seconds() / 86_400
    (aged,) = decay([written(time, score=score)], now=NOW, half_life_days=half_life, floor=floor)
    expected = score * max(floor, 0.5 ** (age / half_life))
    assert aged.score == pytest.approx(expected, rel=1e-9, abs=1e-300)


def test_defaults_are_thirty_days_and_three_tenths() -> None:
    assert factor(NOW - timedelta(days=30)) == 0.5
    assert factor(NOW - timedelta(days=3_000)) == 0.3


@pytest.mark.parametrize(
    "time",
    [
        "2031-02-13T12:00:00Z",
        "2031-02-13T12:00:00+00:00",
        "2031-02-13T17:30:00+05:30",
        "2031-02-13T12:00:00",  # no time zone: UTC
        " 2031-02-13T12:00 ",
        datetime(2031, 2, 13, 12),
        datetime(2031, 2, 13, 7, tzinfo=timezone(timedelta(hours=-5))),
        datetime(2031, 2, 13, 12, tzinfo=UTC).timestamp(),
        int(datetime(2031, 2, 13, 12, tzinfo=UTC).timestamp()),
    ],
)
def test_one_moment_written_in_many_ways(time: object) -> None:
    assert factor(time) == 0.5
    for now in (datetime(2031, 3, 15, 12), NOW.astimezone(timezone(timedelta(hours=9)))):
        (aged,) = decay([written(time)], now=now)
        assert aged.score == 0.5


def test_a_day_begins_at_midnight_and_may_be_called_date() -> None:
    assert factor("2031-03-15") == factor(date(2031, 3, 15)) == 0.5 ** (0.5 / 30)
    hit = Candidate(id="a", text="text", score=1.0, metadata={"date": "2031-02-13T12:00Z"})
    assert decay([hit], now=NOW)[0].score == 0.5


def test_missing_and_future_times_do_not_decay() -> None:
    assert factor(None) == factor("2031-03-15T12:00:01Z") == factor("2999-01-01") == 1.0
    (aged,) = decay([written(None, timestamp=None)], now=NOW)
    assert aged.score == 1.0


def test_a_document_may_have_a_half_life_of_its_own() -> None:
    month = NOW - timedelta(days=30)
    hits = [
        written(month, id="slow", half_life_days=60),
        written(month, id="never", half_life_days=None),
        written(month, id="usual"),
    ]
    aged = decay(hits, now=NOW)
    assert [(hit.id, hit.score) for hit in aged] == [
        ("never", 1.0),
        ("slow", 0.5**0.5),
        ("usual", 0.5),
    ]


def test_the_order_is_that_of_the_new_scores_and_nothing_is_changed_in_place() -> None:
    old, new = written("2020-01-01", id="b"), written(NOW, id="c", score=0.4)
    tie = written("2020-01-01", id="a")
    assert [hit.id for hit in decay([old, new, tie], now=NOW)] == ["c", "a", "b"]
    assert (old.score, new.score) == (1.0, 0.4)
    assert decay([], now=NOW) == []


@pytest.mark.parametrize("half_life", [0, -30, math.nan, math.inf, 10**400, "30"])
def test_invalid_half_lives_are_refused(half_life: Any) -> None:
    refused("out_of_range", factor, NOW, half_life_days=half_life)
    own = written(NOW, id="mine", half_life_days=half_life)
    assert "'mine'" in refused("out_of_range", decay, [own], now=NOW)


@pytest.mark.parametrize("floor", [-0.1, 1.1, math.nan])
def test_invalid_floors_are_refused(floor: float) -> None:
    refused("out_of_range", factor, NOW, floor=floor)


@pytest.mark.parametrize("time", ["yesterday", "2031-13-01", math.nan, math.inf, 1e300, True, []])
def test_invalid_times_are_refused(time: object) -> None:
    assert "hit 'a'" in refused("malformed_candidate", factor, time)


@pytest.mark.parametrize("now", [None, "2031-03-15", 5])
def test_invalid_current_time_is_refused(now: Any) -> None:
    refused("out_of_range", decay, [], now=now)


def test_logits_are_refused_since_a_negative_one_would_rise() -> None:
    message = refused("out_of_range", decay, [written(NOW, score=-4.0)], now=NOW)
    assert "before a cross-encoder" in message
    refused("out_of_range", decay, [written(NOW, score=math.inf)], now=NOW)
    refused("malformed_candidate", decay, [written(NOW, score=None)], now=NOW)
