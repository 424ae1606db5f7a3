//! The model: the minimum and maximum that a key may get, as seen from outside of Envoy.
//!
//! For each request and each change, the model knows the answer, and when it was sent and answered.
//! Where this leaves two possibilities, the model assumes the one that favours the limiter, so a
//! slow machine causes no false alarm. It calculates in whole numbers.

use bound::Bound;

use super::rules::{Kind, Rule};
use super::timeline::{At, Gives, KeySpan, Segment, Span, State, Timeline, segments};

mod bound;
mod line;

/// One part or unit, as a number of its smallest fractions.
const ONE: u128 = 1_000_000_000_000_000_000;

/// An amount that no limiter can distinguish from 0. It exceeds the rounding errors of the
/// divisions here.
const NOTHING: u128 = ONE / 1_000_000_000;
/// Maximum amount by which an exact level is rounded up when it is carried over, in parts.
const DROP: u128 = ONE / 1_000_000;

/// Outcome of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The request was admitted.
    Admitted,
    /// The request got status 429.
    Refused,
    /// The sandbox died, so it is unknown if the request took anything.
    Unknown,
}

/// A request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// Time at which the request was sent.
    pub sent: At,
    /// Time at which the request was answered.
    pub answered: At,
    /// Outcome of the request.
    pub outcome: Outcome,
    /// Time at which the connection was opened.
    pub opened: At,
    /// If the request was admitted, it was certainly in flight until this time, when its client was
    /// about to leave.
    pub held_until: Option<At>,
    /// Times of the pass, if the request may have waited.
    pub pass: Option<Pass>,
}

impl Event {
    /// Returns the time at which the request was answered, or passed. It may pass later than its
    /// answer if its client left.
    const fn end(&self) -> At {
        match self.pass {
            Some(pass) if pass.arrived > self.answered => pass.arrived,
            _ => self.answered,
        }
    }
}

/// Times of a request that passed and may have waited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pass {
    /// Time at which the request arrived.
    pub came: At,
    /// Latest time at which the request was decided.
    pub decided_until: At,
    /// Earliest time at which the request was due, if nothing has changed for a while.
    pub due_from: At,
    /// Time at which the upstream received the request.
    pub arrived: At,
}

/// Earliest and latest time of an admission.
struct Between {
    from: At,
    until: At,
}

/// Everything that was recorded about a key.
#[derive(Debug, Clone, Default)]
pub struct Record {
    /// Requests of the key.
    pub events: Vec<Event>,
    /// Overrides and bans of the key.
    pub spans: Vec<KeySpan>,
    /// Resets of the bucket: when they were sent and answered.
    pub resets: Vec<(At, At)>,
    /// Numbers of the requests that may wait, with their indices in `events`, until their passes
    /// are known.
    pub numbers: Vec<(u64, usize)>,
}

/// A kind of promise that a limiter must keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Promise {
    /// No more is admitted than the largest numbers in force allow.
    AtMost,
    /// A key that has used so little is admitted.
    AtLeast,
    /// A banned key is refused.
    Banned,
    /// An unlimited key is admitted.
    Unlimited,
    /// A change is in force after its answer, and is refused only for a reason.
    Change,
    /// The store loses nothing and never gives up. Otherwise the model's bounds do not apply.
    Store,
    /// Envoy's memory does not grow.
    Memory,
}

/// A broken promise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Breach {
    /// The promise.
    pub promise: Promise,
    /// Time of the breach.
    pub at: At,
    /// The admitted amount and the bound, as text.
    pub what: String,
}

/// Compares the requests of a key with its bounds. Returns the first breach of each promise.
pub fn check(rule: &Rule, timeline: &Timeline, record: &Record) -> Vec<Breach> {
    let mut events = record.events.clone();
    events.sort_unstable_by_key(|event| (event.answered, event.sent));
    let first = events.iter().map(|event| event.sent).min();
    let last = events.iter().map(Event::end).max();
    let (Some(first), Some(last)) = (first, last) else {
        return Vec::new();
    };
    let segments = segments(rule.levels(), &timeline.spans, &record.spans, first, last);
    let states = || segments.iter().flat_map(|segment| &segment.states);
    // False after a ban, because a ban creates the bucket before the first request.
    let is_new = !record.spans.iter().any(|own| own.is_ban);
    let fewest = states().map(|state| state.most).min().filter(|_| is_new);
    let case = Case {
        first_window_until: first
            .saturating_add(states().map(|state| state.refill).min().unwrap_or(0)),
        first,
        starts_with: fewest.unwrap_or(0),
        rest: rest(&segments),
        kind: rule.kind,
        mixes: if rule.is_mixed() {
            &timeline.spans
        } else {
            &[]
        },
        segments: &segments,
        record,
        resets: [&timeline.resets, &record.resets],
        events: &events,
    };
    let breaches = [case.words(), case.at_most(), case.at_least()];
    breaches.into_iter().flatten().collect()
}

