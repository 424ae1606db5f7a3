//! `cargo xtask test NAME…`: runs only the tests whose full names contain one of the names.
//!
//! The names of all tests are read from the source files. `cargo test -- --list` would also list them, but only after
//! it has compiled every package. The source files also show which programs an end-to-end test starts.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use loudou_tests::paths::workspace_root;

use super::{
    Action, FILTER, LOUDOU, NATIVE, Outcome, RELAY, Step, TRAP, TRAP_NATIVE, WITHOUT_ADMIN,
    set_programs, steps_of,
};
use crate::command::{cargo, run};
use crate::setup;

/// Package of the end-to-end tests.
const END_TO_END: &str = "loudou-tests";

/// A source file that contains tests.
#[derive(Debug)]
struct Source {
    /// Package to which the file belongs.
    package: String,
    /// Full names of the tests in the file, as `cargo test` prints them.
    tests: Vec<String>,
    /// Lower-case text of the file; for an end-to-end test, of all files of its subject.
    text: String,
}

/// Runs the tests whose names contain one of `names`, after the setup and builds that these tests need.
pub(super) fn test(names: &[String]) -> Result<()> {
    let mut found = sources(&workspace_root())?;
    found.retain(|source| source.tests.iter().any(|test| matches(test, names)));
    ensure!(
        !found.is_empty(),
        "no test has a name that contains {}",
        quoted(names)
    );
    let packages: BTreeSet<&str> = found.iter().map(|source| source.package.as_str()).collect();
    let run_tests = || {
        let mut test = cargo(&["test", "--tests", "--no-fail-fast"]);
        for package in &packages {
            test.args(["--package", package]);
        }
        test.arg("--").args(names);
        if packages.contains(END_TO_END) {
            set_programs(&mut test)?;
        } else if packages.contains("loudou-relay") {
            test.env("VALKEY_BIN", loudou_tests::valkey_bin()?);
        }
        run(&mut test).map(|()| Outcome::Passed)
    };
    let needed = needs(&found);
    let mut steps: Vec<(&str, Action<'_>)> = needed
        .iter()
        .map(|(title, action)| {
            let action: Action<'_> = action;
            (*title, action)
        })
        .collect();
    steps.push(("the tests", &run_tests));
    steps_of(&steps)
}

/// Installs the programs that end-to-end tests start.
const PROGRAMS: Step = step!("setup", setup::for_end_to_end());
/// Installs Valkey for the tests of the relay; other unit tests start no programs.
const VALKEY: Step = step!("Valkey", setup::valkey());

/// Returns the steps that must run before the tests in these sources.
fn needs(found: &[Source]) -> Vec<Step> {
    let mut steps = Vec::new();
    let end_to_end: Vec<&Source> = found.iter().filter(|s| s.package == END_TO_END).collect();
    if end_to_end.is_empty() {
        if found.iter().any(|source| source.package == "loudou-relay") {
            steps.push(VALKEY);
        }
        return steps;
    }
    let mention = |words: &[&str]| {
        let has = |source: &&Source| words.iter().any(|word| source.text.contains(word));
        end_to_end.iter().any(has)
    };
    steps.extend([PROGRAMS, FILTER, LOUDOU]);
    if mention(&["trap_wasm"]) {
        steps.push(TRAP);
    }
    if mention(&["data_wasm"]) {
        steps.push(WITHOUT_ADMIN);
    }
    if mention(&["native_path"]) {
        steps.extend([NATIVE, TRAP_NATIVE]);
    }
    // Several Envoys form a fleet, and share limits through relays.
    if mention(&["relay", "fleet"]) {
        steps.push(RELAY);
    }
    steps
}

fn matches(test: &str, names: &[String]) -> bool {
    names.iter().any(|name| test.contains(name.as_str()))
}

fn quoted(names: &[String]) -> String {
    let quoted: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
    quoted.join(" or ")
}

/// Returns all source files in the workspace that contain tests.
fn sources(root: &Path) -> Result<Vec<Source>> {
    let mut folders = vec![
        "filter",
        "native",
        "tui",
        "tests",
        "tests/floor",
        "tests/fuzz",
        "xtask",
    ]
    .into_iter()
    .map(|folder| root.join(folder))
    .collect::<Vec<_>>();
    for entry in fs::read_dir(root.join("crates"))? {
        folders.push(entry?.path());
    }
    let mut sources = Vec::new();
    for folder in folders {
        let package = package(&folder.join("Cargo.toml"))?;
        for part in ["src", "tests"] {
            let base = folder.join(part);
            let mut files = Vec::new();
            if base.is_dir() {
                rust_files(&base, &mut files)?;
            }
            let is_subject = package == END_TO_END && part == "tests";
            for file in &files {
                let text = read(file)?;
                let mut module = module_path(file.strip_prefix(&base)?);
                let mut all = text.to_lowercase();
                if is_subject {
                    let subject = module.first().cloned();
                    for other in files.iter().filter(|other| *other != file) {
                        if module_path(other.strip_prefix(&base)?).first() == subject.as_ref() {
                            all.push_str(&read(other)?.to_lowercase());
                        }
                    }
                } else if part == "tests" && !module.is_empty() {
                    // Each file or folder in `tests` becomes a test program, whose name is not part of the test names.
                    module.remove(0);
                }
                let tests = tests(&module, &text);
                if !tests.is_empty() {
                    sources.push(Source {
                        package: package.clone(),
                        tests,
                        text: all,
                    });
                }
            }
        }
    }
    Ok(sources)
}

fn read(file: &Path) -> Result<String> {
    fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))
}

