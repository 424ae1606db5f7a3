//! Implements `loudou buckets`, which prints live buckets as a table, JSON or CSV.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::io;
use std::io::Write;

use anyhow::{Result, anyhow, bail};
use clap::{Args, ValueEnum};
use loudou_api::{
    BucketState, BucketView, BucketsPage, FleetStatus, LeaseView, LimitView, MAX_PAGE, OutageView,
    Status,
};
use loudou_client::{BucketsQuery, Client, ClientError, Pace};
use loudou_words::meaning::leased::{self, answered, denied, down, envoys, heard, lease, outage};
use loudou_words::meaning::{Origins, brought, enforced_ban, refusals, stands_out, state_word};
use loudou_words::num::typed;
use loudou_words::text::{escape, humanise};
use serde::Serialize;

use super::context::Context;
use super::options::Format;
use super::watch::WatchArgs;
use super::world::{json, json_list};
use super::{complete, options, watch};
use loudou_print::style::Style;
use loudou_print::table::{Cell, Paint, Set, TextTable, bar, csv, named};

const BUCKETS_EXAMPLES: &str = "\
Examples:
  loudou buckets                                  most refused first
  loudou buckets --rule per-user --key alice
  loudou buckets --state busy --sort level --limit 10
  loudou buckets --state refusing --watch         again and again
  loudou buckets --output csv > buckets.csv       one line per limit";

#[derive(Debug, Args)]
#[command(before_long_help = BUCKETS_EXAMPLES)]
pub(crate) struct BucketsArgs {
    /// Only buckets of this rule
    #[arg(long)]
    #[arg(add = complete::rules())]
    pub(crate) rule: Option<String>,
    /// Only keys that contain this text
    #[arg(long, value_name = "TEXT", value_parser = options::key, add = complete::keys())]
    pub(crate) key: Option<String>,
    /// idle, busy, held, refusing or banned
    ///
    /// Only buckets in this state. The state `refusing` includes keys that were refused within the
    /// last 10s
    #[arg(long, value_parser = state_named, add = complete::words(&BucketState::NAMES))]
    pub(crate) state: Option<BucketState>,
    /// refused (the default), admitted, level, retry, seen, key
    ///
    /// Sort order
    #[arg(long, value_enum, value_name = "BY", default_value = "refused")]
    #[arg(hide_possible_values = true, hide_default_value = true)]
    pub(crate) sort: Sort,
    /// Maximum number of buckets to print
    #[arg(long, value_name = "N", default_value_t = 50)]
    #[arg(value_parser = typed::<usize>, allow_hyphen_values = true)]
    pub(crate) limit: usize,
    #[command(flatten)]
    pub(super) watch: WatchArgs,
}

impl Default for BucketsArgs {
    fn default() -> Self {
        Self {
            rule: None,
            key: None,
            state: None,
            sort: Sort::Refused,
            limit: 50,
            watch: WatchArgs::default(),
        }
    }
}

/// Sort order of a list of buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Sort {
    Refused,
    Admitted,
    Level,
    Retry,
    Seen,
    Key,
}

pub(super) fn run(context: &mut Context<'_, '_>, args: &BucketsArgs) -> Result<()> {
    watch::run(context, &args.watch, |context| once(context, args))
}

