"""The public names: importable, sorted, documented, and of one version."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

import crossgate
from crossgate._support import errors as errors_module


@pytest.mark.parametrize("name", crossgate.__all__)
def test_public_name_can_be_imported_and_is_documented(name: str) -> None:
    value = getattr(crossgate, name)
    if inspect.isclass(value) or inspect.isfunction(value):
        assert value.__module__.startswith("crossgate.")
        assert value.__name__ == name
        assert value.__doc__


def test_no_other_name_is_public() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        crossgate.nonsense  # type: ignore[attr-defined]  # noqa: B018
    names: dict[str, object] = {}
    exec("from crossgate import *", names)
    assert set(names) - {"__builtins__"} == set(crossgate.__all__)


def test_rerankers_can_be_imported_and_are_documented() -> None:
    from crossgate import rerankers as tiers

    assert dir(tiers) == sorted(tiers.__all__)
    assert all(getattr(tiers, name).__doc__ for name in tiers.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        tiers.nonsense  # type: ignore[attr-defined]  # noqa: B018


def test_every_error_has_the_base_class_and_keeps_its_code() -> None:
    errors = [getattr(crossgate, name) for name in crossgate.__all__ if name.endswith("Error")]
    defined = vars(errors_module).values()
    assert set(errors) == {value for value in defined if inspect.isclass(value)}
    for kind in errors:
        error = kind("some_code", "what to do")
        assert isinstance(error, crossgate.CrossgateError)
        assert (error.code, str(error)) == ("some_code", "what to do")
    assert issubclass(crossgate.InputError, ValueError)


def test_every_code_is_documented() -> None:
    from crossgate._values import results

    root = Path(__file__).parents[1]
    page = (root / "docs" / "reasons.md").read_text(encoding="utf-8")
    documented = set(re.findall(r"`([a-z0-9_]+)`", page))
    used = (
        {verdict.value for verdict in crossgate.Verdict}
        | set(results.REASONS)
        | set(results.DROPPED)
    )
    package = Path(crossgate.__file__).parent
    for path in (*package.rglob("*.py"), *(root / "rust").rglob("src/*.rs")):
        text = path.read_text(encoding="utf-8")
        used |= set(re.findall(r'ResultWarning\(\s*code="([a-z_]+)",', text))
        used |= set(re.findall(r'Degradation\(\s*code="([a-z_]+)",', text))
        used |= set(re.findall(r'Error(?:::input|::file|::profile)?\(\s*"([a-z_]+)",', text))
        # Notes and warnings of the core.
        used |= set(re.findall(r'code: "([a-z_]+)"\.to_owned\(\)', text))
        used |= set(re.findall(r'\bnote\(\s*"([a-z_]+)",', text))
    from crossgate._values import profile_files

    used |= set(profile_files._CODES.values())
    assert {"flat_scores", "weak_retrieval", "unknown_section", "no_profile"} <= used
    assert {"policy_version", "profile_malformed", "reranker_not_fitted", "other_corpus"} <= used
    assert len(used) > 40
    assert used - documented == set()


def test_command_line_explains_every_code_of_the_core() -> None:
    from crossgate._values import results

    def codes(file: str, name: str) -> set[str]:
        root = Path(__file__).parents[1] / "rust" / "core" / "src"
        text = (root / file).read_text(encoding="utf-8")
        (body,) = re.findall(rf"pub enum {name} \{{(.*?)\n    \}}", text, re.DOTALL)
        return set(re.findall(r'= "([a-z_]+)"', body))

    assert set(results.REASONS) == codes("gate.rs", "Reason")
    assert set(results.DROPPED) - {"empty"} == codes("conclude.rs", "Dropped")
    assert {verdict.value for verdict in crossgate.Verdict} == codes("gate.rs", "Verdict")
