"""Pins a model on the hub, and brings its files so that an interrupted download goes on later."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crossgate._errors import ModelError
from crossgate._model_files.models import ModelFile, ModelSpec, check_file

if TYPE_CHECKING:
    import httpx2
    from huggingface_hub.utils.tqdm import tqdm

# Seconds before each new attempt of a request that brought nothing; any new byte starts over.
_WAITS: tuple[float, ...] = (1, 2, 4)
# A hub that asks for a longer pause than this many seconds is better tried again later.
_LONGEST_WAIT = 60
# Most bytes of an answer that is read whole. The hub keeps larger files in its object store, and
# says what their digest is.
_LARGEST_ANSWER = 32_000_000


def download(model: ModelSpec, file: ModelFile, target: Path, *, progress: bool) -> None:
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
            # that ignores ranges, could otherwise keep this going for ever.
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


def resolve(model: ModelSpec) -> ModelSpec:
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
        there = {one["rfilename"]: one for one in listing["siblings"]}
        if not re.fullmatch("[0-9a-f]{40}", revision):
            raise ValueError(revision)
    except (ValueError, LookupError, TypeError) as error:
        raise ModelError("pull_failed", f"{_public(address)}: is no description") from error
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


def _pin(file: ModelFile, entry: Mapping[str, Any], url: str) -> ModelFile:
    import hashlib

    if stored := entry.get("lfs"):
        return replace(file, size=int(stored["size"]), sha256=str(stored["sha256"]))
    content = _read(url)
    # Git's own name of a file's content, so SHA-1 whether we like it or not.
    blob = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
    if blob != entry.get("blobId"):
        raise ModelError(
            "pull_failed", f"{_public(url)} is not the file that the hub lists; pull again"
        )
    return replace(file, size=len(content), sha256=hashlib.sha256(content).hexdigest())


def _read(url: str) -> bytes:
    """Return the whole answer to one request, asking again as `download` does."""
    import time

    client, headers = _connect()
    for attempt in range(len(_WAITS) + 1):
        content = bytearray()
        try:
            with client.stream("GET", url, headers=headers, timeout=_timeout()) as response:
                if response.status_code == 200:
                    for chunk in response.iter_bytes():
                        content += chunk
                        if len(content) > _LARGEST_ANSWER:
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
    return path.stat().st_size if path.exists() else 0
