//! Changing the numbers under live buckets: one conversion of a bucket, and the part of its level that is carried over
//! ([`Carry`]).
//!
//! The used amount is carried limit by limit, found by name. It is counted in cost units, so it leaves at
//! the new numbers' pace: a slower rate frees nothing sooner, and may make a bucket full later than
//! before. An amount beyond a smaller capacity is remembered. So conversions there and back hand out
//! nothing. `loudou_rules::versions` knows the conversions that a bucket undergoes.
//!
//! A conversion never puts a level above a higher one. So requests that wait keep their order if the bucket
//! that each of them found is converted as the bucket itself is ([`Limits::plan`]), and later requests come
//! behind them. That is also why `reset` leaves in the bucket what waits: it forgets the use, and those that
//! wait have not used anything yet.

use alloc::borrow::ToOwned as _;
use alloc::string::String;
use alloc::vec::Vec;

use serde::Serialize;

use crate::algorithm::{Algorithm, Concurrency};
use crate::decision::Ask;
use crate::leak::drain_time;
use crate::limit::notes::{Notes, Permits, Share, moved};
use crate::limit::{Bucket, Limit, Limits, notes};
use crate::meter::Meter;
use crate::meter::{USED_ONE, Used};
use crate::time::{Clock, Nanos};
use crate::wide::{clamp, mul_div_ceil, mul_div_near};

/// `bucket`, written under `old`, as it is under `new` from the instant `clock` on.
///
/// ```
/// use loudou_limiter::{Carry, Clock, Limit, Limits, Nanos, Rate, algorithm::Funnel, convert};
///
/// let funnel = |capacity| {
///     let funnel = Funnel::new(capacity, Rate::parse("1/s").unwrap()).unwrap();
///     Limits::new(vec![Limit::new("burst", funnel)]).unwrap()
/// };
/// let (old, new) = (funnel(10), funnel(20));
/// let mut bucket = old.start(Nanos::ZERO);
/// old.decide(&mut bucket, 4, Nanos::ZERO);
/// for (carry, used) in [(Carry::Keep, 4), (Carry::Proportional, 8), (Carry::Reset, 0)] {
///     let converted = convert(&old, &new, carry, &bucket, Clock::at(Nanos::ZERO));
///     assert_eq!(new.used(&converted, Nanos::ZERO), [used]);
/// }
/// ```
pub fn convert(old: &Limits, new: &Limits, carry: Carry, bucket: &Bucket, clock: Clock) -> Bucket {
    let touched = clock.moved_to(clock.now.max(bucket.last));
    let waits = bucket.line > touched.now;
    // Another worker may have decided by the old numbers after the change. The plans of requests
    // that waited before are as of the change, so later requests must not be in front of them.
    // A reset rounds to whole places, and two places are only a slot apart if both are as of the
    // same instant. The same holds for places of a queue that was never empty since the change.
    // For another queue, the time before it began is no part of its level.
    let is_line = |limits: &Limits| {
        let mut all = limits.iter().map(|limit| limit.algorithm().meter());
        all.all(|meter| meter.as_leak().is_some())
    };
    let line = |clock: Clock| {
        let converted = convert_levels((old, new), (carry, waits), bucket, clock);
        new.line_of(&converted)
    };
    let is_late = waits && clock.now < touched.now && is_line(old) && is_line(new);
    let is_one_line = || carry == Carry::Reset || old.waited_since(bucket, clock.now);
    let clock = if is_late && (is_one_line() || line(clock) > line(touched)) {
        clock
    } else {
        touched
    };
    let mut converted = convert_levels((old, new), (carry, waits), bucket, clock);
    converted.last = touched.now;
    if waits {
        converted.line = new.line_of(&converted);
        let converts = |bucket: &Bucket| {
            let mut converted = convert_levels((old, new), (carry, waits), bucket, clock);
            if bucket.line > clock.now {
                converted.line = new.line_of(&converted);
            }
            converted
        };
        new.continue_promises(&mut converted, (old, bucket), &converts);
    }
    converted
}

