"""`Index`: documents that can be searched, changed while in use, saved and opened."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from functools import lru_cache, partial
from itertools import islice
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple, Never

import crossgate._core as _core
from crossgate._retrieval.passages import BODY_CHARS, passages
from crossgate._retrieval.spelling import corrected_to, has_unknown_word
from crossgate._runtime import model_files
from crossgate._support.checks import (
    check_count,
    check_ids,
    check_keywords,
    check_kind,
    check_limit,
    check_number,
    check_numbers,
    check_path,
    check_query,
    check_text,
    collected,
    is_text,
    safe_repr,
)
from crossgate._support.errors import IndexFileError, InputError, ModelError
from crossgate._support.files import (
    check_source,
    check_target,
    is_free_for_index,
    remove_leftovers,
)
from crossgate._support.wording import counted, type_of
from crossgate._values.inputs import ID_FIELDS, candidate
from crossgate._values.results import Candidate, Document, Vector, content

if TYPE_CHECKING:
    import crossgate._core as _core
    from crossgate._retrieval.embedding import Embedder

_HINTS = ("triggers", "examples", "counterexamples")

HintTexts = tuple[list[str], list[str]]
HintVectors = tuple[list[Vector], list[Vector]]
NO_VECTORS: HintVectors = ([], [])


def check_hints(document: Document, owner: str) -> None:
    """Check that the hints of a document are collections of texts.

    Raises:
        InputError: `malformed_candidate` for another type, `invalid_text` for a text that is none.
    """
    for name in _HINTS:
        hints = getattr(document, name)
        if isinstance(hints, str) or not isinstance(hints, tuple | list):
            raise InputError(
                "malformed_candidate",
                f"the {name} of {owner} are {safe_repr(hints)}: pass a tuple of texts",
            )
        for hint in hints:
            check_text(f"one of the {name} of {owner}", hint)
    if not isinstance(document.is_description, bool | None):
        raise InputError(
            "malformed_candidate",
            f"is_description of {owner} is {safe_repr(document.is_description)}: pass True, False "
            "or None",
        )


def hint_row(document: Document, vectors: HintVectors) -> _core._HintRow:
    """Return the hints of a document for the core."""
    texts = [list(getattr(document, name)) for name in _HINTS]
    return document.is_read_as_description(), texts, list(vectors)


def hint_texts(document: Document) -> HintTexts:
    """Return the texts that are embedded: examples and counterexamples."""
    return list(document.examples), list(document.counterexamples)


def embedded_hints(
    documents: Iterable[Document], embed: Callable[[Sequence[str]], Sequence[Vector]]
) -> dict[str, HintVectors]:
    """Return the vectors of the hints of each document that has any, by id."""
    texts = {document.id: hint_texts(document) for document in documents}
    texts = {id: lists for id, lists in texts.items() if any(lists)}
    flat = [text for lists in texts.values() for text in _flat(lists)]
    if not flat:
        return {}
    vectors = iter(embed(flat))
    return {
        id: (list(islice(vectors, len(lists[0]))), list(islice(vectors, len(lists[1]))))
        for id, lists in texts.items()
    }


def _flat(lists: HintTexts) -> Iterator[str]:
    for texts in lists:
        yield from texts


def without_known(
    documents: Iterable[Document], known: Mapping[str, HintVectors]
) -> list[Document]:
    """Return the documents whose hints have no vectors yet."""
    return [document for document in documents if document.id not in known]


EMBEDDED_BODY_CHARS = 1_000
"""Characters of a body that are embedded, from its start; the bundled embedder reads no more."""

BODY_SHARE = 0.3
"""Weight of the body's vector in a document's vector; the weight of the head's is 1 minus this.

