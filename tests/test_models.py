"""The registry of models: verification, pulls and their faults."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
import os
import re
import shutil
import signal
import ssl
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
import trustme

from commands import python
from crossgate import models
from crossgate._cli import DONE, FAILURE
from crossgate._cli import run as command_line
from crossgate._runtime import model_files
from crossgate._runtime import model_files as catalogue
from crossgate._support.errors import ModelError
from hub_server import Fault, HubServer

# Nested more deeply than a parser that recurses can follow.
DEEP = b"[" * 200_000

REPOSITORY = "acme/Tiny-Ranker"
REVISION = "a1" * 20
HUB_FILES = {
    "onnx/model.onnx": hashlib.shake_256(b"model").digest(1_000_000),
    "tokenizer.json": b'{"version": "1.0"}',
}
BUNDLED_FILES = {
    "model.onnx": hashlib.shake_256(b"embedder").digest(5_000),
    "tokenizer.json": b"{}",
}


def manifest_entry(table: Mapping[str, Any], files: Mapping[str, bytes]) -> dict[str, Any]:
    """Return one model of a manifest."""
    return {
        **table,
        "files": [
            {
                "role": "model" if path.endswith(".onnx") else "tokenizer",
                "path": path,
                "size": len(content),
                "sha256": hashlib.sha256(content).hexdigest(),
            }
            for path, content in files.items()
        ],
    }


def write_manifest(bundled: Path, models: Sequence[Mapping[str, Any]]) -> None:
    """Write a manifest, to be read anew."""
    (bundled / "manifest.json").write_text(json.dumps({"models": models}), encoding="utf-8")
    catalogue._read.cache_clear()


def change_manifest(bundled: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change what a manifest says of its last model."""
    models = json.loads((bundled / "manifest.json").read_text(encoding="utf-8"))["models"]
    change(models[-1])
    write_manifest(bundled, models)


def write_files(root: Path, files: Mapping[str, bytes]) -> Path:
    """Write files below a folder, and return the folder."""
    for path, content in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(content)
    return root


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A manifest of a bundled embedder and a hub cross-encoder, in place of the shipped one."""
    bundled = tmp_path / "bundled"
    write_files(bundled / "tiny-embedder", BUNDLED_FILES)
    common: dict[str, str | int] = {"licence": "MIT", "description": "For tests."}
    embedder = {"name": "tiny-embedder", "kind": "embedder", "source": "bundled"} | common
    ranker = {"name": "tiny-ranker", "kind": "cross-encoder", "source": "hub"} | common
    pinned: dict[str, str | int] = {"repository": REPOSITORY, "revision": REVISION}
    write_manifest(
        bundled,
        [
            manifest_entry(embedder | {"max_length": 256, "dimension": 8}, BUNDLED_FILES),
            manifest_entry(ranker | {"max_length": 384} | pinned, HUB_FILES),
        ],
    )
    monkeypatch.setattr(catalogue, "BUNDLED", bundled)
    monkeypatch.setenv("CROSSGATE_CACHE", str(tmp_path / "cache"))
    return bundled


@pytest.fixture
def cached(registry: Path, tmp_path: Path) -> Path:
    """The folder of the hub's model, as a pull leaves it."""
    return write_files(tmp_path / "cache" / "models" / "tiny-ranker", HUB_FILES)


def refused(code: str, name: str | Path, kind: catalogue.ModelKind = "cross-encoder") -> str:
    """Check that a model is refused with this code and one line, and return the line."""
    with pytest.raises(ModelError) as caught:
        models.locate(name, kind)
    assert caught.value.code == code
    assert "\n" not in str(caught.value)
    return str(caught.value)


# The manifest that is shipped


def test_shipped_bundled_models_are_whole() -> None:
    bundled = [model for model in models.available() if model.source == "bundled"]
    for model in bundled:
        assert [check.detail for check in models.verify(model.name) if not check.ok] == []
        # Files are checked by the faster digest; the other one is what others know them by.
        for file in model.files:
            content = (catalogue.BUNDLED / model.name / file.path).read_bytes()
            assert hashlib.sha256(content).hexdigest() == file.sha256
            assert re.fullmatch(r"[0-9a-f]{64}", file.blake3)


# Finding a model


def test_bundled_model(registry: Path) -> None:
    digest = hashlib.sha256(BUNDLED_FILES["model.onnx"]).hexdigest()
    assert models.locate("tiny-embedder", "embedder") == models.LocalModel(
        name="tiny-embedder",
        kind="embedder",
        model=registry / "tiny-embedder" / "model.onnx",
        tokenizer=registry / "tiny-embedder" / "tokenizer.json",
        max_length=256,
        dimension=8,
        identity=f"tiny-embedder@sha256:{digest[:16]}",
        weights=registry / "tiny-embedder" / "model.onnx",
        bundled=True,
    )


@pytest.mark.parametrize("name", ["tiny-ranker", REPOSITORY])
def test_pulled_model_under_both_names(cached: Path, name: str) -> None:
    model = models.locate(name, "cross-encoder")
    assert (model.name, model.max_length, model.dimension) == ("tiny-ranker", 384, None)
    assert model.model == cached / "onnx" / "model.onnx"
    assert model.tokenizer == cached / "tokenizer.json"


