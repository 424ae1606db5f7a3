//! `loudou buckets` and `loudou get`: live buckets as tables, JSON and CSV.

use std::cmp::Reverse;
use std::io::{self, Write};

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use loudou_api::{BanView, BucketState, BucketView, BucketsPage, LimitView, MAX_PAGE};

use super::context::Context;
use super::options::Format;
use super::table::{Cell, Paint, Set, TextTable, bar, csv};
use super::world::{Style, json, json_list};
use crate::client::{BucketsQuery, Client, Pace};
use crate::meaning::stands_out;
use crate::text::{escape, humanise};

/// The maximum number of buckets that are read to find the first ones.
const MAX_READ: usize = 200_000;
/// The maximum number of pages: pages may be empty, so the number of buckets is no bound.
const MAX_PAGES: usize = 400_000;

const BUCKETS_EXAMPLES: &str = "\
Examples:
  loudou buckets                                  most refused first
  loudou buckets --rule per-user --key alice
  loudou buckets --state busy --sort level --limit 10
  loudou buckets --output csv > buckets.csv       one line per limit";

#[derive(Debug, Args)]
#[command(before_help = BUCKETS_EXAMPLES)]
pub(crate) struct BucketsArgs {
    /// Only buckets of this rule
    #[arg(long)]
    pub(crate) rule: Option<String>,
    /// Only keys that contain this text
    #[arg(long, value_name = "TEXT")]
    pub(crate) key: Option<String>,
    /// Only buckets in this state: idle, busy, refusing, banned
    #[arg(long, value_parser = state_named)]
    pub(crate) state: Option<BucketState>,
    /// Sort order
    #[arg(long, value_enum, value_name = "BY", default_value = "refused")]
    pub(crate) sort: Sort,
    /// Maximum number of buckets to print
    #[arg(long, value_name = "N", default_value_t = 50)]
    pub(crate) limit: usize,
}

impl Default for BucketsArgs {
    fn default() -> Self {
        Self {
            rule: None,
            key: None,
            state: None,
            sort: Sort::Refused,
            limit: 50,
        }
    }
}

/// The sort order of a list of buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Sort {
    Refused,
    Admitted,
    Level,
    Retry,
    Seen,
    Key,
}

const GET_EXAMPLES: &str = "\
Examples:
  loudou get per-user alice                       its limits, its ban, its override
  loudou get per-user alice --output json | jq .limits";

#[derive(Debug, Args)]
#[command(before_help = GET_EXAMPLES)]
pub(crate) struct GetArgs {
    /// The rule
    pub(crate) rule: String,
    /// The key, as `loudou buckets` prints it
    #[arg(allow_hyphen_values = true)]
    pub(crate) key: String,
}

pub(super) fn run(context: &mut Context<'_, '_>, args: &BucketsArgs) -> Result<()> {
    let (mut page, complete) = read(context, args)?;
    sort(&mut page.buckets, args.sort);
    let found = page.buckets.len();
    page.buckets.truncate(args.limit);
    let shown = page.buckets.len();
    print(&page, context.format(), context.style, context.io.out)?;
    if shown < found {
        context.note(&format!(
            "{shown} of {found} buckets; raise --limit to see more"
        ))?;
    }
    if !complete {
        context.note(&format!(
            "stopped reading at {found} buckets; narrow it with --rule, --key or --state"
        ))?;
    }
    Ok(())
}

/// Follows the cursors, and shows the progress on a terminal. `false` if there was more than the maximum.
fn read(context: &mut Context<'_, '_>, args: &BucketsArgs) -> Result<(BucketsPage, bool)> {
    let client = context.client()?;
    let mut progress = Progress::new(context);
    let read = follow(&client, args, &mut progress);
    progress.end()?;
    read
}

