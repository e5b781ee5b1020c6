"""Compares ways to quantise the two models by speed, load time and distance from float32."""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import build
import numpy as np
import onnxruntime as ort
from build import MICROSOFT, GraphWriter, Linear
from hashes import sha256_of
from numpy.typing import NDArray
from safetensors.numpy import load_file
from tokenizers import Encoding, Tokenizer

Vectors = NDArray[np.float32]
MAXIMUM_TOKENS = 256
SPEED_SAMPLE = 64


def dynamic_linear(
    writer: GraphWriter, values: str, weight: Vectors, name: str, after_gelu: bool, *, largest: int
) -> tuple[str, Vectors]:
    """Writes the product as onnxruntime's dynamic quantisation does: one scale per tensor."""
    levels, scales = build.quantise_rows(weight, largest)
    parts = [f"{name}.bytes", f"{name}.scale", f"{name}.zero"]
    writer.node_with_outputs("DynamicQuantizeLinear", [values], parts)
    signed = writer.constant(f"{name}.weight", levels.astype(np.int8).T)
    inputs = [parts[0], signed, parts[1], writer.constant(f"{name}.scales", scales), parts[2]]
    product = writer.node("MatMulIntegerToFloat", inputs, name, domain=MICROSOFT)
    return product, np.zeros(len(weight), np.float32)


def token_linear(
    writer: GraphWriter, values: str, weight: Vectors, name: str, after_gelu: bool, *, largest: int
) -> tuple[str, Vectors]:
    """Writes the product with one scale per token and signed weights."""
    levels, scales = build.quantise_rows(weight, largest)
    axis = writer.constant("last_axis", np.array([-1], np.int64))
    one = writer.constant("one", np.array(1, np.float32))
    middle = writer.constant("byte_128", np.array(128, np.uint8))
    magnitudes = writer.node("Abs", [values], f"{name}.magnitudes")
    peak = writer.node("ReduceMax", [magnitudes, axis], f"{name}.largest", keepdims=1)
    step = writer.constant("step_127", np.array([1 / 127], np.float32))
    scale = writer.node("Mul", [peak, step], f"{name}.scale")
    scaled = writer.node("Div", [values, scale], f"{name}.scaled")
    quantised = writer.node("QuantizeLinear", [scaled, one, middle], f"{name}.bytes")
    signed = writer.constant(f"{name}.weight", levels.astype(np.int8).T)
    inputs = [quantised, signed, one, writer.constant(f"{name}.scales", scales), middle]
    product = writer.node("MatMulIntegerToFloat", inputs, f"{name}.product", domain=MICROSOFT)
    return writer.node("Mul", [product, scale], name), np.zeros(len(weight), np.float32)


def blockwise_linear(
    writer: GraphWriter, values: str, weight: Vectors, name: str, after_gelu: bool, *, block: int
) -> tuple[str, Vectors]:
    """Writes the product as MatMulNBits: one scale per block of inputs, int8 inside."""
    outputs, inputs = weight.shape
    levels, scales = build.quantise_rows(weight.reshape(-1, block), 127)
    shaped = (levels + 128).astype(np.uint8).reshape(outputs, -1, block)
    product = writer.node(
        "MatMulNBits",
        [
            values,
            writer.constant(f"{name}.weight", shaped),
            writer.constant(f"{name}.scales", scales.reshape(outputs, -1)),
        ],
        name,
        domain=MICROSOFT,
        K=inputs,
        N=outputs,
        bits=8,
        block_size=block,
        accuracy_level=4,
    )
    return product, np.zeros(outputs, np.float32)


CHOSEN = "per token, s8 weights, neighbours at most 128 (chosen)"
CANDIDATES: dict[str, Linear] = {
    "float32": build.float32_linear,
    "per tensor, s8 weights": partial(dynamic_linear, largest=127),
    "per tensor, s7 weights": partial(dynamic_linear, largest=63),
    "MatMulNBits, block 32": partial(blockwise_linear, block=32),
    "MatMulNBits, block 64": partial(blockwise_linear, block=64),
    "MatMulNBits, block 128": partial(blockwise_linear, block=128),
    "per token, s8 weights": partial(token_linear, largest=127),
    "per token, s7 weights": partial(token_linear, largest=63),
    CHOSEN: build.int8_linear,
}