@pytest.mark.usefixtures("registry")
@pytest.mark.parametrize("name", ["no-such-model", "no/such/folder", "", "nul\0", "~"])
def test_unknown_model_lists_the_known_ones(name: str) -> None:
    message = refused("unknown_model", name)
    assert repr(name) in message
    assert "tiny-embedder, tiny-ranker; or a folder" in message
    with pytest.raises(ModelError, match="known models: tiny-embedder, tiny-ranker") as caught:
        models.spec(name)
    assert caught.value.code == "unknown_model"


@pytest.mark.usefixtures("registry")
def test_model_that_was_not_pulled() -> None:
    message = refused("model_missing", REPOSITORY)
    assert message.endswith("run: crossgate models pull tiny-ranker")


@pytest.mark.usefixtures("registry")
def test_model_of_the_wrong_kind() -> None:
    message = refused("model_unsupported", "tiny-embedder")
    assert "is an embedder, but a cross-encoder is needed" in message
    assert message.endswith("choose one of tiny-ranker")


def test_altered_bundled_model_asks_for_reinstallation(registry: Path) -> None:
    (registry / "tiny-embedder" / "model.onnx").write_bytes(bytes(5_000))
    message = refused("model_altered", "tiny-embedder", "embedder")
    assert "pip install --force-reinstall crossgate" in message


def test_one_flipped_bit_is_refused(cached: Path) -> None:
    path = cached / "onnx" / "model.onnx"
    content = bytearray(path.read_bytes())
    expected = hashlib.sha256(content).hexdigest()
    content[500_000] ^= 1
    path.write_bytes(content)
    message = refused("model_altered", "tiny-ranker")
    assert str(path) in message
    assert f"has sha256 {hashlib.sha256(content).hexdigest()[:16]}" in message
    assert f"expected {expected[:16]}" in message
    assert message.endswith("run: crossgate models pull tiny-ranker")


def test_model_file_that_cannot_be_read(cached: Path) -> None:
    # A loop of links cannot be read by root either.
    path = cached / "tokenizer.json"
    path.unlink()
    path.symlink_to(path)
    assert f"{path} cannot be read: " in refused("model_incomplete", "tiny-ranker")


def test_verify_reports_every_file(cached: Path) -> None:
    assert [check.ok for check in models.verify("tiny-ranker")] == [True, True]
    (cached / "onnx" / "model.onnx").write_bytes(b"")
    (cached / "tokenizer.json").unlink()
    checks = models.verify(REPOSITORY)
    assert [check.ok for check in checks] == [False, False]
    assert [check.code for check in checks] == ["model_altered", "model_incomplete"]
    assert [check.path for check in checks] == [cached / path for path in HUB_FILES]
    assert [check.detail for check in checks] == ["has 0 bytes, expected 1,000,000", "is missing"]


def test_is_here_wants_every_file(cached: Path, registry: Path) -> None:
    assert model_files.is_here("tiny-embedder")
    assert model_files.is_here(REPOSITORY)
    (cached / "tokenizer.json").unlink()
    assert not model_files.is_here("tiny-ranker")
    shutil.rmtree(registry / "tiny-embedder")
    assert not model_files.is_here("tiny-embedder")


def test_identity_follows_the_weights(tmp_path: Path) -> None:
    root = write_files(tmp_path / "mine", BUNDLED_FILES)
    first = models.locate(root, "embedder").identity
    (root / "tokenizer.json").write_bytes(b"{ }")
    assert models.locate(root, "embedder").identity == first
    (root / "model.onnx").write_bytes(b"other weights")
    assert models.locate(root, "embedder").identity != first


# Folders


@pytest.mark.parametrize("graph", ["model.onnx", "onnx/model.onnx"])
def test_folder_in_both_layouts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, graph: str
) -> None:
    root = write_files(tmp_path / "my-model", {graph: b"weights", "tokenizer.json": b"{}"})
    monkeypatch.chdir(root)
    digest = hashlib.sha256(b"weights").hexdigest()[:16]
    for name in (root, str(root), "../my-model", "."):
        monkeypatch.chdir(root)
        model = models.locate(name, "embedder")
        monkeypatch.chdir(root.parent)  # the model is loaded later, from wherever that is
        assert model.identity == f"my-model@sha256:{digest}"
        assert model.model.samefile(root / graph)
        assert model.tokenizer.samefile(root / "tokenizer.json")
        assert (model.kind, model.dimension) == ("embedder", None)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ('{"model_max_length": 256}', 256),
        ('{"model_max_length": 1000000000000000019884624838656}', 512),
        ('{"model_max_length": 1e30}', 512),
        ('{"model_max_length": true}', 512),
        ('{"model_max_length": 0}', 512),
        ('{"model_max_length": null}', 512),
        ("{}", 512),
        ("[]", 512),
        ("not JSON", 512),
        (None, 512),
    ],
)
def test_length_of_folder(tmp_path: Path, config: str | None, expected: int) -> None:
    root = write_files(tmp_path, {"model.onnx": b"weights", "tokenizer.json": b"{}"})
    if config is not None:
        (root / "tokenizer_config.json").write_text(config, encoding="utf-8")
    assert models.locate(root, "cross-encoder").max_length == expected


@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json"])
def test_settings_of_a_folder_that_cannot_be_read(tmp_path: Path, name: str) -> None:
    root = write_files(tmp_path, {"model.onnx": b"weights", "tokenizer.json": b"{}", name: DEEP})
    assert refused("model_unsupported", root).endswith(
        f"{name} cannot be read: it is nested too deeply"
    )
    os.truncate(root / name, 8 << 30)
    assert "exceeds the limit of 1,048,576 bytes" in refused("model_unsupported", root)
    (root / name).unlink()
    os.mkfifo(root / name)
    assert "it is a named pipe, not a regular file" in refused("model_unsupported", root)


