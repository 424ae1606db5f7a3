//! `cargo xtask docs`: writes the `OpenAPI` document, checks the links in all documents, and builds
//! the documents as a site.
//!
//! The check only reads files of the repository, so `ci` also runs it. `ci` does not build the
//! site, because the installation of mdBook into the build directory takes minutes. mdBook builds
//! the site from a copy of the pages in `docs/SUMMARY.md`; the copy keeps the folder structure of
//! the repository, so that relative links work in both.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use links::{Page, Place};
use loudou_tests::paths::{target_dir, workspace_root};

use crate::command::run as run_command;
use crate::playground;
use crate::tools::MDBOOK;

mod links;
mod openapi;

/// Writes the `OpenAPI` document of the admin API.
pub(crate) fn describe(root: &Path) -> Result<()> {
    openapi::write(root)
}

/// Path of the summary, which lists the pages of the site in order.
const SUMMARY: &str = "docs/SUMMARY.md";

/// Runs `cargo xtask docs`. With `check_only`, only checks the documents.
pub(crate) fn run(check_only: bool) -> Result<()> {
    if check_only {
        return check();
    }
    openapi::write(&workspace_root())?;
    check()?;
    site()
}

/// Checks the links of all documents, the tests of security promises, the functions in
/// `ARCHITECTURE.md`, and the `OpenAPI` document.
pub(crate) fn check() -> Result<()> {
    let root = workspace_root();
    let pages = links::pages(&root)?;
    let mut problems = links::broken(&root, &pages);
    problems.extend(unlisted(&pages)?);
    problems.extend(broken_promises(&root)?);
    problems.extend(broken_walk(&root)?);
    problems.extend(openapi::stale(&root)?);
    for problem in &problems {
        println!("{problem}");
    }
    ensure!(
        problems.is_empty(),
        "problems in the documents: {}",
        problems.len()
    );
    let links: usize = pages.iter().map(|page| page.links.len()).sum();
    println!("{links} links in {} documents", pages.len());
    Ok(())
}

fn summary(pages: &[Page]) -> Result<&Page> {
    let mut pages = pages.iter();
    pages
        .find(|page| page.path == SUMMARY)
        .with_context(|| format!("no {SUMMARY}"))
}

/// Returns the user documents that are missing in the summary.
fn unlisted(pages: &[Page]) -> Result<Vec<String>> {
    let listed: BTreeSet<String> = linked(summary(pages)?);
    let is_public = |path: &str| {
        let of_users = path.starts_with("docs/") || path.starts_with("envoy/");
        (of_users || !path.contains('/')) && path != SUMMARY
    };
    let missing = pages
        .iter()
        .filter(|page| is_public(&page.path) && !listed.contains(&page.path));
    Ok(missing
        .map(|page| format!("{}: not in {SUMMARY}", page.path))
        .collect())
}

/// Returns the files that this page links to.
fn linked(page: &Page) -> BTreeSet<String> {
    let places = page.links.iter().filter_map(|link| link.place(&page.path));
    places
        .filter_map(|place| match place {
            Place::File { path, .. } => Some(path),
            Place::Outside => None,
        })
        .collect()
}

fn site() -> Result<()> {
    let root = workspace_root();
    let pages = links::pages(&root)?;
    let book = target_dir().join("book");
    let source = book.join("src");
    if source.exists() {
        fs::remove_dir_all(&source).with_context(|| source.display().to_string())?;
    }
    let summary = summary(&pages)?;
    let chapters = linked(summary);
    let mut files = chapters.clone();
    for page in pages.iter().filter(|page| chapters.contains(&page.path)) {
        files.extend(linked(page));
    }
    for file in &files {
        copy(&root.join(file), &source.join(file))?;
    }
    let text = fs::read_to_string(root.join(SUMMARY))?;
    fs::write(source.join("SUMMARY.md"), from_root(&text, summary))?;
    copy(&root.join("docs/book.toml"), &book.join("book.toml"))?;
    run_command(Command::new(MDBOOK.program()?).arg("build").arg(&book))?;
    copy(&playground::build()?, &book.join("site/playground.html"))?;
    println!("{}", book.join("site/index.html").display());
    Ok(())
}

/// Returns the text of the summary with links relative to the repository root.
fn from_root(text: &str, summary: &Page) -> String {
    let mut text = text.to_owned();
    for link in &summary.links {
        if let Some(Place::File { path, .. }) = link.place(&summary.path) {
            text = text.replace(&format!("]({})", link.target), &format!("]({path})"));
        }
    }
    text
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    fs::copy(from, to).with_context(|| format!("cannot copy {}", from.display()))?;
    Ok(())
}

/// Page with a table of security promises. Each promise names the tests that verify it; these tests
/// must exist.
const PAGE: &str = "docs/explain/security.md";
/// Header of the table of promises.
const COLUMN: &str = "| promise | test |";

/// Returns promises that name no test, and tests that are named but do not exist.
fn broken_promises(root: &Path) -> Result<Vec<String>> {
    let page = fs::read_to_string(root.join(PAGE)).context(PAGE)?;
    let mut sources = String::new();
    read_sources(root, &mut sources)?;
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
        // A name with a space is a command and not a test.
        for name in names.filter(|name| !name.contains(' ')) {
            if !sources.contains(&format!("fn {name}(")) {
                problems.push(format!("no test `{name}`"));
            }
        }
    }
    problems
}

/// Checks the table in `ARCHITECTURE.md` that follows a request through the code; returns the
/// functions that do not exist in the file of their row.
fn broken_walk(root: &Path) -> Result<Vec<String>> {
    const WALK: &str = "ARCHITECTURE.md";
    let page = fs::read_to_string(root.join(WALK)).context(WALK)?;
    let mut problems = Vec::new();
    let rows = walk(&page);
    if rows.is_empty() {
        problems.push(format!("{WALK}: no walk"));
    }
    for (file, function) in rows {
        let source = fs::read_to_string(root.join(file)).unwrap_or_default();
        if !source.contains(&format!("fn {function}")) {
            problems.push(format!("{WALK}: no function `{function}` in {file}"));
        }
    }
    Ok(problems)
}

/// Returns the file and the function in each row of the table `| file | function |`.
fn walk(page: &str) -> Vec<(&str, &str)> {
    let rows = page.lines();
    let rows = rows.skip_while(|line| !line.starts_with("| file | function |"));
    let rows = rows.skip(2).take_while(|line| line.starts_with('|'));
    let named = rows.filter_map(|row| {
        let mut names = row.split('`').skip(1).step_by(2);
        names.next().zip(names.next())
    });
    named.collect()
}

/// Appends the contents of all Rust files below a folder to `sources`.
fn read_sources(folder: &Path, sources: &mut String) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir() {
            if name != "target" && !name.starts_with('.') {
                read_sources(&path, sources)?;
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
    fn a_walk_has_files_and_functions() {
        let page = "| file | function | why |\n| --- | --- | --- |\n| `a.rs` | `go` | by `b` |\n\n| `c` | `d` |\n";
        assert_eq!(walk(page), [("a.rs", "go")]);
    }

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
