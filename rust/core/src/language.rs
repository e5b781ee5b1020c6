//! Detects whether a text is English, from its script and its function words.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use crate::coverage::information;
use crate::stop_words::is_stop_word;
use crate::text::Analyzer;

static ENGLISH: LazyLock<Analyzer> =
    LazyLock::new(|| Analyzer::new("english").expect("the language is built in"));

/// The language of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// English.
    English,
    /// Another language, or a script whose language is not determined, by its English name.
    Other(&'static str),
    /// Too little text, or only names and code.
    Unknown,
}

impl Language {
    /// The English name of the language; none if it is unknown.
    pub fn name(self) -> Option<&'static str> {
        match self {
            Self::English => Some("English"),
            Self::Other(name) => Some(name),
            Self::Unknown => None,
        }
    }
}

/// Detects the language of a text.
///
/// The result is [`Language::Other`] only on clear evidence: most words are in another script, or
/// there are at least two function words of another language and at most half as many English
/// function words, or there is a single such word and no common English word. Verbs of requests,
/// "schreibe" and "traduce", count as function words; such a verb as the first of several words is
/// enough, unless an English function word follows. Quoted text, code and names in capitals do not
/// count.
pub fn language(text: &str) -> Language {
    let unquoted = without_quotations(text);
    let found = language_of(&unquoted);
    // A text may be one quotation.
    if found == Language::Unknown && unquoted.len() < text.len() {
        language_of(text)
    } else {
        found
    }
}

fn language_of(text: &str) -> Language {
    let mut scripts = Scripts::default();
    let mut words = Vec::new();
    for token in text.split_whitespace() {
        let inner = token.trim_matches(|c: char| !c.is_alphabetic());
        scripts.add(inner);
        let is_word = inner.chars().all(|c| c.is_alphabetic() || matches!(c, '\'' | '’' | '-'));
        // "-la" is an option of a command.
        let is_option = token.starts_with('-') && token.len() > 1;
        // An acronym is written alike in all languages.
        let is_acronym = inner.chars().count() > 1 && !inner.contains(char::is_lowercase);
        if !inner.is_empty() && is_word && !is_option && !is_acronym && is_latin(inner) {
            words.push(inner);
        }
    }
    if let Some(name) = scripts.most(words.len()) {
        return Language::Other(name);
    }
    by_function_words(&words)
}

/// Characters of scripts other than Latin, by the name of the language or script.
#[derive(Debug, Default)]
struct Scripts {
    of: Vec<(&'static str, usize)>,
}

impl Scripts {
    fn add(&mut self, token: &str) {
        for name in token.chars().filter_map(script) {
            match self.of.iter_mut().find(|(known, _)| *known == name) {
                Some((_, count)) => *count += 1,
                None => self.of.push((name, 1)),
            }
        }
    }

    fn count(&self, name: &str) -> usize {
        self.of.iter().find(|(known, _)| *known == name).map_or(0, |(_, count)| *count)
    }

    /// The script with the most characters, if it has more words than the Latin script.
    fn most(&self, latin_words: usize) -> Option<&'static str> {
        let (name, _) = *self.of.iter().max_by_key(|(_, count)| *count)?;
        let all: usize = self.of.iter().map(|(_, count)| count).sum();
        let unspaced = matches!(name, CHINESE | JAPANESE);
        // About two characters make a word of Chinese, and four a word of other languages.
        let words = if unspaced { all.div_ceil(2) } else { all / 4 };
        if words <= latin_words || all < LEAST_CHARACTERS {
            return None;
        }
        // Japanese is written with Chinese characters as well.
        Some(if unspaced && self.count(JAPANESE) > 0 { JAPANESE } else { name })
    }
}

const CHINESE: &str = "Chinese";
const JAPANESE: &str = "Japanese";

/// Fewer characters of another script are an example or a symbol.
const LEAST_CHARACTERS: usize = 3;

