//! The forms in which English descriptions exclude something.

use std::sync::LazyLock;

use crate::words::{Class, Pattern, Token};

/// The place of the exclusions beside a form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Object {
    /// In the words behind it.
    After,
    /// In the words before it.
    Before,
    /// In the words behind it, up to this word.
    Until(&'static str),
    /// Nowhere: it is a rule for the work, or a condition.
    Nothing,
}

#[derive(Debug)]
pub(super) struct Form {
    pattern: Pattern,
    pub(super) object: Object,
    /// What else must be true of the words that it fits.
    guard: Guard,
}

/// A condition that the words of a pattern cannot state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Guard {
    None,
    /// The verb, the last word of the pattern, excludes what follows it.
    Excludes,
    /// The verb does, and is in the third person: "never writes".
    ThirdPerson,
    /// "unless" in a sentence that says when to use it, and not "unless the user asks".
    Unless,
    /// What follows "not" or "no" is an object, and not the rest of a phrase such as "not only".
    Plain,
}

/// Groups of phrases; see [`Pattern`].
const CLASSES: &[Class] = &[
    (
        "LEAD",
        &[
            "note",
            "note that",
            "important",
            "caution",
            "warning",
            "caveat",
            "caveats",
            "however",
            "but",
            "and",
            "or",
            "also",
            "please",
            "though",
            "although",
            "again",
            "still",
            "so",
            "nb",
            "beware",
            "remember",
            "limits",
            "limitation",
            "limitations",
            "scope",
            "boundaries",
            "boundary",
        ],
    ),
    ("PAUSE", &[",", ":", "-", "!", "."]),
    (
        "WHO",
        &[
            "it",
            "this",
            "these",
            "they",
            "skill",
            "tool",
            "agent",
            "NAME",
            "this skill",
            "this tool",
            "this agent",
            "this plugin",
            "this plug-in",
            "this server",
            "this command",
            "this workflow",
            "this guide",
            "this one",
            "this helper",
            "this function",
            "this assistant",
            "these skills",
            "these tools",
            "the skill",
            "the tool",
            "the agent",
            "the plugin",
            "the server",
            "the command",
            "the workflow",
            "the assistant",
            "NAME skill",
            "the NAME skill",
            "we",
        ],
    ),
    ("READER", &["you", "claude", "agents", "models", "the model", "please", "users"]),
    (
        "IT",
        &[
            "it",
            "this",
            "these",
            "them",
            "me",
            "NAME",
            "this skill",
            "this tool",
            "this agent",
            "this plugin",
            "this plug-in",
            "this server",
            "this command",
            "this workflow",
            "this guide",
            "this one",
            "this helper",
            "the skill",
            "the tool",
            "the agent",
            "the command",
            "the workflow",
            "skill",
            "this function",
            "it automatically",
            "automatically",
            "the NAME skill",
            "NAME skill",
            "this skill automatically",
        ],
    ),
    (
        "NOT",
        &[
            "do not",
            "don't",
            "dont",
            "never",
            "not",
            "must not",
            "mustn't",
            "should not",
            "shouldn't",
            "shall not",
            "may not",
            "cannot",
            "can't",
            "can not",
            "could not",
            "couldn't",
            "will not",
            "won't",
            "would not",
            "wouldn't",
            "need not",
            "needn't",
            "does not",
            "doesn't",
            "is not to",
            "isn't to",
            "are not to",
            "aren't to",
            "not to",
            "ought not to",
            "should never",
            "must never",
            "can never",
            "will never",
            "do never",
            "is never to",
            "are never to",
            "no longer",
            "better not",
            "there is no need to",
            "no need to",
            "no reason to",
            "refrain from",
            "is not",
            "isn't",
            "are not",
            "aren't",
            "is never",
            "are never",
        ],
    ),
    (
        "USE",
        &[
            "use",
            "uses",
            "used",
            "using",
            "trigger",
            "triggers",
            "triggered",
            "triggering",
            "invoke",
            "invokes",
            "invoked",
            "invoking",
            "activate",
            "activates",
            "activated",
            "load",
            "loads",
            "loaded",
            "apply",
            "applies",
            "applied",
            "fire",
            "fires",
            "run",
            "runs",
            "pick",
            "picked",
            "select",
            "selected",
            "choose",
            "chosen",
            "consider",
            "considered",
            "call",
            "called",
            "route",
            "routed",
            "reach",
            "rely",
            "suggest",
            "suggested",
            "recommend",
            "recommended",
            "employ",
            "employed",
            "engage",
            "consult",
            "start",
            "open",
            "propose",
            "be used",
            "be triggered",
            "be invoked",
            "be activated",
            "be loaded",
            "be applied",
            "be picked",
            "be selected",
            "be chosen",
            "be called",
            "be run",
            "be considered",
            "be relied",
            "be employed",
            "be consulted",
            "turn",
            "be suggested",
            "be recommended",
            "attempt",
            "expect",
        ],
    ),
    (
        // Verbs of use that say nothing else.
        "TRIGGER",
        &[
            "use",
            "used",
            "trigger",
            "triggered",
            "invoke",
            "invoked",
            "activate",
            "activated",
            "load",
            "loaded",
            "apply",
            "applied",
            "route",
            "be used",
            "be triggered",
            "be invoked",
            "be activated",
            "be loaded",
            "be applied",
        ],
    ),
    (
        "FOR",
        &[
            "for",
            "for :",
            "on",
            "on :",
            "when",
            "when :",
            "if",
            "if :",
            "in",
            "with",
            "to",
            "as",
            "at",
            "during",
            "while",
            "where",
            "upon",
            "about",
            "against",
            "whenever",
            "over",
            "because",
            "just because",
            "merely because",
            "simply because",
            "inside",
            "within",
            "just for",
            "simply for",
            "in case of",
            "in cases of",
            "in cases where",
            "in place of",
            "instead of",
            "in order to",
            "by",
            "for anything",
            "in response to",
            ":",
            "even if",
            "even when",
            "even for",
            "either for",
            "either when",
        ],
    ),
    ("LATER", &["without", "before", "until", "unless", "after", "outside", "except", "from"]),
    (
        "DOESNOT",
        &[
            "does not",
            "doesn't",
            "do not",
            "don't",
            "will not",
            "won't",
            "would not",
            "wouldn't",
            "never",
            "will never",
            "does never",
            "no longer",
            "is unable to",
            "are unable to",
            "is not able to",
            "isn't able to",
            "are not able to",
            "refuses to",
            "declines to",
            "should not",
            "shouldn't",
            "must not",
            "may not",
            "was not built to",
            "is not designed to",
            "isn't designed to",
            "is not meant to",
            "isn't meant to",
            "is not intended to",
            "isn't intended to",
            "is not made to",
            "is not built to",
        ],
    ),
    (
        "CANNOT",
        &["cannot", "can't", "can not", "could not", "couldn't", "can never", "can neither"],
    ),
    ("UNABLE", &["unable to", "not able to", "not designed to", "not meant to", "not built to"]),
    (
        "ISNOT",
        &[
            "is not",
            "isn't",
            "are not",
            "aren't",
            "is never",
            "are never",
            "'s not",
            "it's not",
            "was not",
            "wasn't",
            "is neither",
            "not",
            "never",
        ],
    ),
    (
        "FIT",
        &[
            "meant",
            "intended",
            "designed",
            "suitable",
            "suited",
            "well suited",
            "well-suited",
            "made",
            "built",
            "appropriate",
            "right",
            "ideal",
            "useful",
            "applicable",
            "relevant",
            "available",
            "responsible",
            "concerned",
            "related",
            "optimized",
            "optimised",
            "recommended",
            "equipped",
            "good",
            "great",
            "helpful",
            "limited",
            "needed",
            "the right tool",
            "the right skill",
            "the right choice",
            "the right place",
            "the right fit",
            "the right one",
            "the best choice",
            "the best tool",
            "a good fit",
            "a good choice",
            "a good match",
            "a fit",
            "a match",
            "the tool",
            "the skill",
            "the place",
            "necessary",
            "to be used",
            "to be triggered",
            "to be invoked",
            "for use",
            "valid",
            "supported",
            "allowed",
            "required",
            "worth it",
            "fit",
            "there",
        ],
    ),
    (
        "FITS",
        &[
            "for", "for :", "to", "with", "when", "when :", "if", "in", "on", "about", "as", "of",
            "while", "where", "during", "at", "against", "by",
        ],
    ),
    (
        "POOR",
        &[
            "unsuitable",
            "unfit",
            "inappropriate",
            "irrelevant",
            "useless",
            "overkill",
            "unhelpful",
            "ill-suited",
            "unsuited",
            "unusable",
            "wrong",
            "wrong tool",
            "wrong skill",
            "wrong choice",
            "wrong place",
            "wrong fit",
            "poor fit",
            "poor choice",
            "bad fit",
            "bad choice",
            "poor match",
            "bad match",
            "the wrong tool",
            "the wrong skill",
            "the wrong choice",
            "the wrong place",
            "a poor fit",
            "a poor choice",
            "a bad fit",
            "a bad choice",
            "no good",
            "no help",
            "no use",
            "of no use",
            "of no help",
            "deprecated",
            "bad",
            "nothing",
        ],
    ),
    ("BE", &["is", "are", "be", "remain", "remains", "stay", "stays", "was", "were"]),
    (
        "SKIP",
        &[
            "skip",
            "skips",
            "ignore",
            "ignores",
            "avoid",
            "avoids",
            "bypass",
            "omit",
            "decline",
            "disregard",
            "pass on",
            "keep away from",
            "stay away from",
            "steer clear of",
            "hold off on",
            "disable",
        ],
    ),
    (
        "SKIPFOR",
        &[
            "for",
            "for :",
            "on",
            "when",
            "when :",
            "if",
            "where",
            "whenever",
            "with",
            "during",
            "in",
            "in case of",
            ":",
        ],
    ),
    (
        "EXCLUDES",
        &[
            "excludes",
            "excluding",
            "excluded",
            "exclude",
            "exclusions",
            "exclusion",
            "exceptions",
            "exception",
            "except",
            "excepting",
            "except for",
            "except when",
            "except if",
            "except in",
            "except on",
            "except with",
            "apart from",
            "aside from",
            "out of scope",
            "out-of-scope",
            "not in scope",
            "outside scope",
            "outside the scope",
            "outside its scope",
            "beyond scope",
            "beyond the scope",
            "beyond its scope",
            "non-goals",
            "non-goal",
            "nongoals",
            "anti-triggers",
            "anti-trigger",
            "negative triggers",
            "negative trigger",
            "negative scope",
            "don'ts",
            "donts",
            "anti-patterns",
            "anti-use cases",
            "not covered",
            "not included",
            "not supported",
            "not handled",
            "unsupported",
            "does not include",
            "leaves out",
            "rules out",
            "anything but",
            "everything but",
            "do not trigger",
            "do not use",
            "don't use",
            "don't trigger",
            "never use",
            "skip",
            "ignore",
            "avoid",
            "no-go",
            "off limits",
            "not a trigger",
            "not triggers",
        ],
    ),
    ("ARE", &["are", "is", "include", "includes", "are things like"]),
    (
        "OUTSIDE",
        &[
            "out of scope",
            "out-of-scope",
            "outside scope",
            "outside the scope",
            "outside of the scope",
            "outside its scope",
            "outside this scope",
            "outside of scope",
            "outside its remit",
            "beyond scope",
            "beyond the scope",
            "beyond its scope",
            "not in scope",
            "not supported",
            "not covered",
            "not handled",
            "not included",
            "not allowed",
            "not served",
            "never supported",
            "never covered",
            "unsupported",
            "excluded",
            "off limits",
            "off-limits",
            "not its job",
            "not part of it",
            "not part of this skill",
            "not done here",
            "not handled here",
            "not covered here",
            "not supported here",
            "another skill's job",
            "someone else's job",
            "somebody else's job",
            "not for this skill",
            "not a reason to use it",
            "no reason to use it",
            "no reason to use this skill",
            "not welcome",
            "left out",
        ],
    ),
    (
        "HANDLED",
        &[
            "handled by",
            "covered by",
            "done by",
            "served by",
            "the job of",
            "a job for",
            "the domain of",
            "better served by",
            "left to",
        ],
    ),
    (
        "SENDS",
        &[
            "see",
            "use",
            "try",
            "prefer",
            "load",
            "pick",
            "choose",
            "take",
            "go to",
            "consult",
            "invoke",
            "switch to",
            "reach for",
            "call",
        ],
    ),
    (
        "ANOTHER",
        &[
            "another skill",
            "other skills",
            "another tool",
            "other tools",
            "a separate skill",
            "separate skills",
            "a different skill",
            "its own skill",
            "their own skill",
            "something else",
            "another one",
        ],
    ),
    ("BUT", &["but", "and", "or", "though", "although", "yet"]),
];

