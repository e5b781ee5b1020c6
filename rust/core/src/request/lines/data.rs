//! Signs of statements, markup, objects and settings.

use super::{ENOUGH, HALF, NEIGHBOUR, Sign, THIRD, found, starts_with_any};
use crate::request::Kind;
use crate::request::shape::{Reader, Words, is_word, without_strings};

const CLAUSES: [&str; 19] = [
    "FROM ",
    "WHERE ",
    "JOIN ",
    "LEFT JOIN ",
    "INNER JOIN ",
    "RIGHT JOIN ",
    "FULL JOIN ",
    "CROSS JOIN ",
    "GROUP BY ",
    "ORDER BY ",
    "HAVING ",
    "LIMIT ",
    "VALUES",
    "UNION",
    "RETURNING ",
    "SET ",
    "ON CONFLICT",
    "PRIMARY KEY",
    "CONSTRAINT ",
];

const STATEMENTS: [&str; 22] = [
    "SELECT ",
    "INSERT INTO ",
    "UPDATE ",
    "DELETE FROM ",
    "CREATE TABLE ",
    "CREATE VIEW ",
    "CREATE INDEX ",
    "CREATE UNIQUE INDEX ",
    "CREATE OR REPLACE ",
    "CREATE DATABASE ",
    "CREATE TYPE ",
    "CREATE FUNCTION ",
    "CREATE TRIGGER ",
    "ALTER TABLE ",
    "DROP TABLE ",
    "DROP INDEX ",
    "TRUNCATE ",
    "GRANT ",
    "EXPLAIN ",
    "WITH ",
    "MERGE INTO ",
    "BEGIN;",
];

fn ends_as_prose(text: &str) -> bool {
    text.ends_with(['.', '?', '!', ':'])
}

/// A statement in capitals, or text that ends like a statement.
pub(super) fn sql(text: &str, _indent: usize) -> Option<Sign> {
    let kind = Kind::Sql;
    let words = Words::of(&without_strings(text));
    let sentence = words.are_a_sentence();
    let start = text.chars().take(24).collect::<String>().to_uppercase();
    let states = starts_with_any(&start, &STATEMENTS);
    let capital = starts_with_any(text, &STATEMENTS);
    let made = ["CREATE ", "WITH ", "INSERT "].iter().any(|opening| start.starts_with(opening));
    let lower = text.to_lowercase();
    let ends = text.ends_with(';') || (made && text.ends_with('('));
    let selects = text.contains([';', '*', '=']) && lower.contains(" from ");
    let sets = start.starts_with("UPDATE ") && lower.contains(" set ") && text.contains('=');
    let columns = text.starts_with("SELECT ") && text.contains(['(', ',']) && !ends_as_prose(text);
    let whole = ends || selects || sets || columns || (capital && made && text.contains('('));
    // "UPDATE the README" begins with a capital word and is a sentence.
    let written = capital && !sentence && !start.starts_with("UPDATE ");
    if states && (whole || written) && !text.contains("==") {
        return found(kind, ENOUGH);
    }
    let clause = starts_with_any(&start, &CLAUSES) && !lower.contains(" import ");
    if clause && starts_with_any(text, &CLAUSES) {
        return found(kind, HALF);
    }
    // A statement in lower case also needs evidence around it.
    let small = text.starts_with(|c: char| c.is_ascii_lowercase());
    let signs = !sentence && text.contains([',', '.', '(', '=', '*', '_']);
    let short = clause && words.all <= 4 && words.common <= 1;
    ((states || clause) && small && (signs || short)).then_some(Sign { kind, weight: HALF })
}

