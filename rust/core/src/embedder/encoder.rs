//! The layers of a small BERT with 8-bit weights, from tokens to a unit vector.

use bytes::Bytes;

use super::float::{LANES, Levels, TOGETHER, attend, gelu, normalise, quantise, rescale};
use super::model_file::{Constants, FLOAT, INT8};
use super::product::{GROUP, Kernel, TILE, Weights, multiply};
use crate::error::{ModelProblem, Result};

/// The width of an attention head, in models of any width.
const HEAD: usize = 32;

/// The largest width for which sums of products fit 32 bits.
const WIDEST: usize = 4_096;

/// `multiply` adds this to each weight.
const MIDDLE: i32 = 128;

/// Added to results of GELU, whose minimum is -0.16997, so that they are positive when rounded.
const GELU_SHIFT: f32 = 0.17;

/// The graph of an embedder that models/build.py has written.
pub(super) struct Encoder {
    kernel: Kernel,
    width: usize,
    words: Bytes,
    word_scales: Bytes,
    first_type: Vec<f32>,
    positions: Bytes,
    norm: Norm,
    layers: Vec<Layer>,
}

struct Layer {
    query_key_value: Product,
    attention_bias: Vec<f32>,
    mixed: Product,
    mixed_bias: Vec<f32>,
    after_attention: Norm,
    widened: Product,
    widened_bias: Vec<f32>,
    narrowed: Product,
    narrowed_bias: Vec<f32>,
    output: Norm,
}

struct Norm {
    gamma: Vec<f32>,
    beta: Vec<f32>,
}

/// Weights of shape [inputs, outputs], with a scale for each column.
struct Product {
    weights: Weights,
    scales: Vec<f32>,
    /// Correction of each column's sum for shifted inputs, which are rounded to levels around 128.
    offsets: Vec<i32>,
    shift: Option<f32>,
}

/// The states between the products of a layer. All layers use the same memory.
#[derive(Default)]
struct States {
    triple: Vec<f32>,
    attended: Vec<f32>,
    mixed: Vec<f32>,
    active: Vec<f32>,
    levels: Vec<i8>,
}

impl Encoder {
    /// Reads the weights of a graph.
    ///
    /// Fails with `model_unsupported` if it is not an embedder for a vocabulary of `words` word
    /// pieces and inputs of `tokens` tokens.
    pub(super) fn read(constants: &Constants, words: usize, tokens: usize) -> Result<Self> {
        let width = constants.length("words", 1);
        let count = constants.length("words", 0);
        if width == 0 || width > WIDEST || !width.is_multiple_of(TILE) || count < words {
            let (needed, step, widest) = (words, TILE, WIDEST);
            return Err(ModelProblem::WordVectors { count, width, needed, step, widest }.into());
        }
        let positions = constants.length("positions", 1);
        let needed = tokens.max(2); // every input has [CLS] and [SEP]
        if positions < needed {
            let found = positions;
            return Err(ModelProblem::TooFewPositions { found, needed }.into());
        }
        let layers = (0..).take_while(|layer| {
            constants.length(&format!("layer_{layer}.query_key_value.weight"), 0) > 0
        });
        let layers: Result<Vec<_>> =
            layers.map(|layer| Layer::read(constants, &format!("layer_{layer}."), width)).collect();
        let mut first_type = constants.floats("types", 2 * width)?;
        first_type.truncate(width);
        Ok(Self {
            kernel: Kernel::fastest(),
            width,
            words: constants.bytes("words", INT8, count.saturating_mul(width))?,
            word_scales: constants.bytes("word_scales", FLOAT, count)?,
            first_type,
            positions: constants.bytes("positions", FLOAT, positions.saturating_mul(width))?,
            norm: Norm::read(constants, "embedded", width)?,
            layers: layers?,
        })
    }

    pub(super) fn width(&self) -> usize {
        self.width
    }

