//! Implements `loudou top`, which opens the screen on a terminal. Without a terminal, or with
//! options for a list, it lists the keys with the most refused or admitted requests in the last
//! minutes.

use std::collections::BTreeMap;
use std::io;
use std::io::Write;

use anyhow::Result;
use clap::Args;
use loudou_api::{BucketNames, BucketState, BucketView, MAX_TOP, Top, TopBy, TopEntry};
use loudou_client::merged_top::{MergedRow, MergedTop, merged};
use loudou_client::{Client, TopQuery};
use loudou_limiter::Nanos;
use loudou_words::meaning::refusals;
use loudou_words::num::{count, float, fraction};
use loudou_words::text::{counted, humanise};
use serde::{Serialize, Serializer};

use super::buckets::{self, BucketsArgs, state};
use super::context::{Context, TIMEOUT, duration};
use super::envoys::Envoys;
use super::options::{Format, URL, span};
use super::outcome::Outcome;
use super::target::Address;
use super::targets::watched;
use super::watch::WatchArgs;
use super::world::json_list;
use super::{complete, target, watch};
use crate::draw::words::{percent, rate};
use crate::runtime;
use loudou_print::style::Style;
use loudou_print::table::{Cell, Paint, Set, TextTable, csv};

/// Default time between two polls, and minimum time limit of a poll.
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
#[command(before_long_help = EXAMPLES)]
pub(crate) struct TopArgs {
    /// Time between two updates of the screen [default: 1s]
    ///
    /// The config file may set another default
    #[arg(long, value_name = "TIME", value_parser = span, allow_hyphen_values = true)]
    pub(crate) interval: Option<Nanos>,
    /// Keys with the most refused or admitted requests
    ///
    /// List them without the screen, for the last one to two minutes [default: refused]
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
    // An output format or an option for a list selects text output instead of the screen.
    let has_options = query != TopQuery::default() || watch.watch.is_some();
    let is_list = context.global.output.is_some() || has_options;
    if !is_list && context.io.out_terminal && !context.io.has_screen() {
        context.note("TERM=dumb: this terminal cannot show the screen; this is a table instead")?;
        if args.is_none() {
            buckets::run(context, &BucketsArgs::default())?;
            return Ok(Outcome::Done);
        }
    }
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
    // A poll fails if it takes longer than one second or the interval, whichever is longer. The
    // screen shows the failure.
    let mut targets = Vec::new();
    for address in watched(&context.global.connect)? {
        let polling = context.client_at(&address, interval.max(INTERVAL))?;
        targets.push(runtime::Clients {
            is_usual: is_usual(polling.url(), std::env::var("LOUDOU_URL").ok().as_deref()),
            polling,
            // Changes have a longer time limit. If a change timed out, it would be unknown whether
            // Envoy made it.
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
    // A script that opened the screen must not assume that an unconfirmed change is in effect.
    Ok(if unfinished.is_empty() {
        Outcome::Done
    } else {
        Outcome::Failed
    })
}

/// Returns true if a command without `--url` would call `url`. `variable` is the value of
/// `LOUDOU_URL`.
fn is_usual(url: &str, variable: Option<&str>) -> bool {
    let usual = variable.filter(|url| !url.is_empty()).unwrap_or(URL);
    usual.trim_end_matches('/') == url.trim_end_matches('/')
}

fn list(context: &mut Context<'_, '_>, query: &TopQuery) -> Result<Outcome> {
    let addresses = target::all(&context.global.connect)?;
    if addresses.len() > 1 {
        return list_of_all(context, query, &addresses);
    }
    let client = context.client()?;
    let top = client.top(query)?;
    let states = states(&client, &top.top);
    let (format, style) = (context.format(), context.style);
    print(&top, &states, format, style, context.io.out)?;
    if top.missing_at_most > 0 {
        let (by, most) = (top.by.name(), top.missing_at_most);
        context.note(&format!(
            "more keys than counters: a key without one was {by} at most {most} times"
        ))?;
    }
    Ok(Outcome::Done)
}

/// Number of buckets that one call requests. Their names fit into a call even if clients chose keys of the maximum
/// length.
const AT_ONCE: usize = 16;

/// Buckets of the listed keys, by rule and key. If the buckets cannot be read, the list is printed
/// without their states.
type States = BTreeMap<(String, String), BucketView>;

fn states(client: &Client, entries: &[TopEntry]) -> States {
    let name = |entry: &TopEntry| (entry.rule.clone(), entry.key.clone());
    let pages = entries.chunks(AT_ONCE).map_while(|entries| {
        let buckets = entries.iter().map(name).collect();
        client.read_buckets(&BucketNames { buckets }).ok()
    });
    let buckets = pages.flat_map(|page| page.buckets);
    buckets
        .map(|bucket| ((bucket.rule.clone(), bucket.key.clone()), bucket))
        .collect()
}

/// A key's entry in the JSON list, with its rate and share, and the state of its bucket.
#[derive(Serialize)]
struct Line<'a> {
    #[serde(flatten)]
    entry: &'a TopEntry,
    #[serde(flatten)]
    rates: Rates,
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<BucketState>,
}

/// Rate and share that are computed from a count.
#[derive(Clone, Copy, Serialize)]
struct Rates {
    /// Average number of requests per second over the time window.
    per_second: f64,
    /// Share of the sum of all counts, or `None` if the server does not report the sum.
    #[serde(skip_serializing_if = "Option::is_none")]
    share: Option<f64>,
}

impl Rates {
    fn new(per_second: f64, count: u64, total: u64) -> Self {
        let rounded = |x: f64| (x * 1e4).round() / 1e4;
        Self {
            per_second: rounded(per_second),
            share: (total > 0).then(|| rounded(fraction(count, total))),
        }
    }

    /// Returns the table cells, such as `22/s` and `91%`.
    fn cells(self, would: bool) -> [Cell; 2] {
        let rate = refusals(format!("{}/s", rate(Some(self.per_second))), would);
        [rate.into(), self.share.map(percent).into()]
    }

    /// Returns the CSV fields.
    fn fields(self) -> [String; 2] {
        let share = self.share.map(|share| share.to_string());
        [self.per_second.to_string(), share.unwrap_or_default()]
    }
}

/// Returns the average rate that corresponds to a count over a time window.
fn per_second(count: u64, window_ns: u64) -> f64 {
    float(count) * 1e9 / float(window_ns.max(1))
}

fn rates(top: &Top, entry: &TopEntry) -> Rates {
    let per_second = per_second(entry.count, top.window_ns);
    Rates::new(per_second, entry.count, top.total)
}

fn print(
    top: &Top,
    states: &States,
    format: Format,
    style: Style,
    out: &mut dyn Write,
) -> io::Result<()> {
    let line = |entry| Line {
        entry,
        rates: rates(top, entry),
        state: bucket_of(states, entry).map(|bucket| bucket.state),
    };
    match format {
        Format::Table => {
            writeln!(out, "{}", heading(top))?;
            table(top, states).print(out, style)
        }
        Format::Json | Format::Jsonl => {
            let lines: Vec<Line<'_>> = top.top.iter().map(line).collect();
            let mut document = serde_json::to_value(top)?;
            if let Some(fields) = document.as_object_mut() {
                fields.insert("top".to_owned(), serde_json::to_value(&lines)?);
            }
            json_list(out, format, &document, &lines)
        }
        Format::Csv => lines(top.top.iter().map(line), out),
    }
}

fn bucket_of<'a>(states: &'a States, entry: &TopEntry) -> Option<&'a BucketView> {
    states.get(&(entry.rule.clone(), entry.key.clone()))
}

