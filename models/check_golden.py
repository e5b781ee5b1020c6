"""Checks that built models reproduce the golden values within the tolerances stored with them."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray
from tokenizers import Encoding, Tokenizer


class Model:
    """A built model folder, run one unpadded input at a time."""

    def __init__(self, folder: Path, maximum_tokens: int, cut: str) -> None:
        """Opens the graph and the tokenizer; `cut` names the text that truncation shortens."""
        self._session = ort.InferenceSession(
            folder / "model.onnx", providers=["CPUExecutionProvider"]
        )
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.enable_truncation(maximum_tokens, strategy=cut)

    def run(self, text: str, pair: str | None = None) -> tuple[Encoding, NDArray[np.float32]]:
        """Returns the tokens of one text or pair and the row that the graph gives for it."""
        encoding = self._tokenizer.encode(text, pair)
        columns = {
            "input_ids": encoding.ids,
            "attention_mask": encoding.attention_mask,
            "token_type_ids": encoding.type_ids,
        }
        inputs = {name: np.array([column], np.int64) for name, column in columns.items()}
        return encoding, self._session.run(None, inputs)[0][0]


def embedder_differences(golden: dict[str, Any], folder: Path) -> dict[str, float]:
    """Returns the embedder's differences, by the name of the tolerance."""
    model = Model(folder, golden["made_with"]["maximum_tokens"], "only_first")
    vectors = []
    for case in golden["cases"]:
        encoding, vector = model.run(case["text"])
        check_tokens(case["text"], encoding.ids, case["input_ids"])
        vectors.append(vector)
    found = np.stack(vectors).astype(np.float64)
    shown = np.array([case["first_numbers"] for case in golden["cases"]])
    cosines = np.array(golden["cosine_matrix"])
    moved = np.abs(found @ found.T - cosines)
    return {
        "first_numbers": float(np.abs(found[:, : shown.shape[1]] - shown).max()),
        "cosine_matrix": float(moved.max()),
        "mean_cosine": float(moved.mean()),
    }


def cross_encoder_differences(golden: dict[str, Any], folder: Path) -> dict[str, float]:
    """Returns the largest and the mean difference of the cross-encoder's logits."""
    model = Model(folder, golden["made_with"]["maximum_tokens"], "only_second")
    differences = []
    for case in golden["cases"]:
        encoding, logits = model.run(case["query"], case["document"])
        check_tokens(case["query"], encoding.ids, case["input_ids"])
        check_tokens(case["query"], encoding.type_ids, case["token_type_ids"])
        differences.append(abs(float(logits[0]) - case["logit"]))
    return {"logit": max(differences), "mean_logit": sum(differences) / len(differences)}


def check_tokens(text: str, found: list[int], expected: list[int]) -> None:
    """Stops the script if the tokens of a text differ from those in the golden file."""
    if found != expected:
        raise SystemExit(f"tokens of {text[:40]!r}: expected {expected}, found {found}")


def main() -> None:
    """Prints every difference with its tolerance; exits with 1 if a tolerance is exceeded."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("golden", type=Path, help="folder of the golden files, tests/golden")
    parser.add_argument("embedder", type=Path, help="folder of the built embedder")
    parser.add_argument("cross_encoder", type=Path, help="folder of the built cross-encoder")
    arguments = parser.parse_args()
    exceeded = False
    for name, folder, measure in (
        ("embedder", arguments.embedder, embedder_differences),
        ("cross_encoder", arguments.cross_encoder, cross_encoder_differences),
    ):
        golden = json.loads((arguments.golden / f"{name}.json").read_text(encoding="utf-8"))
        for quantity, difference in measure(golden, folder).items():
            limit = golden["tolerance"][quantity]
            exceeded |= difference > limit
            print(f"{name}: {quantity} differs by {difference:.4f}, allowed {limit}")
    raise SystemExit(1 if exceeded else 0)


if __name__ == "__main__":
    main()
