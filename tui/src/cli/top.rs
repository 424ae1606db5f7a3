//! `loudou top`: the screen on a terminal. Without a terminal, or with options for a list, the keys
//! that were refused or admitted most recently.

use std::io::{self, Write};

use anyhow::Result;
use clap::Args;
use loudou_api::{MAX_TOP, Top, TopBy};
use loudou_limiter::Nanos;

use super::complete;
use super::context::{Context, TIMEOUT, duration};
use super::options::{Format, URL, span};
use super::outcome::Outcome;
use super::table::{Cell, Paint, Set, TextTable, csv};
use super::target;
use super::targets::watched;
use super::watch::{self, WatchArgs};
use super::world::{Style, json_list};
use crate::runtime;
use loudou_client::TopQuery;
use loudou_words::meaning::refusals;
use loudou_words::text::humanise;

mod several;

/// The time between two polls, and the least time that a poll may take.
pub(super) const INTERVAL: Nanos = Nanos::from_secs(1);

const EXAMPLES: &str = "\
Examples:
  loudou top
  loudou --url http://10.0.0.7:9911 top --interval 250ms
  loudou top --by refused --limit 10              most refused keys, without the screen
  loudou top --by refused --watch                 the same, again and again
  loudou top --targets envoys.txt --by refused    sums over several Envoys, with a column for each
  loudou top --by admitted --rule per-user --output csv > busiest.csv";

#[derive(Debug, Args)]
#[command(before_help = EXAMPLES)]
pub(crate) struct TopArgs {
    /// Time between two updates of the screen [default: 1s, or that of the config file]
    #[arg(long, value_name = "TIME", value_parser = span, allow_hyphen_values = true)]
    pub(crate) interval: Option<Nanos>,
    /// List the keys with the most of this in the last one to two minutes, without the screen: refused,
    /// admitted [default: refused]
    #[arg(long, value_parser = by, add = complete::words(&TopBy::NAMES))]
    pub(crate) by: Option<TopBy>,
    /// Only keys of this rule
    #[arg(long)]
    #[arg(add = complete::rules())]
    pub(crate) rule: Option<String>,
    /// Maximum number of keys to list [default: 20]
    #[arg(long, value_name = "N", value_parser = top_limit)]
    pub(crate) limit: Option<usize>,
    #[command(flatten)]
    watch: WatchArgs,
}

pub(super) fn run(context: &mut Context<'_, '_>, args: Option<&TopArgs>) -> Result<Outcome> {
    let query = TopQuery {
        rule: args.and_then(|args| args.rule.clone()),
        by: args.and_then(|args| args.by),
        limit: args.and_then(|args| args.limit),
    };
    let no_watch = WatchArgs::default();
    let watch = args.map_or(&no_watch, |args| &args.watch);
    // An output format or an option for a list asks for text, not for the screen.
    let has_options = query != TopQuery::default() || watch.watch.is_some();
    let is_list = context.global.output.is_some() || has_options;
    if is_list || !context.io.has_screen() {
        let mut outcome = Outcome::Done;
        watch::run(context, watch, |context| {
            outcome = list(context, &query)?;
            Ok(())
        })?;
        return Ok(outcome);
    }
    let asked = args.and_then(|args| args.interval);
    let interval = asked.or(context.global.config.interval).unwrap_or(INTERVAL);
    // A poll that takes longer than a second shows as a problem, unless the interval is longer.
    let mut targets = Vec::new();
    for address in watched(&context.global.connect)? {
        let polling = context.client_at(&address, interval.max(INTERVAL))?;
        targets.push(runtime::Clients {
            is_usual: is_usual(polling.url(), std::env::var("LOUDOU_URL").ok().as_deref()),
            polling,
            // A change is worth waiting for: it is in doubt if its answer is not.
            changing: context.client_at(&address, TIMEOUT)?,
        });
    }
    let look = context.look();
    let unfinished = runtime::run(runtime::Options {
        targets,
        read_only: context.global.read_only,
        look,
        interval: duration(interval),
    })?;
    for line in &unfinished {
        context.note(line)?;
    }
    // A script that opened the screen must not take for made what is not.
    Ok(if unfinished.is_empty() {
        Outcome::Done
    } else {
        Outcome::Failed
    })
}

/// Whether a command line without `--url` goes to `url`, with this value of `LOUDOU_URL`.
fn is_usual(url: &str, variable: Option<&str>) -> bool {
    let usual = variable.filter(|url| !url.is_empty()).unwrap_or(URL);
    usual.trim_end_matches('/') == url.trim_end_matches('/')
}