/// Reads the package name from this manifest.
fn package(manifest: &Path) -> Result<String> {
    let text = read(manifest)?;
    let name = text.lines().find_map(|line| line.strip_prefix("name = "));
    let name = name.with_context(|| format!("{} has no name", manifest.display()))?;
    Ok(name.trim_matches('"').to_owned())
}

/// Adds all Rust files in this folder and its subfolders.
fn rust_files(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            rust_files(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    Ok(())
}

/// Returns the module path of a file; for `fleet/bound.rs`, the path is `fleet`, `bound`.
fn module_path(file: &Path) -> Vec<String> {
    let path = file.with_extension("");
    let parts = path.iter().map(|part| part.to_string_lossy().into_owned());
    parts
        .filter(|part| !["main", "lib", "mod"].contains(&part.as_str()))
        .collect()
}

/// Returns the full names of the tests in the source text of a module.
fn tests(module: &[String], text: &str) -> Vec<String> {
    let mut names = Vec::new();
    // Stack of inline modules that contain the current line, each with its indentation.
    let mut inline: Vec<(usize, String)> = Vec::new();
    let mut is_test = false;
    for line in text.lines() {
        let code = line.trim_start();
        let indentation = line.len().saturating_sub(code.len());
        if code == "}"
            && inline
                .last()
                .is_some_and(|(start, _)| *start == indentation)
        {
            inline.pop();
        } else if let Some(name) = code.strip_prefix("mod ").and_then(|m| m.strip_suffix(" {")) {
            inline.push((indentation, name.to_owned()));
        } else if code.starts_with("#[test]") || code.starts_with("#[tokio::test") {
            is_test = true;
        } else if let Some((_, rest)) = code.split_once("fn ")
            && is_test
            && !code.starts_with("//")
        {
            let name = rest.split('(').next().unwrap_or(rest);
            let path = module.iter().chain(inline.iter().map(|(_, name)| name));
            let mut path: Vec<&str> = path.map(String::as_str).collect();
            path.push(name);
            names.push(path.join("::"));
            is_test = false;
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(name: &str) -> Result<Vec<Source>> {
        let mut found = sources(&workspace_root())?;
        found.retain(|source| {
            source
                .tests
                .iter()
                .any(|test| matches(test, &[name.to_owned()]))
        });
        Ok(found)
    }

    fn titles(name: &str) -> Result<Vec<&'static str>> {
        Ok(needs(&found(name)?)
            .iter()
            .map(|(title, _)| *title)
            .collect())
    }

    #[test]
    fn names_have_the_modules_of_file_and_text() {
        let text = "#[test]\nfn first() {}\nmod inner {\n    #[test]\n    fn second() {\n    }\n}\nfn helper() {}\n\
                    #[test]\nfn third() {}\n";
        let names = tests(&module_path(Path::new("fleet/bound.rs")), text);
        assert_eq!(
            names,
            [
                "fleet::bound::first",
                "fleet::bound::inner::second",
                "fleet::bound::third"
            ]
        );
    }

    #[test]
    fn only_the_builds_that_a_test_needs_are_steps() -> Result<()> {
        let unit = found("checks::named::tests::names_have_the_modules")?;
        assert_eq!(unit.len(), 1);
        assert_eq!(unit.first().map(|source| &*source.package), Some("xtask"));
        assert!(needs(&unit).is_empty());
        let common = [PROGRAMS.0, FILTER.0, LOUDOU.0];
        assert_eq!(titles("bans::")?, common);
        assert!(titles("crash::")?.contains(&TRAP.0));
        assert!(titles("without_admin::")?.contains(&WITHOUT_ADMIN.0));
        assert!(titles("fleet::bound::")?.contains(&RELAY.0));
        Ok(())
    }

    #[test]
    fn a_name_without_tests_is_an_error() {
        let name = ["no such", "test at all"].join(" ");
        let error = test(&[name]).expect_err("no test has this name");
        assert_eq!(
            error.to_string(),
            "no test has a name that contains `no such test at all`"
        );
    }
}
