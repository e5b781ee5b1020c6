//! The lines of a prompt, divided at the fences of code.

/// A line of the text, without its line ending.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line<'a> {
    pub(super) text: &'a str,
    /// Where it starts, in bytes.
    pub(super) start: usize,
    /// Where the next line starts.
    pub(super) end: usize,
}

impl Line<'_> {
    pub(super) fn is_blank(&self) -> bool {
        !self.text.contains(|c: char| !c.is_whitespace() && !c.is_control())
    }

    pub(super) fn indent(&self) -> usize {
        self.text.len() - self.text.trim_start().len()
    }
}

/// The lines of a text. Where a fence opens or closes within a line, it begins a line of its own.
pub(super) fn lines_of(text: &str) -> Vec<Line<'_>> {
    let mut lines = Vec::new();
    let mut inside = false;
    let mut start = 0;
    for whole in text.split_inclusive('\n') {
        let end = start + whole.len();
        let mut line = whole.trim_end_matches(['\n', '\r']);
        while let Some((first, second)) =
            place_of_fence(line, &mut inside).and_then(|cut| line.split_at_checked(cut))
        {
            let middle = start + first.len();
            lines.push(Line { text: first, start, end: middle });
            (line, start) = (second, middle);
        }
        lines.push(Line { text: line, start, end });
        start = end;
    }
    lines
}

/// The position at which to split a line so that its fence gets a line of its own; none if the line
/// is a fence or has none. `inside`, whether the line is in a fenced block, is set for the next line.
fn place_of_fence(line: &str, inside: &mut bool) -> Option<usize> {
    const FENCE: &str = "```";
    let trimmed = line.trim_start();
    if trimmed.starts_with(FENCE) {
        let info = trimmed.trim_start_matches('`');
        if !*inside {
            *inside = !info.contains('`');
        } else if info.trim().is_empty() {
            *inside = false;
        } else if info.starts_with(' ') || info.trim().contains(' ') {
            // Several words after a fence are text, not the name of a language.
            *inside = false;
            return Some(line.len() - info.len());
        }
        return None;
    }
    let last = line.rfind(FENCE)?; // not at its start
    let info = line.get(last + FENCE.len()..)?.trim();
    if *inside {
        return line.find(FENCE);
    }
    let opens = line.matches(FENCE).count() % 2 == 1;
    let named = info.len() <= 20
        && info.chars().all(|c| c.is_alphanumeric() || matches!(c, '+' | '-' | '#'));
    (opens && named).then_some(last)
}

/// The mark of a fence that a line opens, and whether a name follows it.
pub(super) fn fence(text: &str) -> Option<(&str, bool)> {
    let text = text.trim_start().trim_start_matches("> ");
    let text =
        text.strip_prefix("- ").or_else(|| text.strip_prefix("* ")).unwrap_or(text).trim_start();
    let first = text.chars().next().filter(|c| matches!(c, '`' | '~'))?;
    let mark = text.get(..text.len() - text.trim_start_matches(first).len())?;
    let info = text.get(mark.len()..)?.trim();
    let named = !info.is_empty();
    (mark.len() >= 3 && !info.contains('`')).then_some((mark, named))
}
