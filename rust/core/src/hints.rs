//! Hints of an index: triggers and examples of its documents, and the evidence that they give about a
//! query.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::bm25::Bm25;
use crate::dense::unit;
use crate::error::Result;
use crate::evidence::Evidence;
use crate::text::Analyzer;

/// Longer triggers, in terms, are not indexed: a query hardly repeats them.
const LONGEST_TRIGGER: usize = 8;

/// A trigger of one term has this share of the worth of a longer trigger, because single words occur
/// in prompts about other things.
const ONE_TERM: f64 = 0.5;

/// Cosines with an example at which the similarity is 0 and that of a paraphrase. Prompts that only
/// share their phrasing have cosines of up to 0.6, and paraphrases of 0.8 and more.
const SIMILAR: (f64, f64) = (0.55, 0.85);

/// The similarity of a paraphrase; that of a prompt with the same words is 1.
const PARAPHRASE: f64 = 0.47;

/// From this similarity on, an example makes its document a candidate.
const RECALLS: f64 = 0.0625;

/// The vectors of a document beside that of its head, in the order of the texts. A text may have no
/// vector, and the texts behind the end of a list have none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HintVectors {
    /// Those of the record's examples.
    pub examples: Vec<Option<Vec<f32>>>,
    /// Those of the record's counterexamples.
    pub counterexamples: Vec<Option<Vec<f32>>>,
}

/// A vector of length 1 in 8 bits: `step` times its levels.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Rounded {
    step: f32,
    levels: Vec<i8>,
}

impl Rounded {
    fn of(unit: &[f32]) -> Self {
        let largest = unit.iter().fold(0.0_f32, |largest, value| largest.max(value.abs()));
        let step = (largest / f32::from(i8::MAX)).max(f32::MIN_POSITIVE);
        #[expect(clippy::cast_possible_truncation, reason = "a level is from -127 to 127")]
        let levels = unit.iter().map(|value| (value / step).round() as i8).collect();
        Self { step, levels }
    }

    fn vector(&self) -> Vec<f32> {
        self.levels.iter().map(|level| f32::from(*level) * self.step).collect()
    }

    /// The cosine with a vector of length 1.
    fn cosine(&self, unit: &[f32]) -> f64 {
        let pairs = self.levels.iter().zip(unit);
        let sum: f64 = pairs.map(|(level, value)| f64::from(*level) * f64::from(*value)).sum();
        let cosine = sum * f64::from(self.step);
        if cosine.is_finite() { cosine.clamp(-1.0, 1.0) } else { 0.0 }
    }
}

/// A text of a document with its distinct terms, and its vector if the index has vectors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Entry {
    terms: Vec<String>,
    vector: Option<Rounded>,
}

impl Entry {
    pub(crate) fn of(
        owner: &str,
        text: &str,
        vector: Option<&[f32]>,
        analyzer: Analyzer,
        dimension: usize,
    ) -> Result<Self> {
        let vector = vector.filter(|_| dimension > 0);
        let vector = vector.map(|vector| unit(owner, vector, dimension)).transpose()?;
        let terms = distinct(&analyzer.terms(text));
        Ok(Self { terms, vector: vector.map(|unit| Rounded::of(&unit)) })
    }

    fn list(
        owner: &str,
        texts: &[String],
        vectors: &[Option<Vec<f32>>],
        analyzer: Analyzer,
        dimension: usize,
    ) -> Result<Vec<Self>> {
        let entry = |(place, text): (usize, &String)| {
            let vector = vectors.get(place).and_then(Option::as_deref);
            Self::of(owner, text, vector, analyzer, dimension)
        };
        texts.iter().enumerate().map(entry).collect()
    }

    fn has_terms_of(&self, other: &Self) -> bool {
        self.terms.len() == other.terms.len()
            && self.terms.iter().all(|term| other.terms.contains(term))
    }

    fn cosine(&self, query: &Query<'_>) -> Option<f64> {
        self.vector.as_ref().zip(query.unit).map(|(vector, unit)| vector.cosine(unit))
    }
}

fn distinct(terms: &[String]) -> Vec<String> {
    let mut seen = HashSet::new();
    terms.iter().filter(|term| seen.insert(term.as_str())).cloned().collect()
}

