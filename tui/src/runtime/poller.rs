//! The poller's thread, which reads the data on screen, one poll at a time.
//!
//! A poll costs the proxy about as much with a million buckets as with ten. A poll reads the status
//! and the keys with the most recent refusals and admissions. It then reads by name the buckets on
//! screen, and the buckets of some of these keys. Buckets without recent requests are found by a
//! search that continues from poll to poll. In each poll, the search makes a few calls, each of
//! which occupies a worker for a fraction of a millisecond. Data that is not on screen is not read.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::Receiver;

use loudou_api::{
    BucketNames, BucketState, BucketView, Events, MAX_PAGE, MAX_READ, MAX_TOP, TopBy,
};
use loudou_limiter::Nanos;

use self::search::{Bound, Found, Search, Searcher};
use super::inbox::Outbox;
use super::panic_if_asked;
use crate::app::effects::{PollRequest, Wanted};
use crate::app::msg::{Failure, Msg, Snapshot};
use crate::app::rows::BucketName;
use loudou_client::clock::Clock;
use loudou_client::live::is_lost;
use loudou_client::{Client, ClientError, TopQuery};
use loudou_words::num::count;

mod search;

/// Maximum number of buckets that a poll reads by name, unless more are on screen.
const READS: usize = 2 * MAX_READ;
/// Number of buckets that a poll may read by name in addition to the buckets on screen.
const OTHERS: usize = 32;
/// Maximum size of the names in one call, in bytes. The names may have to be sent in a header.
const MAX_NAMES: usize = 7 * 1024;
/// Maximum number of buckets that are read one by one, from a server that cannot read several in
/// one call.
const SINGLY: usize = 24;
/// HTTP statuses with which a server rejects a call that it does not support.
const NO_SUCH_CALL: [u16; 2] = [404, 405];
/// Maximum number of buckets that the search without filters finds. `MAX_WANTED` is the maximum for
/// any other search.
const MAX_ANY: usize = 500;
const MAX_WANTED: usize = 1_000;
/// Maximum number of calls that a search makes in one poll while the user waits for the search.
/// `BUSY_TIME` is the maximum time of all such searches in one poll.
const BUSY_CALLS: usize = 200;
const BUSY_TIME: Nanos = Nanos::from_millis(300);
/// Minimum time between two polls that continue the searches for which the user does not wait.
const CALM: Nanos = Nanos::from_millis(900);
/// Maximum number of attempts to read the rules and the buckets at the same generation.
const TRIES: usize = 3;

/// Polls once per request, until all senders of requests have been dropped.
pub(super) fn run(
    client: &Client,
    clock: Clock,
    requests: &Receiver<PollRequest>,
    answers: &Outbox,
) {
    let mut poller = Poller::new(client, clock);
    for request in requests {
        panic_if_asked("poller");
        let snapshot = poller.poll(&request).map(Box::new);
        if !answers.send(Msg::Polled(snapshot.map_err(Failure::from))) {
            return;
        }
    }
}

/// State that the poller keeps from poll to poll.
struct Poller<'a> {
    client: &'a Client,
    clock: Clock,
    searcher: Searcher<'a>,
    /// Instance ID of the process that the following fields describe.
    instance: String,
    /// The keys with the most refusals and admissions.
    top: BTreeMap<BucketName, Heavy>,
    any: Search,
    banned: Search,
    wanted: Vec<Search>,
    searched_at: Option<Nanos>,
    /// True if the server can read several buckets in one call.
    reads_several: bool,
    /// Server's clock in the last status. `used` is the number of used buckets in that status.
    now_ns: u64,
    used: u64,
}

/// A key with many requests.
#[derive(Clone, Copy, Debug, Default)]
struct Heavy {
    /// Counts of the key, in the order of [`TopBy::ALL`].
    counts: [u64; 2],
    /// True if the counts have changed since the bucket was read.
    is_new: bool,
    /// Time at which the bucket was last read.
    read_at: Nanos,
}

impl<'a> Poller<'a> {
    fn new(client: &'a Client, clock: Clock) -> Self {
        let banned = Wanted {
            state: Some(BucketState::Banned),
            ..Wanted::default()
        };
        Self {
            client,
            clock,
            searcher: Searcher::new(client, clock),
            instance: String::new(),
            top: BTreeMap::new(),
            any: Search::new(Wanted::default(), MAX_ANY),
            banned: Search::new(banned, MAX_WANTED),
            wanted: Vec::new(),
            searched_at: None,
            reads_several: true,
            now_ns: 0,
            used: 0,
        }
    }

