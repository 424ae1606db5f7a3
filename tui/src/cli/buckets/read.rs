//! Reads the list of buckets page by page, as slowly as the filter asks, and shows how far it is.

use std::collections::BTreeSet;
use std::io::{self, Write};

use anyhow::{Result, bail};
use loudou_api::{BucketState, BucketView, BucketsPage, MAX_PAGE};

use super::BucketsArgs;
use crate::cli::context::Context;
use loudou_client::{BucketsQuery, Client, Pace};

/// The maximum number of buckets that are read to find the first ones.
const MAX_READ: usize = 200_000;
/// The maximum number of pages: pages may be empty, so the number of buckets is no bound.
const MAX_PAGES: usize = 400_000;

/// Follows the cursors, and shows the progress on a terminal. `false` if there was more than the maximum.
pub(super) fn read(
    context: &mut Context<'_, '_>,
    args: &BucketsArgs,
) -> Result<(BucketsPage, bool)> {
    let client = context.client()?;
    let mut progress = Progress::new(context);
    let read = follow_all(&client, args, &mut progress);
    progress.end()?;
    read
}

/// Reads all that is asked for. `refusing` is about keys: a banned one is refused, too, and a rule in shadow mode refuses
/// none.
fn follow_all(
    client: &Client,
    args: &BucketsArgs,
    progress: &mut Progress<'_>,
) -> Result<(BucketsPage, bool)> {
    let (mut all, mut complete) = follow(client, args, args.state, progress)?;
    if args.state == Some(BucketState::Refusing) {
        let (banned, is_whole) = follow(client, args, Some(BucketState::Banned), progress)?;
        // A key may have been banned between the two searches.
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