/// The same for the levels alone. `waits` if a request waits.
fn convert_levels(
    (old, new): (&Limits, &Limits),
    (carry, waits): (Carry, bool),
    bucket: &Bucket,
    clock: Clock,
) -> Bucket {
    // It was last touched by the edit: an earlier `now` must not move its clock back.
    let mut converted = new.start_at(clock);
    let notes = old.notes(bucket, clock.now);
    let levels = levels(old, (bucket, &notes), clock);
    let sources: Vec<_> = (new.iter().enumerate())
        .map(|(index, limit)| {
            let level = counterpart(&levels, limit, index, new)?;
            let gives_permits = limit.algorithm().holds_until_end();
            // Requests in flight are facts: no edit ends them. Those that wait are in a queue, and have no permits.
            let stays = carry != Carry::Reset
                || level.flight().is_some() && gives_permits
                || waits && level.algorithm().may_hold() && !gives_permits;
            stays.then_some(level)
        })
        .collect();
    let forgets = carry == Carry::Reset;
    let is_flight = |index: usize| {
        let level = sources.get(index).copied().flatten();
        level.is_some_and(|level| level.flight().is_some())
    };
    let left_over = || {
        let gone = levels.iter().filter(|level| {
            let mut continued = sources.iter().zip(new).filter(|(source, limit)| {
                let is_source = source.is_some_and(|source| core::ptr::eq(source, *level));
                is_source && limit.algorithm().holds_until_end()
            });
            continued.next().is_none()
        });
        gone.filter_map(|level| level.permits(clock))
            .max_by_key(|permits| permits.used(clock.now))
    };
    let comes_back = moved(notes.permits, new, &is_flight);
    let mut kept = Notes {
        permits: left_over().or_else(|| notes.permits.filter(|_| comes_back.is_none())),
        ..Notes::default()
    };
    new.each_with_surplus(&mut converted, &mut |index, meter, words| {
        let back = comes_back.filter(|(place, _)| *place == index);
        let limit = new.iter().nth(index).map(Limit::algorithm);
        let level = sources.get(index).copied().flatten();
        if let (Some((_, permits)), Some(Algorithm::Concurrency(limit))) = (back, limit) {
            notes::adopt(limit, words, &permits, clock);
        } else if let Some(level) = level.filter(|level| forgets && level.flight().is_none()) {
            let waiting = units(level.used.saturating_sub(level.full));
            if waiting > 0 {
                let waiting = Used::from(waiting).saturating_mul(USED_ONE);
                let used = meter.used(words, clock.now).saturating_add(waiting);
                meter.resume(words, used, clock);
            }
        } else if let Some(level) = level {
            let is_same = limit == Some(level.algorithm());
            let share = level.carried((carry, clock), meter, words, is_same);
            if share != Share::default() {
                kept.shares.resize(index, Share::default());
                kept.shares.push(share);
            }
        }
    });
    new.set_notes(&mut converted, &kept);
    converted
}

/// A bucket of whose limits these units are used at `clock`, in their order: for previews, where a live bucket is known
/// by its numbers alone.
///
/// ```
/// use loudou_limiter::{Clock, Limit, Limits, Nanos, Rate, algorithm::Funnel, partly_used};
///
/// let funnel = Funnel::new(5, Rate::parse("1/s").unwrap()).unwrap();
/// let limits = Limits::new(vec![Limit::new("pace", funnel)]).unwrap();
/// let bucket = partly_used(&limits, &[3], Clock::at(Nanos::ZERO));
/// assert_eq!(limits.used(&bucket, Nanos::from_secs(1)), [2]);
/// ```
pub fn partly_used(limits: &Limits, used: &[u64], clock: Clock) -> Bucket {
    let mut bucket = limits.start_at(clock);
    limits.each(&mut bucket, &mut |index, meter, words| {
        if let Some(units) = used.get(index) {
            let used = Used::from(*units).saturating_mul(USED_ONE);
            meter.resume(words, used, clock);
        }
    });
    bucket
}

/// A limit whose used-up bucket is full again later after an edit than before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Later {
    /// Its name.
    pub limit: String,
    /// The time until it was full again.
    pub before: Nanos,
    /// The time until it is full again if the edit comes when all is used.
    pub after: Nanos,
}

