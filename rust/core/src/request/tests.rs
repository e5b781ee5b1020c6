//! Tests of the parser, with examples of every kind of material.

use proptest::prelude::*;

use super::*;
use crate::steps::assert_linear;

fn kinds(prompt: &str) -> Vec<Kind> {
    split(prompt).material.iter().map(|material| material.kind).collect()
}

const REQUESTS: &[&str] = &[
    "merge these three PDF files",
    "wrap the Stripe API as an MCP server",
    "Please add a null check to exportToPdf, and cover it with a test.",
    "Why is the nightly build so slow?",
    "fix this",
    "explain:",
    "Draft a reply to Ada: we can deliver on Friday.\nKeep it short and friendly.",
    "write release notes:\n- new export\n- faster start\n- two bugs less",
    "Was macht diese Funktion, und wie teste ich sie?",
    "把这个文件转换成表格",
    "Translate \"good morning\" into Polish",
    "Create a table of contents for handbook.docx",
    "select the three best photos from ~/trip and rotate them",
    "TODO: rename the module to billing",
];

const MATERIAL: &[(Kind, &str)] = &[
    (
        Kind::Code,
        "```python\ndef export(path):\n    # exports the PDF and the deck\n    return path\n```",
    ),
    (Kind::Code, "~~~\nsome words in a fence\n~~~"),
    (
        Kind::Code,
        "function exportToPdf(doc) {\n  // the header is optional\n  const out = render(doc);\n\n  return out;\n}",
    ),
    (
        Kind::Code,
        "import os\n\n\ndef total(rows):\n    if not rows:\n        return 0\n    return sum(row.price for row in rows)",
    ),
    (
        Kind::Code,
        "pub fn run(path: &str) -> Result<(), Error> {\n    let text = read(path)?;\n    Ok(())\n}",
    ),
    (
        Kind::Log,
        "2026-02-03 10:11:12,001 INFO worker: started\n2026-02-03 10:11:13,440 ERROR worker: invoice.pdf is locked\n  retry in 5 s\n2026-02-03 10:11:18,009 INFO worker: done",
    ),
    (Kind::Log, "2026-02-03T10:11:12Z ERROR pdf-service failed to render deck.pptx"),
    (
        Kind::Log,
        "npm ERR! code ELIFECYCLE\nnpm ERR! errno 1\nnpm ERR! docs@1.0.0 build: `vitepress build`",
    ),
    (
        Kind::Log,
        "src/lib.rs:4:9: error: unused variable\n  |\n4 |     let pdf = 3;\n  |         ^^^",
    ),
    (
        Kind::Traceback,
        "Traceback (most recent call last):\n  File \"app/main.py\", line 12, in <module>\n    run()\n  File \"app/main.py\", line 7, in run\n    raise ValueError(\"not a PDF\")\nValueError: not a PDF",
    ),
    (
        Kind::Traceback,
        "java.lang.IllegalStateException: no deck\n\tat com.example.Deck.open(Deck.java:10)\n\tat com.example.Main.main(Main.java:4)\nCaused by: java.io.IOException: closed\n\t... 3 more",
    ),
    (
        Kind::Traceback,
        "TypeError: Cannot read properties of undefined (reading 'slides')\n    at render (/srv/app/deck.js:10:5)\n    at process.processTicksAndRejections (node:internal/process/task_queues:95:5)",
    ),
    (
        Kind::Traceback,
        "panic: runtime error: index out of range [3] with length 3\n\ngoroutine 1 [running]:\nmain.main()\n\t/srv/app/main.go:9 +0x1d\nexit status 2",
    ),
    (
        Kind::Traceback,
        "thread 'main' panicked at src/main.rs:4:10:\nindex out of bounds: the len is 3 but the index is 9\nnote: run with `RUST_BACKTRACE=1` environment variable to display a backtrace",
    ),
    (
        Kind::Traceback,
        "Unhandled exception. System.NullReferenceException: Object reference not set to an instance of an object.\n   at Shop.Cart.Total() in C:\\src\\Cart.cs:line 30\n   at Program.Main(String[] args)",
    ),
    (
        Kind::Traceback,
        "cart.rb:3:in `total': undefined method `sum' for nil (NoMethodError)\n\tfrom cart.rb:9:in `<main>'",
    ),
    (
        Kind::Diff,
        "diff --git a/a.py b/a.py\nindex 1111111..2222222 100644\n--- a/a.py\n+++ b/a.py\n@@ -1,3 +1,3 @@\n import os\n-print(1)\n+print(2)\n \n+A new line of the guide about slides",
    ),
    (
        Kind::Json,
        "{\n  \"pdf_url\": \"a.pdf\",\n  \"pages\": [\n    1,\n    2\n  ],\n  \"draft\": false\n}",
    ),
    (Kind::Json, "{\"pdf_url\": \"a.pdf\", \"pages\": [1, 2]}"),
    (
        Kind::Markup,
        "<section class=\"slides\">\n  <h1>Our deck</h1>\n  some words of the page\n</section>",
    ),
    (Kind::Csv, "id,name,pdf\n1,ada,a.pdf\n2,bob,b.pdf"),
    (Kind::Csv, "id\tname\n1\tada\n2\tbob"),
    (Kind::Sql, "SELECT id, pdf_url\nFROM files\nWHERE id = 3\nORDER BY id;"),
    (Kind::Sql, "create table files (\n  id integer primary key,\n  pdf_url text not null\n);"),
    (Kind::Table, "| file | pages |\n|------|-------|\n| a.pdf | 3 |"),
    (
        Kind::Table,
        "+------+-------+\n| file | pages |\n+------+-------+\n| a.pdf |    3 |\n+------+-------+",
    ),
    (
        Kind::Table,
        "NAME      READY   STATUS    AGE\nweb-1     1/1     Running   3d\nweb-2     0/1     Pending   4m",
    ),
    (
        Kind::Dump,
        "00000000  25 50 44 46 2d 31 2e 37  0a 25 e2 e3 cf d3 0a 31  |%PDF-1.7.%.....1|\n00000010  20 30 20 6f 62 6a 0a 3c  3c 2f 4c 69 6e 65 61 72  | 0 obj.<</Linear|",
    ),
    (
        Kind::Config,
        "services:\n  web:\n    image: nginx\n    ports:\n      - \"80:80\"\n  # the database\n  db:\n    image: postgres",
    ),
    (Kind::Config, "[export]\nformat = pdf\nretries = 3\npaper = a4"),
    (
        Kind::Quotation,
        "On Tue, 3 Feb 2026 at 10:11, Ada <ada@example.org> wrote:\n> Could you send me the deck?\n> I need the PDF by Friday.",
    ),
    (
        Kind::Mail,
        "From: Ada Byron <ada@example.org>\nTo: team@example.org\nSubject: the deck\n\nHi all,\n\nthe slides are not ready. Can someone merge the PDF files?\n\nBest regards,\nAda\nExample Ltd.",
    ),
    (Kind::Quotation, "> The slides were late again.\n> Nobody had merged the PDF files."),
    (Kind::Terminal, "$ git status\nOn branch main\nnothing to commit, working tree clean"),
    (Kind::Terminal, "anna@web1:~/app$ ls\nexport.pdf  deck.pptx"),
    (Kind::Url, "https://example.org/guides/export-to-pdf"),
];