/// `object` is the excluded phrase, and the forms are tried in their order.
macro_rules! forms {
    ($($pattern:literal $object:expr, $guard:ident;)*) => {
        vec![$(Form {
            pattern: Pattern::new($pattern, CLASSES), object: $object, guard: Guard::$guard,
        }),*]
    };
}

/// Forms that begin a sentence.
pub(super) static OPENING: LazyLock<Vec<Form>> = LazyLock::new(|| {
    let mut forms = forms! {
        "LEAD? PAUSE? WHO? when|where|if|cases|times|situations not|never to TRIGGER IT? :? FOR?" Object::After, None;
        "when|cases|times|situations to SKIP IT? FOR?" Object::After, None;
        "LEAD? PAUSE? EXCLUDES ARE? :" Object::After, None;
        "LEAD? PAUSE? WHO? excludes|excluding|except|excepting" Object::After, Plain;
        "LEAD? PAUSE? apart|aside from" Object::After, None;
        "for? everything|anything|all but|except|excluding" Object::After, Plain;
        "LEAD? PAUSE? ANOTHER handle|handles|cover|covers|do|does|exist|exists|is|are|for FOR?" Object::After, None;
        "LEAD? PAUSE? WHO? handle|handles|cover|covers|do|does|support|supports|accept|accepts neither" Object::After, None;
        "LEAD? PAUSE? WHO? refuses|declines to *" Object::After, Excludes;
        "LEAD? PAUSE? WHO? refuses|declines|rejects requests|questions|tasks for|about|to|on" Object::After, None;
        "LEAD? PAUSE? WHO? refuse|refuses|decline|declines and route|routes|send|sends|redirect elsewhere? for|on|when" Object::After, None;
        "LEAD? PAUSE? there is|are ANOTHER for" Object::After, None;
        "LEAD? PAUSE? there's ANOTHER for" Object::After, None;
        "LEAD? PAUSE? WHO? do|does nothing for|with|about" Object::After, None;
        "LEAD? PAUSE? WHO? should|must be avoided|skipped|ignored SKIPFOR" Object::After, None;
        "LEAD? PAUSE? READER? NOT need IT FOR" Object::After, None;
        "LEAD? PAUSE? it is a mistake to USE IT? FOR" Object::After, None;
        "LEAD? PAUSE? WHO? defer|defers to NAME skill? for|on|when" Object::After, None;
        "limits|limitation|limitations|scope|boundaries PAUSE no" Object::After, Plain;
        "limits|limitation|limitations|scope|boundaries PAUSE CANNOT *" Object::After, Excludes;
        "what WHO DOESNOT do|cover|handle|include :?" Object::After, None;
        "what WHO ISNOT for|about :?" Object::After, None;
        "WHO is|are no" Object::After, Plain;
        "LEAD? PAUSE? WHO? leave|leaves" Object::Until("alone"), None;
        "LEAD? PAUSE? WHO? leave|leaves" Object::Until("to"), None;
        "LEAD? PAUSE? WHO? defer|defers" Object::Until("to"), None;
        "what WHO ISNOT :" Object::After, None;
        "LEAD? PAUSE? WHO? lacks|without support for" Object::After, None;
        "LEAD? PAUSE? READER? SENDS ANOTHER FOR" Object::After, None;
        "LEAD? PAUSE? look|search|go elsewhere FOR" Object::After, None;
        "no" Object::After, Plain;
        "not :?" Object::After, Plain;
        "LEAD? PAUSE? NOT TRIGGER" Object::Nothing, None;
        "LEAD? PAUSE? do|does|will|is not *" Object::After, Excludes;
        "LEAD? PAUSE? doesn't *" Object::After, Excludes;
    };
    forms.splice(0..0, clauses());
    forms
});

