//! Searches for buckets that go on from poll to poll: a few pages at a time, at the pace that the filter asks for.

use loudou_api::{BucketView, BucketsPage, MAX_PAGE};
use loudou_limiter::Nanos;

use crate::app::effects::Wanted;
use loudou_client::clock::{Clock, pause};
use loudou_client::{BucketsQuery, Client, ClientError, too_early};

/// The time between the end of a search and its next beginning.
const REST: Nanos = Nanos::from_secs(30);
/// The longest pause within a poll: the rest of the poll waits for it.
const LONGEST_PAUSE: Nanos = Nanos::from_millis(50);
/// The longest pause between polls, whatever a server asks for.
const LONGEST_WAIT: Nanos = Nanos::from_secs(10);
/// The calls and the time of one poll until the first end, and later.
const FIRST: (usize, Nanos) = (24, Nanos::from_millis(100));
const CALM: (usize, Nanos) = (2, Nanos::from_millis(100));

/// A bound on the work of one search in one poll.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bound {
    /// The most calls.
    pub(super) calls: usize,
    /// When no further call begins.
    pub(super) until: Nanos,
}

/// Who makes the calls of all searches, at the pace that the filter asks for.
pub(super) struct Searcher<'a> {
    pub(super) client: &'a Client,
    pub(super) clock: Clock,
    /// Before this, no call is made.
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

    /// A page; `None` if the filter wants a pause that is too long for this poll.
    fn page(&mut self, query: &BucketsQuery) -> Result<Option<BucketsPage>, ClientError> {
        let wait = self.not_before.since(self.clock.now());
        if wait > LONGEST_PAUSE {
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
        let wait = span.min(LONGEST_WAIT);
        self.not_before = self.clock.now().saturating_add(wait);
    }
}

/// One search.
#[derive(Debug)]
pub(super) struct Search {
    query: BucketsQuery,
    /// The most buckets that it is for.
    most: usize,
    found: usize,
    /// How much of the store it has seen, in percent.
    pub(super) seen: u64,
    /// Whether it has been at the end, or at its most.
    pub(super) has_ended: bool,
    /// When it begins again.
    rests_until: Nanos,
}

impl Search {
    /// A search for at most so many buckets.
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

    /// Whether it looks for the same.
    pub(super) fn is_for(&self, wanted: &Wanted) -> bool {
        let Wanted { rule, key, state } = wanted;
        self.query.rule == *rule && self.query.key == *key && self.query.state == *state
    }

    /// The work of a search that nobody waits for: until its first end more than later.
    pub(super) fn bound(&self, now: Nanos) -> Bound {
        let (calls, time) = if self.has_ended { CALM } else { FIRST };
        Bound {
            calls,
            until: now.saturating_add(time),
        }
    }

    /// Reads the next pages, and adds what they have. True if that is everything that it looks for.
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
                // Its rule was removed, or the filter is older than the state: nothing is found, and the poll goes on.
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

    /// Ends its rest. A search under way goes on.
    pub(super) const fn begin_now(&mut self) {
        self.rests_until = Nanos::ZERO;
    }

    fn begin_after(&mut self, instant: Nanos) {
        self.rests_until = instant;
        self.query.cursor = None;
        self.found = 0;
    }
}

/// Whether the filter cannot search for this.
const fn is_no_search(status: u16) -> bool {
    matches!(status, 400 | 404)
}

/// The buckets that the searches of a poll find, all in one process.
pub(super) struct Found<'a> {
    pub(super) instance: &'a str,
    pub(super) buckets: Vec<(u64, BucketView)>,
}
