//! Texts without headings, pasted below or above a request that points to them.

use std::ops::Range;

use super::forms::{Form, said, words_of};
use super::pointers::{Direction, has_request, is_order, is_request};
use crate::request::fences::Line;

/// The shortest pasted text, in words.
const SHORTEST: usize = 20;

/// The longest request, in words.
const LONGEST_REQUEST: usize = 60;

/// How many of a text's sentences may tell their reader to do something: one in this many.
const SENTENCES_PER_ORDER: usize = 8;

/// The place of a plain text whose request is the first or the last paragraph.
pub(super) fn prose(lines: &[Line<'_>], forms: &[Form]) -> Option<Range<usize>> {
    if forms.iter().any(|form| !matches!(form, Form::Text | Form::Blank | Form::Rule)) {
        return None;
    }
    let first = forms.iter().position(|form| *form == Form::Text)?;
    let last = forms.iter().rposition(|form| *form == Form::Text)?;
    let is_text = |number: &usize| forms.get(*number) == Some(&Form::Text);
    // "Translate this:" announces the next line, too.
    let announces = lines.get(first)?.text.trim_end().ends_with(':');
    let end = (first + 1..=last).find(|number| announces || !is_text(number))?;
    let start = (first..last).rev().find(|number| !is_text(number)).map_or(last, |at| at + 1);
    let opening = said(lines, &(first..end));
    if opening.len() <= LONGEST_REQUEST && is_request(&opening, Direction::Down) {
        return Some(end..lines.len()).filter(|text| is_pasted(lines, text));
    }
    let closing = said(lines, &(start..last + 1));
    let asks = || is_request(&closing, Direction::Up) || has_request(&closing);
    let text = (closing.len() <= LONGEST_REQUEST && asks()).then_some(0..start)?;
    Some(text).filter(|text| is_pasted(lines, text))
}

/// Whether lines are a text that was written for other readers than an agent.
fn is_pasted(lines: &[Line<'_>], text: &Range<usize>) -> bool {
    const ASKS: [&str; 6] = ["can you", "could you", "would you", "help me", "let's", "you should"];
    let inside = lines.get(text.clone()).unwrap_or_default();
    let (mut words, mut sentences, mut orders) = (0, 0, 0);
    for line in inside.iter().filter(|line| !line.is_blank()) {
        words += words_of(line.text).len();
        for sentence in line.text.split_inclusive(". ") {
            let lower = sentence.trim_start().to_lowercase();
            if ASKS.iter().any(|start| lower.starts_with(start)) {
                return false;
            }
            sentences += 1;
            orders += usize::from(is_order(sentence.trim()));
        }
    }
    words >= SHORTEST && orders * SENTENCES_PER_ORDER <= sentences
}
