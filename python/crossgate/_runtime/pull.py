"""Pulls a model from the hub, with resumable and verified downloads."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crossgate._runtime.model_files import (
    LocalModel,
    ModelFile,
    ModelSpec,
    check_file,
    folder,
    is_pin,
    spec,
    verified,
    verify,
    write_lock,
)
from crossgate._support.errors import ModelError
from crossgate._support.limits import ANSWER_BYTES
from crossgate._support.sanitize import sanitize_line
from crossgate._support.wording import counted

if TYPE_CHECKING:
    import httpx2
    from huggingface_hub.utils.tqdm import tqdm

# Seconds before each retry of a request without progress; any new byte resets the count.
_WAITS: tuple[float, ...] = (1, 2, 4)
# If the hub asks for a longer pause, in seconds, the pull fails.
_LONGEST_WAIT = 60


def pull(name: str, *, progress: bool = False, accept_licence: bool = False) -> LocalModel:
    """Download a model from the hub, unless it is already present and verified.

    The first pull of an unpinned model looks up the newest revision and writes it to a lock file,
    which later pulls and loads follow.

    Files are downloaded to a temporary folder, which is renamed when all of them are verified. The
    next call resumes an interrupted download. A second process that pulls the same model waits for
    the first one.

    Args:
        name: The name of a model, or its repository on the hub.
        progress: Whether to show a progress bar for each file on stderr, if that is a terminal.
        accept_licence: Whether the user accepts `ModelSpec.terms`.

    Raises:
        ModelError: `unknown_model`, `licence_not_accepted`, `dependency_missing`, `pull_failed`
            (the hub or the network), `pull_unwritable` (the disk), `lock_malformed`, or for a
            bundled model, or one of an extra, as `locate`.
    """
    model = spec(name)
    try:
        return verified(model)
    except ModelError:
        if model.source != "hub":
            raise
    if model.terms and not accept_licence:
        raise ModelError(
            "licence_not_accepted",
            f"{model.name} has the licence {model.licence}: {model.terms}; to accept it, run: "
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
            # Another process may have pulled the model while this one waited for the lock.
            model = spec(model.name)
            if not model.pinned:
                model = _resolve(model)
                write_lock(model)
            # The name contains the revision, so that a newer crossgate does not resume older files.
            partial = root.with_name(f".partial-{model.name}-{(model.revision or '')[:8]}")
            if not all(check.ok for check in verify(model.name)):
                for file in model.files:
                    _download(model, file, partial / file.path, progress=progress)
                _replace_folder(partial, root)
    except OSError as error:
        raise _unwritable(model, root.parent, error) from error
    return verified(model)


def _download(model: ModelSpec, file: ModelFile, target: Path, *, progress: bool) -> None:
    """Download one file of the hub to `target`, resuming a partial file, and verify it.

    The hub's client provides address, token, proxies and connection. Its `hf_hub_download` is not
    used: it discards partial files, waits as long as a server asks, and logs addresses that contain
    credentials.
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
            # Only a new maximum of bytes is progress, by at least a thousandth of the file.
            # Otherwise a server with a shorter file, or one that ignores ranges or sends a few
            # bytes at a time, could keep the loop running forever.
            attempt = 1 if have > most + file.size // 1_000 else attempt + 1
            most = max(most, have)
            if attempt > len(_WAITS) or pause is None or pause > _LONGEST_WAIT:
                kept = "; the next pull resumes the download" if have else ""
                raise ModelError("pull_failed", f"{_public(url)}: {failure}{kept}")
            time.sleep(max(pause, _WAITS[attempt - 1]))
    check = check_file(file, target)
    if not check.ok:
        target.unlink(missing_ok=True)
        message = (
            f"{_public(url)} {check.detail}; the file was deleted, pull again; if the error "
            "persists, the server has another file than the pinned one"
        )
        raise ModelError("pull_failed", message)