/// Returns a heading that names the kind of count, the time window, and the number of keys.
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

/// Returns the heading and the colour of the column with the counts.
const fn column(by: TopBy) -> (&'static str, Paint) {
    match by {
        TopBy::Refused => ("REFUSED", Paint::Bad),
        TopBy::Admitted => ("ADMITTED", Paint::Plain),
    }
}

fn table(top: &Top, states: &States) -> TextTable {
    let (by, paint) = column(top.by);
    let mut columns = vec![
        ("RULE", Set::Shrink),
        ("KEY", Set::Shrink),
        (by, Set::Right),
        ("RATE", Set::Right),
        ("SHARE", Set::Right),
    ];
    // The column AT LEAST appears only if a count is inexact.
    let is_exact = top.top.iter().all(|entry| entry.error == 0);
    if !is_exact {
        columns.push(("AT LEAST", Set::Right));
    }
    let any_shadow = top.top.iter().any(|entry| entry.shadow);
    if any_shadow {
        columns.push(("MODE", Set::Left));
    }
    if !states.is_empty() {
        columns.push(("STATE", Set::Left));
    }
    let any_since = top.top.iter().any(|entry| entry.refused_since_ns.is_some());
    if any_since {
        columns.push(("REFUSED SINCE", Set::Right));
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
        row.extend(rates(top, entry).cells(would));
        if !is_exact {
            row.push(entry.count.saturating_sub(entry.error).into());
        }
        if any_shadow {
            row.push(if entry.shadow { "shadow" } else { "" }.into());
        }
        if !states.is_empty() {
            let bucket = bucket_of(states, entry);
            row.push(bucket.map_or_else(|| Cell::from(""), state));
        }
        if any_since {
            let since = entry.refused_since_ns;
            let ago = |at| format!("{} ago", humanise(top.now_ns.saturating_sub(at)));
            row.push(since.map(ago).into());
        }
        table.row(row);
    }
    table
}