fn follow(
    client: &Client,
    args: &BucketsArgs,
    progress: &mut Progress<'_>,
) -> Result<(BucketsPage, bool)> {
    let mut query = BucketsQuery {
        rule: args.rule.clone(),
        key: args.key.clone(),
        state: args.state,
        cursor: None,
        limit: Some(MAX_PAGE),
    };
    let mut reader = Pace::default();
    let mut all = reader.buckets(client, &query)?;
    for _ in 1..MAX_PAGES {
        if all.next_cursor.is_none() || all.buckets.len() >= MAX_READ {
            break;
        }
        if all.next_cursor == query.cursor {
            bail!("the server returned the same cursor twice; try again");
        }
        query.cursor = all.next_cursor.take();
        progress.show(&all)?;
        let page = reader.buckets(client, &query)?;
        all.buckets.extend(page.buckets);
        all.next_cursor = page.next_cursor;
        // With the oldest clock, the newest buckets would be in the future.
        all.now_ns = page.now_ns.max(all.now_ns);
        all.generation = page.generation;
        (all.pages, all.pages_done) = (page.pages, page.pages_done);
    }
    let complete = all.next_cursor.is_none();
    // These describe single pages.
    (all.pages, all.pages_done, all.wait_ns) = (0, 0, 0);
    Ok((all, complete))
}

/// A line on standard error, if it is a terminal, that shows how much of the store has been read. Reading a
/// large store takes seconds, because the filter asks its clients to read slowly.
struct Progress<'a> {
    err: Option<&'a mut dyn Write>,
    shown: bool,
}

impl<'a> Progress<'a> {
    fn new(context: &'a mut Context<'_, '_>) -> Self {
        let is_seen = context.io.err_terminal && context.io.out_terminal;
        Self {
            err: is_seen.then_some(&mut *context.io.err),
            shown: false,
        }
    }

    fn show(&mut self, page: &BucketsPage) -> io::Result<()> {
        let Some(err) = &mut self.err else {
            return Ok(());
        };
        let percent = u64::from(page.pages_done)
            .saturating_mul(100)
            .checked_div(page.pages.into())
            .unwrap_or(0);
        self.shown = true;
        let found = page.buckets.len();
        write!(err, "\rreading: {percent} %, {found} buckets")?;
        err.flush()
    }

    /// Removes the line.
    fn end(self) -> io::Result<()> {
        match self.err {
            Some(err) if self.shown => write!(err, "\r{:40}\r", "").and_then(|()| err.flush()),
            _ => Ok(()),
        }
    }
}

fn sort(buckets: &mut [BucketView], by: Sort) {
    let name = |bucket: &BucketView| (bucket.rule.clone(), bucket.key.clone());
    buckets.sort_by_cached_key(name);
    match by {
        Sort::Key => {}
        Sort::Refused => buckets.sort_by_key(|b| Reverse((b.refused, b.admitted))),
        Sort::Admitted => buckets.sort_by_key(|b| Reverse(b.admitted)),
        Sort::Level => buckets.sort_by_key(|b| Reverse(reported(b).map_or(0, level))),
        Sort::Retry => buckets.sort_by_key(|b| Reverse(reported(b).and_then(|l| l.retry_after_ns))),
        Sort::Seen => buckets.sort_by_key(|b| Reverse(b.last_seen_ns)),
    }
}

/// The limit that refuses or is nearest to refusing.
fn reported(bucket: &BucketView) -> Option<&LimitView> {
    bucket.limits.get(bucket.reported)
}

/// The level, in millionths of the capacity.
fn level(limit: &LimitView) -> u128 {
    let (part, whole) = limit.level(0);
    u128::from(part)
        .saturating_mul(1_000_000)
        .div_ceil(u128::from(whole).max(1))
}

pub(super) fn print(
    page: &BucketsPage,
    format: Format,
    style: Style,
    out: &mut dyn Write,
) -> io::Result<()> {
    match format {
        Format::Table => table(page, style).print(out, style),
        Format::Json | Format::Jsonl => json_list(out, format, page, &page.buckets),
        Format::Csv => lines(&page.buckets, out),
    }
}