fn script(letter: char) -> Option<&'static str> {
    match u32::from(letter) {
        0x0370..=0x03FF | 0x1F00..=0x1FFF => Some("Greek"),
        0x0400..=0x052F => Some("Cyrillic script"),
        0x0530..=0x058F => Some("Armenian"),
        0x0590..=0x05FF => Some("Hebrew"),
        0x0600..=0x06FF | 0x0750..=0x077F => Some("Arabic script"),
        0x0900..=0x0DFF => Some("an Indian script"),
        0x0E00..=0x0E7F => Some("Thai"),
        0x10A0..=0x10FF => Some("Georgian"),
        0x1100..=0x11FF | 0x3130..=0x318F | 0xAC00..=0xD7AF => Some("Korean"),
        0x3040..=0x30FF | 0x31F0..=0x31FF => Some(JAPANESE),
        0x3400..=0x4DBF | 0x4E00..=0x9FFF | 0xF900..=0xFAFF | 0x20000..=0x3FFFF => Some(CHINESE),
        _ => None,
    }
}

fn is_latin(word: &str) -> bool {
    word.chars().all(|c| script(c).is_none())
}

fn by_function_words(words: &[&str]) -> Language {
    let mut english = 0;
    let mut common = 0;
    let mut accented = 0;
    let mut found: Vec<BTreeSet<&str>> = vec![BTreeSet::new(); LANGUAGES.len()];
    let mut counts = vec![0_usize; LANGUAGES.len()];
    let lower: Vec<String> =
        words.iter().map(|word| word.to_lowercase().replace('’', "'")).collect();
    for (place, (word, lower)) in words.iter().zip(&lower).enumerate() {
        accented += usize::from(!word.is_ascii());
        // "Los Angeles" and "Maria de la Cruz" are names.
        let capital = place > 0 && word.starts_with(char::is_uppercase);
        if capital || (PARTICLES.contains(&lower.as_str()) && is_within_name(words, place)) {
            continue;
        }
        let mut foreign = false;
        for ((name, list), (distinct, count)) in
            LANGUAGES.iter().zip(found.iter_mut().zip(&mut counts))
        {
            if list.split(' ').any(|known| known == lower) || is_request(name, lower) {
                distinct.insert(lower);
                *count += 1;
                foreign = true;
            }
        }
        english += usize::from(!foreign && is_stop_word(lower));
        common += usize::from(!foreign && is_common(lower));
    }
    // Of equal counts the first language of the list.
    let mut best: Option<(&'static str, &BTreeSet<&str>, usize)> = None;
    for ((name, _), (distinct, count)) in LANGUAGES.iter().zip(found.iter().zip(&counts)) {
        let most = best.is_none_or(|(_, most_distinct, most)| {
            (*count, distinct.len()) > (most, most_distinct.len())
        });
        if most {
            best = Some((name, distinct, *count));
        }
    }
    if let Some((name, distinct, count)) = best {
        // "v1.0" and "appendix E" have a letter that is a word elsewhere.
        let is_clear = |word: &&str| {
            word.chars().count() > 1
                && !is_stop_word(word)
                && !is_common(word)
                && !ENGLISH_TOO.contains(word)
        };
        let opens = lower.first().is_some_and(|first| is_request(name, first));
        let alone = words.len() > 1 && (common == 0 || opens) && distinct.iter().any(is_clear);
        let single = !distinct.is_empty() && english == 0 && (accented >= 1 || alone);
        if (distinct.len() >= 2 || single) && count > 2 * english && count * 6 >= words.len() {
            return Language::Other(name);
        }
    }
    if accented >= 2 && accented * 2 > words.len() && english == 0 {
        return Language::Other("another language");
    }
    if english > 0 { Language::English } else { Language::Unknown }
}

/// Whether a word is one of the requests in a language.
fn is_request(language: &str, word: &str) -> bool {
    let of = REQUESTS.iter().filter(|(name, _)| *name == language);
    of.flat_map(|(_, list)| list.split(' ')).any(|known| known == word)
}

/// Function words of other languages that are less common English words.
const ENGLISH_TOO: [&str; 13] =
    ["con", "dem", "den", "des", "die", "lag", "mi", "par", "per", "sin", "till", "tu", "van"];

/// Whether a word is a common English word.
fn is_common(word: &str) -> bool {
    ENGLISH.terms(word).iter().any(|term| information(term) < 1.0)
}

/// Whether the words around a particle and its neighbours begin with capitals.
fn is_within_name(words: &[&str], place: usize) -> bool {
    let is_particle = |word: &&&str| PARTICLES.contains(&word.to_lowercase().as_str());
    let capital = |word: &&str| word.starts_with(char::is_uppercase);
    let before = words.iter().take(place).rev().find(|word| !is_particle(word));
    let after = words.iter().skip(place + 1).find(|word| !is_particle(word));
    before.is_some_and(capital) && after.is_some_and(capital)
}

/// A text without its quotations and its code in backticks.
fn without_quotations(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut close = None;
    let mut start = 0;
    for (at, letter) in text.char_indices() {
        match close {
            Some(end) if end == letter => {
                kept.push(' ');
                start = at + letter.len_utf8();
                close = None;
            }
            Some(_) => {}
            None => {
                close = match letter {
                    '"' | '`' => Some(letter),
                    '“' | '„' => Some('”'),
                    '«' => Some('»'),
                    '「' => Some('」'),
                    _ => None,
                };
                if close.is_some() {
                    kept.push_str(text.get(start..at).unwrap_or_default());
                    start = at;
                }
            }
        }
    }
    // Without a closing mark, the rest is not a quotation.
    kept.push_str(text.get(start..).unwrap_or_default());
    kept
}

/// Function words that are parts of names.
const PARTICLES: [&str; 18] = [
    "de", "la", "del", "di", "da", "do", "dos", "das", "van", "von", "der", "den", "du", "le",
    "el", "los", "las", "y",
];

/// Function words of languages, without those that are frequent words of English.
const LANGUAGES: &[(&str, &str)] = &[
    (
        "German",
        "der das und ist nicht ein eine einen einem einer eines ich du wir ihr mir mich dich uns sie es mit auf für \
         von zu zum zur dem den des im sind wie kannst können könnte bitte auch aus bei nach über als wenn dass \
         oder aber hier mein meine meinen meiner meinem unser unsere unseren diese dieser dieses diesem diesen alle \
         kein keine wird werden wurde haben habe noch nur schon sehr dann vom beim wo warum welche welcher soll \
         sollte muss müssen mach mache erstelle schreib schreibe erkläre daraus davon",
    ),
    (
        "French",
        "le la les un une des du et est que qui dans avec sur pas ce cette ces mon ma mes je tu il elle nous vous \
         ils sont ne au aux par plus comment pourquoi peux peut veux fais faire être avoir ou où mais leur votre \
         vos notre très tous toutes j'ai c'est d'un d'une qu'il n'est s'il quel quelle de en moi",
    ),
    (
        "Spanish",
        "el la los las un una unos unas de del y que en es por para con su sus se lo como más pero este esta estos \
         estas mis yo tú qué cómo cuál dónde puedes quiero hacer está están hay también muy sobre entre todo todos \
         crea haz necesito al cuando porque desde cada",
    ),
    (
        "Portuguese",
        "os uma um dos das da na nos nas não que em para com por mais mas isso este esta meu minha você são está ao à \
         também muito fazer preciso pode qual como seu sua quando esse essa de e",
    ),
    (
        "Italian",
        "il lo gli le un una di del della dei delle che è con non sono più ma questo questa mio mia anche perché fare \
         puoi voglio nel nella dal dalla alla da si quando dove quale ed",
    ),
    (
        "Dutch",
        "de het een en van ik je dat niet zijn op te voor met als maar ook naar uit bij deze dit hoe mijn wij zij \
         worden heb maak er om waarom welke alle onze jij aan",
    ),
    (
        "Swedish",
        "och att det som ett är för på med inte jag du har av till om hur vad också eller från detta den när alla \
         mig gör skapa",
    ),
    (
        "Danish or Norwegian",
        "og det som et er på med ikke jeg du den har af av til om hvordan hva hvad også eller fra dette når alle \
         mig meg lag lav",
    ),
    (
        "Polish",
        "w na z nie się jest że jak dla czy po od ale mi proszę który która ten ta te tego oraz przez ze mój moje",
    ),
    ("Czech", "je na se že do pro jak co ale jsem jsou prosím který která s z v tak když mi jako"),
    ("Turkish", "ve bir bu için ile nasıl çok olan daha gibi sen lütfen bana şu mı mi ama kadar"),
    ("Finnish", "ja ei että joka mutta kun mitä miten tämä olen ole minun tee ovat tai kanssa ne"),
    ("Romanian", "și în cu pe nu este că pentru din care mai sunt acest această cum la un o"),
    ("Hungarian", "az és hogy nem egy van meg ez mit hogyan kérlek készíts ezt csak"),
    (
        "Indonesian",
        "dan yang ke dari untuk dengan ini itu tidak saya bisa tolong bagaimana buat adalah pada",
    ),
    ("Vietnamese", "và của là có cho không được các một những này tôi để với trong hãy"),
];

/// Words of requests in short prompts without a function word; they are not English.
const REQUESTS: &[(&str, &str)] = &[
    (
        "German",
        "schreiben erstellen übersetze übersetzen fasse zusammenfassen zusammenfügen zusammen prüfe prüfen füge \
         füg führe öffne lösche lösch ändere suche finde zeige zeig berechne vergleiche sortiere benenne erzeuge \
         wandle konvertiere kürze verbessere korrigiere formuliere entwirf",
    ),
    (
        "French",
        "écris rédige traduis traduire crée créer corrige explique ajoute supprime résume vérifie génère convertis \
         fusionne ouvre calcule trouve montre prépare améliore aide-moi",
    ),
    (
        "Spanish",
        "escribe escribir traduce traducir crear corrige explica añade elimina convierte combina abre analiza \
         calcula busca muestra prepara revisa ayúdame arregla mejora agrega borra",
    ),
    (
        "Portuguese",
        "escreva escreve traduza traduz crie cria gere gera corrija explique adicione resuma converta junte \
         calcule mostre verifique ajude melhore apague",
    ),
    (
        "Italian",
        "scrivi traduci crea correggi spiega aggiungi elimina riassumi converti unisci apri analizza trova \
         mostra prepara aiutami migliora cancella",
    ),
    ("Dutch", "schrijf vertaal controleer voeg verwijder samen bereken zoek verbeter samenvatten"),
    ("Swedish", "skriv översätt kontrollera lägg sammanfatta förklara räkna öppna slå hitta"),
    (
        "Danish or Norwegian",
        "skriv oversæt oversett kontroller tilføj sammenfat oppsummer opsummer forklar beregn åbn",
    ),
    (
        "Polish",
        "utwórz napisz przetłumacz sprawdź dodaj usuń połącz podsumuj wyjaśnij zrób przygotuj znajdź pokaż popraw",
    ),
    (
        "Czech",
        "vytvoř napiš přelož zkontroluj přidej odstraň spoj shrň vysvětli připrav najdi ukaž udělej oprav",
    ),
    (
        "Turkish",
        "oluştur yaz çevir sil birleştir özetle açıkla hazırla bul göster ekle düzelt kontrol",
    ),
    (
        "Finnish",
        "luo kirjoita käännä tarkista lisää poista yhdistä selitä tiivistä laske etsi näytä korjaa",
    ),
    ("Romanian", "scrie traduce creează corectează explică adaugă șterge rezumă verifică"),
    ("Hungarian", "írj fordítsd fordíts ellenőrizd töröld foglald magyarázd keress mutasd javítsd"),
    (
        "Indonesian",
        "tulis terjemahkan periksa tambahkan hapus gabungkan ringkas jelaskan cari tampilkan perbaiki",
    ),
    ("Vietnamese", "viết dịch kiểm thêm xóa gộp tóm giải tìm"),
];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn prompts_in_english_are_english_or_unknown() {
        for text in [
            "merge these three PDF files",
            "Translate \"Wo ist der nächste Bahnhof und was kostet das?\" into French",
            "rename el to la and los to las in the Spanish strings",
            "book a table at El Parador de la Cruz in Los Angeles",
            "what does 你好 mean?",
            "is α larger than β in this paper?",
            "résumé for Zoë, please",
            "cosine similarity",
            "for (const el of la) { de.push(un); }",
            "Write a biography of Ludwig van Beethoven and Vincent van Gogh",
            "my die in the war game is broken",
            "Rio de Janeiro hotel list",
            "a la carte menu",
            "das boot review",
            "vis a vis meeting notes",
            "cd ../backend && ls -la",
            "release v2.1.0",
            "do ducks sleep",
            "until tomorrow",
            "till november 6th",
            "comment widgets",
            "par yardage",
            "pour concrete",
            "",
            "42",
        ] {
            assert!(!matches!(language(text), Language::Other(_)), "{text}: {:?}", language(text));
        }
        assert_eq!(language("merge these three PDF files"), Language::English);
        assert_eq!(language("cosine similarity"), Language::Unknown);
    }

    #[test]
    fn prompts_in_other_languages_are_named() {
        for (name, text) in [
            ("German", "Kannst du mir die drei PDF-Dateien zu einer zusammenfügen?"),
            ("German", "Rechnungen als PDF zusammenführen"),
            ("French", "fusionne les trois fichiers PDF dans un seul"),
            ("Spanish", "haz una presentación sobre la fotosíntesis para mi clase"),
            ("Portuguese", "junte os arquivos PDF em um só e não mude a ordem"),
            ("Italian", "unisci i tre file PDF e fammi un riassunto di questo testo"),
            ("Dutch", "maak een presentatie van het verslag voor mijn klas"),
            ("Polish", "połącz te pliki PDF w jeden i nie zmieniaj kolejności na końcu"),
            ("Turkish", "bu PDF dosyalarını birleştir ve bir özet yaz"),
            ("Cyrillic script", "объедини три файла PDF в один"),
            ("Chinese", "把 report.docx 转成 PDF"),
            ("Japanese", "この表を要約してください"),
            ("Korean", "이 파일을 PDF로 변환해 줘"),
            ("Greek", "ένωσε τα τρία αρχεία"),
            ("Arabic script", "ادمج ملفات PDF الثلاثة"),
            ("Hebrew", "מזג את שלושת הקבצים"),
            ("German", "„Bitte fasse das für mich zusammen“"),
            ("German", "PDF zusammenfügen"),
            ("French", "corrige ce bug"),
            ("Spanish", "escribe las pruebas unitarias"),
            ("Portuguese", "traduza o texto"),
            ("Italian", "traduci il testo"),
            ("Dutch", "controleer de code"),
            ("Swedish", "översätt texten"),
            ("Polish", "napisz testy"),
            ("Czech", "napiš testy"),
            ("Turkish", "metni çevir"),
            ("Indonesian", "gabungkan file PDF"),
        ] {
            assert_eq!(language(text), Language::Other(name), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_has_an_answer_and_case_of_code_does_not_matter(text in any::<String>()) {
            let found = language(&text);
            prop_assert_eq!(language(&format!("{text} ")), found);
        }
    }
}
