//! Reads all live changes from an Envoy.

use std::collections::BTreeMap;

use loudou_api::{BucketState, MAX_PAGE, Rules, Status};

use super::{Authors, Clocks, Id, Item, ban_of, is_lost, of_rules};
use crate::{BucketsQuery, Client, ClientError, Pace};

/// Maximum number of pages of banned buckets to read. The filter ends a page when its time limit is
/// reached, so the largest store may take many pages to read.
const MAX_PAGES: usize = 400_000;

/// All live changes of one Envoy.
#[derive(Clone, Debug, Default)]
pub struct Live {
    /// The Envoy's status at the time the changes were read.
    pub status: Status,
    /// The changes.
    pub items: BTreeMap<Id, Item>,
    /// Authors of bans, as given by the stored events.
    pub authors: Authors,
    /// Sequence number of the last event read.
    pub last_seq: u64,
    /// Number of bans whose keys have lost their names, so that only the hash is known.
    pub nameless: usize,
}

/// Reason why the changes could not be read.
#[derive(Debug)]
pub enum Unread {
    /// A call failed.
    Call(ClientError),
    /// The filter does not report the contents of edits.
    TooOld,
    /// The list of buckets exceeded the maximum number of pages.
    Endless,
}

impl From<ClientError> for Unread {
    fn from(error: ClientError) -> Self {
        Self::Call(error)
    }
}

impl std::error::Error for Unread {}

impl std::fmt::Display for Unread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Call(error) => error.fmt(f),
            Self::TooOld => f.write_str("the filter in this Envoy is too old to report its edits"),
            Self::Endless => f.write_str("the pages of buckets do not end; try again"),
        }
    }
}

/// Reads everything.
pub fn collect(client: &Client) -> Result<Live, Unread> {
    let status = client.status()?;
    if status.instance.is_empty() {
        return Err(Unread::TooOld);
    }
    let mut live = Live::default();
    // Read the events before the buckets. If a ban is imposed in between, its event is returned by
    // the next poll.
    let events = client.events(&status.instance, 0)?;
    live.authors.note(&events.events);
    live.last_seq = events.last_seq;
    let rules: Rules = client.rules()?;
    let clocks = Clocks::of(&status);
    let items = of_rules(&rules, clocks).into_iter();
    live.items = items.map(|item| (item.id(), item)).collect();
    if events.instance != status.instance || rules.instance != status.instance {
        return Err(client.restarted().into());
    }
    let mut query = BucketsQuery {
        state: Some(BucketState::Banned),
        limit: Some(MAX_PAGE),
        ..BucketsQuery::default()
    };
    let mut reader = Pace::default();
    for _ in 0..MAX_PAGES {
        let page = reader.buckets(client, &query)?;
        if page.instance != status.instance {
            return Err(client.restarted().into());
        }
        for bucket in &page.buckets {
            let Some(mut item) = ban_of(bucket, clocks) else {
                continue;
            };
            if is_lost(&bucket.key) {
                live.nameless = live.nameless.saturating_add(1);
                continue;
            }
            live.authors.fill(&mut item);
            live.items.insert(item.id(), item);
        }
        if page.next_cursor.is_none() {
            live.status = status;
            return Ok(live);
        }
        if page.next_cursor == query.cursor {
            return Err(Unread::Endless);
        }
        query.cursor = page.next_cursor;
    }
    Err(Unread::Endless)
}
