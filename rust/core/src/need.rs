//! Whether a query asks for anything at all: most prompts of a conversation do not.

use crate::confidence::logistic;
use crate::dense::unit;
use crate::error::{Error, Result};

/// How probable it is that a query asks for anything that a document could serve.
///
/// A linear head over the query's vector: the logistic of the intercept plus the dot product of
/// weights and unit vector, added up from the first number to the last.
///
/// Fails with `wrong_dimension` where vector and weights differ in length, `zero_vector` for a
/// vector without a direction, and `not_finite` for a number that is not.
pub fn need(vector: &[f32], intercept: f64, weights: &[f64]) -> Result<f64> {
    let unit = unit("the query", vector, weights.len())?;
    let dot: f64 = unit.iter().zip(weights).map(|(one, weight)| f64::from(*one) * weight).sum();
    logistic(intercept + dot).filter(|need| need.is_finite()).ok_or_else(|| {
        Error::input("not_finite", "the head of the model holds a number that is not finite")
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_log_odds_are_the_intercept_and_the_dot_product_with_the_unit_vector() {
        let found = need(&[3.0, 4.0], 0.5, &[2.0, -1.0]).unwrap();
        let odds = 0.5 + 0.6 * 2.0 - 0.8;
        assert!((found - 1.0 / (1.0 + f64::exp(-odds))).abs() < 1e-7);
    }

    #[test]
    fn what_is_no_vector_of_the_model_is_refused() {
        let code = |vector: &[f32], weights: &[f64]| need(vector, 0.0, weights).unwrap_err().code();
        assert_eq!(code(&[1.0], &[1.0, 2.0]), "wrong_dimension");
        assert_eq!(code(&[0.0, 0.0], &[1.0, 2.0]), "zero_vector");
        assert_eq!(code(&[f32::NAN, 0.0], &[1.0, 2.0]), "not_finite");
        assert_eq!(code(&[1.0, 1.0], &[f64::INFINITY, f64::NEG_INFINITY]), "not_finite");
    }

    proptest! {
        #[test]
        fn it_is_a_probability_and_the_length_of_the_vector_has_no_say(
            vector in proptest::collection::vec(-5.0..5.0_f32, 8),
            weights in proptest::collection::vec(-50.0..50.0_f64, 8),
            scale in 0.1..10.0_f32,
        ) {
            prop_assume!(vector.iter().any(|one| one.abs() > 0.01));
            let found = need(&vector, 0.1, &weights).unwrap();
            prop_assert!((0.0..=1.0).contains(&found));
            let scaled: Vec<f32> = vector.iter().map(|one| one * scale).collect();
            prop_assert!((need(&scaled, 0.1, &weights).unwrap() - found).abs() < 1e-4);
        }
    }
}