fn lines<'a>(lines: impl Iterator<Item = Line<'a>>, out: &mut dyn Write) -> io::Result<()> {
    let heading = "rule,key,count,error,shadow,per_second,share,state,refused_since_ns";
    csv(out, heading.split(','))?;
    for Line {
        entry,
        rates,
        state,
    } in lines
    {
        let (count, error) = (entry.count.to_string(), entry.error.to_string());
        let (shadow, [per_second, share]) = (entry.shadow.to_string(), rates.fields());
        let state = state.map_or("", BucketState::name);
        let record = [
            &entry.rule,
            &entry.key,
            &count,
            &error,
            &shadow,
            &per_second,
            &share,
        ];
        let since = entry.refused_since_ns;
        let since = since.map(|ns| ns.to_string()).unwrap_or_default();
        let last = [state, since.as_str()];
        csv(out, record.into_iter().map(String::as_str).chain(last))?;
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

// Implements `loudou top` for several Envoys. The counts of all Envoys are printed in one list,
// with their sum and a column for each Envoy.

/// The answers of several Envoys, and the merged list.
struct Several<'a> {
    by: TopBy,
    urls: Vec<&'a str>,
    names: Vec<String>,
    /// Answers in the order of the addresses, with `None` for an Envoy that did not answer.
    tops: Vec<Option<&'a Top>>,
    list: MergedTop,
}

/// Prints the counts of all Envoys in one list, and reports the Envoys that do not answer. Fails if
/// no Envoy answers.
fn list_of_all(
    context: &mut Context<'_, '_>,
    query: &TopQuery,
    addresses: &[Address],
) -> Result<Outcome> {
    let envoys = Envoys::new(context, addresses)?;
    // A key with small counts at every Envoy may have the largest sum, so the limit applies to the
    // merged list.
    let all = TopQuery {
        limit: Some(MAX_TOP),
        ..query.clone()
    };
    let answers = envoys.ask(|client| client.top(&all)).if_any(context)?;
    let tops: Vec<Option<&Top>> = answers.of_each.iter().map(Option::as_ref).collect();
    let mut list = merged(&tops);
    list.rows
        .truncate(query.limit.unwrap_or(loudou_api::DEFAULT_TOP));
    let several = Several {
        by: query.by.unwrap_or_default(),
        urls: envoys.urls(),
        names: envoys.names(),
        tops,
        list,
    };
    several.print(context)?;
    several.note(context)?;
    answers.end(context)
}

impl Several<'_> {
    fn print(&self, context: &mut Context<'_, '_>) -> io::Result<()> {
        let (format, style) = (context.format(), context.style);
        let out = &mut *context.io.out;
        match format {
            Format::Table => {
                writeln!(out, "{}", self.heading())?;
                self.table().print(out, style)
            }
            Format::Json | Format::Jsonl => {
                let document = self.document();
                json_list(out, format, &document, &document.top)
            }
            Format::Csv => self.lines(out),
        }
    }

    /// Reports an upper bound for the count of any key that is in none of the answers.
    fn note(&self, context: &mut Context<'_, '_>) -> io::Result<()> {
        let (by, most) = (self.by.name(), self.list.missing_at_most);
        if most == 0 {
            return Ok(());
        }
        context.note(&format!(
            "more keys than the answers have: a key in none of them was {by} at most {most} times"
        ))
    }

    fn answers(&self) -> impl Iterator<Item = (&str, &Top)> {
        let answers = self.urls.iter().zip(&self.tops);
        answers.filter_map(|(url, top)| Some((*url, (*top)?)))
    }

    /// Returns a heading that names the kind of count, the time window, and the numbers of Envoys
    /// and keys.
    fn heading(&self) -> String {
        let windows = || self.answers().map(|(_, top)| top.window_ns);
        let [shortest, longest] =
            [windows().min(), windows().max()].map(|window| humanise(window.unwrap_or(0)));
        let window = if shortest == longest {
            longest
        } else {
            format!("{shortest} to {longest}")
        };
        let envoys = counted(count(self.tops.len()), "Envoy");
        let answered = self.answers().count();
        let of = if answered == self.tops.len() {
            String::new()
        } else {
            format!("{answered} of ")
        };
        let least = if self.list.has_more { "at least " } else { "" };
        let keys = counted(self.list.keys, "key");
        let by = self.by.name();
        format!("most {by} in the last {window} at {of}{envoys}, of {least}{keys}")
    }

    fn table(&self) -> TextTable {
        let rows = &self.list.rows;
        let (sum, paint) = column(self.by);
        let mut columns = vec![
            ("RULE", Set::Shrink),
            ("KEY", Set::Shrink),
            (sum, Set::Right),
            ("RATE", Set::Right),
            ("SHARE", Set::Right),
        ];
        let is_exact = rows.iter().all(|row| row.error == 0);
        if !is_exact {
            columns.push(("AT LEAST", Set::Right));
        }
        let any_shadow = rows.iter().any(|row| row.shadow);
        if any_shadow {
            columns.push(("MODE", Set::Left));
        }
        columns.extend(self.names.iter().map(|name| (name.as_str(), Set::Right)));
        let mut table = TextTable::new(&columns);
        for row in rows {
            let would = row.shadow && self.by == TopBy::Refused;
            let paint = if would { Paint::Warn } else { paint };
            let mut cells = vec![
                row.rule.as_str().into(),
                row.key.as_str().into(),
                Cell::from(refusals(row.sum, would)).paint(paint),
            ];
            cells.extend(self.rates(row).cells(would));
            if !is_exact {
                cells.push(row.sum.saturating_sub(row.error).into());
            }
            if any_shadow {
                cells.push(if row.shadow { "shadow" } else { "" }.into());
            }
            let counts = row.counts.iter().zip(&self.tops);
            cells.extend(counts.map(|(count, top)| match (count, top) {
                (Some(count), _) => Cell::from(refusals(*count, would)),
                (None, Some(_)) => Cell::from(""),
                // The count is unknown, not zero.
                (None, None) => Cell::from("?"),
            }));
            table.row(cells);
        }
        table
    }

    /// Returns the sum of the Envoys' rates. Each Envoy's rate is computed separately, because the
    /// time windows of the Envoys differ.
    fn rates(&self, row: &MergedRow) -> Rates {
        let each = row.counts.iter().zip(&self.tops);
        let rates = each.filter_map(|(count, top)| Some(per_second((*count)?, (*top)?.window_ns)));
        Rates::new(rates.sum(), row.sum, self.list.total)
    }

    fn document(&self) -> Document<'_> {
        Document {
            by: self.by,
            envoys: self
                .answers()
                .map(|(url, top)| Answered {
                    url,
                    generation: top.generation,
                    window_ns: top.window_ns,
                    keys: top.keys,
                    missing_at_most: top.missing_at_most,
                })
                .collect(),
            failed: self
                .urls
                .iter()
                .zip(&self.tops)
                .filter_map(|(url, top)| top.is_none().then_some(*url))
                .collect(),
            top: self.list.rows.iter().map(|row| self.row(row)).collect(),
            total: self.list.total,
            keys: self.list.keys,
            has_more: self.list.has_more,
            missing_at_most: self.list.missing_at_most,
        }
    }

    fn row<'a>(&'a self, row: &'a MergedRow) -> Row<'a> {
        let counts = self.urls.iter().zip(&self.tops).zip(&row.counts);
        Row {
            rule: &row.rule,
            key: &row.key,
            count: row.sum,
            error: row.error,
            shadow: row.shadow,
            rates: self.rates(row),
            counts: counts
                .filter_map(|((url, top), count)| top.is_some().then_some((*url, *count)))
                .collect(),
        }
    }

    fn lines(&self, out: &mut dyn Write) -> io::Result<()> {
        let columns = [
            "rule",
            "key",
            "count",
            "error",
            "shadow",
            "per_second",
            "share",
        ];
        csv(out, columns.into_iter().chain(self.urls.iter().copied()))?;
        for row in &self.list.rows {
            let mut record = vec![
                row.rule.clone(),
                row.key.clone(),
                row.sum.to_string(),
                row.error.to_string(),
                row.shadow.to_string(),
            ];
            record.extend(self.rates(row).fields());
            let counts = row.counts.iter();
            record.extend(counts.map(|count| count.map(|n| n.to_string()).unwrap_or_default()));
            csv(out, record.iter().map(String::as_str))?;
        }
        Ok(())
    }
}