    fn poll(&mut self, request: &PollRequest) -> Result<Snapshot, ClientError> {
        let asked = self.clock.now();
        let mut status = self.client.status()?;
        let mut answered = self.clock.now();
        let took = answered.since(asked);
        if status.instance != self.instance {
            *self = Self::new(self.client, self.clock);
            self.instance.clone_from(&status.instance);
        }
        (self.now_ns, self.used) = (status.now_ns, status.store.used);
        let events = self.events(request)?;
        if request.lists {
            self.read_top()?;
        }
        let names = self.names(request);
        let mut read = self.read(&names)?;
        // The numbers and rules in a frame must have the same generation, so they are read again if
        // the generation has changed. The number of attempts is limited, because edits may arrive
        // faster than the rules can be read.
        let mut rules = None;
        for _ in 0..TRIES {
            let at_hand = request.instance == status.instance
                && request.generation == Some(status.generation);
            rules = (!at_hand).then(|| self.client.rules()).transpose()?;
            let of_rules = rules
                .as_ref()
                .map_or(status.generation, |rules| rules.generation);
            let of_buckets = read.generation.unwrap_or(of_rules);
            if of_rules == status.generation && of_buckets == status.generation {
                break;
            }
            read = self.read(&names)?;
            status = self.client.status()?;
            answered = self.clock.now();
        }
        let of_rules = rules.as_ref().map(|rules| &rules.instance);
        let is_other = |instance: &String| *instance != self.instance;
        if [&events.instance, &status.instance]
            .into_iter()
            .chain(of_rules)
            .any(is_other)
        {
            return Err(self.client.restarted());
        }
        let (found, is_whole) = self.search(request)?;
        Ok(Snapshot {
            searching: self.searching(),
            truncated: !is_whole,
            buckets: each_once(read.buckets.into_iter().chain(found)),
            gone: read.gone,
            status,
            took,
            status_age: self.clock.now().since(answered),
            rules,
            events: events.events,
            last_seq: events.last_seq,
            events_lost: events.lost,
        })
    }

    fn events(&self, request: &PollRequest) -> Result<Events, ClientError> {
        let events = self.client.events(&request.instance, request.after_seq)?;
        // After a restart, a server that does not report its instance numbers its events from 1
        // again.
        if events.last_seq < request.after_seq && !events.restarted {
            self.client.events("", 0)
        } else {
            Ok(events)
        }
    }

    /// Reads the keys with the most refusals and admissions.
    fn read_top(&mut self) -> Result<(), ClientError> {
        let mut top: BTreeMap<BucketName, Heavy> = BTreeMap::new();
        for (place, by) in TopBy::ALL.into_iter().enumerate() {
            let query = TopQuery {
                rule: None,
                by: Some(by),
                limit: Some(MAX_TOP),
            };
            for entry in self.client.top(&query)?.top {
                let name = BucketName::new(&entry.rule, &entry.key);
                let heavy = top.entry(name).or_default();
                if let Some(count) = heavy.counts.get_mut(place) {
                    *count = entry.count;
                }
            }
        }
        for (name, heavy) in &mut top {
            let before = self.top.get(name).copied().unwrap_or_default();
            heavy.read_at = before.read_at;
            heavy.is_new = before.is_new || heavy.counts != before.counts;
        }
        self.top = top;
        Ok(())
    }

    /// Returns the names of the buckets to read. The buckets on screen come first, then keys with
    /// new requests, then other rows. The keys with new requests are sorted by the time when they
    /// were last read, oldest first, and then by their counts, highest first.
    fn names(&mut self, request: &PollRequest) -> Vec<BucketName> {
        let most = READS.max(request.shown.len().saturating_add(OTHERS));
        let mut heavy: Vec<(&BucketName, &Heavy)> =
            self.top.iter().filter(|(_, heavy)| heavy.is_new).collect();
        heavy.sort_by_key(|(_, heavy)| (heavy.read_at, Reverse(heavy.counts)));
        let heavy = heavy.into_iter().map(|(name, _)| name);
        let heavy = heavy.filter(|_| request.lists);
        let all = request.shown.iter().chain(heavy).chain(&request.others);
        let mut seen = BTreeSet::new();
        // A bucket whose name was lost cannot be read by name.
        let known = all.filter(|name| !is_lost(&name.key) && seen.insert(*name));
        let names: Vec<BucketName> = known.take(most).cloned().collect();
        let now = self.clock.now();
        for name in &names {
            if let Some(heavy) = self.top.get_mut(name) {
                (heavy.is_new, heavy.read_at) = (false, now);
            }
        }
        names
    }

    /// Reads buckets by name.
    fn read(&mut self, names: &[BucketName]) -> Result<Read, ClientError> {
        let mut read = Read::default();
        let mut rest = names;
        while self.reads_several && !rest.is_empty() {
            let (call, _) = rest.split_at(fitting(rest));
            let wanted = call
                .iter()
                .map(|name| (name.rule.clone(), name.key.clone()));
            let wanted = BucketNames {
                buckets: wanted.collect(),
            };
            let page = match self.client.read_buckets(&wanted) {
                Ok(page) => page,
                Err(error) if error.status().is_some_and(|s| NO_SUCH_CALL.contains(&s)) => {
                    self.reads_several = false;
                    break;
                }
                Err(error) => return Err(error),
            };
            if page.instance != self.instance {
                return Err(self.client.restarted());
            }
            let done = page.next_cursor.and_then(|done| done.parse().ok());
            let done = done.unwrap_or(call.len()).clamp(1, call.len());
            let (asked, later) = rest.split_at_checked(done).unwrap_or((rest, &[]));
            rest = later;
            read.add(asked, page.now_ns, page.buckets);
            read.generation = Some(page.generation);
        }
        for name in rest.iter().take(SINGLY) {
            self.read_one(name, &mut read)?;
        }
        Ok(read)
    }

