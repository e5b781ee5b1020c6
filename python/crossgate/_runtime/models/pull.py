"""Pulls a model from the hub, so that an interrupted download goes on later."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crossgate._runtime.models.cache import (
    LocalModel,
    check_file,
    folder,
    is_pin,
    spec,
    verified,
    verify,
    write_lock,
)
from crossgate._runtime.models.manifest import ModelFile, ModelSpec
from crossgate._support.errors import ModelError
from crossgate._support.limits import ANSWER_BYTES

if TYPE_CHECKING:
    import httpx2
    from huggingface_hub.utils.tqdm import tqdm

# Seconds before each new attempt of a request that brought nothing; any new byte starts over.
_WAITS: tuple[float, ...] = (1, 2, 4)
# A hub that asks for a longer pause than this many seconds is better tried again later.
_LONGEST_WAIT = 60


def pull(name: str, *, progress: bool = False, accept_licence: bool = False) -> LocalModel:
    """Download a model from the hub, unless it is here and verified.

    A model that the manifest does not pin is pinned by its first pull: the newest revision is
    looked up once and written to a lock file, which every later pull and load goes by.

    The files grow in a folder of another name, which takes the model's name when all of them are
    verified. What an interrupted call leaves there is continued by the next one. A second process
    that pulls the same model waits for the first and then finds it done.

    Args:
        name: The name of a model, or its repository on the hub.
        progress: Whether to draw a bar for each file on stderr, if that is a terminal.
        accept_licence: Whether the user has read and accepts `ModelSpec.terms`, if there are any.

    Raises:
        ModelError: `unknown_model`, `licence_not_accepted`, `dependency_missing`, `pull_failed`
            (the hub or the network), `pull_unwritable` (the disk), `lock_malformed`, or for a
            bundled model as `locate`.
    """
    model = spec(name)
    try:
        return verified(model)
    except ModelError:
        if model.source == "bundled":
            raise
    if model.terms and not accept_licence:
        raise ModelError(
            "licence_not_accepted",
            f"{model.name} is under {model.licence}: {model.terms}; if you accept that, run: "
            f"crossgate models pull {model.name} --accept-licence",
        )
    for package in ("huggingface_hub", "httpx2", "filelock"):
        if find_spec(package) is None:
            message = f"pulling a model needs {package}; run: pip install 'huggingface_hub>=2.4'"
            raise ModelError("dependency_missing", message)
    import filelock

    root = folder(model.name)
    try:
        root.parent.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(root.with_name(f".{model.name}.lock")):
            # Another process may have been here while this one waited for the lock.
            model = spec(model.name)
            if not model.pinned:
                model = _resolve(model)
                write_lock(model)
            # The revision is in the name, so that a newer crossgate never continues an older file.
            partial = root.with_name(f".partial-{model.name}-{(model.revision or '')[:8]}")
            if not all(check.ok for check in verify(model.name)):
                for file in model.files:
                    _download(model, file, partial / file.path, progress=progress)
                _replace_folder(partial, root)
    except OSError as error:
        raise _unwritable(model, root.parent, error) from error
    return verified(model)


def _download(model: ModelSpec, file: ModelFile, target: Path, *, progress: bool) -> None:
    """Bring one file of the hub to `target`, continuing what is there, and verify it.

    The hub's client gives the address, the token, the proxies and the connection; the loop is our
    own, because `hf_hub_download` throws away what an interrupted process had, waits for as long
    as a server asks, and logs addresses with the user's credentials in them.
    """
    import time

    client, headers = _connect()
    from huggingface_hub import hf_hub_url
    from huggingface_hub.utils.tqdm import tqdm

    url = hf_hub_url(model.repository or "", file.path, revision=model.revision)
    target.parent.mkdir(parents=True, exist_ok=True)
    most = have = _length(target)
    attempt = 0
    with tqdm(  # type: ignore[no-untyped-call]
        desc=file.path,
        total=file.size,
        initial=min(have, file.size),
        unit="B",
        unit_scale=True,
        disable=None if progress else True,  # None: only on a terminal
    ) as bar:
        while have < file.size:
            failure, pause = _request(client, url, headers, target, file.size, bar)
            have = _length(target)
            if have >= file.size:
                break
            # Only more bytes than ever before are progress: a server with a shorter file, or one
            # that ignores ranges, could otherwise keep this going forever.
            attempt = 1 if have > most else attempt + 1
            most = max(most, have)
            if attempt > len(_WAITS) or pause is None or pause > _LONGEST_WAIT:
                kept = "; what has arrived is kept for the next pull" if have else ""
                raise ModelError("pull_failed", f"{_public(url)}: {failure}{kept}")
            time.sleep(max(pause, _WAITS[attempt - 1]))
    check = check_file(file, target)
    if not check.ok:
        target.unlink(missing_ok=True)
        message = (
            f"{_public(url)} {check.detail}; it was thrown away, pull again; "
            "if it stays so, the server sends another file than the pinned one"
        )
        raise ModelError("pull_failed", message)


def _resolve(model: ModelSpec) -> ModelSpec:
    """Return a model pinned to the newest revision on the hub, with size and sha256 of its files.

    The hub knows the sha256 of what lies in its object store. Smaller files are read once, checked
    against their git blob id, and hashed here.

    Raises:
        ModelError: `pull_failed` if the hub does not answer, or has no such file.
    """
    import json
    import re

    from huggingface_hub import constants, hf_hub_url

    address = f"{constants.ENDPOINT}/api/models/{model.repository}?blobs=true"
    try:
        listing = json.loads(_read(address))
        revision = str(listing["sha"])
        there = {sibling["rfilename"]: sibling for sibling in listing["siblings"]}
        if not re.fullmatch("[0-9a-f]{40}", revision):
            raise ValueError(revision)
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise _no_description(address) from error
    files = []
    for file in model.files:
        if file.path not in there:
            raise ModelError(
                "pull_failed",
                f"{model.repository} has no {file.path} at {revision[:8]}: export the model to "
                "ONNX and use the folder in place of the name; see docs/models.md",
            )
        url = hf_hub_url(model.repository or "", file.path, revision=revision)
        files.append(_pin(file, there[file.path], url))
    return replace(model, revision=revision, files=tuple(files))


def _no_description(address: str) -> ModelError:
    return ModelError("pull_failed", f"{_public(address)}: is not a description of a model")


def _pin(file: ModelFile, entry: Mapping[str, Any], url: str) -> ModelFile:
    import hashlib

    if stored := entry.get("lfs"):
        pin = stored if isinstance(stored, dict) else {}
        if not is_pin(pin.get("size"), pin.get("sha256")):
            raise _no_description(url)
        return replace(file, size=pin["size"], sha256=pin["sha256"])
    content = _read(url)
    # Git's own name of a file's content, so SHA-1 whether we like it or not.
    blob = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
    if blob != entry.get("blobId"):
        raise ModelError(
            "pull_failed", f"{_public(url)} is not the file that the hub lists; pull again"
        )
    return replace(file, size=len(content), sha256=hashlib.sha256(content).hexdigest())


def _read(url: str) -> bytes:
    """Return the whole answer to one request, asking again as `_download` does."""
    import time

    client, headers = _connect()
    for attempt in range(len(_WAITS) + 1):
        content = bytearray()
        try:
            with client.stream("GET", url, headers=headers, timeout=_timeout()) as response:
                if response.status_code == 200:
                    for chunk in response.iter_bytes():
                        content += chunk
                        if len(content) > ANSWER_BYTES:
                            raise ModelError("pull_failed", f"{_public(url)}: is too long")
                    return bytes(content)
                failure, pause = _refusal(response)
        except Exception as error:
            failure, pause = _broken(error)
        if attempt == len(_WAITS) or pause is None or pause > _LONGEST_WAIT:
            break
        time.sleep(max(pause, _WAITS[attempt]))
    raise ModelError("pull_failed", f"{_public(url)}: {failure}")


def _connect() -> tuple[httpx2.Client, dict[str, str]]:
    """Return the hub client's connection pool and the headers of every request."""
    try:
        # Reads the settings, and may stumble over them.
        from huggingface_hub import constants, get_session, get_token

        token = None if constants.HF_HUB_DISABLE_IMPLICIT_TOKEN else get_token()
        client = get_session()
    except Exception as error:
        # Certificates, proxies and logins fail in too many ways to list, some with a secret in
        # the text: the name of the failure has to do.
        raise ModelError(
            "pull_failed",
            f"the hub's client does not start ({type(error).__name__}); check HF_ENDPOINT, the "
            "other HF_ variables, proxy and certificates",
        ) from None
    # The hub's own headers would send what kind of agent runs us, after asking the hub how to
    # tell. Nothing compressed: a range counts the bytes as they are sent.
    headers = {"User-Agent": "crossgate", "Accept-Encoding": "identity"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    return client, headers


def _request(
    client: httpx2.Client,
    url: str,
    headers: dict[str, str],
    target: Path,
    size: int,
    bar: tqdm,
) -> tuple[str, float | None]:
    """Append to `target` what one request yields.

    Returns:
        Why it ended early, and the least number of seconds before the next attempt makes sense,
        None if it never will.
    """
    have = _length(target)
    if have:
        headers = {**headers, "Range": f"bytes={have}-"}
    try:
        with client.stream("GET", url, headers=headers, timeout=_timeout()) as response:
            status = response.status_code
            if status == 416:  # what is here goes beyond the end of the file over there
                target.unlink()
                return "the server has a shorter file than the pinned one", None
            if status not in (200, 206):
                return _refusal(response)
            # A server that ignores the range sends the file from its start.
            with target.open("ab" if status == 206 else "wb") as stream:
                for chunk in response.iter_bytes():
                    stream.write(chunk)
                    bar.update(min(stream.tell(), size) - bar.n)
                    if stream.tell() > size:
                        break
            return f"the file ended early, expected {size} bytes", 0
    except Exception as error:
        return _broken(error)


def _timeout() -> float:
    from huggingface_hub import constants

    return float(constants.HF_HUB_DOWNLOAD_TIMEOUT)


def _broken(error: Exception) -> tuple[str, float | None]:
    """Return why a request failed, and the seconds to wait, None if asking again is useless.

    What is no failure of a request is raised again.
    """
    import httpx2
    from huggingface_hub.errors import OfflineModeIsEnabled

    match error:
        case OfflineModeIsEnabled():
            return "HF_HUB_OFFLINE is set; unset it to pull", None
        case httpx2.TimeoutException():
            return f"no answer within {_timeout():g} s (HF_HUB_DOWNLOAD_TIMEOUT)", 0
        case httpx2.ConnectError():
            return f"cannot be reached: {error}; check the network and HF_ENDPOINT", 0
        case httpx2.NetworkError() | httpx2.RemoteProtocolError():
            return "the connection broke off", 0
        case httpx2.HTTPError() | httpx2.InvalidURL() | ValueError():
            # The text of these may quote an address or a header, and so a password or a token.
            name = type(error).__name__
            return f"the request failed ({name}); check HF_ENDPOINT and HF_TOKEN", None
    raise error


def _refusal(response: httpx2.Response) -> tuple[str, float | None]:
    """Return what a status says, and the seconds to wait, None if asking again is useless."""
    status = response.status_code
    failure = f"answered {status} {response.reason_phrase}".rstrip()
    if status in (408, 429) or status >= 500:
        asked = response.headers.get("Retry-After", "")
        pause = float(asked) if asked.isdecimal() else 0.0
        return failure + (f", to be asked again in {pause:.0f} s" if pause else ""), pause
    if status in (401, 403):
        failure += "; log in with: hf auth login, or set HF_TOKEN"
    return failure, None


def _public(url: str) -> str:
    """Return an address without user, password and query, fit for a message."""
    import re

    # By hand, for a mistyped address may be one that urlsplit refuses or cuts inside the password.
    return re.sub(r"^(\w+://)?.*@", r"\1", url).partition("?")[0]


def _length(path: Path) -> int:
    return path.stat().st_size if os.path.exists(path) else 0


def _replace_folder(partial: Path, root: Path) -> None:
    import shutil

    if os.path.exists(root):
        shutil.rmtree(root)  # it was verified a moment ago, and found wanting
    partial.rename(root)


def _unwritable(model: ModelSpec, models: Path, error: OSError) -> ModelError:
    import errno

    reason = error.strerror or str(error)
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        message = (
            f"no room for {model.name} ({model.size / 1e6:.0f} MB) in {models}: {reason}; what has "
            "arrived is kept; free some, or set CROSSGATE_CACHE to a folder on another disk"
        )
    else:
        message = (
            f"cannot write {error.filename or models}: {reason}; "
            "set CROSSGATE_CACHE to a folder that you can write"
        )
    return ModelError("pull_unwritable", message)
