"""Section floors and score cliffs: which candidates they drop before stage 2."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
from crossgate._core import Blend, Combine, Floors, Lexical
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


def test_winner_below_the_floor_does_not_win() -> None:
    # The first candidate has the best BM25 score by far; its cosine is below the floor.
    scored = [
        _core.Scored(id="words", cosine=0.1, bm25=20.0, overlap=3, blend=0.9),
        _core.Scored(id="near", cosine=0.6, bm25=1.0, overlap=1, blend=0.5),
        _core.Scored(id="close", cosine=0.58, bm25=1.0, overlap=1, blend=0.48),
    ]
    documents = {candidate.id: Document(id=candidate.id, text=candidate.id) for candidate in scored}

    def route(floor: float | None) -> RouteResult:
        return cascade.run(
            cascade.Request(
                prompt=unsplit("query"),
                stage1=lambda: Stage1(scored=scored, documents=documents),
                profile=BY_COSINE,
                policy=Policy(floors=Floors(default=floor), lexical=Lexical(score=5.0, margin=1.0)),
                rerankers=Chain(RecordingReranker()),
                options=DecisionOptions(limit=1),
            )
        )

    assert (route(None).reason, route(None).ids) == ("lexical_winner", ["words"])
    held = route(0.3)
    assert (held.reason, held.ids) == ("reranked", ["close"])
    assert dropped(held)["words"] == "below_floor"
    # The other candidates are compared with each other.
    assert held.trace["gate"]["signals"]["blend"] == 0.5
    assert is_replayable(held.trace)


def test_section_without_floors_has_no_effect() -> None:
    plain, named = decide(FALLS, Policy()), decide(FALLS, Policy(), section="x", grade="D")
    assert plain.ids == named.ids == list("abcde")
    assert named.degraded == ()
    assert named.trace["gate"]["floor"] is None


def test_low_grade_widens_the_pool() -> None:
    profile, policy = BY_COSINE.replace(pool=2), Policy(floors=Floors(widen=2))
    sizes = {
        grade: len(decide(FALLS, policy, profile=profile, grade=grade).trace["stage2"])
        for grade in (None, "A", "B", "C", "D", "F", "c")
    }
    assert sizes == {None: 2, "A": 2, "B": 2, "C": 4, "D": 4, "F": 4, "c": 4}


@pytest.mark.parametrize(
    ("request_", "cosines", "code", "said"),
    [
        ({"section": "nowhere"}, FALLS, "unknown_section", '"nowhere"'),
        ({"section": ""}, FALLS, "unknown_section", '""'),
        ({"section": "two\nlines" + 99 * "x"}, FALLS, "unknown_section", '"two\\nlines'),
        ({"grade": "E"}, FALLS, "unknown_grade", '"E"'),
        ({"grade": ""}, FALLS, "unknown_grade", '""'),
        ({"grade": "AB"}, FALLS, "unknown_grade", '"AB"'),
        ({}, (0.9, None), "floor_unmeasured", "0.3"),
    ],
)
def test_section_or_grade_without_effect_has_a_warning(
    request_: dict[str, Any], cosines: Sequence[float | None], code: str, said: str
) -> None:
    policy = Policy(floors=Floors(default=0.3, sections={"known": 0.1}, relax=0.2))
    result = decide(cosines, policy, **request_)
    assert [note.code for note in result.degraded] == [code]
    (line,) = result.degraded[0].detail.splitlines()
    assert said in line
    assert len(line) < 200
    # The default floor holds, and nothing is relaxed.
    assert result.trace["gate"]["floor"] == 0.3


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


class UnavailableReranker(RecordingReranker):
    """Is never available."""

    available = False


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


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"grade": "C"}, "low_grade"),
        ({"grade": "Z"}, "low_grade"),
        ({"reranker": UnavailableReranker()}, "reranker_unavailable"),
        ({"policy": Policy(cliff_core=5)}, "no_room"),
        ({"policy": Policy(cliff_core=3), "cosines": (0.9, 0.3, 0.29, 0.28)}, "no_cliff"),
        ({"policy": Policy(cliff_core=2, floors=Floors(default=0.5))}, "no_improvement"),
        ({"profile": BY_COSINE.replace(pool=3)}, "no_improvement"),
        ({"sources": ["web", "web", "web", "pdf", "web"]}, "source_diversity_loss"),
        ({"cosines": (0.9, 0.8, 0.2, None)}, "no_cosine"),
    ],
)
def test_cliff_is_cut_only_if_every_condition_holds(options: dict[str, Any], reason: str) -> None:
    values = {"cosines": FALLS, "policy": CORE, **options}
    result = decide(**values)
    cliff = result.trace["gate"]["cliff"]
    assert (cliff["cut"], cliff["skip_reason"]) == ([], reason)
    assert cliff["effective_floor"] == values["policy"].floors.default
    assert "below_cliff" not in dropped(result).values()
    assert is_replayable(result.trace)


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


COSINES = st.one_of(st.none(), st.integers(-20, 20).map(lambda number: number / 20))
KINDS = st.lists(st.sampled_from(["web", "pdf", "mail", None, 5]), min_size=14, max_size=14)
FLOORS = st.builds(
    Floors,
    default=st.one_of(st.none(), st.sampled_from([-0.5, 0.0, 0.2, 0.5])),
    sections=st.sampled_from([{}, {"known": 0.1}, {"known": -1.0, "other": 0.9}]),
    relax=st.sampled_from([0.0, 0.1, 3.0]),
    widen=st.integers(0, 3),
)
SECTIONS = st.sampled_from([None, "known", "unknown"])
LETTERS = st.sampled_from([None, "A", "b", "C", "d", "F", "E", ""])


@given(
    st.lists(COSINES, max_size=14),
    KINDS,
    FLOORS,
    st.one_of(st.none(), st.integers(1, 4)),
    st.integers(1, 14),
    SECTIONS,
    LETTERS,
    st.sampled_from([RecordingReranker, UnavailableReranker, FailingReranker]),
)
def test_floors_and_cuts_satisfy_their_invariants(
    cosines: list[float | None],
    kinds: list[object],
    floor: Floors,
    core: int | None,
    room: int,
    section: str | None,
    grade: str | None,
    reranker: Callable[[], FunctionReranker],
) -> None:
    policy = Policy(floors=floor, cliff_core=core)
    stage2 = reranker()
    result = decide(
        cosines,
        policy,
        profile=BY_COSINE.replace(pool=room),
        reranker=stage2,
        sources=kinds,
        section=section,
        grade=grade,
    )
    assert is_replayable(result.trace)
    trace = result.trace

    static = trace["gate"]["floor"]
    reference = floor.sections.get(section or "", floor.default)
    low = (grade or "A").upper() in "CDF" and grade != ""
    # A low grade can only lower the floor; nothing else changes it.
    assert static == (reference if reference is None or not low else reference - floor.relax)
    by_id = {row["id"]: row["cosine"] for row in trace["stage1"]}
    clear = [id for id in by_id if static is None or by_id[id] is None or by_id[id] >= static]
    below = set(by_id) - set(clear)
    assert {id for id, why in dropped(result).items() if why == "below_floor"} == below
    asked = {text for _, texts in stage2.calls for text in texts}
    assert not asked & below
    assert not set(result.ids) & below

    cliff = trace["gate"]["cliff"]
    if cliff is None:
        assert core is None or result.verdict != "ambiguous"
        return
    assert core is not None
    names = [row["id"] for row in trace["stage1"]]
    pool = clear[: room + (floor.widen if low else 0)]
    cut = {names[at] for at in cliff["cut"]}
    assert cut <= set(pool)
    assert asked == set(pool) - cut
    assert set(names[:core]) & set(pool) <= asked
    types = {name: kind for name, kind in zip("abcdefghijklmn", kinds, strict=True)}
    for id in pool:
        assert not isinstance(types[id], str) or any(types[other] == types[id] for other in asked)
    if cut:
        assert static is None or cliff["effective_floor"] > static
        assert (grade or "A") in "AbB"
        assert not isinstance(stage2, UnavailableReranker)
        assert cliff["skip_reason"] is None
    else:
        assert cliff["effective_floor"] == static
        assert cliff["skip_reason"] is not None


@given(st.lists(COSINES, max_size=8), FLOORS, SECTIONS)
def test_low_grade_never_removes_a_candidate(
    cosines: list[float | None], floor: Floors, section: str | None
) -> None:
    policy = Policy(floors=floor, cliff_core=1)
    fitted = BY_COSINE.replace(pool=8)
    good = decide(cosines, policy, profile=fitted, section=section, grade="B")
    low = decide(cosines, policy, profile=fitted, section=section, grade="C")
    assert {row["id"] for row in good.trace["stage2"]} <= {row["id"] for row in low.trace["stage2"]}


@pytest.mark.parametrize(
    ("key", "value"),
    [("cut", [3]), ("effective_floor", 0.7), ("cliff_position", 4), ("skip_reason", "no_room")],
)
def test_changed_trace_does_not_replay(key: str, value: object) -> None:
    trace = json.loads(json.dumps(decide(FALLS, CORE).trace))
    assert cascade.replay(trace)["gate"] == trace["gate"]
    trace["gate"]["cliff"][key] = value
    assert cascade.replay(trace)["gate"] != trace["gate"]


def test_grades_are_a_to_d_and_f() -> None:
    def codes(grade: str | None) -> list[str]:
        return [note.code for note in decide(FALLS, Policy(), grade=grade).degraded]

    letters = [letter for letter in map(chr, range(128)) if codes(letter) == []]
    assert letters == sorted("ABCDFabcdf")
    assert codes(None) == []
