//! Checks the links in Markdown files: their target files and headings must exist.
//!
//! `lychee` and `mdbook-linkcheck` would have to be compiled on every new machine, which takes
//! minutes. The check in this file takes milliseconds.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

/// Folders that contain no documents of this project.
const NOT_OURS: [&str; 2] = ["target", ".git"];

/// A Markdown file.
#[derive(Debug)]
pub(super) struct Page {
    /// Path relative to the repository root, with `/` as separator.
    pub(super) path: String,
    /// Links and images, in document order.
    pub(super) links: Vec<Link>,
    /// Anchors of the headings.
    anchors: BTreeSet<String>,
}

/// A link in a Markdown file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Link {
    /// Line number (1-based).
    line: usize,
    /// Address in the link.
    pub(super) target: String,
}

/// Target of a link.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// A file in the repository, optionally with the anchor of a heading.
    File {
        path: String,
        heading: Option<String>,
    },
    /// A path outside the repository.
    Outside,
}

impl Link {
    /// Resolves the target relative to the file `from`; returns `None` for a web address.
    pub(super) fn place(&self, from: &str) -> Option<Place> {
        let scheme = self.target.split_once(':');
        if scheme.is_some_and(|(name, _)| name.bytes().all(|b| b.is_ascii_alphabetic())) {
            return None;
        }
        let (path, heading) = match self.target.split_once('#') {
            Some((path, heading)) => (path, Some(heading.to_owned())),
            None => (self.target.as_str(), None),
        };
        if path.is_empty() {
            let path = from.to_owned();
            return Some(Place::File { path, heading });
        }
        let mut steps: Vec<&str> = from.split('/').collect();
        steps.pop();
        for step in path.split('/') {
            match step {
                ".." if steps.pop().is_none() => return Some(Place::Outside),
                "" | "." | ".." => {}
                name => steps.push(name),
            }
        }
        let path = steps.join("/");
        Some(Place::File { path, heading })
    }
}

/// Returns all Markdown files below `root`.
pub(super) fn pages(root: &Path) -> Result<Vec<Page>> {
    let mut pages = Vec::new();
    read_folder(root, "", &mut pages)?;
    pages.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(pages)
}

fn read_folder(root: &Path, folder: &str, pages: &mut Vec<Page>) -> Result<()> {
    let entries =
        fs::read_dir(root.join(folder)).with_context(|| format!("cannot read {folder}"))?;
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if folder.is_empty() {
            name.clone()
        } else {
            format!("{folder}/{name}")
        };
        let kind = entry.file_type()?;
        if kind.is_dir() && !NOT_OURS.contains(&name.as_str()) {
            read_folder(root, &path, pages)?;
        } else if kind.is_file() && entry.path().extension().is_some_and(|end| end == "md") {
            let text = fs::read_to_string(entry.path()).with_context(|| path.clone())?;
            pages.push(Page::read(path, &text));
        }
    }
    Ok(())
}

impl Page {
    fn read(path: String, text: &str) -> Self {
        let mut page = Self {
            path,
            links: Vec::new(),
            anchors: BTreeSet::new(),
        };
        let mut heading: Option<String> = None;
        let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH;
        for (event, range) in Parser::new_ext(text, options).into_offset_iter() {
            match event {
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                    let before = text.get(..range.start).unwrap_or_default();
                    let line = before.matches('\n').count();
                    page.links.push(Link {
                        line: line.saturating_add(1),
                        target: dest_url.into_string(),
                    });
                }
                Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
                Event::Text(words) | Event::Code(words) => {
                    if let Some(heading) = &mut heading {
                        heading.push_str(&words);
                    }
                }
                Event::End(TagEnd::Heading(_)) => {
                    page.add_anchor(&heading.take().unwrap_or_default());
                }
                _ => {}
            }
        }
        page
    }

    /// Adds the anchor of a heading. The anchor of a repeated heading gets the suffix `-1`, `-2`
    /// and so on, as on GitHub and in mdBook.
    fn add_anchor(&mut self, heading: &str) {
        let anchor = anchor(heading);
        let mut unique = anchor.clone();
        let mut count: usize = 0;
        while self.anchors.contains(&unique) {
            count = count.saturating_add(1);
            unique = format!("{anchor}-{count}");
        }
        self.anchors.insert(unique);
    }
}

