//! Late interaction: token vectors of a query and of documents, and the sum of their best matches.

use multiversion::multiversion;

use crate::dense::unit;
use crate::error::{Error, Result};

/// Products of 8-bit numbers over this many columns cannot overflow a 32-bit sum.
const MOST_COLUMNS: usize = 65_536;

/// Query tokens that are compared at once; as many as a query of `ColBERT` has.
const TILE: usize = 32;

/// The token vectors of one text, each of length 1, row by row.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenVectors {
    dimension: usize,
    values: Values,
}

#[derive(Clone, Debug, PartialEq)]
enum Values {
    Float32(Vec<f32>),
    /// Each row divided by its scale: 127 stands for the row's largest magnitude.
    Int8 {
        values: Vec<i8>,
        scales: Vec<f32>,
    },
}

impl TokenVectors {
    /// Takes the rows over and scales each to length 1. `owner` names them in errors.
    ///
    /// Fails with `wrong_dimension` where there are no rows, no columns or rows of different width,
    /// with `not_finite` and with `zero_vector`, naming the row.
    pub fn new(owner: &str, rows: &[Vec<f32>]) -> Result<Self> {
        let dimension = rows.first().map_or(0, Vec::len);
        if dimension == 0 || dimension > MOST_COLUMNS {
            return Err(Error::input(
                "wrong_dimension",
                format!(
                    "the token vectors of {owner} are {} rows of {dimension} numbers: at least one \
                     row of 1 to {MOST_COLUMNS} is needed",
                    rows.len()
                ),
            ));
        }
        let mut values = Vec::with_capacity(rows.len() * dimension);
        for (place, row) in rows.iter().enumerate() {
            if row.len() != dimension {
                return Err(Error::input(
                    "wrong_dimension",
                    format!(
                        "row {place} of the token vectors of {owner} has {} numbers, the first \
                         row has {dimension}: all rows of a matrix are equally wide",
                        row.len()
                    ),
                ));
            }
            values.extend(unit(&format!("token {place} of {owner}"), row, dimension)?);
        }
        Ok(Self { dimension, values: Values::Float32(values) })
    }

    /// The same vectors in a quarter of the memory: 8 bits a number, and a scale per token.
    #[must_use]
    pub fn to_int8(&self) -> Self {
        let Values::Float32(floats) = &self.values else { return self.clone() };
        let mut values = Vec::with_capacity(floats.len());
        let mut scales = Vec::with_capacity(self.len());
        for row in floats.chunks_exact(self.dimension) {
            let largest = row.iter().fold(0.0_f32, |most, value| most.max(value.abs()));
            let scale = largest / 127.0;
            #[expect(clippy::cast_possible_truncation, reason = "the quotient is at most 127")]
            values.extend(row.iter().map(|value| (value / scale).round() as i8));
            scales.push(scale);
        }
        Self { dimension: self.dimension, values: Values::Int8 { values, scales } }
    }

    /// How many numbers a vector has.
    pub fn dimension(&self) -> usize {
        self.dimension
    }

    /// How many tokens there are; at least one.
    #[expect(clippy::len_without_is_empty, reason = "it is never empty")]
    pub fn len(&self) -> usize {
        match &self.values {
            Values::Float32(values) => values.len() / self.dimension,
            Values::Int8 { scales, .. } => scales.len(),
        }
    }

    /// The memory that the numbers take, in bytes.
    pub fn bytes(&self) -> usize {
        match &self.values {
            Values::Float32(values) => size_of_val(values.as_slice()),
            Values::Int8 { values, scales } => {
                size_of_val(values.as_slice()) + size_of_val(scales.as_slice())
            }
        }
    }

    /// Whether a number takes 8 bits.
    pub fn is_int8(&self) -> bool {
        matches!(self.values, Values::Int8 { .. })
    }