    /// Reads one bucket. The response contains no server time, so the server time in the status is
    /// used.
    fn read_one(&self, name: &BucketName, read: &mut Read) -> Result<(), ClientError> {
        match self.client.bucket(&name.rule, &name.key) {
            Ok(bucket) => read.add(std::slice::from_ref(name), self.now_ns, vec![bucket]),
            Err(error) if error.status() == Some(404) => {
                read.add(std::slice::from_ref(name), 0, Vec::new());
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Continues the searches. Returns the buckets that were found, and true if these are all
    /// buckets in the store.
    fn search(
        &mut self,
        request: &PollRequest,
    ) -> Result<(Vec<(u64, BucketView)>, bool), ClientError> {
        self.wanted
            .retain(|search| request.wanted.iter().any(|wanted| search.is_for(wanted)));
        for wanted in &request.wanted {
            if !self.wanted.iter().any(|search| search.is_for(wanted)) {
                self.wanted.push(Search::new(wanted.clone(), MAX_WANTED));
            }
        }
        let now = self.clock.now();
        let mut found = Found {
            instance: &self.instance,
            buckets: Vec::new(),
        };
        let until = now.saturating_add(BUSY_TIME);
        let busy = Bound {
            calls: BUSY_CALLS,
            until,
        };
        for search in &mut self.wanted {
            search.step(&mut self.searcher, busy, &mut found)?;
        }
        // A store of one page is read completely by a single call in each poll, so that no bucket
        // is missing from the list.
        let is_small = self.used <= count(MAX_PAGE);
        if is_small || request.anew {
            self.any.begin_now();
        }
        if request.anew {
            self.banned.begin_now();
        }
        let is_calm = self.searched_at.is_some_and(|at| now.since(at) < CALM);
        if is_calm && !is_small && !request.anew {
            return Ok((found.buckets, false));
        }
        let is_first = self.searched_at.is_none();
        self.searched_at = Some(now);
        let mut is_whole = false;
        if request.lists {
            let is_alone = found.buckets.is_empty();
            let bound = self.any.bound(now);
            is_whole = self.any.step(&mut self.searcher, bound, &mut found)? && is_alone;
        }
        if !is_first || request.anew {
            let bound = self.banned.bound(now);
            self.banned.step(&mut self.searcher, bound, &mut found)?;
        }
        Ok((found.buckets, is_whole))
    }

    /// Returns the part of the store that the searches for the filter text have read, in percent.
    fn searching(&self) -> Option<u64> {
        let going_on = self.wanted.iter().filter(|search| !search.has_ended);
        going_on.map(|search| search.seen).min()
    }
}

/// The buckets that were read by name.
#[derive(Debug, Default)]
struct Read {
    buckets: Vec<(u64, BucketView)>,
    gone: Vec<BucketName>,
    /// Generation of the rules when the buckets were read.
    generation: Option<u64>,
}

impl Read {
    /// Adds the buckets that exist, and records which of the requested buckets do not exist.
    fn add(&mut self, asked: &[BucketName], now_ns: u64, buckets: Vec<BucketView>) {
        let exist: BTreeSet<(&str, &str)> = buckets
            .iter()
            .map(|bucket| (bucket.rule.as_str(), bucket.key.as_str()))
            .collect();
        let gone = asked
            .iter()
            .filter(|name| !exist.contains(&(name.rule.as_str(), name.key.as_str())));
        self.gone.extend(gone.cloned());
        self.buckets
            .extend(buckets.into_iter().map(|bucket| (now_ns, bucket)));
    }
}

/// Returns the number of names that fit into a call, at least one.
fn fitting(names: &[BucketName]) -> usize {
    let mut bytes = 0_usize;
    let fits = names.iter().take(MAX_READ).take_while(|name| {
        // The text counts twice, because characters may have to be escaped. Another 8 bytes are
        // reserved for quotes, brackets and commas.
        let text = name.rule.len().saturating_add(name.key.len());
        bytes = bytes
            .saturating_add(text.saturating_mul(2))
            .saturating_add(8);
        bytes <= MAX_NAMES
    });
    fits.count().max(1)
}

/// Removes duplicates. If a bucket was read twice, the first value is kept.
fn each_once(buckets: impl Iterator<Item = (u64, BucketView)>) -> Vec<(u64, BucketView)> {
    let mut seen = BTreeSet::new();
    buckets
        .filter(|(_, bucket)| seen.insert(BucketName::new(&bucket.rule, &bucket.key)))
        .collect()
}

#[cfg(test)]
mod tests;