fn once(context: &mut Context<'_, '_>, args: &BucketsArgs) -> Result<()> {
    let (mut page, complete) = read(context, args)?;
    sort(&mut page.buckets, args.sort);
    let found = page.buckets.len();
    page.buckets.truncate(args.limit);
    let shown = page.buckets.len();
    print(&page, context.format(), context.style, context.io.out)?;
    if let (0, Some(part)) = (found, &args.key) {
        let is_pattern = part.contains(['|', '*', '?', '[', '^', '$']);
        let pattern = if is_pattern {
            ": --key takes a part of a key, not a pattern"
        } else {
            ""
        };
        context.note(&format!("no key contains `{}`{pattern}", escape(part)))?;
    }
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

/// Returns the limit that refuses requests, or that is closest to refusing them.
fn reported(bucket: &BucketView) -> Option<&LimitView> {
    bucket.limits.get(bucket.reported)
}

/// Returns the level in millionths of the capacity.
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
    // The column with the limit's name appears only if a bucket has several limits.
    let several = page.buckets.iter().any(|bucket| bucket.limits.len() > 1);
    let mut columns = vec![("RULE", Set::Shrink), ("KEY", Set::Shrink)];
    if several {
        columns.push(("LIMIT", Set::Left));
    }
    columns.extend([("LEVEL", Set::Left), ("LEFT", Set::Right)]);
    let any_lease = page.buckets.iter().any(|bucket| bucket.lease.is_some());
    if any_lease {
        columns.push(("LEASED", Set::Right));
    }
    columns.extend([
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
        let refused = Cell::from(refusals(bucket.refused, bucket.shadow));
        row.extend([
            limit.map(|limit| level_bar(limit, style)).into(),
            limit.map(left).into(),
        ]);
        row.extend(any_lease.then(|| leased_here(bucket).into()));
        row.extend([
            bucket.admitted.into(),
            refused.paint(match (bucket.refused, bucket.shadow) {
                (0, _) => Paint::Plain,
                (_, true) => Paint::Warn,
                (_, false) => Paint::Bad,
            }),
            retry_of(bucket, limit, page.now_ns).into(),
            ago.into(),
            state(bucket),
        ]);
        let ban = ban_in_short(bucket, page.now_ns);
        let entry = bucket.own.as_ref();
        let entry = entry.map(|entry| format!("{} ({})", entry.gives.name(), entry.pattern));
        row.extend(any_ban.then(|| ban.into()));
        row.extend(has_overrides.then(|| entry.into()));
        table.row(row);
    }
    table
}

/// Returns the number of leased units that this Envoy holds.
fn leased_here(bucket: &BucketView) -> Option<String> {
    bucket.lease.as_ref().map(|lease| lease.tokens.to_string())
}

fn level_bar(limit: &LimitView, style: Style) -> String {
    let (part, whole) = limit.level(0);
    bar(part, whole, style)
}

fn left(limit: &LimitView) -> String {
    format!("{}/{}", limit.remaining, limit.capacity)
}

/// Returns the time until requests of the key may be admitted again. This is the remaining time of
/// an enforced ban or, without a ban, the limit's `retry_after_ns`.
fn retry_of(bucket: &BucketView, limit: Option<&LimitView>, now_ns: u64) -> Option<String> {
    match enforced_ban(bucket) {
        Some(ban) => ban
            .until_ns
            .map(|until| humanise(until.saturating_sub(now_ns))),
        None => limit.and_then(retry),
    }
}

fn retry(limit: &LimitView) -> Option<String> {
    limit.retry_after_ns.map(humanise)
}

pub(super) fn state(bucket: &BucketView) -> Cell {
    Cell::new(state_word(bucket)).paint(match bucket.state {
        BucketState::Idle => Paint::Dim,
        BucketState::Busy | BucketState::Held => Paint::Plain,
        BucketState::Refusing if bucket.shadow => Paint::Warn,
        BucketState::Refusing => Paint::Bad,
        BucketState::Banned => Paint::Warn,
    })
}

/// Prints one CSV record per limit, because the capacity, rate and remaining units differ between
/// limits.
fn lines(buckets: &[BucketView], out: &mut dyn Write) -> io::Result<()> {
    let heading = "rule,key,state,admitted,refused,last_seen_ns,limit,algorithm,capacity,rate,\
                   remaining,retry_after_ns,reset_after_ns,drain_ns,used,drains,ban_until_ns,ban_by,\
                   strikes,penalties,override,override_gives,\
                   lease_tokens,lease_left,lease_heard_ns,lease_debt,lease_denied_until_ns,outage,\
                   refused_at_ns,refused_since_ns,shadow";
    csv(out, heading.split(','))?;
    for bucket in buckets {
        let (ban, entry) = (bucket.ban.as_ref(), bucket.own.as_ref());
        for (place, limit) in bucket.limits.iter().enumerate() {
            let number = |number: u64| number.to_string();
            let lease = |field: fn(&LeaseView, usize) -> Option<u64>| {
                let lease = bucket.lease.as_ref();
                let field = lease.and_then(|lease| field(lease, place));
                field.map(number).unwrap_or_default()
            };
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
                lease(|lease, _| Some(lease.tokens)),
                lease(|lease, place| lease.left.get(place).copied()),
                lease(|lease, _| Some(lease.heard_ns)),
                lease(|lease, _| Some(lease.debt)),
                lease(|lease, _| lease.denied_until_ns),
                bucket.outage.map_or("", OutageView::name).to_owned(),
                bucket.refused_at_ns.map(number).unwrap_or_default(),
                bucket.refused_since_ns.map(number).unwrap_or_default(),
                bucket.shadow.to_string(),
            ];
            csv(out, record.iter().map(String::as_str))?;
        }
    }
    Ok(())
}