    /// The sum, over the tokens of the query, of the largest cosine with any token of a document.
    ///
    /// Khattab and Zaharia, "`ColBERT`: Efficient and Effective Passage Search via Contextualized
    /// Late Interaction over BERT" (2020), equation 3. In [-n, n] for a query of n tokens. Where
    /// either side has 8 bits, both are taken so, and the products are added up as whole numbers.
    ///
    /// Fails with `wrong_dimension` where the vectors differ in length.
    pub fn max_similarity(&self, document: &Self) -> Result<f64> {
        if self.dimension != document.dimension {
            return Err(Error::input(
                "wrong_dimension",
                format!(
                    "the token vectors of a document have {} numbers, those of the query {}: make \
                     both with the same model",
                    document.dimension, self.dimension
                ),
            ));
        }
        let mut sum = 0.0;
        match (&self.values, &document.values) {
            (Values::Float32(query), Values::Float32(rows)) => {
                for (columns, tokens) in tiles(query, self.dimension) {
                    let mut best = [f32::NEG_INFINITY; TILE];
                    best_floats(&columns, rows, &mut best);
                    sum += best.iter().take(tokens).map(|value| bounded(*value)).sum::<f64>();
                }
            }
            (
                Values::Int8 { values: query, scales: query_scales },
                Values::Int8 { values: rows, scales },
            ) => {
                let query_scales = query_scales.chunks(TILE);
                for ((columns, _), query_scales) in tiles(query, self.dimension).zip(query_scales) {
                    let mut best = [f32::NEG_INFINITY; TILE];
                    best_integers(&columns, rows, scales, &mut best);
                    let scaled = best.iter().zip(query_scales).map(|(best, scale)| best * scale);
                    sum += scaled.map(bounded).sum::<f64>();
                }
            }
            _ => return self.to_int8().max_similarity(&document.to_int8()),
        }
        Ok(sum)
    }
}

/// Rounding can lift the product of two unit vectors over 1.
fn bounded(cosine: f32) -> f64 {
    f64::from(cosine.clamp(-1.0, 1.0))
}

/// The rows of a query, so many at a time, turned into columns: beside each other stand the numbers
/// of different tokens, whose sums need never be added across. With each tile the number of its
/// tokens; the rest is zeros.
fn tiles<T: Copy, Wide: Copy + Default + From<T>>(
    query: &[T],
    dimension: usize,
) -> impl Iterator<Item = (Vec<[Wide; TILE]>, usize)> {
    query.chunks(TILE * dimension).map(move |rows| {
        let mut columns = vec![[Wide::default(); TILE]; dimension];
        for (token, row) in rows.chunks_exact(dimension).enumerate() {
            for (column, value) in columns.iter_mut().zip(row) {
                if let Some(place) = column.get_mut(token) {
                    *place = Wide::from(*value);
                }
            }
        }
        (columns, rows.len() / dimension)
    })
}

/// Lifts each query token's best to its largest inner product with a row.
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2", "x86_64+avx", "aarch64+neon"))]
fn best_floats(columns: &[[f32; TILE]], rows: &[f32], best: &mut [f32; TILE]) {
    for row in rows.chunks_exact(columns.len()) {
        let mut sums = [0.0_f32; TILE];
        for (value, column) in row.iter().zip(columns) {
            for (sum, token) in sums.iter_mut().zip(column) {
                *sum += value * token;
            }
        }
        for (best, sum) in best.iter_mut().zip(sums) {
            *best = if sum > *best { sum } else { *best };
        }
    }
}