/// Forms that begin a clause behind a semicolon, a dash, a parenthesis, a comma or "but".
pub(super) static CLAUSE: LazyLock<Vec<Form>> = LazyLock::new(clauses);

fn clauses() -> Vec<Form> {
    forms! {
        "LEAD? PAUSE? READER? WHO? NOT USE IT? LATER" Object::Nothing, None;
        "LEAD? PAUSE? READER? WHO? NOT USE IT? FOR" Object::After, None;
        "LEAD? PAUSE? WHO? NOT be? confuse|confused IT? with" Object::After, None;
        "LEAD? PAUSE? neither|nor for|when|on|if" Object::After, None;
        "LEAD? PAUSE? WHO? ISNOT FIT? FITS" Object::After, Plain;
        "LEAD? PAUSE? WHO BE POOR FITS" Object::After, None;
        "LEAD? PAUSE? POOR FITS" Object::After, None;
        "LEAD? PAUSE? WHO is|are not|never" Object::After, Plain;
        "LEAD? PAUSE? WHO SKIP USE? IT? SKIPFOR" Object::After, None;
        "LEAD? PAUSE? SKIP USE? IT? SKIPFOR" Object::After, None;
        "LEAD? PAUSE? WHO has|have nothing to do with" Object::After, None;
        "LEAD? PAUSE? has nothing to do with" Object::After, None;
        "LEAD? PAUSE? nothing to do with" Object::After, None;
        "LEAD? PAUSE? WHO DOESNOT *" Object::After, Excludes;
        "LEAD? PAUSE? WHO CANNOT *" Object::After, Excludes;
        "LEAD? PAUSE? does not *" Object::After, Excludes;
        "LEAD? PAUSE? doesn't *" Object::After, Excludes;
        "LEAD? PAUSE? won't|can't|cannot help|assist with|on" Object::After, None;
        "LEAD? PAUSE? won't|can't|cannot handle|cover|support" Object::After, None;
        "LEAD? PAUSE? never *" Object::After, ThirdPerson;
        "unlike * *? *? PAUSE WHO DOESNOT *" Object::After, Excludes;
        "unlike * *? *? PAUSE WHO CANNOT *" Object::After, Excludes;
        "in contrast to * *? *? PAUSE WHO DOESNOT *" Object::After, Excludes;
        "LEAD? PAUSE? WHO? knows nothing about|of" Object::After, None;
        "LEAD? PAUSE? UNABLE *" Object::After, Excludes;
    }
}

