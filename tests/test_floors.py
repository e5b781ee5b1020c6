"""Section floors and score cliffs: which candidates they drop before stage 2."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from conftest import LIBRARY, FunctionReranker, LengthReranker, build, is_replayable
from crossgate import (
    Document,
    PairScore,
    Policy,
    Profile,
    Router,
    RouteResult,
    _core,
    arerank,
    rerank,
)
from crossgate._core import Blend, Combine, Floors
from crossgate._decision import cascade
from crossgate._decision.stage1 import Stage1
from crossgate._reranking.chain import Chain
from crossgate._values.inputs import unsplit
from crossgate._values.options import DecisionOptions

COSINE_ALONE = Blend(cosine_weight=1.0, bm25_weight=0.0)
BY_COSINE = Profile(blend=COSINE_ALONE, combine=Combine.Replace())
"""The order of stage 1 is that of the cosines."""
FALLS = (0.9, 0.85, 0.8, 0.4, 0.35)
"""Five candidates with a cliff below the third."""


class RecordingReranker(FunctionReranker):
    """Records the texts that it scores, and prefers the first in the alphabet."""

    def __init__(self) -> None:
        super().__init__(lambda _, texts: [PairScore(-float(ord(text[0]))) for text in texts])

    @property
    def read(self) -> list[str]:
        """The texts of all calls, in order."""
        return [text for _, texts in self.calls for text in texts]


def decide(
    cosines: Sequence[float | None],
    policy: Policy,
    *,
    profile: Profile = BY_COSINE,
    reranker: Any = None,
    sources: Sequence[object] = (),
    **request: Any,
) -> RouteResult:
    """Decide among candidates a, b, c, ... with these cosines, which are also their blends."""
    names = "abcdefghijklmnopqrstuvwxyz"[: len(cosines)]
    scored = [
        _core.Scored(id=name, cosine=cosine, bm25=1.0, overlap=1, blend=cosine or 0.0)
        for name, cosine in zip(names, cosines, strict=True)
    ]
    kinds = dict(zip(names, sources, strict=False))
    stage2 = RecordingReranker() if reranker is None else reranker
    return cascade.run(
        cascade.Request(
            prompt=unsplit("query"),
            stage1=lambda: Stage1(
                scored=scored,
                documents={
                    name: Document(
                        id=name,
                        text=name,
                        metadata={"source_type": kinds[name]} if name in kinds else {},
                    )
                    for name in names
                },
            ),
            profile=profile,
            policy=policy,
            rerankers=Chain(stage2),
            options=DecisionOptions(**request),
        )
    )


def dropped(result: RouteResult) -> dict[str, str | None]:
    return {hit.id: hit.dropped for hit in result.hits}


# Floors.


@pytest.mark.parametrize(
    ("section", "grade", "floor", "passing"),
    [
        (None, None, 0.5, "abc"),
        ("exit_strategy", None, 0.38, "abcd"),
        ("strict", "A", 0.86, "a"),
        ("strict", "B", 0.86, "a"),
        (None, "C", 0.375, "abcd"),
        ("exit_strategy", "d", 0.255, "abcde"),
        ("strict", "F", 0.735, "abc"),
    ],
)
def test_floor_of_the_section_drops_candidates(
    section: str | None, grade: str | None, floor: float, passing: str
) -> None:
    policy = Policy(
        floors=Floors(default=0.5, sections={"exit_strategy": 0.38, "strict": 0.86}, relax=0.125)
    )
    reader = RecordingReranker()
    result = decide(FALLS, policy, reranker=reader, section=section, grade=grade)
    assert result.trace["gate"]["floor"] == pytest.approx(floor)
    assert "".join(sorted(reader.read)) == "".join(result.ids) == passing
    assert {id for id, why in dropped(result).items() if why == "below_floor"} == (
        set("abcde") - set(passing)
    )
    assert result.degraded == ()


def test_cosine_equal_to_the_floor_passes() -> None:
    result = decide((0.5, 0.25), Policy(floors=Floors(default=0.25)))
    assert result.ids == ["a", "b"]


def test_no_candidate_above_the_floor_means_nothing_relevant() -> None:
    reader = RecordingReranker()
    result = decide(FALLS, Policy(floors=Floors(default=0.95)), reranker=reader)
    assert (result.verdict, result.reason, result.stage) == (
        "nothing_relevant",
        "below_floor",
        1,
    )
    assert set(dropped(result).values()) == {"below_floor"}
    assert reader.calls == []
    assert is_replayable(result.trace)


def test_floor_applies_if_stage_1_decides() -> None:
    fitted = BY_COSINE.replace(winner={"agreed": 0.01})
    result = decide(FALLS, Policy(floors=Floors(default=0.5)), profile=fitted)
    assert (result.verdict, result.ids) == ("confident", ["a", "b", "c"])
    # Dropped candidates still count for the first candidate's lead, which is too small here.
    fitted = BY_COSINE.replace(winner={"agreed": 0.45})
    alone = decide((0.9, 0.5, 0.4), Policy(floors=Floors(default=0.6)), profile=fitted)
    assert (alone.verdict, alone.ids) == ("ambiguous", ["a"])
    fitted = BY_COSINE.replace(winner={"agreed": 0.35})
    alone = decide((0.9, 0.5, 0.4), Policy(floors=Floors(default=0.6)), profile=fitted)
    assert (alone.verdict, alone.ids) == ("confident", ["a"])
    failed = decide(FALLS, Policy(floors=Floors(default=0.5)), reranker=FailingReranker())
    assert (failed.reason, failed.ids) == ("undecided", ["a", "b", "c"])


def test_section_without_floors_has_no_effect() -> None:
    plain, named = decide(FALLS, Policy()), decide(FALLS, Policy(), section="x", grade="D")
    assert plain.ids == named.ids == list("abcde")
    assert named.degraded == ()
    assert named.trace["gate"]["floor"] is None


def test_route_and_rerank_take_section_and_grade() -> None:
    policy = Policy(floors=Floors(default=1.0, sections={"open": -1.0}, relax=2.0))
    router = Router(build(), reranker=LengthReranker(), profile=Profile(), policy=policy)
    assert router.route("clean csv").reason == "below_floor"
    assert router.route("clean csv", section="open").ids
    assert router.route("clean csv", grade="C").ids
    candidates = [{"text": text, "cosine": 0.5} for text in LIBRARY.values()]
    options: dict[str, Any] = {"reranker": LengthReranker(), "policy": policy}
    assert rerank("clean csv", candidates, **options).reason == "below_floor"
    assert len(rerank("clean csv", candidates, section="open", **options).ids) == len(LIBRARY)
    import asyncio

    again = asyncio.run(arerank("clean csv", candidates, section="open", **options))
    assert again.trace["request"]["section"] == "open"


# The cliff.


class FailingReranker(FunctionReranker):
    """Raises in every call."""

    def __init__(self) -> None:
        super().__init__(lambda _, texts: [][1])


class UnreliableReranker(RecordingReranker):
    """Returns the given answers from `available`, and counts its calls."""

    def __init__(self, *answers: object) -> None:
        super().__init__()
        self._answers: Iterator[object] = iter(answers)
        self.asked = 0

    def available(self) -> object:
        """Return the next answer, raising it if it is an exception."""
        self.asked += 1
        answer = next(self._answers)
        if isinstance(answer, Exception):
            raise answer
        return answer


CORE = Policy(cliff_core=2)


def test_tail_below_a_cliff_is_not_read() -> None:
    reader = RecordingReranker()
    result = decide(FALLS, CORE, reranker=reader, grade="A")
    assert reader.read == ["a", "b", "c"]
    assert result.trace["gate"]["cliff"] == {
        "cut": [3, 4],
        "effective_floor": 0.8,
        "cliff_position": 3,
        "skip_reason": None,
    }
    assert result.trace["gate"]["pool"] == [0, 1, 2]
    assert not result.trace["request"]["reranker_down"]
    assert dropped(result) == dict.fromkeys("abc") | dict.fromkeys("de", "below_cliff")


def test_unavailable_reranker_prevents_the_cut() -> None:
    router = Router(build(), reranker=None, profile=Profile(), policy=Policy(cliff_core=1))
    result = router.route("clean csv")
    assert result.trace["request"]["reranker_down"]
    assert result.trace["gate"]["cliff"]["skip_reason"] == "reranker_unavailable"
    # An available reranker allows the cut.
    router = Router(
        build(), reranker=RecordingReranker(), profile=Profile(), policy=Policy(cliff_core=1)
    )
    assert router.route("clean csv").trace["gate"]["cliff"]["cut"]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (True, None),
        (False, "reranker_unavailable"),
        (OSError("gone"), "reranker_unavailable"),
        ("yes", None),
    ],
)
def test_availability_is_checked_before_a_cut(answer: object, reason: str | None) -> None:
    reranker = UnreliableReranker(answer)
    result = decide(FALLS, CORE, reranker=reranker)
    assert result.trace["gate"]["cliff"]["skip_reason"] == reason
    assert result.trace["request"]["reranker_down"] == (reason is not None)
    assert reranker.asked == 1
    assert reranker.read == list("abc" if reason is None else "abcde")
    assert is_replayable(result.trace)


def test_failing_stage_2_restores_the_whole_pool() -> None:
    result = decide(FALLS, CORE, reranker=FailingReranker())
    assert result.trace["gate"]["cliff"]["cut"] == [3, 4]
    assert (result.reason, result.ids) == ("undecided", list("abcde"))
    assert is_replayable(result.trace)


def test_source_types_are_read_from_the_metadata() -> None:
    rows = [
        {"id": id, "text": id, "cosine": cosine, "kind": kind}
        for id, cosine, kind in zip("abcde", FALLS, ["web", 5, None, "pdf", ["x"]], strict=True)
    ]
    options: dict[str, Any] = {"reranker": RecordingReranker(), "profile": BY_COSINE}
    named = rerank("q", rows, policy=CORE, **options).trace
    assert named["request"]["sources"] == {}
    assert named["gate"]["cliff"]["cut"] == [3, 4]
    other = Policy(cliff_core=2, source_type="kind")
    kept = rerank("q", rows, policy=other, **options).trace
    assert kept["request"]["sources"] == {"a": "web", "d": "pdf"}
    assert kept["gate"]["cliff"]["skip_reason"] == "source_diversity_loss"
    # No cliff is searched for, so the source types are not read.
    off = rerank("q", rows, policy=Policy(source_type="kind"), **options).trace
    assert off["request"]["sources"] == {}
