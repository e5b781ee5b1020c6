//! Dates, numbers and versions of a text in normal form, so that they can be compared across formats.

use std::collections::BTreeSet;

/// The facts of a text: `2024-03-12`, `1500`, `v2.4.1`.
///
/// A date also has its parts `2024-03` and `03-12`, which match questions that leave out a part. A
/// date such as `3/4/2024` has both readings. Numbers lose separators of thousands and trailing
/// zeros; `1.2 million` and number words below a hundred are numbers, and a range is two of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Full dates, months or quarters of a year, and days of a month, the most specific form of each
    /// mention.
    pub dates: Vec<BTreeSet<String>>,
    /// Numbers that are not part of a date or version.
    pub numbers: BTreeSet<String>,
    /// Versions such as `2.4.1`, without a leading `v`.
    pub versions: BTreeSet<String>,
}

impl Facts {
    /// Reads the facts of a text.
    pub fn of(text: &str) -> Self {
        let tokens = tokens(text);
        let mut facts = Self::default();
        let mut at = 0;
        while at < tokens.len() {
            let rest = tokens.get(at..).unwrap_or_default();
            if let Some((date, used)) = date(rest) {
                facts.dates.push(date);
                at += used;
                continue;
            }
            if let Some(token) = rest.first() {
                if let Some(version) = version(token) {
                    facts.versions.insert(version);
                } else if token.contains('-') {
                    facts.numbers.extend(token.split('-').filter_map(number));
                } else if let Some((number, used)) = number_at(rest) {
                    facts.numbers.insert(number);
                    at += used;
                    continue;
                }
            }
            at += 1;
        }
        facts
    }

    /// The normal forms of the dates, with the parts of full dates and their quarters.
    pub fn date_forms(&self) -> BTreeSet<String> {
        let forms = self.dates.iter().flatten().cloned().flat_map(with_parts);
        forms.flat_map(|form| [quarter_of(&form), Some(form)]).flatten().collect()
    }
}

/// Length of `2024-03-12`.
const FULL: usize = 10;

/// A date in normal form, followed by its parts `2024-03` and `03-12` if the date is full.
pub(crate) fn with_parts(date: String) -> Vec<String> {
    let is_full = date.len() == FULL;
    let parts = [date.get(..7), date.get(5..)].into_iter().flatten().filter(|_| is_full);
    let parts: Vec<String> = parts.map(str::to_owned).collect();
    std::iter::once(date).chain(parts).collect()
}

/// `2024-q1` for `2024-03`.
fn quarter_of(form: &str) -> Option<String> {
    let (year, month) = form.split_once('-').filter(|(year, _)| year.len() == 4)?;
    let month: u32 = month.parse().ok()?;
    Some(format!("{year}-q{}", month.div_ceil(3)))
}

pub(crate) const MONTHS: [&str; 12] =
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];

pub(crate) const MONTH_NAMES: [&str; 12] = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
];

/// Ordinals of the days of a month, from the first.
const ORDINALS: [&str; 20] = [
    "first",
    "second",
    "third",
    "fourth",
    "fifth",
    "sixth",
    "seventh",
    "eighth",
    "ninth",
    "tenth",
    "eleventh",
    "twelfth",
    "thirteenth",
    "fourteenth",
    "fifteenth",
    "sixteenth",
    "seventeenth",
    "eighteenth",
    "nineteenth",
    "twentieth",
];

const NUMBER_WORDS: [&str; 21] = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
    "twenty",
];

const TENS: [&str; 8] =
    ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"];

/// Words that multiply the number before them, with the number of zeros that they add.
const SCALES: [(&str, usize); 4] =
    [("hundred", 2), ("thousand", 3), ("million", 6), ("billion", 9)];

/// Words and numbers in lower case; `.`, `,`, `/`, `-` and `:` belong to a token between digits.
fn tokens(text: &str) -> Vec<String> {
    let mut tokens = Vec::new();
    let mut token = String::new();
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        let joins = matches!(letter, '.' | ',' | '/' | '-' | ':')
            && token.ends_with(|last: char| last.is_ascii_digit())
            && letters.peek().is_some_and(char::is_ascii_digit);
        // A unit without a space, as in `20kg`, is a token of its own; `v2` and `h264` stay whole.
        let unit =
            letter.is_alphabetic() && token.starts_with(|first: char| first.is_ascii_digit());
        if joins || (letter.is_alphanumeric() && !unit) {
            token.extend(letter.to_lowercase());
            continue;
        }
        if !token.is_empty() {
            tokens.push(std::mem::take(&mut token));
        }
        if letter.is_alphanumeric() {
            token.extend(letter.to_lowercase());
        }
    }
    if !token.is_empty() {
        tokens.push(token);
    }
    tokens
}

