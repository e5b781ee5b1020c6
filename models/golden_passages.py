"""Writes golden values of the passage reranker, computed by numpy from its weights in float64."""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

import build
import numpy as np
from hashes import check_hash, check_weights, sha256_of
from numpy.typing import NDArray
from safetensors.numpy import load_file
from tokenizers import Encoding, Tokenizer

Values = NDArray[np.float64]
NAME = "crossgate-passages-minilm-l12"
MAXIMUM_TOKENS = 256

# Allowed differences of the bundled graph from float64; models/README.md gives the measured ones.
TOLERANCE = {"logit": 0.5, "mean_logit": 0.12}

_erf = np.vectorize(math.erf, otypes=[np.float64])


class Reader:
    """BERT with its classifier over the pooled first token, one pair at a time."""

    def __init__(self, folder: Path) -> None:
        """Reads the weights of a folder."""
        tensors = load_file(folder / "model.safetensors")
        self._weights = {name: values.astype(np.float64) for name, values in tensors.items()}
        self._layers = sum(name.endswith("self.query.bias") for name in tensors)

    def logit(self, encoding: Encoding) -> float:
        """Returns the logit of a pair."""
        weights, source = self._weights, "bert.embeddings."
        places = range(len(encoding.ids))
        hidden = (
            weights[f"{source}word_embeddings.weight"][encoding.ids]
            + weights[f"{source}position_embeddings.weight"][places]
            + weights[f"{source}token_type_embeddings.weight"][encoding.type_ids]
        )
        hidden = self._norm(hidden, f"{source}LayerNorm")
        for layer in range(self._layers):
            name = f"bert.encoder.layer.{layer}."
            mixed = self._dense(self._attended(hidden, name), f"{name}attention.output.dense")
            hidden = self._norm(hidden + mixed, f"{name}attention.output.LayerNorm")
            widened = self._dense(hidden, f"{name}intermediate.dense")
            active = widened * (1 + _erf(widened / math.sqrt(2))) / 2
            narrowed = self._dense(active, f"{name}output.dense")
            hidden = self._norm(hidden + narrowed, f"{name}output.LayerNorm")
        pooled = np.tanh(self._dense(hidden[0], "bert.pooler.dense"))
        return float(self._dense(pooled, "classifier")[0])

    def _dense(self, values: Values, name: str) -> Values:
        found: Values = values @ self._weights[f"{name}.weight"].T + self._weights[f"{name}.bias"]
        return found

    def _norm(self, values: Values, name: str) -> Values:
        centred = values - values.mean(axis=-1, keepdims=True)
        deviation = np.sqrt((centred**2).mean(axis=-1, keepdims=True) + build.LAYER_NORM_EPSILON)
        weight, bias = self._weights[f"{name}.weight"], self._weights[f"{name}.bias"]
        found: Values = centred / deviation * weight + bias
        return found

    def _attended(self, hidden: Values, name: str) -> Values:
        """Returns the attention output of each token, with the heads concatenated."""
        tokens, width = hidden.shape

        def heads(part: str) -> Values:
            values = self._dense(hidden, f"{name}attention.self.{part}")
            return values.reshape(tokens, width // build.HEAD_WIDTH, -1).transpose(1, 0, 2)

        query, key, value = (heads(part) for part in ("query", "key", "value"))
        scores = query @ key.transpose(0, 2, 1) / math.sqrt(build.HEAD_WIDTH)
        shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
        shares /= shares.sum(axis=-1, keepdims=True)
        mixed: Values = (shares @ value).transpose(1, 0, 2)
        return mixed.reshape(tokens, width)


def golden(folder: Path, pairs: list[tuple[str, str]]) -> dict[str, Any]:
    """Returns the golden values for a folder of weights."""
    check_weights(folder)
    check_hash(folder / "model.safetensors", str(build.RECIPES[NAME].weights_sha256))
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(MAXIMUM_TOKENS, strategy="only_second")
    reader, cases = Reader(folder), []
    for query, document in pairs:
        encoding = tokenizer.encode(query, document)
        cases.append(
            {
                "query": query,
                "document": document,
                "input_ids": encoding.ids,
                "token_type_ids": encoding.type_ids,
                "logit": round(reader.logit(encoding), 6),
            }
        )
    return {
        "made_with": {
            "weights_sha256": sha256_of(folder / "model.safetensors"),
            "numpy": np.__version__,
            "precision": "float64",
            "maximum_tokens": MAXIMUM_TOKENS,
        },
        "tolerance": TOLERANCE,
        "cases": cases,
    }


# Web questions and passages, which the model was trained for; the pairs of the other cross-encoder
# come first.
PASSAGES = [
    (
        "how many people live in berlin",
        "Berlin had a population of 3,520,031 registered inhabitants in an area of 891.82 square "
        "kilometres.",
    ),
    (
        "how many people live in berlin",
        "Berlin is well known for its museums, its night life and its parks along the Spree.",
    ),
    (
        "what causes a fuse to blow",
        "A fuse blows when more current flows through it than it is rated for, because of a short "
        "circuit or of too many devices on one line.",
    ),
    (
        "what causes a fuse to blow",
        "Blow moulding forms hollow parts from plastic; a mould is closed around a hot tube.",
    ),
]


def main() -> None:
    """Reads the arguments and writes `passages.json` next to the other golden values."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("weights", type=Path, help="folder of the trained weights")
    parser.add_argument("output", type=Path, help="folder of the golden files, tests/golden")
    arguments = parser.parse_args()
    others = json.loads((arguments.output / "cross_encoder.json").read_text(encoding="utf-8"))
    pairs = [(case["query"], case["document"]) for case in others["cases"]]
    values = golden(arguments.weights, [*pairs, *PASSAGES])
    lines = ",\n".join(f"    {json.dumps(case, ensure_ascii=False)}" for case in values["cases"])
    heads = [
        f"  {json.dumps(key)}: {json.dumps(values[key])}" for key in ("made_with", "tolerance")
    ]
    text = "{\n" + ",\n".join([*heads, f'  "cases": [\n{lines}\n  ]']) + "\n}\n"
    (arguments.output / "passages.json").write_text(text, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
