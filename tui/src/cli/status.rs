//! `loudou status`: how the filter and its store do.

use std::io::{self, Write};

use anyhow::Result;
use loudou_api::{Access, RuleTotals, Status};

use super::context::Context;
use super::options::Format;
use super::table::{Cell, Paint, Set, Table, csv};
use super::world::{Style, json};
use crate::meaning;
use crate::text::{date, escape, humanise};

pub(super) const EXAMPLES: &str = "\
Examples:
  loudou status
  loudou status --output json | jq .store";

pub(super) fn run(context: &mut Context<'_, '_>) -> Result<()> {
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
        format!("; of {} looked at, {share}% were idle", store.sampled)
    };
    let lines = [
        (
            "filter",
            format!("{} ({}) at {url}", status.version, status.git),
        ),
        ("instance", instance(status)),
        ("generation", status.generation.to_string()),
        ("up", humanise(status.uptime_ns)),
        ("access", access.to_owned()),
        (
            "buckets",
            format!("{} of {} in use{idle}", store.used, store.buckets),
        ),
        (
            "evicted",
            format!(
                "{} idle, {} with something taken",
                store.evicted_lossless, store.evicted_lossy
            ),
        ),
        (
            "conflicts",
            format!(
                "{} tried again, {} given up",
                store.cas_retries, store.cas_give_ups
            ),
        ),
        ("lost counts", store.lost_counts.to_string()),
        ("lost returns", store.lost_returns.to_string()),
        ("waiting", status.waiting.to_string()),
    ];
    for (name, value) in lines {
        let name = Paint::Heading.on(&format!("{name:13}"), style);
        writeln!(out, "{name}{}", escape(&value))?;
    }
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

/// How the upstreams of rules with `when` do.
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

fn totals(rules: &[RuleTotals]) -> Table {
    let mut table = Table::new(&[
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

/// The process and its start: `0f1e2d3c4b5a6978, started 2026-11-21 14:03:07Z`.
fn instance(status: &Status) -> String {
    match status.instance.as_str() {
        "" => "not told by this filter".to_owned(),
        id => format!("{id}, started {}", date(status.started_unix_ms)),
    }
}

/// Name and value, one per line: rules are under `loudou rules --output csv`.
fn pairs(status: &Status, out: &mut dyn Write) -> io::Result<()> {
    let store = &status.store;
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
        ("store.buckets", store.buckets),
        ("store.used", store.used),
        ("store.sampled_idle", store.sampled_idle),
        ("store.sampled", store.sampled),
        ("store.evicted_lossless", store.evicted_lossless),
        ("store.evicted_lossy", store.evicted_lossy),
        ("store.cas_retries", store.cas_retries),
        ("store.cas_give_ups", store.cas_give_ups),
        ("store.lost_counts", store.lost_counts),
        ("store.lost_returns", store.lost_returns),
        ("store.lost_responses", store.lost_responses),
        ("waiting", status.waiting),
    ] {
        csv(out, [name, &value.to_string()])?;
    }
    status
        .warnings
        .iter()
        .try_for_each(|warning| csv(out, ["warning", warning]))
}