class Dataset:
    """The skill-triggers dev prompts and the skills they choose from."""

    def __init__(self, folder: Path) -> None:
        """Reads corpus, queries and judgements of a BEIR folder."""
        for part in ("corpus.jsonl", "queries.jsonl", "qrels/dev.tsv"):
            if not (folder / part).is_file():
                raise SystemExit(f"{folder / part}: missing; expected the skill-triggers folder")
        rows = [json.loads(line) for line in _lines(folder / "corpus.jsonl")]
        self.documents = {row["_id"]: f"{row['title']}: {row['text']}" for row in rows}
        rows = [json.loads(line) for line in _lines(folder / "queries.jsonl")]
        dev = [row for row in rows if row["metadata"]["split"] == "dev"]
        self.prompts = {row["_id"]: row["text"] for row in dev}
        named = {row["_id"] for row in dev if row["metadata"]["mentions_name"]}
        self.answers: dict[str, set[str]] = {}
        for line in _lines(folder / "qrels" / "dev.tsv")[1:]:
            prompt, document, grade = line.split("\t")
            if int(grade) > 0 and prompt not in named:
                self.answers.setdefault(prompt, set()).add(document)

    def pairs(self, count: int) -> list[tuple[str, str]]:
        """Draws prompts, alternately with a right skill and a random skill."""
        draw = random.Random(1)
        documents = sorted(self.documents)
        chosen = draw.sample(sorted(self.prompts), count)
        pairs = []
        for index, prompt in enumerate(chosen):
            right = sorted(self.answers.get(prompt, ()))
            document = right[0] if right and index % 2 == 0 else draw.choice(documents)
            pairs.append((self.prompts[prompt], self.documents[document]))
        return pairs


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").split("\n")[:-1]


def feed(encodings: Sequence[Encoding]) -> dict[str, NDArray[np.int64]]:
    """Pads encodings to the longest and returns the three inputs of a graph."""
    shape = (len(encodings), max(len(encoding.ids) for encoding in encodings))
    inputs = {name: np.zeros(shape, np.int64) for name in build.INPUT_NAMES}
    for row, encoding in enumerate(encodings):
        columns = (encoding.ids, encoding.attention_mask, encoding.type_ids)
        for name, column in zip(build.INPUT_NAMES, columns, strict=True):
            inputs[name][row, : len(column)] = column
    return inputs


def open_session(path: Path, threads: int = 1) -> ort.InferenceSession:
    """Opens a model on the CPU with the number of threads inside one run."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    return ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def run_each(session: ort.InferenceSession, encodings: Sequence[Encoding]) -> Vectors:
    """Runs one unpadded input at a time, two at once, and returns one row of output for each."""
    with ThreadPoolExecutor(2) as pool:
        return np.concatenate(
            list(pool.map(lambda encoding: session.run(None, feed([encoding]))[0], encodings))
        )


def run_batches(
    session: ort.InferenceSession, encodings: Sequence[Encoding], size: int, *, by_length: bool
) -> Vectors:
    """Runs padded batches and returns the rows in the order of the inputs."""
    order = list(range(len(encodings)))
    if by_length:
        order.sort(key=lambda index: len(encodings[index].ids))
    rows = np.zeros((len(order), session.get_outputs()[0].shape[1]), np.float32)
    for start in range(0, len(order), size):
        part = order[start : start + size]
        rows[part] = session.run(None, feed([encodings[index] for index in part]))[0]
    return rows


def rates(count: int, ways: dict[str, Callable[[], object]], passes: int) -> dict[str, float]:
    """Times every variant in turn, `passes` times, and returns the median items per second."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(passes):
        for name, way in ways.items():
            start = time.perf_counter()
            way()
            times[name].append(time.perf_counter() - start)
    return {name: count / statistics.median(values) for name, values in times.items()}