fn table(page: &BucketsPage, style: Style) -> TextTable {
    // The column for the name of the limit appears only if a rule has several.
    let several = page.buckets.iter().any(|bucket| bucket.limits.len() > 1);
    let mut columns = vec![("RULE", Set::Shrink), ("KEY", Set::Shrink)];
    if several {
        columns.push(("LIMIT", Set::Left));
    }
    columns.extend([
        ("LEVEL", Set::Left),
        ("LEFT", Set::Right),
        ("ADMITTED", Set::Right),
        ("REFUSED", Set::Right),
        ("RETRY", Set::Right),
        ("SEEN", Set::Right),
        ("STATE", Set::Left),
    ]);
    let any_ban = page.buckets.iter().any(|bucket| bucket.ban.is_some());
    let has_overrides = page.buckets.iter().any(|bucket| bucket.own.is_some());
    if any_ban {
        columns.push(("BAN", Set::Left));
    }
    if has_overrides {
        columns.push(("OVERRIDE", Set::Shrink));
    }
    let mut table = TextTable::new(&columns);
    for bucket in &page.buckets {
        let limit = reported(bucket);
        let mut row = vec![bucket.rule.as_str().into(), bucket.key.as_str().into()];
        if several {
            row.push(limit.map(|limit| limit.name.clone()).into());
        }
        let ago = humanise(page.now_ns.saturating_sub(bucket.last_seen_ns));
        let refused = Cell::from(bucket.refused);
        row.extend([
            limit.map(|limit| level_bar(limit, style)).into(),
            limit.map(left).into(),
            bucket.admitted.into(),
            if bucket.refused > 0 {
                refused.paint(Paint::Bad)
            } else {
                refused
            },
            retry_of(bucket, limit, page.now_ns).into(),
            ago.into(),
            state(bucket.state),
        ]);
        let ban = bucket.ban.as_ref();
        let ban = ban.map(|ban| ban_in_short(ban, page.now_ns));
        let entry = bucket.own.as_ref();
        let entry = entry.map(|entry| format!("{} ({})", entry.gives.name(), entry.pattern));
        row.extend(any_ban.then(|| ban.into()));
        row.extend(has_overrides.then(|| entry.into()));
        table.row(row);
    }
    table
}

fn level_bar(limit: &LimitView, style: Style) -> String {
    let (part, whole) = limit.level(0);
    bar(part, whole, style)
}

fn left(limit: &LimitView) -> String {
    format!("{}/{}", limit.remaining, limit.capacity)
}

/// The time until the key of a bucket may come back: the rest of its ban, or the wait of its limit.
fn retry_of(bucket: &BucketView, limit: Option<&LimitView>, now_ns: u64) -> Option<String> {
    match &bucket.ban {
        Some(ban) => ban
            .until_ns
            .map(|until| humanise(until.saturating_sub(now_ns))),
        None => limit.and_then(retry),
    }
}

fn retry(limit: &LimitView) -> Option<String> {
    limit.retry_after_ns.map(humanise)
}

fn state(state: BucketState) -> Cell {
    Cell::new(state.name()).paint(match state {
        BucketState::Idle => Paint::Dim,
        BucketState::Busy => Paint::Plain,
        BucketState::Refusing => Paint::Bad,
        BucketState::Banned => Paint::Warn,
    })
}

/// One record per limit, so that each has its own numbers.
fn lines(buckets: &[BucketView], out: &mut dyn Write) -> io::Result<()> {
    let heading = "rule,key,state,admitted,refused,last_seen_ns,limit,algorithm,capacity,rate,\
                   remaining,retry_after_ns,reset_after_ns,drain_ns,used,drains,ban_until_ns,ban_by,\
                   strikes,penalties,override,override_gives";
    csv(out, heading.split(','))?;
    for bucket in buckets {
        let (ban, entry) = (bucket.ban.as_ref(), bucket.own.as_ref());
        for limit in &bucket.limits {
            let number = |number: u64| number.to_string();
            let record = [
                bucket.rule.clone(),
                bucket.key.clone(),
                bucket.state.name().to_owned(),
                number(bucket.admitted),
                number(bucket.refused),
                number(bucket.last_seen_ns),
                limit.name.clone(),
                limit.algorithm.clone(),
                number(limit.capacity),
                limit.rate.clone(),
                number(limit.remaining),
                limit.retry_after_ns.map(number).unwrap_or_default(),
                number(limit.reset_after_ns),
                number(limit.drain_ns),
                number(limit.used),
                limit.drains.to_string(),
                ban.and_then(|ban| ban.until_ns)
                    .map(number)
                    .unwrap_or_default(),
                ban.map_or("", |ban| ban.by.name()).to_owned(),
                bucket.strikes.to_string(),
                bucket.penalties.to_string(),
                entry.map(|entry| entry.pattern.clone()).unwrap_or_default(),
                entry.map_or("", |entry| entry.gives.name()).to_owned(),
            ];
            csv(out, record.iter().map(String::as_str))?;
        }
    }
    Ok(())
}