/// The date at the beginning of the tokens with the number of tokens that it takes.
fn date(tokens: &[String]) -> Option<(BTreeSet<String>, usize)> {
    let first = tokens.first()?;
    if let Some(forms) = numeric_date(first) {
        return Some((forms, 1));
    }
    if let Some((form, used)) = quarter(tokens) {
        return Some((BTreeSet::from([form]), used));
    }
    let only = |form: String| BTreeSet::from([form]);
    let year_at = |at: usize| tokens.get(at).and_then(|token| year(token));
    if let Some(month) = month(first) {
        let after = 1 + usize::from(tokens.get(1).is_some_and(|token| token == "the"));
        let (day, used) =
            day_at(tokens, after).map_or((None, 1), |(day, used)| (Some(day), after + used));
        return match (day, year_at(used)) {
            (Some(day), Some(year)) => {
                Some((only(format!("{year}-{month:02}-{day:02}")), used + 1))
            }
            (Some(day), None) => Some((only(format!("{month:02}-{day:02}")), used)),
            (None, Some(year)) => Some((only(format!("{year}-{month:02}")), 2)),
            // `may` and `march` alone are words.
            (None, None) => None,
        };
    }
    let (day, mut used) = day_at(tokens, 0)?;
    let has_of = tokens.get(used).is_some_and(|token| token == "of");
    used += usize::from(has_of);
    let name = tokens.get(used)?;
    let month = month(name)?;
    used += 1;
    let is_word = !first.starts_with(|letter: char| letter.is_ascii_digit());
    match year_at(used) {
        // `the second may` and `first march` are words.
        None if is_word && !has_of && matches!(name.as_str(), "may" | "march") => None,
        Some(year) => Some((only(format!("{year}-{month:02}-{day:02}")), used + 1)),
        None => Some((only(format!("{month:02}-{day:02}")), used)),
    }
}

/// Whether a token is `q1` to `q4`.
pub(crate) fn is_quarter(token: &str) -> bool {
    matches!(token, "q1" | "q2" | "q3" | "q4")
}

/// `Q3 2024`, `2024 Q3` and `third quarter of 2024`, with the number of tokens that it takes.
fn quarter(tokens: &[String]) -> Option<(String, usize)> {
    let token = |at: usize| tokens.get(at).map(String::as_str);
    let named =
        |at: usize| token(at).filter(|token| is_quarter(token))?.get(1..)?.parse::<u32>().ok();
    if let Some(year) = token(0).and_then(year) {
        return Some((format!("{year}-q{}", named(1)?), 2));
    }
    let (number, used) = if let Some(number) = named(0) {
        (number, 1)
    } else {
        let (number, used) = day_at(tokens, 0).filter(|(number, _)| *number <= 4)?;
        token(used).filter(|word| *word == "quarter")?;
        (number, used + 1)
    };
    let used = used + usize::from(token(used) == Some("of"));
    let year = token(used).and_then(year)?;
    Some((format!("{year}-q{number}"), used + 1))
}

/// `2024-03-12`, `2024/3/12`, `20240312`, `12.3.2024`, `3/12/2024`, `2024-03`; with slashes the
/// month may be first.
fn numeric_date(token: &str) -> Option<BTreeSet<String>> {
    let is_compact = token.len() == 8 && token.bytes().all(|byte| byte.is_ascii_digit());
    let parts: Vec<&str> = if is_compact {
        [token.get(..4), token.get(4..6), token.get(6..)].into_iter().flatten().collect()
    } else {
        token.split(token.chars().find(|letter| matches!(letter, '-' | '/' | '.'))?).collect()
    };
    if let [first, second] = parts.as_slice() {
        // `2024.12` is a number, and `12/2024` could be a ratio.
        let can_be_month = second.len() == 2 && !token.contains('.');
        let month: u32 = second.parse().ok().filter(|_| can_be_month)?;
        let year = year(first).filter(|_| (1..=12).contains(&month))?;
        return Some(BTreeSet::from([format!("{year}-{month:02}")]));
    }
    let [first, second, third] = parts.as_slice() else { return None };
    let form = |year: &str, month: &str, day: &str| {
        let (month, day): (u32, u32) = (month.parse().ok()?, day.parse().ok()?);
        let fits = (1..=12).contains(&month) && (1..=31).contains(&day);
        fits.then(|| format!("{year}-{month:02}-{day:02}"))
    };
    if year(first).is_some() {
        return form(first, second, third).map(|form| BTreeSet::from([form]));
    }
    year(third).filter(|_| !is_compact)?;
    let mut forms: BTreeSet<String> = form(third, second, first).into_iter().collect();
    if token.contains('/') {
        forms.extend(form(third, first, second));
    }
    (!forms.is_empty()).then_some(forms)
}