def load_milliseconds(path: Path, passes: int) -> float:
    """Returns the median time to hash a model file and open a session on it."""
    times = []
    for _ in range(passes):
        start = time.perf_counter()
        sha256_of(path)
        open_session(path)
        times.append(time.perf_counter() - start)
    return 1000 * statistics.median(times)


def spearman(left: Vectors, right: Vectors) -> float:
    """Returns the rank correlation of two vectors without ties."""
    ranks = [np.argsort(np.argsort(values)) for values in (left, right)]
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


def write_candidates(
    recipe: build.Recipe, source: Path, candidates: dict[str, Linear], folder: Path
) -> dict[str, Path]:
    """Builds one graph per candidate; the first is float32 throughout."""
    weights = load_file(source / "model.safetensors")
    paths = {}
    for index, (name, linear) in enumerate(candidates.items()):
        model = build.build_graph(
            weights,
            prefix=recipe.prefix,
            is_cross_encoder=recipe.is_cross_encoder,
            linear=linear,
            quantise_embeddings=index > 0,
        )
        paths[name] = folder / f"{recipe.name}-{index}.onnx"
        paths[name].write_bytes(model.SerializeToString(deterministic=True))
    return paths


def print_table(header: str, rows: Sequence[str]) -> None:
    """Prints a markdown table."""
    print(f"\n| {header} |\n|{' --- |' * (header.count('|') + 1)}")
    print("\n".join(f"| {row} |" for row in rows), flush=True)


@dataclass(frozen=True, slots=True)
class Bench:
    """The data of both comparisons: texts, graphs to build and the number of timings."""

    tokenizer: Tokenizer
    data: Dataset
    candidates: dict[str, Linear]
    pairs: int
    passes: int
    folder: Path


def compare_cross_encoders(source: Path, bench: Bench) -> None:
    """Prints the scores and speed of each candidate, and the speed of several schedules."""
    recipe, passes = build.RECIPES["cross-encoder"], bench.passes
    paths = write_candidates(recipe, source, bench.candidates, bench.folder)
    encodings = bench.tokenizer.encode_batch(bench.data.pairs(bench.pairs))
    sample = encodings[:SPEED_SAMPLE]
    sessions = {name: open_session(path) for name, path in paths.items()}
    scores = {name: run_each(session, encodings)[:, 0] for name, session in sessions.items()}
    alone: dict[str, Callable[[], object]] = {
        name: partial(run_batches, session, sample, 1, by_length=False)
        for name, session in sessions.items()
    }
    speed = rates(len(sample), alone, passes)
    exact = scores["float32"]
    tokens = statistics.mean(len(encoding.ids) for encoding in encodings)
    print(
        f"\n{len(encodings)} pairs, mean {tokens:.0f} tokens, logits' deviation {exact.std():.2f}"
    )
    rows = []
    for name, path in paths.items():
        difference = np.abs(scores[name] - exact)
        batched = run_batches(sessions[name], sample, 16, by_length=False)[:, 0]
        moved = np.abs(batched - scores[name][: len(sample)]).max()
        rows.append(
            f"{name} | {path.stat().st_size / 1e6:.1f} | {load_milliseconds(path, passes):.0f} | "
            f"{speed[name]:.1f} | {spearman(scores[name], exact):.5f} | {difference.max():.3f} | "
            f"{difference.mean():.4f} | {moved:.5f}"
        )
    print_table(
        "cross-encoder | MB | load ms | pairs/s, 1 thread | Spearman | largest difference | "
        "mean difference | alone against padded batch of 16",
        rows,
    )
    single, double = sessions[CHOSEN], open_session(paths[CHOSEN], threads=2)
    schedules: dict[str, Callable[[], object]] = {
        "one pair per run, 2 at a time, 1 thread each": partial(run_each, single, sample),
        "one pair per run, 2 threads inside": partial(
            run_batches, double, sample, 1, by_length=False
        ),
        "padded batches of 16, 2 threads inside": partial(
            run_batches, double, sample, 16, by_length=False
        ),
        "length-sorted batches of 4, 2 threads inside": partial(
            run_batches, double, sample, 4, by_length=True
        ),
    }
    scheduled = rates(len(sample), schedules, passes)
    print_table("schedule | pairs/s", [f"{name} | {rate:.1f}" for name, rate in scheduled.items()])


