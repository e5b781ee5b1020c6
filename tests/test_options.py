"""The options of a decision: one list for the library, the command line and the servers."""

from __future__ import annotations

import argparse
import asyncio
import math
from collections.abc import Callable
from dataclasses import fields
from functools import partial
from typing import Any

import pytest

from conftest import build, refused
from crossgate import Context, DecisionOptions, Profile, RerankOptions, Router, arerank, rerank
from crossgate import rerank_many as many
from crossgate._cli.decision_output import decision_keywords, decision_options
from crossgate._decision.rerank_candidates import RerankKeywords
from crossgate._values.options import DecisionKeywords, RouteKeywords, summary

HUGE = 10**400
NO_NUMBER: tuple[Any, ...] = (math.nan, math.inf, "1", True, [1], 0j)

BAD: list[tuple[str, str, tuple[Any, ...]]] = [
    ("limit", "out_of_range", (0, -1, 1.5, -HUGE, *NO_NUMBER)),
    ("allow", "out_of_range", ("d1", 3)),
    ("allow", "invalid_text", ([5], ["\ud83d"])),
    ("deny", "out_of_range", ("d1", 3, None)),
    ("deny", "invalid_text", ([5], ["\ud83d"])),
    ("vector", "wrong_dimension", ("red", 3, {"a": 1})),
    ("min_confidence", "out_of_range", (-0.1, 1.1, HUGE, *NO_NUMBER)),
    ("coverage", "out_of_range", (0.0, 1.0, -0.1, 90, *NO_NUMBER)),
    ("max_shortlist", "out_of_range", (0, -1, 2.5, HUGE, *NO_NUMBER)),
    ("rerank_min", "out_of_range", (1e101, -1e101, *NO_NUMBER)),
    ("rerank_margin", "out_of_range", (-1, 1e101, *NO_NUMBER)),
    ("section", "invalid_text", (5, b"A", ["A"], "\ud800")),
    ("grade", "invalid_text", (5, b"A", ["A"], "\ud800")),
]
READ_LATER: list[tuple[str, str, tuple[Any, ...]]] = [
    ("budget_ms", "out_of_range", ("1", True, math.nan)),
    ("material", "out_of_range", (3,)),
    ("material", "invalid_text", (["\ud800"], [5])),
    ("context", "out_of_range", ("rust", 3, {})),
]
OF_RERANK: list[tuple[str, str, tuple[Any, ...]]] = [
    ("language", "invalid_text", (None, 3)),
    ("keep_scores", "out_of_range", (None, 1, "no")),
    ("embed", "out_of_range", (1, "no")),
]


@pytest.mark.parametrize(("name", "code", "values"), BAD, ids=lambda value: str(value)[:20])
def test_bad_value_is_refused(name: str, code: str, values: tuple[Any, ...]) -> None:
    for value in values:
        assert name in refused(code, DecisionOptions, **{name: value})


def test_number_that_is_too_large_is_refused_with_the_largest() -> None:
    message = refused("out_of_range", DecisionOptions, max_shortlist=2**64)
    assert f"at most {2**53 - 1:,}" in message


@pytest.mark.parametrize(("name", "code", "values"), OF_RERANK, ids=lambda value: str(value)[:20])
def test_bad_value_of_rerank_is_refused(name: str, code: str, values: tuple[Any, ...]) -> None:
    for value in values:
        refused(code, RerankOptions, **{name: value})


def calls(*, allows: bool = False) -> dict[str, Callable[..., object]]:
    """Return the functions that decide, by name; with `allows` only those that take `allow`."""
    router = Router(build({"a": "red fox"}), reranker=None, profile=Profile())
    of_index = {
        "route": lambda **options: router.route("fox", **options),
        "aroute": lambda **options: asyncio.run(router.aroute("fox", **options)),
        "route_many": lambda **options: router.route_many(["fox"], **options),
        "explain": lambda **options: router.explain("fox", "a", **options),
    }
    of_candidates = {
        "rerank": lambda **options: rerank("fox", ["fox"], **options),
        "arerank": lambda **options: asyncio.run(arerank("fox", ["fox"], **options)),
        "rerank_many": lambda **options: many([("fox", ["fox"])], **options),
    }
    return of_index if allows else {**of_index, **of_candidates}