fn list(context: &mut Context<'_, '_>, query: &TopQuery) -> Result<Outcome> {
    let addresses = target::all(&context.global.connect)?;
    if addresses.len() > 1 {
        return several::list(context, query, &addresses);
    }
    let top = context.client()?.top(query)?;
    print(&top, context.format(), context.style, context.io.out)?;
    if top.missing_at_most > 0 {
        let (by, most) = (top.by.name(), top.missing_at_most);
        context.note(&format!(
            "more keys than counters: a key without one was {by} at most {most} times"
        ))?;
    }
    Ok(Outcome::Done)
}

pub(super) fn print(
    top: &Top,
    format: Format,
    style: Style,
    out: &mut dyn Write,
) -> io::Result<()> {
    match format {
        Format::Table => {
            writeln!(out, "{}", heading(top))?;
            table(top).print(out, style)
        }
        Format::Json | Format::Jsonl => json_list(out, format, top, &top.top),
        Format::Csv => lines(top, out),
    }
}

/// The kind of count, the number of keys, and the time span.
fn heading(top: &Top) -> String {
    let more = if top.missing_at_most > 0 {
        "more than "
    } else {
        ""
    };
    let keys = match top.keys {
        1 => "1 key".to_owned(),
        keys => format!("{keys} keys"),
    };
    let (by, window) = (top.by.name(), humanise(top.window_ns));
    format!("most {by} in the last {window}, of {more}{keys}")
}

/// The heading and the colour of the counts.
const fn column(by: TopBy) -> (&'static str, Paint) {
    match by {
        TopBy::Refused => ("REFUSED", Paint::Bad),
        TopBy::Admitted => ("ADMITTED", Paint::Plain),
    }
}

fn table(top: &Top) -> TextTable {
    let (by, paint) = column(top.by);
    let mut columns = vec![
        ("RULE", Set::Shrink),
        ("KEY", Set::Shrink),
        (by, Set::Right),
    ];
    // The column appears only if it is not all zero.
    let is_exact = top.top.iter().all(|entry| entry.error == 0);
    if !is_exact {
        columns.push(("AT LEAST", Set::Right));
    }
    let any_shadow = top.top.iter().any(|entry| entry.shadow);
    if any_shadow {
        columns.push(("MODE", Set::Left));
    }
    let mut table = TextTable::new(&columns);
    for entry in &top.top {
        let would = entry.shadow && top.by == TopBy::Refused;
        let count = Cell::from(refusals(entry.count, would));
        let mut row = vec![
            entry.rule.as_str().into(),
            entry.key.as_str().into(),
            count.paint(if would { Paint::Warn } else { paint }),
        ];
        if !is_exact {
            row.push(entry.count.saturating_sub(entry.error).into());
        }
        if any_shadow {
            row.push(if entry.shadow { "shadow" } else { "" }.into());
        }
        table.row(row);
    }
    table
}

fn lines(top: &Top, out: &mut dyn Write) -> io::Result<()> {
    csv(out, ["rule", "key", "count", "error", "shadow"])?;
    for entry in &top.top {
        let (count, error) = (entry.count.to_string(), entry.error.to_string());
        let shadow = entry.shadow.to_string();
        csv(
            out,
            [&entry.rule, &entry.key, &count, &error, &shadow].map(String::as_str),
        )?;
    }
    Ok(())
}

fn by(text: &str) -> Result<TopBy, String> {
    TopBy::parse(text).ok_or_else(|| format!("unknown order; write {}", TopBy::NAMES.join(" or ")))
}

fn top_limit(text: &str) -> Result<usize, String> {
    let limit = text.parse().ok();
    limit
        .filter(|limit| (1..=MAX_TOP).contains(limit))
        .ok_or_else(|| format!("write a number from 1 to {MAX_TOP}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_envoy_needs_no_address() {
        for (url, variable, is) in [
            ("http://127.0.0.1:9911", None, true),
            ("http://127.0.0.1:9911/", Some(""), true),
            ("http://127.0.0.1:9911", Some("http://10.0.0.7:9911"), false),
            ("http://10.0.0.7:9911", None, false),
            ("http://10.0.0.7:9911", Some("http://10.0.0.7:9911"), true),
            // A command line would go to both.
            (
                "http://10.0.0.7:9911",
                Some("http://10.0.0.7:9911,http://10.0.0.8:9911"),
                false,
            ),
        ] {
            assert_eq!(is_usual(url, variable), is, "{url} {variable:?}");
        }
    }
}