def compare_embedders(source: Path, bench: Bench) -> None:
    """Prints the distance of each candidate's embeddings, and the loss in retrieval."""
    data, passes = bench.data, bench.passes
    paths = write_candidates(build.RECIPES["embedder"], source, bench.candidates, bench.folder)
    names = list(data.documents)
    prompts = sorted(data.answers)
    documents = bench.tokenizer.encode_batch(list(data.documents.values()))
    queries = bench.tokenizer.encode_batch([data.prompts[prompt] for prompt in prompts])
    sessions = {name: open_session(path) for name, path in paths.items()}
    sample = [*documents[: SPEED_SAMPLE // 2], *queries[: SPEED_SAMPLE // 2]]
    alone: dict[str, Callable[[], object]] = {
        name: partial(run_batches, session, sample, 1, by_length=False)
        for name, session in sessions.items()
    }
    speed = rates(len(sample), alone, passes)
    print(f"\n{len(documents)} documents, {len(queries)} prompts with an answer")
    rows = []
    for name, path in paths.items():
        rows_found = run_each(sessions[name], [*documents, *queries])
        if name == "float32":
            exact = rows_found
        cosines = (rows_found * exact).sum(axis=1)
        order = np.argsort(-(rows_found[len(documents) :] @ rows_found[: len(documents)].T), axis=1)
        recall = {
            depth: statistics.mean(
                len(data.answers[prompt] & {names[i] for i in best[:depth]})
                / len(data.answers[prompt])
                for prompt, best in zip(prompts, order, strict=True)
            )
            for depth in (1, 12)
        }
        rows.append(
            f"{name} | {path.stat().st_size / 1e6:.1f} | {load_milliseconds(path, passes):.0f} | "
            f"{speed[name]:.1f} | {cosines.min():.5f} | {cosines.mean():.5f} | "
            f"{recall[1]:.4f} | {recall[12]:.4f}"
        )
    print_table(
        "embedder | MB | load ms | texts/s, 1 thread | smallest cosine | mean cosine | "
        "recall@1 | recall@12",
        rows,
    )


def main() -> None:
    """Reads the arguments and prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, help="the skill-triggers folder, in BEIR's layout")
    parser.add_argument("embedder", type=Path, help="folder with the embedder's original weights")
    parser.add_argument("cross_encoder", type=Path, help="likewise for the cross-encoder")
    parser.add_argument("--passes", type=int, default=5, help="timed passes; medians are printed")
    parser.add_argument("--pairs", type=int, default=200, help="how many to score")
    parser.add_argument("--chosen", action="store_true", help="only float32 and the chosen way")
    arguments = parser.parse_args()
    tokenizer = Tokenizer.from_file(str(arguments.embedder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(MAXIMUM_TOKENS)
    processor = next(line for line in _lines(Path("/proc/cpuinfo")) if line.startswith("flags"))
    wanted = ("avx2", "avx512f", "avx_vnni", "avx512_vnni", "amx_int8")
    present = [flag for flag in wanted if flag in processor.split()]
    print(f"{os.cpu_count()} cores with {', '.join(present)}; onnxruntime {ort.__version__}")
    with tempfile.TemporaryDirectory() as folder:
        names = ("float32", CHOSEN) if arguments.chosen else tuple(CANDIDATES)
        bench = Bench(
            tokenizer,
            Dataset(arguments.data),
            {name: CANDIDATES[name] for name in names},
            arguments.pairs,
            arguments.passes,
            Path(folder),
        )
        compare_cross_encoders(arguments.cross_encoder, bench)
        compare_embedders(arguments.embedder, bench)


if __name__ == "__main__":
    main()