fn month(token: &str) -> Option<usize> {
    let place = MONTH_NAMES.iter().position(|name| *name == token);
    let place = place.or_else(|| MONTHS.iter().position(|name| *name == token));
    place.or_else(|| (token == "sept").then_some(8)).map(|place| place + 1)
}

fn year(token: &str) -> Option<&str> {
    let number: u32 = token.parse().ok()?;
    (token.len() == 4 && (1_000..=2_999).contains(&number)).then_some(token)
}

/// The day of a month at a place, with the number of tokens that it takes: `12`, `12th`, `twelfth`,
/// `twenty-first`.
fn day_at(tokens: &[String], at: usize) -> Option<(u32, usize)> {
    let token = |place: usize| tokens.get(place).map(String::as_str);
    let ordinal = |place| {
        let found = ORDINALS.iter().position(|name| Some(*name) == token(place));
        found.and_then(|position| u32::try_from(position + 1).ok())
    };
    let (day, used) = match token(at)? {
        "twenty" => (20 + ordinal(at + 1).filter(|day| *day < 10)?, 2),
        "thirty" => (30 + ordinal(at + 1).filter(|day| *day == 1)?, 2),
        "thirtieth" => (30, 1),
        digits if digits.len() <= 2 && digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            let is_marked = matches!(token(at + 1), Some("st" | "nd" | "rd" | "th"));
            (digits.parse().ok()?, 1 + usize::from(is_marked))
        }
        _ => (ordinal(at)?, 1),
    };
    (1..=31).contains(&day).then_some((day, used))
}

/// `2.4.1` and `v2`; two numbers with a point are a number.
fn version(token: &str) -> Option<String> {
    let bare = token.strip_prefix('v').unwrap_or(token);
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let parts = bare.split('.').count();
    let numeric = bare.split('.').all(digits);
    (numeric && (parts > 2 || bare.len() < token.len())).then(|| bare.to_owned())
}

/// The number at the beginning of the tokens with the number of tokens that it takes: `twenty-five`
/// is `25`, and `1.2 million` is `1200000`.
fn number_at(tokens: &[String]) -> Option<(String, usize)> {
    let token = |at: usize| tokens.get(at).map(String::as_str);
    let place = |words: &[&str], at: usize| words.iter().position(|word| Some(*word) == token(at));
    let (value, used) = match place(&TENS, 0) {
        Some(tens) => {
            let one = place(&NUMBER_WORDS, 1).filter(|one| (1..10).contains(one));
            let used = 1 + usize::from(one.is_some());
            ((10 * (tens + 2) + one.unwrap_or_default()).to_string(), used)
        }
        None => (number(token(0)?)?, 1),
    };
    let scale = SCALES.iter().find(|(word, _)| Some(*word) == token(used));
    let is_plain = value.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    match scale.filter(|_| is_plain) {
        Some((_, zeros)) => Some((times_ten(&value, *zeros), used + 1)),
        None => Some((value, used)),
    }
}

/// A number in normal form times ten to the power of `zeros`.
fn times_ten(value: &str, zeros: usize) -> String {
    let (whole, part) = value.split_once('.').unwrap_or((value, ""));
    let mut digits = format!("{whole}{part:0<zeros$}");
    digits.insert(whole.len() + zeros, '.');
    number(digits.trim_end_matches('.')).unwrap_or(digits)
}

