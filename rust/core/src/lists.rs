//! Lists of words and phrases, from the text files in `data/`.
//!
//! A file has sections: a name in brackets on a line of its own, then an entry a line, sorted by
//! bytes. A line that begins with `#` is a comment.

use std::sync::LazyLock;

/// The entries of a section, read when they are first used.
pub(crate) type List = LazyLock<Vec<&'static str>>;

/// The name of a section and its entries.
pub(crate) type Section = (&'static str, Vec<&'static str>);

/// The text of a file in `data/`.
macro_rules! data {
    ($file:literal) => {
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/data/", $file))
    };
}

/// Defines lists, each with the entries of the section of its name.
macro_rules! lists {
    ($file:literal: $($visibility:vis $name:ident),*) => {
        $($visibility static $name: $crate::lists::List = std::sync::LazyLock::new(|| {
            let sections = $crate::lists::sections($crate::lists::data!($file)).into_iter();
            let mut entries = sections.filter(|(name, _)| *name == stringify!($name));
            entries.next().expect("the file has this section").1
        });)*
    };
}

pub(crate) use {data, lists};

/// The sections of a file.
pub(crate) fn sections(text: &'static str) -> Vec<Section> {
    let mut sections: Vec<Section> = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            sections.push((name, Vec::new()));
        } else if let Some((_, entries)) = sections.last_mut() {
            entries.push(line);
        }
    }
    sections
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_have_sorted_entries_and_are_not_empty() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/data");
        for file in std::fs::read_dir(folder).unwrap() {
            let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
            assert!(text.starts_with("# "), "{text}");
            for (name, entries) in sections(text.leak()) {
                assert!(!entries.is_empty(), "{name}");
                assert!(entries.is_sorted_by(|left, right| left < right), "{name}");
                assert!(entries.iter().all(|entry| entry.trim() == *entry), "{name}");
            }
        }
    }
}
