//! `cargo xtask circles`: checks that no files of a crate use each other in a circle.
//!
//! A file uses another when it names one of its items, in a `use` or in a path, also through re-exports.
//! Re-exports do not count as uses, and neither does what a module takes from one that encloses it.
//! Tests are left out.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use loudou_tests::paths::workspace_root;
use serde_json::Value;

use crate::command::cargo;
use modules::Modules;

mod modules;
mod text;

/// Files that use each other, with each use of one by another.
#[derive(Debug, PartialEq, Eq)]
struct Circle(BTreeMap<(PathBuf, PathBuf), BTreeSet<String>>);

/// The files that each file uses, with the names.
type Uses<'a> = BTreeMap<&'a Path, BTreeMap<&'a Path, BTreeSet<&'a str>>>;

/// Checks every crate of the workspace.
pub(crate) fn run() -> Result<()> {
    let roots = crate_roots()?;
    let mut found = 0_usize;
    for root in &roots {
        let circles = circles(root, &|file| fs::read_to_string(file).ok())?;
        for circle in &circles {
            println!("{circle}");
        }
        found = found.saturating_add(circles.len());
    }
    match found {
        0 => println!("no import circles in {} crates", roots.len()),
        1 => bail!("1 import circle: move what ties it into a file that its files can use"),
        n => bail!("{n} import circles: move what ties each into a file that its files can use"),
    }
    Ok(())
}

/// The root files of the libraries and programs of this workspace.
fn crate_roots() -> Result<Vec<PathBuf>> {
    let mut metadata = cargo(&["metadata", "--no-deps", "--format-version", "1"]);
    let output = metadata.output().context("cannot run `cargo metadata`")?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "`cargo metadata` failed: {error}");
    let metadata: Value = serde_json::from_slice(&output.stdout)?;
    let list = |value: &Value, name| {
        let list = value.get(name).and_then(Value::as_array);
        list.cloned().unwrap_or_default()
    };
    let mut roots = Vec::new();
    for package in list(&metadata, "packages") {
        for target in list(&package, "targets") {
            let mut kinds = list(&target, "kind").into_iter();
            let is_test = kinds.any(|kind| kind == "test" || kind == "custom-build");
            let file = target.get("src_path").and_then(Value::as_str);
            roots.extend(file.filter(|_| !is_test).map(PathBuf::from));
        }
    }
    Ok(roots)
}

/// The circles in the crate whose root is `root`.
fn circles(root: &Path, source: &dyn Fn(&Path) -> Option<String>) -> Result<Vec<Circle>> {
    let modules = Modules::read(root, source)?;
    let mut uses = Uses::new();
    for tie in modules.ties() {
        let names = uses.entry(tie.from).or_default().entry(tie.to).or_default();
        names.insert(tie.name);
    }
    let reach: BTreeMap<&Path, BTreeSet<&Path>> = uses
        .keys()
        .map(|file| (*file, reach(&uses, file)))
        .collect();
    let back = |from: &Path, to: &Path| reach.get(from).is_some_and(|others| others.contains(to));
    let mut circles = Vec::new();
    let mut seen: BTreeSet<&Path> = BTreeSet::new();
    for (&file, others) in &reach {
        if seen.contains(file) || !others.contains(file) {
            continue;
        }
        let members = others.iter().filter(|other| back(other, file));
        let members: BTreeSet<&Path> = members.copied().collect();
        circles.push(Circle::of(&members, &uses));
        seen.extend(members);
    }
    Ok(circles)
}

/// The files that a file uses, directly or through others; itself only in a circle.
fn reach<'a>(uses: &Uses<'a>, from: &'a Path) -> BTreeSet<&'a Path> {
    let mut reached = BTreeSet::new();
    let mut todo = vec![from];
    while let Some(file) = todo.pop() {
        let next = uses.get(file).into_iter().flat_map(BTreeMap::keys);
        todo.extend(next.filter(|next| reached.insert(**next)));
    }
    reached
}

impl Circle {
    fn of(members: &BTreeSet<&Path>, uses: &Uses<'_>) -> Self {
        let mut ties = BTreeMap::new();
        for (from, used) in uses.iter().filter(|(from, _)| members.contains(*from)) {
            for (to, names) in used.iter().filter(|(to, _)| members.contains(*to)) {
                let names = names.iter().map(ToString::to_string).collect();
                ties.insert((from.to_path_buf(), to.to_path_buf()), names);
            }
        }
        Self(ties)
    }
}

impl fmt::Display for Circle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let files: BTreeSet<&PathBuf> = self.0.keys().map(|(from, _)| from).collect();
        writeln!(f, "a circle of {} files:", files.len())?;
        let root = workspace_root();
        let short = |file: &Path| {
            file.strip_prefix(&root)
                .unwrap_or(file)
                .display()
                .to_string()
        };
        for ((from, to), names) in &self.0 {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            writeln!(
                f,
                "  {} -> {}: {}",
                short(from),
                short(to),
                names.join(", ")
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
