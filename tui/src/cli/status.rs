//! Implements `loudou status`, which prints filter and store health.

use std::io::{self, Write};

use anyhow::Result;
use clap::Args;
use loudou_api::{Access, FleetStatus, RuleTotals, Status, StoreStatus};
use serde::Serialize;
use serde_json::Value;

use super::context::Context;
use super::options::Format;
use super::watch::{self, WatchArgs};
use super::world::json;
use loudou_print::style::Style;
use loudou_print::table::{Cell, Paint, Set, TextTable, csv, named};
use loudou_words::meaning;
use loudou_words::meaning::leased::{self, counted};
use loudou_words::text::{date, escape, humanise};

const EXAMPLES: &str = "\
Examples:
  loudou status
  loudou status --watch 5s
  loudou status --output json | jq .store";

/// Store counters that have a dedicated line.
const IN_WORDS: [&str; 10] = [
    "buckets",
    "used",
    "sampled_idle",
    "sampled",
    "evicted_lossless",
    "evicted_lossy",
    "cas_retries",
    "cas_give_ups",
    "lost_counts",
    "lost_returns",
];

#[derive(Debug, Args)]
#[command(before_long_help = EXAMPLES)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub(super) watch: WatchArgs,
}

pub(super) fn run(context: &mut Context<'_, '_>, args: &StatusArgs) -> Result<()> {
    watch::run(context, &args.watch, once)
}

fn once(context: &mut Context<'_, '_>) -> Result<()> {
    let client = context.client()?;
    let status = client.status()?;
    print(
        &status,
        client.url(),
        context.format(),
        context.style,
        context.io.out,
    )?;
    Ok(())
}

pub(super) fn print(
    status: &Status,
    url: &str,
    format: Format,
    style: Style,
    out: &mut dyn Write,
) -> io::Result<()> {
    match format {
        Format::Table => table(status, url, style, out),
        Format::Json | Format::Jsonl => json(out, format, status),
        Format::Csv => pairs(status, out),
    }
}

fn table(status: &Status, url: &str, style: Style, out: &mut dyn Write) -> io::Result<()> {
    named(&in_words(status, url), style, out)?;
    writeln!(out)?;
    totals(&status.rules).print(out, style)?;
    upstreams(&status.rules, status.now_ns, style, out)?;
    for (i, warning) in status.warnings.iter().enumerate() {
        if i == 0 {
            writeln!(out)?;
        }
        let mark = Paint::Warn.on("warning:", style);
        writeln!(out, "{mark} {}", escape(warning))?;
    }
    Ok(())
}

/// Returns lines that describe the state of the filter and its store.
fn in_words(status: &Status, url: &str) -> Vec<(String, Cell)> {
    let store = &status.store;
    let access = match status.access {
        Access::View => "view",
        Access::Edit => "view and edit",
    };
    let idle = if store.sampled == 0 {
        String::new()
    } else {
        let share = store
            .sampled_idle
            .saturating_mul(100)
            .div_ceil(store.sampled);
        format!("; {share}% of {} sampled buckets idle", store.sampled)
    };
    let lines = [
        (
            "filter",
            format!("{} ({}) at {url}", status.version, status.git),
        ),
        ("instance", instance(status)),
        ("generation", status.generation.to_string()),
        ("uptime", humanise(status.uptime_ns)),
        ("access", access.to_owned()),
        (
            "buckets",
            format!("{} of {} in use{idle}", store.used, store.buckets),
        ),
        (
            "evicted",
            format!(
                "{} idle, {} in use",
                store.evicted_lossless, store.evicted_lossy
            ),
        ),
        (
            "conflicts",
            format!(
                "{} retried, {} given up",
                store.cas_retries, store.cas_give_ups
            ),
        ),
        ("lost counts", store.lost_counts.to_string()),
        ("lost returns", store.lost_returns.to_string()),
        ("held requests", status.waiting.to_string()),
        (
            "not held",
            format!(
                "{} because of their deadlines, {} for lack of room",
                status.not_held_deadline, status.not_held_full
            ),
        ),
    ];
    let lines = lines.map(|(name, value)| (name.to_owned(), value.into()));
    let fleet = status.fleet.iter();
    let fleet = fleet.flat_map(|fleet| of_fleet(fleet, status.now_ns));
    let others = others(store).into_iter();
    let others = others.map(|(name, n)| (name, n.into()));
    lines.into_iter().chain(fleet).chain(others).collect()
}

/// Describes the fleet, the calls to its relay, and the requests that waited for the relay or were
/// decided without it.
fn of_fleet(fleet: &FleetStatus, now_ns: u64) -> [(String, Cell); 4] {
    let FleetStatus {
        calls,
        failed,
        granted,
        held,
        local,
        ..
    } = fleet;
    let made = format!("{calls} made, {failed} failed; units granted: {granted}");
    let held = counted(*held, "request");
    let waited = format!("{held} waited for the relay, {local} decided alone");
    let known = format!("{} known here", fleet.changes.known);
    let changes = match leased::changes(fleet) {
        None => known,
        Some(others) => format!("{known}; {others}"),
    };
    [
        ("fleet".to_owned(), super::buckets::fleet(fleet, now_ns)),
        ("fleet calls".to_owned(), made.into()),
        ("fleet held".to_owned(), waited.into()),
        ("fleet changes".to_owned(), changes.into()),
    ]
}

