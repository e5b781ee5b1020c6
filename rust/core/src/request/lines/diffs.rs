//! Signs of a changed file.

use super::code::code;
use super::{ENOUGH, HALF, Sign, first_token, found, starts_with_any};
use crate::request::Kind;
use crate::request::shape::Reader;

const MARKS: [&str; 8] = [
    "diff --git ",
    "diff -u",
    "diff -r",
    "Index: ",
    "<<<<<<< ",
    ">>>>>>> ",
    "\\ No newline at",
    "||||||| ",
];

pub(super) fn diff(text: &str, indent: usize) -> Option<Sign> {
    if starts_with_any(text, &MARKS) {
        return found(Kind::Diff, ENOUGH);
    }
    let hunk = || Reader::new(text).text("@@ -")?.digits(1, 9);
    if hunk().is_some() || text == "=======" {
        return found(Kind::Diff, if text == "=======" { HALF } else { ENOUGH });
    }
    let file = |mark| {
        let path = text.strip_prefix(mark)?;
        let (first, _) = first_token(path);
        (first.contains(['/', '.']) || first == "a" || first == "b").then_some(())
    };
    if file("--- ").or_else(|| file("+++ ")).is_some() {
        return found(Kind::Diff, ENOUGH);
    }
    let index =
        || Reader::new(text).text("index ")?.run(7, 40, |c| c.is_ascii_hexdigit())?.text("..");
    if index().is_some()
        || starts_with_any(text, &["new file mode 1", "deleted file mode 1", "similarity index "])
    {
        return found(Kind::Diff, ENOUGH);
    }
    // A changed line; a dash before a space begins the item of a list.
    let changed = text.strip_prefix('+').or_else(|| text.strip_prefix('-'))?;
    let rest = changed.trim_start();
    let is_code = || code(rest, changed.len() - rest.len()).is_some_and(|sign| sign.weight >= HALF);
    let is_deep = changed.starts_with("    ") || changed.starts_with('\t');
    let is_item = changed.starts_with(' ') && !is_deep;
    (indent == 0 && !rest.is_empty() && !is_item && (is_deep || is_code()))
        .then_some(Sign { kind: Kind::Diff, weight: HALF })
}
