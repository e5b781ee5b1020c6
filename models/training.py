"""Shared by the training scripts: encoding, models, and the optimiser with its checkpoints."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from hashes import list_weights
from safetensors.torch import load_file, save_file
from tokenizers import Encoding, Tokenizer
from torch import Tensor
from transformers import BertConfig, BertModel, PreTrainedModel

Pairs = Sequence[str] | Sequence[tuple[str, str]]

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
BFLOAT16 = DEVICE == "cuda" or torch.cpu.get_capabilities().get("avx512_bf16", False)


class Encoder:
    """Turns texts or pairs of texts into padded tensors of token ids."""

    def __init__(self, tokenizer: Path, max_length: int) -> None:
        """Reads `tokenizer.json`; cuts at `max_length` tokens, the longer text first."""
        self.max_length = max_length
        self._tokenizer = Tokenizer.from_file(str(tokenizer))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(max_length, strategy="longest_first")

    def __call__(self, texts: Pairs) -> dict[str, Tensor]:
        """Returns int64 tensors [batch, longest]: input_ids, attention_mask, token_type_ids."""
        encodings: list[Encoding] = self._tokenizer.encode_batch(list(texts))
        longest = max(len(encoding.ids) for encoding in encodings)
        arrays = {
            name: np.zeros((len(encodings), longest), np.int64)
            for name in ("input_ids", "attention_mask", "token_type_ids")
        }
        for row, encoding in enumerate(encodings):
            length = len(encoding.ids)
            arrays["input_ids"][row, :length] = encoding.ids
            arrays["attention_mask"][row, :length] = 1
            arrays["token_type_ids"][row, :length] = encoding.type_ids
        return {name: torch.from_numpy(array).to(DEVICE) for name, array in arrays.items()}


@dataclass(slots=True)
class Optimiser:
    """AdamW with a linear warm-up and a linear decay, over gradients averaged between workers.

    Attributes:
        model: The model to train.
        rate: The highest learning rate.
        steps: Total number of steps.
        warm_up: Steps until the highest rate is reached.
        last: The share of the highest rate at the last step.
        done: Number of steps done.
    """

    model: torch.nn.Module
    rate: float
    steps: int
    warm_up: int
    last: float = 0.02
    done: int = 0
    _resumed: int = 0
    _inner: torch.optim.AdamW = field(init=False)
    _began: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        parameters = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        groups = [
            {
                "params": [parameter for parameter in parameters if parameter.ndim >= 2],
                "weight_decay": 0.01,
            },
            {
                "params": [parameter for parameter in parameters if parameter.ndim < 2],
                "weight_decay": 0.0,
            },
        ]
        self._inner = torch.optim.AdamW(groups, lr=self.rate, fused=True)

    def step(self, loss: Tensor) -> None:
        """Makes one step down the gradient of the loss."""
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        share = min(1.0, (self.done + 1) / self.warm_up)
        share *= self.last + (1 - self.last) * (1 - self.done / self.steps)
        for group in self._inner.param_groups:
            group["lr"] = self.rate * share
        self._inner.step()
        self._inner.zero_grad()
        self.done += 1

    def save(self, path: Path, made_of: Sequence[str], loss: float) -> None:
        """Writes the state for `resume`, including the weights."""
        unfinished = path.with_suffix(".unfinished")
        state = {
            "made_of": list(made_of),
            "done": self.done,
            "loss": loss,
            "model": self.model.state_dict(),
            "optimiser": self._inner.state_dict(),
        }
        torch.save(state, unfinished)
        unfinished.replace(path)

    def resume(self, path: Path, made_of: Sequence[str]) -> float:
        """Restores a checkpoint, and returns its loss; 0 if there is none.

        Args:
            path: The checkpoint.
            made_of: Hashes of the run's inputs; a checkpoint of other inputs stops the script.
        """
        if not path.exists():
            return 0.0
        state = torch.load(path, map_location=DEVICE, weights_only=True)
        if state["made_of"] != list(made_of):
            raise SystemExit(f"{path}: belongs to a run on other inputs; remove it to start anew")
        self.model.load_state_dict(state["model"])
        self._inner.load_state_dict(state["optimiser"])
        self.done = self._resumed = state["done"]
        return float(state["loss"])

    def report(self, loss: float) -> None:
        """Prints the progress of the run."""
        passed = time.monotonic() - self._began
        left = passed / max(1, self.done - self._resumed) * (self.steps - self.done)
        print(
            f"step {self.done}/{self.steps} loss {loss:.4f} {passed:.0f} s, {left:.0f} s left",
            flush=True,
        )


def save(model: PreTrainedModel, start: Path, output: Path) -> None:
    """Writes a folder of a model: weights, configuration, the start's tokenizer, their hashes."""
    output.mkdir(parents=True, exist_ok=True)
    weights = {name: tensor.cpu().contiguous() for name, tensor in model.state_dict().items()}
    save_file(weights, output / "model.safetensors")
    model.config.to_json_file(output / "config.json")
    (output / "tokenizer.json").write_bytes((start / "tokenizer.json").read_bytes())
    list_weights(output)


def config_of(folder: Path, dropout: float) -> BertConfig:
    """Returns the configuration of a folder, with this share of dropout."""
    config = BertConfig.from_json_file(folder / "config.json")
    config.hidden_dropout_prob = config.attention_probs_dropout_prob = dropout
    # On a processor, the fused attention is slower than the plain one in bfloat16.
    config._attn_implementation = "sdpa" if DEVICE == "cuda" else "eager"
    return config


def load_embedder(folder: Path, dropout: float = 0.0) -> BertModel:
    """Returns the model of a folder with `config.json` and `model.safetensors`."""
    model = BertModel(config_of(folder, dropout), add_pooling_layer=False)
    fill(model, load_file(folder / "model.safetensors"), folder)
    return model.to(DEVICE).train()


def fill(
    model: torch.nn.Module, weights: dict[str, Tensor], folder: Path, new: tuple[str, ...] = ()
) -> None:
    """Loads weights into a model, and stops if a weight is missing that would stay random.

    Args:
        model: The model to fill; weights that it does not have are left out.
        weights: By name.
        folder: The folder of the weights.
        new: Prefixes of the names of weights that may be missing.
    """
    lacking, _ = model.load_state_dict(weights, strict=False)
    if lost := [name for name in lacking if not name.startswith(new)]:
        raise SystemExit(f"{folder / 'model.safetensors'}: lacks {', '.join(lost)}")


def products() -> torch.autocast:
    """Computes products in bfloat16 where the processor has instructions for it.

    bfloat16 is precise enough for this training. It takes a third of the time with such
    instructions, and three times as long without.
    """
    return torch.autocast(DEVICE, dtype=torch.bfloat16, enabled=BFLOAT16)


def pool_mean(model: torch.nn.Module, inputs: dict[str, Tensor]) -> Tensor:
    """Returns the mean over the unmasked tokens, scaled to unit length, [batch, width]."""
    with products():
        hidden = model(**inputs).last_hidden_state
    hidden = hidden.float()
    mask = inputs["attention_mask"].unsqueeze(-1).to(hidden.dtype)
    return torch.nn.functional.normalize((hidden * mask).sum(1), dim=-1)
