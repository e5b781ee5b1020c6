"""Temporal decay: older hits get lower scores."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from datetime import datetime

from crossgate._pipelines.hits import H, as_utc, metadata_of, score_of, time_of, with_score
from crossgate._support.checks import check_hits, check_number
from crossgate._support.errors import InputError

HALF_LIFE_DAYS = 30.0
FLOOR = 0.3

_SECONDS_PER_DAY = 86_400
_OVERRIDE = "half_life_days"


def decay(
    hits: Sequence[H],
    *,
    now: datetime,
    half_life_days: float = HALF_LIFE_DAYS,
    floor: float = FLOOR,
) -> list[H]:
    """Multiply each score by max(floor, 2 ** (-age / half-life)) and sort again, best first.

    Run this before a cross-encoder, not after it. A cross-encoder does not see dates, so the hits
    that it reads must already be chosen by age. And logits cannot be decayed: multiplied by 0.3, a
    logit of -4 gets better. Negative scores are therefore refused.

    A document's metadata may have its own `half_life_days`: a number, or None for a document that
    never ages. Its date is read from `timestamp` or `date`, see `time_of`. A document without a
    date does not age. Neither does one with a date in the future, since a wrong clock is the likely
    cause.

    Args:
        hits: Hits with a score of at least 0.
        now: The current time, from which ages are computed; without a time zone it is UTC.
        half_life_days: Days after which a score has halved, above 0.
        floor: The smallest factor, in [0, 1], however old the document is.

    Returns:
        Copies of the hits with the new `score`; ties go to the smaller id.

    Raises:
        InputError: `out_of_range` for a half-life (also in metadata), floor or score outside its
            limits; `malformed_candidate` for a date that cannot be read or a score that is not a
            number.
    """
    _check_half_life("half_life_days", half_life_days)
    check_hits("hits", hits)
    check_number("the floor", floor, 0, 1)
    if not isinstance(now, datetime):
        raise InputError("out_of_range", f"now is {now!r}: it must be a datetime")
    now = as_utc(now)
    aged = []
    for hit in hits:
        score = score_of(hit)
        if not (score >= 0 and math.isfinite(score)):
            raise InputError(
                "out_of_range",
                f"the score of hit {hit.id!r} is {score}: decay needs scores of at least 0; run "
                "it on fused scores, before a cross-encoder",
            )
        aged.append(with_score(hit, score * _factor(hit, now, half_life_days, floor)))
    return sorted(aged, key=lambda hit: (-score_of(hit), hit.id))


def _factor(hit: H, now: datetime, half_life_days: float, floor: float) -> float:
    written = time_of(hit)
    own = metadata_of(hit).get(_OVERRIDE, half_life_days)
    if own is None or written is None:
        return 1.0
    _check_half_life(f"half_life_days of hit {hit.id!r}", own)
    days = max(0.0, (now - written).total_seconds() / _SECONDS_PER_DAY)
    return max(floor, math.exp2(-days / own))


def _check_half_life(what: str, value: object) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not (number and 0 < value <= sys.float_info.max):  # type: ignore[operator]
        raise InputError(
            "out_of_range", f"{what} is {value!r}: it must be a number of days above 0"
        )