/// `1,500` is `1500`, `2.50` is `2.5`, `five` is `5`.
fn number(token: &str) -> Option<String> {
    if let Some(value) = NUMBER_WORDS.iter().position(|word| *word == token) {
        return Some(value.to_string());
    }
    if !token.starts_with(|first: char| first.is_ascii_digit()) {
        return None;
    }
    let groups: Vec<&str> = token.split(',').collect();
    let grouped = groups.len() > 1
        && groups
            .iter()
            .skip(1)
            .all(|group| group.split('.').next().is_some_and(|whole| whole.len() == 3));
    let plain = if grouped { token.replace(',', "") } else { token.replace(',', ".") };
    if !plain.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        return Some(token.to_owned()); // a time or a ratio, as it is written
    }
    let value = match plain.split_once('.') {
        Some((whole, part)) => {
            let part = part.trim_end_matches('0');
            if part.is_empty() { whole.to_owned() } else { format!("{whole}.{part}") }
        }
        None => plain,
    };
    let trimmed = value.trim_start_matches('0');
    Some(if trimmed.is_empty() || trimmed.starts_with('.') {
        format!("0{trimmed}")
    } else {
        trimmed.to_owned()
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn dates(text: &str) -> Vec<Vec<String>> {
        Facts::of(text).dates.into_iter().map(|forms| forms.into_iter().collect()).collect()
    }

    #[test]
    fn formats_of_one_date_have_one_form() {
        for text in [
            "2031-07-09",
            "2031/7/9",
            "9.7.2031",
            "9 July 2031",
            "July 9, 2031",
            "jul 9th 2031",
            "the 9th of July 2031",
            "the ninth of July 2031",
            "July the ninth 2031",
            "20310709",
        ] {
            assert_eq!(dates(text), [["2031-07-09"]], "{text}");
        }
        assert_eq!(dates("7/9/2031"), [["2031-07-09", "2031-09-07"]]);
        assert_eq!(dates("25/7/2031"), [["2031-07-25"]]);
        assert_eq!(dates("part 20311301, 99990101 and 12072031"), [[""; 0]; 0]);
    }

    #[test]
    fn quarters_have_one_form_and_contain_their_days() {
        for text in ["Q3 2031", "2031-Q3", "the third quarter of 2031", "3rd quarter 2031"] {
            assert_eq!(dates(text), [["2031-q3"]], "{text}");
        }
        assert_eq!(
            dates("q5 2031; a third quarter; quarter 2031; 9th quarter of 2031"),
            [[""; 0]; 0]
        );
        let forms = |text: &str| Facts::of(text).date_forms();
        assert!(forms("9 July 2031").contains("2031-q3"));
        assert!(forms("in September 2031").contains("2031-q3"));
        assert!(forms("in October 2031").contains("2031-q4"));
        assert_eq!(forms("on 9 July").into_iter().collect::<Vec<_>>(), ["07-09"]);
    }

    #[test]
    fn words_and_scales_are_part_of_a_number() {
        let numbers = |text: &str| Facts::of(text).numbers.into_iter().collect::<Vec<_>>();
        assert_eq!(numbers("twenty-five; forty two; ninety"), ["25", "42", "90"]);
        assert_eq!(numbers("twenty twenty, thirty ten"), ["10", "20", "30"]);
        assert_eq!(numbers("1.2 million, 1,200,000 and 1.20 million"), ["1200000"]);
        assert_eq!(numbers("two hundred; 3 thousand; 1.2345 thousand"), ["1234.5", "200", "3000"]);
        assert_eq!(numbers("half a million, hundred"), [""; 0]);
        assert_eq!(numbers("70-200 mm, open 9:30"), ["200", "70", "9:30"]);
    }

    #[test]
    fn parts_of_dates_have_forms_of_their_own() {
        assert_eq!(dates("in July 2031"), [["2031-07"]]);
        assert_eq!(dates("2031-07 and 2031/07"), [["2031-07"], ["2031-07"]]);
        assert_eq!(dates("2031-13, 2031-7, 2031.07 and 12/2031"), [[""; 0]; 0]);
        assert_eq!(dates("on 9 July"), [["07-09"]]);
        assert_eq!(dates("on the twenty-first of May"), [["05-21"]]);
        assert_eq!(dates("the second may walk; you may march; thirty second may"), [[""; 0]; 0]);
        let forms = Facts::of("9 July 2031").date_forms();
        let expected = ["07-09", "2031-07", "2031-07-09", "2031-q3"];
        assert_eq!(forms.into_iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn numbers_and_versions_have_one_form() {
        let facts = Facts::of("1,500 kg, 2.50 m, 20kg, five, 007, v3 and 4.10.1");
        let numbers: Vec<&str> = facts.numbers.iter().map(String::as_str).collect();
        assert_eq!(numbers, ["1500", "2.5", "20", "5", "7"]);
        let versions: Vec<&str> = facts.versions.iter().map(String::as_str).collect();
        assert_eq!(versions, ["3", "4.10.1"]);
    }

    proptest! {
        #[test]
        fn any_text_has_facts(text in "\\PC{0,60}") {
            let facts = Facts::of(&text);
            prop_assert!(facts.date_forms().iter().all(|form| (5..=10).contains(&form.len())));
        }

        #[test]
        fn every_day_is_read_in_every_format(year in 1000..=2999_u32, month in 1..=12_usize, day in 13..=31_u32) {
            let name = MONTH_NAMES[month - 1];
            let iso = format!("{year}-{month:02}-{day:02}");
            for text in [
                iso.clone(), format!("{day} {name} {year}"), format!("{name} {day}, {year}"),
                format!("{day}.{month}.{year}"), format!("{month}/{day}/{year}"),
            ] {
                prop_assert_eq!(&dates(&text), &[[iso.clone()]]);
            }
        }
    }
}
