//! `cargo xtask bench core`: measures natively how long the platform-independent code takes per
//! request, in nanoseconds. It runs the criterion benchmarks in `crates/rules/benches/core`, and
//! prints their results as tables.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use loudou_tests::paths::target_dir;
use serde_json::Value;

use crate::command::{cargo, run};

const BENCH: [&str; 4] = ["--package", "loudou-rules", "--bench", "core"];
/// Prefix of the function that the others in a group are compared with. If several functions have
/// this prefix, the first one is the baseline.
const BASE: &str = "governor";

/// Result of a criterion benchmark.
#[derive(Debug, PartialEq)]
struct Measured {
    group: String,
    function: String,
    parameter: String,
    median_ns: f64,
}

/// Runs the benchmarks, and prints a table for each group.
pub(super) fn run_all(quick: bool) -> Result<()> {
    let home = target_dir().join("criterion");
    let mut bench = cargo(&["bench"]);
    bench.args(BENCH).arg("--").env("CRITERION_HOME", &home);
    if quick {
        bench.args(["--warm-up-time", "0.3", "--measurement-time", "0.5"]);
    }
    run(&mut bench)?;
    // Take the names from the benchmarks: result files have no order, and some may belong to
    // benchmarks that no longer exist.
    let mut list = cargo(&["bench", "--quiet"]);
    let list = list.args(BENCH).args(["--", "--list"]).output()?;
    ensure!(list.status.success(), "the list failed: {}", list.status);
    let list = String::from_utf8(list.stdout)?;
    let names = list
        .lines()
        .filter_map(|line| line.strip_suffix(": benchmark"));
    let measured: Result<Vec<_>> = names.map(|name| read(&home, name)).collect();
    let measured = measured?;
    ensure!(!measured.is_empty(), "there is no benchmark");
    print!("{}", tables(&measured));
    Ok(())
}

/// Checks that each benchmark still works, by running it once in a debug build.
pub(super) fn check() -> Result<()> {
    run(cargo(&["test", "--quiet"]).args(BENCH))
}

/// Reads criterion's results for the benchmark with this name.
fn read(home: &Path, name: &str) -> Result<Measured> {
    let mut parts = name.splitn(3, '/').map(str::to_owned);
    let mut part = || parts.next().with_context(|| format!("{name}: three parts"));
    let (group, function, parameter) = (part()?, part()?, part()?);
    let file = home.join(name).join("new/estimates.json");
    let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    let estimates: Value = serde_json::from_str(&text)?;
    let median = estimates.pointer("/median/point_estimate");
    let median_ns = median.and_then(Value::as_f64);
    Ok(Measured {
        group,
        function,
        parameter,
        median_ns: median_ns.with_context(|| format!("{name}: no median"))?,
    })
}

/// Formats one table per group, with a row for each function and a column for each parameter.
fn tables(measured: &[Measured]) -> String {
    let groups = distinct(measured.iter().map(|one| one.group.as_str()));
    let table = |group| {
        let rows: Vec<&Measured> = measured.iter().filter(|one| one.group == group).collect();
        table(group, &rows)
    };
    groups.into_iter().map(table).collect()
}

fn table(group: &str, rows: &[&Measured]) -> String {
    let functions = distinct(rows.iter().map(|one| one.function.as_str()));
    let columns = distinct(rows.iter().map(|one| one.parameter.as_str()));
    let base = functions.iter().find(|name| name.starts_with(BASE));
    let of = |function: &str, column: &str| {
        let mut all = rows.iter();
        let found = all.find(|one| one.function == function && one.parameter == column);
        found.map(|one| one.median_ns)
    };
    let beside = base.map(|base| format!(" (× {base})"));
    let title = format!("{group}: ns, median{}", beside.unwrap_or_default());
    let dashes = columns.iter().map(|_| "---:".to_owned());
    let mut lines = vec![
        line(title, columns.iter().map(|name| (*name).to_owned())),
        line("---".to_owned(), dashes),
    ];
    for function in &functions {
        let cell = |column: &&str| {
            let ns = of(function, column)?;
            let base = base.and_then(|base| of(base, column));
            let times = base.map(|base| format!(" ({:.2})", ns / base));
            Some(format!("{ns:.1}{}", times.unwrap_or_default()))
        };
        let cells = columns
            .iter()
            .map(|column| cell(column).unwrap_or_default());
        lines.push(line((*function).to_owned(), cells));
    }
    format!("\n{}\n", lines.join("\n"))
}

/// Formats a line of a Markdown table.
fn line(first: String, cells: impl Iterator<Item = String>) -> String {
    let all: Vec<String> = std::iter::once(first).chain(cells).collect();
    format!("| {} |", all.join(" | "))
}

/// Removes duplicates and keeps the order of first occurrence.
fn distinct<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut found = Vec::new();
    for name in names {
        if !found.contains(&name) {
            found.push(name);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use loudou_tests::temp::TempDir;

    fn one(group: &str, function: &str, parameter: &str, median_ns: f64) -> Measured {
        Measured {
            group: group.to_owned(),
            function: function.to_owned(),
            parameter: parameter.to_owned(),
            median_ns,
        }
    }

    #[test]
    fn a_table_for_each_group() {
        let measured = [
            one("decision", "governor", "admitted", 10.0),
            one("decision", "funnel", "admitted", 12.5),
            one("decision", "governor", "refused", 8.0),
            one("evaluation", "one applies", "1 rule", 321.04),
        ];
        let expected = "
| decision: ns, median (× governor) | admitted | refused |
| --- | ---: | ---: |
| governor | 10.0 (1.00) | 8.0 (1.00) |
| funnel | 12.5 (1.25) |  |

| evaluation: ns, median | 1 rule |
| --- | ---: |
| one applies | 321.0 |
";
        assert_eq!(tables(&measured), expected);
    }

    #[test]
    fn medians_are_read_where_criterion_writes_them() {
        let home = TempDir::new("criterion").expect("a directory");
        let name = "page/governor, keyed/1 key";
        let folder = home.path().join(name).join("new");
        fs::create_dir_all(&folder).expect("folders");
        let text = r#"{"mean":{"point_estimate":9.0},"median":{"point_estimate":7.5}}"#;
        fs::write(folder.join("estimates.json"), text).expect("a file");
        let found = read(home.path(), name).expect("numbers");
        assert_eq!(found, one("page", "governor, keyed", "1 key", 7.5));
        assert!(read(home.path(), "page/governor, keyed").is_err());
        assert!(read(home.path(), "page/governor, keyed/2 keys").is_err());
    }
}