pub(super) fn get(context: &mut Context<'_, '_>, args: &GetArgs) -> Result<()> {
    let client = context.client()?;
    let bucket = client.bucket(&args.rule, &args.key)?;
    let format = context.format();
    match format {
        Format::Table => {
            // The answer has no clock reading, and the local clock is a different one.
            let now = client.status().ok().map(|status| status.now_ns);
            one(&bucket, now, context.style, context.io.out)?;
        }
        Format::Json | Format::Jsonl => json(context.io.out, format, &bucket)?,
        Format::Csv => lines(std::slice::from_ref(&bucket), context.io.out)?,
    }
    Ok(())
}

/// One bucket in full.
pub(super) fn one(
    bucket: &BucketView,
    now_ns: Option<u64>,
    style: Style,
    out: &mut dyn Write,
) -> io::Result<()> {
    let seen = now_ns.map(|now| {
        let ago = humanise(now.saturating_sub(bucket.last_seen_ns));
        format!("{ago} ago")
    });
    let mut head = TextTable::new(&[
        ("RULE", Set::Left),
        ("KEY", Set::Left),
        ("STATE", Set::Left),
        ("ADMITTED", Set::Right),
        ("REFUSED", Set::Right),
        ("SEEN", Set::Right),
    ]);
    head.row(vec![
        bucket.rule.as_str().into(),
        bucket.key.as_str().into(),
        state(bucket.state),
        bucket.admitted.into(),
        bucket.refused.into(),
        seen.into(),
    ]);
    head.print(out, style)?;
    stand_out(bucket, now_ns, out)?;
    writeln!(out)?;
    let mut limits = TextTable::new(&[
        ("LIMIT", Set::Left),
        ("ALGORITHM", Set::Left),
        ("RATE", Set::Right),
        ("LEVEL", Set::Left),
        ("LEFT", Set::Right),
        ("RETRY", Set::Right),
        ("RESET", Set::Right),
    ]);
    for limit in &bucket.limits {
        limits.row(vec![
            limit.name.as_str().into(),
            limit.algorithm.as_str().into(),
            limit.rate.as_str().into(),
            level_bar(limit, style).into(),
            left(limit).into(),
            retry(limit).into(),
            humanise(limit.reset_after_ns).into(),
        ]);
    }
    limits.print(out, style)
}

fn state_named(text: &str) -> Result<BucketState, String> {
    use BucketState::{Banned, Busy, Idle, Refusing};
    [Idle, Busy, Refusing, Banned]
        .into_iter()
        .find(|state| state.name() == text)
        .ok_or_else(|| format!("unknown state; write {}", BucketState::NAMES.join(", ")))
}

/// The remaining time and the origin of a ban: `4m, penalty`.
fn ban_in_short(ban: &BanView, now_ns: u64) -> String {
    let left = match ban.until_ns {
        None => "no end".to_owned(),
        Some(until) => format!("{} left", humanise(until.saturating_sub(now_ns))),
    };
    format!("{left}, {}", ban.by.name())
}

/// Prints the remarkable properties of a bucket besides its level.
fn stand_out(bucket: &BucketView, now_ns: Option<u64>, out: &mut dyn Write) -> io::Result<()> {
    for line in stands_out(bucket, now_ns) {
        writeln!(out, "{}", escape(&line))?;
    }
    Ok(())
}