pub(super) fn markup(text: &str, _indent: usize) -> Option<Sign> {
    let kind = Kind::Markup;
    let rest = text.strip_prefix('<')?;
    if starts_with_any(rest, &["!--", "!DOCTYPE", "!doctype", "?xml", "?php", "![CDATA["]) {
        return found(kind, ENOUGH);
    }
    let name = rest.strip_prefix('/').unwrap_or(rest);
    let tag = Reader::new(name).run(1, 64, |c| is_word(c) || matches!(c, ':' | '-' | '.'));
    if !name.starts_with(|c: char| c.is_ascii_alphabetic()) {
        return (text == "<>" || text.starts_with("</>")).then_some(Sign { kind, weight: HALF });
    }
    let after = tag?.rest;
    if after.is_empty() {
        return found(kind, HALF); // a tag that goes on in the next line
    }
    let closes = after.starts_with(['>', '/', ' ']) && text.contains('>');
    // `<file> is empty` begins with a placeholder.
    let placeholder = after.starts_with('>')
        && !text.ends_with('>')
        && !text.contains("</")
        && Words::of(after.trim_start_matches('>')).are_a_sentence();
    if closes && !placeholder {
        return found(kind, ENOUGH);
    }
    after.starts_with(' ').then_some(Sign { kind, weight: HALF })
}

pub(super) fn json(text: &str, _indent: usize) -> Option<Sign> {
    let kind = Kind::Json;
    let value = |rest: &str| {
        let rest = rest.trim_start();
        rest.starts_with(['"', '{', '[', '-'])
            || rest.starts_with(|c: char| c.is_ascii_digit())
            || starts_with_any(rest, &["true", "false", "null"])
    };
    let member = |text: &str| {
        let (key, rest) = text.strip_prefix('"')?.split_once('"')?;
        let rest = rest.trim_start().strip_prefix(':')?;
        (key.len() <= 200 && value(rest)).then_some(())
    };
    if member(text).is_some() {
        return found(kind, ENOUGH);
    }
    let opened = text.strip_prefix('{').or_else(|| text.strip_prefix('['));
    if let Some(inner) = opened {
        let inner = inner.trim_start_matches(['{', '[', ' ']);
        let list =
            inner.starts_with(['"', '{', '-']) || inner.starts_with(|c: char| c.is_ascii_digit());
        let is_json = member(inner).is_some()
            || (list
                && text.starts_with('[')
                && text.ends_with([']', ',', '['])
                && text.contains(','))
            || inner.starts_with('\'') && inner.contains("':");
        if is_json {
            return found(kind, ENOUGH);
        }
    }
    // `"deck", "slides", "invoice"`
    let strings = without_strings(text);
    if text.matches('"').count() >= 6 && strings.trim_matches(['"', ',', ' ']).is_empty() {
        return found(kind, ENOUGH);
    }
    if text.chars().all(|c| matches!(c, '{' | '}' | '[' | ']' | '(' | ')' | ',' | ';')) {
        return found(Kind::Code, HALF);
    }
    if text.starts_with('"')
        && (text.ends_with("\",") || text.ends_with('"'))
        && text.matches('"').count() == 2
        && text.len() >= 2
    {
        return text.ends_with(',').then_some(Sign { kind, weight: HALF });
    }
    let number = text.trim_end_matches(',');
    (text.ends_with(',') && number.parse::<f64>().is_ok()).then_some(Sign { kind, weight: THIRD })
}

const DOCKER: [&str; 13] = [
    "FROM ",
    "RUN ",
    "COPY ",
    "WORKDIR ",
    "ENV ",
    "ENTRYPOINT ",
    "CMD ",
    "EXPOSE ",
    "ARG ",
    "ADD ",
    "USER ",
    "VOLUME ",
    "HEALTHCHECK ",
];