/// Forms that begin a clause behind a comma or a colon, where a condition may go on.
pub(super) static AFTER_COMMA: LazyLock<Vec<Form>> = LazyLock::new(|| {
    forms! {
        "BUT? NOT TRIGGER IT? FOR" Object::After, None;
        "BUT? not|never FIT? FITS" Object::After, Plain;
    }
});

/// A clause that begins with "not" and names the excluded thing. Behind "never" stands a rule for the
/// work in most descriptions: "never answers from memory".
pub(super) static BARE: LazyLock<Vec<Form>> =
    LazyLock::new(|| forms! { "not :?" Object::After, Plain; });

/// Forms at the end of a sentence that rule out what the words before them name.
pub(super) static BEHIND: LazyLock<Vec<Form>> = LazyLock::new(|| {
    forms! {
        "BE? explicitly? OUTSIDE" Object::Before, None;
        "fall|falls|lie|lies outside|beyond *? *? *?" Object::Before, None;
        "belong|belongs to|in|with NAME" Object::Before, None;
        "belong|belongs elsewhere" Object::Before, None;
        "NOT belong here|in *? *?" Object::Before, None;
        "go|goes to NAME" Object::Before, None;
        "go|goes elsewhere" Object::Before, None;
        "BE HANDLED *? NAME" Object::Before, None;
        "→ use|see|try NAME" Object::Before, None;
        "BE HANDLED ANOTHER" Object::Before, None;
        "BE HANDLED elsewhere" Object::Before, None;
        "has|have its|their own skill|tool|NAME" Object::Before, None;
    }
});