/// Returns the time after which nothing is left of an earlier use. A level above the capacity
/// drains at the slower rate, and windows need two of their lengths.
fn rest(segments: &[Segment]) -> u64 {
    let states = || segments.iter().flat_map(|segment| &segment.states);
    let longest = states().map(|state| state.refill).max().unwrap_or(0);
    let most = states().map(|state| state.most).max().unwrap_or(1);
    let least = states().map(|state| state.most).min().unwrap_or(1).max(1);
    longest.saturating_mul(most.div_ceil(least).max(2))
}

struct Case<'a> {
    kind: Kind,
    /// Numbers of a rule whose changes alternate between shares and units. Empty for other rules.
    mixes: &'a [Span],
    segments: &'a [Segment],
    record: &'a Record,
    resets: [&'a [(At, At)]; 2],
    /// Requests, sorted by the time of their answers.
    events: &'a [Event],
    /// Time at which the first request was sent.
    first: At,
    /// Minimum number of parts that a new bucket lacks, if its limiter starts with a debt. 0 if the
    /// bucket may be older than the first request.
    starts_with: u64,
    /// Earliest end of a window that begins with the first request.
    first_window_until: At,
    /// Time after which nothing is left of an idle key's use, at the slowest numbers.
    rest: u64,
}

impl Case<'_> {
    /// Checks bans and unlimited overrides, each from its answer to its earliest end.
    fn words(&self) -> Option<Breach> {
        self.events.iter().find_map(|event| {
            let all = |gives: Gives| {
                let mut spans = self.record.spans.iter();
                spans.any(|own| own.gives == gives && own.covers(event.sent, event.answered))
            };
            let (promise, what) = match event.outcome {
                Outcome::Admitted if all(Gives::Banned) => {
                    (Promise::Banned, "admitted while banned")
                }
                Outcome::Refused if all(Gives::Unlimited) && !self.maybe(Gives::Banned, event) => {
                    (Promise::Unlimited, "refused while unlimited")
                }
                _ => return None,
            };
            let what = what.to_owned();
            let at = event.answered;
            Some(Breach { promise, at, what })
        })
    }

    fn maybe(&self, gives: Gives, event: &Event) -> bool {
        let mut spans = self.record.spans.iter();
        spans.any(|own| own.gives == gives && own.touches(event.sent, event.end()))
    }

    /// Checks the upper bound of every interval: the largest capacity in it, the refill during it,
    /// and one more capacity for each reset. A rule that mixes shares and units gets one for each
    /// change, too.
    fn at_most(&self) -> Option<Breach> {
        let counts = |event: &&Event| {
            let passed = event.outcome == Outcome::Admitted || event.pass.is_some();
            passed && !self.maybe(Gives::Unlimited, event)
        };
        let admitted: Vec<&Event> = self.events.iter().filter(counts).collect();
        if self.kind == Kind::Concurrency {
            return at_most(self, &admitted);
        }
        let between = admitted.iter().filter_map(|event| self.between(event));
        let mut admitted: Vec<Between> = between.collect();
        admitted.sort_unstable_by_key(|between| (between.until, between.from));
        admitted
            .iter()
            .filter_map(|start| self.at_most_from(start.from, &admitted))
            .min_by_key(|breach| breach.at)
    }

    fn between(&self, event: &Event) -> Option<Between> {
        if self.kind.waits() {
            return line::between(self, event);
        }
        Some(Between {
            from: event.sent,
            until: event.answered,
        })
    }

    fn at_most_from(&self, from: At, admitted: &[Between]) -> Option<Breach> {
        let mut count = 0_u64;
        let mut bound = Bound::new(from);
        let behind = self.segments.partition_point(|s| s.until <= from);
        let mut segments = self.segments.iter().skip(behind).peekable();
        for event in admitted.iter().filter(|event| event.from >= from) {
            count += 1;
            while let Some(segment) = segments.peek() {
                bound.extend(segment, event.until.min(segment.until));
                if segment.until > event.until {
                    break;
                }
                segments.next();
            }
            let most = self.most(from, event.until, &bound);
            if u128::from(count) * ONE > most {
                let time = event.until.saturating_sub(from) / 1_000_000;
                let what = format!(
                    "{count} admitted within {time} ms, at most {}.{:03} allowed",
                    most / ONE,
                    most % ONE / (ONE / 1_000),
                );
                return Some(Breach {
                    promise: Promise::AtMost,
                    at: event.until,
                    what,
                });
            }
        }
        None
    }

    /// Returns the maximum number of units between two instants, in fractions of [`ONE`].
    fn most(&self, from: At, until: At, bound: &Bound) -> u128 {
        let base = u128::from(bound.base);
        // A limiter that lets requests pay later admits one unit more than it has. The size of a
        // unit may vary over time.
        let unit = (base * ONE).div_ceil(bound.least_base.into());
        let last = if self.kind.pays_later() { unit } else { 0 };
        let most = match self.kind {
            Kind::SmoothWarmup | Kind::Line => 0,
            Kind::SmoothBursty if from == self.first => bound.most.saturating_sub(self.starts_with),
            _ => bound.most,
        };
        let full = base * u128::from(most) * ONE + last;
        let resets_from = |from: At, lists: &[&[(At, At)]]| {
            let resets = lists.iter().flat_map(|list| list.iter());
            let within = resets.filter(|(sent, answered)| *sent <= until && from <= *answered);
            u128::try_from(within.count()).unwrap_or(u128::MAX)
        };
        let resets = resets_from(from, &self.resets);
        let mixes = u128::try_from(self.mixes_between(from, until)).unwrap_or(u128::MAX);
        let by_resets = full.saturating_mul(resets.saturating_add(mixes));
        // If the bucket of a key is deleted while requests wait, they pass beside the requests of
        // the new bucket.
        let [_, of_key] = self.resets;
        let lines = if self.kind.waits() {
            resets_from(from.saturating_sub(self.rest), &[of_key])
        } else {
            0
        };
        let by_resets = by_resets.saturating_add(lines * u128::from(bound.most) * ONE);
        let time = until.saturating_sub(from);
        let whole = |length: u64| u128::from(time.checked_div(length).unwrap_or(0));
        let by_time = match self.kind {
            Kind::Funnel
            | Kind::TokenBucket
            | Kind::SlidingCounter
            | Kind::LeakyQueue
            | Kind::Line
            | Kind::SmoothBursty
            | Kind::SmoothWarmup => base * bound.gave,
            // Another check counts requests in flight.
            Kind::Concurrency => 0,
            Kind::SlidingLog => full * whole(bound.shortest),
            // An entry counts for nine of the ten slots or longer.
            Kind::SlidingWindow => full * whole(bound.shortest / 10 * 9),
            // The first window begins with the first request.
            Kind::FixedWindow if until < self.first_window_until => 0,
            Kind::FixedWindow => full * (whole(bound.shortest) + 1),
        };
        full + by_time + by_resets
    }

    /// Returns the maximum number of changes between two instants at which the level may have
    /// grown, in a rule that mixes shares and units.
    fn mixes_between(&self, from: At, until: At) -> usize {
        let spans = self.mixes.iter();
        let spans = spans.filter(|span| span.from <= until && from <= span.until);
        spans.count().saturating_sub(1)
    }

    /// Checks that a key is admitted if it has used little enough, or was idle for long enough.
    fn at_least(&self) -> Option<Breach> {
        if self.kind.waits() {
            return line::at_least(self);
        }
        self.events.iter().find_map(|event| {
            let is_in_doubt = event.outcome != Outcome::Refused || self.maybe(Gives::Banned, event);
            if is_in_doubt {
                return None;
            }
            let taken = self.taken_before(event);
            let states = || self.states(event.sent, event.answered);
            let excuse = |base: u64, most: u64| {
                taken.parts * u128::from(base) + ONE
                    > u128::from(base) * u128::from(most) * ONE + NOTHING
            };
            let owes = self.kind.pays_later() && taken.count > 0;
            let is_mixed = taken.count > 0 && self.mixes_between(taken.since, event.answered) > 0;
            if owes || is_mixed || states().any(|state| excuse(state.base, state.most)) {
                return None;
            }
            let least = states().map(State::capacity).min()?;
            let what = format!(
                "refused after at most {} admitted, where {least} fit",
                taken.count
            );
            Some(Breach {
                promise: Promise::AtLeast,
                at: event.answered,
                what,
            })
        })
    }

    fn states(&self, from: At, until: At) -> impl Iterator<Item = &State> {
        let within = move |segment: &&Segment| segment.from <= until && from < segment.until;
        let segments = self.segments.iter().filter(within);
        segments.flat_map(|segment| &segment.states)
    }

    /// Returns the maximum amount that was taken and not returned before `of` was decided.
    fn taken_before(&self, of: &Event) -> Taken {
        let may_take = |event: &&Event| {
            event.outcome != Outcome::Refused && event.sent <= of.answered && *event != of
        };
        let mut takers: Vec<&Event> = self.events.iter().filter(may_take).collect();
        takers.sort_unstable_by_key(|event| event.sent);
        let mut since = 0;
        let mut newest: Option<At> = None;
        for (n, event) in takers.iter().enumerate() {
            if newest.is_some_and(|newest| self.is_empty_again(newest, event.sent)) {
                since = n;
            }
            newest = Some(newest.map_or(event.answered, |newest| newest.max(event.answered)));
        }
        if newest.is_none_or(|newest| self.is_empty_again(newest, of.sent)) {
            return Taken {
                since: of.sent,
                count: 0,
                parts: 0,
            };
        }
        let takers = takers.get(since..).unwrap_or_default();
        let mut parts = 0;
        for event in takers {
            parts += self.part_of_a_unit(event.sent, event.answered);
        }
        let since = takers.first().map_or(of.sent, |first| first.sent);
        let changes = self.changes(since, of);
        Taken {
            since,
            count: takers.len(),
            parts: parts + changes,
        }
    }

    /// Returns the maximum number of parts in a unit between two instants.
    fn part_of_a_unit(&self, from: At, until: At) -> u128 {
        let least = self.states(from, until).map(|state| state.base).min();
        ONE.div_ceil(least.unwrap_or(1).max(1).into())
    }

    /// Returns the maximum amount that rounding adds at changes of the numbers. If levels are
    /// counts, each change may add a unit.
    fn changes(&self, from: At, of: &Event) -> u128 {
        let begun = |segment: &&Segment| segment.from > from && segment.from <= of.answered;
        let changes = self.segments.iter().filter(begun);
        changes
            .map(|segment| {
                if self.kind.rounds() {
                    self.part_of_a_unit(segment.from, segment.until)
                } else {
                    DROP
                }
            })
            .sum()
    }

    /// Returns true if no use from before `from` can remain at `until`. If the window of a counter
    /// changes, the remaining count moves to the new window.
    fn is_empty_again(&self, from: At, until: At) -> bool {
        let begun = |segment: &&Segment| segment.from > from && segment.from <= until;
        let changes = match self.kind {
            Kind::SlidingCounter => self.segments.iter().filter(begun).count(),
            // Each raise in shares may multiply a level that is above the capacity since an earlier
            // change.
            _ => self.mixes_between(from, until),
        };
        let changes = u64::try_from(changes).unwrap_or(u64::MAX);
        let rest = self.rest.saturating_mul(changes.saturating_add(1));
        until.saturating_sub(from) > rest
    }
}

