//! The dashboard file, with its panels and their expressions.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::{field, read};

/// Number of columns in Grafana's grid.
const COLUMNS: u64 = 24;

/// An expression of a panel.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) panel: String,
    /// Legend, which distinguishes the targets of a panel.
    pub(crate) legend: String,
    /// Expression in which values replace the variables of the dashboard.
    pub(crate) expression: String,
}

fn dashboard() -> Result<Value> {
    Ok(serde_json::from_str(&read("dashboard.json")?)?)
}

fn panels(dashboard: &Value) -> Result<&Vec<Value>> {
    field(dashboard, "/panels")?.as_array().context("no panels")
}

fn text(value: &Value, place: &str) -> Result<String> {
    let text = field(value, place)?.as_str();
    text.map(str::to_owned)
        .with_context(|| format!("{place} is no text: {value}"))
}

/// Returns all expressions, with the variables set to select everything.
pub(crate) fn targets() -> Result<Vec<Target>> {
    let mut all = Vec::new();
    for panel in panels(&dashboard()?)? {
        if text(panel, "/type")? == "row" {
            continue;
        }
        let targets = field(panel, "/targets")?.as_array().context("no targets")?;
        ensure!(!targets.is_empty(), "{panel}");
        for target in targets {
            let expression = text(target, "/expr")?
                .replace("$__rate_interval", "5m")
                .replace("$instance", ".*")
                .replace("$rule", ".*");
            ensure!(!expression.contains('$'), "unknown variable: {expression}");
            all.push(Target {
                panel: text(panel, "/title")?,
                legend: text(target, "/legendFormat")?,
                expression,
            });
        }
    }
    Ok(all)
}

#[test]
fn panels_have_their_own_place_number_and_title() -> Result<()> {
    let dashboard = dashboard()?;
    let (mut ids, mut titles, mut cells) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for panel in panels(&dashboard)? {
        ensure!(ids.insert(field(panel, "/id")?.as_u64()), "{panel}");
        ensure!(titles.insert(text(panel, "/title")?), "{panel}");
        let place = |name: &str| {
            let number = field(panel, &format!("/gridPos/{name}"))?.as_u64();
            number.with_context(|| format!("{name}: {panel}"))
        };
        let (x, y, width, height) = (place("x")?, place("y")?, place("w")?, place("h")?);
        ensure!(width > 0 && x + width <= COLUMNS, "{panel}");
        for cell in (x..x + width).flat_map(|x| (y..y + height).map(move |y| (x, y))) {
            ensure!(cells.insert(cell), "lies on another panel: {panel}");
        }
        if text(panel, "/type")? != "row" {
            let source = json!({ "type": "prometheus", "uid": "${datasource}" });
            ensure!(*field(panel, "/datasource")? == source, "{panel}");
        }
    }
    Ok(())
}
