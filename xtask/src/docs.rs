//! `cargo xtask docs`: writes the `OpenAPI` document, builds the documents as a site and checks their links.
//!
//! The check reads every Markdown file of the repository and needs nothing else, so `ci` runs it. mdBook
//! builds the site; at first use it is installed into the build directory, which takes minutes, so `ci`
//! does not build it. The source is a copy of the pages in `docs/SUMMARY.md`, in the same folders as here,
//! so that the same links work in both.

mod links;
mod openapi;
mod promises;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use loudou_tests::paths::{target_dir, workspace_root};

use self::links::{Page, Place};
use crate::command::run as run_command;
use crate::tools::MDBOOK;

/// The pages of the site, in order.
const SUMMARY: &str = "docs/SUMMARY.md";

/// Checks the documents. Unless `check_only` is set, it writes the `OpenAPI` document before, and builds the site.
pub(crate) fn run(check_only: bool) -> Result<()> {
    if check_only {
        return check();
    }
    openapi::write(&workspace_root())?;
    check()?;
    site()
}

/// Checks the links of all documents, and the `OpenAPI` document.
pub(crate) fn check() -> Result<()> {
    let root = workspace_root();
    let pages = links::pages(&root)?;
    let mut problems = links::broken(&root, &pages);
    problems.extend(unlisted(&pages)?);
    problems.extend(promises::broken(&root)?);
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

/// The user documents that the site does not list.
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

/// The files that a page links to.
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
    println!("{}", book.join("site/index.html").display());
    Ok(())
}

/// The text of the summary, with links from the root of the repository.
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
