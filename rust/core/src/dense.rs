//! Unit vectors and their cosines with a query, equal to the bit on every machine.
//!
//! A search first reads each vector in 8 bits, a quarter of its bytes. The rounding error of each
//! vector is stored, so the 8-bit product gives an upper bound of the cosine. The 32-bit vector is
//! read only where that bound could change the result, so the search finds the same as an exact
//! search.

use std::num::NonZero;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Builder;

use multiversion::multiversion;

use crate::blocks::{Block, Lazy};
use crate::error::{Damage, Error, Kind, Result};

/// Partial sums of a product. The number is fixed, so that the order of additions, and with it the
/// last bit of a sum, depends neither on the processor nor on the number of threads.
const LANES: usize = 16;

/// Rows that take longer to read than another thread takes to start.
const ROWS_PER_THREAD: usize = 32_768;

/// Rows of a block, which clones share until one of them changes a row.
const ROWS_PER_BLOCK: usize = 256;

/// Vectors of one dimension and of length 1, row by row; a row without a document is zero.
#[derive(Clone, Debug)]
pub(crate) struct Dense {
    dimension: usize,
    rows: usize,
    /// All blocks but the last have `ROWS_PER_BLOCK` rows.
    blocks: Vec<Arc<Rows>>,
}

/// Rows of a block, in 32 and in 8 bits.
#[derive(Clone, Debug)]
struct Rows {
    dimension: usize,
    count: usize,
    values: Lazy<Vec<f32>>,
    levels: Lazy<Levels>,
}

/// Rows in 8 bits.
#[derive(Clone, Debug, Default)]
struct Levels {
    levels: Vec<i8>,
    /// The scale and error of each row.
    rounded: Vec<Rounded>,
}

/// A vector is `step` times its levels plus a vector whose length is at most `error`.
#[derive(Clone, Copy, Debug, Default)]
struct Rounded {
    step: f32,
    error: f32,
}

/// A query in 16 bits.
struct RoundedQuery {
    levels: Vec<i16>,
    rounded: Rounded,
}

impl Dense {
    pub(crate) fn new(dimension: usize) -> Self {
        Self { dimension, rows: 0, blocks: Vec::new() }
    }

    pub(crate) fn dimension(&self) -> usize {
        self.dimension
    }

    #[cfg(test)]
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// The vectors of a file; each block in 32 bits and in 8 bits.
    pub(crate) fn filed(
        dimension: usize,
        rows: usize,
        blocks: Vec<(Block, Block)>,
    ) -> Result<Self> {
        if blocks.len() != rows.div_ceil(ROWS_PER_BLOCK) {
            return Err(Error::corrupt(Damage::VectorCount));
        }
        let blocks = blocks.into_iter().enumerate().map(|(place, (values, levels))| {
            Arc::new(Rows {
                dimension,
                count: ROWS_PER_BLOCK.min(rows - place * ROWS_PER_BLOCK),
                values: Lazy::from_block(values),
                levels: Lazy::from_block(levels),
            })
        });
        Ok(Self { dimension, rows, blocks: blocks.collect() })
    }