/// A list of prompts, and the entries that a query is compared with, an entry for each prompt.
pub(crate) struct Prompts<'a> {
    pub(crate) texts: &'a mut Vec<String>,
    pub(crate) entries: &'a mut Vec<Entry>,
}

impl Prompts<'_> {
    /// Adds a prompt; returns whether it was new.
    pub(crate) fn add(&mut self, prompt: &str, entry: Entry) -> bool {
        let is_new = !self.texts.iter().any(|text| text == prompt);
        if is_new {
            self.texts.push(prompt.to_owned());
            self.entries.push(entry);
        }
        is_new
    }

    /// Removes a prompt and those with the same terms, which no query tells apart from it; returns
    /// whether there were any. A prompt without terms is only the same as its own text.
    pub(crate) fn remove(&mut self, prompt: &str, entry: &Entry) -> bool {
        let is_same = |(text, other): (&String, &Entry)| {
            text == prompt || (!entry.terms.is_empty() && other.has_terms_of(entry))
        };
        let removed: Vec<bool> = self.texts.iter().zip(&*self.entries).map(is_same).collect();
        let mut places = removed.iter();
        self.texts.retain(|_| places.next() != Some(&true));
        let mut places = removed.iter();
        self.entries.retain(|_| places.next() != Some(&true));
        removed.contains(&true)
    }
}

/// The texts of one document that a query is compared with.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Texts {
    examples: Vec<Entry>,
    counterexamples: Vec<Entry>,
}

/// The texts of a document's hints.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hinted<'a> {
    pub(crate) owner: &'a str,
    pub(crate) triggers: &'a [String],
    pub(crate) examples: &'a [String],
    pub(crate) counterexamples: &'a [String],
}

/// The hints of all documents, by slot.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Hints {
    /// The documents with each trigger; its terms are joined by blanks.
    triggers: BTreeMap<String, BTreeSet<u32>>,
    texts: BTreeMap<u32, Arc<Texts>>,
    /// Prompts that no document fits.
    pub(crate) nothing: Vec<Entry>,
}

/// A query as the hints are compared with it.
#[derive(Clone, Copy)]
pub(crate) struct Query<'a> {
    /// Terms in reading order.
    pub(crate) terms: &'a [String],
    /// The vector, of length 1.
    pub(crate) unit: Option<&'a [f32]>,
    pub(crate) bm25: &'a Bm25,
}

impl Hints {
    pub(crate) fn add(
        &mut self,
        slot: u32,
        hinted: Hinted<'_>,
        vectors: &HintVectors,
        analyzer: Analyzer,
        dimension: usize,
    ) -> Result<()> {
        let owner = format!("a hint of document {:?}", hinted.owner);
        let list = |texts, vectors| Entry::list(&owner, texts, vectors, analyzer, dimension);
        let texts = Texts {
            examples: list(hinted.examples, &vectors.examples)?,
            counterexamples: list(hinted.counterexamples, &vectors.counterexamples)?,
        };
        for key in keys(hinted.triggers, analyzer) {
            self.triggers.entry(key).or_default().insert(slot);
        }
        if texts != Texts::default() {
            self.texts.insert(slot, Arc::new(texts));
        }
        Ok(())
    }

    pub(crate) fn remove(&mut self, slot: u32, hinted: Hinted<'_>, analyzer: Analyzer) {
        for key in keys(hinted.triggers, analyzer) {
            if let Some(slots) = self.triggers.get_mut(&key) {
                slots.remove(&slot);
                if slots.is_empty() {
                    self.triggers.remove(&key);
                }
            }
        }
        self.texts.remove(&slot);
    }

    /// The examples of a document, or its counterexamples.
    pub(crate) fn prompts_of(&mut self, slot: u32, should_select: bool) -> &mut Vec<Entry> {
        let texts = Arc::make_mut(self.texts.entry(slot).or_default());
        if should_select { &mut texts.examples } else { &mut texts.counterexamples }
    }

    /// The documents with an example of the same terms.
    pub(crate) fn with_example(&self, entry: &Entry) -> Vec<u32> {
        let texts = self.texts.iter();
        texts
            .filter(|(_, texts)| texts.examples.iter().any(|other| other.has_terms_of(entry)))
            .map(|(slot, _)| *slot)
            .collect()
    }