fn state_named(text: &str) -> Result<BucketState, String> {
    let mut states = BucketState::ALL.into_iter();
    states
        .find(|state| state.name() == text)
        .ok_or_else(|| format!("unknown state; write {}", BucketState::NAMES.join(", ")))
}

/// Returns the remaining time and the origin of a ban, such as `4m left, penalty`.
fn ban_in_short(bucket: &BucketView, now_ns: u64) -> Option<String> {
    let ban = bucket.ban.as_ref()?;
    let left = match ban.until_ns {
        None => "no end".to_owned(),
        Some(until) => format!("{} left", humanise(until.saturating_sub(now_ns))),
    };
    let off = if bucket.shadow { ", not enforced" } else { "" };
    Some(format!("{left}, {}{off}", ban.by.name()))
}

// Implements `loudou get`, which prints one bucket in full.

const GET_EXAMPLES: &str = "\
Examples:
  loudou get per-user alice                       its limits, its ban, its override
  loudou get per-user alice --output json | jq .limits
  loudou get daily-quota alice --fleet            what is leased here, and left for all Envoys";

#[derive(Debug, Args)]
#[command(before_long_help = GET_EXAMPLES)]
pub(crate) struct GetArgs {
    /// The rule
    #[arg(add = complete::rules())]
    pub(crate) rule: String,
    /// The key, as `loudou buckets` prints it
    #[arg(allow_hyphen_values = true, value_parser = options::key, add = complete::keys_of_rule())]
    pub(crate) key: String,
    /// Only the leases of a bucket that a fleet shares
    ///
    /// The units that this Envoy leased, and the units left for all Envoys
    #[arg(long)]
    pub(crate) fleet: bool,
}

pub(in crate::cli) fn get(context: &mut Context<'_, '_>, args: &GetArgs) -> Result<()> {
    if args.fleet {
        return fleet_view(context, &args.rule, &args.key);
    }
    let client = context.client()?;
    let bucket = client.bucket(&args.rule, &args.key)?;
    let format = context.format();
    match format {
        Format::Table => {
            // The response contains no server time, and the local clock may differ from the
            // server's, so the time is read from the status.
            let now = client.status().ok().map(|status| status.now_ns);
            one(&bucket, now, context.style, context.io.out)?;
        }
        Format::Json | Format::Jsonl => json(context.io.out, format, &bucket)?,
        Format::Csv => lines(std::slice::from_ref(&bucket), context.io.out)?,
    }
    Ok(())
}

/// Prints one bucket in full.
pub(in crate::cli) fn one(
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
        state(bucket),
        bucket.admitted.into(),
        refusals(bucket.refused, bucket.shadow).into(),
        seen.into(),
    ]);
    head.print(out, style)?;
    if let Some(line) = lease(bucket, |lease| heard(lease, now_ns)) {
        writeln!(out, "{line}")?;
    }
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

/// Prints the notable properties of a bucket, apart from its level.
fn stand_out(bucket: &BucketView, now_ns: Option<u64>, out: &mut dyn Write) -> io::Result<()> {
    let numbers = brought(bucket).into_iter();
    for line in numbers.chain(stands_out(bucket, now_ns, Origins::default())) {
        writeln!(out, "{}", escape(&line))?;
    }
    Ok(())
}

// Reads the list of buckets page by page, as slowly as the server demands, and shows the progress.

/// Number of buckets after which reading stops. The buckets read until then are sorted and printed.
const MAX_READ: usize = 200_000;
/// Maximum number of pages. `MAX_READ` alone is not a sufficient bound, because pages may be empty.
const MAX_PAGES: usize = 400_000;

