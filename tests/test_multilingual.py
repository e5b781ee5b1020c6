"""The extra for other languages: which model reads a text, and what happens without it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from crossgate import Document, Index, OnnxEmbedder, Router
from crossgate._retrieval import embedding
from crossgate._runtime import model_files
from crossgate._support.errors import ModelError
from crossgate.models import locate

GERMAN = "Führe diese PDF-Dateien bitte zusammen und drehe die Seiten"
DOCUMENTS = [
    Document(id="pdf", text="Merge, split and rotate documents made of pages"),
    Document(id="bread", text="Bake sourdough bread at home"),
    Document(id="mail", text="Write and answer electronic mail"),
]


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """What earlier tests had installed is looked for again."""
    model_files.is_multilingual.cache_clear()
    yield
    model_files.is_multilingual.cache_clear()


@pytest.fixture
def extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The extra, whose model says of every text that it asks for the first document."""
    files = {"__init__.py": b"", "model.onnx": b"graph", "tokenizer.json": b"{}"}
    folder = tmp_path / "crossgate_multilingual"
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    monkeypatch.syspath_prepend(tmp_path)
    shipped = model_files.known()

    def known() -> tuple[model_files.ModelSpec, ...]:
        return tuple(
            replace(
                model,
                files=tuple(
                    replace(
                        file,
                        size=len(files[file.path]),
                        sha256=hashlib.sha256(files[file.path]).hexdigest(),
                        blake3="",
                    )
                    for file in model.files
                ),
            )
            if model.name == model_files.MULTILINGUAL
            else model
            for model in shipped
        )

    wanted = OnnxEmbedder().embed([DOCUMENTS[0].content])[0]
    monkeypatch.setattr(model_files, "known", known)
    monkeypatch.setattr(embedding, "_by_onnxruntime", lambda local: lambda text: wanted)
    return folder


@pytest.fixture
def no_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """The extra is not installed, whatever the environment of the tests has."""
    find = model_files.is_here
    monkeypatch.setattr(
        model_files, "is_here", lambda name: name != model_files.MULTILINGUAL and find(name)
    )


@pytest.mark.parametrize(
    ("text", "english"),
    [
        (GERMAN, False),
        ("把这三个文件合并", False),
        ("Bu müşteri yorumlarını konulara göre grupla", False),
        ("merge these three files", True),
        ("a résumé for the new position in the sales team, one page long, please", True),
        ("", True),
        ("42", True),
    ],
)
def test_texts_in_other_languages_are_told_from_english_ones(text: str, english: bool) -> None:
    assert embedding.is_english(text) is english


def test_extra_reads_only_texts_in_other_languages(extra: Path) -> None:
    texts = ["merge these files", GERMAN, "把这三个文件合并"]
    english, german, chinese = OnnxEmbedder("multilingual").embed(texts)
    default = OnnxEmbedder()
    assert default.identity == OnnxEmbedder("multilingual").identity
    assert list(german) == list(chinese) == list(default.embed([DOCUMENTS[0].content])[0])
    extra.rename(extra.with_name("elsewhere"))
    model_files.is_multilingual.cache_clear()
    assert list(english) == list(OnnxEmbedder().embed(texts[:1])[0])


def test_index_made_without_the_extra_gets_its_vectors(
    extra: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents = [Document(id="pdf", text=GERMAN), replace(DOCUMENTS[1], examples=(GERMAN,))]
    with monkeypatch.context() as without:
        without.setattr(model_files, "is_here", lambda name: False)
        model_files.is_multilingual.cache_clear()
        earlier = Index.build(documents, embedder=OnnxEmbedder())
    model_files.is_multilingual.cache_clear()
    new = Index.build(documents, embedder=OnnxEmbedder())
    again = Index.build(documents, embedder=OnnxEmbedder(), reuse=earlier)
    for id in earlier.ids:
        assert again._core.vector(id) == new._core.vector(id)
        assert again._core.hint_vectors(id) == new._core.hint_vectors(id)
    assert earlier._core.vector("pdf") != new._core.vector("pdf")
    assert earlier._core.vector("bread") == new._core.vector("bread")


def test_prompt_in_another_language_is_decided_by_stage_1_alone(extra: Path) -> None:
    router = Router(Index.build(DOCUMENTS))
    result = router.route(GERMAN)
    assert result.hits[0].id == "pdf"
    assert result.reason != "ambiguous"
    assert result.warnings == ()
    assert result.degraded == ()


def test_damaged_extra_leaves_english_prompts_alone(extra: Path) -> None:
    (extra / "model.onnx").write_bytes(b"other")
    router = Router(Index.build(DOCUMENTS), reranker=None)
    assert [note.code for note in router.route(GERMAN).degraded] == ["embedder_unavailable"]
    assert router.route("merge pages of documents").degraded == ()


@pytest.mark.usefixtures("no_extra")
def test_extra_is_named_where_it_would_help() -> None:
    result = Router(Index.build(DOCUMENTS)).route(GERMAN)
    assert [note.code for note in result.warnings] == ["unsupported_language"]
    assert "crossgate[multilingual]" in result.warnings[0].detail


def test_embedder_without_the_extra_says_what_to_install() -> None:
    with pytest.raises(ModelError, match=r"pip install .*crossgate\[multilingual\]") as caught:
        locate("multilingual", "embedder")
    assert caught.value.code == "model_missing"