    /// The documents with a trigger of the same terms.
    pub(crate) fn with_trigger(&self, trigger: &str, analyzer: Analyzer) -> Vec<u32> {
        let slots = self.triggers.get(&analyzer.terms(trigger).join(" "));
        slots.map(|slots| slots.iter().copied().collect()).unwrap_or_default()
    }

    /// The hints of these documents alone, numbered from 0.
    pub(crate) fn compacted(&self, live: &[u32]) -> Self {
        let numbers: HashMap<u32, u32> = live.iter().copied().zip(0..).collect();
        let triggers = self.triggers.iter().filter_map(|(key, slots)| {
            let slots: BTreeSet<u32> =
                slots.iter().filter_map(|slot| numbers.get(slot).copied()).collect();
            (!slots.is_empty()).then(|| (key.clone(), slots))
        });
        let texts = self.texts.iter();
        let texts =
            texts.filter_map(|(slot, texts)| Some((*numbers.get(slot)?, Arc::clone(texts))));
        Self { triggers: triggers.collect(), texts: texts.collect(), nothing: self.nothing.clone() }
    }

    /// The vectors of a document's hints.
    pub(crate) fn vectors(&self, slot: u32) -> HintVectors {
        let of = |entries: &[Entry]| -> Vec<Option<Vec<f32>>> {
            entries.iter().map(|entry| entry.vector.as_ref().map(Rounded::vector)).collect()
        };
        let vectors = |texts: &Arc<Texts>| HintVectors {
            examples: of(&texts.examples),
            counterexamples: of(&texts.counterexamples),
        };
        self.texts.get(&slot).map(vectors).unwrap_or_default()
    }

    /// Whether every slot is below the number of documents, and every vector has the dimension.
    pub(crate) fn fits(&self, documents: usize, dimension: usize) -> bool {
        let is_slot = |slot: &u32| (*slot as usize) < documents;
        let fits = |entry: &Entry| {
            entry
                .vector
                .as_ref()
                .is_none_or(|vector| vector.levels.len() == dimension && vector.step.is_finite())
        };
        let entries = self
            .texts
            .values()
            .flat_map(|texts| texts.examples.iter().chain(&texts.counterexamples));
        self.triggers.values().flatten().all(is_slot)
            && self.texts.keys().all(is_slot)
            && entries.chain(&self.nothing).all(fits)
    }

    /// What the hints say about a query.
    pub(crate) fn ask(&self, query: Query<'_>) -> Result<Asked> {
        let mut triggers: BTreeMap<u32, f64> = BTreeMap::new();
        for (start, first) in query.terms.iter().enumerate() {
            let mut key = first.clone();
            for next in start + 1..=start + LONGEST_TRIGGER {
                let Some((found, slots)) = self.triggers.range::<String, _>(&key..).next() else {
                    break;
                };
                if *found == key {
                    let terms = query.terms.get(start..next).unwrap_or_default();
                    let worth = worth(terms, slots.len(), query.bm25)?;
                    for slot in slots {
                        let best = triggers.entry(*slot).or_default();
                        *best = best.max(worth);
                    }
                } else if !found.starts_with(&key) {
                    break;
                }
                let Some(term) = query.terms.get(next) else { break };
                key = format!("{key} {term}");
            }
        }
        let mut examples = BTreeMap::new();
        let mut counterexamples = BTreeMap::new();
        for (slot, texts) in &self.texts {
            for (found, entries) in
                [(&mut examples, &texts.examples), (&mut counterexamples, &texts.counterexamples)]
            {
                let similarity = similarity(entries, &query)?;
                if similarity > 0.0 {
                    found.insert(*slot, similarity);
                }
            }
        }
        let nothing = similarity(&self.nothing, &query)?;
        Ok(Asked { triggers, examples, counterexamples, nothing })
    }
}

/// The hints about one query, by slot.
pub(crate) struct Asked {
    triggers: BTreeMap<u32, f64>,
    examples: BTreeMap<u32, f64>,
    counterexamples: BTreeMap<u32, f64>,
    nothing: f64,
}