@pytest.mark.parametrize("command", ["list", "verify"])
def test_one_bad_lock_does_not_hide_the_other_models(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: str,
) -> None:
    monkeypatch.setenv("CROSSGATE_CACHE", str(tmp_path))
    name = next(model.name for model in catalogue.known() if not model.pinned)
    write_files(tmp_path / "models", {f"{name}.lock.json": DEEP})
    assert command_line(["models", command]) == (FAILURE if command == "verify" else DONE)
    shown = capsys.readouterr()
    assert "crossgate-embedder-minilm-l6" in shown.out
    assert f"{name}.lock.json is malformed" in shown.err
    assert (f"crossgate models pull {name}" in shown.out) == (command == "list")


def test_doctor_has_a_row_for_a_user_without_a_home() -> None:
    # A user without an entry in the user database has no home folder.
    rows = doctor({}, "import pwd; pwd.getpwuid = lambda uid: {}[uid]; ")
    assert rows["cache"]["state"] == "off"
    assert "set CROSSGATE_CACHE to a folder" in rows["cache"]["detail"]


def doctor(environment: dict[str, str], before: str = "") -> dict[str, dict[str, str]]:
    """Run `crossgate doctor` in a process of its own; return its rows by subject."""
    without = ("CROSSGATE_CACHE", "XDG_CACHE_HOME", "HOME")
    kept = {name: value for name, value in os.environ.items() if name not in without}
    script = before + "import sys; from crossgate._cli import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", script, "doctor", "--json"],
        env=kept | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (DONE, FAILURE), done.stderr
    return {row["what"]: row for row in json.loads(done.stdout)["checks"]}


@pytest.mark.usefixtures("registry")
def test_folder_cannot_take_the_place_of_a_known_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_files(tmp_path / "tiny-embedder", {"model.onnx": b"planted", "tokenizer.json": b"{}"})
    monkeypatch.chdir(tmp_path)
    assert models.locate("tiny-embedder", "embedder").model.read_bytes() != b"planted"
    assert models.locate("./tiny-embedder", "embedder").model.read_bytes() == b"planted"
    assert models.locate(Path("tiny-embedder"), "embedder").model.read_bytes() == b"planted"