    /// The bytes of these rows in a file; each block in 32 bits and in 8 bits.
    pub(crate) fn to_bytes(&self, rows: &[u32]) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let bytes = |block: &Arc<Rows>| {
            let Levels { levels, rounded } = block.levels()?;
            let rounded = rounded.iter().flat_map(|row| [row.step, row.error]);
            let mut small: Vec<u8> = rounded.flat_map(f32::to_le_bytes).collect();
            small.extend(levels.iter().map(|level| level.cast_unsigned()));
            let values = block.values()?.iter();
            Ok((values.flat_map(|value| value.to_le_bytes()).collect(), small))
        };
        self.compacted(rows)?.blocks.iter().map(bytes).collect()
    }

    /// A copy of these rows, numbered from 0.
    pub(crate) fn compacted(&self, rows: &[u32]) -> Result<Self> {
        let mut compact = Self::new(self.dimension);
        for (number, row) in (0..).zip(rows) {
            compact.set(number, self.row(*row)?)?;
        }
        Ok(compact)
    }

    /// Stores a vector of length 1 in a row; rows that are skipped are zero.
    pub(crate) fn set(&mut self, row: u32, unit: &[f32]) -> Result<()> {
        let row = row as usize;
        self.rows = self.rows.max(row + 1);
        while self.blocks.len() <= row / ROWS_PER_BLOCK {
            if let Some(last) = self.blocks.last_mut() {
                Arc::make_mut(last).resize(ROWS_PER_BLOCK)?;
            }
            self.blocks.push(Arc::new(Rows::new(self.dimension)));
        }
        let block = self.blocks.get_mut(row / ROWS_PER_BLOCK).expect("it was added above");
        Arc::make_mut(block).set(row % ROWS_PER_BLOCK, unit)
    }

    /// The vector of a document, whose row must exist.
    pub(crate) fn row(&self, row: u32) -> Result<&[f32]> {
        let row = row as usize;
        let block = self.blocks.get(row / ROWS_PER_BLOCK).expect("each document has a row");
        let start = row % ROWS_PER_BLOCK * self.dimension;
        let vector = block.values()?.get(start..start + self.dimension);
        Ok(vector.expect("each row of a block is complete"))
    }

    /// Reads all blocks that were not read yet.
    pub(crate) fn load(&self) -> Result<()> {
        self.blocks.iter().try_for_each(|block| block.values().and(block.levels()).map(drop))
    }

    /// The cosine of a row with a vector of length 1, in [-1, 1].
    pub(crate) fn cosine(&self, row: u32, unit: &[f32]) -> Result<f32> {
        let mut cosine = [0.0];
        dot_rows(self.row(row)?, unit, &mut cosine);
        let [cosine] = cosine;
        Ok(cosine)
    }

    /// A close upper bound of [`Dense::cosine`] with a vector of length 1, for every row.
    pub(crate) fn bounds(&self, unit: &[f32]) -> Result<Vec<f32>> {
        self.bounds_in_parts(unit, ROWS_PER_THREAD)
    }

    /// The same with a new thread for each `rows_per_thread` rows, if there are processors for it.
    fn bounds_in_parts(&self, unit: &[f32], rows_per_thread: usize) -> Result<Vec<f32>> {
        let query = RoundedQuery::of(unit);
        let mut bounds = vec![0.0; self.rows];
        let blocks: Vec<&Levels> =
            self.blocks.iter().map(|block| block.levels()).collect::<Result<_>>()?;
        if self.rows <= rows_per_thread {
            // The number of processors is read from files, which takes longer than a few rows.
            bound_blocks(&blocks, &query, &mut bounds);
            return Ok(bounds);
        }
        let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
        // Few parts, because a thread can wait long for the lock on a busy machine.
        let each = self.rows.div_ceil(processors).max(rows_per_thread).div_ceil(ROWS_PER_BLOCK);
        let share = each * ROWS_PER_BLOCK;
        let parts = Mutex::new(bounds.chunks_mut(share).zip(blocks.chunks(each)));
        let next = || parts.lock().unwrap_or_else(PoisonError::into_inner).next();
        let work = || {
            while let Some((bounds, blocks)) = next() {
                bound_blocks(blocks, &query, bounds);
            }
        };
        // Not from a pool: its threads would not survive a fork of the process.
        std::thread::scope(|scope| {
            for _ in 1..self.rows.div_ceil(share) {
                // If the system refuses another thread, the existing threads take its part.
                if Builder::new().spawn_scoped(scope, work).is_err() {
                    break;
                }
            }
            work();
        });
        Ok(bounds)
    }
}

impl Rows {
    fn new(dimension: usize) -> Self {
        Self { dimension, count: 0, values: Vec::new().into(), levels: Levels::default().into() }
    }

    fn values(&self) -> Result<&Vec<f32>> {
        self.values.get(|bytes| {
            if bytes.len() != self.count * self.dimension * 4 {
                return Err(Error::corrupt(Damage::VectorCount));
            }
            let values: Vec<f32> =
                bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
            for vector in values.chunks_exact(self.dimension) {
                let square: f64 = vector.iter().map(|value| f64::from(*value).powi(2)).sum();
                if !square.is_finite() || (square - 1.0).abs() > 1e-3 {
                    return Err(Error::corrupt(Damage::VectorLength));
                }
            }
            Ok(values)
        })
    }

    fn levels(&self) -> Result<&Levels> {
        self.levels.get(|bytes| {
            let halves = bytes.split_at_checked(self.count * 8);
            let Some((rounded, levels)) =
                halves.filter(|(_, levels)| levels.len() == self.count * self.dimension)
            else {
                return Err(Error::corrupt(Damage::VectorCount));
            };
            let (pairs, _) = rounded.as_chunks::<8>();
            let rounded = pairs.iter().map(|[a, b, c, d, e, f, g, h]| Rounded {
                step: f32::from_le_bytes([*a, *b, *c, *d]),
                error: f32::from_le_bytes([*e, *f, *g, *h]),
            });
            let levels = levels.iter().map(|level| level.cast_signed());
            Ok(Levels { levels: levels.collect(), rounded: rounded.collect() })
        })
    }

    /// Both encodings of the rows, read from the file if necessary.
    fn parts(&mut self) -> Result<(&mut Vec<f32>, &mut Levels)> {
        self.values()?;
        self.levels()?;
        Ok(self.values.get_mut().zip(self.levels.get_mut()).expect("both were read above"))
    }

