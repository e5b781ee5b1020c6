//! Whether a query needs any document: most prompts of a conversation do not.

use crate::dense::unit;
use crate::error::{Error, Kind, Result};
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

/// The form of a prompt, which tells requests of a session from remarks: the logarithms of one plus the
/// words of the request and the characters of the prompt, whether the request ends in a question mark,
/// and whether the prompt is the first of its session.
pub fn form(request: &str, prompt: &str, is_first: bool) -> [f64; 4] {
    let words = request.split_whitespace().count();
    let characters = prompt.chars().count();
    [
        (words as f64).ln_1p(),
        (characters as f64).ln_1p(),
        f64::from(u8::from(request.trim_end().ends_with('?'))),
        f64::from(u8::from(is_first)),
    ]
}

/// The probability that a prompt of a session needs any document: [`needs_document`] with weights for
/// the prompt's [`form`], too.
///
/// Fails as [`needs_document`], and with `wrong_dimension` without a weight for each part of the form.
pub fn needs_document_in_session(
    vector: &[f32],
    form: &[f64],
    intercept: f64,
    weights: &[f64],
    form_weights: &[f64],
) -> Result<f64> {
    if form.len() != form_weights.len() {
        let (found, expected) = (form.len(), form_weights.len());
        return Err(Kind::WrongDimension { owner: "the form".to_owned(), found, expected }.into());
    }
    let of_form: f64 = form.iter().zip(form_weights).map(|(value, weight)| value * weight).sum();
    needs_document(vector, intercept + of_form, weights)
}

/// The weights, over the unit vector of a document, of how much a prompt of a session asks for what
/// the document does.
///
/// A bilinear model of low rank. The first row of `model` counts for every prompt; each number of the
/// prompt's [`form`] is multiplied with a further row; the dot product of the prompt's unit vector with
/// each row of the next part is multiplied with a row of the last part, of equal length. A row has as
/// many numbers as the vector.
///
/// Fails with `wrong_dimension` for a model of another shape, and as [`needs_document`] for the vector.
pub fn usefulness_weights(vector: &[f32], form: &[f64], model: &[f32]) -> Result<Vec<f32>> {
    let dimension = vector.len();
    let unit = unit("the prompt", vector, dimension)?;
    let rows: Vec<&[f32]> = model.chunks(dimension).collect();
    let Some((fixed, pairs)) = rows.split_at_checked(1 + form.len()).filter(|(_, pairs)| {
        model.len().is_multiple_of(dimension) && pairs.len().is_multiple_of(2)
    }) else {
        let owner = "the model of usefulness".to_owned();
        let expected = dimension * (1 + form.len());
        return Err(Kind::WrongDimension { owner, found: model.len(), expected }.into());
    };
    let (directions, of_vector) = pairs.split_at(pairs.len() / 2);
    let projections = directions.iter().map(|direction| {
        unit.iter().zip(*direction).map(|(value, weight)| f64::from(value * weight)).sum::<f64>()
    });
    let factors = std::iter::once(1.0).chain(form.iter().copied()).chain(projections);
    let mut weights = vec![0.0_f64; dimension];
    for (factor, row) in factors.zip(fixed.iter().chain(of_vector)) {
        for (weight, value) in weights.iter_mut().zip(*row) {
            *weight += factor * f64::from(*value);
        }
    }
    #[expect(clippy::cast_possible_truncation, reason = "the vectors of documents are f32, too")]
    Ok(weights.into_iter().map(|weight| weight as f32).collect())
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
    fn usefulness_depends_on_the_form_and_the_direction_of_a_prompt() {
        let model = [1.0, 2.0, 0.5, 0.0, 0.0, 1.0, 10.0, 20.0];
        let weights = usefulness_weights(&[3.0, 4.0], &[2.0], &model).unwrap();
        assert_eq!(
            weights,
            [1.0 + 2.0 * 0.5 + 0.8 * 10.0, 2.0 + 0.8 * 20.0].map(|one: f64| one as f32)
        );
        assert_eq!(usefulness_weights(&[3.0, 4.0], &[], &model[..2]).unwrap(), [1.0, 2.0]);
        for broken in [&model[..7], &model[..6], &model[..0]] {
            let error = usefulness_weights(&[3.0, 4.0], &[2.0], broken).unwrap_err();
            assert_eq!(error.code(), "wrong_dimension");
        }
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

    #[test]
    fn the_form_counts_words_of_the_request_and_characters_of_the_prompt() {
        let first = form("does it é run? ", "does it é run? \nlog", true);
        assert_eq!(first, [4.0_f64.ln_1p(), 19.0_f64.ln_1p(), 1.0, 1.0]);
        assert_eq!(form("", "", false), [0.0; 4]);
    }

    #[test]
    fn in_a_session_the_form_adds_to_the_log_odds() {
        let vector = [3.0, 4.0];
        let form = [1.0, 2.0, 0.0, 1.0];
        let of = |form_weights: &[f64]| {
            needs_document_in_session(&vector, &form, 0.5, &[2.0, -1.0], form_weights)
        };
        assert_eq!(of(&[0.0; 4]).unwrap(), needs_document(&vector, 0.5, &[2.0, -1.0]).unwrap());
        let odds = 0.5 + 0.6 * 2.0 - 0.8 + 0.3 - 0.4 + 0.5;
        let found = of(&[0.3, -0.2, 9.0, 0.5]).unwrap();
        assert!((found - 1.0 / (1.0 + f64::exp(-odds))).abs() < 1e-7);
        assert_eq!(of(&[0.0; 3]).unwrap_err().code(), "wrong_dimension");
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
