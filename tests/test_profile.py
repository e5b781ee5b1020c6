"""Calibration profiles: a file gives back what was written, and nothing else is taken for one."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import refused
from crossgate import CrossgateError, Profile, ProfileError, _core
from crossgate._profile import (
    SCHEMA,
    Answer,
    Blend,
    Combine,
    Confidence,
    Floors,
    Gate,
    Guardrails,
    Pool,
    TierSettings,
    write_profile,
)

NUMBERS = st.floats(-100, 100, allow_nan=False)
OPTIONAL = st.one_of(st.none(), NUMBERS)
SHARE = st.one_of(st.none(), st.floats(0, 1))
POSITIVE = st.floats(0.001, 100)

MODEL = st.one_of(
    st.none(),
    st.builds(Confidence, **{one.name: NUMBERS for one in fields(Confidence)}),
)

PROFILES = st.builds(
    Profile,
    name=st.text(max_size=8),
    embedder=st.one_of(st.none(), st.text(max_size=8)),
    reranker=st.one_of(st.none(), st.text(max_size=8)),
    blend=st.builds(Blend, cosine_weight=POSITIVE, bm25_weight=POSITIVE, bm25_half=POSITIVE),
    gate=st.builds(
        Gate,
        require_overlap=st.booleans(),
        relevance_cosine=OPTIONAL,
        confident_gap=POSITIVE,
        lexical_score=OPTIONAL,
    ),
    pool=st.builds(
        Pool,
        per_channel=st.integers(2, 99),
        rerank_top_k=st.integers(1, 99),
        core=st.one_of(st.none(), st.integers(1, 9)),
    ),
    floors=st.builds(
        Floors,
        default=st.one_of(st.none(), st.floats(-1, 1)),
        sections=st.dictionaries(st.text(max_size=4), st.floats(-1, 1), max_size=3),
        relax=st.floats(0, 2),
        widen=st.integers(0, 99),
        source_type=st.text(max_size=8),
    ),
    answer=st.builds(Answer, stage1=MODEL, stage2=MODEL, floor=SHARE, least=SHARE),
    combine=st.builds(
        Combine, mode=st.sampled_from(["replace", "rrf", "weighted"]), k=POSITIVE, logit=NUMBERS
    ),
    stage1_guardrails=st.builds(Guardrails, minimum=OPTIONAL),
    stage2_guardrails=st.builds(Guardrails, margin=st.one_of(st.none(), POSITIVE)),
    tiers=st.dictionaries(
        st.text(max_size=8),
        st.builds(
            TierSettings,
            combine=st.builds(Combine, mode=st.sampled_from(["replace", "rrf"]), k=POSITIVE),
            guardrails=st.builds(Guardrails, minimum=OPTIONAL),
        ),
        max_size=2,
    ),
    corpora=st.lists(st.text(max_size=8), max_size=2).map(tuple),
    fitted=st.dictionaries(st.text(max_size=4), NUMBERS, max_size=2),
)


def malformed(values: object) -> str:
    """Check that these values are refused in one line, and return the line."""
    with pytest.raises(ProfileError) as caught:
        Profile.from_dict(values)
    assert caught.value.code == "profile_malformed", str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
    return str(caught.value)


@given(PROFILES)
def test_what_was_written_is_read(profile: Profile) -> None:
    assert Profile.from_dict(profile.to_dict()) == profile
    assert Profile.from_dict(json.loads(json.dumps(profile.to_dict()))) == profile


def test_what_is_left_out_is_off() -> None:
    assert Profile.from_dict({"schema": SCHEMA}) == Profile()
    profile = Profile.from_dict({"schema": SCHEMA, "gate": {"confident_cosine": 0.5}})
    assert profile.gate == Gate(confident_cosine=0.5)
    rules = {**Profile().to_dict()["gate"], "require_overlap": None}
    assert all(value is None or value == 0.0 for value in rules.values())


@pytest.mark.parametrize(
    ("values", "named"),
    [
        (None, "schema"),
        ([], "schema"),
        ({}, "schema"),
        ({"schema": "crossgate-profile/2"}, "schema"),
        ({"schema": SCHEMA, "gait": {}}, "gait"),
        ({"schema": SCHEMA, "gate": {"relevance": 0.5}}, "gate.relevance"),
        ({"schema": SCHEMA, "gate": []}, "gate"),
        ({"schema": SCHEMA, "gate": None}, "gate"),
        ({"schema": SCHEMA, "gate": {"confident_cosine": "0.5"}}, "gate.confident_cosine"),
        ({"schema": SCHEMA, "gate": {"confident_cosine": True}}, "gate.confident_cosine"),
        ({"schema": SCHEMA, "gate": {"confident_cosine": math.nan}}, "gate.confident_cosine"),
        ({"schema": SCHEMA, "gate": {"confident_cosine": math.inf}}, "gate.confident_cosine"),
        ({"schema": SCHEMA, "gate": {"confident_cosine": 10**400}}, "gate.confident_cosine"),
        ({"schema": SCHEMA, "gate": {"confident_gap": None}}, "gate.confident_gap"),
        ({"schema": SCHEMA, "gate": {"require_overlap": 1}}, "gate.require_overlap"),
        ({"schema": SCHEMA, "pool": {"per_channel": 1}}, "pool.per_channel"),
        ({"schema": SCHEMA, "pool": {"per_channel": None}}, "pool.per_channel"),
        ({"schema": SCHEMA, "pool": {"rerank_top_k": 0}}, "pool.rerank_top_k"),
        ({"schema": SCHEMA, "pool": {"rerank_top_k": 2.5}}, "pool.rerank_top_k"),
        ({"schema": SCHEMA, "pool": {"rerank_top_k": True}}, "pool.rerank_top_k"),
        ({"schema": SCHEMA, "pool": {"core": 0}}, "pool.core"),
        ({"schema": SCHEMA, "pool": {"per_channel": 10**30}}, "from 2 to 1,000,000"),
        ({"schema": SCHEMA, "pool": {"rerank_top_k": 10**30}}, "from 1 to 1,000,000"),
        ({"schema": SCHEMA, "pool": {"core": 1_000_001}}, "from 1 to 1,000,000"),
        ({"schema": SCHEMA, "answer": {"least": 5}}, "answer.least is 5: it must be a"),
        ({"schema": SCHEMA, "answer": {"floor": -0.1}}, "from 0 to 1"),
        ({"schema": SCHEMA, "floors": None}, "floors"),
        ({"schema": SCHEMA, "floors": {"default": 1.5}}, "floors.default is 1.5: it must be a"),
        ({"schema": SCHEMA, "floors": {"default": -1.01}}, "from -1 to 1"),
        ({"schema": SCHEMA, "floors": {"sections": [0.1]}}, "floors.sections"),
        ({"schema": SCHEMA, "floors": {"sections": {"x": None}}}, "floors.sections.x"),
        ({"schema": SCHEMA, "floors": {"sections": {"x": 2}}}, "floors.sections.x"),
        ({"schema": SCHEMA, "floors": {"relax": -0.1}}, "floors.relax"),
        ({"schema": SCHEMA, "floors": {"widen": -1}}, "floors.widen"),
        ({"schema": SCHEMA, "floors": {"widen": 1.0}}, "floors.widen"),
        ({"schema": SCHEMA, "floors": {"source_type": 5}}, "floors.source_type"),
        ({"schema": SCHEMA, "floors": {"floor": 0.5}}, "floors.floor"),
        ({"schema": SCHEMA, "combine": {"mode": "mean"}}, "combine.mode"),
        ({"schema": SCHEMA, "combine": {"mode": None}}, "combine.mode"),
        ({"schema": SCHEMA, "combine": {"k": 0}}, "combine.k"),
        ({"schema": SCHEMA, "combine": {"k": -60.0}}, "combine.k"),
        ({"schema": SCHEMA, "blend": {"cosine_weight": -0.1}}, "blend"),
        ({"schema": SCHEMA, "blend": {"cosine_weight": 0, "bm25_weight": 0}}, "blend"),
        ({"schema": SCHEMA, "blend": {"bm25_half": 0}}, "blend.bm25_half"),
        ({"schema": SCHEMA, "stage1_guardrails": {"minimum": "low"}}, "stage1_guardrails.minimum"),
        ({"schema": SCHEMA, "answer": None}, "answer must be a JSON object"),
        ({"schema": SCHEMA, "answer": {"bar": 0.5}}, "unknown key answer.bar"),
        ({"schema": SCHEMA, "answer": {"least": "0.5"}}, "answer.least"),
        ({"schema": SCHEMA, "answer": {"floor": math.nan}}, "answer.floor"),
        ({"schema": SCHEMA, "answer": {"stage1": 0}}, "answer.stage1 must be a JSON object"),
        ({"schema": SCHEMA, "answer": {"stage2": []}}, "answer.stage2 must be a JSON object"),
        ({"schema": SCHEMA, "answer": {"stage1": {"cosin": 1}}}, "unknown key answer.stage1.cosin"),
        ({"schema": SCHEMA, "answer": {"stage1": {"cosine": "1"}}}, "answer.stage1.cosine is '1'"),
        ({"schema": SCHEMA, "answer": {"stage1": {"cosine": None}}}, "answer.stage1.cosine"),
        ({"schema": SCHEMA, "answer": {"stage2": {"logit": math.inf}}}, "answer.stage2.logit"),
        ({"schema": SCHEMA, "answer": {"stage2": {"same_first": True}}}, "stage2.same_first"),
        ({"schema": SCHEMA, "corpora": "abc"}, "corpora"),
        ({"schema": SCHEMA, "corpora": [5]}, "corpora"),
        ({"schema": SCHEMA, "name": 5}, "name"),
        ({"schema": SCHEMA, "name": None}, "name"),
        ({"schema": SCHEMA, "embedder": 5}, "embedder"),
        ({"schema": SCHEMA, "fitted": []}, "fitted"),
    ],
    ids=lambda value: repr(value)[:60],
)
def test_what_is_wrong_is_named(values: object, named: str) -> None:
    assert named in malformed(values)


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=3),
        lambda inner: (
            st.lists(inner, max_size=2)
            | st.dictionaries(
                st.sampled_from(
                    ["gate", "pool", "blend", "name", "fitted", "core", "k", "mode", "tiers"]
                ),
                inner,
                max_size=3,
            )
        ),
        max_leaves=8,
    )
)
def test_any_json_is_a_profile_or_refused(values: Any) -> None:
    given = {"schema": SCHEMA, **values} if type(values) is dict else values
    with contextlib.suppress(ProfileError):
        profile = Profile.from_dict(given)
        assert Profile.from_dict(profile.to_dict()) == profile
        # Numbers that were taken can be calculated with.
        _core.decide(
            [_core.Scored("a", cosine=0.5, bm25=1, overlap=1, blend=0.5)],
            profile.gate,
            profile.answer,
        )


def test_a_profile_made_by_hand_is_checked_like_a_file() -> None:
    made: list[Callable[[], object]] = [
        lambda: Profile(gate=Gate(relevance_cosine=math.nan)),
        lambda: Profile(stage2_guardrails=Guardrails(minimum=math.nan)),
        lambda: Profile(combine=Combine(mode="mean")),  # type: ignore[arg-type]
        lambda: Profile(pool=Pool(rerank_top_k=-1)),
        lambda: Profile(floors=Floors(sections={5: 0.1})),  # type: ignore[dict-item]
    ]
    for make in made:
        with pytest.raises(CrossgateError):
            make()


def test_a_pool_of_the_largest_size_works() -> None:
    most = Pool(per_channel=1_000_000, rerank_top_k=1_000_000, core=1_000_000)
    core = _core.Index("none", "", 0)
    core.upsert([("a", "", "red", "{}", None)])
    assert len(core.search("red", None, blend=Blend(), per_channel=most.per_channel)) == 1
    refused("profile_malformed", lambda: Pool(per_channel=10**30))


def test_a_trace_of_a_profile_is_json() -> None:
    with pytest.raises(ProfileError):
        Profile.from_dict({"schema": SCHEMA, "fitted": {"loss": math.nan}})


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"", "profile_malformed"),
        (b"{", "profile_malformed"),
        (b"[]", "profile_malformed"),
        (b'{"schema": "crossgate-profile/1", "gait": {}}', "profile_malformed"),
        (b"[" * 100_000, "profile_malformed"),
        (b"\xff\xfe", "profile_missing"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_files(tmp_path: Path, content: bytes, code: str) -> None:
    path = tmp_path / "profile.json"
    path.write_bytes(content)
    with pytest.raises(ProfileError) as caught:
        Profile.from_file(path)
    assert caught.value.code == code
    assert str(path) in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


@given(profile=PROFILES)
def test_what_is_written_to_a_file_is_read(
    profile: Profile, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("profile") / "a.json"
    for _ in range(2):  # over an earlier one, too
        write_profile(path, profile)
        assert Profile.from_file(path) == profile
    assert path.read_bytes().isascii()
    assert [one.name for one in path.parent.iterdir()] == ["a.json"]


def test_a_profile_that_cannot_be_written(tmp_path: Path) -> None:
    for path in (tmp_path / "absent" / "a.json", tmp_path):
        assert str(path) in refused("profile_unwritable", write_profile, path, Profile())
    assert not any(tmp_path.iterdir())


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    for path in (tmp_path / "absent.json", tmp_path):
        with pytest.raises(ProfileError) as caught:
            Profile.from_file(path)
        assert caught.value.code == "profile_missing"
        assert str(path) in str(caught.value)


def test_the_bundled_profile_names_its_models() -> None:
    from crossgate._router import DEFAULT_PROFILE

    profile = Profile.from_file(DEFAULT_PROFILE)
    assert profile.embedder is not None
    assert profile.embedder.startswith("crossgate-embedder-minilm-l6@sha256:")
    assert profile.reranker is not None
    # Floors and the cut of a tail are the caller's to ask for.
    assert profile.floors == Floors()
    assert profile.pool.core is None
    # A gate that never fires, or never abstains, is one on paper only.
    gate, answer = profile.gate, profile.answer
    assert None not in (answer.stage1, answer.stage2, answer.floor, answer.least)
    assert [gate.confident_cosine, gate.lexical_score, gate.agreed_margin] != [None] * 3


def test_the_bundled_profile_fits_the_bundled_models() -> None:
    from crossgate import CrossEncoder, OnnxEmbedder
    from crossgate._router import DEFAULT_PROFILE

    profile = Profile.from_file(DEFAULT_PROFILE)
    profile.check_models(embedder=OnnxEmbedder().identity, reranker=CrossEncoder().identity)
    with pytest.raises(ProfileError) as caught:
        profile.check_models(embedder="other", reranker=None)
    assert caught.value.code == "profile_mismatch"