def _resolve(model: ModelSpec) -> ModelSpec:
    """Return a model pinned to the newest revision on the hub, with size and sha256 of its files.

    The hub lists the sha256 of files in its object store. Smaller files are downloaded, checked
    against their git blob id, and hashed.

    Raises:
        ModelError: `pull_failed` if the hub does not answer or lacks a file.
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
    return ModelError("pull_failed", f"{_public(address)}: malformed description of a model")


def _pin(file: ModelFile, entry: Mapping[str, Any], url: str) -> ModelFile:
    import hashlib

    if stored := entry.get("lfs"):
        pin = stored if isinstance(stored, dict) else {}
        if not is_pin(pin.get("size"), pin.get("sha256")):
            raise _no_description(url)
        return replace(file, size=pin["size"], sha256=pin["sha256"])
    content = _read(url)
    # The blob id of git is a SHA-1.
    blob = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
    if blob != entry.get("blobId"):
        raise ModelError(
            "pull_failed", f"{_public(url)} differs from the file that the hub lists; pull again"
        )
    return replace(file, size=len(content), sha256=hashlib.sha256(content).hexdigest())


def _read(url: str) -> bytes:
    """Return the whole response of a request, with the same retries as `_download`."""
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
                            raise ModelError("pull_failed", f"{_public(url)}: too long")
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
        # The import reads settings, and may fail.
        from huggingface_hub import constants, get_session, get_token

        token = None if constants.HF_HUB_DISABLE_IMPLICIT_TOKEN else get_token()
        client = get_session()
    except Exception as error:
        # Only the type of the error is shown: its text may contain a secret.
        raise ModelError(
            "pull_failed",
            f"the hub's client does not start ({type(error).__name__}); check HF_ENDPOINT, the "
            "other HF_ variables, proxy and certificates",
        ) from None
    # The client's own headers would identify the agent that runs crossgate. No compression, since
    # a range counts the transmitted bytes.
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
    """Append the response of one request to `target`.

    Returns:
        Why the response ended early, and the minimum seconds before a retry; None for no retry.
    """
    have = _length(target)
    if have:
        headers = {**headers, "Range": f"bytes={have}-"}
    try:
        with client.stream("GET", url, headers=headers, timeout=_timeout()) as response:
            status = response.status_code
            if status == 416 and have:  # the partial file is longer than the server's file
                target.unlink()
                return "the server has a shorter file than the pinned one", None
            if status not in (200, 206):
                return _refusal(response)
            begin = f"bytes {have}-"
            if status == 206 and not response.headers.get("Content-Range", "").startswith(begin):
                return "the server sent another range than the one asked for", 0
            # A server that ignores the range sends the file from the start.
            with target.open("ab" if status == 206 else "wb") as stream:
                for chunk in response.iter_bytes():
                    stream.write(chunk)
                    bar.update(min(stream.tell(), size) - bar.n)
                    if stream.tell() > size:
                        break
            return f"the file ended early, expected {counted(size, 'byte')}", 0
    except Exception as error:
        return _broken(error)


def _timeout() -> float:
    from huggingface_hub import constants

    return float(constants.HF_HUB_DOWNLOAD_TIMEOUT)


def _broken(error: Exception) -> tuple[str, float | None]:
    """Return why a request failed, and the seconds before a retry; None for no retry.

    Other exceptions are raised again.
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
            # Their text may quote an address or a header, with a password or a token.
            name = type(error).__name__
            return f"the request failed ({name}); check HF_ENDPOINT and HF_TOKEN", None
    raise error


def _refusal(response: httpx2.Response) -> tuple[str, float | None]:
    """Return the meaning of a status, and the seconds before a retry; None for no retry."""
    status = response.status_code
    failure = f"answered {status} {sanitize_line(response.reason_phrase[:100])}".rstrip()
    if status in (408, 429) or status >= 500:
        asked = response.headers.get("Retry-After", "")
        pause = float(asked) if asked.isdecimal() else 0.0
        return failure + (f", retry after {pause:.0f} s" if pause else ""), pause
    if status in (401, 403):
        failure += "; log in with: hf auth login, or set HF_TOKEN"
    return failure, None


def _public(url: str) -> str:
    """Return an address for a message, without user, password and query."""
    import re

    # Not with urlsplit, which may reject a mistyped address or cut it inside the password.
    return re.sub(r"^(\w+://)?.*@", r"\1", url).partition("?")[0]


def _length(path: Path) -> int:
    return path.stat().st_size if os.path.exists(path) else 0


def _replace_folder(partial: Path, root: Path) -> None:
    import shutil

    if os.path.exists(root):
        shutil.rmtree(root)  # its files failed the verification
    partial.rename(root)


def _unwritable(model: ModelSpec, models: Path, error: OSError) -> ModelError:
    import errno

    reason = error.strerror or str(error)
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        message = (
            f"no room for {model.name} ({model.size / 1e6:.0f} MB) in {models}: {reason}; free "
            "space and pull again to resume, or set CROSSGATE_CACHE to a folder on another disk"
        )
    else:
        message = (
            f"cannot write {error.filename or models}: {reason}; "
            "set CROSSGATE_CACHE to a writable folder"
        )
    return ModelError("pull_unwritable", message)
