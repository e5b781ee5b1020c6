//! Tells descriptions of skills and tools from passages, and reads their parts.

use std::borrow::Cow;

use crate::exclusions;
use crate::lists::lists;
use crate::triggers;

/// Longer texts without a body are passages and no descriptions; the Agent Skills format allows
/// 1,024 characters.
const LONGEST_DESCRIPTION: usize = 2_000;

/// The parts of the head of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description<'a> {
    /// The text that is searched.
    pub purpose: Cow<'a, str>,
    /// Things that the document is not for; see [`crate::exclusions`].
    pub exclusions: Vec<String>,
    /// Words and phrases that should select the document; see [`crate::triggers`].
    pub triggers: Vec<String>,
}

/// Reads a description of a document with this name.
///
/// # Examples
///
/// ```
/// use crossgate_core::description::describe;
///
/// let text = "Edits slides. Use when the user mentions a deck. Not for posters.";
/// let found = describe("pptx", text);
/// assert_eq!(found.purpose, "Edits slides. Use when the user mentions a deck. ");
/// assert_eq!(found.exclusions, ["posters"]);
/// assert_eq!(found.triggers, ["pptx", "deck"]);
/// ```
pub fn describe<'a>(name: &str, text: &'a str) -> Description<'a> {
    let exclusions::Description { purpose, exclusions } = exclusions::read(text);
    let triggers = triggers::read(name, &purpose);
    Description { purpose, exclusions, triggers }
}

/// Whether the text of a document is a description of a skill or tool, and not a passage: "do not
/// use for children" in a leaflet is content, not a rule for the router.
///
/// The text of a document with a body describes that body. Without a body, it is a description if
/// the document has a name like that of a skill or tool: its title, or its id if it has no title.
pub fn is_description(id: &str, title: &str, text: &str, body: &str) -> bool {
    let name = if title.trim().is_empty() { id } else { title };
    !body.is_empty() || (text.len() <= LONGEST_DESCRIPTION && is_name(name))
}

lists!("passage_words.txt": PASSAGES);

/// Whether a word is written like the name of a skill or tool, such as `pdf`, `release-notes`,
/// `get_weather`, `getWeather`, `Alarm.Set` or `airflow-2-to-3`, and not like a number, a path, a
/// heading or a numbered passage.
fn is_name(name: &str) -> bool {
    let parts: Vec<&str> = name.trim().split(['-', '_', '.', ':']).collect();
    let is_passage = parts.iter().any(|part| PASSAGES.contains(&&*part.to_lowercase()));
    let is_part = |part: &str| {
        !part.is_empty()
            && part.chars().all(char::is_alphanumeric)
            && !(is_passage && part.chars().all(|letter| letter.is_ascii_digit()))
    };
    let letters = name.chars().filter(|letter| letter.is_alphabetic()).count();
    let is_file =
        matches!(parts.last(), Some(&("md" | "txt" | "rst" | "html" | "pdf"))) && parts.len() > 1;
    // A heading is one capitalised word.
    let is_heading = parts.len() == 1
        && name.chars().next().is_some_and(char::is_uppercase)
        && !name.chars().skip(1).any(char::is_uppercase);
    letters > 1 && parts.iter().all(|part| is_part(part)) && !is_file && !is_heading
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_from_headings_paths_and_numbers() {
        for name in [
            "pdf",
            "release-notes",
            "get_weather",
            "getWeather",
            "Alarm_1x.GetAlarms",
            "k8s",
            "airflow-2-to-3",
            "iso-27001",
            "Weather_1_GetWeather",
        ] {
            assert!(is_name(name), "{name}");
        }
        for name in [
            "",
            "a",
            "7",
            "doc-12",
            "chunk_3",
            "Guide-3-part-7",
            "3.12",
            "pdf--merge",
            "Installation",
            "How to install",
            "a/b",
            "x#y",
            "guide.md",
        ] {
            assert!(!is_name(name), "{name}");
        }
    }

    #[test]
    fn a_description_has_a_body_or_a_name() {
        let text = "Edits slides. Not for posters.";
        let read = |id, title, body| is_description(id, title, text, body);
        assert!(read("pptx", "", "") && read("12", "pptx", ""));
        assert!(read("12", "How to edit", "Open the file."));
        assert!(!read("12", "", "") && !read("pptx", "How to edit", "") && !read("a.md#b", "", ""));
        assert!(!is_description("pptx", "", &text.repeat(100), ""));
    }
}
