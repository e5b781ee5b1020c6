"""`DecisionOptions`: what a caller may choose for one decision, with checks and descriptions.

Library, command line, servers and documentation take names, limits and descriptions from here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypedDict

from crossgate._support.checks import (
    check_count,
    check_coverage,
    check_ids,
    check_keywords,
    check_limit,
    check_number,
    check_text,
    check_vector,
)

if TYPE_CHECKING:
    from crossgate._core import Policy
    from crossgate._decision.context import Context
    from crossgate._values.inputs import Material
    from crossgate._values.results import Vector

_LARGEST_SCORE = 1e100  # the core refuses larger ones


class DecisionKeywords(TypedDict, total=False):
    """The keyword arguments of every decision; `DecisionOptions` describes them."""

    limit: int | None
    vector: Vector | None
    min_confidence: float | None
    coverage: float | None
    max_shortlist: int | None
    rerank_min: float | None
    rerank_margin: float | None
    section: str | None
    grade: str | None
    budget_ms: float | None
    material: Material | None
    context: Context | None


class RouteKeywords(DecisionKeywords, total=False):
    """The keyword arguments of a decision over an index."""

    allow: Iterable[str] | None
    deny: Iterable[str]


# Keys of the metadata of an option: `check` refuses a bad value; `metavar` is the name of the value
# on the command line, which has no option without it, `parse` converts the value, and `repeated`
# says that the option may occur several times; `limits` are keywords of JSON Schema.
_POSITIVE = {"minimum": 1}


def _number(name: str, least: float, most: float, metavar: str) -> Any:
    limits = {"minimum": least, "maximum": most}
    check = partial(check_number, name, least=least, most=most)
    return field(
        default=None,
        metadata={"check": check, "metavar": metavar, "parse": float, "limits": limits},
    )


def _text(name: str, metavar: str) -> Any:
    check = partial(check_text, f"the {name}")
    return field(default=None, metadata={"check": check, "metavar": metavar})


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionOptions:
    """What a caller may choose for one decision.

    Attributes:
        limit: Maximum number of documents to select. None selects all that pass.
        allow: Consider only these ids. None considers all.
        deny: Never consider these ids.
        vector: The query's embedding, if you already have it: by the index's embedder, or, for
            `rerank`, by the embedder of the candidates' vectors.
        min_confidence: Select nothing if the confidence is lower, in [0, 1], or unknown. The
            threshold of the profile applies in any case. This minimum does not change the order,
            the stages or the shortlist.
        coverage: Probability, above 0 and below 1, with which the shortlist is to contain a fitting
            document if there is one, by default that of the profile. If no list of at most
            `max_shortlist` can promise it, `degraded` names the probability that can be.
        max_shortlist: Maximum length of the shortlist, by default that of the profile.
        rerank_min: Minimum combined score of a pick that stage 2 has read, by default the policy's.
            Like `rerank_margin`, it applies if the profile was fitted for the reranker.
        rerank_margin: How far the combined score of such a pick may be below the best one, from 0,
            by default the policy's.
        section: Section of your work, for which the policy may set a floor. A section without a
            floor gets the default floor, and `degraded` names it.
        grade: Your grade for the retrieval, A (best) to F. C, D and F relax the floor and widen the
            pool; an unknown grade has no effect, and `degraded` names it.
        budget_ms: Maximum milliseconds of the decision, from the call. A reranker that needs longer
            is skipped, and `degraded` names it; at zero or less, the order of stage 1 is final. The
            steps before stage 2 get at least 100 ms; those that need longer are skipped or stopped
            (`budget` in `degraded`). Over an index, the search always runs; the candidates of
            `rerank` keep the retriever's order if there is no time to score them.
        material: Pasted texts that belong to the query, such as code or logs. Documents are chosen
            by the rest, the request. If it names nothing ("fix this"), the whole query and the
            material are searched. With None, `Router` recognises them in the query, and `rerank`
            counts them as part of it, since they are often the subject of the search.
        context: The project and the conversation that the query comes from. Without vectors, the
            words of earlier requests count.

    Raises:
        InputError: `out_of_range`, `invalid_text` or `wrong_dimension`.
    """

    limit: int | None = field(
        default=None,
        metadata={"check": check_limit, "metavar": "N", "parse": int, "limits": _POSITIVE},
    )
    allow: Iterable[str] | None = field(default=None, metadata={"metavar": "ID", "repeated": True})
    deny: Iterable[str] = field(default=(), metadata={"metavar": "ID", "repeated": True})
    vector: Vector | None = field(default=None, metadata={"check": check_vector})
    min_confidence: float | None = _number("min_confidence", 0, 1, "C")
    coverage: float | None = field(
        default=None,
        metadata={
            "check": check_coverage,
            "metavar": "P",
            "parse": float,
            "limits": {"exclusiveMinimum": 0, "exclusiveMaximum": 1},
        },
    )
    max_shortlist: int | None = field(
        default=None,
        metadata={
            "check": partial(check_count, "max_shortlist", most=2**53 - 1),
            "metavar": "N",
            "parse": int,
            # A reader of JSON may round a larger number.
            "limits": {**_POSITIVE, "maximum": 2**53 - 1},
        },
    )
    rerank_min: float | None = _number("rerank_min", -_LARGEST_SCORE, _LARGEST_SCORE, "S")
    rerank_margin: float | None = _number("rerank_margin", 0, _LARGEST_SCORE, "S")
    section: str | None = _text("section", "NAME")
    grade: str | None = _text("grade", "LETTER")
    budget_ms: float | None = None
    material: Material | None = None
    context: Context | None = None

    def __post_init__(self) -> None:
        for each in fields(self):
            value, check = getattr(self, each.name), each.metadata.get("check")
            if check is not None and value is not None:
                check(value)
        # An iterator would be exhausted by the first of several queries.
        if self.allow is not None:
            object.__setattr__(self, "allow", frozenset(check_ids("allow", self.allow)))
        object.__setattr__(self, "deny", frozenset(check_ids("deny", self.deny)))

    @classmethod
    def of(
        cls, function: str, keywords: Mapping[str, object], accepted: type = RouteKeywords
    ) -> Self:
        """Return the options that the keyword arguments of a function name.

        Args:
            function: Name of the function, for the error.
            keywords: The arguments.
            accepted: The keyword arguments that the function takes.

        Raises:
            TypeError: For an unknown argument; it names `limit` for `k`, `top_k` and `top_n`.
            InputError: As the constructor.
        """
        check_keywords(
            function, (name for name in keywords if name not in accepted.__annotations__)
        )
        values: dict[str, Any] = dict(keywords)
        return cls(**values)

    def with_guardrails(self, policy: Policy) -> Policy:
        """Return a policy, with the guardrails of the call instead of its own."""
        own = {"rerank_min": self.rerank_min, "rerank_margin": self.rerank_margin}
        numbers = {name: float(value) for name, value in own.items() if value is not None}
        return policy.replace(**numbers) if numbers else policy


def summary(name: str, kind: type[DecisionOptions] = DecisionOptions) -> str:
    """Return the first sentence of the description of an option, from the docstring."""
    lines = re.search(rf"\n {{8}}{name}: (.*(?:\n {{12}}.*)*)", kind.__doc__ or "")
    text = " ".join(lines[1].split()) if lines else ""  # `python -OO` strips docstrings
    return re.split(r"(?<=\.) ", text)[0]
