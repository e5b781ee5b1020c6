//! Coverage: how much of what a question asks for occurs in a document.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use crate::common_words::information;
use crate::evidence::{Evidence, EvidenceWeights};
use crate::facts::{Facts, is_quarter};
use crate::stage1::{Blend, Coverage, Scored};
use crate::text::Analyzer;

/// Adds to each candidate how much of the query its text covers, and as evidence the share of the
/// query's dates that the text lacks. The weights add the evidence to a blend; none keeps it.
pub fn with_coverage(
    candidates: Vec<Scored>,
    query: &str,
    texts: &BTreeMap<String, String>,
    analyzer: Analyzer,
    weights: Option<(&EvidenceWeights, &Blend)>,
) -> Vec<Scored> {
    let question = Question::new(query, analyzer);
    let covered = |candidate: Scored| {
        let Some(text) = texts.get(&candidate.id) else { return candidate };
        let added = Evidence { other_date: question.missing_dates(text), ..Evidence::default() };
        let in_blend = weights.map_or(0.0, |(weights, blend)| weights.in_blend(&added, blend));
        let blend = candidate.blend + in_blend;
        let evidence = Evidence { other_date: added.other_date, ..candidate.evidence };
        Scored { coverage: Some(question.coverage(text)), evidence, blend, ..candidate }
    };
    candidates.into_iter().map(covered).collect()
}

/// What a query asks for, prepared to be compared with documents.
#[derive(Clone, Debug)]
pub struct Question {
    analyzer: Analyzer,
    /// Weights of the words, by stem.
    words: BTreeMap<String, f64>,
    /// Stems of words with a capital inside the query.
    names: BTreeSet<String>,
    facts: Facts,
}

impl Question {
    /// Reads a query.
    pub fn new(query: &str, analyzer: Analyzer) -> Self {
        let facts = Facts::of(query);
        // `q3` of a date is compared as a date, which has other spellings.
        let is_in_date = |stem: &str| !facts.dates.is_empty() && is_quarter(stem);
        let words = analyzer
            .terms(query)
            .into_iter()
            .filter(|stem| !stem.starts_with(|first: char| first.is_ascii_digit()))
            .filter(|stem| !is_in_date(stem))
            .map(|stem| (stem.clone(), information(&stem)))
            .filter(|(_, weight)| *weight > 0.0)
            .collect();
        let names = query
            .split_whitespace()
            .skip(1)
            .filter(|word| word.chars().any(char::is_uppercase))
            .flat_map(|word| analyzer.terms(word))
            .filter(|stem| information(stem) >= 1.0 && !is_in_date(stem))
            .collect();
        Self { analyzer, words, names, facts }
    }

    /// Compares the query with a document.
    pub fn coverage(&self, text: &str) -> Coverage {
        let terms: HashSet<String> = self.analyzer.terms(text).into_iter().collect();
        let total: f64 = self.words.values().sum();
        let lacking = || self.words.iter().filter(|(stem, _)| !terms.contains(*stem));
        let lacked: f64 = lacking().map(|(_, weight)| weight).sum();
        let missing = lacking().map(|(_, weight)| *weight).fold(0.0, f64::max);
        Coverage {
            covered: if total > 0.0 { 1.0 - lacked / total } else { 1.0 },
            rarest: 1.0 - missing,
            facts: 1.0 - self.missing_facts(text, &terms),
        }
    }

    /// The share of the query's dates that a document lacks; 0 for a query without a date.
    pub fn missing_dates(&self, text: &str) -> f64 {
        let own = &self.facts.dates;
        if own.is_empty() {
            return 0.0;
        }
        let dates = Facts::of(text).date_forms();
        own.iter().filter(|forms| forms.is_disjoint(&dates)).count() as f64 / own.len() as f64
    }

