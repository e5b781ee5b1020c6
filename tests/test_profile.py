"""Profiles and policies: a file returns what was written, and other files are refused."""

from __future__ import annotations

import copy
import json
import math
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import refused
from crossgate import (
    CrossgateError,
    Policy,
    Profile,
    ProfileError,
    _core,
    read_policy,
    read_profile,
    write_profile,
)
from crossgate._core import (
    Answer,
    AnyFits,
    Blend,
    Combine,
    EvidenceWeights,
    Floors,
    Lexical,
    Promise,
    Relevance,
    RunnerUpRule,
    Shortlist,
    Stage1AnyFits,
    Stage1Relevance,
    Stage2AnyFits,
    Stage2Relevance,
    Warnings,
    Winner,
)
from crossgate._values.profile_files import (
    POLICY_SCHEMA,
    PROFILE_SCHEMA,
    check_models,
    profile_from,
    profile_values,
)

NUMBERS = st.floats(-100, 100, allow_nan=False)
OPTIONAL = st.one_of(st.none(), NUMBERS)
SHARE = st.one_of(st.none(), st.floats(0, 1))
POSITIVE = st.floats(0.001, 100)
FROM_0 = st.one_of(st.none(), st.floats(0, 100))
COSINE = st.one_of(st.none(), st.floats(-1, 1))
NAMES = st.text(max_size=8)

MODELS = (AnyFits, Stage1AnyFits, Stage2AnyFits), (Relevance, Stage1Relevance, Stage2Relevance)


