//! Finds evidence that a single line was pasted.

mod code;
mod data;
mod diffs;
mod logs;
mod openings;
mod texts;
mod traces;

use super::Kind;
use code::code;
use data::{config, json, markup, sql};
use diffs::diff;
use logs::{coloured, log, machine, terminal};
use openings::opening;
use texts::{address, mail, table};
use traces::trace;

pub(super) use data::is_bare_key;
pub(super) use logs::is_level;
pub(super) use texts::begins_mail;

/// Evidence that a line was pasted. The lines of a block need [`ENOUGH`] together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sign {
    pub(super) kind: Kind,
    /// 0 for a line that belongs to the lines next to it.
    pub(super) weight: u8,
}

/// The evidence that makes a block: one unmistakable line, or several weaker lines.
pub(super) const ENOUGH: u8 = 6;
/// The evidence of a line of which two make a block.
pub(super) const HALF: u8 = 3;
const THIRD: u8 = 2;
const NEIGHBOUR: u8 = 0;

/// A longer word is data: an encoded file, a key, minified code.
pub(super) const LONGEST_WORD: usize = 120;

/// The evidence of a line; none for a sentence.
pub(super) fn sign(line: &str) -> Option<Sign> {
    let indent = line.len() - line.trim_start().len();
    let text = line.trim();
    if text.is_empty() {
        return None;
    }
    let readers: [fn(&str, usize) -> Option<Sign>; 11] =
        [coloured, opening, diff, trace, log, terminal, table, mail, sql, markup, json];
    readers
        .iter()
        .find_map(|read| read(text, indent))
        .or_else(|| config(text, indent))
        .or_else(|| code(text, indent))
        .or_else(|| address(text))
        .or_else(|| machine(text))
}

#[expect(clippy::unnecessary_wraps, reason = "what every reader returns")]
fn found(kind: Kind, weight: u8) -> Option<Sign> {
    Some(Sign { kind, weight })
}

fn whole(kind: Kind, is_one: bool) -> Option<Sign> {
    is_one.then_some(Sign { kind, weight: ENOUGH })
}

fn starts_with_any(text: &str, starts: &[&str]) -> bool {
    starts.iter().any(|start| text.starts_with(start))
}

/// The first token and the rest of the line.
fn first_token(text: &str) -> (&str, &str) {
    text.split_once(char::is_whitespace)
        .map_or((text, ""), |(first, rest)| (first, rest.trim_start()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind_of(line: &str) -> Option<(Kind, u8)> {
        sign(line).map(|sign| (sign.kind, sign.weight))
    }

    #[test]
    #[expect(clippy::too_many_lines, reason = "a table of cases")]
    fn lines_that_can_be_nothing_else_are_whole() {
        let cases: &[(Kind, &[&str])] = &[
            (
                Kind::Diff,
                &[
                    "diff --git a/app.py b/app.py",
                    "index 3fa1b2c..99d01ee 100644",
                    "--- a/src/app.py",
                    "+++ b/src/app.py",
                    "@@ -10,6 +10,7 @@ def run():",
                    "<<<<<<< HEAD",
                ],
            ),
            (
                Kind::Traceback,
                &[
                    "Traceback (most recent call last):",
                    "  File \"app/jobs.py\", line 12, in run",
                    "KeyError: 'rate'",
                    "requests.exceptions.ConnectionError: refused",
                    "\tat com.example.Orders.load(Orders.java:41)",
                    "Caused by: java.io.IOException: closed",
                    "    at Object.<anonymous> (/srv/app/index.js:3:9)",
                    "    at async run (node:internal/main:22:3)",
                    "goroutine 1 [running]:",
                    "panic: runtime error: index out of range [3] with length 3",
                    "thread 'main' panicked at src/main.rs:4:10:",
                    "   at Shop.Cart.Total() in C:\\src\\Cart.cs:line 30",
                    "app.rb:3:in `total': undefined method `sum' for nil (NoMethodError)",
                    "\tfrom app.rb:9:in `<main>'",
                    "#0 /var/www/index.php(12): run()",
                    "... 23 more",
                ],
            ),
            (
                Kind::Log,
                &[
                    "2026-02-03 10:11:12,345 INFO worker: job 7 done",
                    "[warn] cache is cold",
                    "ERROR:root:no such table",
                    "npm ERR! code ELIFECYCLE",
                    "error[E0382]: borrow of moved value: `x`",
                    "src/main.rs:10:5: error: expected `;`",
                    "10.0.0.7 - - [03/Feb/2026:10:11:12 +0000] \"GET /a HTTP/1.1\" 200 12",
                    "ts=1 level=info msg=ready",
                    "\u{1b}[32mok\u{1b}[0m 3 passed",
                    "kernel[0]: panic",
                ],
            ),
            (
                Kind::Terminal,
                &[
                    "$ git status",
                    ">>> import os",
                    "anna@web1:~/app$ ls",
                    "PS C:\\work> dir",
                    "In [3]: df.head()",
                ],
            ),
            (Kind::Table, &["| id | name |", "|----|------|", "+----+------+", "│ id │ name │"]),
            (
                Kind::Quotation,
                &[
                    "> Could you send the deck?",
                    "On Tue, 3 Feb 2026 at 10:11, Ada <ada@example.org> wrote:",
                ],
            ),
            (Kind::Mail, &["-----Original Message-----", "Begin forwarded message:"]),
            (
                Kind::Sql,
                &[
                    "SELECT id, pdf_url FROM files WHERE id = 3",
                    "CREATE TABLE files (",
                    "select * from files;",
                ],
            ),
            (
                Kind::Markup,
                &["<div class=\"page\">", "</div>", "<?xml version=\"1.0\"?>", "<item>pen</item>"],
            ),
            (Kind::Json, &["\"name\": \"pdf\",", "{\"a\": 1}", "[{\"a\": 1}, {\"a\": 2}]"]),
            (
                Kind::Code,
                &[
                    "const total = items.length;",
                    "def export(path):",
                    "for (let i = 0; i < n; i++) {",
                    "total = sum(prices)",
                    "print(total)",
                    "return rows[0]",
                    "#include <stdio.h>",
                    "} else {",
                    "pub fn run() -> u8 {",
                    "from os import path",
                    ".filter((one) => one.ok)",
                ],
            ),
            (Kind::Url, &["https://example.org/a/export-to-pdf"]),
        ];
        for (kind, lines) in cases {
            for line in *lines {
                assert_eq!(kind_of(line), Some((*kind, ENOUGH)), "{line}");
            }
        }
    }

    #[test]
    fn requests_are_never_enough() {
        for line in [
            "merge these three PDF files",
            "fix this:",
            "explain:",
            "ERROR when I open the export, why?",
            "From: line in the mail is wrong, mend it",
            "Update the README from the changelog",
            "UPDATE the README so that it names the new command",
            "select the pages from the scan that have a table",
            "create table of contents after the title page",
            "if the file is empty, skip it:",
            "for each of these do the following:",
            "- merge the files",
            "+ one more thing: page numbers",
            "Task: merge the PDF files in ~/scans",
            "Note: keep the order of the pages",
            "import contacts",
            "class notes: please summarise",
            "12:30 works for me, book the room",
            "return the books list as csv",
            "what does `git rebase --onto` do?",
            "print the report on A4",
            "at the office (second floor) we need a printer, draft the mail",
            "x and y are swapped; mend that",
            "A/B test the two pages",
            "use https://example.org/api to look it up",
            "# Plan",
            "1. merge the files",
        ] {
            assert!(sign(line).is_none_or(|sign| sign.weight < ENOUGH), "{line}: {:?}", sign(line));
        }
    }
}