def test_every_function_checks_its_options() -> None:
    for name, code, values in (BAD[0], *READ_LATER):
        for call in calls().values():
            for value in values:
                refused(code, call, **{name: value})


@pytest.mark.parametrize("name", ["k", "top_k", "top_n", "nonsense"])
def test_unknown_argument_is_refused_with_the_right_name(name: str) -> None:
    remedy = "" if name == "nonsense" else ": use limit="
    search: Callable[..., object] = partial(build({"a": "red fox"}).search, "fox")
    for function, call in {**calls(), "search": search}.items():
        with pytest.raises(TypeError) as caught:
            call(**{name: 3})
        expected = f"{function}() got an unexpected keyword argument {name!r}{remedy}"
        assert str(caught.value) == expected


def test_rerank_takes_no_list_of_ids() -> None:
    for function in calls().keys() - calls(allows=True).keys():
        for name in ("allow", "deny"):
            with pytest.raises(TypeError, match=name):
                calls()[function](**{name: ["a"]})


def test_iterator_of_ids_serves_every_query() -> None:
    router = Router(build(), reranker=None, profile=Profile())
    for result in router.route_many(["csv", "pdf"], allow=iter(["translator"]), deny=iter(())):
        assert [hit.id for hit in result.hits] == ["translator"]


def test_keyword_arguments_are_the_attributes() -> None:
    """The types are equal, too, so that an editor and a decision accept the same values."""

    def types(kind: type) -> dict[str, str]:
        return {name: of.__forward_arg__ for name, of in kind.__annotations__.items()}

    attributes = {each.name: each.type for each in fields(DecisionOptions)}
    assert types(RouteKeywords) == attributes
    assert attributes.keys() - types(DecisionKeywords).keys() == {"allow", "deny"}
    attributes |= {each.name: each.type for each in fields(RerankOptions)}
    assert types(RerankKeywords) == {
        name: of for name, of in attributes.items() if name not in ("allow", "deny")
    }


@pytest.mark.parametrize("kind", [DecisionOptions, RerankOptions])
def test_every_option_is_described(kind: type[DecisionOptions]) -> None:
    inherited = () if kind is DecisionOptions else fields(DecisionOptions)
    for each in fields(kind):
        if each not in inherited:
            assert summary(each.name, kind).endswith("."), each.name


def test_command_line_has_the_options_with_their_limits() -> None:
    parser = argparse.ArgumentParser()
    decision_options(parser, limit="2")
    assert "--min-confidence C" in parser.format_help()
    assert "(default: 2)" in parser.format_help()
    options = parser.parse_args(["--coverage", "0.9", "--deny", "a", "--deny", "b"])
    keywords = decision_keywords(options)
    assert keywords == {"coverage": 0.9, "deny": ["a", "b"], "context": None}
    assert DecisionOptions(**keywords).deny == {"a", "b"}


def test_server_has_the_options_with_their_limits() -> None:
    formats = pytest.importorskip("crossgate._serving.wire_formats", reason="no extra serve")
    request = formats.DecisionRequest
    for name, of in request.model_fields.items():
        if name != "query":
            assert of.description == summary(name)
    schema = request.model_json_schema()["properties"]
    assert schema["coverage"]["anyOf"][0] == {
        "type": "number",
        "exclusiveMinimum": 0,
        "exclusiveMaximum": 1,
    }
    assert schema["limit"]["anyOf"][0]["minimum"] == 1


def test_options_can_be_used_again() -> None:
    context = Context(technologies=("rust",))
    options = DecisionOptions.of("route", {"context": context, "rerank_min": 1})
    assert (options.context, options.rerank_min, options.limit) == (context, 1, None)
