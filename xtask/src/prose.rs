//! Checks comments and documents for phrases that make the text hard to read.
//!
//! `xtask/prose.txt` lists the phrases, a suggestion for each phrase, and exceptions. Prose linters such as `vale` also
//! understand Markdown and comments, but `vale` is a Go program that the package registries used here do not provide.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};

use loudou_tests::paths::workspace_root;

/// Path of the list, relative to the repository root.
const LIST: &str = "xtask/prose.txt";
/// Names of folders that contain no text of this project.
const SKIPPED: [&str; 4] = ["target", ".git", "snapshots", "proptest-regressions"];

/// Fails if a comment or document contains a listed phrase, and reports each place.
pub(crate) fn check() -> Result<()> {
    let root = workspace_root();
    let list = List::read(&fs::read_to_string(root.join(LIST)).context(LIST)?)?;
    let mut files = Vec::new();
    collect(&root, "", &mut files)?;
    let mut found = Vec::new();
    for path in &files {
        let text = fs::read_to_string(root.join(path)).with_context(|| path.clone())?;
        found.extend(list.find(path, &text));
    }
    ensure!(
        found.is_empty(),
        "{}\n{} phrases of {LIST}",
        found.join("\n"),
        found.len()
    );
    println!(
        "{} files, none of {} phrases",
        files.len(),
        list.phrases.len()
    );
    Ok(())
}

/// Adds the paths of all Rust and Markdown files below `folder`. The changelog is left out, because it quotes old
/// phrases.
fn collect(root: &Path, folder: &str, files: &mut Vec<String>) -> Result<()> {
    let mut entries = Vec::new();
    for entry in fs::read_dir(root.join(folder))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        entries.push((name, entry.file_type()?.is_dir()));
    }
    entries.sort();
    for (name, is_folder) in entries {
        let path = if folder.is_empty() {
            name.clone()
        } else {
            format!("{folder}/{name}")
        };
        if is_folder && !SKIPPED.contains(&name.as_str()) {
            collect(root, &path, files)?;
        } else if is_text(Path::new(&name)) && name != "CHANGELOG.md" {
            files.push(path);
        }
    }
    Ok(())
}

/// Returns true if the file has comments or paragraphs to check.
fn is_text(path: &Path) -> bool {
    path.extension()
        .is_some_and(|end| end == "rs" || end == "md")
}

/// The listed phrases and exceptions.
#[derive(Debug, Default)]
struct List {
    phrases: Vec<Phrase>,
    /// Paths of files and parts of their text in which phrases are allowed.
    exceptions: Vec<(String, String)>,
}

/// A phrase that comments and documents must not contain.
#[derive(Debug)]
struct Phrase {
    words: String,
    /// True if the phrase is forbidden only at the start of a comment or paragraph.
    is_at_start: bool,
    instead: String,
}

impl List {
    /// Parses the list, which has one `WORDS | INSTEAD` or `except PATH | TEXT` per line. A `^` before the words limits
    /// the phrase to the start of a comment or paragraph.
    fn read(text: &str) -> Result<Self> {
        let mut list = Self::default();
        for (number, line) in (1_usize..).zip(text.lines()) {
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            let Some((left, right)) = line.split_once(" | ") else {
                bail!("{LIST}:{number}: expected `WORDS | INSTEAD` or `except PATH | TEXT`");
            };
            let (left, right) = (left.trim(), right.trim().to_owned());
            if let Some(path) = left.strip_prefix("except ") {
                list.exceptions.push((path.trim().to_owned(), right));
                continue;
            }
            let words = left.strip_prefix('^');
            list.phrases.push(Phrase {
                words: words.unwrap_or(left).to_lowercase(),
                is_at_start: words.is_some(),
                instead: right,
            });
        }
        Ok(list)
    }

