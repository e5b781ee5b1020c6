//! The floating-point operations of a layer, with a fixed order of every sum.

#![allow(
    clippy::inline_always,
    reason = "each compiled variant needs its own copy of the functions that it calls"
)]

use multiversion::multiversion;

/// Partial sums; every width is a multiple of it.
pub(super) const LANES: usize = 16;

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

/// Attention of one head for every token, written to `mixed`.
///
/// `keys` has the shape [width, columns], where columns beyond the tokens are 0, and `values` has the
/// shape [tokens, width].
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2", "aarch64+neon"))]
pub(super) fn attend<const WIDTH: usize>(
    queries: &[[f32; WIDTH]],
    keys: &[f32],
    values: &[[f32; WIDTH]],
    mixed: &mut [[f32; WIDTH]],
) {
    let columns = values.len().next_multiple_of(LANES);
    #[expect(clippy::cast_precision_loss, reason = "a width is far below 2^24")]
    let scale = 1.0 / (WIDTH as f32).sqrt();
    let mut weights = vec![0.0_f32; columns];
    for (query, mixed) in queries.iter().zip(mixed) {
        weights.fill(0.0);
        for (query, keys) in query.iter().zip(keys.chunks_exact(columns)) {
            for (weight, key) in weights.iter_mut().zip(keys) {
                *weight += query * key;
            }
        }
        let largest =
            weights.iter().take(values.len()).fold(f32::MIN, |most, weight| most.max(*weight));
        for weight in &mut weights {
            *weight = exp((*weight - largest) * scale);
        }
        weights.iter_mut().skip(values.len()).for_each(|weight| *weight = 0.0);
        let total = sum(weights.as_chunks::<LANES>().0.iter().copied());
        let mut sums = [0.0_f32; WIDTH];
        for (weight, values) in weights.iter().zip(values) {
            for (sum, value) in sums.iter_mut().zip(values) {
                *sum += weight * value;
            }
        }
        *mixed = sums.map(|sum| sum / total);
    }
}

/// Rounds a row to levels in [-128, 127]; returns the step between two levels.
///
/// The largest magnitude becomes 127. With a `shift`, which makes all values positive, the shifted
/// values become 0 to 255, minus 128.
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2", "aarch64+neon"))]
pub(super) fn quantise(row: &[f32], shift: Option<f32>, levels: &mut [i8]) -> f32 {
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
    for (level, value) in levels.iter_mut().zip(row) {
        let whole = ((value + offset) / step).round_ties_even() - middle;
        #[expect(
            clippy::cast_possible_truncation,
            reason = "a cast of a float saturates, as levels do"
        )]
        let whole = whole as i8;
        *level = whole;
    }
    step
}

/// Turns sums of products of levels into numbers: corrects them by `excess` and `offsets`, and
/// multiplies by the scales of both factors.
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2", "aarch64+neon"))]
pub(super) fn rescale(
    sums: &[i32],
    excess: i32,
    offsets: &[i32],
    scales: &[f32],
    step: f32,
    row: &mut [f32],
) {
    for (((value, sum), offset), scale) in row.iter_mut().zip(sums).zip(offsets).zip(scales) {
        #[expect(
            clippy::cast_precision_loss,
            reason = "the model was trained with sums rounded to 24 bits"
        )]
        let product = (sum - excess + offset) as f32 * scale;
        *value = product * step;
    }
}
