//! `cargo xtask update`: writes the committed outputs of the code again: snapshots, schemas, tables and pictures. `git diff`
//! then shows what a change does to them. It does not touch the budgets of instructions, because a budget is a decision.

use std::fs;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use loudou_tests::paths::workspace_root;

use crate::command::{cargo, run};
use crate::{checks, docs, pictures};

const SCHEMA: &str = "docs/schema/loudou.schema.json";
const FIELDS: &str = "docs/reference/fields.md";
/// The lines around the table of fields.
const MARKS: [&str; 2] = [
    "<!-- begin: loudou schema --markdown -->\n\n",
    "\n<!-- end: loudou schema --markdown -->",
];

pub(crate) fn run_all() -> Result<()> {
    let root = workspace_root();
    let loudou = checks::loudou()?;
    let printed = |options: &[&str]| -> Result<String> {
        let mut command = Command::new(&loudou);
        let output = command.arg("schema").args(options).output()?;
        ensure!(output.status.success(), "loudou schema {options:?}");
        Ok(String::from_utf8(output.stdout)?)
    };
    fs::write(root.join(SCHEMA), printed(&[])?).context(SCHEMA)?;
    let page = fs::read_to_string(root.join(FIELDS)).context(FIELDS)?;
    let page = between(&page, &printed(&["--markdown"])?).with_context(|| FIELDS.to_owned())?;
    fs::write(root.join(FIELDS), page).context(FIELDS)?;
    docs::describe(&root)?;
    // Snapshots before pictures, which are drawn from some of them.
    let mut tests = cargo(&["test", "--quiet", "--package", "loudou", "--lib"]);
    run(tests.env("INSTA_UPDATE", "always")).context(
        "not only snapshots in files differ: `cargo insta test --accept -p loudou` updates those within tests",
    )?;
    pictures::run_all()
}

/// The page with another table between its marks.
fn between(page: &str, table: &str) -> Option<String> {
    let [begin, end] = MARKS;
    let (head, rest) = page.split_once(begin)?;
    let (_, tail) = rest.split_once(end)?;
    Some([head, begin, table, end, tail].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_replaced_between_its_marks() {
        let [begin, end] = MARKS;
        let page = format!("# Fields\n{begin}old\n{end}\n\nmore\n");
        let made = between(&page, "new\n").expect("marks");
        assert_eq!(made, format!("# Fields\n{begin}new\n{end}\n\nmore\n"));
        assert_eq!(between("no marks", "new"), None);
    }
}