/// A line of settings: `retries: 3`, `retries = 3`, `RETRIES=3`, `[server]`, `FROM alpine`.
pub(super) fn config(text: &str, indent: usize) -> Option<Sign> {
    let kind = Kind::Config;
    if starts_with_any(text, &DOCKER) && !Words::of(text).are_a_sentence() {
        return found(kind, HALF);
    }
    if let Some(weight) = entry(text) {
        return found(kind, weight);
    }
    let item = text.strip_prefix("- ").unwrap_or(text);
    let listed = item.len() < text.len();
    let name = |key: &str| {
        !key.is_empty()
            && key.len() <= 60
            && key
                .chars()
                .all(|c| is_word(c) || matches!(c, '.' | '-' | '/' | '@' | '*' | '"' | '$'))
            && !key.starts_with('-')
    };
    if let Some((key, value)) = item.split_once('=') {
        let key = key.trim_end();
        if name(key) && !value.starts_with(['=', '>']) && !value.trim().is_empty() {
            let capital =
                key.chars().all(|c| c.is_ascii_uppercase() || c == '_' || c.is_ascii_digit());
            let words = Words::of(&without_strings(value));
            // An expression is code; a sentence is prose.
            let plain = !value.contains(['(', ';', '{']);
            if plain && (words.all <= 2 || !words.are_a_sentence()) {
                // `spring.jpa.show-sql=true`
                let property = key.contains('.') && !item.contains(' ');
                let strong = property || (capital && key.len() > 1);
                return found(kind, if strong { HALF } else { THIRD });
            }
        }
    }
    if let Some(section) = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        let is_name = section
            .trim_matches(['[', ']'])
            .chars()
            .all(|c| is_word(c) || matches!(c, '.' | '-' | '"' | ' ' | ':' | '/'));
        return (is_name && !section.is_empty()).then_some(Sign { kind, weight: THIRD });
    }
    if matches!(text, "---" | "...") {
        return found(kind, NEIGHBOUR);
    }
    let (key, value) = item.split_once(':')?;
    // `DTSTART;TZID=Europe/Vienna:20260304T100000`
    let field = key.split(';').next().unwrap_or_default();
    let is_field = field.len() >= 3
        && field.bytes().all(|letter| letter.is_ascii_uppercase() || letter == b'-')
        && value.starts_with(char::is_alphanumeric);
    if is_field {
        return found(kind, THIRD);
    }
    if !name(key)
        || value.starts_with([':', '/', '\\'])
        || !(value.is_empty() || value.starts_with(' '))
    {
        return None;
    }
    // A column of keys and a column of values.
    if value.starts_with("   ") && !value.trim().is_empty() {
        return found(kind, HALF);
    }
    let value = value.trim();
    let labelled = key.starts_with(char::is_uppercase) && !key.contains(['_', '.']) && indent == 0;
    if value.is_empty() {
        // The lines below it show whether it has members.
        return (!labelled).then_some(Sign { kind, weight: NEIGHBOUR });
    }
    let words = Words::of(value);
    let is_value = !words.are_a_sentence() && words.plain <= 5 && !value.ends_with(['?', '!']);
    let deep = indent > 0 || listed || key.contains(['_', '.', '-']) || !labelled;
    (is_value && deep).then_some(Sign { kind, weight: THIRD })
}

/// An entry of a file that a program reads: `*/5 * * * * export`, `10.0.0.5 mail`, `stripe>=9.0`.
fn entry(text: &str) -> Option<u8> {
    let mut fields = text.split_whitespace();
    let first = fields.next()?;
    let is_time = |field: &str| {
        field
            .bytes()
            .all(|letter| letter.is_ascii_digit() || matches!(letter, b'*' | b'/' | b',' | b'-'))
    };
    let times = text.split_whitespace().take_while(|field| is_time(field)).count();
    if times == 5 && text.contains('*') && fields.clone().count() >= 5 {
        return Some(ENOUGH);
    }
    let is_address = first.split('.').count() == 4
        && first.split('.').all(|part| part.parse::<u8>().is_ok())
        && fields.next().is_some_and(|name| name.starts_with(char::is_alphanumeric));
    let limits = ["==", ">=", "<=", "~="];
    let is_pinned = text == first
        && limits.iter().any(|limit| {
            first.split_once(limit).is_some_and(|(name, version)| {
                name.starts_with(char::is_alphabetic)
                    && version.starts_with(|letter: char| letter.is_ascii_digit())
            })
        });
    let is_id = text == first
        && text.len() >= 32
        && text.bytes().all(|letter| letter.is_ascii_hexdigit() || letter == b'-');
    (is_address && !Words::of(text).are_a_sentence() || is_pinned || is_id).then_some(HALF)
}

/// Whether a line is a key whose value must follow on the lines below it.
pub(in super::super) fn is_bare_key(line: &str) -> bool {
    let text = line.trim();
    text.ends_with(':') && config(text, 1).is_some_and(|sign| sign.weight == NEIGHBOUR)
}
