//! Runs the commands of a README and compares their output with the README's.
//!
//! A block marked `console` holds `$ command` lines (continued with `\`), each followed by its
//! output. In the expected output `…` stands for any text within a line, and a line with only `…`
//! stands for any number of lines. The value of a `date:` header is not compared. Variables that a
//! command `export`s are set for later commands.

use std::env;
use std::ffi::OsString;
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};

use crate::paths::{find_on_path, loudou_bin, without_config_file, workspace_root};

/// A command in a README.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Line number of the command in the file; the first line is 1.
    pub line: usize,
    /// Command for the shell.
    pub command: String,
    /// Lines of its expected output.
    pub expected: Vec<String>,
}

/// Returns the commands of all `console` blocks, in order.
pub fn steps(markdown: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut inside = false;
    let mut continues = false;
    for (line, text) in (1..).zip(markdown.lines()) {
        if text.starts_with("```") {
            inside = text == "```console";
            continues = false;
        } else if !inside {
        } else if let (true, Some(step)) = (continues, steps.last_mut()) {
            step.command = format!("{}\n{text}", step.command);
            continues = text.ends_with('\\');
        } else if let Some(command) = text.strip_prefix("$ ") {
            continues = command.ends_with('\\');
            steps.push(Step {
                line,
                command: command.to_owned(),
                expected: Vec::new(),
            });
        } else if let Some(step) = steps.last_mut() {
            step.expected.push(text.to_owned());
        }
    }
    steps
}

/// A reader's terminal in the workspace root, with `loudou` on its path.
#[derive(Debug)]
pub struct Shell {
    path: OsString,
    exports: String,
}

impl Shell {
    /// Creates a terminal. A missing curl or `loudou` is an error.
    pub fn new() -> Result<Self> {
        ensure!(
            find_on_path("curl").is_some(),
            "there is no curl on PATH, and the READMEs' commands need one: install it"
        );
        let loudou = loudou_bin()?;
        let own = loudou.parent().map(Into::into);
        let others = env::var_os("PATH").unwrap_or_default();
        let path = env::join_paths(own.into_iter().chain(env::split_paths(&others)))?;
        Ok(Self {
            path,
            exports: String::new(),
        })
    }

    /// Sets a variable for later commands.
    pub fn export(&mut self, name: &str, value: &str) {
        self.exports.extend(["export ", name, "=", value, "\n"]);
    }

    /// Runs a command and compares its output. `rewrite` replaces parts that differ in this run,
    /// such as ports.
    pub fn run(&mut self, step: &Step, rewrite: impl Fn(&str) -> String) -> Result<()> {
        let place = format!("line {}: {}", step.line, step.command);
        let command = rewrite(&step.command);
        let mut shell = Command::new("sh");
        let output = without_config_file(&mut shell)
            .arg("-c")
            .arg(format!("{}{command}", self.exports))
            .current_dir(workspace_root())
            .env("PATH", &self.path)
            .env_remove("LOUDOU_URL")
            .env_remove("LOUDOU_TOKEN")
            .env_remove("LOUDOU_TOKEN_FILE")
            .output()
            .context("cannot run sh")?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.success(),
            "{place}\n{}: {errors}",
            output.status
        );
        let text = String::from_utf8_lossy(&output.stdout);
        let actual: Vec<&str> = text.lines().map(str::trim_end).collect();
        let expected: Vec<String> = step.expected.iter().map(|line| rewrite(line)).collect();
        let expected: Vec<&str> = expected.iter().map(|line| line.trim_end()).collect();
        if !matches(&expected, &actual) {
            bail!(
                "{place}\n--- expected\n{}\n--- actual\n{}",
                expected.join("\n"),
                actual.join("\n")
            );
        }
        if command.starts_with("export ") {
            self.exports.extend([&command, "\n"]);
        }
        Ok(())
    }
}

/// Returns true if the lines match. The module's documentation describes `…`.
fn matches(expected: &[&str], actual: &[&str]) -> bool {
    match expected.split_first() {
        None => actual.is_empty(),
        Some((&"…", rest)) => {
            (0..=actual.len()).any(|n| actual.get(n..).is_some_and(|tail| matches(rest, tail)))
        }
        Some((first, rest)) => actual
            .split_first()
            .is_some_and(|(line, tail)| line_matches(first, line) && matches(rest, tail)),
    }
}

fn line_matches(expected: &str, actual: &str) -> bool {
    if expected.starts_with("date: ") {
        return actual.starts_with("date: ");
    }
    let mut parts = expected.split('…');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = actual.strip_prefix(first) else {
        return false;
    };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else {
        return rest.is_empty();
    };
    for part in parts {
        match rest.split_once(part) {
            Some((_, tail)) => rest = tail,
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    const README: &str = "# Title
```sh
$ not run
```
```console
$ echo one \\
    two
one two

$ printf 'date: %s\\nid 17 end\\n' now
date: Mon, 01 Jan 2026 00:00:00 GMT
id … end
```
";

    fn shell() -> Shell {
        Shell {
            path: env::var_os("PATH").expect("a path"),
            exports: String::new(),
        }
    }

    #[test]
    fn finds_commands_and_their_output() {
        let steps = steps(README);
        let found: Vec<_> = steps
            .iter()
            .map(|step| (step.line, step.expected.len()))
            .collect();
        assert_eq!(found, [(6, 2), (10, 2)]);
        assert_eq!(steps[0].command, "echo one \\\n    two");
    }

    #[test]
    fn runs_and_compares() -> Result<()> {
        let steps = steps(README);
        let mut shell = shell();
        shell.run(&steps[1], str::to_owned)?;
        // The README shows an empty line that the command does not print.
        let error = shell.run(&steps[0], str::to_owned);
        let error = error.expect_err("the output differs");
        assert!(error.to_string().contains("--- actual\none two"), "{error}");
        shell.run(&steps[1], |text| text.replace("id", "no"))
    }

    #[test]
    fn what_is_exported_stays() -> Result<()> {
        let readme = "```console\n$ export A=1\n$ B=2\n$ echo $A$B\n1\n```";
        let mut shell = shell();
        for step in steps(readme) {
            shell.run(&step, str::to_owned)?;
        }
        Ok(())
    }

    #[test]
    fn dots_stand_for_anything() {
        assert!(matches(&["a", "…", "z"], &["a", "b", "c", "z"]));
        assert!(matches(&["…"], &[]));
        assert!(!matches(&["a"], &["a", "b"]));
        assert!(line_matches("x …, y …", "x 1, y 2"));
        assert!(!line_matches("x … y", "x 1 z"));
        assert!(line_matches("date: then", "date: now"));
    }
}
