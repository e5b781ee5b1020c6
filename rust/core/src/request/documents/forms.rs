//! Headings, lists and sentences of a document.

use std::ops::Range;

use super::pointers::{Pointer, is_order};
use crate::lists::lists;
use crate::request::Kind;
use crate::request::fences::{Line, fence};
use crate::request::lines::{ENOUGH, Sign};
use crate::request::shape::{Reader, Words};

/// The form of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Blank,
    /// A heading of a level from 1; a line in bold type is of the lowest level.
    Heading(usize),
    /// The line below a title, or between two parts.
    Rule,
    Item,
    /// A line of a fenced block.
    Fenced,
    /// A line that cannot be a sentence, such as one of code.
    Pasted,
    /// A row of a table, a quotation or an address, as documents have them.
    Inset,
    Text,
}

/// The level of a line in bold type.
const BOLD: usize = 7;

/// The forms of the lines.
pub(super) fn forms(lines: &[Line<'_>], signs: &[Option<Sign>]) -> Vec<Form> {
    let stars = |line: &Line<'_>| marked(line.text, '*').is_some_and(|level| level > 1);
    let is_org = lines.iter().any(stars);
    let mut opened: Option<&str> = None;
    let mut forms: Vec<Form> = Vec::with_capacity(lines.len());
    for (number, line) in lines.iter().enumerate() {
        let text = line.text.trim();
        let mark = fence(line.text);
        let form = if let Some(open) = opened {
            if mark.is_some_and(|(mark, named)| !named && mark.starts_with(open)) {
                opened = None;
            }
            Form::Fenced
        } else if let Some((mark, _)) = mark {
            opened = Some(mark);
            Form::Fenced
        } else if line.is_blank() {
            Form::Blank
        } else if is_rule(text) {
            Form::Rule
        } else if let Some(level) = level_of(line.text, is_org) {
            Form::Heading(level)
        } else if is_item(text) {
            Form::Item
        } else {
            let sign = signs.get(number).copied().flatten().filter(|sign| sign.weight >= ENOUGH);
            match sign.map(|sign| sign.kind) {
                None => Form::Text,
                Some(Kind::Table | Kind::Quotation | Kind::Url) => Form::Inset,
                Some(_) => Form::Pasted,
            }
        };
        forms.push(form);
    }
    underlined(lines, &mut forms);
    // A comment is not a heading of the code below it.
    for number in 1..forms.len() {
        if forms.get(number) == Some(&Form::Pasted)
            && let Some(above @ Form::Heading(1)) = forms.get_mut(number - 1)
        {
            *above = Form::Pasted;
        }
    }
    forms
}

/// Makes headings of the lines with a rule below them.
fn underlined(lines: &[Line<'_>], forms: &mut [Form]) {
    let text = |number: usize| lines.get(number).map_or("", |line| line.text.trim());
    let mut known: Vec<(char, bool)> = Vec::new();
    for number in 1..forms.len() {
        let (title, rule) = (text(number - 1), text(number));
        let above = number.checked_sub(2).and_then(|above| forms.get(above)).copied();
        // The docstring of a function has underlined titles, too.
        let indented = lines.get(number).is_none_or(|line| line.text.starts_with([' ', '\t']));
        let is_title = forms.get(number) == Some(&Form::Rule)
            && !indented
            && forms.get(number - 1) == Some(&Form::Text)
            && matches!(above, None | Some(Form::Blank | Form::Rule))
            && rule.chars().count() * 2 >= title.chars().count()
            && title.len() <= LONGEST_TITLE;
        if !is_title {
            continue;
        }
        let mark = (rule.chars().next().unwrap_or('='), above == Some(Form::Rule));
        // The first mark in a text underlines its title.
        let level = known.iter().position(|one| *one == mark).unwrap_or(known.len());
        if level == known.len() {
            known.push(mark);
        }
        if let Some(form) = forms.get_mut(number - 1) {
            *form = Form::Heading(level + 1);
        }
    }
}

/// In bytes.
const LONGEST_TITLE: usize = 120;

/// Whether a line consists of one mark, at least three times.
fn is_rule(text: &str) -> bool {
    let mark = text.chars().next().filter(|c| matches!(c, '=' | '-' | '~' | '^' | '*' | '_' | '+'));
    text.len() >= 3 && mark.is_some_and(|mark| text.chars().all(|c| c == mark))
}

/// The level of a heading: `## Costs`, `== Costs ==`, `h2. Costs`, `**Costs**`, in Org `** Costs`.
fn level_of(line: &str, is_org: bool) -> Option<usize> {
    let text = line.trim_end();
    let jira = || {
        let level = Reader::new(text).text("h")?.digits(1, 1)?.text(". ")?;
        (!level.is_at_end()).then(|| text.get(1..2)?.parse().ok()).flatten()
    };
    let bold = || {
        let inner = text.strip_prefix("**")?.strip_suffix("**")?;
        let is_one = !inner.contains("**") && !inner.is_empty() && !inner.starts_with(' ');
        is_one.then_some(BOLD)
    };
    marked(text, '#')
        .or_else(|| marked(text, '='))
        .or_else(|| marked(text, '*').filter(|_| is_org))
        .or_else(jira)
        .or_else(bold)
}

/// The number of marks before a title; none if the line is not a heading.
fn marked(line: &str, mark: char) -> Option<usize> {
    let title = line.trim_start_matches(mark);
    let level = line.len() - title.len();
    let named = title.starts_with(' ') && title.contains(char::is_alphanumeric);
    ((1..=6).contains(&level) && named).then_some(level)
}

/// Whether a line is an item of a list, with a mark or a number.
fn is_item(text: &str) -> bool {
    without_mark(text).len() < text.len()
}

/// A line without the mark or the number of an item.
fn without_mark(text: &str) -> &str {
    let start = Reader::new(text.trim_start());
    let marked = || start.one_of(&['-', '*', '•', '+'])?.text(" ");
    let numbered = || start.digits(1, 3)?.one_of(&['.', ')'])?.text(" ");
    marked().or_else(numbered).map_or(text, |after| after.spaces().rest)
}

/// Words in lower case, with the punctuation after them as words of their own.
pub(super) fn words_of(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    for token in text.split_whitespace() {
        let word = token.trim_matches(|c: char| !c.is_alphanumeric());
        if !word.is_empty() {
            words.push(word.to_lowercase().replace('’', "'"));
        }
        let last = token.trim_end_matches(['"', ')', '”', '*', '_']).chars().last();
        words.extend(
            last.filter(|c| matches!(c, '.' | ',' | ':' | ';' | '!' | '?')).map(String::from),
        );
    }
    words
}

/// The words of a paragraph.
pub(super) fn said(lines: &[Line<'_>], paragraph: &Range<usize>) -> Vec<String> {
    let inside = lines.get(paragraph.clone()).unwrap_or_default();
    inside.iter().flat_map(|line| words_of(line.text)).collect()
}

/// The first heading of a document.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Title {
    #[default]
    Plain,
    /// A line in bold type, which may as well be a remark.
    Bold,
    /// People begin prompts with it.
    Prompt,
}

/// Counts of the lines of a document.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Outline {
    headings: usize,
    /// The first heading.
    title: Title,
    /// Whether a heading is below the first one in level.
    is_nested: bool,
    sentences: usize,
    items: usize,
    /// Lines of text, items included.
    content: usize,
    /// Lines that tell a reader to do something.
    pub(super) orders: usize,
    /// Lines that cannot be sentences.
    pasted: usize,
    /// Whether a heading is hardly found outside of prompts.
    is_prompt: bool,
}

impl Outline {
    pub(super) fn of(lines: &[Line<'_>], forms: &[Form], within: Range<usize>) -> Self {
        let mut outline = Self::default();
        let mut first = None;
        let of = lines.iter().zip(forms).take(within.end).skip(within.start);
        for (line, form) in of {
            let text = without_mark(line.text.trim());
            match form {
                Form::Heading(level) => {
                    let title = line.text.trim_matches(|c: char| !c.is_alphanumeric());
                    let title = title.to_lowercase();
                    outline.is_prompt |= PROMPT_HEADINGS.contains(&title.as_str());
                    if outline.headings == 0 {
                        outline.title = match *level {
                            _ if begins_as_prompt(&title) => Title::Prompt,
                            BOLD => Title::Bold,
                            _ => Title::Plain,
                        };
                    }
                    outline.headings += 1;
                    outline.is_nested |= first.is_some_and(|first| *level > first);
                    first = first.or(Some(*level));
                }
                Form::Text | Form::Item => {
                    outline.content += 1;
                    outline.items += usize::from(*form == Form::Item);
                    outline.orders += usize::from(is_order(text));
                    let ends = text.ends_with(['.', '!', '?']) || text.contains(". ");
                    outline.sentences += usize::from(ends && Words::of(text).are_a_sentence());
                }
                Form::Pasted => outline.pasted += 1,
                Form::Blank | Form::Rule | Form::Fenced | Form::Inset => {}
            }
        }
        outline
    }

    /// Whether these lines have the headings and the length of a document.
    fn is_document(&self) -> bool {
        let Self { headings, sentences, items, content, pasted, .. } = *self;
        let is_long = headings >= 2 || sentences >= 2 || items >= 3;
        headings >= 1 && content >= 1 && is_long && pasted <= content + headings
    }

    /// Whether a pointer above these lines points to them.
    pub(super) fn is_below(&self, pointer: Pointer) -> bool {
        let tells = self.orders * 4 <= self.content
            && (self.sentences >= 2 || (self.sentences == 1 && self.is_nested));
        self.is_document()
            && match pointer {
                Pointer::Plan => false,
                Pointer::Vague => tells && !self.is_prompt && self.title == Title::Plain,
                Pointer::Clear => {
                    let is_plan = self.is_prompt || self.title == Title::Prompt;
                    (tells || !is_plan) && self.orders * 2 <= self.content
                }
                Pointer::Named => true,
            }
    }

    /// Whether a pointer below these lines points to them, which could be the request themselves.
    pub(super) fn is_above(&self, pointer: Pointer) -> bool {
        self.is_document()
            && !self.is_prompt
            && self.title != Title::Prompt
            && match pointer {
                Pointer::Plan | Pointer::Vague => false,
                Pointer::Clear => self.orders * 8 <= self.content,
                Pointer::Named => self.orders * 2 <= self.content,
            }
    }
}

lists!("request_words.txt": PROMPT_HEADINGS, PROMPT_BEGINNINGS);

/// Whether a heading is one with which people begin prompts.
fn begins_as_prompt(title: &str) -> bool {
    let first = title.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
    PROMPT_BEGINNINGS.contains(&first) || is_order(title)
}