/// The limits whose used-up bucket an edit makes full again later.
pub fn full_later(old: &Limits, new: &Limits, carry: Carry) -> Vec<Later> {
    let clock = Clock::at(Nanos::ZERO);
    let reset_after = |limits: &Limits, bucket: &Bucket| -> Vec<Nanos> {
        let answer = limits.peek(bucket, 0, Nanos::ZERO);
        answer.decisions().map(|limit| limit.reset_after).collect()
    };
    let mut used_up = old.start(Nanos::ZERO);
    old.each(&mut used_up, &mut |_, meter, words| {
        meter.resume(words, meter.full(), clock);
    });
    let before = reset_after(old, &used_up);
    let after = reset_after(new, &convert(old, new, carry, &used_up, clock));
    let mut later = Vec::new();
    for (limit, after) in new.iter().zip(after) {
        let place = old.iter().position(|old| old.name() == limit.name());
        let before = place.and_then(|place| before.get(place)).copied();
        if let Some(before) = before.filter(|before| *before < after) {
            let limit = limit.name().to_owned();
            later.push(Later {
                limit,
                before,
                after,
            });
        }
    }
    later
}

/// The level of one limit.
struct Level<'a> {
    limit: &'a Limit,
    words: Vec<u64>,
    used: Used,
    full: Used,
    /// The exact count, if it counts whole units; see [`notes`].
    exact: Option<u128>,
    share: Share,
}

impl Level<'_> {
    const fn algorithm(&self) -> &Algorithm {
        self.limit.algorithm()
    }

    /// It as requests in flight.
    const fn flight(&self) -> Option<&Concurrency> {
        match self.algorithm() {
            Algorithm::Concurrency(limit) => Some(limit),
            _ => None,
        }
    }

    /// The requests in flight that no limit continues.
    fn permits(&self, clock: Clock) -> Option<Permits> {
        Permits::of(self.limit.name(), self.flight()?, &self.words, clock.now)
    }

    /// Continues in `words` of `meter`; returns the share to note.
    fn carried(
        &self,
        (carry, clock): (Carry, Clock),
        meter: &dyn Meter,
        words: &mut [u64],
        is_same: bool,
    ) -> Share {
        if is_same {
            words
                .iter_mut()
                .zip(&self.words)
                .for_each(|(word, old)| *word = *old);
            return self.share;
        }
        let before = self.algorithm().meter();
        let in_shares = carry == Carry::Proportional;
        let is_counted = meter.counted(words, clock.now).is_some();
        let mut fraction = 0;
        if is_counted && carry != Carry::Keep {
            let is_adopted = meter.adopt(words, before, &self.words, Carry::Keep, clock);
            if !is_adopted {
                meter.resume(words, self.used, clock);
            }
            let (count, below) = self.in_share(carry, meter.full(), is_adopted);
            meter.recount(words, count, clock.now);
            fraction = below;
        } else if meter.adopt(words, before, &self.words, carry, clock) {
            fraction = if is_counted { self.share.fraction } else { 0 };
        } else {
            let used = carry.apply(self.used, self.full, meter.full());
            meter.resume(words, used, clock);
        }
        if !in_shares && self.share == Share::default() || meter.gives_back() {
            return Share::default();
        }
        let taken = self
            .share
            .taken(self.used.saturating_sub(self.share.excess()));
        let most = Used::from(self.share.most).max(self.full).max(meter.full());
        let least = taken.saturating_sub(most.saturating_sub(meter.full()));
        if meter.used(words, clock.now).saturating_add(ROUNDED) < least {
            meter.resume(words, least, clock);
            fraction = 0;
        }
        let excess = Used::from(fraction >> 32);
        let used = meter.used(words, clock.now).saturating_sub(excess);
        let share = Share::of(most, used, taken, fraction);
        let look = meter.decide(&mut words.to_vec(), &Ask::new(0, clock.now));
        // What was taken from a window leaves with what is used of it; a level is left by each at the rate.
        let rate = meter.rate().filter(|_| !is_counted);
        let leaves = rate.map_or(Nanos::ZERO, |rate| drain_time(units(taken), rate));
        let until = clock.now.saturating_add(look.reset_after.max(leaves));
        Share { until, ..share }
    }

    /// The count of a limit that is full with `full`, with this share of it, and by which fraction it is too high.
    fn in_share(&self, carry: Carry, full: Used, is_adopted: bool) -> (u64, u64) {
        if carry == Carry::Stepped {
            return (units(carry.apply(self.used, self.full, full)), 0);
        }
        let [old, new] = [self.full, full].map(notes::of_used);
        let used = notes::of_used(self.used).saturating_sub(self.share.fraction.into());
        let exact = match self.exact.filter(|_| is_adopted) {
            // Both counters of a `sliding_counter` change by the factor of the whole level.
            Some(exact) if used > old => {
                mul_div_near(exact, carry.apply(used, old, new), used.max(1))
            }
            Some(exact) => mul_div_near(exact, new, old.max(1)),
            None => carry.apply(used, old, new),
        };
        notes::counted(exact)
    }
}