/// The same over 8-bit rows; the query's own scales are left to the caller.
#[multiversion(targets("x86_64+avx512f+avx512bw", "x86_64+avx2", "aarch64+neon"))]
fn best_integers(columns: &[[i16; TILE]], rows: &[i8], scales: &[f32], best: &mut [f32; TILE]) {
    for (row, scale) in rows.chunks_exact(columns.len()).zip(scales) {
        let mut sums = [0_i32; TILE];
        let (pairs, rest) = row.as_chunks::<2>();
        let (column_pairs, column_rest) = columns.as_chunks::<2>();
        for ([first, second], [left, right]) in pairs.iter().zip(column_pairs) {
            let (first, second) = (i16::from(*first), i16::from(*second));
            for ((sum, left), right) in sums.iter_mut().zip(left).zip(right) {
                // Two products of numbers up to 127 fit 16 bits, which are added up faster.
                *sum += i32::from(first * left + second * right);
            }
        }
        for (value, column) in rest.iter().zip(column_rest) {
            for (sum, token) in sums.iter_mut().zip(column) {
                *sum += i32::from(i16::from(*value) * token);
            }
        }
        for (best, sum) in best.iter_mut().zip(sums) {
            let product = sum as f32 * scale;
            *best = if product > *best { product } else { *best };
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn matrix(
        rows: std::ops::Range<usize>,
        dimension: usize,
    ) -> impl Strategy<Value = Vec<Vec<f32>>> {
        let row = prop::collection::vec(-1.0_f32..1.0, dimension)
            .prop_filter("a direction", |row| row.iter().any(|value| value.abs() > 1e-3));
        prop::collection::vec(row, rows)
    }

    fn naive(query: &[Vec<f32>], document: &[Vec<f32>]) -> f64 {
        let length = |row: &[f32]| row.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
        let cosine = |left: &[f32], right: &[f32]| {
            let product: f64 =
                left.iter().zip(right).map(|(x, y)| f64::from(*x) * f64::from(*y)).sum();
            product / length(left) / length(right)
        };
        query
            .iter()
            .map(|token| document.iter().map(|row| cosine(token, row)).fold(f64::MIN, f64::max))
            .sum()
    }

    proptest! {
        #[test]
        fn equals_the_definition(query in matrix(1..70, 37), document in matrix(1..9, 37)) {
            let expected = naive(&query, &document);
            let (query, document) = (
                TokenVectors::new("query", &query).unwrap(),
                TokenVectors::new("document", &document).unwrap(),
            );
            let exact = query.max_similarity(&document).unwrap();
            prop_assert!((exact - expected).abs() < 1e-5 * query.len() as f64);
            // Half a step of each of 37 numbers on both sides, against vectors of length 1.
            let small = query.to_int8().max_similarity(&document.to_int8()).unwrap();
            prop_assert!((small - expected).abs() < 0.05 * query.len() as f64);
            prop_assert_eq!(small, query.max_similarity(&document.to_int8()).unwrap());
            prop_assert_eq!(small, query.to_int8().max_similarity(&document).unwrap());
        }

        #[test]
        fn the_order_of_a_document_s_tokens_does_not_change_a_bit(
            query in matrix(1..5, 20), document in matrix(1..9, 20),
        ) {
            let query = TokenVectors::new("query", &query).unwrap();
            let forth = TokenVectors::new("document", &document).unwrap();
            let mut document = document;
            document.reverse();
            let back = TokenVectors::new("document", &document).unwrap();
            prop_assert_eq!(
                query.max_similarity(&forth).unwrap().to_bits(),
                query.max_similarity(&back).unwrap().to_bits()
            );
        }
    }

    #[test]
    fn sizes_are_told() {
        let made = TokenVectors::new("it", &vec![vec![1.0; 8]; 3]).unwrap();
        assert_eq!((made.len(), made.dimension(), made.bytes()), (3, 8, 96));
        let small = made.to_int8();
        assert_eq!((small.len(), small.dimension(), small.bytes()), (3, 8, 24 + 12));
        assert!(small.is_int8() && !made.is_int8());
        assert_eq!(small.to_int8(), small);
    }

    #[test]
    fn refuses_what_has_no_cosine() {
        let cases: &[(&[Vec<f32>], &str)] = &[
            (&[], "wrong_dimension"),
            (&[Vec::new()], "wrong_dimension"),
            (&[vec![1.0, 0.0], vec![1.0]], "wrong_dimension"),
            (&[vec![1.0, 0.0], vec![f32::NAN, 1.0]], "not_finite"),
            (&[vec![0.0, 0.0]], "zero_vector"),
        ];
        for (rows, code) in cases {
            let error = TokenVectors::new("document \"pdf\"", rows).unwrap_err();
            assert_eq!(error.code(), *code);
            assert!(error.to_string().contains("document \"pdf\""));
        }
        let wide = TokenVectors::new("a", &[vec![1.0; 3]]).unwrap();
        let narrow = TokenVectors::new("b", &[vec![1.0; 2]]).unwrap();
        assert_eq!(wide.max_similarity(&narrow).unwrap_err().code(), "wrong_dimension");
    }
}
