//! Signs of exceptions, stacks and dumps.

use super::{ENOUGH, HALF, LONGEST_WORD, Sign, first_token, found};
use crate::request::Kind;
use crate::request::shape::{Reader, Words, is_word};

/// Exceptions, frames of a stack, and dumps.
pub(super) fn trace(text: &str, indent: usize) -> Option<Sign> {
    frame(text, indent).or_else(|| exception(text)).or_else(|| dump(text, indent))
}

fn frame(text: &str, indent: usize) -> Option<Sign> {
    let kind = Kind::Traceback;
    if text.starts_with("File \"") && text.contains("line ") {
        return found(kind, ENOUGH);
    }
    if let Some(place) = text.strip_prefix("at ") {
        // Java, JavaScript and .NET: a name, and its place in brackets or behind `in`.
        let (name, rest) = first_token(place);
        let called = place.contains('(') && (place.ends_with(')') || place.contains(") in "));
        let named = name.contains(['.', '/', ':', '<']) || rest.starts_with('(') || name == "async";
        let placed = place.ends_with(|c: char| c.is_ascii_digit()) && name.contains([':', '/']);
        let line = place.contains(":line ");
        if (called && named) || placed || line {
            return found(kind, ENOUGH);
        }
    }
    // Ruby: `from app.rb:7:in 'run'`, and its first line.
    let place = text.strip_prefix("from ").unwrap_or(text);
    if first_token(place).0.contains(':') && (place.contains(":in `") || place.contains(":in '")) {
        return found(kind, ENOUGH);
    }
    if text.starts_with("thread '") && text.contains("panicked at") {
        return found(kind, ENOUGH);
    }
    let more = || {
        Reader::new(text)
            .text("...")
            .or_else(|| Reader::new(text).text("…"))?
            .spaces()
            .digits(1, 6)?
            .text(" more")
    };
    if more().is_some_and(Reader::is_at_end) {
        return found(kind, ENOUGH);
    }
    // PHP and debuggers: `#0 /path(12): run()`, `#1  0x00007f in main ()`.
    let numbered = Reader::new(text).text("#").and_then(|at| at.digits(1, 4));
    if numbered.is_some_and(|at| at.rest.starts_with(' ') && at.rest.contains(['(', '{', '/'])) {
        return found(kind, ENOUGH);
    }
    // Rust: `   4: core::ops::function`, in front of its place.
    let counted = Reader::new(text).digits(1, 4).and_then(|at| at.text(": "));
    if indent > 0 && counted.is_some_and(|at| at.rest.contains("::") || at.rest.contains("0x")) {
        return found(kind, ENOUGH);
    }
    // Elixir: `(app 0.1.0) lib/app.ex:3: App.run/1`.
    if text.starts_with('(') && text.contains("ex:") && text.contains(") lib/") {
        return found(kind, ENOUGH);
    }
    // A line of carets under the place of an error.
    let carets = text.bytes().filter(|byte| *byte == b'^').count();
    let only = text.chars().all(|c| matches!(c, '^' | '~' | '|' | ' ' | '-'));
    (only && (carets >= 3 || (carets > 0 && indent > 0))).then_some(Sign { kind, weight: HALF })
}

/// `TypeError: x is not a function`, `java.io.IOException: closed`, `KeyError`.
fn exception(text: &str) -> Option<Sign> {
    let (first, _) = first_token(text);
    let (name, message) =
        text.split_once(':').map_or((first, None), |(name, message)| (name, Some(message)));
    let name =
        name.split_once(" [").or_else(|| name.split_once('(')).map_or(name, |(name, _)| name);
    let last = name.rsplit(['.', ':', '\\']).next().unwrap_or(name);
    let is_name = name.chars().all(|c| is_word(c) || matches!(c, '.' | ':' | '$' | '\\'))
        && last.starts_with(char::is_uppercase)
        && (message.is_some() || name == text);
    let is_error = ["Error", "Exception", "Fault", "Panic", "Interrupt", "Exit"]
        .iter()
        .any(|end| last.len() > end.len() && last.ends_with(end));
    if !is_name || !is_error {
        return None;
    }
    let weight =
        if message.is_some_and(|message| message.starts_with(' ')) { ENOUGH } else { HALF };
    found(Kind::Traceback, weight)
}

const REGISTERS: [&str; 13] =
    ["rax", "rbx", "rcx", "rsp", "rip", "eax", "ebx", "esp", "eip", "RIP:", "RAX:", "pc", "lr"];

/// Bytes in hexadecimal, registers, threads of a dump, encoded data.
fn dump(text: &str, _indent: usize) -> Option<Sign> {
    let (first, rest) = first_token(text);
    let hex = |token: &str, least: usize| {
        token.len() >= least && token.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    let address = first.trim_end_matches(':').trim_start_matches("0x");
    let groups = rest.split_whitespace().take(4);
    if hex(address, 4)
        && groups.clone().count() == 4
        && groups.clone().all(|group| hex(group, 2) && group.len() <= 8)
    {
        return found(Kind::Dump, ENOUGH);
    }
    if REGISTERS.contains(&first.trim_end_matches('='))
        && (rest.contains("0x") || rest.contains("0000"))
    {
        return found(Kind::Dump, ENOUGH);
    }
    // A thread of Java, and places in memory.
    if text.starts_with('"') && text.contains("\" #") && text.contains("prio=") {
        return found(Kind::Dump, ENOUGH);
    }
    let places = text.split_whitespace().filter(|token| {
        let token = token.trim_matches(['(', ')', '[', ']', ',', '<', '>', '@', '*']);
        let offset = token.split_once("+0x").map(|(_, offset)| offset);
        let number = token.strip_prefix("0x").or(offset);
        number.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_hexdigit()))
    });
    let places = places.count();
    if places > 0 && !Words::of(text).are_a_sentence() {
        let enough = places > 1 || text.contains("+0x");
        return found(Kind::Dump, if enough { ENOUGH } else { HALF });
    }
    let is_data = |token: &str| token.bytes().all(|byte| byte.is_ascii_graphic());
    (rest.is_empty() && first.len() >= 40 && is_data(first) && !first.contains("://")).then(|| {
        let weight = if first.len() >= LONGEST_WORD { ENOUGH } else { HALF };
        Sign { kind: Kind::Dump, weight }
    })
}
