//! Signs of a program.

use super::{ENOUGH, HALF, NEIGHBOUR, Sign, first_token, found, starts_with_any};
use crate::lists::lists;
use crate::request::Kind;
use crate::request::shape::{Words, is_word, without_strings};
use crate::stop_words::is_stop_word;

const OPERATORS: [&str; 14] =
    ["=>", "->", "::", "&&", "||", "==", "!=", "+=", "()", "];", "?.", "<<", "({", "${"];

pub(super) fn code(text: &str, indent: usize) -> Option<Sign> {
    let kind = Kind::Code;
    if let Some(weight) = comment(text) {
        return found(kind, weight);
    }
    let bare = without_strings(text);
    let command = bare.ends_with("; do") || bare.ends_with("; then");
    if command && !begins_as_sentence(text) {
        return found(kind, ENOUGH);
    }
    let bare = [" //", " # ", " /*"]
        .iter()
        .fold(bare.as_str(), |bare, mark| bare.split_once(mark).map_or(bare, |(before, _)| before));
    let bare = bare.trim();
    let words = Words::of(bare);
    let prose = words.are_prose() && words.all > 1;
    let sentence = prose && words.all >= 5 && words.common >= 2;
    if begins_as_sentence(text) || announces(text) {
        return None;
    }
    if bare.ends_with(';') && !sentence {
        return found(kind, ENOUGH);
    }
    if bare.ends_with('{') && bare.len() > 1 && !sentence {
        return found(kind, ENOUGH);
    }
    if bare.contains(" :: ") && !sentence {
        return found(kind, ENOUGH);
    }
    // `.slide { color: red; }`
    if bare.contains(" { ") && bare.ends_with('}') && !sentence {
        return found(kind, ENOUGH);
    }
    if let Some(weight) = list_form(text, words) {
        return found(kind, weight);
    }
    if let Some(weight) = keyword(bare, words, indent) {
        return found(kind, weight);
    }
    if let Some(weight) = declaration(bare, words).or_else(|| bound(bare)) {
        return found(kind, weight);
    }
    if let Some(weight) = assignment(bare).or_else(|| call(bare)) {
        return found(kind, weight);
    }
    let is_latex = bare.strip_prefix('\\').is_some_and(|command| {
        command.contains('{') || (command.len() > 2 && command.chars().all(char::is_alphabetic))
    });
    if is_latex || (bare.ends_with("\\\\") && bare.contains(" & ")) {
        return found(kind, ENOUGH);
    }
    if prose {
        return None;
    }
    let operators = OPERATORS.iter().filter(|operator| bare.contains(**operator)).count();
    match operators {
        0 => {}
        1 => return found(kind, HALF),
        _ => return found(kind, ENOUGH),
    }
    let symbols = bare
        .chars()
        .filter(|c| {
            matches!(c, '(' | ')' | '=' | '[' | ']' | '"' | '\'' | '<' | '>' | '{' | '}' | ';')
        })
        .count();
    let goes_on = bare.ends_with([',', '(', '[', '\\']) && symbols > 0;
    let flags =
        text.split_whitespace().filter(|token| token.len() > 1 && token.starts_with('-')).count();
    if flags >= 2 && words.common == 0 && text.starts_with(|c: char| c.is_ascii_lowercase()) {
        return found(Kind::Terminal, ENOUGH);
    }
    (goes_on || (indent >= 2 && symbols >= 2)).then_some(Sign { kind, weight: HALF })
}

/// Whether the first words of a line are those of a sentence.
fn begins_as_sentence(text: &str) -> bool {
    let end = text.match_indices(' ').nth(BEGINNING).map_or(text.len(), |(at, _)| at);
    let beginning = Words::of(text.get(..end).unwrap_or_default());
    beginning.all > BEGINNING && beginning.plain == beginning.all && beginning.common >= 2
}

/// Whether there are only words before the colon of a line.
fn announces(text: &str) -> bool {
    text.split_once(": ").is_some_and(|(before, _)| {
        let words = Words::of(before);
        // `struct Card: View {`
        let declares =
            words.common == 0 && text.ends_with('{') && DECLARES.contains(&first_token(before).0);
        words.plain >= 2 && words.plain == words.all && !declares
    })
}