/// Less than this is not missing, but was rounded.
const ROUNDED: Used = USED_ONE >> 12;

/// The whole units of a level, rounded up.
fn units(used: Used) -> u64 {
    clamp(used.div_ceil(USED_ONE))
}

fn levels<'a>(
    limits: &'a Limits,
    (bucket, notes): (&Bucket, &Notes),
    clock: Clock,
) -> Vec<Level<'a>> {
    let mut levels = Vec::with_capacity(limits.iter().len());
    let mut scratch = bucket.clone();
    let mut names = limits.iter();
    limits.each(&mut scratch, &mut |index, meter, words| {
        if let Some(limit) = names.next() {
            let share = notes.shares.get(index).copied().unwrap_or_default();
            let count = meter.counted(words, clock.now);
            levels.push(Level {
                limit,
                words: words.to_vec(),
                used: meter.used(words, clock.now),
                full: meter.full(),
                exact: count.map(|count| notes::exact(count, share.fraction)),
                share,
            });
        }
    });
    levels
}

/// The old level that a new limit continues from: of the same name, else in the same place if that
/// one's name is gone (a renamed limit must not be a fresh one).
fn counterpart<'a, 'b>(
    levels: &'b [Level<'a>],
    limit: &Limit,
    index: usize,
    new: &Limits,
) -> Option<&'b Level<'a>> {
    levels
        .iter()
        .find(|level| level.limit.name() == limit.name())
        .or_else(|| {
            levels
                .get(index)
                .filter(|level| new.iter().all(|limit| limit.name() != level.limit.name()))
        })
}

/// The level of a live bucket when its numbers change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Carry {
    /// The absolute level is kept: 5 used stays 5 used. The default, because an edit then neither refuses a key that
    /// used little nor hands out anything twice, whatever edits came before.
    #[default]
    Keep,
    /// The fraction is kept: half full stays half full. Use beyond the capacity stays beyond the new one, in units.
    Proportional,
    /// As earlier versions did it in proportion, for changes that they recorded: each count is rounded up at each
    /// edit, and use beyond the capacity stays as far as the new capacity does not cover it.
    #[serde(rename = "proportional")]
    Stepped,
    /// Full, as a new bucket.
    Reset,
}

impl Carry {
    /// The names in requests.
    pub const NAMES: [&'static str; 3] = ["keep", "proportional", "reset"];

    /// The carry of that name.
    ///
    /// ```
    /// use loudou_limiter::Carry;
    ///
    /// assert_eq!(Carry::parse("keep"), Some(Carry::Keep));
    /// assert_eq!(Carry::parse("forget"), None);
    /// ```
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "keep" => Some(Self::Keep),
            "proportional" => Some(Self::Proportional),
            "reset" => Some(Self::Reset),
            _ => None,
        }
    }

    /// The name in requests.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Keep => "keep",
            Self::Proportional | Self::Stepped => "proportional",
            Self::Reset => "reset",
        }
    }

    /// The new value of `used` of `old` when that becomes `new`, in parts so small that rounding to the nearest one
    /// does not matter.
    pub(crate) fn apply(self, used: u128, old: u128, new: u128) -> u128 {
        match self {
            Self::Keep => used,
            Self::Proportional => {
                let within = mul_div_near(used.min(old), new, old.max(1));
                within.saturating_add(used.saturating_sub(old))
            }
            Self::Stepped if used > old => used.max(new),
            Self::Stepped => mul_div_ceil(used, new, old.max(1)),
            Self::Reset => 0,
        }
    }
}
