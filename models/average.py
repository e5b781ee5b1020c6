"""Averages the weights of models that were trained from the same start."""

from __future__ import annotations

import argparse
from pathlib import Path

from hashes import check_weights, list_weights
from safetensors.torch import load_file, save_file


def average(folders: list[Path], shares: list[float], output: Path) -> None:
    """Writes the weighted mean of the weights that all folders have.

    Checkpoints of one start averaged (Wortsman et al. 2022, arXiv 2203.05482), or a fine-tuned
    model and its start (arXiv 2109.01903), lose less on other data than the last checkpoint.

    Args:
        folders: Each with `model.safetensors`; the first one's other files are copied.
        shares: One weight a folder; scaled here to a sum of 1.
        output: Folder to write; made where missing.
    """
    check_weights(*folders)
    models = [
        {
            name: tensor
            for name, tensor in load_file(folder / "model.safetensors").items()
            if tensor.is_floating_point()
        }
        for folder in folders
    ]
    common = set(models[0]).intersection(*models[1:])
    missing = set(models[0]).union(*models[1:]) - common
    # The pooler of the start is not part of the embedder that was made from it.
    if any(not name.startswith("pooler.") for name in missing):
        raise SystemExit(f"not in all of the models: {', '.join(sorted(missing))}")
    total = sum(shares)
    mean = {
        name: sum(share / total * model[name] for share, model in zip(shares, models, strict=True))
        for name in sorted(common)
    }
    output.mkdir(parents=True, exist_ok=True)
    save_file(mean, output / "model.safetensors")
    for name in ("config.json", "tokenizer.json"):
        (output / name).write_bytes((folders[0] / name).read_bytes())
    list_weights(output)


def main() -> None:
    """Reads the arguments and writes the mean."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path, help="folder to write the weights to")
    parser.add_argument("folders", type=Path, nargs="+", help="folders of weights")
    parser.add_argument("--shares", type=float, nargs="+", help="one a folder (default: equal)")
    arguments = parser.parse_args()
    shares = arguments.shares or [1.0] * len(arguments.folders)
    if len(shares) != len(arguments.folders):
        parser.error(f"{len(shares)} shares for {len(arguments.folders)} folders: one each")
    average(arguments.folders, shares, arguments.output)


if __name__ == "__main__":
    main()
