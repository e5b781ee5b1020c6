//! Tells descriptions of skills and tools from passages.

use crate::lists::lists;

/// Longer texts without a body are passages and no descriptions; the Agent Skills format allows
/// 1,024 characters.
const LONGEST_DESCRIPTION: usize = 2_000;

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