/// The merged list, as printed in JSON.
#[derive(Serialize)]
struct Document<'a> {
    by: TopBy,
    envoys: Vec<Answered<'a>>,
    /// Addresses of the Envoys that did not answer.
    failed: Vec<&'a str>,
    top: Vec<Row<'a>>,
    total: u64,
    keys: u64,
    has_more: bool,
    missing_at_most: u64,
}

/// An Envoy that answered, with the fields of its answer.
#[derive(Serialize)]
struct Answered<'a> {
    url: &'a str,
    generation: u64,
    window_ns: u64,
    keys: u64,
    missing_at_most: u64,
}

/// A row of the merged list. Its fields are also in the list of a single Envoy, except for
/// `counts`.
#[derive(Serialize)]
struct Row<'a> {
    rule: &'a str,
    key: &'a str,
    count: u64,
    error: u64,
    shadow: bool,
    #[serde(flatten)]
    rates: Rates,
    /// Counts at the Envoys that answered, by address.
    #[serde(serialize_with = "by_address")]
    counts: Vec<(&'a str, Option<u64>)>,
}

/// Serializes a map in the order of the addresses.
fn by_address<S: Serializer>(counts: &[(&str, Option<u64>)], out: S) -> Result<S::Ok, S::Error> {
    out.collect_map(counts.iter().copied())
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
            // A command without `--url` would call both addresses.
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
