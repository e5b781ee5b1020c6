//! Whether a query needs any document: most prompts of a conversation do not.

use crate::dense::unit;
use crate::error::{Error, Result};
use crate::probability::logistic;

/// The probability that a query needs any document.
///
/// A linear model of the query's unit vector: the logistic function of the intercept plus the dot
/// product with the weights, summed from the first number to the last.
///
/// Fails with `wrong_dimension` if vector and weights differ in length, with `zero_vector` for a
/// vector without a direction, and with `not_finite` for a number that is not finite.
///
/// # Examples
///
/// ```
/// use crossgate_core::needs_document::needs_document;
///
/// assert_eq!(needs_document(&[3.0, 4.0], 0.0, &[0.0, 0.0])?, 0.5);
/// assert!(needs_document(&[3.0, 4.0], -1.0, &[9.0, 0.0])? > 0.9);
/// # Ok::<(), crossgate_core::Error>(())
/// ```
pub fn needs_document(vector: &[f32], intercept: f64, weights: &[f64]) -> Result<f64> {
    let unit = unit("the query", vector, weights.len())?;
    let dot: f64 = unit.iter().zip(weights).map(|(value, weight)| f64::from(*value) * weight).sum();
    let odds = intercept + dot;
    logistic(odds)
        .ok_or_else(|| Error::not_finite("the log-odds that the query needs a document", odds))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_log_odds_are_the_intercept_and_the_dot_product_with_the_unit_vector() {
        let found = needs_document(&[3.0, 4.0], 0.5, &[2.0, -1.0]).unwrap();
        let odds = 0.5 + 0.6 * 2.0 - 0.8;
        assert!((found - 1.0 / (1.0 + f64::exp(-odds))).abs() < 1e-7);
    }

    #[test]
    fn unusable_vectors_and_weights_are_refused() {
        let code = |vector: &[f32], weights: &[f64]| {
            needs_document(vector, 0.0, weights).unwrap_err().code()
        };
        assert_eq!(code(&[1.0], &[1.0, 2.0]), "wrong_dimension");
        assert_eq!(code(&[0.0, 0.0], &[1.0, 2.0]), "zero_vector");
        assert_eq!(code(&[f32::NAN, 0.0], &[1.0, 2.0]), "not_finite");
        assert_eq!(code(&[1.0, 1.0], &[f64::INFINITY, f64::NEG_INFINITY]), "not_finite");
    }

    proptest! {
        #[test]
        fn the_result_is_a_probability_and_does_not_depend_on_the_length_of_the_vector(
            vector in proptest::collection::vec(-5.0..5.0_f32, 8),
            weights in proptest::collection::vec(-50.0..50.0_f64, 8),
            scale in 0.1..10.0_f32,
        ) {
            prop_assume!(vector.iter().any(|value| value.abs() > 0.01));
            let found = needs_document(&vector, 0.1, &weights).unwrap();
            prop_assert!((0.0..=1.0).contains(&found));
            let scaled: Vec<f32> = vector.iter().map(|value| value * scale).collect();
            prop_assert!((needs_document(&scaled, 0.1, &weights).unwrap() - found).abs() < 1e-4);
        }
    }
}
