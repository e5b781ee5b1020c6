//! Signs of tables, mail and addresses.

use super::{ENOUGH, HALF, Sign, THIRD, found, starts_with_any, whole};
use crate::request::Kind;

pub(super) fn table(text: &str, _indent: usize) -> Option<Sign> {
    let kind = Kind::Table;
    let drawn = text.chars().filter(|c| matches!(c, '\u{2500}'..='\u{257F}')).count();
    if drawn >= 2 {
        return found(kind, ENOUGH);
    }
    let ruled = text.chars().all(|c| matches!(c, '|' | '-' | ':' | '+' | '=' | ' '));
    let columns = text.bytes().filter(|byte| matches!(byte, b'|' | b'+')).count();
    if ruled && text.contains("--") && columns >= 1 {
        return found(kind, ENOUGH);
    }
    let pipes = text.matches('|').count() - text.matches("||").count() * 2;
    if text.starts_with('|') && text.ends_with('|') && pipes >= 2 {
        return found(kind, ENOUGH);
    }
    let cells = text.matches(" | ").count();
    (cells >= 1 && !text.contains("://") && !text.ends_with(['?', '.', ':']))
        .then_some(Sign { kind, weight: if cells >= 2 { HALF } else { THIRD } })
}

/// Names of the fields of a mail, also in German, French, Spanish, Italian and Dutch.
const FIELDS: [&str; 32] = [
    "From: ",
    "Sent: ",
    "To: ",
    "Cc: ",
    "Bcc: ",
    "Subject: ",
    "Date: ",
    "Reply-To: ",
    "Message-ID: ",
    "Von: ",
    "Gesendet: ",
    "An: ",
    "Betreff: ",
    "Datum: ",
    "De: ",
    "De\u{a0}: ",
    "De : ",
    "Envoyé : ",
    "Envoyé: ",
    "À : ",
    "À: ",
    "Objet : ",
    "Objet: ",
    "Enviado: ",
    "Para: ",
    "Asunto: ",
    "Da: ",
    "Inviato: ",
    "Oggetto: ",
    "Van: ",
    "Verzonden: ",
    "Onderwerp: ",
];

pub(super) fn mail(text: &str, _indent: usize) -> Option<Sign> {
    let kind = Kind::Mail;
    if text.starts_with('>') {
        let quoted = text.trim_start_matches(['>', ' ']);
        let is_one = !quoted.is_empty() || text == ">";
        return whole(Kind::Quotation, is_one);
    }
    let wrote = text.ends_with("wrote:") && text.len() < 200;
    if wrote && (text.starts_with("On ") || text.contains(['@', '<'])) {
        return found(Kind::Quotation, ENOUGH);
    }
    let lower = text.trim_matches(['-', ' ', '_', '*']).to_lowercase();
    if text.len() < 60
        && (lower.starts_with("original message")
            || lower.starts_with("forwarded message")
            || lower.starts_with("begin forwarded message"))
        && text.starts_with(['-', 'B'])
    {
        return found(kind, ENOUGH);
    }
    starts_with_any(text, &FIELDS).then_some(Sign { kind, weight: HALF })
}

/// Whether a line is a field or the head of a mail whose text follows without marks.
pub(in super::super) fn begins_mail(text: &str) -> bool {
    let text = text.trim();
    !text.starts_with('>') && mail(text, 0).is_some()
}

/// An address on a line of its own.
pub(super) fn address(text: &str) -> Option<Sign> {
    let scheme = text.find("://")?;
    let is_one = scheme > 0
        && !text.contains(char::is_whitespace)
        && text.get(..scheme)?.bytes().all(|byte| byte.is_ascii_alphabetic());
    whole(Kind::Url, is_one)
}
