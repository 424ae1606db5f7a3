//! The alert rules and the dashboard of `envoy/monitoring`, in a real Prometheus that scrapes real
//! Envoys.

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context as _, Result, ensure};
use loudou_tests::paths::workspace_root;
use loudou_tests::prometheus::promtool;
use serde_json::Value;

mod dashboard;
mod live;
mod scene;

const FOLDER: &str = "envoy/monitoring";

fn read(file: &str) -> Result<String> {
    let path = workspace_root().join(FOLDER).join(file);
    fs::read_to_string(&path).with_context(|| path.display().to_string())
}

/// Returns the names of the alerts.
fn alerts() -> Result<BTreeSet<String>> {
    let text = read("alerts.yml")?;
    let names = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- alert: "));
    let names: BTreeSet<String> = names.map(str::to_owned).collect();
    ensure!(names.len() >= 10, "{names:?}");
    Ok(names)
}

#[test]
fn promtool_accepts_the_files_and_the_unit_tests_pass() -> Result<()> {
    let path = |file: &str| workspace_root().join(FOLDER).join(file).into_os_string();
    promtool(["check".into(), "config".into(), path("prometheus.yml")])?;
    promtool(["check".into(), "rules".into(), path("alerts.yml")])?;
    promtool(["test".into(), "rules".into(), path("alerts.test.yml")])
}

#[test]
fn every_alert_has_a_unit_test_and_a_line_in_the_readme() -> Result<()> {
    let (tests, readme) = (read("alerts.test.yml")?, read("README.md")?);
    for alert in alerts()? {
        let named = [format!("alertname: {alert}\n"), format!("\"{alert}\"")];
        let is_tested = named.iter().any(|named| tests.contains(named));
        ensure!(is_tested, "no unit test of {alert}");
        let line = format!("| `{alert}` |");
        ensure!(readme.contains(&line), "README.md has no line {line:?}");
    }
    Ok(())
}

/// Returns the value at this JSON pointer. Fails if there is no such value.
fn field<'a>(value: &'a Value, place: &str) -> Result<&'a Value> {
    let found = value.pointer(place);
    found.with_context(|| format!("no {place}: {value}"))
}