/// Keywords that declare something with a type or a parent.
const DECLARES: [&str; 12] = [
    "actor",
    "class",
    "enum",
    "extension",
    "final",
    "interface",
    "let",
    "object",
    "protocol",
    "struct",
    "val",
    "var",
];

/// Words that distinguish a sentence from code.
const BEGINNING: usize = 4;

const DIRECTIVES: [&str; 10] = [
    "#include", "#define ", "#ifdef", "#ifndef", "#endif", "#pragma", "#import", "#!/", "#[derive",
    "#region",
];

fn comment(text: &str) -> Option<u8> {
    if starts_with_any(text, &DIRECTIVES) {
        return Some(ENOUGH);
    }
    if starts_with_any(text, &["// ", "/// ", "/*", "*/", "//!"]) {
        return Some(HALF);
    }
    (starts_with_any(text, &["# ", "-- ", "; ", "* @", "#["])
        || matches!(text, "*" | "end" | "done" | "fi" | "." | "\"\"\"" | "'''" | "#" | "//"))
    .then_some(NEIGHBOUR)
}

fn keyword(bare: &str, words: Words, indent: usize) -> Option<u8> {
    let (first, rest) = first_token(bare);
    let last = bare.chars().last().unwrap_or(' ');
    let prose = words.are_prose();
    let named = |rest: &str| rest.starts_with(|c: char| is_word(c) || c == '$');
    match first {
        "def" | "fn" | "func" | "fun" | "function" | "sub" | "defp" | "defmodule" | "proc" => {
            (named(rest)
                && (rest.contains('(') || matches!(last, '{' | ':') || rest.ends_with(" do")))
            .then_some(ENOUGH)
        }
        "async" if starts_with_any(rest, &["def ", "function", "fn ", "("]) => Some(ENOUGH),
        "pub"
            if starts_with_any(
                rest,
                &[
                    "fn ", "struct ", "enum ", "mod ", "use ", "const ", "trait ", "static ",
                    "(crate)",
                ],
            ) =>
        {
            Some(ENOUGH)
        }
        "class" | "module"
            if words.all == 2 && rest.starts_with(char::is_uppercase) && words.common == 0 =>
        {
            Some(HALF)
        }
        "set" if rest.starts_with('-') => Some(ENOUGH),
        "class" | "struct" | "interface" | "enum" | "trait" | "impl" | "object" | "record" => {
            let shape =
                matches!(last, ':' | '{') || rest.contains('(') || rest.contains(" extends ");
            (shape && rest.starts_with(|c: char| c.is_uppercase() || c == '<') && words.all <= 8)
                .then_some(ENOUGH)
        }
        "import" | "from" => import(bare, words),
        "const" | "let" | "var" | "val" | "auto" | "final"
            if rest.contains('=') && !rest.contains("==") =>
        {
            Some(ENOUGH)
        }
        "public" | "private" | "protected" | "internal" | "static" | "override" | "abstract"
        | "export" | "declare" | "extern"
            if rest.contains(['(', '=', '{', ';']) && !prose
                || starts_with_any(
                    rest,
                    &["default ", "const ", "function ", "class ", "interface ", "type "],
                ) =>
        {
            Some(ENOUGH)
        }
        "type" if rest.contains(" = ") => Some(ENOUGH),
        "if" | "for" | "while" | "switch" | "catch" | "foreach" | "when" | "elif" | "else"
        | "}" | "try" | "except" | "finally" | "with" | "unless" | "elsif" | "match" => {
            branch(bare, words)
        }
        "return" | "raise" | "throw" | "yield" | "await" | "assert" | "del" | "print"
        | "println!" | "echo" | "export" | "self" | "this" | "new" | "puts" | "pass" | "break"
        | "continue" => {
            if rest.is_empty() {
                (indent > 0 && words.all == 1).then_some(HALF)
            } else if !prose || (matches!(first, "echo") && rest.starts_with(['"', '\''])) {
                Some(ENOUGH)
            } else if indent > 0 {
                Some(HALF)
            } else {
                None
            }
        }
        _ => {
            let decorator = first.strip_prefix('@').is_some_and(|name| {
                rest.is_empty()
                    && name.starts_with(char::is_alphabetic)
                    && name
                        .chars()
                        .all(|c| is_word(c) || matches!(c, '.' | '(' | ')' | '"' | '/' | ',' | '='))
            });
            decorator.then(|| if first.contains('(') { ENOUGH } else { HALF })
        }
    }
}

