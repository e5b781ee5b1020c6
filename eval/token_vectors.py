"""Measures what MaxSim over the bundled embedder's token vectors adds to the other signals.

    python eval/token_vectors.py WITH_BODIES/skill-triggers runs/skill-triggers-dev.run.jsonl

The run is one that `crossgate eval --modes always --runs runs` stored, with the scores of both
stages. MaxSim is the mean over the tokens of the query of the best cosine with a token of the
document: its head and the beginning of its body, 1,500 characters in all and at most `--tokens`
tokens. Weights are fitted on one half of the queries and read on the other, for ten splits by
document. The output has recall@1 and the listwise loss with and without MaxSim, and the bytes per
document. It needs `onnx`, which adds the token vectors to the outputs of the graph.

Khattab and Zaharia, "ColBERT", SIGIR 2020.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from tokenizers import Tokenizer

from crossgate._calibration.fits import Scores, fit_likeliest, folds
from crossgate._decision.router import DEFAULT_PROFILE
from crossgate._evaluation.stored_runs import StoredQuery, read_run
from crossgate._values.profile_files import read_profile
from crossgate.evaluation import read_dataset
from crossgate.models import locate

Array = NDArray[np.float32]

CHARACTERS = 1_500
SPLITS = 10


class TokenEmbedder:
    """The bundled embedder, with one unit vector per token."""

    def __init__(self, tokens: int) -> None:
        local = locate("crossgate-embedder-minilm-l6", "embedder")
        model = onnx.load(str(local.model))
        name = next(node for node in model.graph.node if "token_sums" in node.output).input[1]
        model.graph.output.append(onnx.helper.make_empty_tensor_value_info(name))
        self._session = onnxruntime.InferenceSession(model.SerializeToString())
        self._name = name
        self._tokenizer = Tokenizer.from_file(str(local.tokenizer))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(tokens)

    def embed(self, text: str) -> Array:
        """Return the vectors of the tokens, without [CLS] and [SEP]; shape (tokens, 384)."""
        encoding = self._tokenizer.encode(text)
        row = {
            "input_ids": encoding.ids,
            "attention_mask": encoding.attention_mask,
            "token_type_ids": encoding.type_ids,
        }
        given = {name: np.array([values], dtype=np.int64) for name, values in row.items()}
        (output,) = self._session.run([self._name], given)
        vectors = output[0][1:-1]
        units: Array = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        return units


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dataset", help="BEIR folder of the documents")
    parser.add_argument("run", help="stored run of its queries")
    parser.add_argument("--split", default="dev", help="split of the run (default: dev)")
    parser.add_argument("--tokens", type=int, default=128, help="tokens per document")
    options = parser.parse_args()
    profile = read_profile(DEFAULT_PROFILE)
    embedder = TokenEmbedder(options.tokens)
    texts = {
        document.id: f"{document.content}\n{document.body}"[:CHARACTERS]
        for document in read_dataset(options.dataset, split=options.split).documents
    }
    run = read_run(options.run)
    queries = [query for query in run.queries if query.relevant and not query.mentions_name]
    scores = [Scores.of(query, profile.evidence) for query in queries]
    kept = [place for place, row in enumerate(scores) if row.right.any()]
    read = sorted({id for place in kept for id in queries[place].pairs})
    vectors = {id: embedder.embed(texts[id]) for id in read}
    bytes_each = np.mean([len(of) for of in vectors.values()]) * 384
    print(f"{len(kept)} queries, {len(read)} documents, {bytes_each:.0f} bytes each in 8 bits")
    added = {place: _max_sim(queries[place], vectors, embedder) for place in kept}
    for name, columns in (("stage 1", [0, 1]), ("both stages", [0, 1, 2])):
        for label, late in (("without", False), ("with MaxSim", True)):
            features = {
                place: np.column_stack(
                    [scores[place].features(profile.blend)[:, columns]]
                    + ([added[place]] if late else [])
                )
                for place in kept
            }
            recall, loss = _cross_read(features, scores, [queries[place] for place in kept], kept)
            print(f"{name:12} {label:12} recall@1 {recall:.3f}  loss {loss:.3f}")


def _max_sim(
    query: StoredQuery, vectors: dict[str, Array], embedder: TokenEmbedder
) -> NDArray[np.float64]:
    asked = embedder.embed(query.text)
    ids = sorted(id for id in (scored.id for scored in query.scored) if id in query.pairs)
    return np.array([(asked @ vectors[id].T).max(axis=1).mean() for id in ids], dtype=np.float64)


def _cross_read(
    features: dict[int, NDArray[np.float64]],
    scores: Sequence[Scores],
    queries: Sequence[StoredQuery],
    kept: Sequence[int],
) -> tuple[float, float]:
    recalls, losses = [], []
    for seed in range(SPLITS):
        halves = folds(queries, [""] * len(queries), count=2, seed=seed)
        for fit, report in (halves, halves[::-1]):
            chosen = [kept[at] for at in fit]
            fitted = fit_likeliest(
                [features[place] for place in chosen],
                [scores[place].right for place in chosen],
                offset=[scores[place].evidence for place in chosen],
            )
            for place in (kept[at] for at in report):
                row = features[place] @ np.array(fitted.weights) + scores[place].evidence
                likely = np.exp(row - row.max())
                right = scores[place].right
                recalls.append(right[int(row.argmax())])
                losses.append(-np.log(likely[right].mean() / likely.sum()))
    return float(np.mean(recalls)), float(np.mean(losses))


if __name__ == "__main__":
    main()
