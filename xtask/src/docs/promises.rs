//! The promises of `docs/security.md`: each names tests, which must exist.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

const PAGE: &str = "docs/security.md";
/// The head of the column that names tests.
const COLUMN: &str = "| promise | test |";

/// Problems: promises without a test, and tests that do not exist.
pub(super) fn broken(root: &Path) -> Result<Vec<String>> {
    let page = fs::read_to_string(root.join(PAGE)).context(PAGE)?;
    let mut sources = String::new();
    read(root, &mut sources)?;
    let found = named(&page, &sources);
    Ok(found
        .into_iter()
        .map(|problem| format!("{PAGE}: {problem}"))
        .collect())
}

fn named(page: &str, sources: &str) -> Vec<String> {
    let rows = page.lines().skip_while(|line| *line != COLUMN).skip(2);
    let mut problems = Vec::new();
    for row in rows.take_while(|line| line.starts_with('|')) {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").collect();
        let tests = cells.get(1).copied().unwrap_or_default();
        let mut names = tests.split('`').skip(1).step_by(2).peekable();
        if names.peek().is_none() {
            problems.push(format!("a promise without a test: {row}"));
        }
        // A name with a space is a command.
        for name in names.filter(|name| !name.contains(' ')) {
            if !sources.contains(&format!("fn {name}(")) {
                problems.push(format!("no test `{name}`"));
            }
        }
    }
    problems
}

/// Appends all Rust files below a folder.
fn read(folder: &Path, sources: &mut String) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir() {
            if name != "target" && !name.starts_with('.') {
                read(&path, sources)?;
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            sources.push_str(&fs::read_to_string(&path)?);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn promises_need_tests_that_exist() {
        let page = "| promise | test |\n| --- | --- |\n| a | `known`, and `cargo x` |\n\
                    | b | `gone` |\n| c | |\n\n| d | `other` |\n";
        assert_eq!(
            named(page, "fn known() {}"),
            ["no test `gone`", "a promise without a test: | c | |"]
        );
    }
}
