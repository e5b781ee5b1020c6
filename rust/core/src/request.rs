//! Splits a prompt into the request and the pasted material.
//!
//! The request decides what a prompt needs; a log or a listing around it must not change that. The
//! parser recognises material by its form: fences, log lines, stack traces, code, data, mail and
//! quotations. It runs in linear time.

mod blocks;
mod documents;
mod fences;
mod inline;
mod lines;
mod shape;

use std::ops::Range;

use crate::json::{codes, value};
use crate::lists::lists;
use crate::stage1::Span;
use crate::stop_words::is_stop_word;
use crate::terms::number_of;
use blocks::{Block, blocks};
use fences::{Line, lines_of};
use inline::inline;
use shape::Words;

codes! {
    /// The kind of a piece of material.
    pub enum Kind {
        /// A program, or a part of one.
        Code = "code",
        /// Messages of a program, such as a log or the output of a compiler.
        Log = "log",
        /// An exception with the calls that led to it.
        Traceback = "traceback",
        /// A diff, or a merge conflict.
        Diff = "diff",
        /// JSON.
        Json = "json",
        /// XML or HTML.
        Markup = "markup",
        /// Values separated by commas, semicolons or tabs.
        Csv = "csv",
        /// A statement for a database.
        Sql = "sql",
        /// A table for people.
        Table = "table",
        /// Memory, registers, threads or encoded data.
        Dump = "dump",
        /// Settings, such as YAML, TOML or a Dockerfile.
        Config = "config",
        /// A mail with its fields, greeting or closing.
        Mail = "mail",
        /// A text by another author: marked as a quotation, or as long as one.
        Quotation = "quotation",
        /// Commands at a prompt, with their output.
        Terminal = "terminal",
        /// An address.
        Url = "url",
        /// A document with headings, such as notes or a README.
        Document = "document",
    }
}

value! {
    /// A piece of material.
    #[derive(Copy, PartialEq, Eq)]
    #[serde(deny_unknown_fields)]
    pub struct Material {
        /// The kind of material.
        pub kind: Kind,
        /// Its place in the prompt, in characters.
        pub span: Span,
    }
}

value! {
    /// A prompt in its parts.
    #[derive(Default, PartialEq, Eq)]
    #[serde(deny_unknown_fields)]
    pub struct Split {
        /// The request; the whole prompt if nothing was pasted.
        pub request: String,
        /// The places of the request in the prompt, in characters. Together with the material they
        /// cover the prompt without overlap.
        pub spans: Vec<Span>,
        /// The pasted material, in the order of the prompt.
        pub material: Vec<Material>,
        /// Whether the request names something to do or to know; "fix this" does not.
        pub names_something: bool,
    }
}

/// Splits a prompt into the request and the pasted material.
pub fn split(prompt: &str) -> Split {
    let lines = lines_of(prompt);
    let mut blocks = blocks(&lines);
    // A prompt of one line is always a request.
    let is_single = !prompt.trim().contains('\n');
    if !blocks.is_empty() && !has_words(prompt, &lines, &blocks) {
        release(&lines, &mut blocks);
        if is_single {
            blocks.clear();
        }
    }
    let mut pasted: Vec<(Kind, Range<usize>)> = Vec::new();
    let place = |number: usize| lines.get(number).map_or(prompt.len(), |line| line.start);
    let mut before = 0;
    for Block { kind, lines, .. } in &blocks {
        let (start, end) = (place(lines.start), place(lines.end));
        inline(prompt, before..start, &mut pasted);
        pasted.push((*kind, start..end));
        before = end;
    }
    inline(prompt, before..prompt.len(), &mut pasted);
    let found = assembled(prompt, &pasted);
    if is_single && !found.request.contains(char::is_alphanumeric) {
        return assembled(prompt, &[]);
    }
    found
}

