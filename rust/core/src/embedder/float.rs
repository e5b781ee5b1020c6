//! The floating-point operations of a layer, with a fixed order of every sum.

#![allow(
    clippy::inline_always,
    reason = "each compiled variant needs its own copy of the functions that it calls"
)]

use multiversion::multiversion;

/// Partial sums; every width is a multiple of it.
pub(super) const LANES: usize = 16;

/// Queries of a block, whose attention is computed together: as many as fit the registers.
pub(super) const TOGETHER: usize = 4;

/// Added to variances, which are 0 in a row of equal numbers; the value of BERT.
const EPSILON: f32 = 1e-12;

/// The exponential function with a relative error of 1e-7; arguments are clamped to [-87, 88].
#[inline(always)]
fn exp(value: f32) -> f32 {
    // Adding this number rounds to an integer, which is then in the last bits of the sum.
    const ROUNDER: f32 = 12_582_912.0;
    let scaled = value.clamp(-87.0, 88.0) * std::f32::consts::LOG2_E + ROUNDER;
    let whole = scaled - ROUNDER;
    // ln 2 is split in two parts, and the multiples of the first are exact.
    let rest = value.clamp(-87.0, 88.0) - whole * 0.693_359_4 + whole * 2.121_944_4e-4;
    let series = 1.0 / 720.0;
    let series = series * rest + 1.0 / 120.0;
    let series = series * rest + 1.0 / 24.0;
    let series = series * rest + 1.0 / 6.0;
    let series = series * rest + 0.5;
    let series = series * rest + 1.0;
    let series = series * rest + 1.0;
    let power = f32::from_bits((scaled.to_bits() << 23).wrapping_add(127 << 23));
    series * power
}

/// The error function with an absolute error of 2e-7: Abramowitz and Stegun (1964), 7.1.26.
#[inline(always)]
fn erf(value: f32) -> f32 {
    let magnitude = value.abs();
    let t = 1.0 / (1.0 + 0.327_591_1 * magnitude);
    let series = 1.061_405_4;
    let series = series * t - 1.453_152;
    let series = series * t + 1.421_413_7;
    let series = series * t - 0.284_496_74;
    let series = series * t + 0.254_829_6;
    (1.0 - series * t * exp(-magnitude * magnitude)).copysign(value)
}

/// Adds a bias to rows and applies GELU: x times the standard normal distribution function of x.
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2", "aarch64+neon"))]
pub(super) fn gelu(rows: &mut [f32], bias: &[f32]) {
    for row in rows.chunks_exact_mut(bias.len()) {
        for (value, bias) in row.iter_mut().zip(bias) {
            let x = *value + bias;
            *value = 0.5 * x * (1.0 + erf(x * std::f32::consts::FRAC_1_SQRT_2));
        }
    }
}

#[inline(always)]
fn sum(values: impl Iterator<Item = [f32; LANES]>) -> f32 {
    let mut sums = [0.0_f32; LANES];
    for values in values {
        for (sum, value) in sums.iter_mut().zip(values) {
            *sum += value;
        }
    }
    sums.iter().sum()
}

/// Layer normalisation: adds `more` and a bias to each row, scales it to mean 0 and variance 1, and
/// applies `gamma` and `beta`.
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2", "aarch64+neon"))]
pub(super) fn normalise(rows: &mut [f32], more: &[f32], bias: &[f32], gamma: &[f32], beta: &[f32]) {
    let width = gamma.len();
    #[expect(clippy::cast_precision_loss, reason = "a width is far below 2^24")]
    let per_number = 1.0 / width as f32;
    for (row, more) in rows.chunks_exact_mut(width).zip(more.chunks_exact(width)) {
        for ((value, more), bias) in row.iter_mut().zip(more).zip(bias) {
            *value = *value + more + bias;
        }
        let mean = sum(row.as_chunks::<LANES>().0.iter().copied()) * per_number;
        let squares = row.as_chunks::<LANES>().0.iter();
        let squares = squares.map(|part| part.map(|value| (value - mean) * (value - mean)));
        let deviation = (sum(squares) * per_number + EPSILON).sqrt();
        for ((value, gamma), beta) in row.iter_mut().zip(gamma).zip(beta) {
            *value = (*value - mean) / deviation * gamma + beta;
        }
    }
}

