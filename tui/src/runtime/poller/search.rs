//! Searches for buckets that continue from poll to poll. Each poll reads a few pages, at the pace
//! that the server demands.

use loudou_api::{BucketView, BucketsPage, MAX_PAGE};
use loudou_limiter::Nanos;

use crate::app::effects::Wanted;
use loudou_client::clock::{Clock, pause};
use loudou_client::{BucketsQuery, Client, ClientError, too_early};

/// Time between the end of a search and its next start.
const REST: Nanos = Nanos::from_secs(30);
/// Maximum pause within a poll. The pause is limited because it delays the rest of the poll.
const MAX_PAUSE: Nanos = Nanos::from_millis(50);
/// Maximum pause between polls, even if a server demands more.
const MAX_WAIT: Nanos = Nanos::from_secs(10);
/// Maximum number of calls and maximum time in one poll, until a search has completed once. Later
/// searches are limited by `CALM`.
const FIRST: (usize, Nanos) = (24, Nanos::from_millis(100));
const CALM: (usize, Nanos) = (2, Nanos::from_millis(100));

/// Limits how much one search reads in one poll.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bound {
    /// Maximum number of calls.
    pub(super) calls: usize,
    /// Time after which no further call begins.
    pub(super) until: Nanos,
}

/// Makes the calls of all searches, at the pace that the server demands.
pub(super) struct Searcher<'a> {
    pub(super) client: &'a Client,
    pub(super) clock: Clock,
    /// Time before which no call is made.
    not_before: Nanos,
}

impl<'a> Searcher<'a> {
    pub(super) const fn new(client: &'a Client, clock: Clock) -> Self {
        Self {
            client,
            clock,
            not_before: Nanos::ZERO,
        }
    }

    /// Reads a page. Returns `None` if the server demands a pause that is too long for this poll.
    fn page(&mut self, query: &BucketsQuery) -> Result<Option<BucketsPage>, ClientError> {
        let wait = self.not_before.since(self.clock.now());
        if wait > MAX_PAUSE {
            return Ok(None);
        }
        pause(wait);
        match self.client.buckets(query) {
            Ok(page) => {
                self.wait(Nanos::new(page.wait_ns));
                Ok(Some(page))
            }
            Err(error) => {
                self.wait(too_early(&error).ok_or(error)?);
                Ok(None)
            }
        }
    }

    fn wait(&mut self, span: Nanos) {
        let wait = span.min(MAX_WAIT);
        self.not_before = self.clock.now().saturating_add(wait);
    }
}

/// A search.
#[derive(Debug)]
pub(super) struct Search {
    query: BucketsQuery,
    /// Maximum number of buckets to find.
    most: usize,
    found: usize,
    /// Part of the store that the search has read, in percent.
    pub(super) seen: u64,
    /// True once the search has reached the end of the store or its maximum.
    pub(super) has_ended: bool,
    /// Time at which the search starts again.
    rests_until: Nanos,
}

impl Search {
    /// Returns a search for at most `most` buckets.
    pub(super) fn new(wanted: Wanted, most: usize) -> Self {
        let Wanted { rule, key, state } = wanted;
        Self {
            query: BucketsQuery {
                rule,
                key,
                state,
                cursor: None,
                limit: None,
            },
            most,
            found: 0,
            seen: 0,
            has_ended: false,
            rests_until: Nanos::ZERO,
        }
    }

    /// Returns true if the search has these filters.
    pub(super) fn is_for(&self, wanted: &Wanted) -> bool {
        let Wanted { rule, key, state } = wanted;
        self.query.rule == *rule && self.query.key == *key && self.query.state == *state
    }

    /// Returns the work limit of a search in the background. The limit is higher until the search
    /// has completed once.
    pub(super) fn bound(&self, now: Nanos) -> Bound {
        let (calls, time) = if self.has_ended { CALM } else { FIRST };
        Bound {
            calls,
            until: now.saturating_add(time),
        }
    }

    /// Reads the next pages, and adds their buckets. Returns true if the added buckets are all
    /// buckets that match.
    pub(super) fn step(
        &mut self,
        searcher: &mut Searcher<'_>,
        bound: Bound,
        out: &mut Found<'_>,
    ) -> Result<bool, ClientError> {
        let clock = searcher.clock;
        if clock.now() < self.rests_until {
            return Ok(false);
        }
        let from_start = self.query.cursor.is_none();
        for call in 0..bound.calls {
            if call > 0 && clock.now() >= bound.until {
                return Ok(false);
            }
            let room = self.most.saturating_sub(self.found);
            self.query.limit = Some(room.clamp(1, MAX_PAGE));
            let page = match searcher.page(&self.query) {
                Ok(Some(page)) => page,
                Ok(None) => return Ok(false),
                // The rule has been removed, or the server is too old to support the state. The
                // search finds no buckets, and the poll continues.
                Err(error) if error.status().is_some_and(is_no_search) => {
                    self.has_ended = true;
                    self.begin_after(clock.now().saturating_add(REST));
                    return Ok(false);
                }
                Err(error) => return Err(error),
            };
            if page.instance != out.instance {
                return Err(searcher.client.restarted());
            }
            self.found = self.found.saturating_add(page.buckets.len());
            let done = u64::from(page.pages_done).saturating_mul(100);
            self.seen = done.checked_div(page.pages.into()).unwrap_or(0);
            let buckets = page.buckets.into_iter();
            out.buckets
                .extend(buckets.map(|bucket| (page.now_ns, bucket)));
            let is_end = page.next_cursor.is_none();
            self.query.cursor = page.next_cursor;
            if is_end || self.found >= self.most {
                self.has_ended = true;
                self.begin_after(clock.now().saturating_add(REST));
                return Ok(from_start && is_end);
            }
        }
        Ok(false)
    }

    /// Ends the pause before the search starts again. A search in progress continues.
    pub(super) const fn begin_now(&mut self) {
        self.rests_until = Nanos::ZERO;
    }

    fn begin_after(&mut self, instant: Nanos) {
        self.rests_until = instant;
        self.query.cursor = None;
        self.found = 0;
    }
}

/// Returns true if the status means that the server does not support this search.
const fn is_no_search(status: u16) -> bool {
    matches!(status, 400 | 404)
}

/// Buckets that the searches of a poll have found, all in the process `instance`.
pub(super) struct Found<'a> {
    pub(super) instance: &'a str,
    pub(super) buckets: Vec<(u64, BucketView)>,
}