    fn resize(&mut self, count: usize) -> Result<()> {
        let dimension = self.dimension;
        let (values, Levels { levels, rounded }) = self.parts()?;
        values.resize(count * dimension, 0.0);
        levels.resize(count * dimension, 0);
        rounded.resize(count, Rounded::default());
        self.count = count;
        Ok(())
    }

    fn set(&mut self, row: usize, unit: &[f32]) -> Result<()> {
        if self.count <= row {
            self.resize(row + 1)?;
        }
        let span = row * self.dimension..(row + 1) * self.dimension;
        let (values, Levels { levels, rounded }) = self.parts()?;
        let complete = "`resize` made room for the row";
        values.get_mut(span.clone()).expect(complete).copy_from_slice(unit);
        let levels = levels.get_mut(span).expect(complete);
        let error = Rounded::of(unit, f32::from(i8::MAX), levels, |level| {
            #[expect(clippy::cast_possible_truncation, reason = "a level is in [-127, 127]")]
            let level = level as i8;
            level
        });
        *rounded.get_mut(row).expect(complete) = error;
        Ok(())
    }
}

impl Rounded {
    /// Rounds a vector to whole levels up to `most` and stores them, converted by `to_level`.
    fn of<T>(vector: &[f32], most: f32, levels: &mut [T], to_level: impl Fn(f32) -> T) -> Self {
        let largest = vector.iter().fold(0.0_f32, |largest, value| largest.max(value.abs()));
        if largest == 0.0 {
            return Self::default(); // the levels of a new row are zero
        }
        // A step below the smallest normal number would have few significant bits.
        let step = (largest / most).max(f32::MIN_POSITIVE);
        let mut square = 0.0_f64;
        for (value, entry) in vector.iter().zip(levels) {
            let level = (value / step).round();
            *entry = to_level(level);
            square += (f64::from(*value) - f64::from(step) * f64::from(level)).powi(2);
        }
        #[expect(clippy::cast_possible_truncation, reason = "rounded up")]
        Self { step, error: (square.sqrt() as f32).next_up() }
    }
}

impl RoundedQuery {
    fn of(unit: &[f32]) -> Self {
        // The largest level for which no sum of products with 8-bit levels overflows 32 bits.
        let most = i32::MAX / i32::from(i8::MAX) / i32::try_from(unit.len()).unwrap_or(i32::MAX);
        let most = most.clamp(1, i32::from(i16::MAX));
        let mut levels = vec![0; unit.len()];
        let rounded = Rounded::of(unit, most as f32, &mut levels, |level| {
            #[expect(clippy::cast_possible_truncation, reason = "a level fits 16 bits")]
            let level = level as i16;
            level
        });
        Self { levels, rounded }
    }
}

fn bound_blocks(blocks: &[&Levels], query: &RoundedQuery, bounds: &mut [f32]) {
    // The rounding error of the sum in `dot` is at most an epsilon for each of its additions.
    let additions = query.levels.len() / LANES + 2 * LANES;
    let slack = additions as f32 * f32::EPSILON;
    for (bounds, block) in bounds.chunks_mut(ROWS_PER_BLOCK).zip(blocks) {
        multiply_levels(&block.levels, &query.levels, bounds);
        for (bound, row) in bounds.iter_mut().zip(&block.rounded) {
            // |x q - x' q'| <= |x - x'| |q| + |x'| |q - q'|. Here x and q have length 1 within
            // 0.0005, which is what the reader of index files accepts, and |x - x'| is the error of
            // the row.
            let difference = row.error * 1.001 + (1.001 + row.error) * query.rounded.error + slack;
            *bound = *bound * row.step * query.rounded.step + difference;
        }
    }
}

/// The product of the levels of each row with those of the query, a whole number below 2^31.
#[multiversion(targets("x86_64+avx512f+avx512bw", "x86_64+avx2", "aarch64+neon"))]
fn multiply_levels(rows: &[i8], query: &[i16], products: &mut [f32]) {
    for (row, product) in rows.chunks_exact(query.len()).zip(products) {
        let sum: i32 = row
            .iter()
            .zip(query)
            .map(|(level, of_query)| i32::from(*level) * i32::from(*of_query))
            .sum();
        *product = sum as f32;
    }
}