/// Reads the pages one after another, and shows the progress on a terminal. Returns all buckets as
/// one page, and false if a maximum ended the reading early.
fn read(context: &mut Context<'_, '_>, args: &BucketsArgs) -> Result<(BucketsPage, bool)> {
    let client = context.client()?;
    let mut progress = Progress::new(context);
    let read = follow_all(&client, args, &mut progress);
    progress.end()?;
    read
}

/// Reads all buckets that match the arguments. `--state refusing` selects the keys that are
/// actually refused. The selection therefore includes banned keys, and excludes the buckets of
/// rules in shadow mode.
fn follow_all(
    client: &Client,
    args: &BucketsArgs,
    progress: &mut Progress<'_>,
) -> Result<(BucketsPage, bool)> {
    let (mut all, mut complete) = follow(client, args, args.state, progress)?;
    if args.state == Some(BucketState::Refusing) {
        let (banned, is_whole) = follow(client, args, Some(BucketState::Banned), progress)?;
        // A key that was banned between the two searches is in both results.
        let names: BTreeSet<_> = banned.buckets.iter().map(name).collect();
        all.buckets.retain(|bucket| !names.contains(&name(bucket)));
        all.buckets.extend(banned.buckets);
        all.now_ns = banned.now_ns.max(all.now_ns);
        all.buckets.retain(|bucket| !bucket.shadow);
        complete &= is_whole;
    }
    Ok((all, complete))
}

fn name(bucket: &BucketView) -> (&str, &str) {
    (&bucket.rule, &bucket.key)
}

fn follow(
    client: &Client,
    args: &BucketsArgs,
    state: Option<BucketState>,
    progress: &mut Progress<'_>,
) -> Result<(BucketsPage, bool)> {
    let mut query = BucketsQuery {
        rule: args.rule.clone(),
        key: args.key.clone(),
        state,
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
        // Keeps the latest server time of all pages. With an earlier time, buckets used since then
        // would appear to lie in the future.
        all.now_ns = page.now_ns.max(all.now_ns);
        all.generation = page.generation;
        (all.pages, all.pages_done) = (page.pages, page.pages_done);
    }
    let complete = all.next_cursor.is_none();
    // These fields describe a single page, so they have no meaning for the joined list.
    (all.pages, all.pages_done, all.wait_ns) = (0, 0, 0);
    Ok((all, complete))
}

/// Progress line on a terminal's standard error, which shows how much of the store has been read.
/// Reading a large store takes seconds, because the server limits the pace of its clients.
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

    /// Clears the progress line.
    fn end(self) -> io::Result<()> {
        match self.err {
            Some(err) if self.shown => write!(err, "\r{:40}\r", "").and_then(|()| err.flush()),
            _ => Ok(()),
        }
    }
}

// Implements `loudou get --fleet`, which shows one Envoy's view of a bucket that a fleet shares.

/// One Envoy's view of a bucket that a fleet shares.
#[derive(Serialize)]
struct Leased<'a> {
    rule: &'a str,
    key: &'a str,
    /// Server's clock.
    now_ns: u64,
    lease: LeaseView,
    #[serde(skip_serializing_if = "Option::is_none")]
    outage: Option<OutageView>,
    fleet: FleetStatus,
    #[serde(skip)]
    limits: Vec<LimitView>,
}

/// Prints how many units of a bucket this Envoy has leased, and how many remain for the fleet.
fn fleet_view(context: &mut Context<'_, '_>, rule: &str, key: &str) -> Result<()> {
    let client = context.client()?;
    let (lease, limits, outage) = match client.bucket(rule, key) {
        Ok(BucketView {
            lease: Some(lease),
            limits,
            outage,
            ..
        }) => (lease, limits, outage),
        Ok(BucketView {
            outage: Some(out), ..
        }) => {
            let (rule, key, out) = (escape(rule), escape(key), outage(out));
            bail!("{key} of {rule} has no lease here; {out}; leave out --fleet to see its bucket");
        }
        Ok(_) => return Err(unknown(&client, (rule, key), None)?),
        Err(error) if error.status() == Some(404) => {
            return Err(unknown(&client, (rule, key), Some(&error))?);
        }
        Err(error) => return Err(error.into()),
    };
    let Status { now_ns, fleet, .. } = client.status()?;
    let leased = Leased {
        rule,
        key,
        now_ns,
        lease,
        outage,
        fleet: fleet.unwrap_or_default(),
        limits,
    };
    let format = context.format();
    match format {
        Format::Table => leased.lines(context.style, context.io.out)?,
        Format::Json | Format::Jsonl => json(context.io.out, format, &leased)?,
        Format::Csv => leased.records(context.io.out)?,
    }
    Ok(())
}