#[test]
fn each_kind_of_material_is_known_by_itself() {
    for (kind, material) in MATERIAL {
        let found = split(material);
        // The last line of an output may be a request, and a single line is a request.
        let only = found.request.is_empty() || *kind == Kind::Terminal || !material.contains('\n');
        assert!(only, "{kind:?}: {material}\nrequest: {:?}", found.request);
        assert_eq!(kinds(&format!("fix this\n\n{material}")), [*kind], "{material}");
    }
}

#[test]
fn a_request_is_the_same_with_material_before_behind_and_around_it() {
    let mut wrong = Vec::new();
    for request in REQUESTS {
        let alone = split(request).request;
        assert_eq!(alone, *request);
        for (kind, material) in MATERIAL {
            for (prompt, tight) in [
                (format!("{request}\n\n{material}"), false),
                (format!("{request}\n{material}"), false),
                (format!("{material}\n\n{request}"), false),
                (format!("{material}\n{request}"), false),
                (format!("{material}\n\n{request}\n\n{material}"), false),
                (format!("{material}\n{request}\n{material}"), true),
            ] {
                let found = split(&prompt);
                // A line in the middle of an output reads as a part of it.
                let hidden = tight && *kind == Kind::Terminal;
                let nothing = !found.names_something && !split(request).names_something;
                if found.request != alone && !hidden && !nothing {
                    wrong.push(format!("{kind:?}\n{prompt}\n=> {:?}", found.request));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n----\n"));
}

#[test]
fn material_of_many_tools_leaves_the_request() {
    let all = include_str!("material.txt");
    let pieces = all.split("\n%% ").skip(1).filter_map(|piece| piece.split_once('\n'));
    let mut wrong = Vec::new();
    for (name, material) in pieces {
        let material = material.trim_end();
        for request in ["merge these three PDF files", "wrap the Stripe API as an MCP server"] {
            for prompt in [
                format!("{request}\n\n{material}"),
                format!("{material}\n\n{request}"),
                format!("{request}\n{material}"),
                format!("{material}\n\n{request}\n\n{material}"),
            ] {
                let found = split(&prompt).request;
                if found != request {
                    wrong.push(format!("{name}: {found:?}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn short_labels_of_a_person_stay_in_the_request() {
    for prompt in [
        "compare two offers\nOFFER ONE: cheap but slow\nOFFER TWO: fast\nOFFER THREE: neither",
        "plan my week\nMON: gym\nTUE: write the report\nWED: dentist",
        "which answer is right?\nA: Paris\nB: Rome\nC: Bonn",
    ] {
        assert_eq!(split(prompt).request, prompt);
    }
}

#[test]
fn material_within_a_line_leaves_the_sentence() {
    let cases = [
        (
            "why is this null: {\"user\": {\"pdf_url\": null, \"name\": \"ada\"}} after a login?",
            vec![Kind::Json],
            "why is this null: after a login?",
        ),
        (
            "what does ```python def f(path): return export_to_pdf(path, pages=[1, 2], size=\"a4\")``` return?",
            vec![Kind::Code],
            "what does return?",
        ),
        (
            "center this: <div class=\"deck\"><p>slides</p></div> in the page",
            vec![Kind::Markup],
            "center this: in the page",
        ),
        (
            "run the migrations: ALTER TABLE files ADD COLUMN pdf_url text;",
            vec![Kind::Sql],
            "run the migrations:",
        ),
        (
            "download https://example.org/2026/report-on-slides.pdf and count the pages",
            vec![Kind::Url],
            "download https://example.org .pdf and count the pages",
        ),
        (
            "see https://example.org/wiki/Slides.html, then https://example.org",
            vec![Kind::Url],
            "see https://example.org , then https://example.org",
        ),
        ("rename `exportToPdf()` to `save`", vec![], "rename `exportToPdf()` to `save`"),
        (
            "use text=1, size=2 and kind=3 for the new chart",
            vec![],
            "use text=1, size=2 and kind=3 for the new chart",
        ),
    ];
    for (prompt, kinds_expected, request) in cases {
        let found = split(prompt);
        assert_eq!(kinds(prompt), kinds_expected, "{prompt}");
        assert_eq!(found.request, request);
    }
    let long =
        "so the committee meets again in spring, and nobody wants to move the slides before that "
            .repeat(3);
    let quoted = format!("shorten this: \"{}\" to one line", long.trim());
    assert_eq!(split(&quoted).request, "shorten this: to one line");
}

/// Documents by the markup of their headings.
const DOCUMENTS: &[&str] = &[
    "# Annual report\n\n## Sales\n\nSales rose by a tenth, mostly in the south.\n\n- East: 4 %\n- West: 9 %\n\n## Staff\n\nTwo people left the company.",
    "# kestrel\n\nA small server for pictures.\n\n## Installation\n\n```sh\npip install kestrel\n```\n\n## License\n\nMIT",
    "## Sync of 3 March\n\nAttendees: Ada, Bob\n\n### Decisions\n\n- The launch moves to May\n- Bob owns the list\n\n### Open\n\nThe budget was not discussed.",
    "# Changelog\n\n## [1.2.0] - 2026-02-01\n\n### Added\n\n- Export to EPUB\n\n### Fixed\n\n- The sidebar no longer jumps",
    "Harbour guide\n=============\n\nThe harbour has two basins.\n\nMooring\n-------\n\nBoats moor at the northern wall.",
    "=====\nTides\n=====\n\nHigh water\n----------\n\nThe moon pulls at the sea.\n\nLow water\n---------\n\nThe water falls after six hours.",
    "* Trip to Oslo\n** Hotel\nThe hotel was quiet.\n** Talks\nThe talk on ferries was the best.",
    "= Handbook\n\n== On call\n\nThe person on call answers within ten minutes.\n\n== Backups\n\nBackups run at two in the morning.",
    "== History ==\n\nThe mill was built by two brothers. It burnt down in 1901.\n\n== Today ==\n\nThe mill is a museum.",
    "h2. Login locks early\n\nh3. Seen\n\nAccounts lock after three attempts.\n\nh3. Expected\n\n* five attempts",
    "# Prices\n\nThe prices hold until May.\n\n| item | price |\n|------|-------|\n| oar  | 30    |\n\n## Discounts\n\nMembers pay half.",
];

#[test]
fn a_document_that_the_request_points_to_is_material() {
    let mut wrong = Vec::new();
    for document in DOCUMENTS {
        let below = [
            "turn this into slides:",
            "Review these notes and tell me what is unclear.",
            "Translate the document below into Polish",
            "make a quiz from the following text",
            "Hi! Can you shorten this?",
        ];
        let above = [
            "turn this into slides",
            "Draft a mail to the customers from the above, please.",
            "can you summarise these notes?",
        ];
        let below = below.iter().flat_map(|request| {
            ["\n\n", "\n\n\n"].map(|gap| (format!("{request}{gap}{document}"), *request))
        });
        let above = above.iter().flat_map(|request| {
            [
                (format!("{document}\n\n{request}"), *request),
                (format!("{document}\n{request}"), *request),
                (format!("{document}\n\n{request}\n\n{document}"), *request),
            ]
        });
        for (prompt, request) in below.chain(above) {
            let found = split(&prompt);
            check(&prompt, &found);
            let only = found.material.iter().all(|material| material.kind == Kind::Document);
            if found.request != request || !only {
                wrong.push(format!("{prompt}\n=> {:?}", found.request));
            }
        }
        let around = format!("Shorten this:\n\n{document}\n\nPlease keep the numbers.");
        assert_eq!(split(&around).request, "Shorten this:\nPlease keep the numbers.");
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n----\n"));
}

#[test]
fn a_prompt_that_its_author_structured_is_the_request() {
    for prompt in [
        "# Task\nwrite a script that sorts my mail\n## Requirements\n- must be in Rust\n- no new files",
        "build a landing page:\n- hero image\n- pricing table",
        "Build a chat app with the following features:\n\n## Rooms\nPeople make rooms. They invite others.\n\n## Files\nPeople share files of any size.",
        "Implement this:\n\n# Import\n\n## Behaviour\n- reads large files\n- reports bad rows",
        "Please fix these issues:\n\n## Login\nThe button is hidden on small screens.\n\n## Search\nThe list does not scroll.",
        "Do the following steps in this repo:\n\n## Step 1\nUpdate the libraries.\n\n## Step 2\nRun the tests.\n\n## Step 3\nOpen a pull request.",
        "Write a letter for me.\n\n## About me\nI was a nurse for nine years. I led a ward.\n\nKeep this to one page.",
        "Set up CI for this repository:\n\n# Lint\nThe code is checked by two tools.\n\n# Test\nThe tests run on each change.",
        "Goal\n====\nMove our wiki to a static site.\n\nRules\n=====\n- keep all links\n\nPlease keep this simple.",
        "I want to run a course. Can you help me plan this?\n\n## Budget\n500 EUR\n\n## Topics\n- old trains",
        "# Newsletter\n\nWrite a newsletter about our new books.\n\n## Parts\n- a greeting\n- opening hours\n\nTranslate the above into French, too.",
        "Convert this to Rust.\n\n# Requirements\n- no unsafe code\n- the same flags",
        "The plan is ready. This is the summary.\n\n# Plan\n\nThe plan has two parts. Both take a week.",
    ] {
        let found = split(prompt);
        assert_eq!((found.request.as_str(), found.material.as_slice()), (prompt, [].as_slice()));
    }
}

#[test]
fn fences_may_open_and_close_within_lines_and_stay_open() {
    let cases = [
        ("fix this: ```python\nx = 1\n```\nand add tests", "fix this:\nand add tests"),
        ("fix this: ```python\nx = 1``` and add tests", "fix this: and add tests"),
        ("```\nsome words\n``` and add tests", "and add tests"),
        ("add tests\n```python\nx = 1\n\nprint(x)", "add tests"),
        ("```python\nx = 1\n\nplease add tests for this", "please add tests for this"),
        ("````\n```\ninner\n```\n````\nadd tests", "add tests"),
        ("- step one:\n  ```sh\n  ls\n  ```\n- step two", "- step one:\n- step two"),
        ("\"\"\"\nsome words\n\"\"\"\nadd tests", "add tests"),
    ];
    for (prompt, request) in cases {
        assert_eq!(split(prompt).request, request, "{prompt}");
    }
}

#[test]
fn a_request_that_fits_everything_names_nothing() {
    for request in [
        "fix this",
        "explain:",
        "Why doesn't it work?",
        "what's wrong here",
        "ok, and now?",
        "",
        "can you help me with this error?",
    ] {
        assert!(!split(request).names_something, "{request}");
    }
    for request in
        ["add a null check", "explain the GIL", "erkläre das", "修复", "review this", "merge"]
    {
        assert!(split(request).names_something, "{request}");
    }
}

#[test]
fn a_single_line_is_the_request() {
    for prompt in [
        "fatal: refusing to merge unrelated histories. How do I join the two repositories?",
        "TypeError: x is not a function - find the cause",
        "SELECT * FROM files;",
    ] {
        assert_eq!(split(prompt).request, prompt);
        assert!(split(prompt).material.is_empty());
    }
}

/// Texts that are slow to parse if a search is repeated at each position.
#[test]
fn a_line_right_behind_a_letter_is_the_request() {
    assert_eq!(split(&format!("{LETTER}\nmerge these files")).request, "merge these files");
}

#[test]
fn sentences_at_the_end_of_material_are_preferred_to_those_within() {
    let log = "2026-02-03 10:11:12 INFO one: started\nThe slides of Ada were not ready for the board.\n2026-02-03 10:11:13 INFO one: done";
    assert_eq!(split(&format!("fix this\n\n{LETTER}\n\n{log}")).request, "fix this");
    assert_eq!(split(&format!("{LETTER}\n\n{log}")).request, LETTER);
}

#[test]
fn white_space_beside_material_belongs_to_it() {
    let fence = "```\nlet x = 1;\n```";
    let found = split(&format!("{fence}\n \n{fence}\nfix this"));
    let spans: Vec<_> = found.material.iter().map(|material| material.span).collect();
    assert_eq!(spans, [Span { start: 0, end: 21 }, Span { start: 21, end: 40 }]);
    assert_eq!(found.spans, [Span { start: 40, end: 48 }]);
}

const LETTER: &str =
    "Hi all,\n\nthe slides are not ready. Can someone merge the files?\n\nBest regards,\nAda";

#[test]
fn a_long_paste_takes_as_long_as_its_length() {
    let pieces = [
        "```",
        "`",
        "{\"a\": ",
        "[",
        "<a ",
        "</",
        "\" \"a ",
        ": x(",
        "# ",
        "a: 1\n",
        "UPDATE ",
        "SELECT a ",
        "> ",
        "2026-01-01 ",
        "Hi,\n",
        "Thanks\n",
        "From: a\n",
        "\"\"\"\n",
        "a,b,c\n",
        "://a/",
        "(",
        "\u{1b}[",
        "- x\n",
        "# a\n\nb c.\n\n",
        "this ",
        "a\n===\n",
        "** a\n",
        "\n\n",
        "$ a\nb\n",
        "x ",
        " ",
        "“",
        "界",
        "\0",
    ];
    for piece in pieces.into_iter().chain(["summarise this\n\n# a\n\n"]) {
        for (count, extra) in [(20_000 / piece.len(), ""), (10_000 / piece.len(), "\n")] {
            let prompt = format!("{piece}{extra}").repeat(count);
            let found = split(&prompt);
            check(&prompt, &found);
        }
    }
}

#[test]
fn a_repeated_search_within_a_line_takes_as_long_as_the_line() {
    let pieces = ["://", "a:é", "“1 ", "2024-01-02 10:11:12 ", ": x(", "translate this "];
    for (piece, before) in pieces.into_iter().flat_map(|piece| [(piece, ""), (piece, "a\n\n")]) {
        assert_linear(piece, |text| split(&format!("{before}{text}”")));
    }
}

/// Spans cover the prompt, and the request consists of its own spans.
fn check(prompt: &str, found: &Split) {
    let mut all: Vec<Span> = found
        .spans
        .iter()
        .copied()
        .chain(found.material.iter().map(|material| material.span))
        .collect();
    all.sort_by_key(|span| (span.start, span.end));
    let mut end = 0;
    for span in &all {
        assert_eq!(span.start, end, "{prompt:?}: {found:?}");
        end = span.end;
    }
    assert_eq!(end as usize, prompt.chars().count());
    let letters: Vec<char> = prompt.chars().collect();
    let own = found.spans.iter().flat_map(|span| &letters[span.start as usize..span.end as usize]);
    let words = |text: String| text.split_whitespace().collect::<String>();
    assert_eq!(words(own.collect()), words(found.request.clone()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_text_is_covered_by_its_parts(
        pieces in prop::collection::vec(
            prop_oneof![
                any::<String>(),
                prop::sample::select(MATERIAL).prop_map(|(_, text)| text.to_owned()),
                prop::sample::select(REQUESTS).prop_map(str::to_owned),
                prop::sample::select(vec!["```", "\n", "\n\n", " ", "{\"", "<a>", "> ", "\r\n", "\"", "\u{1b}[0m", "\0", "---"])
                    .prop_map(str::to_owned),
            ],
            0..8,
        ),
    ) {
        let prompt = pieces.concat();
        check(&prompt, &split(&prompt));
    }

    #[test]
    fn a_text_of_letters_and_punctuation_is_a_request(
        text in "[a-zA-Zäöüß,.!? ]{0,200}",
    ) {
        prop_assert_eq!(split(&text).request, text);
    }

    #[test]
    fn several_pieces_of_material_leave_the_request(
        request in prop::sample::select(REQUESTS),
        before in prop::collection::vec(prop::sample::select(MATERIAL), 0..3),
        behind in prop::collection::vec(prop::sample::select(MATERIAL), 0..3),
    ) {
        let mut parts: Vec<&str> = before.iter().map(|(_, text)| *text).collect();
        parts.push(request);
        parts.extend(behind.iter().map(|(_, text)| *text));
        let found = split(&parts.join("\n\n"));
        prop_assert_eq!(found.request, request);
    }
}
