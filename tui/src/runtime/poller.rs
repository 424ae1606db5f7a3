//! The poller's thread: reads status, rules, buckets and events, one poll after the other.

use std::collections::BTreeSet;
use std::sync::mpsc::{Receiver, SyncSender};

use loudou_api::{BucketState, BucketView, Events, MAX_PAGE};
use loudou_limiter::Nanos;

use super::trap::panic_if_asked;
use crate::app::effects::PollRequest;
use crate::app::msg::{Failure, Msg, Snapshot};
use crate::app::rows::BucketName;
use crate::client::{BucketsQuery, Client, ClientError, Pace};
use crate::clock::Clock;
use crate::num::count;

/// The most buckets of one poll; the screen shows if there are more.
const MOST_BUCKETS: usize = 5_000;
/// The most pages of one poll. Pages end with the time of an answer, so most of them are short.
const MOST_PAGES: usize = 1_000;
/// The longest time for which pages are requested.
const LONGEST: Nanos = Nanos::from_secs(5);
/// The number of parts into which the pages and the time are divided.
const QUARTERS: usize = 4;

/// Polls once per request, until the requests end.
pub(super) fn run(
    client: &Client,
    clock: Clock,
    requests: &Receiver<PollRequest>,
    answers: &SyncSender<Msg>,
) {
    let mut was_cut = false;
    for request in requests {
        panic_if_asked("poller");
        let snapshot = poll(client, clock, &request, was_cut).map(Box::new);
        if let Ok(snapshot) = &snapshot {
            was_cut = snapshot.truncated;
        }
        if answers
            .send(Msg::Polled(snapshot.map_err(Failure::from)))
            .is_err()
        {
            return;
        }
    }
}

/// Reads everything; `was_cut` if there were too many buckets for the previous poll.
fn poll(
    client: &Client,
    clock: Clock,
    request: &PollRequest,
    was_cut: bool,
) -> Result<Snapshot, ClientError> {
    let status = client.status()?;
    let at_hand =
        request.instance == status.instance && request.generation == Some(status.generation);
    let rules = if at_hand { None } else { Some(client.rules()?) };
    let events = events(client, request)?;
    // Each further scan reads the whole store, so it runs only if it may be needed.
    let many = was_cut || status.store.used > count(MOST_BUCKETS);
    let key = request.key.as_deref();
    let (buckets, truncated) = buckets(client, clock, many, key, &status.instance)?;
    let of_rules = rules.as_ref().map(|rules| &rules.instance);
    if events.instance != status.instance || of_rules.is_some_and(|of| *of != status.instance) {
        return Err(client.restarted());
    }
    Ok(Snapshot {
        status,
        buckets,
        truncated,
        rules,
        events: events.events,
        last_seq: events.last_seq,
        events_lost: events.lost,
    })
}

fn events(client: &Client, request: &PollRequest) -> Result<Events, ClientError> {
    let events = client.events(&request.instance, request.after_seq)?;
    // A restarted server that does not report its instance counts from 1 again.
    if events.last_seq < request.after_seq && !events.restarted {
        client.events("", 0)
    } else {
        Ok(events)
    }
}

type Buckets = Vec<(u64, BucketView)>;

/// Buckets up to a bound, and whether more exist. If there are many, refusing and banned buckets come
/// first, then those with `key` in their keys. All are of the process `instance`.
fn buckets(
    client: &Client,
    clock: Clock,
    many: bool,
    key: Option<&str>,
    instance: &str,
) -> Result<(Buckets, bool), ClientError> {
    let mut reading = Reading::new(client, clock, instance);
    if many {
        let mut refusing = Scan::of(Some(BucketState::Refusing));
        let mut banned = Scan::of(Some(BucketState::Banned));
        // No scan crowds out the others, and all leave time for the rest.
        reading.read(&mut refusing, MOST_BUCKETS / 2, 1)?;
        reading.read(&mut banned, MOST_BUCKETS / 4 * 3, 2)?;
        if let Some(key) = key {
            let mut sought = Scan::of(None);
            sought.query.key = Some(key.to_owned());
            reading.read(&mut sought, MOST_BUCKETS, 3)?;
        }
        reading.read(&mut banned, MOST_BUCKETS, 3)?;
        reading.read(&mut refusing, MOST_BUCKETS, 3)?;
    }
    let mut all = Scan::of(None);
    reading.read(&mut all, MOST_BUCKETS, QUARTERS)?;
    Ok((reading.buckets, !all.done))
}

/// A query, and the progress of its pages.
struct Scan {
    query: BucketsQuery,
    done: bool,
}

impl Scan {
    fn of(state: Option<BucketState>) -> Self {
        let query = BucketsQuery {
            state,
            ..BucketsQuery::default()
        };
        Self { query, done: false }
    }
}

/// The buckets that a poll has read so far, each once.
struct Reading<'a> {
    client: &'a Client,
    clock: Clock,
    instance: &'a str,
    start: Nanos,
    pages: usize,
    pace: Pace,
    seen: BTreeSet<BucketName>,
    buckets: Buckets,
}

impl<'a> Reading<'a> {
    fn new(client: &'a Client, clock: Clock, instance: &'a str) -> Self {
        Self {
            client,
            clock,
            instance,
            start: clock.now(),
            pages: 0,
            pace: Pace::default(),
            seen: BTreeSet::new(),
            buckets: Vec::new(),
        }
    }

    /// Continues `scan` until there are `most` buckets, or `quarters` quarters of a poll's pages or time
    /// are used up.
    fn read(&mut self, scan: &mut Scan, most: usize, quarters: usize) -> Result<(), ClientError> {
        let pages = MOST_PAGES.saturating_mul(quarters) / QUARTERS;
        let until = LONGEST.get().saturating_mul(count(quarters)) / count(QUARTERS);
        while !scan.done && self.pages < pages && self.clock.now().since(self.start).get() <= until
        {
            let room = most.saturating_sub(self.buckets.len());
            if room == 0 {
                break;
            }
            // No more than there is room for: further buckets come on the next page.
            scan.query.limit = Some(room.min(MAX_PAGE));
            let page = self.pace.buckets(self.client, &scan.query)?;
            if page.instance != self.instance {
                return Err(self.client.restarted());
            }
            self.pages = self.pages.saturating_add(1);
            for bucket in page.buckets {
                if self.seen.insert(BucketName::new(&bucket.rule, &bucket.key)) {
                    self.buckets.push((page.now_ns, bucket));
                }
            }
            scan.query.cursor = page.next_cursor;
            scan.done = scan.query.cursor.is_none();
        }
        self.buckets.truncate(MOST_BUCKETS);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
