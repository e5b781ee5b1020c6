//! The first characters of lines that known programs print.

use std::sync::LazyLock;

use super::{ENOUGH, HALF, NEIGHBOUR, Sign};
use crate::lists::{data, sections};
use crate::request::Kind;

/// The evidence and the patterns of the sections of the file, whose names are a kind and a weight.
static OPENINGS: LazyLock<Vec<(Sign, Vec<&str>)>> = LazyLock::new(|| {
    let sections = sections(data!("line_openings.txt")).into_iter();
    let read = |(name, patterns): (&str, Vec<&'static str>)| {
        let (kind, weight) = name.split_once(' ').expect("a kind and a weight");
        let kind = *Kind::ALL.iter().find(|one| one.code() == kind).expect("the code of a kind");
        let weight = match weight {
            "enough" => ENOUGH,
            "half" => HALF,
            _ => NEIGHBOUR,
        };
        (Sign { kind, weight }, patterns)
    };
    sections.map(read).collect()
});

/// The evidence of a line by its first characters.
pub(super) fn opening(text: &str, _indent: usize) -> Option<Sign> {
    let fits = |patterns: &[&str]| patterns.iter().any(|pattern| begins(text, pattern));
    OPENINGS.iter().find(|(_, patterns)| fits(patterns)).map(|(sign, _)| *sign)
}

/// Whether a text begins with a pattern.
///
/// `№` stands for a number, `♯` for the character #, `~` for four hexadecimal digits or more, `@` for
/// a name, `%` for a path, `␣` for white space, `·` for a blank, and `^` for the end of the text.
fn begins(text: &str, pattern: &str) -> bool {
    let mut rest = text;
    for expected in pattern.chars() {
        let is_part: fn(char) -> bool = match expected {
            '№' => |c| c.is_ascii_digit(),
            '~' => |c| c.is_ascii_hexdigit(),
            '%' => |c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '/' | '\\'),
            '@' => |c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.'),
            '␣' => char::is_whitespace,
            '^' => return rest.is_empty(),
            _ => {
                let literal = match expected {
                    '♯' => '#',
                    '·' => ' ',
                    literal => literal,
                };
                let Some(after) = rest.strip_prefix(literal) else { return false };
                rest = after;
                continue;
            }
        };
        let after = rest.trim_start_matches(is_part);
        if rest.len() - after.len() < if expected == '~' { 4 } else { 1 } {
            return false;
        }
        rest = after;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_the_start_of_a_line() {
        for (text, pattern) in [
            ("Step 3/7 : RUN", "Step №/№"),
            ("error[E0382]: moved", "error[@]:·"),
            ("[   12.345] usb", "[␣№.№]·"),
            ("0x00005555 in main", "0x~ in "),
            ("Killed", "Killed^"),
        ] {
            assert!(begins(text, pattern), "{text}");
        }
        for (text, pattern) in [
            ("Step three", "Step №"),
            ("0x12 in main", "0x~ in "),
            ("Killed it", "Killed^"),
            ("", "№"),
        ] {
            assert!(!begins(text, pattern), "{text}");
        }
    }
}