lists!("line_words.txt": MODIFIERS);

/// `data class Slide(val title: String)`, `private static Task<Page> LoadAsync(int id)`.
fn declaration(bare: &str, words: Words) -> Option<u8> {
    let mut rest = bare;
    loop {
        let (first, after) = first_token(rest);
        if !MODIFIERS.contains(&first) {
            break;
        }
        rest = after;
    }
    let (keyword, named) = first_token(rest);
    let is_modified = rest.len() < bare.len();
    match keyword {
        "class" | "struct" | "interface" | "enum" | "record" | "object" | "trait" | "protocol"
        | "actor" | "extension" => {
            let name = named.split(|one: char| !is_word(one)).next().unwrap_or_default();
            let after = named.get(name.len()..).unwrap_or_default();
            // A base class: `Invoice < Record`, `Deck : IDeck`, `Deck extends Base`.
            let derives = ["<", "(", " < ", " : ", " extends ", " implements ", " where "];
            let shaped = starts_with_any(after, &derives);
            let is_name = name.starts_with(char::is_uppercase);
            (is_name && (is_modified || shaped) && (after.is_empty() || shaped))
                .then_some(if shaped { ENOUGH } else { HALF })
        }
        "def" | "fn" | "func" | "fun" | "function" | "sub" if is_modified => {
            named.contains('(').then_some(ENOUGH)
        }
        // Ruby's method without parameters.
        "def" => {
            let name = named.trim_end_matches(['!', '?', '=']);
            (!name.is_empty() && name.chars().all(is_word)).then_some(ENOUGH)
        }
        _ if is_modified && words.common <= 2 => {
            let open = rest.find('(')?;
            let name = rest.get(..open)?;
            let inner = rest.get(open + 1..)?.strip_suffix(')')?;
            // "static analysis(es)" is a word.
            let is_list = inner.is_empty() || inner.contains(' ');
            (name.contains(' ') && name.ends_with(is_word) && is_list).then_some(ENOUGH)
        }
        _ => None,
    }
}

/// Words of the head of a definition: `view model =`.
const LONGEST_HEAD: usize = 5;

/// `(defn merge [files]`, `(reduce conj [] files))`.
fn list_form(text: &str, words: Words) -> Option<u8> {
    let inner = text.trim_start_matches(['\'', '(']);
    let opens = text.matches('(').count();
    let is_form = text.starts_with(['(', '\'']) && inner.starts_with(char::is_lowercase);
    if !is_form || words.common > 1 {
        return None;
    }
    if text.starts_with("(def") {
        return Some(ENOUGH);
    }
    (opens >= 2 || opens != text.matches(')').count()).then_some(HALF)
}

/// `pages <- load files`, `merge files = do`, `belongs_to :customer`.
fn bound(bare: &str) -> Option<u8> {
    let (first, rest) = first_token(bare);
    let is_name = first.chars().all(|one| is_word(one) || one == '.');
    let (second, _) = first_token(rest);
    if is_name && (second == "<-" || bare.ends_with(" = do")) {
        return Some(ENOUGH);
    }
    if bare.ends_with(" =") && is_name && bare.split_whitespace().count() <= LONGEST_HEAD {
        return Some(HALF);
    }
    let symbol = second.strip_prefix(':').is_some_and(|name| name.starts_with(char::is_alphabetic));
    (is_name && symbol).then_some(HALF)
}

