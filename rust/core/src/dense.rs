//! Unit vectors in one matrix, and their cosine with a query, the same to the bit on every machine.

use std::num::NonZero;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Builder;

use multiversion::multiversion;

use crate::error::{Error, Result};

/// Numbers added up side by side. Fixed, so that the order of additions and with it the last bit of
/// a sum depends neither on the processor nor on the number of threads.
const LANES: usize = 16;

/// Fewer rows than this are not worth another thread.
const ROWS_PER_THREAD: usize = 8_192;

/// Rows that clones share until one of them changes any.
const ROWS_PER_BLOCK: usize = 256;

/// Vectors of one dimension and of length 1, row by row; a row of zeros stands for no document.
#[derive(Clone, Debug)]
pub(crate) struct Dense {
    dimension: usize,
    rows: usize,
    /// Each but the last has `ROWS_PER_BLOCK` rows.
    blocks: Vec<Arc<Vec<f32>>>,
}

impl Dense {
    pub(crate) fn new(dimension: usize) -> Self {
        Self { dimension, rows: 0, blocks: Vec::new() }
    }

    pub(crate) fn dimension(&self) -> usize {
        self.dimension
    }

    /// Stores a vector of length 1 in a row; rows between are zero.
    pub(crate) fn set(&mut self, row: u32, unit: &[f32]) {
        let row = row as usize;
        let whole = ROWS_PER_BLOCK * self.dimension;
        self.rows = self.rows.max(row + 1);
        while self.blocks.len() <= row / ROWS_PER_BLOCK {
            if let Some(last) = self.blocks.last_mut() {
                Arc::make_mut(last).resize(whole, 0.0);
            }
            self.blocks.push(Arc::default());
        }
        let Some(block) = self.blocks.get_mut(row / ROWS_PER_BLOCK).map(Arc::make_mut) else {
            return;
        };
        let start = row % ROWS_PER_BLOCK * self.dimension;
        if block.len() < start + self.dimension {
            block.resize(start + self.dimension, 0.0);
        }
        if let Some(place) = block.get_mut(start..start + self.dimension) {
            place.copy_from_slice(unit);
        }
    }

    pub(crate) fn row(&self, row: u32) -> &[f32] {
        let row = row as usize;
        let start = row % ROWS_PER_BLOCK * self.dimension;
        self.blocks
            .get(row / ROWS_PER_BLOCK)
            .and_then(|block| block.get(start..start + self.dimension))
            .unwrap_or_default()
    }

    /// The cosine of every row with a vector of length 1, in [-1, 1].
    pub(crate) fn cosines(&self, unit: &[f32]) -> Vec<f32> {
        let mut cosines = vec![0.0; self.rows];
        if self.rows <= ROWS_PER_THREAD {
            // Asking for the number of processors reads files, which takes longer than a few rows.
            dot_blocks(&self.blocks, unit, &mut cosines);
            return cosines;
        }
        let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
        // Whole blocks, and few parts: a thread that waits for the lock on a busy machine waits long.
        let blocks = self.rows.div_ceil(processors).max(ROWS_PER_THREAD).div_ceil(ROWS_PER_BLOCK);
        let share = blocks * ROWS_PER_BLOCK;
        let parts = Mutex::new(cosines.chunks_mut(share).zip(self.blocks.chunks(blocks)));
        let next = || parts.lock().unwrap_or_else(PoisonError::into_inner).next();
        let work = || {
            while let Some((cosines, blocks)) = next() {
                dot_blocks(blocks, unit, cosines);
            }
        };
        // Threads of this call alone: those of a pool would be gone after a fork.
        std::thread::scope(|scope| {
            for _ in 1..self.rows.div_ceil(share) {
                // Where no thread can be had, those that are there do its part as well.
                if Builder::new().spawn_scoped(scope, work).is_err() {
                    break;
                }
            }
            work();
        });
        cosines
    }
}

fn dot_blocks(blocks: &[Arc<Vec<f32>>], query: &[f32], products: &mut [f32]) {
    for (products, rows) in products.chunks_mut(ROWS_PER_BLOCK).zip(blocks) {
        dot_rows(rows, query, products);
    }
}

/// The inner product of each row with the query.
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2", "x86_64+avx", "aarch64+neon"))]
fn dot_rows(rows: &[f32], query: &[f32], products: &mut [f32]) {
    for (row, product) in rows.chunks_exact(query.len()).zip(products) {
        // Rounding can lift the product of two unit vectors over 1.
        *product = dot(row, query).clamp(-1.0, 1.0);
    }
}

