"""Shared by both training scripts: encoding, the schedule, and workers that average gradients."""

from __future__ import annotations

import signal
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import bm25s
import numpy as np
import torch
import torch.distributed as distributed
from hashes import list_weights
from safetensors.torch import load_file, save_file
from tokenizers import Encoding, Tokenizer
from torch import Tensor
from transformers import BertConfig, BertModel, PreTrainedModel

Pairs = Sequence[str] | Sequence[tuple[str, str]]

BFLOAT16 = torch.cpu.get_capabilities().get("avx512_bf16", False)


class Encoder:
    """Turns texts or pairs of texts into padded tensors of token ids."""

    def __init__(self, tokenizer: Path, max_length: int) -> None:
        """Reads `tokenizer.json`; cuts at `max_length` tokens, the longer text first."""
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
        return {name: torch.from_numpy(array) for name, array in arrays.items()}


class Lexical:
    """BM25 over each pool, to find wrong documents that share words with a query."""

    def __init__(self, pools: dict[str, dict[str, str]]) -> None:
        self._ids = {name: list(pool) for name, pool in pools.items()}
        self._models = {}
        for name, pool in pools.items():
            model = bm25s.BM25(k1=1.2, b=0.75)
            model.index(_tokens(list(pool.values())), show_progress=False)
            self._models[name] = model

    def nearest(self, pool: str, queries: Sequence[str], count: int) -> list[list[str]]:
        """Returns the ids of the best `count` documents for each query, best first."""
        ids = self._ids[pool]
        rows, _ = self._models[pool].retrieve(
            _tokens(queries), k=min(count, len(ids)), show_progress=False, n_threads=1
        )
        return [[ids[place] for place in row] for row in rows]

    def scores(self, pool: str, query: str) -> np.ndarray:
        """Returns the score [n] of each document of a pool, 0 if the query has only stop words."""
        words = bm25s.tokenize(query, stopwords="en", show_progress=False, return_ids=False)[0]
        if not words:
            return np.zeros(len(self._ids[pool]))
        return np.asarray(self._models[pool].get_scores(words))


def _tokens(texts: Sequence[str]) -> bm25s.tokenization.Tokenized:
    return bm25s.tokenize(list(texts), stopwords="en", show_progress=False)


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
        gradients = [
            parameter.grad for parameter in self.model.parameters() if parameter.grad is not None
        ]
        if distributed.is_initialized():
            flat = torch.cat([gradient.flatten() for gradient in gradients])
            distributed.all_reduce(flat)
            flat /= distributed.get_world_size()
            for gradient, part in zip(
                gradients, flat.split([gradient.numel() for gradient in gradients]), strict=True
            ):
                gradient.copy_(part.view_as(gradient))
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        share = min(1.0, (self.done + 1) / self.warm_up)
        share *= self.last + (1 - self.last) * (1 - self.done / self.steps)
        for group in self._inner.param_groups:
            group["lr"] = self.rate * share
        self._inner.step()
        self._inner.zero_grad()
        self.done += 1

    def save(self, path: Path, made_of: Sequence[str], loss: float) -> None:
        """Writes the state for `resume`, including the weights; from the first worker only."""
        if rank() == 0:
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
        state = torch.load(path, weights_only=True)
        if state["made_of"] != list(made_of):
            raise SystemExit(f"{path}: belongs to a run on other inputs; remove it to start anew")
        self.model.load_state_dict(state["model"])
        self._inner.load_state_dict(state["optimiser"])
        self.done = self._resumed = state["done"]
        return float(state["loss"])

    def report(self, loss: float) -> None:
        """Prints the progress of the run, from the first worker only."""
        if rank() == 0:
            passed = time.monotonic() - self._began
            left = passed / max(1, self.done - self._resumed) * (self.steps - self.done)
            print(
                f"step {self.done}/{self.steps} loss {loss:.4f} {passed:.0f} s, {left:.0f} s left",
                flush=True,
            )


def save(model: PreTrainedModel, start: Path, output: Path) -> None:
    """Writes a folder of a model: weights, configuration, the start's tokenizer, their hashes.

    Only the first worker writes; the others have the same weights.
    """
    if rank() == 0:
        output.mkdir(parents=True, exist_ok=True)
        weights = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
        save_file(weights, output / "model.safetensors")
        model.config.to_json_file(output / "config.json")
        (output / "tokenizer.json").write_bytes((start / "tokenizer.json").read_bytes())
        list_weights(output)


def freeze(model: BertModel, share: float) -> None:
    """Freezes all embeddings and this share of the layers, the lowest."""
    layers = model.encoder.layer
    for part in (model.embeddings, *layers[: int(len(layers) * share)]):
        part.requires_grad_(False)


def rank() -> int:
    """Returns this worker's number, 0 if there is only one worker."""
    return distributed.get_rank() if distributed.is_initialized() else 0


def world_size() -> int:
    """Returns the number of workers, 1 outside a process group."""
    return distributed.get_world_size() if distributed.is_initialized() else 1


def run_workers(count: int, work: Callable[..., None], *arguments: object) -> None:
    """Runs `work(*arguments)` in processes of one thread each, which average their gradients.

    Two processes of one thread train about a quarter faster on two cores than one process of two.
    """
    if count == 1:
        torch.set_num_threads(1)
        work(*arguments)
        return
    with tempfile.TemporaryDirectory() as folder:
        meeting = f"file://{folder}/meeting"
        torch.multiprocessing.spawn(_worker, (count, meeting, work, arguments), nprocs=count)


def _worker(
    number: int, count: int, meeting: str, work: Callable[..., None], arguments: tuple[object, ...]
) -> None:
    # torch ends the workers of a dead parent by this signal, which background jobs ignore.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=meeting, rank=number, world_size=count)
    work(*arguments)
    distributed.destroy_process_group()


def load_embedder(folder: Path) -> BertModel:
    """Returns the model of a folder with `config.json` and `model.safetensors`, without dropout."""
    config = BertConfig.from_json_file(folder / "config.json")
    config.hidden_dropout_prob = config.attention_probs_dropout_prob = 0.0
    # The fused attention is slower than the plain one in bfloat16.
    config._attn_implementation = "eager"
    model = BertModel(config, add_pooling_layer=False)
    fill(model, load_file(folder / "model.safetensors"), folder)
    return model.train()


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


def embed(
    model: torch.nn.Module, encoder: Encoder, texts: Sequence[str], batch: int = 16
) -> Tensor:
    """Returns unit vectors [n, width], computed in batches of texts of similar length."""
    order = sorted(range(len(texts)), key=lambda place: len(texts[place]))
    parts = [
        pool_mean(model, encoder([texts[place] for place in order[start : start + batch]]))
        for start in range(0, len(order), batch)
    ]
    return torch.cat(parts)[torch.tensor(order).argsort()]


def products() -> torch.autocast:
    """Computes products in bfloat16 where the processor has instructions for it.

    bfloat16 is precise enough for this training. It takes a third of the time with such
    instructions, and three times as long without.
    """
    return torch.autocast("cpu", dtype=torch.bfloat16, enabled=BFLOAT16)


def pool_mean(model: torch.nn.Module, inputs: dict[str, Tensor]) -> Tensor:
    """Returns the mean over the unmasked tokens, scaled to unit length, [batch, width]."""
    with products():
        hidden = model(**inputs).last_hidden_state
    hidden = hidden.float()
    mask = inputs["attention_mask"].unsqueeze(-1).to(hidden.dtype)
    return torch.nn.functional.normalize((hidden * mask).sum(1), dim=-1)