/// `if rows:`, `for (let i = 0; i < n; i++) {`, `} else {`.
fn branch(bare: &str, words: Words) -> Option<u8> {
    let (first, rest) = first_token(bare);
    let last = bare.chars().last().unwrap_or(' ');
    let bracketed = rest.starts_with('(') && matches!(last, '{' | ')');
    let block = matches!(last, ':' | '{');
    let own =
        ["if", "for", "with", "not", "in", "is", "and", "or", "as", "while", "else", "when", "he"];
    let asks = bare.split_whitespace().filter(|token| {
        let token = token.trim_end_matches(':').to_lowercase();
        !own.contains(&token.as_str()) && is_stop_word(&token)
    });
    let tests = block && rest.contains(['(', '=', '[', '<', '>', '.', '_']);
    if bracketed || first == "}" || (tests && asks.clone().count() == 0) {
        Some(ENOUGH)
    } else if block && asks.count() == 0 && words.all <= 6 {
        Some(HALF)
    } else {
        None
    }
}

/// `import numpy as np`, `from os import path`.
fn import(bare: &str, words: Words) -> Option<u8> {
    let (first, rest) = first_token(bare);
    let imports = first == "from" && rest.split_whitespace().nth(1) == Some("import");
    let quoted =
        rest.contains(['"', '\'', '{', '*']) || rest.contains("::") || rest.contains(" as ");
    let dotted = rest.contains('.') && !rest.ends_with('.') && !rest.contains(' ');
    if imports || (words.all <= 8 && words.common <= 1 && (quoted || dotted) && first == "import") {
        Some(ENOUGH)
    } else if words.all == 2
        && words.common <= 1
        && rest.chars().all(|c| is_word(c) || matches!(c, '.' | ','))
        && first == "import"
    {
        Some(HALF)
    } else {
        None
    }
}

/// `total = sum(prices)`, `self.rows[key] += 1`, `int count = 0`.
fn assignment(bare: &str) -> Option<u8> {
    let at = bare.find('=')?;
    let left = bare.get(..at)?;
    let right = bare.get(at + 1..)?;
    if left.ends_with(['!', '<', '>', '=']) || right.starts_with(['=', '>', '~']) {
        return None;
    }
    let left = left.trim_end_matches([':', '+', '-', '*', '/', '|', '&', '?', '%']).trim();
    let right = right.trim();
    let names: Vec<&str> = left.split_whitespace().collect();
    let is_target = |name: &str| {
        name.starts_with(|c: char| c.is_alphabetic() || matches!(c, '_' | '$' | '*' | '@'))
            && name.chars().all(|c| {
                is_word(c)
                    || matches!(
                        c,
                        '.' | '['
                            | ']'
                            | '"'
                            | '\''
                            | '$'
                            | '*'
                            | '&'
                            | '<'
                            | '>'
                            | ':'
                            | ','
                            | '@'
                            | '-'
                            | '?'
                    )
            })
    };
    if names.is_empty()
        || names.len() > 4
        || right.is_empty()
        || !names.iter().all(|name| is_target(name))
    {
        return None;
    }
    let words = Words::of(right);
    let value = words.all <= 1 || !words.are_prose();
    match (names.len(), value) {
        (1, true) => Some(ENOUGH),
        (_, true) if words.common == 0 && Words::of(left).common == 0 => Some(HALF),
        _ => None,
    }
}

/// `print(total)`, `app.get("/", (req, res) =>`, `.filter(row => row.ok)`.
fn call(bare: &str) -> Option<u8> {
    let open = bare.find('(')?;
    let name = bare.get(..open)?;
    let chained = name.starts_with('.');
    let is_name = !name.is_empty()
        && name
            .chars()
            .all(|c| is_word(c) || matches!(c, '.' | ':' | '$' | '>' | '-' | '!' | '<' | '?'))
        && name.ends_with(|c: char| is_word(c) || matches!(c, '!' | '>'));
    let ends = bare.ends_with([')', ';', ',', '{', '(', ':', '['])
        || bare.ends_with("=>")
        || bare.ends_with(")?");
    if !(is_name && ends) {
        return None;
    }
    // "Monday(?)" and "attachment(s)" are words.
    let inner = bare.get(open..).unwrap_or_default();
    (!matches!(inner, "(s)" | "(?)" | "(s):" | "(es)" | "(s),"))
        .then_some(if chained || inner.len() > 2 || bare.contains('.') { ENOUGH } else { HALF })
}