#[inline(always)]
#[expect(clippy::inline_always, reason = "each compiled variant of dot_rows needs its own copy")]
fn dot(left: &[f32], right: &[f32]) -> f32 {
    let (left_blocks, left_rest) = left.as_chunks::<LANES>();
    let (right_blocks, right_rest) = right.as_chunks::<LANES>();
    let mut sums = [0.0_f32; LANES];
    for (left, right) in left_blocks.iter().zip(right_blocks) {
        for ((sum, left), right) in sums.iter_mut().zip(left).zip(right) {
            *sum += left * right;
        }
    }
    let rest: f32 = left_rest.iter().zip(right_rest).map(|(left, right)| left * right).sum();
    sums.iter().sum::<f32>() + rest
}

/// Checks a vector and scales it to length 1. `owner` names it in errors, such as `document "pdf"`.
pub(crate) fn unit(owner: &str, vector: &[f32], dimension: usize) -> Result<Vec<f32>> {
    if vector.len() != dimension {
        return Err(Error::input(
            "wrong_dimension",
            format!(
                "the vector of {owner} has {} numbers, the index holds vectors of {dimension}: \
                 embed both with the same model",
                vector.len()
            ),
        ));
    }
    if let Some(place) = vector.iter().position(|value| !value.is_finite()) {
        return Err(Error::input(
            "not_finite",
            format!(
                "the vector of {owner} holds {} at position {place}: every number must be finite",
                vector.get(place).copied().unwrap_or(f32::NAN)
            ),
        ));
    }
    // In f64, where neither the square of f32::MAX overflows nor that of a subnormal vanishes.
    let length = vector.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>().sqrt();
    if length == 0.0 {
        return Err(Error::input(
            "zero_vector",
            format!("the vector of {owner} is all zeros, which has no direction to compare"),
        ));
    }
    #[expect(clippy::cast_possible_truncation, reason = "the quotient lies in [-1, 1]")]
    Ok(vector.iter().map(|value| (f64::from(*value) / length) as f32).collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn vector(dimension: usize) -> impl Strategy<Value = Vec<f32>> {
        prop::collection::vec(-1.0_f32..1.0, dimension)
            .prop_filter("a direction", |vector| vector.iter().any(|value| value.abs() > 1e-3))
    }

    fn matrix(rows: &[Vec<f32>], dimension: usize) -> Dense {
        let mut dense = Dense::new(dimension);
        for (row, vector) in rows.iter().enumerate() {
            let unit = unit("test", vector, dimension).unwrap();
            dense.set(u32::try_from(row).unwrap(), &unit);
        }
        dense
    }

    proptest! {
        #[test]
        fn equals_the_definition(
            rows in prop::collection::vec(vector(37), 1..9), query in vector(37),
        ) {
            let found = matrix(&rows, 37).cosines(&unit("query", &query, 37).unwrap());
            let length = |v: &[f32]| v.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
            for (row, found) in rows.iter().zip(found) {
                let product: f64 =
                    row.iter().zip(&query).map(|(x, y)| f64::from(*x) * f64::from(*y)).sum();
                let expected = product / length(row) / length(&query);
                prop_assert!((f64::from(found) - expected).abs() < 1e-6);
                prop_assert!((-1.0..=1.0).contains(&found));
            }
        }

        #[test]
        fn scale_does_not_matter(query in vector(8), power in -60_i32..60) {
            let scaled: Vec<f32> = query.iter().map(|value| value * 2.0_f32.powi(power)).collect();
            prop_assert_eq!(unit("a", &query, 8).unwrap(), unit("b", &scaled, 8).unwrap());
        }
    }

    #[test]
    fn threads_and_neighbours_do_not_change_a_bit() {
        let rows: Vec<Vec<f32>> = (0..2 * ROWS_PER_THREAD + 7)
            .map(|row| (0..5).map(|column| ((row * 31 + column * 7) % 97) as f32 - 48.0).collect())
            .collect();
        let query = unit("query", &[1.0, -2.0, 3.0, 0.5, 0.25], 5).unwrap();
        let all = matrix(&rows, 5).cosines(&query);
        for row in [0, 1, ROWS_PER_THREAD - 1, ROWS_PER_THREAD, 2 * ROWS_PER_THREAD + 6] {
            let alone = matrix(&rows[row..=row], 5).cosines(&query);
            assert_eq!(alone[0].to_bits(), all[row].to_bits());
        }
    }

    #[test]
    fn refuses_what_has_no_cosine() {
        let cases: &[(&[f32], &str)] = &[
            (&[1.0], "wrong_dimension"),
            (&[f32::NAN, 1.0], "not_finite"),
            (&[1.0, f32::INFINITY], "not_finite"),
            (&[0.0, -0.0], "zero_vector"),
        ];
        for (vector, code) in cases {
            let error = unit("document \"pdf\"", vector, 2).unwrap_err();
            assert_eq!(error.code(), *code);
            assert!(error.to_string().contains("document \"pdf\""));
        }
        assert!(unit("tiny", &[f32::from_bits(1), 0.0], 2).is_ok());
        assert!(unit("huge", &[f32::MAX, f32::MAX], 2).is_ok());
    }
}