/// The inner product of each row with the query.
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2", "x86_64+avx", "aarch64+neon"))]
fn dot_rows(rows: &[f32], query: &[f32], products: &mut [f32]) {
    for (row, product) in rows.chunks_exact(query.len()).zip(products) {
        // Rounding can make the product of two unit vectors larger than 1.
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

/// Checks a vector and scales it to length 1. Errors name its `owner`, such as `document "pdf"`.
///
/// Fails with `wrong_dimension`, `not_finite` or `zero_vector`.
pub(crate) fn unit(owner: &str, vector: &[f32], dimension: usize) -> Result<Vec<f32>> {
    if vector.len() != dimension {
        let (owner, found) = (owner.to_owned(), vector.len());
        return Err(Kind::WrongDimension { owner, found, expected: dimension }.into());
    }
    if let Some((place, value)) = vector.iter().enumerate().find(|(_, value)| !value.is_finite()) {
        let name = format!("number {place} of the vector of {owner}");
        return Err(Error::not_finite(name, f64::from(*value)));
    }
    // In f64, where the square of f32::MAX does not overflow and that of a subnormal is not 0.
    let length = vector.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>().sqrt();
    if length == 0.0 {
        return Err(Kind::ZeroVector { owner: owner.to_owned() }.into());
    }
    #[expect(clippy::cast_possible_truncation, reason = "the quotient is in [-1, 1]")]
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
            dense.set(u32::try_from(row).unwrap(), &unit).unwrap();
        }
        dense
    }

    proptest! {
        #[test]
        fn cosines_equal_the_definition(
            rows in prop::collection::vec(vector(37), 1..9), query in vector(37),
        ) {
            let matrix = matrix(&rows, 37);
            let query_unit = unit("query", &query, 37).unwrap();
            let length = |v: &[f32]| v.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
            for (number, row) in (0..).zip(&rows) {
                let found = matrix.cosine(number, &query_unit).unwrap();
                let product: f64 =
                    row.iter().zip(&query).map(|(x, y)| f64::from(*x) * f64::from(*y)).sum();
                let expected = product / length(row) / length(&query);
                prop_assert!((f64::from(found) - expected).abs() < 1e-6);
                prop_assert!((-1.0..=1.0).contains(&found));
            }
        }

        #[test]
        fn unit_vectors_do_not_depend_on_the_scale(query in vector(8), power in -60_i32..60) {
            let scaled: Vec<f32> = query.iter().map(|value| value * 2.0_f32.powi(power)).collect();
            prop_assert_eq!(unit("a", &query, 8).unwrap(), unit("b", &scaled, 8).unwrap());
        }
    }

    /// Vectors whose numbers are of very different sizes, the worst case for rounding.
    fn uneven(dimension: usize) -> impl Strategy<Value = Vec<f32>> {
        let number = prop_oneof![-1.0_f32..1.0, -1e-3_f32..1e-3, -1e-30_f32..1e-30, Just(0.0)];
        prop::collection::vec(number, dimension)
            .prop_filter("a direction", |vector| vector.iter().any(|value| *value != 0.0))
    }

    proptest! {
        #[test]
        fn bounds_are_upper_and_close(
            (rows, query) in (1_usize..400).prop_flat_map(|dimension| {
                (prop::collection::vec(uneven(dimension), 1..9), uneven(dimension))
            }),
        ) {
            let matrix = matrix(&rows, query.len());
            let query = unit("query", &query, query.len()).unwrap();
            for (row, bound) in (0..).zip(matrix.bounds(&query).unwrap()) {
                let cosine = matrix.cosine(row, &query).unwrap();
                prop_assert!(cosine <= bound, "{cosine} {bound}");
                // If each number is off by half a level, the error is sqrt(400) / 254 = 0.08.
                prop_assert!(bound - cosine < 2.0 * 0.08, "{cosine} {bound}");
            }
        }
    }

    #[test]
    fn sums_of_levels_of_the_widest_vector_do_not_overflow() {
        let even = unit("even", &vec![1.0; 65_536], 65_536).unwrap();
        let mut dense = Dense::new(65_536);
        dense.set(0, &even).unwrap();
        let bound = dense.bounds(&even).unwrap()[0];
        assert!((1.0..1.01).contains(&bound), "{bound}");
    }

    #[test]
    fn threads_and_other_rows_do_not_change_a_bit() {
        const ROWS_PER_THREAD: usize = 300;
        let rows: Vec<Vec<f32>> = (0..2 * ROWS_PER_THREAD + 7)
            .map(|row| (0..5).map(|column| ((row * 31 + column * 7) % 97) as f32 - 48.0).collect())
            .collect();
        let query = unit("query", &[1.0, -2.0, 3.0, 0.5, 0.25], 5).unwrap();
        let all = matrix(&rows, 5);
        let bounds = all.bounds_in_parts(&query, ROWS_PER_THREAD).unwrap();
        for row in [0, 1, ROWS_PER_THREAD - 1, ROWS_PER_THREAD, 2 * ROWS_PER_THREAD + 6] {
            let alone = matrix(&rows[row..=row], 5);
            assert_eq!(alone.bounds(&query).unwrap()[0].to_bits(), bounds[row].to_bits());
            let cosine = all.cosine(u32::try_from(row).unwrap(), &query).unwrap();
            assert_eq!(alone.cosine(0, &query).unwrap().to_bits(), cosine.to_bits());
        }
    }

    #[test]
    fn vectors_without_a_direction_are_refused() {
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