    /// The mean of the last states of all tokens, scaled to length 1.
    pub(super) fn run(&self, tokens: &[u32]) -> Vec<f32> {
        let mut hidden = self.embedded(tokens);
        let mut states = States::default();
        for layer in &self.layers {
            layer.run(self.kernel, &mut hidden, &mut states, self.width);
        }
        let mut sums = vec![0.0_f32; self.width];
        for row in hidden.chunks_exact(self.width) {
            for (sum, value) in sums.iter_mut().zip(row) {
                *sum += value;
            }
        }
        let length = sums.iter().map(|sum| f64::from(*sum).powi(2)).sum::<f64>().sqrt();
        #[expect(clippy::cast_possible_truncation, reason = "the quotient is in [-1, 1]")]
        sums.iter().map(|sum| (f64::from(*sum) / length) as f32).collect()
    }

    fn embedded(&self, tokens: &[u32]) -> Vec<f32> {
        let mut rows = Vec::with_capacity(tokens.len() * self.width);
        for token in tokens {
            let start = *token as usize * self.width;
            let levels = self.words.get(start..start + self.width).expect(READ);
            let scale = floats(&self.word_scales, *token as usize, 1).next().expect(READ);
            let levels = levels.iter().map(|level| f32::from(level.cast_signed()));
            rows.extend(levels.zip(&self.first_type).map(|(level, kind)| level * scale + kind));
        }
        let positions: Vec<f32> = floats(&self.positions, 0, rows.len()).collect();
        let none = vec![0.0; self.width];
        normalise(&mut rows, &positions, &none, &self.norm.gamma, &self.norm.beta);
        rows
    }
}

impl Layer {
    fn read(constants: &Constants, name: &str, width: usize) -> Result<Self> {
        let floats = |part: &str, count: usize| constants.floats(&format!("{name}{part}"), count);
        let product = |part: &str, inputs: usize, outputs: usize, shift: Option<f32>| {
            Product::read(constants, &format!("{name}{part}"), inputs, outputs, shift)
        };
        Ok(Self {
            query_key_value: product("query_key_value", width, 3 * width, None)?,
            attention_bias: floats("attention.bias", 3 * width)?,
            mixed: product("mixed", width, width, None)?,
            mixed_bias: floats("mixed.bias", width)?,
            after_attention: Norm::read(constants, &format!("{name}after_attention"), width)?,
            widened: product("widened", width, 4 * width, None)?,
            widened_bias: floats("widened.bias", 4 * width)?,
            narrowed: product("narrowed", 4 * width, width, Some(GELU_SHIFT))?,
            narrowed_bias: floats("narrowed.bias", width)?,
            output: Norm::read(constants, &format!("{name}output"), width)?,
        })
    }

    fn run(&self, kernel: Kernel, hidden: &mut Vec<f32>, states: &mut States, width: usize) {
        let States { triple, attended, mixed, active, levels } = states;
        self.query_key_value.run(kernel, hidden, levels, triple);
        attention(triple, &self.attention_bias, width, attended);
        self.mixed.run(kernel, attended, levels, mixed);
        let norm = &self.after_attention;
        normalise(mixed, hidden, &self.mixed_bias, &norm.gamma, &norm.beta);
        self.widened.run(kernel, mixed, levels, active);
        gelu(active, &self.widened_bias);
        self.narrowed.run(kernel, active, levels, hidden);
        let norm = &self.output;
        normalise(hidden, mixed, &self.narrowed_bias, &norm.gamma, &norm.beta);
    }
}

impl Norm {
    fn read(constants: &Constants, name: &str, width: usize) -> Result<Self> {
        let part = |part: &str| constants.floats(&format!("{name}.{part}"), width);
        Ok(Self { gamma: part("gamma")?, beta: part("beta")? })
    }
}

impl Product {
    fn read(
        constants: &Constants,
        name: &str,
        inputs: usize,
        outputs: usize,
        shift: Option<f32>,
    ) -> Result<Self> {
        let bytes = constants.bytes(&format!("{name}.weight"), INT8, inputs * outputs)?;
        let weights = Weights::new(bytes, inputs, outputs);
        let mut offsets = vec![0; outputs];
        if shift.is_some() {
            for row in weights.rows() {
                for (offset, weight) in offsets.iter_mut().zip(row) {
                    *offset += MIDDLE * i32::from(weight.cast_signed());
                }
            }
        }
        let scales = constants.floats(&format!("{name}.scales"), outputs)?;
        Ok(Self { weights, scales, offsets, shift })
    }