impl Leased<'_> {
    fn lines(&self, style: Style, out: &mut dyn Write) -> io::Result<()> {
        let (now, lease) = (self.now_ns, &self.lease);
        let left = leased::left(lease, &self.limits);
        let left = format!("{left} for all Envoys, {}", heard(lease, Some(now)));
        let mut lines = vec![
            ("rule", Cell::new(self.rule)),
            ("key", Cell::new(self.key)),
            ("leased here", lease.tokens.into()),
            ("left centrally", left.into()),
        ];
        if lease.debt > 0 {
            let debt = format!("{}, which passed on credit", lease.debt);
            lines.push(("not charged yet", debt.into()));
        }
        let warning = match self.outage {
            Some(out) => Some(("outage", outage(out))),
            None => denied(lease, Some(now)).map(|text| ("denied", text)),
        };
        lines.extend(warning.map(|(name, text)| (name, Cell::from(text).paint(Paint::Warn))));
        lines.push(("fleet", fleet(&self.fleet, now)));
        named(&lines, style, out)
    }

    /// Prints one CSV record per limit.
    fn records(&self, out: &mut dyn Write) -> io::Result<()> {
        let heading =
            "rule,key,now_ns,tokens,limit,left,heard_ns,debt,denied_until_ns,envoys,outage";
        csv(out, heading.split(','))?;
        let lease = &self.lease;
        let until = lease.denied_until_ns.map(|until| until.to_string());
        for (limit, left) in self.limits.iter().zip(&lease.left) {
            let record = [
                self.rule.to_owned(),
                self.key.to_owned(),
                self.now_ns.to_string(),
                lease.tokens.to_string(),
                limit.name.clone(),
                left.to_string(),
                lease.heard_ns.to_string(),
                lease.debt.to_string(),
                until.clone().unwrap_or_default(),
                self.fleet.envoys.to_string(),
                self.outage.map_or("", OutageView::name).to_owned(),
            ];
            csv(out, record.iter().map(String::as_str))?;
        }
        Ok(())
    }
}

/// Describes the fleet: the number of Envoys, the time since the relay's last answer, and the
/// number of workers that are disconnected and decide by `fleet.on_outage`.
pub(in crate::cli) fn fleet(fleet: &FleetStatus, now_ns: u64) -> Cell {
    let answer = answered(fleet, now_ns).map_or_else(
        || "the relay has not answered yet".to_owned(),
        |ago| format!("{}; last answer {ago}", envoys(fleet)),
    );
    match down(fleet) {
        None => answer.into(),
        Some(down) => {
            Cell::from(format!("{answer}; {down}, decided by fleet.on_outage")).paint(Paint::Warn)
        }
    }
}

/// Explains why a key has no lease at this Envoy, and what the user can do.
fn unknown(
    client: &Client,
    (rule, key): (&str, &str),
    none: Option<&ClientError>,
) -> Result<anyhow::Error> {
    let view = client.rule(rule)?;
    let (rule, key) = (escape(rule), escape(key));
    if view.rule.get("scope").and_then(serde_json::Value::as_str) != Some("fleet") {
        return Ok(anyhow!(
            "no fleet shares the buckets of {rule}: each Envoy has its own; leave out --fleet to see the one here, \
             or set `scope: fleet` in the rule file"
        ));
    }
    Ok(match none {
        Some(error) => anyhow!(
            "{error}; send a request with this key through this Envoy, or ask another one with --url"
        ),
        None => anyhow!(
            "{key} of {rule} has no lease here: the relay has not answered for it; its next request asks, and \
             `loudou status` shows whether the relay answers"
        ),
    })
}