/// Whether a word stands outside of all blocks.
fn has_words(prompt: &str, lines: &[Line<'_>], blocks: &[Block]) -> bool {
    let mut outside = true;
    let mut left = blocks.iter().peekable();
    lines.iter().enumerate().any(|(number, line)| {
        while left.next_if(|block| block.lines.end <= number).is_some() {}
        outside = left.peek().is_none_or(|block| number < block.lines.start);
        let text = prompt.get(line.start..line.end).unwrap_or_default();
        outside && text.contains(char::is_alphanumeric)
    })
}

/// Takes doubtful sentences out of the blocks, because no other line can be the request.
///
/// Sentences at the end of a block are preferred to sentences within one.
fn release(lines: &[Line<'_>], blocks: &mut Vec<Block>) {
    let says = |range: &Range<usize>, least: fn(Words) -> bool| {
        let mut inside = lines.get(range.clone()).unwrap_or_default().iter();
        inside.any(|line| least(Words::of(line.text)))
    };
    let all: Vec<(usize, Range<usize>)> = (0..)
        .zip(blocks.iter())
        .flat_map(|(number, block)| block.doubtful.iter().map(move |range| (number, range.clone())))
        .collect();
    let ends = |(number, range): &(usize, Range<usize>)| {
        blocks.get(*number).is_some_and(|block| block.lines.end == range.end)
    };
    let last = |least: fn(Words) -> bool| {
        all.iter().rev().find(|sentence| ends(sentence) && says(&sentence.1, least))
    };
    let only = || {
        all.first().filter(|sentence| {
            all.len() == 1 && says(&sentence.1, |words| words.are_prose() && words.plain >= 3)
        })
    };
    let found = last(Words::are_a_sentence)
        .or_else(only)
        .or_else(|| last(|words| words.are_prose() && words.plain >= 2));
    let Some((number, range)) = found.cloned() else { return };
    let block = blocks.remove(number);
    let parts = [block.lines.start..range.start, range.end..block.lines.end];
    for lines in parts.into_iter().rev().filter(|lines| !lines.is_empty()) {
        blocks.insert(number, Block { kind: block.kind, lines, doubtful: Vec::new() });
    }
}

/// The parts of a prompt, from the places of its material in their order, in bytes.
fn assembled(prompt: &str, pasted: &[(Kind, Range<usize>)]) -> Split {
    let mut split = Split::default();
    let mut characters = Characters { prompt, byte: 0, count: 0 };
    let mut before = 0;
    for (kind, range) in pasted
        .iter()
        .map(|(kind, range)| (Some(*kind), range.clone()))
        .chain([(None, prompt.len()..prompt.len())])
    {
        let piece = prompt.get(before..range.start).unwrap_or_default();
        let span = Span { start: characters.until(before), end: characters.until(range.start) };
        let says = piece.trim();
        if says.is_empty() {
            // White space between two pieces of material belongs to the first.
            match split.material.last_mut() {
                Some(last) => last.span.end = span.end,
                None if span.start < span.end => split.spans.push(span),
                None => {}
            }
        } else {
            split.spans.push(span);
            if !split.request.is_empty() {
                let apart = prompt.get(..before).is_some_and(|text| text.ends_with('\n'))
                    || piece.starts_with(['\n', '\r']);
                split.request.push(if apart { '\n' } else { ' ' });
            }
            split.request.push_str(says);
        }
        if let Some(kind) = kind {
            let span = Span { start: span.end, end: characters.until(range.end) };
            split.material.push(Material { kind, span });
        }
        before = range.end;
    }
    if split.material.is_empty() {
        prompt.clone_into(&mut split.request);
    }
    split.names_something = names_something(&split.request);
    split
}

/// Counts the characters up to places that only grow.
struct Characters<'a> {
    prompt: &'a str,
    byte: usize,
    count: u32,
}

impl Characters<'_> {
    fn until(&mut self, byte: usize) -> u32 {
        let between = self.prompt.get(self.byte..byte).unwrap_or_default();
        self.count += number_of(between.chars().count());
        self.byte = byte;
        self.count
    }
}

/// Whether a request contains a word that is neither a function word nor common to all requests.
pub fn names_something(request: &str) -> bool {
    let apostrophe = |c: char| matches!(c, '\'' | '’');
    request.split(|c: char| !c.is_alphanumeric() && !apostrophe(c)).any(|word| {
        let word = word.trim_matches(apostrophe).to_lowercase().replace('’', "'");
        let letters = word.contains(char::is_alphabetic);
        letters && !is_stop_word(&word) && GENERAL.binary_search(&word.as_str()).is_err()
    })
}

lists!("request_words.txt": GENERAL);

#[cfg(test)]
mod tests;
