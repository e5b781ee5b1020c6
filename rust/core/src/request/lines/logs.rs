//! Signs of logs, compilers and terminals.

use super::{ENOUGH, HALF, NEIGHBOUR, Sign, THIRD, first_token, found, whole};
use crate::request::Kind;
use crate::request::shape::{Reader, Words, after_time, is_word};

/// Control sequences of a terminal.
pub(super) fn coloured(text: &str, _indent: usize) -> Option<Sign> {
    whole(Kind::Log, text.contains("\u{1b}["))
}

const METHODS: [&str; 7] = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"];

pub(super) fn log(text: &str, _indent: usize) -> Option<Sign> {
    let kind = Kind::Log;
    if let Some((rest, seconds)) = after_time(text) {
        let (first, _) = first_token(rest);
        let enough = (seconds && !rest.is_empty()) || is_level(first);
        return found(kind, if enough { ENOUGH } else { HALF });
    }
    let (first, rest) = first_token(text);
    if let Some(weight) = by_level(text, first, rest) {
        return found(kind, weight);
    }
    if let Some(weight) = by_place(first, rest) {
        return found(kind, weight);
    }
    if METHODS.contains(&first) && rest.starts_with('/') {
        return found(kind, if Words::of(rest).common == 0 { ENOUGH } else { NEIGHBOUR });
    }
    // The access log of a web server, and the plan of a query.
    let access = text.contains("] \"") && first.starts_with(|c: char| c.is_ascii_hexdigit());
    if access || text.contains("(cost=") {
        return found(kind, ENOUGH);
    }
    let fields = text.split_whitespace().filter(|token| {
        token.split_once('=').is_some_and(|(key, value)| {
            !key.is_empty()
                && !value.is_empty()
                && key.chars().all(|c| is_word(c) || matches!(c, '.' | '-'))
        })
    });
    if fields.take(3).count() == 3
        && !text.contains(['<', '('])
        && !Words::of(text).are_a_sentence()
    {
        return found(kind, ENOUGH);
    }
    if let Some(weight) = by_name(text, first) {
        return found(kind, weight);
    }
    // `==== 3 failed in 0.2s ====` and `____ test_total ____`
    let ruled = |rule: &str| {
        text.starts_with(rule) && text.ends_with(rule) && text.contains(char::is_alphanumeric)
    };
    if ruled("===") || ruled("____") {
        return found(kind, ENOUGH);
    }
    // A rule between two parts.
    let mut rule = text.chars();
    let mark = rule.next().filter(|c| matches!(c, '=' | '-' | '_' | '.' | '~' | '*'));
    if text.len() >= 4 && mark.is_some_and(|mark| rule.all(|c| c == mark)) {
        return found(kind, NEIGHBOUR);
    }
    text.starts_with(['✓', '✔', '✗', '✘', '✖', '×', '●']).then_some(Sign { kind, weight: HALF })
}

/// `4f2a91c Add export`, `4f2a91c0 (Ada 2026-03-03 ...`, `exports_total{kind="deck"} 42`.
fn by_name(text: &str, first: &str) -> Option<u8> {
    let is_hash = (7..=40).contains(&first.len())
        && first.bytes().all(|one| one.is_ascii_digit() || matches!(one, b'a'..=b'f'))
        && first.contains(|one: char| one.is_ascii_digit())
        && first.contains(|one: char| one.is_ascii_lowercase())
        && first.len() < text.len();
    if is_hash {
        return Some(if text.contains(" (") && text.contains(')') { ENOUGH } else { HALF });
    }
    let (name, value) = text.split_once('{')?;
    let (labels, value) = value.rsplit_once("} ")?;
    let is_metric =
        name.chars().all(is_word) && labels.contains("=\"") && value.trim().parse::<f64>().is_ok();
    is_metric.then_some(ENOUGH)
}

const LEVELS: [&str; 12] = [
    "TRACE", "DEBUG", "INFO", "NOTICE", "WARN", "WARNING", "ERROR", "ERR", "SEVERE", "FATAL",
    "CRITICAL", "CRIT",
];

/// Whether a token is a level of logging.
pub(in super::super) fn is_level(token: &str) -> bool {
    let token = token.trim_start_matches('[').trim_end_matches([':', ']', ',']);
    LEVELS.contains(&token)
}

/// `[info] ready`, `ERROR:root:failed`, `WARN  [main] slow`.
fn by_level(text: &str, first: &str, rest: &str) -> Option<u8> {
    let bracketed = || {
        let inner = first.strip_prefix('[')?.trim_end_matches([':', ' ']).strip_suffix(']')?;
        is_level(&inner.to_uppercase()).then_some(ENOUGH)
    };
    let joined = || {
        let (level, _) = text.split_once(':')?;
        (is_level(level) && level == level.trim()).then_some(ENOUGH)
    };
    let alone = || {
        (is_level(first) && !rest.is_empty()).then(|| {
            if Words::of(rest).are_prose() && !rest.starts_with('[') { HALF } else { ENOUGH }
        })
    };
    bracketed().or_else(joined).or_else(alone)
}

