//! Builds the command line equivalent of an action in the terminal app, so that users can copy it
//! into a runbook.

use loudou_limiter::{Carry, Nanos};
use loudou_rules::config::spoken_value;
use serde_json::{Map, Value};

use loudou_words::limit_edit::text;
use loudou_words::text::is_unsafe;

/// A command line under construction.
#[must_use]
#[derive(Debug)]
pub struct CommandLine {
    verb: &'static str,
    words: Vec<String>,
    options: Vec<String>,
}

impl CommandLine {
    /// Starts a command line with `loudou VERB`.
    pub const fn new(verb: &'static str) -> Self {
        Self {
            verb,
            words: Vec::new(),
            options: Vec::new(),
        }
    }

    /// Adds an argument.
    pub fn word(mut self, word: &str) -> Self {
        self.words.push(word.to_owned());
        self
    }

    /// Adds an option without a value.
    pub fn flag(mut self, name: &str) -> Self {
        self.options.push(name.to_owned());
        self
    }

    /// Adds an option and its value, unless the value is empty.
    pub fn option(self, name: &str, value: &str) -> Self {
        if value.is_empty() {
            return self;
        }
        let mut line = self;
        let joint = if value.starts_with('-') { "=" } else { " " };
        line.options.push(format!("{name}{joint}{}", quoted(value)));
        line
    }

    /// Adds `--for`, if a duration is given.
    pub fn lasting(self, span: Option<Nanos>) -> Self {
        let span = span.map(|span| span.to_string());
        self.option("--for", &span.unwrap_or_default())
    }

    /// Adds `--url`, if `url` is given.
    pub fn at(self, url: Option<&str>) -> Self {
        self.option("--url", url.unwrap_or_default())
    }

    /// Adds `--reason`, unless the reason is empty.
    pub fn because(self, reason: &str) -> Self {
        self.option("--reason", reason)
    }

    /// Adds `--carry`, unless the value is the default.
    pub fn carrying(self, carry: Carry) -> Self {
        let is_default = carry == Carry::default();
        self.option("--carry", if is_default { "" } else { carry.name() })
    }

    /// Returns the finished command line. If an argument looks like an option, the arguments are
    /// placed after the options, separated by `--`.
    pub fn text(self) -> String {
        let looks_like_option = self.words.iter().any(|word| word.starts_with('-'));
        let words: Vec<String> = self.words.iter().map(|word| quoted(word)).collect();
        let begin = ["loudou".to_owned(), self.verb.to_owned()];
        let line = if looks_like_option {
            let rest = std::iter::once("--".to_owned()).chain(words);
            [begin.to_vec(), self.options, rest.collect()]
        } else {
            [begin.to_vec(), words, self.options]
        };
        line.concat().join(" ")
    }
}

/// Returns `text` in a form that is safe to paste into a terminal. The text is quoted only if it
/// contains characters that a terminal might interpret.
pub fn to_paste(text: &str) -> String {
    if text.chars().any(is_unsafe) {
        quoted(text)
    } else {
        text.to_owned()
    }
}

/// Quotes a word for a POSIX shell. Keys are chosen by clients, and terminals interpret pasted
/// control characters even within quotes. Words containing control characters are therefore written
/// in the `$'…'` form of bash, zsh and ksh, which supports escapes.
pub fn quoted(word: &str) -> String {
    if word.chars().any(is_unsafe) {
        return format!("$'{}'", word.chars().map(escaped).collect::<String>());
    }
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=%,@+".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Escapes a character for use in `$'…'`.
fn escaped(c: char) -> String {
    match c {
        '\\' | '\'' => format!("\\{c}"),
        c if is_unsafe(c) && c.is_ascii() => format!("\\x{:02x}", u32::from(c)),
        c if is_unsafe(c) && u32::from(c) <= 0xffff => format!("\\u{:04x}", u32::from(c)),
        c if is_unsafe(c) => format!("\\U{:08x}", u32::from(c)),
        c => c.to_string(),
    }
}

/// Returns the limits in `after` that differ from `before`, each with the fields to set. Returns
/// `None` if the difference cannot be expressed by setting fields alone.
pub fn fields(before: &Value, after: &Value) -> Option<Vec<(String, Vec<String>)>> {
    let limits = |rule: &Value| -> Option<Vec<Map<String, Value>>> {
        let limits = rule.get("limits")?.as_array()?.iter();
        limits
            .map(|limit| limit.as_object().map(spoken_value))
            .collect()
    };
    let (before, after) = (limits(before)?, limits(after)?);
    if before.len() != after.len() {
        return None;
    }
    let mut changed = Vec::new();
    for (before, after) in before.iter().zip(&after) {
        if ["name", "algorithm"]
            .iter()
            .any(|name| before.get(*name) != after.get(*name))
        {
            return None;
        }
        let set = after
            .iter()
            .filter(|(name, value)| before.get(*name) != Some(value));
        let set = set.map(|(name, value)| format!("{name}={}", text(value)));
        let unset = before.keys().filter(|name| !after.contains_key(*name));
        let fields: Vec<String> = set.chain(unset.map(|name| format!("{name}="))).collect();
        if !fields.is_empty() {
            let name = after.get("name").map(text).unwrap_or_default();
            changed.push((name, fields));
        }
    }
    Some(changed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_where_a_shell_needs_it() {
        for (word, text) in [
            ("alice:/reply", "alice:/reply"),
            ("team-*", "'team-*'"),
            ("it's", r"'it'\''s'"),
            ("", "''"),
            ("$(rm)", "'$(rm)'"),
            ("10.0.0.0/24", "10.0.0.0/24"),
            ("x\u{15}rm -rf ~\n", r"$'x\x15rm -rf ~\x0a'"),
            ("it's\u{1b}\\", r"$'it\'s\x1b\\'"),
            ("a\u{202e}b\u{85}", r"$'a\u202eb\u0085'"),
            ("\u{e0041}", r"$'\U000e0041'"),
        ] {
            assert_eq!(quoted(word), text);
        }
    }

    /// A real shell returns the quoted words unchanged and does not execute any part of them.
    #[test]
    fn a_shell_reads_quoted_words_back() {
        for word in [
            "it's",
            "x\u{15}rm\n",
            "a\u{202e}b\u{1b}[31m\\'",
            "$(id) `id` \"",
            "漏斗",
        ] {
            let line = quoted(word);
            assert!(!line.chars().any(is_unsafe), "{line:?}");
            let script = format!("printf %s {line}");
            let shell = std::process::Command::new("bash")
                .args(["-c", &script])
                .env("LC_ALL", "C.UTF-8")
                .output();
            let shell = shell.expect("bash");
            assert_eq!(String::from_utf8_lossy(&shell.stdout), word);
        }
    }
}