struct Taken {
    /// Time at which the first of them was sent.
    since: At,
    count: usize,
    parts: u128,
}

#[cfg(test)]
mod queue;
#[cfg(test)]
mod reference;

// Checks the requests in flight, for `concurrency`.

/// No request is admitted while other requests certainly take all slots.
fn at_most(case: &Case<'_>, admitted: &[&Event]) -> Option<Breach> {
    let lease = case.segments.iter().flat_map(|segment| &segment.states);
    let lease = lease.map(|state| state.refill).min().unwrap_or(0);
    // True if a reset between the two requests may have deleted the other one's permit.
    let is_forgotten = |other: &Event, event: &Event| {
        let mut resets = case.resets.iter().flat_map(|list| list.iter());
        resets.any(|(sent, answered)| other.sent <= *answered && *sent <= event.answered)
    };
    admitted.iter().find_map(|event| {
        let is_in_flight = |other: &&&Event| {
            let is_held = other.held_until.is_some_and(|until| until > event.answered);
            let counts = event.answered.saturating_sub(other.sent) < lease;
            is_held && counts && other.answered < event.sent && !is_forgotten(other, event)
        };
        let count = admitted.iter().filter(is_in_flight).count();
        let states = case.states(event.sent, event.answered);
        let most = states.map(State::capacity).max()?;
        let what = format!("admitted beside {count} in flight, where {most} may be");
        (u64::try_from(count).unwrap_or(u64::MAX) >= most).then_some(Breach {
            promise: Promise::AtMost,
            at: event.answered,
            what,
        })
    })
}

#[cfg(test)]
mod tests;
