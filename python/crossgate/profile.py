"""Calibration profiles: every number that a decision depends on, fitted for one pair of models."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, TypeVar

from crossgate.errors import ProfileError

SCHEMA = "crossgate-profile/1"

Section = TypeVar("Section")


@dataclass(frozen=True, slots=True, kw_only=True)
class Blend:
    """How cosine and BM25 become the stage-1 score.

    Attributes:
        cosine_weight: Weight of the cosine, at least 0; only the ratio to the other counts.
        bm25_weight: Weight of the bounded BM25 score, at least 0.
        bm25_half: The BM25 score that is mapped to 0.5 by `score / (score + bm25_half)`.
    """

    cosine_weight: float = 0.7
    bm25_weight: float = 0.3
    bm25_half: float = 8.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """When stage 1 decides alone. A rule whose threshold is None is off.

    Attributes:
        relevance_cosine: Nothing is relevant where the best cosine lies below, unless words say
            otherwise; in [-1, 1].
        relevance_bm25: From this BM25 score on, words alone make something relevant. None: never.
        confident_cosine: The least cosine of a confident winner; in [-1, 1].
        confident_gap: Its least lead in cosine over the next.
        lexical_score: The least BM25 score of a lexical winner.
        lexical_gap: Its least lead in BM25 over the next.
        agreed_margin: The least lead in blend of a winner on which cosine and BM25 agree.
        disagreed_margin: The least lead in blend of a winner on which they do not.
    """

    relevance_cosine: float | None = None
    relevance_bm25: float | None = None
    confident_cosine: float | None = None
    confident_gap: float = 0.0
    lexical_score: float | None = None
    lexical_gap: float = 0.0
    agreed_margin: float | None = None
    disagreed_margin: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Which candidates stage 2 reads.

    Attributes:
        per_channel: How many candidates cosine, BM25 and their blend each bring in; at least 2.
        rerank_top_k: How many of them, best blend first, stage 2 reads at most.
        core: How many from the top always stay where the tail below a score cliff is cut; None
            to cut nothing.
    """

    per_channel: int = 10
    rerank_top_k: int = 20
    core: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Combine:
    """How the cross-encoder's logits and stage 1 become one order.

    Attributes:
        mode: `replace` takes the logits alone, `rrf` fuses the two orders by reciprocal rank,
            `weighted` adds up cosine, bounded BM25 and logit with the weights below.
        k: Constant of reciprocal rank fusion, above 0.
        cosine: Weight of the cosine under `weighted`.
        bm25: Weight of the bounded BM25 score under `weighted`.
        logit: Weight of the logit under `weighted`.
    """

    mode: Literal["replace", "rrf", "weighted"] = "rrf"
    k: float = 60.0
    cosine: float = 0.0
    bm25: float = 0.0
    logit: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Guardrails:
    """What a ranked candidate must clear to be selected. A bar that is None is off.

    Attributes:
        minimum: The least score, on the scale of the scores that are ranked.
        margin: How far below the best eligible score a score may lie.
        agreement: The least stage-1 blend, in [-1, 1], whatever the cross-encoder says.
    """

    minimum: float | None = None
    margin: float | None = None
    agreement: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A calibration profile.

    The default value has every gate rule off and no guardrail up: all candidates are reranked and
    all come back, in order. That is what is right for models and corpora that nobody fitted.

    Attributes:
        name: What to call the profile in messages.
        embedder: Identity of the embedder that the thresholds were fitted for; None for any.
        reranker: Identity of the reranker that they were fitted for; None for any.
        blend: How cosine and BM25 become one score.
        gate: When stage 1 decides alone.
        pool: Which candidates stage 2 reads.
        combine: How logits and stage 1 become one order.
        stage1_guardrails: Bars on the blend, where stage 1 decides.
        stage2_guardrails: Bars on the combined score, where stage 2 had its say.
        fitted: How the numbers were found; free-form JSON for people.
    """

    name: str = "ungated"
    embedder: str | None = None
    reranker: str | None = None
    blend: Blend = field(default_factory=Blend)
    gate: Gate = field(default_factory=Gate)
    pool: Pool = field(default_factory=Pool)
    combine: Combine = field(default_factory=Combine)
    stage1_guardrails: Guardrails = field(default_factory=Guardrails)
    stage2_guardrails: Guardrails = field(default_factory=Guardrails)
    fitted: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def from_file(cls, path: str | Path) -> Profile:
        """Read a profile from a JSON file.

        Raises:
            ProfileError: `profile_missing` or `profile_malformed`.
        """
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ProfileError("profile_missing", f"cannot read profile {path}: {error}") from error
        try:
            return cls.from_dict(json.loads(text))
        except (ValueError, RecursionError) as error:
            raise ProfileError("profile_malformed", f"profile {path}: {error}") from error
        except ProfileError as error:
            raise ProfileError(error.code, f"profile {path}: {error}") from error

    @classmethod
    def from_dict(cls, values: object) -> Profile:
        """Make a profile from JSON values, as `to_dict` returns them.

        Raises:
            ProfileError: `profile_malformed`, naming the key that is wrong.
        """
        if not isinstance(values, dict) or values.get("schema") != SCHEMA:
            raise ProfileError("profile_malformed", f'no "schema": "{SCHEMA}" in it')
        rest = {key: value for key, value in values.items() if key != "schema"}
        for one in fields(cls):
            if one.name in rest and one.name in _SECTIONS:
                rest[one.name] = _section(_SECTIONS[one.name], one.name, rest[one.name])
        for key in ("name", "embedder", "reranker"):
            if not isinstance(rest.get(key, ""), str) and (key == "name" or rest[key] is not None):
                raise ProfileError("profile_malformed", f"{key} is {rest[key]!r}: it must be text")
        if not isinstance(rest.get("fitted", {}), dict):
            raise ProfileError("profile_malformed", "fitted must be a JSON object")
        return _construct(cls, "", rest)

    def to_dict(self) -> dict[str, Any]:
        """Return the profile as JSON values."""
        return {"schema": SCHEMA, **asdict(self)}

    def check_models(self, *, embedder: str | None, reranker: str | None) -> None:
        """Refuse models that the thresholds were not fitted for.

        Args:
            embedder: Identity of the embedder in use; None if there is none.
            reranker: Identity of the reranker in use; None if there is none.

        Raises:
            ProfileError: `profile_mismatch`, naming both models.
        """
        for role, fitted, used in (
            ("embedder", self.embedder, embedder),
            ("reranker", self.reranker, reranker),
        ):
            if fitted is not None and used is not None and fitted != used:
                raise ProfileError(
                    "profile_mismatch",
                    f"profile {self.name!r} was fitted for the {role} {fitted}, not for {used}: "
                    "thresholds do not carry over; use a profile fitted for this model, or "
                    "Profile() to rerank everything",
                )


_SECTIONS: dict[str, type] = {
    "blend": Blend,
    "gate": Gate,
    "pool": Pool,
    "combine": Combine,
    "stage1_guardrails": Guardrails,
    "stage2_guardrails": Guardrails,
}


def _section(kind: type[Section], name: str, values: object) -> Section:
    if not isinstance(values, dict):
        raise ProfileError("profile_malformed", f"{name} must be a JSON object")
    for key, value in values.items():
        if key == "mode":
            fine = value in ("replace", "rrf", "weighted")
        elif kind is Pool:
            least = 2 if key == "per_channel" else 1
            fine = (value is None and key == "core") or (
                isinstance(value, int) and not isinstance(value, bool) and value >= least
            )
        else:
            optional = any(one.name == key and one.default is None for one in _fields(kind))
            fine = (value is None and optional) or (
                isinstance(value, int | float)
                and not isinstance(value, bool)
                and math.isfinite(value)
            )
        if not fine:
            raise ProfileError("profile_malformed", f"{name}.{key} is {value!r}: out of range")
    return _construct(kind, f"{name}.", values)


def _fields(kind: type) -> tuple[Any, ...]:
    return fields(kind)


def _construct(kind: type[Section], prefix: str, values: dict[str, Any]) -> Section:
    unknown = sorted(set(values) - {one.name for one in _fields(kind)})
    if unknown:
        raise ProfileError("profile_malformed", f"unknown key {prefix}{unknown[0]}")
    return kind(**values)