# Where things are kept


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"CROSSGATE_CACHE": "/own", "XDG_CACHE_HOME": "/shared"}, "/own"),
        ({"CROSSGATE_CACHE": "~/own"}, "/home/user/own"),
        ({"XDG_CACHE_HOME": "/shared"}, "/shared/crossgate"),
        ({"CROSSGATE_CACHE": "", "XDG_CACHE_HOME": "relative"}, "/home/user/.cache/crossgate"),
        ({}, "/home/user/.cache/crossgate"),
    ],
)
def test_cache_folder(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], expected: str
) -> None:
    monkeypatch.delenv("CROSSGATE_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    for name, value in ({"HOME": "/home/user"} | environment).items():
        monkeypatch.setenv(name, value)
    assert model_files.cache_folder() == Path(expected)


def test_nothing_heavy_is_imported(cached: Path, registry: Path, tmp_path: Path) -> None:
    script = f"""
import sys
from pathlib import Path
from crossgate import models
from crossgate._runtime import model_files as catalogue
catalogue.BUNDLED = Path({str(registry)!r})
models.locate("tiny-ranker", "cross-encoder")
models.verify("tiny-embedder")
models.pull("tiny-ranker")
heavy = {{"numpy", "onnxruntime", "tokenizers", "huggingface_hub", "httpx2", "filelock", "tqdm"}}
print(sorted(heavy & set(sys.modules)))
"""
    assert python(script, CROSSGATE_CACHE=str(tmp_path / "cache")) == "[]\n"


# Pulling, in a process of its own: the hub's client reads its settings when it is imported

PULL = """
import json, sys, time
from pathlib import Path
from crossgate import models
from crossgate._runtime import model_files as catalogue
from crossgate._support.errors import ModelError

pauses = []
sleep = time.sleep
def short_sleep(seconds):
    pauses.append(seconds)
    sleep(min(seconds, 0.02))
time.sleep = short_sleep

catalogue.BUNDLED = Path(sys.argv[1])
print("ready", flush=True)
try:
    model = models.pull(
        sys.argv[2], progress=sys.argv[3] == "progress", accept_licence=sys.argv[4] == "accepted"
    )
    result = {"model": str(model.model), "code": "", "message": ""}
except ModelError as error:
    result = {"model": "", "code": error.code, "message": str(error)}
print(json.dumps(result | {"pauses": [pause for pause in pauses if pause >= 1]}))
"""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of a pull in a process of its own.

    Attributes:
        code: Of the error, or empty.
        message: Of the error, or empty.
        model: The graph that was pulled, or an empty path.
        pauses: The seconds that were waited between requests, where a second or more.
        stderr: All that was written there.
    """

    code: str
    message: str
    model: str
    pauses: list[float]
    stderr: str


@dataclass(frozen=True, kw_only=True)
class Puller:
    """Runs `models.pull` in processes with the registry and the cache of a test."""

    bundled: Path
    cache: Path
    endpoint: str
    accept_licence: bool = False

    @property
    def root(self) -> Path:
        """The folder that a pulled model ends in."""
        return self.cache / "models" / "tiny-ranker"

    @property
    def partial(self) -> Path:
        """The folder that a pull works in."""
        return self.cache / "models" / f".partial-tiny-ranker-{REVISION[:8]}"

    def start(
        self,
        environment: Mapping[str, str] | None = None,
        *,
        progress: bool = False,
        stderr: int = subprocess.PIPE,
        before: Callable[[], None] | None = None,
    ) -> subprocess.Popen[str]:
        """Start a pull, with only the environment variables that the test sets.

        Args:
            environment: Added to the environment.
            progress: Whether the pull may draw.
            stderr: Where stderr goes.
            before: Called in the new process first.
        """
        clean = {
            name: value
            for name, value in os.environ.items()
            if not name.upper().startswith(("HF_", "HUGGING", "CROSSGATE"))
            and not name.upper().endswith("_PROXY")
        }
        clean |= {
            "CROSSGATE_CACHE": str(self.cache),
            "HF_ENDPOINT": self.endpoint,
            "HF_HOME": str(self.cache.with_name("hub-home")),
        }
        arguments = [str(self.bundled), REPOSITORY, "progress" if progress else "silent"]
        arguments.append("accepted" if self.accept_licence else "not")
        return subprocess.Popen(
            [sys.executable, "-c", PULL, *arguments],
            env=clean | dict(environment or {}),
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            preexec_fn=before,
        )

    def finish(self, process: subprocess.Popen[str]) -> Outcome:
        """Wait for a pull."""
        stdout, stderr = process.communicate(timeout=60)
        assert process.returncode == 0, stderr
        return Outcome(**json.loads(stdout.splitlines()[-1]), stderr=stderr or "")

    def succeeds(
        self, environment: Mapping[str, str] | None = None, *, progress: bool = False
    ) -> Outcome:
        """Run a pull that must leave a whole, verified model, and nothing else."""
        outcome = self.finish(self.start(environment, progress=progress))
        assert (outcome.code, outcome.message) == ("", "")
        assert Path(outcome.model) == self.root / "onnx" / "model.onnx"
        assert {
            str(path.relative_to(self.root)): path.read_bytes()
            for path in self.root.rglob("*")
            if path.is_file()
        } == HUB_FILES
        assert not self.partial.exists()
        return outcome

    def fails(
        self,
        code: str,
        environment: Mapping[str, str] | None = None,
        *,
        before: Callable[[], None] | None = None,
    ) -> Outcome:
        """Run a pull that must fail with this code, one line, and no model."""
        outcome = self.finish(self.start(environment, before=before))
        assert outcome.code == code
        assert "\n" not in outcome.message
        assert outcome.stderr == ""
        assert not self.root.is_dir()
        return outcome


@pytest.fixture
def hub() -> Iterator[HubServer]:
    with HubServer(REPOSITORY, REVISION, HUB_FILES) as server:
        yield server


@pytest.fixture
def puller(registry: Path, tmp_path: Path, hub: HubServer) -> Puller:
    return Puller(bundled=registry, cache=tmp_path / "cache", endpoint=hub.endpoint)


def test_pull(puller: Puller, hub: HubServer) -> None:
    outcome = puller.succeeds()
    assert outcome.stderr == ""
    assert outcome.pauses == []
    assert [request.method for request in hub.requests] == ["GET"] * 3
    assert models.locate("tiny-ranker", "cross-encoder").model == Path(outcome.model)


@pytest.mark.parametrize(
    ("names", "trusted", "arrives"),
    [(["127.0.0.1"], True, True), (["example.org"], True, False), (["127.0.0.1"], False, False)],
    ids=["right", "another name", "unknown authority"],
)
def test_certificates(
    registry: Path, tmp_path: Path, names: list[str], trusted: bool, arrives: bool
) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "authority.pem")
    other = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    (authority if trusted else other).issue_cert(*names).configure_cert(context)
    with HubServer(REPOSITORY, REVISION, HUB_FILES, large=(), tls=context) as hub:
        puller = Puller(bundled=registry, cache=tmp_path / "cache", endpoint=hub.endpoint)
        environment = {"SSL_CERT_FILE": str(tmp_path / "authority.pem"), "HF_TOKEN": "hf_secret"}
        if arrives:
            puller.succeeds(environment)
            return
        message = puller.fails("pull_failed", environment).message
        assert "cannot be reached" in message
        assert "certificate" in message.lower()
        assert "hf_secret" not in message
        assert hub.requests == []  # no message, since stderr is closed


def test_pull_of_a_present_model_needs_no_network(
    puller: Puller, hub: HubServer, cached: Path
) -> None:
    puller.succeeds()
    assert hub.requests == []
    assert [path.name for path in cached.parent.iterdir()] == ["tiny-ranker"]  # not even a lock


@pytest.mark.usefixtures("registry")
@pytest.mark.parametrize("package", ["huggingface_hub", "filelock"])
def test_pull_without_the_hub_client(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ModelError, match=f"needs {package}; run: pip install") as caught:
        models.pull("tiny-ranker")
    assert caught.value.code == "dependency_missing"


def test_pull_repairs_an_altered_model(puller: Puller, cached: Path) -> None:
    (cached / "onnx" / "model.onnx").write_bytes(b"altered")
    (cached / "left-over").touch()
    puller.succeeds()


@pytest.mark.parametrize("progress", [True, False])
def test_progress_is_drawn_on_a_terminal_if_asked_for(puller: Puller, progress: bool) -> None:
    ours, theirs = os.openpty()
    termios.tcsetwinsize(theirs, (24, 100))
    process = puller.start(progress=progress, stderr=theirs)
    os.close(theirs)
    drawn = b""
    with contextlib.suppress(OSError):  # reading a closed terminal ends with EIO
        while block := os.read(ours, 65_536):
            drawn += block
    os.close(ours)
    assert puller.finish(process).code == ""
    assert (b"onnx/model.onnx: 100%" in drawn) == progress
    assert (b"tokenizer.json: 100%" in drawn) == progress
    assert bool(drawn) == progress


# Pulling: the network


def test_network_down(puller: Puller, hub: HubServer) -> None:
    hub.__exit__(None, None, None)
    address = hub.endpoint.removeprefix("http://")
    outcome = puller.fails(
        "pull_failed",
        {"HF_ENDPOINT": f"http://user:p@ssword@{address}", "HF_TOKEN": "hf_mysecret"},
    )
    url = f"http://{address}/{REPOSITORY}/resolve/{REVISION}/onnx/model.onnx"
    assert outcome.message.startswith(f"{url}: cannot be reached: ")
    assert "refused" in outcome.message
    assert outcome.pauses == [1, 2, 4]


@pytest.mark.parametrize(
    "endpoint",
    ["ftp://user:secret@host", "http://user:secret@[host", "user:secret@host"],
)
def test_invalid_address(puller: Puller, endpoint: str) -> None:
    outcome = puller.fails("pull_failed", {"HF_ENDPOINT": endpoint})
    assert "check HF_ENDPOINT" in outcome.message
    assert "secret" not in outcome.message
    assert outcome.pauses == []


def test_offline_mode_of_the_hub(puller: Puller, hub: HubServer) -> None:
    outcome = puller.fails("pull_failed", {"HF_HUB_OFFLINE": "1"})
    assert outcome.message.endswith("HF_HUB_OFFLINE is set; unset it to pull")
    assert hub.requests == []


def test_client_that_does_not_start(puller: Puller) -> None:
    outcome = puller.fails("pull_failed", {"HTTP_PROXY": "nonsense://user:secret@host"})
    assert "the hub's client does not start (ValueError)" in outcome.message
    assert "secret" not in outcome.message


def test_token_goes_only_to_the_hub(puller: Puller, hub: HubServer) -> None:
    puller.succeeds({"HF_TOKEN": "hf_mysecret"})
    sent = {request.path: request.authorization for request in hub.requests}
    assert sent == {
        f"/{REPOSITORY}/resolve/{REVISION}/onnx/model.onnx": "Bearer hf_mysecret",
        "/store/onnx/model.onnx": None,
        f"/{REPOSITORY}/resolve/{REVISION}/tokenizer.json": "Bearer hf_mysecret",
    }


def test_token_that_cannot_be_sent(puller: Puller) -> None:
    outcome = puller.fails("pull_failed", {"HF_TOKEN": "hf_mysécret"})
    assert "check HF_ENDPOINT and HF_TOKEN" in outcome.message
    assert "cret" not in outcome.message


@pytest.mark.parametrize("status", [429, 503])
def test_passing_trouble_is_waited_for(puller: Puller, hub: HubServer, status: int) -> None:
    hub.faults = [Fault(status=status, times=2)]
    assert puller.succeeds().pauses == [1, 2]


def test_pause_that_the_hub_asks_for(puller: Puller, hub: HubServer) -> None:
    hub.faults = [Fault(status=429, headers={"Retry-After": "7"}, times=1)]
    assert puller.succeeds().pauses == [7]


def test_too_long_a_pause_is_reported(puller: Puller, hub: HubServer) -> None:
    hub.faults = [Fault(status=429, headers={"Retry-After": "3600"})]
    outcome = puller.fails("pull_failed")
    assert outcome.message.endswith("answered 429 Too Many Requests, retry after 3600 s")
    assert outcome.pauses == []


def test_server_error_that_lasts(puller: Puller, hub: HubServer) -> None:
    hub.faults = [Fault(status=500, path="tokenizer.json")]
    outcome = puller.fails("pull_failed")
    assert outcome.message.endswith("/tokenizer.json: answered 500 Internal Server Error")
    assert outcome.pauses == [1, 2, 4]
    hub.faults = []
    puller.succeeds()
    assert len(hub.got("model.onnx")) == 1  # it was whole, and is not fetched again


@pytest.mark.parametrize("status", [401, 404])
def test_refusal_is_not_asked_again(puller: Puller, hub: HubServer, status: int) -> None:
    hub.faults = [Fault(status=status)]
    outcome = puller.fails("pull_failed")
    assert f"answered {status} " in outcome.message
    assert ("HF_TOKEN" in outcome.message) == (status == 401)
    assert len(hub.got("model.onnx")) == 1


def test_truncated_body_is_continued(puller: Puller, hub: HubServer) -> None:
    hub.faults = [Fault(path="model.onnx", cut=600_000, times=1)]
    puller.succeeds()
    first, second = hub.got("model.onnx")
    assert first.range is None
    assert second.range == "bytes=600000-"
    assert second.status == 206


def test_connection_that_breaks_at_every_step_still_arrives(puller: Puller, hub: HubServer) -> None:
    hub.faults = [Fault(path="model.onnx", cut=100_000)]
    puller.succeeds()
    assert len(hub.got("model.onnx")) == 10  # more than the attempts that bring nothing


def test_slow_hub_is_given_up_after_the_timeout(puller: Puller, hub: HubServer) -> None:
    hub.faults = [Fault(path="model.onnx", hold=0)]
    outcome = puller.fails("pull_failed", {"HF_HUB_DOWNLOAD_TIMEOUT": "1"})
    assert outcome.message.endswith("no answer within 1 s (HF_HUB_DOWNLOAD_TIMEOUT)")


# Pulling: the wrong content


def test_wrong_content_of_the_right_size(puller: Puller, hub: HubServer) -> None:
    wrong = bytes(1_000_000)
    hub.faults = [Fault(path="model.onnx", content=wrong)]
    outcome = puller.fails("pull_failed")
    assert "/onnx/model.onnx has sha256 " in outcome.message
    assert hashlib.sha256(wrong).hexdigest()[:16] in outcome.message
    assert hashlib.sha256(HUB_FILES["onnx/model.onnx"]).hexdigest()[:16] in outcome.message
    assert not (puller.partial / "onnx" / "model.onnx").exists()
    hub.faults = []
    puller.succeeds()
    assert hub.got("model.onnx")[-1].range is None


def test_content_that_does_not_end(puller: Puller, hub: HubServer) -> None:
    hub.faults = [Fault(path="tokenizer.json", content=bytes(50_000_000))]
    outcome = puller.fails("pull_failed")
    found = re.search(r"tokenizer\.json has ([\d,]+) bytes, expected 18", outcome.message)
    assert found is not None
    assert int(found[1].replace(",", "")) < 1_000_000  # it stopped listening
    assert not (puller.partial / "tokenizer.json").exists()


def test_shorter_file_than_the_pinned_one(puller: Puller, hub: HubServer) -> None:
    hub.faults = [Fault(path="model.onnx", content=b"short")]
    outcome = puller.fails("pull_failed")
    assert outcome.message.endswith("the server has a shorter file than the pinned one")
    assert [request.range for request in hub.got("model.onnx")] == [None, "bytes=5-"]
    hub.faults = []
    puller.succeeds()


def test_shorter_file_and_no_ranges(puller: Puller, hub: HubServer) -> None:
    hub.faults = [Fault(path="model.onnx", content=b"short", ignore_range=True)]
    assert "the file ended early" in puller.fails("pull_failed").message
    assert len(hub.got("model.onnx")) == 4  # only the first of them is progress


@pytest.mark.parametrize(
    ("status", "content_range", "said"),
    [
        (206, "bytes 5-9/1000000", "another range than the one asked for"),
        (206, "", "another range than the one asked for"),
        (416, "bytes */0", "answered 416"),
        (404, "", "answered 404 [31m" + "x" * 9),
    ],
)
def test_hostile_answer_is_refused(
    puller: Puller,
    hub: HubServer,
    monkeypatch: pytest.MonkeyPatch,
    status: int,
    content_range: str,
    said: str,
) -> None:
    monkeypatch.setitem(BaseHTTPRequestHandler.responses, 404, ("\x1b[31m" + "x" * 999, ""))
    hub.faults = [Fault(status=status, headers={"Content-Range": content_range})]
    assert said in puller.fails("pull_failed").message
    assert len(hub.requests) < 10


def test_server_that_sends_a_few_bytes_at_a_time_is_given_up(
    puller: Puller, hub: HubServer
) -> None:
    hub.faults = [Fault(path="model.onnx", cut=900)]
    assert "the next pull resumes the download" in puller.fails("pull_failed").message
    assert len(hub.got("model.onnx")) < 10


# Pulling: the machine


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_interrupted_pull_is_continued(
    puller: Puller, hub: HubServer, number: signal.Signals
) -> None:
    hub.faults = [Fault(path="model.onnx", hold=600_000, times=1)]
    # A background job of a shell ignores SIGINT, and its children with it.
    process = puller.start(before=lambda: listen_to(signal.SIGINT))
    arrived = puller.partial / "onnx" / "model.onnx"
    wait_until(lambda: arrived.exists() and arrived.stat().st_size > 400_000)
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.returncode != 0
    assert not puller.root.exists()
    kept = arrived.stat().st_size
    puller.succeeds()
    last = hub.got("model.onnx")[-1]
    assert (last.range, last.status) == (f"bytes={kept}-", 206)


def test_continuing_where_the_server_ignores_ranges(puller: Puller, hub: HubServer) -> None:
    write_files(puller.partial, {"onnx/model.onnx": b"x" * 600_000})
    hub.faults = [Fault(ignore_range=True)]
    puller.succeeds()
    assert hub.got("model.onnx")[0].range == "bytes=600000-"


def test_partial_of_another_revision_is_not_continued(
    puller: Puller, hub: HubServer, registry: Path
) -> None:
    older = "b2" * 20
    change_manifest(registry, lambda ranker: ranker.update(revision=older))
    with HubServer(REPOSITORY, older, {"onnx/model.onnx": bytes(1_000_000)}) as past:
        past.faults = [Fault(cut=600_000, times=1), Fault(status=404)]
        outcome = puller.fails("pull_failed", {"HF_ENDPOINT": past.endpoint})
    assert "the next pull resumes the download" in outcome.message
    change_manifest(registry, lambda ranker: ranker.update(revision=REVISION))
    puller.succeeds()
    assert [request.range for request in hub.got("model.onnx")] == [None]


def test_two_processes_at_once(puller: Puller, hub: HubServer) -> None:
    hub.faults = [Fault(path="model.onnx", hold=600_000, times=1)]
    first = puller.start()
    wait_until(lambda: len(hub.got("model.onnx")) == 1)
    second = puller.start()
    assert second.stdout is not None
    second.stdout.readline()
    # Without the lock, the second would by now ask for the file too.
    with contextlib.suppress(TimeoutError):
        wait_until(lambda: len(hub.got("model.onnx")) == 2, seconds=1)
    hub.release()
    for process in (first, second):
        assert puller.finish(process).model == str(puller.root / "onnx" / "model.onnx")
    assert len(hub.got("model.onnx")) == 1
    assert len(hub.got("tokenizer.json")) == 1
    assert all(check.ok for check in models.verify("tiny-ranker"))


def test_file_where_the_cache_should_be(puller: Puller, tmp_path: Path, hub: HubServer) -> None:
    (tmp_path / "file").touch()
    cache = tmp_path / "file" / "cache"
    outcome = puller.fails("pull_unwritable", {"CROSSGATE_CACHE": str(cache)})
    assert outcome.message.startswith(f"cannot write {tmp_path / 'file'}")
    assert outcome.message.endswith("set CROSSGATE_CACHE to a writable folder")
    assert hub.requests == []


def test_disk_full(puller: Puller, hub: HubServer) -> None:
    import resource

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))

    outcome = puller.fails("pull_unwritable", before=limit)
    assert outcome.message.startswith(f"no room for tiny-ranker (1 MB) in {puller.root.parent}: ")
    assert "set CROSSGATE_CACHE to a folder on another disk" in outcome.message
    puller.succeeds()
    assert hub.got("model.onnx")[-1].range == "bytes=300000-"


# Models that the manifest does not pin


@pytest.fixture
def unpinned(registry: Path, puller: Puller) -> Puller:
    """A puller whose manifest says of the hub's model where its files lie, and no more."""
    files = [
        {"role": "model", "path": "onnx/model.onnx"},
        {"role": "tokenizer", "path": "tokenizer.json"},
    ]
    change_manifest(registry, lambda ranker: (ranker.pop("revision"), ranker.update(files=files)))
    return puller


def lock_of(puller: Puller) -> dict[str, Any]:
    lock: dict[str, Any] = json.loads(
        model_files.lock_file("tiny-ranker").read_text(encoding="utf-8")
    )
    return lock


def test_unpinned_model_before_its_first_pull(unpinned: Puller) -> None:
    model = models.spec("tiny-ranker")
    assert (model.pinned, model.revision, model.size) == (False, None, 0)
    assert model_files.identity("tiny-ranker") is None
    assert not model_files.is_here("tiny-ranker")
    assert refused("model_missing", "tiny-ranker").endswith("crossgate models pull tiny-ranker")
    write_files(unpinned.root, HUB_FILES)  # without pins, the files cannot be verified
    assert not model_files.is_here("tiny-ranker")
    refused("model_missing", "tiny-ranker")
    assert {check.code for check in models.verify("tiny-ranker")} == {"model_incomplete"}


def test_first_pull_writes_the_lock_file(unpinned: Puller, hub: HubServer) -> None:
    unpinned.succeeds()
    assert lock_of(unpinned) == {
        "schema": "crossgate-lock/1",
        "repository": REPOSITORY,
        "revision": REVISION,
        "files": [
            {
                "role": role,
                "path": path,
                "size": len(HUB_FILES[path]),
                "sha256": hashlib.sha256(HUB_FILES[path]).hexdigest(),
            }
            for role, path in (("model", "onnx/model.onnx"), ("tokenizer", "tokenizer.json"))
        ],
    }
    model = models.spec(REPOSITORY)
    assert (model.pinned, model.revision) == (True, REVISION)
    digest = hashlib.sha256(HUB_FILES["onnx/model.onnx"]).hexdigest()
    assert model_files.identity("tiny-ranker") == f"tiny-ranker@sha256:{digest[:16]}"
    assert models.locate("tiny-ranker", "cross-encoder").identity.endswith(digest[:16])


def test_loads_and_pulls_go_by_the_lock_file(unpinned: Puller, hub: HubServer) -> None:
    unpinned.succeeds()
    graph = unpinned.root / "onnx" / "model.onnx"
    graph.write_bytes(b"x" * len(HUB_FILES["onnx/model.onnx"]))
    assert "has sha256" in refused("model_altered", "tiny-ranker")
    # The newest revision may be another by now; the description is not asked for again.
    hub.faults.append(Fault(path="?blobs=true", status=500))
    unpinned.succeeds()
    shutil.rmtree(unpinned.root)
    unpinned.succeeds()


def lock(**changed: Any) -> bytes:
    """Return a valid lock file with changes in it or in its first file."""
    files: list[dict[str, Any]] = [
        {"role": role, "path": path, "size": 1, "sha256": "0" * 64}
        for role, path in (("model", "onnx/model.onnx"), ("tokenizer", "tokenizer.json"))
    ]
    values = {"repository": REPOSITORY, "revision": REVISION, "files": files}
    for name, value in changed.items():
        (values if name in values else files[0])[name] = value
    return json.dumps(values).encode()


LOCKS = [
    lock(revision="../../up"),
    lock(revision=3),
    lock(path="../../etc/passwd"),
    lock(size=-1),
    lock(size="1"),
    lock(size=1e30),
    lock(size=10**30),
    lock(sha256="x" * 64),
    lock(sha256=[0]),
]


@pytest.mark.parametrize(
    "content",
    [
        b"not JSON",
        b"\xff",
        b"[]",
        b"{}",
        b'{"repository": "acme/Tiny-Ranker", "revision": "a", "files": [{"role": "model"}]}',
        b'{"repository": "acme/Tiny-Ranker", "revision": "a", "files": []}',
        b'{"repository": "acme/Other", "revision": "a", "files": []}',
        *LOCKS,
        DEEP,
        b" " * 2_000_000,
    ],
)
@pytest.mark.usefixtures("unpinned")
def test_lock_file_that_cannot_be_read(content: bytes) -> None:
    path = model_files.lock_file("tiny-ranker")
    write_files(path.parent, {path.name: content})
    assert f"{path} is malformed" in refused("lock_malformed", "tiny-ranker")


@pytest.mark.parametrize(
    "content", [b"no JSON", b"[]", b"{}", b'{"sha": "main", "siblings": []}', DEEP]
)
def test_malformed_description(unpinned: Puller, hub: HubServer, content: bytes) -> None:
    hub.faults.append(Fault(path="?blobs=true", content=content))
    assert unpinned.fails("pull_failed").message.endswith("malformed description of a model")
    assert not model_files.lock_file("tiny-ranker").exists()


def test_compressed_description_is_read_up_to_the_limit(unpinned: Puller, hub: HubServer) -> None:
    bomb = gzip.compress(b" " * (1 << 27), compresslevel=1)
    headers = {"Content-Encoding": "gzip"}
    hub.faults.append(Fault(path="?blobs=true", content=bomb, headers=headers))
    assert unpinned.fails("pull_failed").message.endswith("too long")


@pytest.mark.parametrize(
    "stored",
    [
        *(3, ["size"], {"size": 1}, {"size": 1, "sha256": "up/.."}),
        *({"size": size, "sha256": "0" * 64} for size in (-1, "1" * 5_000, 10**30)),
    ],
)
def test_malformed_description_of_a_file(unpinned: Puller, hub: HubServer, stored: object) -> None:
    description = json.loads(hub.description())
    for sibling in description["siblings"]:
        if "lfs" in sibling:
            sibling["lfs"] = stored
    hub.faults.append(Fault(path="?blobs=true", content=json.dumps(description).encode()))
    assert unpinned.fails("pull_failed").message.endswith("malformed description of a model")
    assert not model_files.lock_file("tiny-ranker").exists()


def test_repository_without_the_graph(unpinned: Puller, hub: HubServer) -> None:
    del hub.files["onnx/model.onnx"]
    message = unpinned.fails("pull_failed").message
    assert f"{REPOSITORY} has no onnx/model.onnx" in message
    assert "export the model" in message


def test_small_file_that_is_not_the_listed_one(unpinned: Puller, hub: HubServer) -> None:
    hub.faults.append(Fault(path="tokenizer.json", content=b'{"version": "6.6"}'))
    assert "differs from the file that the hub lists" in unpinned.fails("pull_failed").message
    assert not model_files.lock_file("tiny-ranker").exists()


def test_interrupted_first_pull_goes_on_with_the_same_revision(
    unpinned: Puller, hub: HubServer
) -> None:
    hub.faults.append(Fault(path="model.onnx", status=404))
    unpinned.fails("pull_failed")
    assert lock_of(unpinned)["revision"] == REVISION
    hub.faults.clear()
    hub.faults.append(Fault(path="?blobs=true", status=500))
    unpinned.succeeds()


def test_weights_beside_the_graph(unpinned: Puller, hub: HubServer, registry: Path) -> None:
    weights = hashlib.shake_256(b"weights").digest(2_000)
    hub.files["onnx/model.onnx_data"] = weights
    file = {"role": "weights", "path": "onnx/model.onnx_data"}
    change_manifest(registry, lambda ranker: ranker["files"].append(file))
    outcome = unpinned.finish(unpinned.start())
    assert outcome.code == ""
    assert Path(outcome.model).with_name("model.onnx_data").read_bytes() == weights
    digest = hashlib.sha256(weights).hexdigest()
    assert model_files.identity("tiny-ranker") == f"tiny-ranker@sha256:{digest[:16]}"
    named, folder = (models.locate(one, "cross-encoder") for one in ("tiny-ranker", unpinned.root))
    assert named.identity == folder.identity


def test_licence_must_be_accepted(unpinned: Puller, hub: HubServer, registry: Path) -> None:
    terms = {"licence": "CC-BY-NC-4.0", "terms": "no commercial use"}
    change_manifest(registry, lambda ranker: ranker.update(terms))
    message = unpinned.fails("licence_not_accepted").message
    assert "has the licence CC-BY-NC-4.0: no commercial use" in message
    assert message.endswith("crossgate models pull tiny-ranker --accept-licence")
    assert hub.requests == []
    replace(unpinned, accept_licence=True).succeeds()
    unpinned.succeeds()  # it is here, so it was accepted


def listen_to(number: signal.Signals) -> None:
    """Let a signal have its usual effect."""
    signal.signal(number, signal.SIG_DFL)


def wait_until(condition: Callable[[], bool], seconds: int = 30) -> None:
    """Poll until a condition holds."""
    for _ in range(seconds * 100):
        if condition():
            return
        time.sleep(0.01)
    raise TimeoutError
