"""Builds the model folders of crossgate, an int8 ONNX graph and a tokenizer, from weights."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from hashes import check_hash, check_weights, sha256_of
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import load_file

Weights = Mapping[str, NDArray[np.float32]]

# MiniLM's attention heads are this wide, in models of any depth and width.
HEAD_WIDTH = 32
LAYER_NORM_EPSILON = 1e-12

INPUT_NAMES = ("input_ids", "attention_mask", "token_type_ids")
MICROSOFT = "com.microsoft"

# The smallest value of GELU is -0.16997; shifted up by this much its result is never negative,
# so all 256 levels of an unsigned byte serve the range it really has.
GELU_SHIFT = 0.17

# Keeps the scale of a row above zero, so that a row of zeros is not divided by zero.
SMALLEST_MAGNITUDE = 1e-9

# x86-64 without VNNI multiplies unsigned values by signed weights in neighbouring pairs, the first
# input with the second, the third with the fourth, and adds each pair up in 16 bits, where it
# saturates beyond 32,767: 255 times 128 fits.
MOST_OF_NEIGHBOURS = 128

# How far a multiple may be from a whole number, for what float32 has rounded.
WHOLE = 1e-3


@dataclass(frozen=True, slots=True)
class Recipe:
    """The sources of one model and the end of its graph; without hashes, any source is accepted."""

    name: str
    weights_sha256: str | None
    tokenizer_sha256: str | None
    prefix: str
    is_cross_encoder: bool


_TOKENIZER_SHA256 = "3ad857958ba886d154a5a852119fb31a0dd549d03d8a3fc20e33f2336272cc19"
_MS_MARCO_TOKENIZER_SHA256 = "cb374d6bc042c22455946f4e09a89d29882a199fdaf8fb25be00dc8b8857a448"

RECIPES = {
    recipe.name: recipe
    for recipe in (
        Recipe(
            name="crossgate-embedder-minilm-l6",
            weights_sha256="fa828357a0daa16a5658eb0f06b35f95dd2c7f56f7a53c19ed4f851268ec60d6",
            tokenizer_sha256=_TOKENIZER_SHA256,
            prefix="",
            is_cross_encoder=False,
        ),
        Recipe(
            name="crossgate-router-minilm-l12",
            weights_sha256="8f5054c43358adb83e8a060e2d56f5e9929dbced2b84eb5d678719dd6135912c",
            tokenizer_sha256=_MS_MARCO_TOKENIZER_SHA256,
            prefix="bert.",
            is_cross_encoder=True,
        ),
        Recipe(
            name="crossgate-passages-minilm-l12",
            weights_sha256="6094a10b17a83fac1652f0892eecff2bc764c5d40b726a82ba442f949dafa3a1",
            tokenizer_sha256=_MS_MARCO_TOKENIZER_SHA256,
            prefix="bert.",
            is_cross_encoder=True,
        ),
        Recipe("embedder", None, None, prefix="", is_cross_encoder=False),
        Recipe("cross-encoder", None, None, prefix="bert.", is_cross_encoder=True),
    )
}


class GraphWriter:
    """Collects the nodes and constants of one graph in the order in which they run."""

    def __init__(self) -> None:
        """Starts an empty graph."""
        self.nodes: list[onnx.NodeProto] = []
        self._constants: dict[str, onnx.TensorProto] = {}

    def constant(self, name: str, values: NDArray[np.generic]) -> str:
        """Adds a constant once and returns its name; a second call with the name reuses it."""
        if name not in self._constants:
            array = np.ascontiguousarray(values)
            # ascontiguousarray turns a scalar into a vector; some operators insist on scalars.
            self._constants[name] = numpy_helper.from_array(array.reshape(values.shape), name)
        return name

    def node(
        self,
        operator: str,
        inputs: Sequence[str],
        output: str,
        *,
        domain: str = "",
        **attributes: float | int,
    ) -> str:
        """Adds a node with one output and returns the name of that output."""
        self.node_with_outputs(operator, inputs, [output], domain=domain, **attributes)
        return output

    def node_with_outputs(
        self,
        operator: str,
        inputs: Sequence[str],
        outputs: Sequence[str],
        *,
        domain: str = "",
        **attributes: float | int,
    ) -> None:
        """Adds a node with any number of outputs."""
        node = helper.make_node(
            operator, inputs, outputs, name=f"{outputs[0]}.node", domain=domain or None
        )
        for name, value in sorted(attributes.items()):
            node.attribute.append(helper.make_attribute(name, value))
        self.nodes.append(node)

    def finish(self, output: str, output_width: int) -> onnx.ModelProto:
        """Returns the checked model with the three token inputs and the output given."""
        axes = ["batch", "sequence"]
        graph = helper.make_graph(
            self.nodes,
            "crossgate",
            [helper.make_tensor_value_info(n, TensorProto.INT64, axes) for n in INPUT_NAMES],
            [helper.make_tensor_value_info(output, TensorProto.FLOAT, ["batch", output_width])],
            list(self._constants.values()),
        )
        opsets = [helper.make_opsetid("", 18), helper.make_opsetid(MICROSOFT, 1)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
        onnx.checker.check_model(model)
        return model


# A linear layer writes `values @ weight.T` into the graph and returns the name of the product and
# the correction to add to the bias. The weight has shape [outputs, inputs]. The bias itself is left
# to the fused operator that follows. `after_gelu`: the values are the result of a GELU.
Linear = Callable[
    [GraphWriter, str, NDArray[np.float32], str, bool], tuple[str, NDArray[np.float32]]
]


def float32_linear(
    writer: GraphWriter, values: str, weight: NDArray[np.float32], name: str, after_gelu: bool
) -> tuple[str, NDArray[np.float32]]:
    """Writes the product in float32: the baseline that the quantised graphs are compared with."""
    product = writer.node("MatMul", [values, writer.constant(f"{name}.weight", weight.T)], name)
    return product, np.zeros(len(weight), np.float32)


def quantise_rows(
    weight: NDArray[np.float32], largest: int
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Rounds each row to whole numbers in [-largest, largest]; returns them and [rows] scales."""
    magnitudes = np.maximum(np.abs(weight).max(axis=1), SMALLEST_MAGNITUDE)
    scales = (magnitudes / largest).astype(np.float32)
    levels = np.rint(weight / scales[:, np.newaxis])
    return np.clip(levels, -largest, largest).astype(np.int32), scales


