//! `cargo xtask update`: regenerates the committed files that are generated from the code:
//! snapshots, schemas, tables and pictures. Afterwards, `git diff` shows how a change of the code
//! affects them. Instruction budgets are not updated, because each budget is a deliberate decision.

use std::fs;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use loudou_tests::paths::workspace_root;

use crate::command::{cargo, run};
use crate::{checks, docs, pictures};

const SCHEMA: &str = "docs/schema/loudou.schema.json";
const FIELDS: &str = "docs/reference/fields.md";
const COMMANDS: &str = "docs/reference/cli.md";
/// Pages with a generated part, and the arguments with which `loudou` prints the part; marks around
/// the part contain the same arguments.
const PRINTED: [(&str, [&str; 2]); 2] = [
    (FIELDS, ["schema", "--markdown"]),
    (COMMANDS, ["man", "--markdown"]),
];

pub(crate) fn run_all() -> Result<()> {
    let root = workspace_root();
    let loudou = checks::loudou()?;
    let printed = |arguments: &[&str]| -> Result<String> {
        let output = Command::new(&loudou).args(arguments).output()?;
        ensure!(output.status.success(), "loudou {arguments:?}");
        Ok(String::from_utf8(output.stdout)?)
    };
    fs::write(root.join(SCHEMA), printed(&["schema"])?).context(SCHEMA)?;
    for (path, arguments) in PRINTED {
        let page = fs::read_to_string(root.join(path)).context(path)?;
        let page = between(&page, arguments, &printed(&arguments)?).context(path)?;
        fs::write(root.join(path), page).context(path)?;
    }
    docs::describe(&root)?;
    // Update the snapshots before the pictures, because some pictures are drawn from snapshots.
    let mut tests = cargo(&["test", "--quiet", "--package", "loudou", "--lib"]);
    run(tests.env("INSTA_UPDATE", "always")).context(
        "not only snapshots in files differ: `cargo insta test --accept -p loudou` updates those within tests",
    )?;
    pictures::run_all()
}

/// Returns the lines that mark the start and the end of a generated part.
fn marks(arguments: [&str; 2]) -> [String; 2] {
    let command = arguments.join(" ");
    [
        format!("<!-- begin: loudou {command} -->\n\n"),
        format!("\n<!-- end: loudou {command} -->"),
    ]
}

/// Replaces the text between the marks of a page, or returns `None` if the marks are missing.
fn between(page: &str, arguments: [&str; 2], text: &str) -> Option<String> {
    let [begin, end] = marks(arguments);
    let (head, rest) = page.split_once(&begin)?;
    let (_, tail) = rest.split_once(&end)?;
    Some([head, &begin, text, &end, tail].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_replaced_between_its_marks() {
        let (_, arguments) = PRINTED[0];
        let [begin, end] = marks(arguments);
        let page = format!("# Fields\n{begin}old\n{end}\n\nmore\n");
        let made = between(&page, arguments, "new\n").expect("marks");
        assert_eq!(made, format!("# Fields\n{begin}new\n{end}\n\nmore\n"));
        assert_eq!(between("no marks", arguments, "new"), None);
    }
}
