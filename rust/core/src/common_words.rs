//! How much an English word tells, by how common it is.

use std::collections::HashMap;
use std::sync::OnceLock;

use crate::lists::data;
use crate::text::Analyzer;

/// Weight of a word by its level in the table of common words; other words weigh 1.
const WEIGHTS: [f64; 3] = [0.0, 0.15, 0.5];

/// The information of an English word in [0, 1], by its stem: 0 for the most common, 1 for a word
/// that is not in the table of common words.
pub fn information(stem: &str) -> f64 {
    levels().get(stem).and_then(|level| WEIGHTS.get(*level)).copied().unwrap_or(1.0)
}

fn levels() -> &'static HashMap<String, usize> {
    static LEVELS: OnceLock<HashMap<String, usize>> = OnceLock::new();
    LEVELS.get_or_init(|| {
        let analyzer = Analyzer::new("english").ok();
        let mut levels = HashMap::new();
        for line in data!("common_words.txt").lines() {
            let mut words = line.split(' ');
            let Some(level) = words.next().and_then(|level| level.parse().ok()) else { continue };
            for word in words {
                let stems = analyzer.map(|analyzer| analyzer.terms(word)).unwrap_or_default();
                // Of two words with one stem, the more common word counts.
                for stem in stems {
                    levels.entry(stem).or_insert(level);
                }
            }
        }
        levels
    })
}