/// Forms at the end of a sentence that turn away what the words before them name.
pub(super) static TURNS_AWAY: LazyLock<Vec<Form>> = LazyLock::new(|| {
    forms! {
        "NOT TRIGGER IT?" Object::Before, None;
        "NOT TRIGGER IT at all" Object::Before, None;
        "SKIP IT" Object::Before, None;
        "leave|leaves it|this|me alone|out" Object::Before, None;
    }
});

/// Words that take something out of their sentence.
pub(super) static EXCEPT: LazyLock<Vec<Form>> = LazyLock::new(|| {
    forms! {
        "except|excepting|excluding|barring for|when|if|in|on|with|where|to|of?" Object::After, Plain;
        "with the exception of" Object::After, None;
        "with the sole exception of" Object::After, None;
        "other than" Object::After, None;
        "apart|aside from" Object::After, None;
        "save for" Object::After, None;
        "unless" Object::After, Unless;
        "anything|everything|all but" Object::After, Plain;
        "but|and not FIT? for|when|if|on" Object::After, Plain;
        "BUT NOT TRIGGER IT? FOR" Object::After, None;
        "but SKIP USE? IT? SKIPFOR" Object::After, None;
    }
});

/// The same without a condition before them.
pub(super) static EXCEPT_PLAINLY: LazyLock<Vec<Form>> = LazyLock::new(|| {
    forms! {
        "but not FIT? FITS?" Object::After, Plain;
        "but never FITS" Object::After, Plain;
        "but no" Object::After, Plain;
        "but it|they? DOESNOT *" Object::After, Excludes;
        "but it|they? CANNOT *" Object::After, Excludes;
    }
});