def stages(*kinds: Any, **options: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Draw a pair of models, each with numbers or absent."""
    pair, *models = kinds
    drawn = [st.builds(model, **{name: NUMBERS for name in model().to_dict()}) for model in models]
    first, second = (st.one_of(st.none(), model) for model in drawn)
    return st.builds(pair, stage1=first, stage2=second, **options)


@st.composite
def promises(draw: st.DrawFn) -> list[Promise]:
    """Draw what lists of ascending lengths promise, with shares that do not rise."""
    lengths = sorted(draw(st.sets(st.integers(1, 30), max_size=3)))
    shares = st.lists(st.floats(0, 1), min_size=1, max_size=50)
    return [
        Promise(most=length, least_shares=sorted(draw(shares), reverse=True)) for length in lengths
    ]


SHORTLISTS = st.builds(
    Shortlist,
    least=SHARE,
    coverage=st.floats(0.01, 0.99),
    most=st.integers(1, 20),
    stage1=promises(),
    stage2=promises(),
)
EVIDENCE = st.builds(EvidenceWeights, **{name: NUMBERS for name in EvidenceWeights().to_dict()})


def winner(agreed: float | None, more: float | None) -> Winner:
    """Return a winner that needs no less of a lead where the channels disagree."""
    both = agreed is not None and more is not None
    return Winner(agreed=agreed, disagreed=agreed + more if both else None)  # type: ignore[operator]


PROFILES = st.builds(
    Profile,
    name=NAMES,
    embedder=st.one_of(st.none(), NAMES),
    reranker=st.one_of(st.none(), NAMES),
    blend=st.builds(Blend, cosine_weight=POSITIVE, bm25_weight=POSITIVE, pivot=POSITIVE),
    combine=st.one_of(
        st.just(Combine.Replace()),
        st.builds(Combine.Rrf, POSITIVE),
        st.builds(Combine.ZScore, NUMBERS),
        st.builds(Combine.Weighted, NUMBERS, NUMBERS, NUMBERS),
    ),
    per_channel=st.integers(2, 99),
    pool=st.integers(1, 99),
    evidence=EVIDENCE,
    any_fits=stages(*MODELS[0]),
    answer=st.builds(Answer, rerank_threshold=SHARE, threshold=SHARE, confidence=SHARE),
    relevance=stages(*MODELS[1], threshold=SHARE),
    shortlist=SHORTLISTS,
    winner=st.builds(winner, FROM_0, FROM_0),
    runner_up=st.builds(RunnerUpRule, stage1=FROM_0, stage2=FROM_0),
    corpora=st.lists(NAMES, max_size=2),
    fitted=st.dictionaries(st.text(max_size=4), NUMBERS, max_size=2),
)
POLICIES = st.builds(
    Policy,
    floors=st.builds(
        Floors,
        default=COSINE,
        sections=st.dictionaries(st.text(max_size=4), st.floats(-1, 1), max_size=3),
        relax=st.floats(0, 2),
        widen=st.integers(0, 99),
    ),
    cliff_core=st.one_of(st.none(), st.integers(1, 9)),
    source_type=NAMES,
    lexical=st.one_of(st.none(), st.builds(Lexical, score=POSITIVE, margin=POSITIVE)),
    rerank_min=OPTIONAL,
    agreement=COSINE,
    warnings=st.builds(
        Warnings, flat_scores=FROM_0, weak_cosine=COSINE, weak_rerank_score=OPTIONAL
    ),
)


def malformed(values: object) -> str:
    """Check that these values are refused in one line, and return the line."""
    with pytest.raises(ProfileError) as caught:
        profile_from(values)
    assert caught.value.code == "profile_malformed", str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
    return str(caught.value)


@given(PROFILES)
def test_written_profile_is_read_unchanged(profile: Profile) -> None:
    assert Profile.from_dict(profile.to_dict()) == profile
    assert Profile.from_dict(json.loads(json.dumps(profile.to_dict()))) == profile
    assert profile_from(json.loads(json.dumps(profile_values(profile)))) == profile
    assert pickle.loads(pickle.dumps(profile)) == copy.deepcopy(profile) == profile
    assert profile.replace() == profile
    assert profile.replace(pool=100) != profile
    assert profile.replace(pool=100).replace(pool=profile.pool) == profile


@given(POLICIES)
def test_a_policy_that_was_written_is_read(policy: Policy) -> None:
    assert Policy.from_dict(policy.to_dict()) == policy
    assert Policy.from_dict(json.loads(json.dumps(policy.to_dict()))) == policy
    assert pickle.loads(pickle.dumps(policy)) == copy.deepcopy(policy) == policy
    assert policy.replace(cliff_core=100) != policy
    assert policy.replace(cliff_core=100).replace(cliff_core=policy.cliff_core) == policy


def test_omitted_settings_are_off() -> None:
    assert profile_from({"schema": PROFILE_SCHEMA}) == Profile.from_dict({}) == Profile()
    profile = profile_from({"schema": PROFILE_SCHEMA, "winner": {"agreed": 0.5}})
    assert profile == Profile(winner=Winner(agreed=0.5))
    for part in ("answer", "winner", "runner_up", "any_fits", "relevance"):
        assert set(Profile().to_dict()[part].values()) == {None}
    off: dict[str, Any] = {"least": None, "coverage": 0.9, "most": 5, "stage1": [], "stage2": []}
    assert Profile().to_dict()["shortlist"] == off
    policy = Policy.from_dict({"cliff_core": 2})
    assert policy == Policy(cliff_core=2)
    values = Policy().to_dict()
    assert values.pop("source_type") == "source_type"
    assert values.pop("floors") == {"default": None, "sections": {}, "relax": 0.0, "widen": 0}
    assert set(values.pop("warnings").values()) == set(values.values()) == {None}


def test_parts_may_be_given_as_dictionaries() -> None:
    assert Profile(winner={"agreed": 0.5}, combine={"mode": "rrf", "k": 9.0}) == Profile(
        winner=Winner(agreed=0.5), combine=Combine.Rrf(9.0)
    )
    assert Policy(floors={"default": 0.5}) == Policy(floors=Floors(default=0.5))


@pytest.mark.parametrize("values", [None, [], {}, "{}", {"schema": 2}, {"pool": 5}], ids=repr)
def test_file_without_a_version_is_refused(values: object) -> None:
    assert PROFILE_SCHEMA in malformed(values)


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"gait": {}}, "gait"),
        ({"gate": {"agreed_margin": 0.1}}, "gate"),
        ({"tiers": {}}, "tiers"),
        ({"floors": {}}, "floors"),
        ({"winner": {"agree": 0.5}}, "winner"),
        ({"winner": []}, "winner"),
        ({"winner": [0.1, 0.5]}, "winner: it must be a JSON object"),
        ({"winner": None}, "winner"),
        ({"winner": {"agreed": "0.5"}}, "winner.agreed"),
        ({"winner": {"agreed": True}}, "winner.agreed"),
        ({"winner": {"agreed": math.nan}}, "winner.agreed"),
        ({"winner": {"agreed": math.inf}}, "winner.agreed"),
        ({"winner": {"agreed": 10**400}}, "winner.agreed"),
        ({"winner": {"agreed": -0.1}}, "winner.agreed is -0.1"),
        ({"winner": {"disagreed": 0.1}}, "winner.agreed is absent"),
        ({"winner": {"agreed": 0.2, "disagreed": 0.1}}, "never needs a smaller margin"),
        ({"runner_up": {"stage1": -0.1}}, "runner_up.stage1"),
        ({"runner_up": {"stage2": "low"}}, "runner_up.stage2"),
        ({"per_channel": 1}, "per_channel is 1"),
        ({"per_channel": None}, "per_channel"),
        ({"pool": 0}, "pool is 0"),
        ({"pool": 2.5}, "pool"),
        ({"pool": True}, "pool"),
        ({"per_channel": 1_000_001}, "from 2 to 1000000"),
        ({"pool": 1_000_001}, "from 1 to 1000000"),
        ({"per_channel": 10**30}, "per_channel"),
        ({"pool": 10**30}, "pool"),
        ({"answer": {"threshold": 5}}, "answer.threshold is 5: it must be"),
        ({"answer": {"rerank_threshold": -0.1}}, "from 0 to 1"),
        ({"answer": {"least": 0.5}}, "least"),
        ({"answer": None}, "answer"),
        ({"answer": {"threshold": "0.5"}}, "answer.threshold"),
        ({"answer": {"rerank_threshold": math.nan}}, "answer.rerank_threshold"),
        ({"combine": {"mode": "mean"}}, "mean"),
        ({"combine": {"mode": None}}, "combine"),
        ({"combine": {}}, "mode"),
        ({"combine": {"mode": "rrf"}}, "combine"),
        ({"combine": {"mode": "rrf", "k": 0}}, "combine.k"),
        ({"combine": {"mode": "rrf", "k": -60.0}}, "combine.k"),
        (
            {"combine": {"mode": "weighted", "cosine": 1e101, "bm25": 1, "rerank_score": 1}},
            "combine.cosine",
        ),
        ({"combine": {"mode": "replace", "k": 60.0}}, "combine"),
        ({"blend": {"cosine_weight": -0.1}}, "weight"),
        ({"blend": {"cosine_weight": 0, "bm25_weight": 0}}, "weight"),
        ({"blend": {"pivot": 0}}, "pivot"),
        ({"blend": {"bm25_half": 8.0}}, "bm25_half"),
        ({"answer": {"confidence": 1.5}}, "answer.confidence is 1.5"),
        ({"confidence": {}}, "confidence"),
        ({"any_fits": {"stage1": 0}}, "any_fits.stage1"),
        ({"any_fits": {"stage2": "x"}}, "any_fits.stage2"),
        ({"any_fits": {"stage1": {"cosin": 1}}}, "cosin"),
        ({"any_fits": {"stage1": {"rerank_score": 1}}}, "rerank_score"),
        ({"any_fits": {"stage1": {"log_mean": "1"}}}, "any_fits.stage1.log_mean"),
        ({"any_fits": {"stage1": {"cosine": None}}}, "any_fits.stage1.cosine"),
        ({"any_fits": {"stage2": {"rerank_score": math.inf}}}, "stage2.rerank_score"),
        ({"relevance": {"stage1": {"unread": 1.0}}}, "unread"),
        ({"relevance": {"stage2": {"unread": True}}}, "stage2.unread"),
        ({"relevance": {"stage2": {"intercept": "0"}}}, "stage2.intercept"),
        ({"relevance": {"threshold": -0.1}}, "relevance.threshold is -0.1"),
        ({"evidence": {"triggers": 1.0}}, "triggers"),
        ({"evidence": {"trigger": math.nan}}, "evidence.trigger"),
        ({"shortlist": {"coverage": 0}}, "shortlist.coverage is 0"),
        ({"shortlist": {"coverage": 1.0}}, "shortlist.coverage is 1"),
        ({"shortlist": {"coverage": math.nan}}, "shortlist.coverage"),
        ({"shortlist": {"coverage": None}}, "shortlist.coverage"),
        ({"shortlist": {"most": 0}}, "shortlist.most is 0"),
        ({"shortlist": {"most": 2.5}}, "shortlist.most"),
        ({"shortlist": {"least": 1.01}}, "shortlist.least is 1.01"),
        ({"shortlist": {"stage1": [{"most": 5}]}}, "least_shares"),
        ({"shortlist": {"stage1": [{"most": 5, "least_shares": []}]}}, "least_shares is 0"),
        ({"shortlist": {"stage1": [{"most": 0, "least_shares": [0.5]}]}}, "[0].most is 0"),
        (
            {"shortlist": {"stage2": [{"most": 5, "least_shares": [0.5]}] * 2}},
            "shortlist.stage2[1].most is 5",
        ),
        (
            {"shortlist": {"stage2": [{"most": 5, "least_shares": [0.5, 0.6]}]}},
            "is 0.6: it must be from 0 to 0.5",
        ),
        ({"corpora": "abc"}, "corpora"),
        ({"corpora": [5]}, "corpora"),
        ({"name": 5}, "name"),
        ({"name": None}, "name"),
        ({"embedder": 5}, "embedder"),
        ({"fitted": []}, "fitted"),
        ({"fitted": {"loss": math.nan}}, "fitted"),
    ],
    ids=lambda value: repr(value)[:60],
)
def test_error_names_the_invalid_setting(values: dict[str, Any], named: str) -> None:
    assert named in malformed({"schema": PROFILE_SCHEMA, **values})
    assert named in refused("profile_malformed", Profile.from_dict, values)
    assert named in refused("profile_malformed", lambda: Profile(**values))
    assert named in refused("profile_malformed", lambda: Profile().replace(**values))


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"flours": {}}, "flours"),
        ({"floors": None}, "floors"),
        ({"floors": {"default": 1.5}}, "floors.default is 1.5: it must be"),
        ({"floors": {"default": -1.01}}, "from -1 to 1"),
        ({"floors": {"sections": [0.1]}}, "floors.sections"),
        ({"floors": {"sections": {"x": None}}}, "floors.sections.x"),
        ({"floors": {"sections": {"x": 2}}}, "floors.sections.x"),
        ({"floors": {"relax": -0.1}}, "floors.relax"),
        ({"floors": {"widen": -1}}, "floors.widen"),
        ({"floors": {"widen": 1.0}}, "floors.widen"),
        ({"floors": {"floor": 0.5}}, "floor"),
        ({"source_type": 5}, "source_type"),
        ({"cliff_core": 0}, "cliff_core is 0"),
        ({"cliff_core": 1_000_001}, "from 1 to 1000000"),
        ({"lexical": {"score": 1.0}}, "margin"),
        ({"lexical": {"score": -1.0, "margin": 0.0}}, "lexical.score"),
        ({"lexical": {"score": 1.0, "margin": -1.0}}, "lexical.margin"),
        ({"rerank_min": "low"}, "rerank_min"),
        ({"rerank_min": math.nan}, "rerank_min"),
        ({"agreement": 1.1}, "agreement is 1.1"),
        ({"warnings": {"weak_cosine": 2}}, "warnings.weak_cosine"),
        ({"warnings": {"flat_logits": 2}}, "flat_logits"),
    ],
    ids=lambda value: repr(value)[:60],
)
def test_error_names_the_invalid_setting_of_a_policy(values: dict[str, Any], named: str) -> None:
    assert named in refused("policy_malformed", Policy.from_dict, values)
    assert named in refused("policy_malformed", lambda: Policy(**values))
    assert named in refused("policy_malformed", lambda: Policy().replace(**values))


def test_a_profile_made_by_hand_is_checked_like_a_file() -> None:
    made: list[Callable[[], object]] = [
        lambda: Profile(winner=Winner(agreed=-1.0)),
        lambda: Profile(runner_up=RunnerUpRule(stage2=math.nan)),
        lambda: Profile(combine=Combine.Rrf(0.0)),
        lambda: Profile(pool=-1),
        lambda: Profile().replace(winner=Winner(disagreed=0.5)),
        lambda: Policy(floors=Floors(sections={5: 0.1, "x": 9.0})),
        lambda: Policy(floors=Floors(relax=-1.0)),
    ]
    for make in made:
        with pytest.raises(CrossgateError):
            make()


def test_a_pool_of_the_largest_size_works() -> None:
    most = Profile(per_channel=1_000_000, pool=1_000_000)
    policy = Policy(cliff_core=1_000_000, floors={"widen": 1_000_000})
    core = _core.Index("none", "", 0)
    core.upsert([("a", "", "red", "", [], "{}", None)])
    found, _ = core.search("red", None, blend=Blend(), per_channel=most.per_channel)
    assert _core.gate(found, most, policy, _core.Request(grade="C")).pool == [0]
    refused("profile_malformed", lambda: Profile(per_channel=10**30))


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"", "profile_malformed"),
        (b"{", "profile_malformed"),
        (b"[]", "profile_malformed"),
        (b'{"schema": "crossgate-profile/6", "gait": {}}', "profile_malformed"),
        (b'{"schema": "crossgate-profile/6", "pool": 0}', "profile_malformed"),
        (b'{"schema": "crossgate-profile/1"}', "profile_version"),
        (b'{"schema": "crossgate-profile/9", "gait": {}}', "profile_version"),
        (b'{"schema": "crossgate-policy/2"}', "profile_version"),
        (b"[" * 100_000, "profile_malformed"),
        (b"\xff\xfe", "profile_malformed"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_files(tmp_path: Path, content: bytes, code: str) -> None:
    path = tmp_path / "profile.json"
    path.write_bytes(content)
    message = refused(code, read_profile, path)
    assert str(path) in message
    assert ("calibrate" in message) == (code == "profile_version")


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"", "policy_malformed"),
        (b"[]", "policy_malformed"),
        (b"{}", "policy_malformed"),
        (b'{"schema": "crossgate-policy/2", "flours": {}}', "policy_malformed"),
        (b'{"schema": "crossgate-policy/2", "agreement": 2}', "policy_malformed"),
        (b'{"schema": "crossgate-policy/9"}', "policy_version"),
        (b'{"schema": "crossgate-profile/6"}', "policy_version"),
        (b"\xff\xfe", "policy_malformed"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_files_of_policies(tmp_path: Path, content: bytes, code: str) -> None:
    path = tmp_path / "policy.json"
    path.write_bytes(content)
    assert str(path) in refused(code, read_policy, path)
    assert "absent" in refused("policy_missing", read_policy, tmp_path / "absent.json")
    path.write_text(json.dumps({"schema": POLICY_SCHEMA, **Policy(cliff_core=3).to_dict()}))
    assert read_policy(path) == read_policy(str(path)) == Policy(cliff_core=3)


@given(profile=PROFILES)
def test_profile_survives_a_round_trip_through_a_file(
    profile: Profile, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("profile") / "a.json"
    for _ in range(2):  # over an earlier one, too
        write_profile(path, profile)
        assert read_profile(path) == profile
    assert path.read_bytes().isascii()
    assert [one.name for one in path.parent.iterdir()] == ["a.json"]


def test_a_profile_that_cannot_be_written(tmp_path: Path) -> None:
    for path in (tmp_path / "absent" / "a.json", tmp_path):
        assert str(path) in refused("profile_unwritable", write_profile, path, Profile())
    assert not any(tmp_path.iterdir())


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    for path, code in (
        (tmp_path / "absent.json", "profile_missing"),
        (tmp_path, "profile_unreadable"),
    ):
        said = refused(code, read_profile, path)
        assert str(path) in said


def test_the_bundled_profile_names_its_models() -> None:
    from crossgate._decision.router import DEFAULT_PROFILE

    profile = read_profile(DEFAULT_PROFILE)
    assert profile.embedder is not None
    assert profile.embedder.startswith("crossgate-embedder-minilm-l6@sha256:")
    assert profile.reranker is not None
    # A gate that never fires, or never abstains, is one on paper only.
    assert None not in profile.any_fits.to_dict().values()
    assert None not in (profile.relevance.stage1, profile.relevance.stage2)
    assert None not in (profile.answer.rerank_threshold, profile.answer.threshold)
    assert profile.winner.agreed is not None
    assert profile.shortlist.stage1
    assert profile.shortlist.stage2


def test_the_bundled_profile_fits_the_bundled_models() -> None:
    from crossgate import CrossEncoder, OnnxEmbedder
    from crossgate._decision.router import DEFAULT_PROFILE

    profile = read_profile(DEFAULT_PROFILE)
    check_models(profile, embedder=OnnxEmbedder().identity, reranker=CrossEncoder().identity)
    refused("profile_mismatch", check_models, profile, embedder="other", reranker=None)