impl Asked {
    /// The documents that are candidates because of their hints, the best documents of each kind.
    pub(crate) fn recalled(&self, most: usize) -> BTreeSet<u32> {
        let best = |found: &BTreeMap<u32, f64>| {
            let mut found: Vec<(u32, f64)> = found
                .iter()
                .map(|(slot, value)| (*slot, *value))
                .filter(|(_, value)| *value >= RECALLS)
                .collect();
            found.sort_by(|left, right| right.1.total_cmp(&left.1).then(left.0.cmp(&right.0)));
            found.into_iter().take(most).map(|(slot, _)| slot)
        };
        best(&self.triggers).chain(best(&self.examples)).collect()
    }

    /// The evidence about a document.
    pub(crate) fn evidence(&self, slot: u32) -> Evidence {
        let of = |found: &BTreeMap<u32, f64>| found.get(&slot).copied().unwrap_or_default();
        Evidence {
            trigger: of(&self.triggers),
            example: of(&self.examples),
            counterexample: of(&self.counterexamples).max(self.nothing),
            ..Evidence::default()
        }
    }
}

/// The keys of triggers: their terms joined by blanks.
fn keys(triggers: &[String], analyzer: Analyzer) -> BTreeSet<String> {
    let terms = triggers.iter().map(|trigger| analyzer.terms(trigger));
    terms
        .filter(|terms| (1..=LONGEST_TRIGGER).contains(&terms.len()))
        .map(|terms| terms.join(" "))
        .collect()
}

/// The worth of a trigger in [0, 1]: (1 - ln n / ln(N + 1))^2, and half of it for a single term.
///
/// n is the number of documents that share it: those that list it, or those whose heads have its
/// rarest term, whichever are more. N is the number of documents.
fn worth(terms: &[String], sharing: usize, bm25: &Bm25) -> Result<f64> {
    let mut in_heads = usize::MAX;
    for term in terms {
        in_heads = in_heads.min(bm25.heads_with(term)?);
    }
    let share = (sharing.max(in_heads).max(1) as f64).ln() / (bm25.documents() as f64).ln_1p();
    let worth = (1.0 - share).max(0.0).powi(2);
    Ok(if terms.len() == 1 { ONE_TERM * worth } else { worth })
}

/// The similarity of a query to the nearest of several prompts, in [0, 1]: 1 for the same terms,
/// else the share of the cosine between two bounds, or without vectors the square of the share of
/// terms that both have, weighted by idf.
fn similarity(entries: &[Entry], query: &Query<'_>) -> Result<f64> {
    let terms: BTreeSet<&str> = query.terms.iter().map(String::as_str).collect();
    let mut best = 0.0_f64;
    for entry in entries {
        let same = entry.terms.len() == terms.len()
            && !terms.is_empty()
            && entry.terms.iter().all(|term| terms.contains(term.as_str()));
        let found = match entry.cosine(query) {
            _ if same => 1.0,
            Some(cosine) => PARAPHRASE * ramp(cosine, SIMILAR),
            None => PARAPHRASE * shared(&entry.terms, &terms, query.bm25)?.powi(2),
        };
        best = best.max(found);
    }
    Ok(best)
}

/// The weight of the terms in both sets over that of the terms in either, by idf.
fn shared(terms: &[String], others: &BTreeSet<&str>, bm25: &Bm25) -> Result<f64> {
    let both = terms.iter().map(String::as_str).filter(|term| others.contains(term));
    let both = weight(both, bm25)?;
    if both == 0.0 {
        return Ok(0.0);
    }
    let either = weight(terms.iter().map(String::as_str), bm25)?
        + weight(others.iter().copied(), bm25)?
        - both;
    Ok((both / either).min(1.0))
}

/// The sum of the terms' idf.
fn weight<'a>(terms: impl Iterator<Item = &'a str>, bm25: &Bm25) -> Result<f64> {
    let mut sum = 0.0;
    for term in terms {
        sum += bm25.idf_of(term)?;
    }
    Ok(sum)
}

/// 0 up to the first bound, 1 from the second, and linear in between.
fn ramp(value: f64, (low, high): (f64, f64)) -> f64 {
    ((value - low) / (high - low)).clamp(0.0, 1.0)
}