/// Begins the second half of a sentence that sends the reader to another document.
pub(super) static SENDS: LazyLock<Pattern> = LazyLock::new(|| Pattern::new("SENDS", CLASSES));

impl Form {
    /// Whether its last word is a verb that names the excluded activity.
    pub(super) fn names_a_verb(&self) -> bool {
        matches!(self.guard, Guard::Excludes | Guard::ThirdPerson)
    }

    /// Where the form ends, if it begins at this place of a sentence.
    pub(super) fn end(&self, tokens: &[Token<'_>], at: usize) -> Option<usize> {
        let end = self.pattern.end(tokens, at)?;
        let holds = match self.guard {
            Guard::None => true,
            Guard::Excludes => {
                let verb = tokens.get(end - 1)?;
                !RULES.contains(&&*verb.text) && !PHRASES.contains(&&*verb.text)
            }
            Guard::ThirdPerson => {
                let verb = tokens.get(end - 1)?;
                verb.text.ends_with('s')
                    && !verb.text.ends_with("ss")
                    && !RULES.contains(&&*verb.text)
                    || ["a", "an", "the"].contains(&&*verb.text)
            }
            Guard::Unless => {
                let is = |at: usize, words: &[&str]| {
                    tokens.get(at).is_some_and(|token| words.contains(&&*token.text))
                };
                is(0, &["use", "trigger", "apply", "load", "invoke", "works", "for"])
                    && !is(end, ASKED)
                    && !is(end + 1, ASKED)
            }
            Guard::Plain => {
                let rest = tokens.get(end..).unwrap_or_default();
                rest.first().is_none_or(|next| next.is_word() && !PHRASES.contains(&&*next.text))
                    && !rest.iter().any(|token| NEEDED.contains(&&*token.text))
            }
        };
        holds.then_some(end)
    }
}

/// Verbs whose denial tells how the document works, or its input.
const RULES: &[&str] = &[
    "need", "needs", "require", "requires", "matter", "matters", "mean", "means", "depend",
    "depends", "cost", "costs", "rely", "relies", "assume", "assumes", "hesitate", "forget",
    "worry", "wait", "guess", "skip", "stop", "care", "cares", "take", "takes", "expect",
    "presume", "have", "has", "lose", "loses", "miss", "misses", "let", "be", "know",
];

/// Words behind "not" or "no" that make another phrase of it.
const PHRASES: &[&str] = &[
    "only",
    "just",
    "merely",
    "simply",
    "sure",
    "limited",
    "necessarily",
    "yet",
    "even",
    "until",
    "matter",
    "longer",
    "doubt",
    "less",
    "more",
    "later",
];

/// Words of "unless the user asks", "unless told otherwise".
const ASKED: &[&str] = &[
    "user",
    "users",
    "asked",
    "told",
    "you",
    "explicitly",
    "otherwise",
    "instructed",
    "requested",
    "they",
    "specified",
    "stated",
    "needed",
    "necessary",
    "someone",
    "somebody",
];

/// With one of these, a denial says what the document does without.
const NEEDED: &[&str] = &["needed", "required", "necessary"];

/// Verbs without a meaning of their own for the thing that they deny.
pub(super) const GENERAL: &[&str] = &[
    "handle",
    "handles",
    "cover",
    "covers",
    "support",
    "supports",
    "address",
    "addresses",
    "include",
    "includes",
    "deal",
    "deals",
    "do",
    "does",
    "concern",
    "concerns",
    "extend",
    "extends",
    "serve",
    "serves",
    "help",
    "helps",
    "work",
    "works",
    "apply",
    "applies",
    "fit",
    "fits",
    "suit",
    "suits",
    "touch",
    "touches",
    "provide",
    "provides",
    "offer",
    "offers",
    "accept",
    "accepts",
    "treat",
    "treats",
    "take",
    "trigger",
    "triggers",
    "perform",
    "performs",
    "manage",
    "manages",
    "tackle",
    "tackles",
    "attempt",
    "attempts",
    "understand",
    "understands",
    "replace",
    "replaces",
];
