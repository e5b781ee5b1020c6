"""Writes golden values of a model, computed by torch in float32 from its original weights."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from hashes import check_weights, sha256_of
from numpy.typing import NDArray
from train_cross_encoder import new_model
from transformers import BertModel, PreTrainedTokenizerFast

MAXIMUM_TOKENS = 256
SHOWN_NUMBERS = 8

# Allowed differences of an int8 graph from these values; models/README.md gives the measured
# distribution and the reasons for these limits.
EMBEDDER_TOLERANCE = {"first_numbers": 0.03, "cosine_matrix": 0.05, "mean_cosine": 0.015}
CROSS_ENCODER_TOLERANCE = {"logit": 0.5, "mean_logit": 0.15}

LONG_DOCUMENT = " ".join(
    f"Step {number}: open valve {number}, wait until gauge {number % 7} reads below "
    f"{number * 3} kilopascal, write the value in column {number % 5}, then close the valve again."
    for number in range(1, 31)
)

TEXTS = [
    "resize an image",
    "Resize, crop or convert pictures between PNG, JPEG and WebP.",
    "Turn the quarterly figures in this spreadsheet into a bar chart with labelled axes.",
    "spreadsheet-charts: Draws charts from tables in workbooks; for bar, line and pie plots.",
    "Which of my tests fail only on Windows, and since which commit?",
    "git-bisect-helper: Finds the commit that broke a test by bisecting the history.",
    "How do I prune tomato plants in August?",
    "Prune side shoots weekly once the first truss has set; stop the leader in late summer.",
    "Übersetze diesen Brief höflich ins Französische.",
    "Reescribe el párrafo con un tono más formal, por favor.",
    "Покажи расписание поездов на завтра",
    "把这份合同翻译成英文，并标出付款条款。",
    "会議の議事録を三行で要約してください。",
    "회의 일정을 다음 주로 옮겨 줘",
    "رتّب الملفات حسب التاريخ",
    "🚀🔥 ship it!!! 🎉",
    "",
    "   \t\n ",
    "?!... --- *** ;;;",
    "a",
    "SELECT name, SUM(amount) FROM orders GROUP BY name HAVING SUM(amount) > 1000;",
    "def add(first: int, second: int) -> int:\n    return first + second",
    "naïve café résumé - ﬁne ligature, wide \uff21\uff22\uff23 and a zero\u200bwidth space",
    LONG_DOCUMENT,
]

_IMAGE = "image-tools: Resize, crop or convert pictures between PNG, JPEG and WebP."
_CHARTS = "spreadsheet-charts: Draws charts from tables in workbooks; bar, line and pie plots."
_BISECT = "git-bisect-helper: Finds the commit that broke a test by bisecting the history."
_LETTERS = "letter-writer: Drafts polite business letters. Not for legal texts or contracts."

PAIRS = [
    ("make this photo half as wide", _IMAGE),
    ("make this photo half as wide", _CHARTS),
    ("make this photo half as wide", _BISECT),
    ("plot revenue per month as bars", _CHARTS),
    ("plot revenue per month as bars", _IMAGE),
    ("this test passed last week, which change broke it?", _BISECT),
    ("this test passed last week, which change broke it?", _LETTERS),
    ("write to the landlord about the broken boiler", _LETTERS),
    ("write a contract with the landlord", _LETTERS),
    ("what is the capital of Portugal?", _IMAGE),
    ("what is the capital of Portugal?", "Lisbon is the capital and largest city of Portugal."),
    ("how warm must bread dough be to rise", "Dough rises best between 24 and 27 degrees Celsius."),
    ("how warm must bread dough be to rise", "The kiln reaches 1,200 degrees within six hours."),
    ("Übersetze diesen Brief ins Französische", "translator: Translates letters and documents."),
    ("把这份合同翻译成英文", "translator: Translates letters and documents."),
    ("会議の議事録を要約して", "minutes: Summarises the minutes of a meeting in three lines."),
    ("🚀 deploy!!", "release-manager: Tags a version, builds it and deploys it to production."),
    ("resize", ""),
    ("", _IMAGE),
    ("", ""),
    ("???", "!!! ... ---"),
    ("which gauge do I read in step 12", LONG_DOCUMENT),
    ("how do I knit a scarf", LONG_DOCUMENT),
    ("sum of two integers", "def add(first: int, second: int) -> int: return first + second"),
]


def load_tokenizer(folder: Path) -> PreTrainedTokenizerFast:
    """Returns the tokenizer of a folder with the names of the special tokens set."""
    return PreTrainedTokenizerFast(
        tokenizer_file=str(folder / "tokenizer.json"),
        unk_token="[UNK]",  # noqa: S106 - a word, not a password
        cls_token="[CLS]",  # noqa: S106
        sep_token="[SEP]",  # noqa: S106
        pad_token="[PAD]",  # noqa: S106
    )


def encode(tokenizer: PreTrainedTokenizerFast, *texts: str) -> dict[str, torch.Tensor]:
    """Tokenises a text, or a pair of which only the second text is ever cut, without padding."""
    cut = "only_second" if len(texts) == 2 else "only_first"
    # Lists, because a single empty second text would count as no second text.
    encoding = tokenizer(
        *([text] for text in texts),
        truncation=cut,
        max_length=MAXIMUM_TOKENS,
        padding=False,
        return_tensors="pt",
        return_token_type_ids=True,
    )
    return dict(encoding)


def embed(model: BertModel, inputs: dict[str, torch.Tensor]) -> NDArray[np.float32]:
    """Returns the mean of the token vectors, scaled to unit length."""
    hidden = model(**inputs).last_hidden_state[0]
    unit = torch.nn.functional.normalize(hidden.mean(dim=0), dim=0).numpy()
    return np.asarray(unit, dtype=np.float32)


def provenance(folder: Path) -> dict[str, Any]:
    """Returns the software that computed the values."""
    return {
        "weights_sha256": sha256_of(folder / "model.safetensors"),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "precision": "float32",
        "maximum_tokens": MAXIMUM_TOKENS,
    }


def golden_embeddings(folder: Path) -> dict[str, Any]:
    """Returns the golden values of the embedder."""
    tokenizer = load_tokenizer(folder)
    model = BertModel.from_pretrained(folder, attn_implementation="eager").float().eval()
    encoded = [encode(tokenizer, text) for text in TEXTS]
    vectors = np.stack([embed(model, inputs) for inputs in encoded])
    cosines = vectors.astype(np.float64) @ vectors.T.astype(np.float64)
    cases = [
        {
            "text": text,
            "input_ids": inputs["input_ids"][0].tolist(),
            "first_numbers": [round(float(value), 6) for value in vector[:SHOWN_NUMBERS]],
        }
        for text, inputs, vector in zip(TEXTS, encoded, vectors, strict=True)
    ]
    return {
        "made_with": provenance(folder),
        "tolerance": EMBEDDER_TOLERANCE,
        "cases": cases,
        "cosine_matrix": [[round(float(value), 6) for value in row] for row in cosines],
    }


def golden_logits(folder: Path) -> dict[str, Any]:
    """Returns the golden values of the cross-encoder."""
    tokenizer = load_tokenizer(folder)
    model = new_model(folder).eval()
    cases = []
    for query, document in PAIRS:
        inputs = encode(tokenizer, query, document)
        cases.append(
            {
                "query": query,
                "document": document,
                "input_ids": inputs["input_ids"][0].tolist(),
                "token_type_ids": inputs["token_type_ids"][0].tolist(),
                "logit": round(float(model(**inputs).logits[0, 0]), 6),
            }
        )
    return {
        "made_with": provenance(folder),
        "tolerance": CROSS_ENCODER_TOLERANCE,
        "cases": cases,
    }


def write_json(path: Path, values: dict[str, Any]) -> None:
    """Writes one case or matrix row per line, so that a change affects few lines."""
    parts = []
    for key, value in values.items():
        if isinstance(value, list):
            rows = ",\n".join(f"    {json.dumps(row, ensure_ascii=False)}" for row in value)
            parts.append(f"  {json.dumps(key)}: [\n{rows}\n  ]")
        else:
            parts.append(f"  {json.dumps(key)}: {json.dumps(value)}")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8", newline="\n")


WRITTEN = {"embedder": golden_embeddings, "cross_encoder": golden_logits}


def main() -> None:
    """Reads the arguments and writes one file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=sorted(WRITTEN))
    parser.add_argument("weights", type=Path, help="folder with the model's original weights")
    parser.add_argument("output", type=Path, help="folder of the golden files, tests/golden")
    arguments = parser.parse_args()
    check_weights(arguments.weights)
    torch.set_num_threads(1)
    with torch.inference_mode():
        values = WRITTEN[arguments.kind](arguments.weights)
    write_json(arguments.output / f"{arguments.kind}.json", values)


if __name__ == "__main__":
    main()