    /// Returns a message for each listed phrase in the comments of a Rust file or in the paragraphs of a document.
    fn find(&self, path: &str, text: &str) -> Vec<String> {
        let mut found = Vec::new();
        for (line, block) in blocks(is_rust(path), text) {
            let lower = block.to_lowercase();
            for phrase in &self.phrases {
                let at = has_words(&lower, &phrase.words);
                let is_there = at.is_some_and(|at| at == 0 || !phrase.is_at_start);
                let mut exceptions = self.exceptions.iter();
                let is_allowed =
                    exceptions.any(|(file, part)| file == path && block.contains(part));
                if is_there && !is_allowed {
                    let (words, instead) = (&phrase.words, &phrase.instead);
                    found.push(format!("{path}:{line}: \"{words}\": write {instead}"));
                }
            }
        }
        found
    }
}

fn is_rust(path: &str) -> bool {
    Path::new(path).extension().is_some_and(|end| end == "rs")
}

/// Returns the position of `words` in a text, as whole words.
fn has_words(text: &str, words: &str) -> Option<usize> {
    let is_word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    let mut places = text.match_indices(words);
    let found = places.find(|(at, _)| {
        let (before, rest) = text.split_at(*at);
        let after = rest.strip_prefix(words).unwrap_or_default();
        !is_word(before.chars().next_back()) && !is_word(after.chars().next())
    });
    found.map(|(at, _)| at)
}

/// Returns the comments of a Rust file, or the paragraphs and list items of a document, each joined into one line with
/// the number of its first line. Code blocks, tables and headings of documents are skipped.
fn blocks(is_rust: bool, text: &str) -> Vec<(usize, String)> {
    let mut blocks: Vec<(usize, String)> = Vec::new();
    let (mut is_open, mut is_code) = (false, false);
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        let part = if is_rust {
            let comment = line.strip_prefix("//");
            comment.map(|comment| comment.trim_start_matches(['/', '!']).trim())
        } else if line.starts_with("```") {
            is_code = !is_code;
            None
        } else {
            let is_text = !is_code && !line.starts_with(['|', '#', '<', '!']);
            is_text.then_some(line)
        };
        let Some(part) = part.filter(|part| !part.is_empty()) else {
            is_open = false;
            continue;
        };
        let item = part.strip_prefix("- ").filter(|_| !is_rust);
        match blocks.last_mut().filter(|_| is_open && item.is_none()) {
            Some((_, block)) => {
                block.push(' ');
                block.push_str(part);
            }
            None => blocks.push((number, item.unwrap_or(part).to_owned())),
        }
        is_open = true;
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str =
        "# Phrases\n\n^Whether | Returns true if\nthose of | the noun\nexcept b.rs | those of us";

    fn find(path: &str, text: &str) -> Vec<String> {
        List::read(TEXT).expect("a list").find(path, text)
    }

    #[test]
    fn phrases_are_found_in_comments_alone() {
        let text =
            "/// Whether it is.\nfn whether() {}\n// It tells whether.\nlet a = \"those of\";\n";
        assert_eq!(
            find("a.rs", text),
            ["a.rs:1: \"whether\": write Returns true if"]
        );
        let wrapped = "// The rules and those\n// of others, but not ethose of or those ofx.\n";
        assert_eq!(
            find("a.rs", wrapped),
            ["a.rs:1: \"those of\": write the noun"]
        );
    }

    #[test]
    fn phrases_are_found_in_paragraphs_of_documents() {
        let text =
            "# Those of\n\n| those of |\n\n```\nthose of\n```\n\n- Fine.\n- Whether\n  it is.\n";
        assert_eq!(
            find("a.md", text),
            ["a.md:10: \"whether\": write Returns true if"]
        );
    }

    #[test]
    fn an_exception_is_of_one_file_and_text() {
        assert!(find("b.rs", "// For those of us.").is_empty());
        assert_eq!(find("a.rs", "// For those of us.").len(), 1);
        assert_eq!(find("b.rs", "// For those of them.").len(), 1);
    }

    #[test]
    fn a_wrong_line_is_an_error_with_its_place() {
        let error = List::read("# fine\nthose of").expect_err("no right side");
        assert!(error.to_string().contains("xtask/prose.txt:2"), "{error}");
    }
}
