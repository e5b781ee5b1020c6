"""Reads and writes profiles and policies, and checks a profile's models."""

from __future__ import annotations

import json
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

from crossgate._core import Policy, Profile
from crossgate._support.checks import check_kind, check_path
from crossgate._support.errors import ProfileError
from crossgate._support.files import atomic_write, cannot_write, read_source
from crossgate._support.limits import SETTINGS_BYTES

PROFILE_SCHEMA = "crossgate-profile/6"
POLICY_SCHEMA = "crossgate-policy/2"

_BUNDLED = Path(__file__).parents[1] / "profiles"
PASSAGE_PROFILE = "passages"
BUNDLED_PROFILES = ("default", PASSAGE_PROFILE, "session")
"""Names of the profiles in the package."""

_Settings = TypeVar("_Settings", Profile, Policy)


def read_profile(path: str | PathLike[str]) -> Profile:
    """Read a profile from a JSON file, or a bundled profile by its name.

    The bundled profiles are `default` for requests to a router, `session` for the prompts of a
    session with an agent, and `passages` for `rerank`. A text with such a name always means the
    bundled profile, so that a file in the working folder cannot replace it; `./session` or a `Path`
    means the file.

    Raises:
        ProfileError: `profile_missing`, `profile_unreadable` or `profile_malformed`;
            `profile_version` for another version of the format, with the command that fits a new
            profile.
    """
    file = Path(check_path("profile", path))
    if isinstance(path, str) and path in BUNDLED_PROFILES:
        file = _BUNDLED / f"{path}.json"
    return _read(file, Profile, "profile", PROFILE_SCHEMA, "fit it again with `calibrate`")


def read_policy(path: str | PathLike[str]) -> Policy:
    """Read a policy from a JSON file.

    Raises:
        ProfileError: `policy_missing`, `policy_unreadable` or `policy_malformed`;
            `policy_version` for a policy of another version of the format.
    """
    file = Path(check_path("policy", path))
    return _read(file, Policy, "policy", POLICY_SCHEMA, "write it again, see docs/profile.md")


def as_profile(profile: Profile | str | PathLike[str]) -> Profile:
    """Return a profile, read from its file if a path is given.

    Raises:
        ProfileError: As `read_profile` does.
    """
    return profile if isinstance(profile, Profile) else read_profile(profile)


def as_policy(policy: Policy | str | PathLike[str] | None) -> Policy:
    """Return a policy, read from its file if a path is given; None is the default policy.

    Raises:
        ProfileError: As `read_policy` does.
    """
    if policy is None:
        return Policy()
    return policy if isinstance(policy, Policy) else read_policy(policy)


def profile_values(profile: Profile) -> dict[str, Any]:
    """Return a profile as the JSON values of its file."""
    return {"schema": PROFILE_SCHEMA, **profile.to_dict()}


def profile_from(values: object) -> Profile:
    """Create a profile from the JSON values of its file.

    Raises:
        ProfileError: `profile_malformed` or `profile_version`.
    """
    return _of(values, Profile, "profile", PROFILE_SCHEMA, "fit it again with `calibrate`")


def write_profile(path: str | PathLike[str], profile: Profile) -> None:
    """Write a profile to a JSON file atomically.

    Raises:
        ProfileError: `profile_unwritable`.
    """
    check_kind("the profile", profile, Profile, "a Profile")
    path = Path(check_path("the file", path))
    try:
        with atomic_write(path) as stream:
            json.dump(profile_values(profile), stream, indent=2)
            stream.write("\n")
    except OSError as error:
        raise unwritable(path, error) from error


def unwritable(path: Path, error: OSError) -> ProfileError:
    """Return the error for a profile that cannot be written."""
    return ProfileError("profile_unwritable", cannot_write(f"profile {path}", error))


def check_models(profile: Profile, *, embedder: str | None, reranker: str | None) -> None:
    """Check that a profile was fitted for the models in use.

    Args:
        profile: The profile.
        embedder: Identity of the embedder in use, or None.
        reranker: Identity of the reranker in use, or None.

    Raises:
        ProfileError: `profile_mismatch`, naming both models.
    """
    for role, fitted, used in (
        ("embedder", profile.embedder, embedder),
        ("reranker", profile.reranker, reranker),
    ):
        if fitted is not None and used is not None and fitted != used:
            raise ProfileError(
                "profile_mismatch",
                f"profile {profile.name!r} was fitted for the {role} {fitted}, not for {used}, and "
                "thresholds do not transfer: use a profile fitted for this model, or Profile() to "
                "rerank every query",
            )


def _read(path: Path, kind: type[_Settings], what: str, schema: str, remedy: str) -> _Settings:
    try:
        text = read_source(path, SETTINGS_BYTES).decode()
    except FileNotFoundError as error:
        raise ProfileError(_CODES[what, "missing"], f"no such {what}: {path}") from error
    except OSError as error:
        message = f"cannot read {what} {path}: {error.strerror}"
        raise ProfileError(_CODES[what, "unreadable"], message) from error
    except UnicodeDecodeError as error:
        raise ProfileError(_CODES[what, "malformed"], f"{what} {path}: it is not UTF-8") from error
    try:
        return _of(json.loads(text), kind, what, schema, remedy)
    except (ValueError, RecursionError) as error:
        raise ProfileError(_CODES[what, "malformed"], f"{what} {path}: {error}") from error
    except ProfileError as error:
        raise ProfileError(error.code, f"{what} {path}: {error}") from error


def _of(values: object, kind: type[_Settings], what: str, schema: str, remedy: str) -> _Settings:
    version = values.get("schema") if isinstance(values, dict) else None
    if not isinstance(values, dict) or not isinstance(version, str):
        raise ProfileError(_CODES[what, "malformed"], f'"schema": "{schema}" is missing')
    if version != schema:
        raise ProfileError(
            _CODES[what, "version"], f"the version is {version[:60]!r}, not {schema!r}: {remedy}"
        )
    return kind.from_dict({key: value for key, value in values.items() if key != "schema"})


_CODES = {
    ("profile", "missing"): "profile_missing",
    ("profile", "unreadable"): "profile_unreadable",
    ("profile", "malformed"): "profile_malformed",
    ("profile", "version"): "profile_version",
    ("policy", "missing"): "policy_missing",
    ("policy", "unreadable"): "policy_unreadable",
    ("policy", "malformed"): "policy_malformed",
    ("policy", "version"): "policy_version",
}