def quantise_neighbours(
    weight: NDArray[np.float32],
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Rounds each row so that no two neighbours sum up to more than MOST_OF_NEIGHBOURS.

    A row whose numbers are whole multiples of its smallest number, such as weights from an int8
    graph, keeps them without an error if they fit.

    Returns:
        Whole numbers from -127 to 127, and one scale for each row.
    """

    def of_neighbours(values: NDArray[np.float32]) -> NDArray[np.float32]:
        """Returns the largest sum of two neighbours' magnitudes in each row."""
        return np.asarray(values.reshape(len(values), -1, 2).sum(axis=2).max(axis=1), np.float32)

    magnitudes = np.abs(weight)
    # Rounding may add a half to each of two neighbours.
    scales = np.maximum(of_neighbours(magnitudes) / (MOST_OF_NEIGHBOURS - 1), SMALLEST_MAGNITUDE)
    scales = np.maximum(scales, magnitudes.max(axis=1) / 127)
    steps = np.where(magnitudes > 0, magnitudes, np.inf).min(axis=1)
    multiples = magnitudes / steps[:, np.newaxis]
    whole = np.rint(multiples)
    keeps = np.abs(multiples - whole).max(axis=1) < WHOLE
    keeps &= (whole.max(axis=1) <= 127) & (of_neighbours(whole) <= MOST_OF_NEIGHBOURS)
    scales = np.where(keeps, steps, scales).astype(np.float32)
    return np.rint(weight / scales[:, np.newaxis]).astype(np.int32), scales


def int8_linear(
    writer: GraphWriter, values: str, weight: NDArray[np.float32], name: str, after_gelu: bool
) -> tuple[str, NDArray[np.float32]]:
    """Writes the product of an unsigned and a signed byte: one scale per token, one per output.

    - A scale per token instead of one per tensor (DynamicQuantizeLinear) keeps a score independent
      of the padding and of the other pairs in a batch, and halves the error.
    - Signed weights take half the time of unsigned ones where there is VNNI. No two neighbours are
      so large that their products saturate where there is none, so the score does not depend on the
      processor.
    """
    levels, scales = quantise_neighbours(weight)
    one = writer.constant("one", np.array(1, np.float32))
    last_axis = writer.constant("last_axis", np.array([-1], np.int64))
    if after_gelu:
        shift = writer.constant("gelu_shift", np.array([GELU_SHIFT], np.float32))
        magnitude_input = quantised_input = writer.node("Add", [values, shift], f"{name}.shifted")
        zero, level_count = writer.constant("byte_0", np.array(0, np.uint8)), 255
        # The product is of values + shift, so shift times the sum of each row is subtracted.
        row_sums = levels.sum(axis=1).astype(np.float32) * scales
        correction = (-GELU_SHIFT * row_sums).astype(np.float32)
    else:
        magnitude_input = writer.node("Abs", [values], f"{name}.magnitudes")
        quantised_input = values
        zero, level_count = writer.constant("byte_128", np.array(128, np.uint8)), 127
        correction = np.zeros(len(levels), np.float32)
    largest = writer.node("ReduceMax", [magnitude_input, last_axis], f"{name}.largest", keepdims=1)
    floor = writer.constant("smallest", np.array([SMALLEST_MAGNITUDE], np.float32))
    floored = writer.node("Max", [largest, floor], f"{name}.floored")
    step = writer.constant(f"step_{level_count}", np.array([1 / level_count], np.float32))
    token_scale = writer.node("Mul", [floored, step], f"{name}.token_scale")
    scaled = writer.node("Div", [quantised_input, token_scale], f"{name}.scaled")
    byte_values = writer.node("QuantizeLinear", [scaled, one, zero], f"{name}.bytes")
    inputs = [
        byte_values,
        writer.constant(f"{name}.weight", levels.astype(np.int8).T),
        one,
        writer.constant(f"{name}.scales", scales),
        zero,
    ]
    product = writer.node("MatMulIntegerToFloat", inputs, f"{name}.product", domain=MICROSOFT)
    return writer.node("Mul", [product, token_scale], name), correction


def build_graph(
    weights: Weights,
    *,
    prefix: str,
    is_cross_encoder: bool,
    linear: Linear = int8_linear,
    quantise_embeddings: bool = True,
    projection: NDArray[np.float32] | None = None,
) -> onnx.ModelProto:
    """Builds the whole graph of one model, fused by hand so that loading it needs no optimiser.

    Args:
        weights: Tensors by name, as in the original file.
        prefix: Prefix of the names of the encoder's tensors.
        is_cross_encoder: Ends in BERT's classifier, else in the mean of the tokens.
        linear: How the four large products of each layer are written.
        quantise_embeddings: Stores the word embeddings in int8 with one scale per word.
        projection: Applied to the embedding of unit length, [width + 1, width]: a matrix, and in
            the last row what is added; None for no projection.

    Returns:
        The model; `logits` [batch, 1] or `sentence_embedding` [batch, 384] of unit length.
    """
    writer = GraphWriter()
    first = writer.constant("position_0", np.array([0], np.int64))
    second = writer.constant("position_1", np.array([1], np.int64))

    def layer_norm(values: str, residual: str, bias: Sequence[str], source: str, name: str) -> str:
        scale = writer.constant(f"{name}.gamma", weights[f"{source}.weight"])
        offset = writer.constant(f"{name}.beta", weights[f"{source}.bias"])
        # Eight times as fast in onnxruntime 1.32 as SkipLayerNormalization, with the sums.
        total = writer.node("Add", [values, residual], f"{name}.sum")
        for value in bias:
            total = writer.node("Add", [total, value], f"{name}.biased")
        return writer.node(
            "LayerNormalization",
            [total, scale, offset],
            name,
            axis=-1,
            epsilon=LAYER_NORM_EPSILON,
        )

    source = f"{prefix}embeddings."
    width = weights[f"{source}word_embeddings.weight"].shape[1]
    words = _write_word_embeddings(
        writer, weights[f"{source}word_embeddings.weight"], quantise_embeddings
    )
    types = writer.constant("types", weights[f"{source}token_type_embeddings.weight"])
    type_values = writer.node("Gather", [types, "token_type_ids"], "type_values")
    tokens = writer.node("Add", [words, type_values], "tokens")
    length = writer.node("Shape", ["input_ids"], "length", start=1, end=2)
    positions = writer.constant(
        "positions", weights[f"{source}position_embeddings.weight"][np.newaxis]
    )
    used_positions = writer.node("Slice", [positions, first, length, second], "used_positions")
    hidden = layer_norm(tokens, used_positions, [], f"{source}LayerNorm", "embedded")
    mask = writer.node("Cast", ["attention_mask"], "mask", to=TensorProto.INT32)

    layer_count = len({name for name in weights if name.endswith("attention.self.query.bias")})
    for layer in range(layer_count):
        source = f"{prefix}encoder.layer.{layer}."
        name = f"layer_{layer}."
        parts = [f"{source}attention.self.{part}" for part in ("query", "key", "value")]
        part_weights = [weights[f"{part}.weight"] for part in parts]
        projection_bias = np.concatenate([weights[f"{part}.bias"] for part in parts])
        split = [f"{name}{part}" for part in ("query", "key", "value")]
        triple, shift = linear(
            writer, hidden, np.concatenate(part_weights), f"{name}query_key_value", False
        )
        writer.node_with_outputs("Split", [triple], split, axis=2, num_outputs=3)
        attended = writer.node(
            "MultiHeadAttention",
            [*split, writer.constant(f"{name}attention.bias", projection_bias + shift), mask],
            f"{name}attention",
            domain=MICROSOFT,
            num_heads=width // HEAD_WIDTH,
        )
        part = f"{source}attention.output."
        mixed, shift = linear(
            writer, attended, weights[f"{part}dense.weight"], f"{name}mixed", False
        )
        bias = writer.constant(f"{name}mixed.bias", weights[f"{part}dense.bias"] + shift)
        hidden = layer_norm(mixed, hidden, [bias], f"{part}LayerNorm", f"{name}after_attention")
        part = f"{source}intermediate.dense."
        widened, shift = linear(writer, hidden, weights[f"{part}weight"], f"{name}widened", False)
        bias = writer.constant(f"{name}widened.bias", weights[f"{part}bias"] + shift)
        active = writer.node("BiasGelu", [widened, bias], f"{name}active", domain=MICROSOFT)
        part = f"{source}output."
        narrowed, shift = linear(
            writer, active, weights[f"{part}dense.weight"], f"{name}narrowed", True
        )
        bias = writer.constant(f"{name}narrowed.bias", weights[f"{part}dense.bias"] + shift)
        hidden = layer_norm(narrowed, hidden, [bias], f"{part}LayerNorm", f"{name}output")

    if is_cross_encoder:
        return _finish_cross_encoder(writer, weights, prefix, hidden)
    return _finish_embedder(writer, hidden, width, projection)


def _write_word_embeddings(writer: GraphWriter, table: NDArray[np.float32], quantise: bool) -> str:
    """Writes the look-up of the words; only the rows looked up are turned back into floats."""
    if not quantise:
        return writer.node("Gather", [writer.constant("words", table), "input_ids"], "word_values")
    levels, scales = quantise_rows(table, 127)
    words = writer.constant("words", levels.astype(np.int8))
    word_scales = writer.constant("word_scales", scales[:, np.newaxis])
    found = writer.node("Gather", [words, "input_ids"], "word_levels")
    found_scales = writer.node("Gather", [word_scales, "input_ids"], "word_level_scales")
    floats = writer.node("Cast", [found], "word_floats", to=TensorProto.FLOAT)
    return writer.node("Mul", [floats, found_scales], "word_values")


def _finish_cross_encoder(
    writer: GraphWriter, weights: Weights, prefix: str, hidden: str
) -> onnx.ModelProto:
    """Ends the graph in BERT's own classifier, which reads the pooled first token."""
    axis = writer.constant("position_1", np.array([1], np.int64))
    pooler = [
        writer.constant(f"pooler.{part}", weights[f"{prefix}pooler.dense.{part}"])
        for part in ("weight", "bias")
    ]
    first = writer.constant("position_0", np.array([0], np.int64))
    first_row = writer.node("Gather", [hidden, first], "first_token.row", axis=1)
    first_token = writer.node("Squeeze", [first_row, axis], "first_token")
    dense = writer.node("Gemm", [first_token, *pooler], "pooler.dense", transB=1)
    pooled = writer.node("Tanh", [dense], "pooled")
    width = len(weights[f"{prefix}pooler.dense.bias"])
    classifier = weights["classifier.weight"]
    if classifier.shape != (1, width):
        raise SystemExit(
            f"classifier.weight: expected shape (1, {width}), found {classifier.shape}"
        )
    parts = [
        writer.constant("classifier.weight", classifier),
        writer.constant("classifier.bias", weights["classifier.bias"]),
    ]
    logits = writer.node("Gemm", [pooled, *parts], "logits", transB=1)
    return writer.finish(logits, 1)


def _finish_embedder(
    writer: GraphWriter, hidden: str, width: int, projection: NDArray[np.float32] | None
) -> onnx.ModelProto:
    """Ends the graph in the mean over the unmasked tokens, scaled to unit length."""
    axis = writer.constant("position_1", np.array([1], np.int64))
    mask = writer.node("Cast", ["attention_mask"], "pooling_mask", to=TensorProto.FLOAT)
    mask_row = writer.node("Unsqueeze", [mask, axis], "pooling_mask_row")
    sums = writer.node("MatMul", [mask_row, hidden], "token_sums")
    # The division by the number of tokens is left out: scaling to unit length undoes it.
    flat = writer.node("Squeeze", [sums, axis], "token_sum")
    if projection is not None:
        unit = writer.node("LpNormalization", [flat], "unit", axis=1, p=2)
        matrix = writer.constant("projection.weight", projection[:-1])
        turned = writer.node("MatMul", [unit, matrix], "projected")
        flat = writer.node(
            "Add", [turned, writer.constant("projection.bias", projection[-1])], "sum"
        )
    embedding = writer.node("LpNormalization", [flat], "sentence_embedding", axis=1, p=2)
    return writer.finish(embedding, width)


def plain_tokenizer(text: str) -> str:
    """Returns the tokenizer file without padding and truncation, which callers choose."""
    settings = json.loads(text)
    settings["padding"] = None
    settings["truncation"] = None
    return json.dumps(settings, ensure_ascii=False, separators=(",", ":")) + "\n"


def build_model(recipe: Recipe, source: Path, output: Path, *, exact: bool = False) -> str:
    """Writes one model folder and returns its entry for the manifest, as TOML.

    Args:
        recipe: Which model to build.
        source: Folder with the original `model.safetensors` and `tokenizer.json`.
        output: Folder to write `model.onnx` and `tokenizer.json` to; made where missing.
        exact: Whether to keep float32, to measure the loss from eight bits.

    Returns:
        The lines of a TOML table with the size in bytes and the SHA-256 of both files.
    """
    check_weights(source)
    for name, expected in (
        ("model.safetensors", recipe.weights_sha256),
        ("tokenizer.json", recipe.tokenizer_sha256),
    ):
        if expected is not None:
            check_hash(source / name, expected)
    weights = load_file(source / "model.safetensors")
    model = build_graph(
        weights,
        prefix=recipe.prefix,
        is_cross_encoder=recipe.is_cross_encoder,
        linear=float32_linear if exact else int8_linear,
        quantise_embeddings=not exact,
    )
    output.mkdir(parents=True, exist_ok=True)
    (output / "model.onnx").write_bytes(model.SerializeToString(deterministic=True))
    tokenizer = plain_tokenizer((source / "tokenizer.json").read_text(encoding="utf-8"))
    (output / "tokenizer.json").write_text(tokenizer, encoding="utf-8", newline="\n")
    weights_sha256 = sha256_of(source / "model.safetensors")
    lines = [f"[{recipe.name}]", f'weights_sha256 = "{weights_sha256}"']
    for file in (output / "model.onnx", output / "tokenizer.json"):
        stem = file.stem
        lines += [f"{stem}_bytes = {file.stat().st_size}", f'{stem}_sha256 = "{sha256_of(file)}"']
    return "\n".join(lines)


def main() -> None:
    """Reads the arguments, builds one model and prints its manifest entry."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "name",
        choices=sorted(RECIPES),
        help="model to build; embedder or cross-encoder takes any weights of that shape",
    )
    parser.add_argument("source", type=Path, help="folder with model.safetensors, tokenizer.json")
    parser.add_argument("output", type=Path, help="folder to write the model to")
    parser.add_argument("--float32", action="store_true", help="do not round to eight bits")
    arguments = parser.parse_args()
    recipe = RECIPES[arguments.name]
    print(build_model(recipe, arguments.source, arguments.output, exact=arguments.float32))


if __name__ == "__main__":
    main()
