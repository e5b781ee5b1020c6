//! The forms in which English descriptions exclude something.

use std::sync::LazyLock;

use crate::lists::{Section, data, lists, sections};
use crate::words::{Pattern, Token};

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
static CLASSES: LazyLock<Vec<Section>> = LazyLock::new(|| sections(data!("exclusion_phrases.txt")));

/// `object` is the excluded phrase, and the forms are tried in their order.
macro_rules! forms {
    ($($pattern:literal $object:expr, $guard:ident;)*) => {
        vec![$(Form {
            pattern: Pattern::new($pattern, &CLASSES), object: $object, guard: Guard::$guard,
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
pub(super) static SENDS: LazyLock<Pattern> = LazyLock::new(|| Pattern::new("SENDS", &CLASSES));

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
                    && !is(end, &ASKED)
                    && !is(end + 1, &ASKED)
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

lists!("exclusion_words.txt": RULES, PHRASES, ASKED, pub(super) GENERAL);

/// With one of these, a denial says what the document does without.
const NEEDED: &[&str] = &["needed", "required", "necessary"];