Values between 0.2 and 0.4 give nearly equal results (docs/design.md).
"""


_BLOCK = 2_000
"""How many documents `build_in_blocks` embeds at once."""

_SAVED_EVERY = 120.0
"""Seconds between two writes of what is embedded; writing a gigabyte takes seconds."""

_CORRECTED_TO = 100
"""How many documents cosine, BM25 and their blend each contribute to correct misspelt words."""


class SearchResult(NamedTuple):
    """The output of a search.

    Attributes:
        scored: The candidates, best blend first.
        documents: The documents of the candidates, by id.
        embedder: Identity of the embedder that made the index's vectors; empty if there are none.
    """

    scored: list[_core.Scored]
    documents: Mapping[str, Document]
    embedder: str

    @property
    def candidates(self) -> list[Candidate]:
        """The candidates with their cosines, for `crossgate.rerank`."""
        return [
            Candidate(
                **_fields(self.documents[found.id]), cosine=found.cosine, embedder=self.embedder
            )
            for found in self.scored
        ]


class Index:
    """Documents with their terms and vectors. Threads may search and change it at once.

    A search sees one version of the index from start to end. A change makes a new version, which
    shares what stays the same, so that readers never wait for a writer; writers wait for each
    other. A version costs a few words per document and term, about 4 ms in an
    index of 20,000 documents, so make changes together where you can. The space of
    removed documents is freed once it is more than half of the index: of its slots for documents,
    or of its vocabulary.

    Make one with `Index.build` or `Index.open`. An opened index reads each part of its file when it
    is first needed, so any call may raise `IndexFileError` for a damaged part; `load` reads all
    parts at once.

    Like a mapping it holds documents by id: `"pdf" in index`, `index["pdf"]`, `for id in index`.
    """

    def __init__(
        self, core: _core.Index, embedder: Embedder | None, *, body_chars: int = BODY_CHARS
    ) -> None:
        self._core = core
        self._body_chars = body_chars
        self._embedder = embedder
        self.path: Path | None = None
        """The file that it was last opened from or saved to; None for one in memory."""

    @classmethod
    def build(
        cls,
        documents: Iterable[str | Mapping[str, Any] | Document],
        *,
        embedder: Embedder | str | os.PathLike[str] | None = "default",
        language: str = "english",
        reuse: Index | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> Index:
        """Index documents.

        Args:
            documents: At least one, ids unique, each with a title or a text. The first 6,000
                characters of a body are searched. Texts and mappings are read as `rerank` reads its
                candidates; without an id, the id is the position, from 0.
            embedder: Makes the vectors: an embedder, the name or folder of a model, or None for an
                index that is searched by words alone.
            language: Snowball language of the stemmer, such as `english`, or `none`.
            reuse: An earlier index; documents whose text for the embedder has not changed keep
                their vectors.
            progress: Called with the number of texts embedded so far and the total.

        Raises:
            InputError: `no_documents`, `duplicate_id`, `empty_document`, `invalid_text`,
                `wrong_dimension`, `not_finite`, `zero_vector`, `out_of_range` or
                `malformed_candidate`, naming the document.
            ModelError: If the embedder cannot be loaded or run.
        """
        check_text("the language", language)
        if reuse is not None:
            check_kind("reuse", reuse, Index, "an Index, or None")
        given = _documents(documents)
        if not given:
            raise InputError(
                "no_documents", "there is nothing to index: pass at least one document"
            )
        maker = _embedder(embedder)
        identity, dimension = (maker.identity, maker.dimension) if maker else ("", 0)
        index = cls(_core.Index(language, identity, dimension), maker)
        vectors: dict[str, Vector] = {}
        hints: dict[str, HintVectors] = {}
        if reuse is not None and reuse.embedder == identity and maker is not None:
            vectors, hints = _known_vectors(given, reuse)
        index._upsert(given, vectors, hints, progress)
        return index

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        embedder: Embedder | str | os.PathLike[str] | None = None,
    ) -> Index:
        """Open an index file.

        The file stays open, and a search reads the parts that it needs; replacing the file does not
        affect an open index. The first change reads all of it.

        Args:
            path: The file.
            embedder: The embedder that made the vectors, or the name or folder of a model. Needed
                only for a model that crossgate does not know by name.

        Raises:
            IndexFileError: `index_missing`, `index_unreadable`, `not_an_index`, `index_version`,
                `index_truncated` or `index_corrupt`; `embedder_mismatch` if the file's vectors
                were made by another embedder.
            ModelError: If the embedder is given by a name or folder that cannot be used.
        """
        path = check_path("the index", path)
        if os.path.isdir(path):
            name = os.path.basename(os.path.abspath(path)).lstrip(".") or "documents"
            raise IndexFileError(
                "index_unreadable",
                f"{path} is a folder: index it with `crossgate index {path} -o {name}.cgx`, and "
                f"use {name}.cgx",
            )
        try:
            check_source(path)
        except OSError as error:
            raise _file_error("index_unreadable", "read", path, error) from error
        core = _core.Index.open(Path(path))
        maker = _embedder(embedder)
        if maker is not None and maker.identity != core.embedder:
            raise embedder_mismatch(str(path), core.embedder, maker.identity)
        opened = cls(core, maker)
        opened.path = Path(path)
        return opened

    def load(self) -> None:
        """Read and check the parts of the file that have not been read yet.

        Raises:
            IndexFileError: `index_corrupt`, `index_truncated` or `index_unreadable`.
        """
        if not isinstance(self, Index):
            raise InputError(
                "out_of_range",
                f"Index.load reads the rest of an open index, not {safe_repr(self)}: open a file "
                "with Index.open(path)",
            )
        self._core.load()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the index to a file; an earlier file stays intact until the new one is complete.

        A symbolic link stays, and its target is replaced.

        Raises:
            IndexFileError: `index_unwritable`, also if a device, a pipe or a folder is there; what
                `load` raises.
        """
        path = check_path("the index", path)
        try:
            target = check_target(Path(path))
        except OSError as error:
            raise _file_error("index_unwritable", "write", path, error) from error
        remove_leftovers(target)
        self._core.save(target)
        self.path = Path(path)

    def upsert(
        self,
        documents: Iterable[Mapping[str, Any] | Document],
        *,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        """Add documents, and replace those whose ids exist already; all of them or none.

        Args:
            documents: Each needs an id. Those without a vector are embedded, if the index has
                vectors.
            progress: Called with the number of texts embedded so far and the total.

        Raises:
            InputError: As `build` does.
            ModelError: If the embedder cannot be loaded or run.
        """
        self._upsert(_documents(documents, named=True), {}, {}, progress)

    def _upsert(
        self,
        documents: Sequence[Document],
        vectors: dict[str, Vector],
        hints: dict[str, HintVectors],
        progress: Callable[[int, int], None] | None,
    ) -> None:
        """Add documents, some of which have known vectors of their heads or hints."""
        check_documents(documents)  # before the texts are embedded, which takes long
        if self._core.dimension:
            missing = [
                document
                for document in documents
                if document.vector is None and document.id not in vectors
            ]
            if missing:
                vectors = vectors | _embedded(self.load_embedder(), missing, progress)
            # Vectors from the caller may be of an embedder that is not here.
            made_here = [document for document in documents if document.id in vectors]
            hints = hints | embedded_hints(without_known(made_here, hints), self._embed)
        self._core.upsert(
            [
                (
                    document.id,
                    document.title,
                    document.text,
                    document.body,
                    passages(document.body, max_chars=self._body_chars),
                    _metadata(document),
                    vectors.get(document.id, document.vector),
                )
                for document in documents
            ],
            [hint_row(document, hints.get(document.id, NO_VECTORS)) for document in documents],
        )

    def _embed(self, texts: Sequence[str]) -> Sequence[Vector]:
        return _checked_vectors(self.load_embedder(), texts, None)

    def teach(self, prompt: str, id: str | None, *, fits: bool = True) -> bool:
        """Add a prompt as an example, which counts from the next search on.

        Args:
            prompt: The prompt.
            id: Id of the document that the example is about; None if no document fits the prompt.
            fits: Whether the prompt should select the document; False if it should not.

        Returns:
            Whether the index changed. Earlier examples with the same words that contradict this one
            are removed: of the opposite kind, of any document if no document fits the prompt, and
            of prompts that no document fits if one does.

        Raises:
            InputError: `unknown_document` for an id that the index does not have; `empty_query`,
                `query_too_long` or `invalid_text` for a prompt that cannot be an example.
            ModelError: If the embedder cannot be loaded or run.
        """
        check_query(prompt)
        if id is not None and id not in self:
            raise InputError(
                "unknown_document", f"no document has the id {safe_repr(id)}: `.ids` lists the ids"
            )
        self.load()
        vector = self._embed([prompt])[0] if self.dimension else None
        return self._core.teach(id, prompt, fits, vector)

    @property
    def nothing(self) -> list[str]:
        """Prompts that should select nothing."""
        return self._core.nothing()

    def delete(self, ids: Iterable[str]) -> int:
        """Remove documents by id, all in one step, and return how many of them existed.

        Raises:
            InputError: `out_of_range` if `ids` is not a collection of ids.
        """
        given = collected("ids", ids)
        return self._core.remove([id for id in given if isinstance(id, str) and is_text(id)])

    def get(self, id: str) -> Document | None:
        """Return the document with an id, without its vector, or None."""
        stored = self._core.get(id) if id in self else None
        return None if stored is None else _document(id, *stored)

    def search(
        self,
        query: str,
        vector: Vector | None = None,
        *,
        limit: int | None = None,
        embed: bool = True,
        blend: _core.Blend | None = None,
        evidence: _core.EvidenceWeights | None = None,
        technologies: Iterable[str] = (),
        history: Iterable[tuple[str, float]] = (),
        usefulness: tuple[float, Sequence[float]] | None = None,
        per_channel: int = 10,
        allow: Iterable[str] | None = None,
        deny: Iterable[str] = (),
        named: Iterable[str] = (),
        asks: float | None = None,
        **unknown: Never,
    ) -> SearchResult:
        """Score the documents by words, and by meaning if the index has vectors.

        Misspelt words of the query are corrected to words of the 100 best documents of each
        channel, unless there is a vector or `embed` is false. Scores and documents come from one
        version of the index, whatever other threads change.

        Args:
            query: The query.
            vector: The query's embedding by the index's embedder; None to embed the query.
            limit: Maximum number of candidates; None for all that the channels contribute.
            embed: Whether to embed the query if there is no vector; False searches by words alone.
            blend: How the two are combined; None for 70 % cosine and 30 % BM25.
            evidence: Weights of the evidence that is added to the blend; None for those of
                `Profile()`.
            technologies: Technologies of the project that the query comes from.
            history: Earlier requests of the conversation with the weights of their terms; those of
                the query have weight 1.
            usefulness: Intercept and weights, over a document's vector, of the evidence of that
                name; None outside a session.
            per_channel: How many candidates cosine, BM25 and their blend each contribute; at
                least 2.
            allow: Consider only these ids; None for all.
            deny: Never consider these ids.
            named: Ids of documents that the query names: they come first, also if their metadata
                reserves them for that (`"implicit": false`).
            asks: Probability, in [0, 1], that the query asks to read and not to act; None if it is
                unknown. It counts for tools whose metadata says whether they are `read_only`.
            unknown: Not accepted: raises TypeError, which names `limit` for `k`, `top_k` and
                `top_n`.

        Raises:
            IndexFileError: `index_corrupt`, `index_truncated` or `index_unreadable` if a needed
                part of the file is damaged.
            InputError: `wrong_dimension`, `not_finite` or `zero_vector` for a vector that cannot be
                compared; `invalid_text` for a query or id that is not text; `out_of_range` for a
                `per_channel` below 2, a `limit` below 1, a single text as ids, or a history that
                is not pairs of a text and a weight.
            ModelError: If the query is embedded and the embedder cannot be loaded or run.
        """
        check_keywords("search", unknown)
        check_text("the query", query)
        check_count("per_channel", per_channel, 2)
        check_limit(limit)
        if asks is not None:
            check_number("asks", asks, 0, 1)
        if blend is not None:
            check_kind("blend", blend, _core.Blend, "the blend of a Profile, or None")
        if evidence is not None:
            what = "the evidence of a Profile, or None"
            check_kind("evidence", evidence, _core.EvidenceWeights, what)
        search = partial(
            self._core.search,
            blend=blend,
            evidence=evidence,
            technologies=sorted(check_ids("technologies", technologies)),
            history=_weighted_texts(history),
            usefulness=None if usefulness is None else _linear_model("usefulness", usefulness),
            per_channel=max(per_channel, min(limit or 0, sys.maxsize)),
            allow=None if allow is None else check_ids("allow", allow),
            deny=check_ids("deny", deny),
            named=check_ids("named", named),
            asks=asks,
        )
        if vector is not None or not embed:
            scored, texts = search(query, vector if self.dimension else None)
        else:
            vector = self._vector(query)
            scored, texts = search(query, vector)
            found = (_document("", *text) for text in texts)
            if has_unknown_word(query, found, self.language):
                _, near = search(query, vector, per_channel=max(_CORRECTED_TO, per_channel))
                found = (_document("", *text) for text in near)
                read, corrections = corrected_to(query, found, self.language)
                if corrections:
                    scored, texts = search(read, self._vector(read))
        scored, texts = scored[:limit], texts[:limit]
        pairs = zip(scored, texts, strict=True)
        documents = {hit.id: _document(hit.id, *text) for hit, text in pairs}
        return SearchResult(scored, documents, self.embedder)

    def named(
        self, prompt: str, *, allow: Iterable[str] | None = None, deny: Iterable[str] = ()
    ) -> tuple[list[str], tuple[str, str] | None]:
        """Return the ids of the documents that a prompt names exactly.

        The forms are `/name` at the start, `mcp__server__tool`, `$name`, `@name`, "use the name
        skill", and a name in the manner of code in backticks or behind a verb such as "use".

        Args:
            prompt: The prompt.
            allow: Consider only these ids; None for all.
            deny: Never consider these ids.

        Returns:
            The ids, and a name that no document has, with the id nearest to it; None without one.

        Raises:
            InputError: `invalid_text` for a prompt that is not text; `out_of_range` for a single
                text as ids.
        """
        check_text("the prompt", prompt)
        allowed = None if allow is None else check_ids("allow", allow)
        denied = check_ids("deny", deny)
        ids, unknown = self._core.named(prompt)
        known = (id for id in ids if id not in denied)
        return [id for id in known if allowed is None or id in allowed], unknown

    def _vector(self, query: str) -> Vector | None:
        return self.load_embedder().embed([query])[0] if self.dimension else None

    @property
    def ids(self) -> list[str]:
        """The ids of all documents, in the order in which they were added."""
        return self._core.ids()

    @property
    def language(self) -> str:
        """Snowball language of the stemmer, or `none`."""
        return self._core.language

    @property
    def embedder(self) -> str:
        """Identity of the model that made the vectors; empty if there are none."""
        return self._core.embedder

    @property
    def dimension(self) -> int:
        """Length of the vectors; 0 if there are none."""
        return self._core.dimension

    @property
    def fingerprint(self) -> str:
        """Hash of all documents, whatever their order."""
        return self._core.fingerprint()

    def load_embedder(self) -> Embedder:
        """Return the embedder that made the vectors, loading it if need be.

        Raises:
            IndexFileError: `embedder_mismatch` if the installed model differs from the index's.
            ModelError: If the model cannot be found; `unknown_model` if crossgate knows no
                model of this name and `open` was called without `embedder`.
        """
        if self._embedder is not None:
            return self._embedder
        from crossgate._runtime.threads import loading

        with loading():
            if self._embedder is None:
                self._embedder = self._made()
            return self._embedder

    def _made(self) -> Embedder:
        """Return the embedder of the index's name."""
        name = self.embedder.partition("@")[0]
        if model_files.identity(name) is None:
            raise ModelError(
                "unknown_model",
                f"the vectors of the index were made by {self.embedder or 'no embedder'}, a "
                "model from a folder or an embedder of your own: give it with "
                "`crossgate route --embedder FOLDER`, or Index.open(path, embedder=...)",
            )
        made = _embedder(name)
        if made is None or made.identity != self.embedder:
            raise embedder_mismatch("the index", self.embedder, made.identity if made else "")
        return made

    def __len__(self) -> int:
        return len(self._core)

    def __iter__(self) -> Iterator[str]:
        return iter(self.ids)

    def __getitem__(self, id: str) -> Document:
        if not isinstance(id, str):
            raise TypeError(f"the index takes ids, each a str, not {id!r}: `.ids` lists them")
        document = self.get(id)
        if document is None:
            raise KeyError(f"no document has the id {id!r}: `.ids` lists the ids")
        return document

    def __contains__(self, id: object) -> bool:
        return isinstance(id, str) and is_text(id) and id in self._core

    def __repr__(self) -> str:
        return f"<Index of {counted(len(self), 'document')}, embedder {self.embedder or 'none'}>"

    def __reduce__(self) -> tuple[Callable[..., Index], tuple[bytes, Embedder | None, Path | None]]:
        """Pickle as the bytes of its file, which are checksummed.

        An embedder that crossgate knows by name is loaded again; one of your own must pickle.
        """
        import pickle
        import tempfile

        known = model_files.identity(self.embedder.partition("@")[0]) is not None
        embedder = None if known else self._embedder
        try:
            pickle.dumps(embedder)
        except Exception as error:
            raise TypeError(
                f"the embedder {self.embedder} of the index cannot be pickled ({error}): save the "
                "index, and open it there with Index.open(path, embedder=...)"
            ) from error
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "index.cgx"
            self._core.save(file)
            return _unpickled, (file.read_bytes(), embedder, self.path)


def _unpickled(data: bytes, embedder: Embedder | None, path: Path | None) -> Index:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "index.cgx"
        file.write_bytes(data)
        index = Index(_core.Index.open(file), embedder)
    index.path = path
    return index


def _fields(document: Document) -> dict[str, Any]:
    """Return the fields of a document by name."""
    return {field.name: getattr(document, field.name) for field in fields(document)}


def _documents(
    given: Iterable[str | Mapping[str, Any] | Document], *, named: bool = False
) -> list[Document]:
    """Convert the caller's rows to documents; with `named` each must have an id."""
    if isinstance(given, str | Mapping | Document) or not isinstance(given, Iterable):
        raise InputError("malformed_candidate", f"documents is {safe_repr(given)}: pass a list")
    made: list[Document] = []
    for position, row in enumerate(given):
        if named and not isinstance(row, Document) and not _has_id(row):
            raise InputError(
                "malformed_candidate",
                f"document {position} has no id: pass a Document, or a mapping",
            )
        made.append(row if isinstance(row, Document) else _as_document(position, row))
    return made


def _as_document(position: int, row: object) -> Document:
    made = candidate(position, row, f"document {position}")
    return Document(**{field.name: getattr(made, field.name) for field in fields(Document)})


def _has_id(given: object) -> bool:
    return isinstance(given, Mapping) and any(given.get(field) is not None for field in ID_FIELDS)


_MOST_COMPARED = 10_000
"""Maximum number of names that are compared with an unknown one: ten microseconds each."""
_COMPARED_CHARS = 1_000
"""Maximum length of a name that is compared: each character takes 30 bytes and more."""


def id_of(index: Index, name: str) -> str:
    """Return the id of the document with an id or a title.

    Raises:
        InputError: `unknown_document`, with similar names.
    """
    if name in index:
        return name
    titles: dict[str, str] = {}
    for id in index:
        titles.setdefault(index[id].title, id)
    if name and name in titles:
        return titles[name]
    from difflib import get_close_matches

    names = dict.fromkeys(filter(None, (*index.ids, *titles)))
    is_small = len(names) <= _MOST_COMPARED and len(name) <= _COMPARED_CHARS
    close = get_close_matches(name, names, n=3) if is_small else []
    hint = f": did you mean {' or '.join(close)}?" if close else ": `Index.ids` lists the ids"
    raise InputError("unknown_document", f"no document is called {safe_repr(name)}{hint}")


def embedder_mismatch(where: str, given: str, wanted: str) -> IndexFileError:
    """Return the error for a query and vectors of different embedders."""
    return IndexFileError(
        "embedder_mismatch",
        f"the vectors of {where} were made by {given or 'no embedder'}, the one in use is "
        f"{wanted}: give the one that made them, or rebuild it with `crossgate index SOURCE... "
        "-o FILE`",
    )


def check_embedder(embedder: object) -> None:
    """Check that an object has the interface of an embedder.

    Raises:
        InputError: `out_of_range`.
    """
    identity, embed = (getattr(embedder, name, None) for name in ("identity", "embed"))
    if not isinstance(identity, str) or not callable(embed):
        raise InputError(
            "out_of_range",
            f"the embedder is {type_of(embedder)}: pass the name or folder of a model to "
            "Index, or an object with identity (a text), dimension and embed (a method)",
        )


def _embedder(embedder: Embedder | str | os.PathLike[str] | None) -> Embedder | None:
    if embedder is None:
        return None
    if not isinstance(embedder, str | os.PathLike):
        check_embedder(embedder)
        return embedder
    from crossgate._retrieval.embedding import OnnxEmbedder
    from crossgate._runtime.model_files import EMBEDDER

    return OnnxEmbedder(EMBEDDER if embedder == "default" else embedder)


@lru_cache(maxsize=1)
def bundled_embedder() -> Embedder:
    """Return the bundled embedder, which is loaded once per process.

    Raises:
        ModelError: If the model is missing or altered.
    """
    made = _embedder("default")
    assert made is not None
    return made


def is_blank(document: Document) -> bool:
    """Return whether a document has neither title nor text nor body."""
    return not f"{document.title}{document.text}{document.body}".replace("\0", "").strip()


def check_documents(documents: Iterable[Document], *, empty: bool = False) -> None:
    """Check that documents can be indexed and have unique ids.

    Args:
        documents: The documents.
        empty: Whether documents without text are allowed.

    Raises:
        InputError: `malformed_candidate`, `empty_document`, `invalid_text` or `duplicate_id`.
    """
    seen: set[str] = set()
    for position, document in enumerate(documents):
        if not isinstance(document, Document):
            raise InputError(
                "malformed_candidate",
                f"document {position} must be a Document, not {type_of(document)}: use "
                "Document(**row) for a mapping",
            )
        _check(document, empty=empty)
        if document.id in seen:
            raise InputError(
                "duplicate_id", f"the id {document.id!r} occurs twice: ids must be unique"
            )
        seen.add(document.id)


def _check(document: Document, *, empty: bool) -> None:
    owner = f"document {safe_repr(document.id)}"
    if not document.id:
        raise InputError("malformed_candidate", "a document has an empty id: give each one its own")
    for what in ("id", "title", "text", "body"):
        check_text(f"the {what} of {owner}", getattr(document, what))
    check_hints(document, owner)
    if not empty and not document.title.strip() and not document.text.strip():
        raise InputError("empty_document", f"{owner} has neither title nor text: leave it out")


def _metadata(document: Document) -> str:
    try:
        return json.dumps(dict(document.metadata), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(
            "malformed_candidate",
            f"the metadata of document {document.id!r} is not JSON: {error}",
        ) from error


def _weighted_texts(history: Iterable[tuple[str, float]]) -> list[tuple[str, float]]:
    pairs = collected("history", history)
    for pair in pairs:
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise InputError(
                "out_of_range",
                f"history contains {safe_repr(pair)}: pass pairs of a text and its weight",
            )
        text, weight = pair
        check_text("a text of history", text)
        check_number("a weight of history", weight, 0.0)
    return pairs


def _linear_model(what: str, model: tuple[float, Sequence[float]]) -> tuple[float, Sequence[float]]:
    if not isinstance(model, tuple) or len(model) != 2:
        raise InputError(
            "out_of_range", f"{what} is {safe_repr(model)}: pass an intercept and weights"
        )
    intercept, weights = model
    check_number(f"the intercept of {what}", intercept)
    check_numbers(f"the weights of {what}", weights)
    return intercept, weights


def _document(
    id: str,
    title: str,
    text: str,
    body: str,
    metadata: str,
    is_description: bool,
    hints: Sequence[Sequence[str]],
) -> Document:
    triggers, examples, counterexamples = map(tuple, hints)
    stored = Document(
        id=id,
        title=title,
        text=text,
        body=body,
        metadata=_read_metadata(id, metadata),
        triggers=triggers,
        examples=examples,
        counterexamples=counterexamples,
    )
    if stored.is_read_as_description() == is_description:
        return stored
    return replace(stored, is_description=is_description)


def _read_metadata(id: str, text: str) -> dict[str, Any]:
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise IndexFileError(
            "index_corrupt", f"the metadata of document {id!r} is damaged: {error}"
        ) from error
    return values if isinstance(values, dict) else {}


def build_in_blocks(
    documents: Sequence[Document],
    unfinished: Path,
    *,
    embedder: Embedder | str | os.PathLike[str] | None,
    language: str,
    reuse: Index | None,
    progress: Callable[[int, int], None],
) -> Index:
    """Index documents as `Index.build` does, and continue what an interrupted call has embedded.

    Args:
        documents: As for `Index.build`.
        unfinished: File of the documents that were embedded so far, written between two blocks;
            it stays after an interruption, and the caller removes it. It is not used if something
            else has this path, since no user named it.
        embedder: As for `Index.build`.
        language: As for `Index.build`.
        reuse: As for `Index.build`.
        progress: As for `Index.build`.
    """
    check_documents(documents)
    maker = _embedder(embedder)
    identity, dimension = (maker.identity, maker.dimension) if maker else ("", 0)
    built = Index(_core.Index(language, identity, dimension), maker)
    known = [
        other
        for other in (reuse, _readable(unfinished) if is_free_for_index(unfinished) else None)
        if other is not None and maker is not None and other.embedder == identity
    ]
    saved = monotonic()
    for start in range(0, len(documents), _BLOCK):
        block = documents[start : start + _BLOCK]
        vectors: dict[str, Vector] = {}
        hints: dict[str, HintVectors] = {}
        for other in known:
            more, more_hints = _known_vectors(block, other)
            vectors, hints = vectors | more, hints | more_hints

        def report(done: int, _: int, start: int = start) -> None:
            progress(start + done, len(documents))

        built._upsert(block, vectors, hints, report)
        if dimension and len(built) < len(documents) and monotonic() - saved > _SAVED_EVERY:
            saved = monotonic()
            if is_free_for_index(unfinished):
                with suppress(IndexFileError):  # the disk may have room for the whole index later
                    built.save(unfinished)
    return built


def _readable(path: Path) -> Index | None:
    """Return the index of a file; None if there is none, or if it cannot be read."""
    try:
        opened = Index.open(path)
        opened.load()
    except IndexFileError:
        return None
    return opened


def _known_vectors(
    documents: Iterable[Document], reuse: Index
) -> tuple[dict[str, Vector], dict[str, HintVectors]]:
    """Return the vectors of heads and of hints that an earlier index has of the same texts."""
    # Loaded here, since a search alone does not need it.
    from crossgate._retrieval.embedding import is_english

    # An index does not tell whether it was made with the extra for other languages.
    is_certain = not (
        model_files.is_multilingual() and reuse.embedder.startswith(model_files.EMBEDDER)
    )
    vectors: dict[str, Vector] = {}
    hints: dict[str, HintVectors] = {}
    for document in documents:
        old = reuse.get(document.id) if document.vector is None else None
        if old is None:
            continue
        vector = reuse._core.vector(document.id)
        texts = _embedded_texts(document)
        if vector is None or texts != _embedded_texts(old):
            continue
        if is_certain or all(map(is_english, texts)):
            vectors[document.id] = vector
        lists = hint_texts(document)
        if lists == hint_texts(old) and (is_certain or all(map(is_english, _flat(lists)))):
            known = _vectors_of(reuse, document.id, lists)
            if known is not None:
                hints[document.id] = known
    return vectors, hints


def _vectors_of(index: Index, id: str, texts: HintTexts) -> HintVectors | None:
    """Return the vectors of the hints of a document; None if some hint has none."""
    stored = index._core.hint_vectors(id)
    kept: list[list[Vector]] = [
        [vector for vector in vectors if vector is not None] for vectors in stored
    ]
    if [*map(len, kept)] != [*map(len, texts)]:
        return None
    examples, counterexamples = kept
    return examples, counterexamples


def _embedded(
    embedder: Embedder, documents: Sequence[Document], progress: Callable[[int, int], None] | None
) -> dict[str, Vector]:
    """Return each document's vector by id: the weighted mean of the vectors of head and body."""
    read = {document.id: _embedded_texts(document) for document in documents}
    texts = [text for parts in read.values() for text in parts]
    vectors = iter(_checked_vectors(embedder, texts, progress))
    return {id: _weighted_mean(*islice(vectors, len(parts))) for id, parts in read.items()}


def _checked_vectors(
    embedder: Embedder, texts: Sequence[str], progress: Callable[[int, int], None] | None
) -> Sequence[Vector]:
    report = None if progress is None else _counted(progress, len(texts))
    made = embedder.embed(list(texts), progress=report)
    if len(made) != len(texts):
        raise ModelError(
            "model_failed",
            f"the embedder {embedder.identity} returned {counted(len(made), 'vector')} for "
            f"{counted(len(texts), 'text')}",
        )
    return made


def _embedded_texts(document: Document) -> list[str]:
    """Return the embedded texts of a document: the head, and the start of the body."""
    start = _core.strip_exclusions(document.body[:EMBEDDED_BODY_CHARS]).strip()
    return [document.content, content(document.title, start)] if start else [document.content]


def _weighted_mean(head: Vector, body: Vector | None = None) -> Vector:
    if body is None:
        return head
    # The core refuses a vector of zeros with the document's name.
    of_head = (1 - BODY_SHARE) / (math.hypot(*head) or 1.0)
    of_body = BODY_SHARE / (math.hypot(*body) or 1.0)
    return [of_head * number + of_body * other for number, other in zip(head, body, strict=False)]


def _counted(progress: Callable[[int, int], None], total: int) -> Callable[[int], None]:
    return lambda done: progress(done, total)


def _file_error(
    code: str, verb: str, path: str | os.PathLike[str], error: OSError
) -> IndexFileError:
    return IndexFileError(code, f"cannot {verb} the index {os.fspath(path)}: {error.strerror}")