    fn missing_facts(&self, text: &str, terms: &HashSet<String>) -> f64 {
        let own = &self.facts;
        let count = own.dates.len() + own.numbers.len() + own.versions.len() + self.names.len();
        if count == 0 {
            return 0.0;
        }
        let facts = Facts::of(text);
        let dates = facts.date_forms();
        // `3.4` is a version in one text and a number in the other.
        let numeric =
            |value: &String| facts.numbers.contains(value) || facts.versions.contains(value);
        let missing = own.dates.iter().filter(|forms| forms.is_disjoint(&dates)).count()
            + own.numbers.iter().chain(&own.versions).filter(|value| !numeric(value)).count()
            + self.names.iter().filter(|name| !terms.contains(*name)).count();
        missing as f64 / count as f64
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn coverage(query: &str, text: &str) -> Coverage {
        Question::new(query, Analyzer::new("english").unwrap()).coverage(text)
    }

    #[test]
    fn a_document_with_all_words_covers_the_query() {
        let found = coverage("does the kiln have a lid", "The kiln's lid is made of steel.");
        assert_eq!(found, Coverage { covered: 1.0, rarest: 1.0, facts: 1.0 });
    }

    #[test]
    fn a_missing_rare_word_weighs_more_than_a_missing_common_one() {
        let rare = coverage("does the kiln support bluetooth", "The kiln is supported by legs.");
        let common = coverage("does the kiln support bluetooth", "The kiln talks bluetooth.");
        assert_eq!((rare.rarest, common.rarest), (0.0, 0.5));
        assert!(rare.covered < common.covered);
    }

    #[test]
    fn facts_match_in_another_format() {
        let query = "what happened in Orlen on 9 July 2031 with 1500 crates";
        let text = "2031-07-09, Orlen: 1,500 crates arrived.";
        assert_eq!(coverage(query, text).facts, 1.0);
        let other = "2031-07-10, Orlen: 1,500 crates arrived.";
        assert!((coverage(query, other).facts - 2.0 / 3.0).abs() < 1e-12);
        assert_eq!(coverage("what changed in 4.2", "Version 4.2: nothing.").facts, 1.0);
        let quarter = coverage("what arrived in Q3 2031", "2031-07-09: crates arrived.");
        assert_eq!((quarter.facts, quarter.rarest), (1.0, 1.0));
        assert_eq!(coverage("what arrived in Q3", "Crates arrived.").facts, 0.0);
    }

    #[test]
    fn a_lacking_date_is_evidence_against_a_candidate() {
        let scored = |id: &str| Scored { id: id.to_owned(), blend: 0.5, ..Scored::default() };
        let texts = BTreeMap::from([
            ("may".to_owned(), "4 May 2031: the kiln was refused.".to_owned()),
            ("june".to_owned(), "2031-06-04: the kiln was bought.".to_owned()),
        ]);
        let english = Analyzer::new("english").unwrap();
        let blend = Blend::default();
        let added = |query: &str, weights: Option<&EvidenceWeights>| {
            let candidates = vec![scored("may"), scored("june"), scored("unread")];
            let weights = weights.map(|weights| (weights, &blend));
            let found = with_coverage(candidates, query, &texts, english, weights);
            found
                .iter()
                .map(|candidate| (candidate.evidence.other_date, candidate.blend < 0.5))
                .collect::<Vec<_>>()
        };
        let weights = EvidenceWeights { other_date: -4.0, ..EvidenceWeights::default() };
        let asked = "what was decided on 4 June 2031";
        assert_eq!(added(asked, None), [(1.0, false), (0.0, false), (0.0, false)]);
        assert_eq!(added(asked, Some(&weights)), [(1.0, true), (0.0, false), (0.0, false)]);
        assert_eq!(added("what about the kiln", Some(&weights)), [(0.0, false); 3]);
    }

    #[test]
    fn words_of_a_level_weigh_as_much() {
        assert_eq!(information("get"), 0.0);
        assert_eq!(information("exampl"), 0.15);
        assert_eq!(information("softwar"), 0.5);
        assert_eq!(information("zymurgi"), 1.0);
    }

    proptest! {
        #[test]
        fn shares_are_shares_and_a_text_covers_itself(query in "\\PC{0,40}", text in "\\PC{0,60}") {
            let Coverage { covered, rarest, facts } = coverage(&query, &text);
            for share in [covered, rarest, facts] {
                prop_assert!((0.0..=1.0).contains(&share));
            }
            let own = coverage(&query, &query);
            prop_assert_eq!((own.covered, own.rarest, own.facts), (1.0, 1.0, 1.0));
        }

        #[test]
        fn more_text_never_covers_less(query in "[a-z ]{0,30}", text in "[a-z ]{0,40}", more in "[a-z ]{0,20}") {
            let (less, full) = (coverage(&query, &text), coverage(&query, &format!("{text} {more}")));
            prop_assert!(full.covered >= less.covered - 1e-12 && full.rarest >= less.rarest);
        }
    }
}