/// `src/main.rs:10:5: error`, `tests/test_x.py:12: AssertionError`, `app.ts(3,7): error`.
fn by_place(first: &str, rest: &str) -> Option<u8> {
    let dot = first.find('.')?;
    let digits = first.get(dot..)?.find([':', '('])? + dot;
    let extension = first.get(dot + 1..digits)?;
    let path = first.get(..digits)?;
    let number = Reader::new(first.get(digits + 1..)?).digits(1, 6)?;
    let is_path =
        path.chars().all(|c| is_word(c) || matches!(c, '.' | '/' | '\\' | '-' | '@' | '+' | '~'));
    let is_place = is_path && !extension.is_empty() && !path.ends_with('.');
    let closes = number.is_at_end() || number.rest.starts_with([':', ')', ',']);
    if !(is_place && closes && path.contains(char::is_alphabetic)) {
        return None;
    }
    let says_more = !rest.is_empty() && !Words::of(rest).are_a_sentence();
    Some(if says_more || number.rest.len() > 1 { ENOUGH } else { HALF })
}

/// Whether a line calls a command of PowerShell: `Get-ChildItem -Path docs | Sort-Object`.
fn is_cmdlet(text: &str) -> bool {
    let (first, rest) = first_token(text);
    let is_part = |part: &str| {
        part.starts_with(char::is_uppercase) && part.chars().all(char::is_alphanumeric)
    };
    let named = first.split_once('-').is_some_and(|(verb, noun)| is_part(verb) && is_part(noun));
    named && (rest.starts_with('-') || rest.contains(" -") || rest.contains(" | "))
}

/// A command that a person typed at a prompt.
pub(super) fn terminal(text: &str, _indent: usize) -> Option<Sign> {
    let kind = Kind::Terminal;
    let (first, rest) = first_token(text);
    if matches!(
        first,
        "$" | "❯"
            | "➜"
            | "λ"
            | "»"
            | ">>>"
            | "mysql>"
            | "sqlite>"
            | "irb>"
            | "(gdb)"
            | "(lldb)"
            | "(Pdb)"
    ) {
        return (!rest.is_empty()).then_some(Sign { kind, weight: ENOUGH });
    }
    if is_cmdlet(text) {
        return found(kind, ENOUGH);
    }
    if first == "%" || (first == "..." && !rest.is_empty() && !Words::of(rest).are_prose()) {
        return found(kind, HALF);
    }
    let cell = |name| Reader::new(text).text(name)?.text("[")?.digits(1, 6)?.text("]:");
    if cell("In ").or_else(|| cell("Out")).is_some() {
        return found(kind, ENOUGH);
    }
    // `PS C:\work> dir` and `C:\work>dir`
    let path = text.strip_prefix("PS ").unwrap_or(text);
    let drive =
        Reader::new(path).run(1, 1, |c| c.is_ascii_uppercase()).and_then(|at| at.text(":\\"));
    if drive.is_some_and(|at| at.rest.split(' ').next().is_some_and(|path| path.contains('>'))) {
        return found(kind, ENOUGH);
    }
    // `anna@web1:~/app$ ls` and `(venv) anna@web1 app % ls`
    let prompt = if first.starts_with('(') { rest } else { text };
    let user = Reader::new(prompt)
        .run(1, 32, |c| is_word(c) || matches!(c, '-' | '.'))
        .and_then(|at| at.text("@"));
    let typed = user.is_some_and(|at| {
        let mut parts = at.rest.splitn(4, ' ');
        parts.by_ref().take(3).any(|part| part.ends_with(['$', '#', '%']))
    });
    whole(kind, typed)
}

/// Numbers, paths and signs, as programs print them, in a line that is not a sentence.
pub(super) fn machine(text: &str) -> Option<Sign> {
    // The mark of a heading is not odd: `## Step 1`.
    let title = text.trim_start_matches('#').trim_start();
    let text = if title.starts_with(char::is_alphabetic) { title } else { text };
    let tokens = text.split_whitespace().count();
    let odd = text.split_whitespace().filter(|token| {
        let inner =
            token.trim_matches(['.', ',', ';', ':', '!', '?', '(', ')', '"', '\'', '*', '-']);
        inner.contains(|c: char| c.is_ascii_digit() || "/\\_=<>{}[]@#|%$^~+:".contains(c))
    });
    // A list of files is a part of a request.
    let is_one = tokens >= 3 && odd.count() * 2 >= tokens && !Words::of(text).are_a_sentence();
    is_one.then_some(Sign { kind: Kind::Log, weight: THIRD })
}