/// Attention of one head for every token, written to the first WIDTH columns of `mixed`, which has
/// rows of `width` numbers.
///
/// `queries` and `keys` are blocks of columns, a column for each token; the rest of the last block is
/// ignored. `values` are parts of LANES columns, with a row for each of the `tokens`.
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2", "aarch64+neon"))]
pub(super) fn attend<const WIDTH: usize>(
    queries: &[[[f32; TOGETHER]; WIDTH]],
    keys: &[[[f32; LANES]; WIDTH]],
    values: &[[f32; LANES]],
    tokens: usize,
    mixed: &mut [f32],
    width: usize,
) {
    #[expect(clippy::cast_precision_loss, reason = "a width is far below 2^24")]
    let scale = 1.0 / (WIDTH as f32).sqrt();
    let unused = keys.len() * LANES - tokens;
    let mut weights = vec![[[0.0_f32; LANES]; TOGETHER]; keys.len()];
    let mut columns = vec![[0.0_f32; TOGETHER]; keys.len() * LANES];
    for (queries, mixed) in queries.iter().zip(mixed.chunks_mut(TOGETHER * width)) {
        for (weights, keys) in weights.iter_mut().zip(keys) {
            *weights = product(queries, keys);
        }
        hide(&mut weights, unused, f32::MIN);
        let mut largest = [[f32::MIN; LANES]; TOGETHER];
        for weights in &weights {
            for (largest, weights) in largest.iter_mut().zip(weights) {
                for (largest, weight) in largest.iter_mut().zip(weights) {
                    *largest = largest.max(*weight);
                }
            }
        }
        let largest = largest.map(|lanes| lanes.into_iter().fold(f32::MIN, f32::max));
        for weights in &mut weights {
            for (weights, largest) in weights.iter_mut().zip(largest) {
                for weight in weights {
                    *weight = exp((*weight - largest) * scale);
                }
            }
        }
        hide(&mut weights, unused, 0.0);
        let mut totals = [[0.0_f32; LANES]; TOGETHER];
        for (weights, columns) in weights.iter().zip(columns.as_chunks_mut::<LANES>().0) {
            for (query, (weights, totals)) in weights.iter().zip(&mut totals).enumerate() {
                for (total, weight) in totals.iter_mut().zip(weights) {
                    *total += weight;
                }
                for (column, weight) in columns.iter_mut().zip(weights) {
                    if let Some(place) = column.get_mut(query) {
                        *place = *weight;
                    }
                }
            }
        }
        let totals = totals.map(|lanes| lanes.iter().sum::<f32>());
        for (part, values) in values.chunks_exact(tokens).enumerate() {
            let sums = product(&columns, values);
            for ((row, sums), total) in mixed.chunks_mut(width).zip(sums).zip(totals) {
                let Some(row) = row.get_mut(part * LANES..) else { continue };
                for (value, sum) in row.iter_mut().zip(sums) {
                    *value = sum / total;
                }
            }
        }
    }
}

/// The product of columns with rows; each sum is in the order of the rows.
///
/// The sums of each column have a name, because the compiler would add columns together otherwise,
/// which takes five times as long.
#[inline(always)]
fn product(columns: &[[f32; TOGETHER]], rows: &[[f32; LANES]]) -> [[f32; LANES]; TOGETHER] {
    let [mut a, mut b, mut c, mut d] = [[0.0; LANES]; TOGETHER];
    for ([first, second, third, fourth], row) in columns.iter().zip(rows) {
        let sums = a.iter_mut().zip(&mut b).zip(&mut c).zip(&mut d);
        for ((((a, b), c), d), value) in sums.zip(row) {
            *a += first * value;
            *b += second * value;
            *c += third * value;
            *d += fourth * value;
        }
    }
    [a, b, c, d]
}

/// Overwrites the last `unused` columns.
#[inline(always)]
fn hide(weights: &mut [[[f32; LANES]; TOGETHER]], unused: usize, value: f32) {
    for weights in weights.last_mut().into_iter().flatten() {
        for weight in weights.iter_mut().rev().take(unused) {
            *weight = value;
        }
    }
}

/// What `quantise` returns of a row: the step between two levels, and the sum of all levels.
pub(super) struct Levels {
    pub(super) step: f32,
    pub(super) sum: i32,
}

/// Rounds a row to levels in [-128, 127].
///
/// The largest magnitude becomes 127. With a `shift`, which makes all values positive, the shifted
/// values become 0 to 255, minus 128.
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2", "aarch64+neon"))]
pub(super) fn quantise(row: &[f32], shift: Option<f32>, levels: &mut [i8]) -> Levels {
    // Adding this number to a whole number leaves the latter in the last bits of the sum.
    const WHOLE: f32 = 12_582_912.0;
    let (offset, count, middle) = shift.map_or((0.0, 127.0, 0.0), |shift| (shift, 255.0, 128.0));
    let mut largest = [1e-9_f32; LANES];
    for part in row.as_chunks::<LANES>().0 {
        for (largest, value) in largest.iter_mut().zip(part) {
            let value = *value + offset;
            *largest = largest.max(if shift.is_some() { value } else { value.abs() });
        }
    }
    let largest = largest.iter().fold(0.0_f32, |most, value| most.max(*value));
    let step = largest * (1.0 / count);
    let mut sum = 0;
    for (level, value) in levels.iter_mut().zip(row) {
        let whole = ((value + offset) / step).round_ties_even() - middle;
        let bits = (whole.clamp(-128.0, 127.0) + WHOLE).to_bits().cast_signed();
        #[expect(clippy::cast_possible_truncation, reason = "a level fits the last 8 bits")]
        let whole = bits as i8;
        *level = whole;
        sum += i32::from(whole);
    }
    Levels { step, sum }
}

/// Turns sums of products of levels into numbers, and writes them to TILE columns of `rows`, which
/// have `width` columns, from `start` on.
///
/// Each row has a step between two levels and an excess. The sums are corrected by the excess and by
/// the column's offset, and multiplied by the scales of both factors.
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2", "aarch64+neon"))]
pub(super) fn rescale<const TILE: usize>(
    sums: &[[i32; TILE]],
    steps: &[(f32, i32)],
    offsets: &[i32],
    scales: &[f32],
    rows: &mut [f32],
    start: usize,
    width: usize,
) {
    for ((sums, (step, excess)), row) in sums.iter().zip(steps).zip(rows.chunks_mut(width)) {
        let Some(row) = row.get_mut(start..start + TILE) else { continue };
        for (((value, sum), offset), scale) in row.iter_mut().zip(sums).zip(offsets).zip(scales) {
            #[expect(
                clippy::cast_precision_loss,
                reason = "the model was trained with sums rounded to 24 bits"
            )]
            let product = (sum - excess + offset) as f32 * scale;
            *value = product * step;
        }
    }
}
