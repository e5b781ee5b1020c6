//! Documents in Markdown and similar markup, and plain texts, pasted below, above or around a request.
//!
//! A heading proves nothing, because people structure their own prompts with headings. A document
//! was pasted if a sentence outside of it points to it: "turn this into slides", "review the notes
//! below", "translate the above".

mod forms;
mod pointers;
mod prose;

use std::ops::Range;

use super::fences::Line;
use super::lines::Sign;
use super::shape::{Words, is_addressed};
use forms::{Form, Outline, forms, said, words_of};
use pointers::{Direction, Pointer, asks, has_request, is_request, pointer};
use prose::prose;

/// The places of pasted documents, in their order and without overlap.
pub(super) fn documents(lines: &[Line<'_>], signs: &[Option<Sign>]) -> Vec<Range<usize>> {
    let forms = forms(lines, signs);
    let Some(first) = first_heading(&forms) else {
        return prose(lines, &forms).into_iter().collect();
    };
    let paragraphs = paragraphs(lines, &forms);
    let found = match below(lines, &forms, &paragraphs, first) {
        Some(document) => vec![document],
        None => around(lines, &forms, &paragraphs, first),
    };
    found.into_iter().filter(|document| !document.is_empty()).collect()
}

/// The document below a paragraph that points to it.
fn below(
    lines: &[Line<'_>],
    forms: &[Form],
    paragraphs: &[Range<usize>],
    first: usize,
) -> Option<Range<usize>> {
    let before = paragraphs.iter().take_while(|paragraph| paragraph.end <= first);
    let (paragraph, pointer) =
        before.collect::<Vec<_>>().into_iter().rev().find_map(|paragraph| {
            Some((paragraph, pointer(&said(lines, paragraph), Direction::Down)?))
        })?;
    let mut between = forms.get(paragraph.end..first)?.iter().filter(|form| **form != Form::Blank);
    // A paragraph points to the lines right below it. A rule opens front matter.
    let is_other = |form: &Form| matches!(form, Form::Fenced | Form::Pasted | Form::Inset);
    let is_next = match between.next() {
        None | Some(Form::Rule) => true,
        Some(next) => !is_other(next) && !between.any(is_other),
    };
    let ends = |paragraph: &&Range<usize>| {
        let rest = lines.get(paragraph.end..).unwrap_or_default();
        paragraph.start > first && rest.iter().all(Line::is_blank)
    };
    let request = paragraphs.last().filter(ends).and_then(|last| {
        let orders = || Outline::of(lines, forms, first..last.start).orders;
        let adds = || is_apart(lines, last) && asks(&said(lines, last), orders() == 0);
        behind(lines, last).or_else(|| adds().then(|| last.clone()))
    });
    let end = request.map_or(lines.len(), |request| request.start);
    if !is_next || !Outline::of(lines, forms, first..end).is_below(pointer) {
        return None;
    }
    // "Summarise this:" announces all that follows.
    let last = lines.get(paragraph.end - 1)?;
    let start = if last.text.trim_end().ends_with(':') { paragraph.end } else { first };
    Some(start..end)
}

/// The documents above and below a paragraph that points back.
fn around(
    lines: &[Line<'_>],
    forms: &[Form],
    paragraphs: &[Range<usize>],
    first: usize,
) -> Vec<Range<usize>> {
    let title = forms.iter().find(|form| matches!(form, Form::Heading(_))).copied();
    let mut later = paragraphs.iter().filter(|paragraph| paragraph.start > first);
    let request = later.find_map(|paragraph| {
        let mut rest = forms.get(paragraph.end..).unwrap_or_default().iter();
        // Of the headings, only that of another document follows a request.
        let next = rest.find(|form| !matches!(form, Form::Blank | Form::Rule)).copied();
        if next.is_none() || next == title { behind(lines, paragraph) } else { None }
    });
    let Some(request) = request else { return Vec::new() };
    let pointer = pointer(&said(lines, &request), Direction::Up).unwrap_or(Pointer::Plan);
    if !Outline::of(lines, forms, first..request.start).is_above(pointer) {
        return Vec::new();
    }
    let before = lines.get(..first).unwrap_or_default().iter().filter(|line| !line.is_blank());
    let start = if before.map(|line| line.text).all(tells) { 0 } else { first };
    vec![start..request.start, request.end..lines.len()]
}

/// Whether a line tells something, so that it can be the beginning of a document.
fn tells(text: &str) -> bool {
    const WORDS: [&str; 9] = ["a", "an", "at", "each", "every", "in", "it", "most", "the"];
    let words = words_of(text);
    let first = words.first().map_or("", String::as_str);
    WORDS.contains(&first) && Words::of(text).are_a_sentence() && !is_addressed(text)
}

/// The request in a paragraph behind a document: the paragraph, or its last line.
fn behind(lines: &[Line<'_>], paragraph: &Range<usize>) -> Option<Range<usize>> {
    let last = paragraph.end - 1..paragraph.end;
    let begins = |range: &Range<usize>| is_request(&said(lines, range), Direction::Up);
    let holds = |range: &Range<usize>| has_request(&said(lines, range));
    let begun = [paragraph.clone(), last.clone()].into_iter().find(begins);
    begun.or_else(|| [last, paragraph.clone()].into_iter().find(holds))
}

/// The number of the first line of a heading, if it can begin a document.
fn first_heading(forms: &[Form]) -> Option<usize> {
    let first = forms.iter().position(|form| matches!(form, Form::Heading(_)))?;
    // A title may have a rule above it.
    let ruled = first.checked_sub(1).filter(|above| forms.get(*above) == Some(&Form::Rule));
    Some(ruled.unwrap_or(first))
}

/// Longest paragraph that is read as a request, in lines and in bytes.
const LONGEST_REQUEST: (usize, usize) = (8, 2_000);

/// Runs of lines of text that are short enough for a request.
fn paragraphs(lines: &[Line<'_>], forms: &[Form]) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut at = 0;
    for group in forms.chunk_by(|one, next| *one == Form::Text && *next == Form::Text) {
        let range = at..at + group.len();
        at = range.end;
        let (most, longest) = LONGEST_REQUEST;
        let bytes = |range: &Range<usize>| {
            let inside = lines.get(range.clone()).unwrap_or_default();
            inside.iter().map(|line| line.text.len()).sum::<usize>()
        };
        if group.first() == Some(&Form::Text) && group.len() <= most && bytes(&range) <= longest {
            found.push(range);
        }
    }
    found
}

/// Whether a paragraph has an empty line above it.
fn is_apart(lines: &[Line<'_>], paragraph: &Range<usize>) -> bool {
    paragraph.start.checked_sub(1).and_then(|above| lines.get(above)).is_none_or(Line::is_blank)
}
