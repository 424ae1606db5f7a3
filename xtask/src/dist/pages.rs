//! Collects the manual pages and shell completions that the `loudou` program prints.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::oci::File;

/// Supported shells, and the path of each shell's completion script in an archive.
const SHELLS: [(&str, &str); 3] = [
    ("bash", "share/bash-completion/completions/loudou"),
    ("fish", "share/fish/vendor_completions.d/loudou.fish"),
    ("zsh", "share/zsh/site-functions/_loudou"),
];

/// Returns the manual pages and completion scripts that `program` prints. Their contents do not
/// depend on the machine.
pub(super) fn of(program: &Path) -> Result<Vec<File>> {
    let print = |arguments: &[&str]| -> Result<Vec<u8>> {
        let output = Command::new(program).args(arguments).output();
        let output = output.with_context(|| program.display().to_string())?;
        let errors = String::from_utf8_lossy(&output.stderr);
        let words = arguments.join(" ");
        ensure!(output.status.success(), "loudou {words}: {errors}");
        Ok(output.stdout)
    };
    let mut files = Vec::new();
    for (shell, path) in SHELLS {
        files.push((path.to_owned(), print(&["completions", shell])?));
    }
    files.push(("share/man/man1/loudou.1".to_owned(), print(&["man"])?));
    for name in commands(&String::from_utf8_lossy(&print(&["--help"])?)) {
        let page = print(&["man", name])?;
        files.push((format!("share/man/man1/loudou-{name}.1"), page));
    }
    let file = |(path, bytes)| File {
        path,
        bytes,
        is_program: false,
    };
    Ok(files.into_iter().map(file).collect())
}

/// Returns the command names in the `Commands:` section of the help text.
fn commands(help: &str) -> Vec<&str> {
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let lines = lines.take_while(|line| !line.is_empty());
    // Continuation lines of a description are indented further than command names.
    let first = lines.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    first
        .filter_map(|line| line.split_whitespace().next())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_the_first_words_below_their_heading() {
        let help = "Usage: x\n\nCommands:\n  top    Watch\n           more\n  check  Check\n\nOptions:\n  -h  Help\n";
        assert_eq!(commands(help), ["top", "check"]);
    }
}
