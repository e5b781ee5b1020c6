//! Documents in Markdown and similar markup, pasted below, above or around a request.
//!
//! A heading proves nothing, because people structure their own prompts with headings. A document
//! was pasted if a sentence outside of it points to it: "turn this into slides", "review the notes
//! below", "translate the above".

mod forms;
mod pointers;

use std::ops::Range;

use super::blocks::Line;
use super::lines::Sign;
use forms::{Form, Outline, forms, words_of};
use pointers::{Direction, Pointer, asks, is_request, pointer};

/// The places of pasted documents, in their order and without overlap.
pub(super) fn documents(lines: &[Line<'_>], signs: &[Option<Sign>]) -> Vec<Range<usize>> {
    let forms = forms(lines, signs);
    let Some(first) = first_heading(&forms) else { return Vec::new() };
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
    let (paragraph, pointer) = before.collect::<Vec<_>>().into_iter().rev().find_map(|paragraph| {
        Some((paragraph, pointer(&said(lines, paragraph), Direction::Down)?))
    })?;
    let mut between = forms.get(paragraph.end..first)?.iter().filter(|form| **form != Form::Blank);
    // What stands right below the paragraph is what it points to. A rule opens front matter.
    let is_other = |form: &Form| matches!(form, Form::Fenced | Form::Pasted);
    let is_next = match between.next() {
        Some(Form::Rule) => true,
        Some(next) => !is_other(next) && !between.any(is_other),
        None => true,
    };
    let outline = Outline::of(lines, forms, first..lines.len());
    if !is_next || !outline.is_below(pointer) {
        return None;
    }
    // "Summarise this:" announces all that follows.
    let last = lines.get(paragraph.end - 1)?;
    let start = if last.text.trim_end().ends_with(':') { paragraph.end } else { first };
    let end = paragraphs.last().filter(|last| last.start > first && is_apart(lines, last));
    let end = end.filter(|last| {
        let ends = lines.get(last.end..).is_none_or(|rest| rest.iter().all(Line::is_blank));
        let said = said(lines, last);
        ends && (is_request(&said) || asks(&said, outline.orders == 0))
    });
    Some(start..end.map_or(lines.len(), |last| last.start))
}

/// The documents above and below a paragraph that points back.
fn around(
    lines: &[Line<'_>],
    forms: &[Form],
    paragraphs: &[Range<usize>],
    first: usize,
) -> Vec<Range<usize>> {
    let title = forms.get(first).copied();
    let request = paragraphs.iter().filter(|paragraph| paragraph.start > first).find(|paragraph| {
        let mut rest = forms.get(paragraph.end..).unwrap_or_default().iter();
        // Of the headings, only that of another document follows a request.
        let next = rest.find(|form| !matches!(form, Form::Blank | Form::Rule)).copied();
        (next.is_none() || next == title)
            && is_apart(lines, paragraph)
            && is_request(&said(lines, paragraph))
    });
    let Some(request) = request else { return Vec::new() };
    let pointer = pointer(&said(lines, request), Direction::Up).unwrap_or(Pointer::Plan);
    if !Outline::of(lines, forms, first..request.start).is_above(pointer) {
        return Vec::new();
    }
    vec![first..request.start, request.end..lines.len()]
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

/// The words of a paragraph.
fn said(lines: &[Line<'_>], paragraph: &Range<usize>) -> Vec<String> {
    let inside = lines.get(paragraph.clone()).unwrap_or_default();
    inside.iter().flat_map(|line| words_of(line.text)).collect()
}