/// Returns all counters with their names in the API, so that a new counter in the API requires no
/// change here.
fn counters(store: &impl Serialize) -> Vec<(String, u64)> {
    let Ok(Value::Object(fields)) = serde_json::to_value(store) else {
        return Vec::new();
    };
    let fields = fields.into_iter();
    fields
        .filter_map(|(name, value)| Some((name, value.as_u64()?)))
        .collect()
}

/// Returns the counters above zero that have no dedicated line.
fn others(store: &StoreStatus) -> Vec<(String, u64)> {
    let counters = counters(store).into_iter();
    counters
        .filter(|(name, n)| *n > 0 && !IN_WORDS.contains(&name.as_str()))
        .map(|(name, n)| (name.replace('_', " "), n))
        .collect()
}

/// Prints the state of the upstreams of each rule that has a `when` condition.
pub(super) fn upstreams<'a>(
    rules: impl IntoIterator<Item = &'a RuleTotals>,
    now_ns: u64,
    style: Style,
    out: &mut dyn Write,
) -> io::Result<()> {
    let lines = rules.into_iter().flat_map(|rule| {
        let lines = meaning::upstreams(rule, now_ns).into_iter();
        lines.map(|line| (rule.name.as_str(), line))
    });
    for (i, (rule, line)) in lines.enumerate() {
        if i == 0 {
            writeln!(out)?;
        }
        let rule = Paint::Heading.on(&escape(rule), style);
        writeln!(out, "{rule} {}", escape(&line))?;
    }
    Ok(())
}

fn totals(rules: &[RuleTotals]) -> TextTable {
    let mut table = TextTable::new(&[
        ("RULE", Set::Shrink),
        ("MODE", Set::Left),
        ("ADMITTED", Set::Right),
        ("HELD", Set::Right),
        ("REFUSED", Set::Right),
        ("SHADOW", Set::Right),
        ("SKIPPED", Set::Right),
        ("ERRORS", Set::Right),
        ("EDITED", Set::Left),
    ]);
    for rule in rules {
        table.row(vec![
            rule.name.as_str().into(),
            rule.mode.as_str().into(),
            rule.admitted.into(),
            rule.held.into(),
            Cell::from(rule.refused),
            rule.shadow_refused.into(),
            rule.skipped.into(),
            rule.errors.into(),
            if rule.edited { "yes" } else { "" }.into(),
        ]);
    }
    table
}

/// Describes the Envoy process by its instance ID and start time: `0f1e2d3c4b5a6978, started
/// 2026-11-21 14:03:07Z`.
fn instance(status: &Status) -> String {
    match status.instance.as_str() {
        "" => "not reported by this filter".to_owned(),
        id => format!("{id}, started {}", date(status.started_unix_ms)),
    }
}

/// Prints one CSV record per name and value. The rules are left out, because `loudou rules --output
/// csv` prints them.
fn pairs(status: &Status, out: &mut dyn Write) -> io::Result<()> {
    csv(out, ["name", "value"])?;
    csv(out, ["version", &status.version])?;
    csv(out, ["git", &status.git])?;
    csv(out, ["instance", &status.instance])?;
    for (name, value) in [
        ("started_unix_ms", status.started_unix_ms),
        ("generation", status.generation),
        ("now_ns", status.now_ns),
        ("unix_ms", status.unix_ms),
        ("uptime_ns", status.uptime_ns),
    ] {
        csv(out, [name, &value.to_string()])?;
    }
    for (name, value) in counters(&status.store) {
        csv(out, [&format!("store.{name}"), value.to_string().as_str()])?;
    }
    for (name, value) in status.fleet.iter().flat_map(counters) {
        csv(out, [&format!("fleet.{name}"), value.to_string().as_str()])?;
    }
    for (name, count) in [
        ("waiting", status.waiting),
        ("not_held_deadline", status.not_held_deadline),
        ("not_held_full", status.not_held_full),
    ] {
        csv(out, [name, &count.to_string()])?;
    }
    status
        .warnings
        .iter()
        .try_for_each(|warning| csv(out, ["warning", warning]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_without_words_is_shown_when_it_counted() {
        let mut store = StoreStatus {
            lost_counts: 1,
            ..StoreStatus::default()
        };
        assert_eq!(others(&store), []);
        store.lost_responses = 2;
        assert_eq!(others(&store), [("lost responses".to_owned(), 2)]);
    }

    #[test]
    fn what_is_put_in_words_exists() {
        let counters = counters(&StoreStatus::default());
        for name in IN_WORDS {
            assert!(counters.iter().any(|(known, _)| known == name), "{name}");
        }
    }
}