fn anchor(heading: &str) -> String {
    let kept = heading.trim().chars().filter_map(|c| match c {
        ' ' => Some('-'),
        '-' | '_' => Some(c),
        c if c.is_alphanumeric() => Some(c),
        _ => None,
    });
    kept.flat_map(char::to_lowercase).collect()
}

/// Returns the broken links, one per line.
pub(super) fn broken(root: &Path, pages: &[Page]) -> Vec<String> {
    let by_path: BTreeMap<&str, &Page> = pages
        .iter()
        .map(|page| (page.path.as_str(), page))
        .collect();
    let mut problems = Vec::new();
    for page in pages {
        for link in &page.links {
            if let Some(why) = why_broken(root, &by_path, page, link) {
                let (path, line, target) = (&page.path, link.line, &link.target);
                problems.push(format!("{path}:{line}: {target}: {why}"));
            }
        }
    }
    problems
}

fn why_broken(
    root: &Path,
    pages: &BTreeMap<&str, &Page>,
    page: &Page,
    link: &Link,
) -> Option<&'static str> {
    let (path, heading) = match link.place(&page.path)? {
        Place::Outside => return Some("outside of the repository"),
        Place::File { path, heading } => (path, heading),
    };
    if root.join(&path).is_dir() {
        return Some("a folder, which the site cannot show");
    }
    if !root.join(&path).is_file() {
        return Some("no such file");
    }
    let heading = heading?;
    let known = pages.get(path.as_str());
    let known = known.is_some_and(|page| page.anchors.contains(&heading));
    (!known).then_some("no such heading")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(path: &str, text: &str) -> Page {
        Page::read(path.to_owned(), text)
    }

    fn place(from: &str, target: &str) -> Option<Place> {
        let target = target.to_owned();
        Link { line: 1, target }.place(from)
    }

    fn file(path: &str, heading: Option<&str>) -> Place {
        Place::File {
            path: path.to_owned(),
            heading: heading.map(str::to_owned),
        }
    }

    #[test]
    fn links_are_relative_to_their_file() {
        assert_eq!(place("docs/a.md", "b.md"), Some(file("docs/b.md", None)));
        assert_eq!(
            place("docs/a.md", "../R.md#x"),
            Some(file("R.md", Some("x")))
        );
        assert_eq!(
            place("docs/a/b.md", "./c/../d.svg"),
            Some(file("docs/a/d.svg", None))
        );
        assert_eq!(place("docs/a.md", "#x"), Some(file("docs/a.md", Some("x"))));
        assert_eq!(place("docs/a.md", "../../x"), Some(Place::Outside));
        assert_eq!(place("docs/a.md", "https://a.test/#x"), None);
    }

    #[test]
    fn headings_have_anchors() {
        let text = "# Which *limit*?\n## `stop`, and more\n## `stop`, and more\n```\n# no\n```\n## 漏斗 2 – 3\n";
        let anchors: Vec<_> = page("a.md", text).anchors.into_iter().collect();
        let expected = [
            "stop-and-more",
            "stop-and-more-1",
            "which-limit",
            "漏斗-2--3",
        ];
        assert_eq!(anchors, expected);
    }

    #[test]
    fn links_are_found_with_their_lines() {
        let text = "[a](b.md)\n\n`[no](x)` ![p](p.svg)\n\n| |\n| --- |\n| [t](u.md) |\n";
        let found: Vec<_> = page("a.md", text).links;
        let found: Vec<_> = found
            .iter()
            .map(|link| (link.line, link.target.as_str()))
            .collect();
        assert_eq!(found, [(1, "b.md"), (3, "p.svg"), (7, "u.md")]);
    }

    #[test]
    fn broken_links_are_reported() {
        let root = loudou_tests::paths::workspace_root();
        let pages = [
            page("README.md", "# Title\n[a](#title) [b](#other)\n"),
            page(
                "docs/a.md",
                "[a](../README.md#title)\n[b](none.md)\n[c](../envoy) [d](../../x)\n",
            ),
        ];
        assert_eq!(
            broken(&root, &pages),
            [
                "README.md:2: #other: no such heading",
                "docs/a.md:2: none.md: no such file",
                "docs/a.md:3: ../envoy: a folder, which the site cannot show",
                "docs/a.md:3: ../../x: outside of the repository",
            ]
        );
    }
}