    /// Writes the product of each row with the weights, in shape [rows, outputs].
    fn run(&self, kernel: Kernel, rows: &[f32], levels: &mut Vec<i8>, products: &mut Vec<f32>) {
        let (inputs, outputs) = (self.weights.inputs(), self.weights.outputs());
        levels.resize(rows.len(), 0);
        products.resize(rows.len() / inputs * outputs, 0.0);
        let parts = rows.chunks_exact(inputs).zip(levels.chunks_exact_mut(inputs));
        let parts = parts.map(|(row, levels)| {
            let Levels { step, sum } = quantise(row, self.shift, levels);
            // `multiply` makes each weight too large by MIDDLE.
            (step, MIDDLE * sum)
        });
        let steps: Vec<_> = parts.collect();
        multiply(kernel, levels, &self.weights, |row, column, tile| {
            let steps = steps.get(row..).expect(PRODUCT);
            let columns = column..column + TILE;
            let offsets = self.offsets.get(columns.clone()).expect(PRODUCT);
            let scales = self.scales.get(columns).expect(PRODUCT);
            let products = products.get_mut(row * outputs..).expect(PRODUCT);
            rescale(tile, steps, offsets, scales, products, column, outputs);
        });
    }
}

/// Attention: for each token and head, the mean of all tokens' values, weighted by the products of
/// their keys with the token's query.
fn attention(triple: &[f32], bias: &[f32], width: usize, attended: &mut Vec<f32>) {
    let tokens = triple.len() / (3 * width);
    attended.resize(tokens * width, 0.0);
    let mut queries = vec![[[0.0; TOGETHER]; HEAD]; tokens.div_ceil(TOGETHER)];
    let mut keys = vec![[[0.0; LANES]; HEAD]; tokens.div_ceil(LANES)];
    let mut values = vec![[0.0; LANES]; tokens * (HEAD / LANES)];
    for head in (0..width).step_by(HEAD) {
        let part = |start: usize| {
            let bias = bias.get(start..).and_then(|bias| bias.first_chunk::<HEAD>());
            let bias = bias.expect("a head ends within the width");
            let rows = triple
                .chunks_exact(3 * width)
                .filter_map(move |row| row.get(start..)?.first_chunk());
            rows.map(move |row: &[f32; HEAD]| {
                let mut row = *row;
                row.iter_mut().zip(bias).for_each(|(value, bias)| *value += bias);
                row
            })
        };
        place(part(head), &mut queries);
        place(part(width + head), &mut keys);
        for (token, row) in part(2 * width + head).enumerate() {
            for (values, part) in values.chunks_exact_mut(tokens).zip(row.as_chunks().0) {
                *values.get_mut(token).expect("there is a row for each token") = *part;
            }
        }
        let attended = attended.get_mut(head..).expect(PRODUCT);
        attend(&queries, &keys, &values, tokens, attended, width);
    }
}

/// Writes rows as columns of blocks.
fn place<const COLUMNS: usize>(
    rows: impl Iterator<Item = [f32; HEAD]>,
    blocks: &mut [[[f32; COLUMNS]; HEAD]],
) {
    for (number, row) in rows.enumerate() {
        let block = blocks.get_mut(number / COLUMNS).expect("there is a column for each token");
        for (columns, value) in block.iter_mut().zip(row) {
            if let Some(column) = columns.get_mut(number % COLUMNS) {
                *column = value;
            }
        }
    }
}

/// `count` floats of a table from a position on. The bytes of a file may not be aligned for floats.
fn floats(table: &Bytes, start: usize, count: usize) -> impl Iterator<Item = f32> {
    let bytes = table.get(4 * start..4 * (start + count)).expect(READ);
    bytes.as_chunks().0.iter().copied().map(f32::from_le_bytes)
}

const PRODUCT: &str = "a product has a row for each row of its input, and all columns";

const READ: &str = "`read` checked that there is a row for each token and position";

const _: () =
    assert!(TILE.is_multiple_of(GROUP) && HEAD.is_multiple_of(LANES) && TILE.is_multiple_of(LANES));
