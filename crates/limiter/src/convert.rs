//! Converts live buckets to new limits, and decides how much of their level is carried over
//! ([`Carry`]).
//!
//! Each limit of the bucket is converted separately. Old and new limits are matched by name. The
//! conversion keeps the number of used cost units, and these units drain at the new rate. If the
//! new rate is slower, the bucket may therefore become full later than before. Usage beyond a
//! smaller capacity is kept, so an edit followed by its reversal never frees units.
//! `loudou_rules::versions` decides which conversions a bucket undergoes.
//!
//! Conversions preserve the order of levels. For each waiting request, the bucket as the request
//! found it is converted like the bucket itself ([`Limits::plan`]), so waiting requests keep their
//! order, and later requests stay behind them. To preserve this order, `reset` keeps the level
//! caused by waiting requests. A reset discards only usage, and waiting requests have not used
//! anything yet.

use alloc::borrow::ToOwned as _;
use alloc::string::String;
use alloc::vec::Vec;

use serde::Serialize;

use crate::algorithm::{Algorithm, Concurrency};
use crate::decision::BucketRequest;
use crate::leak::drain_time;
use crate::limit::notes::{Notes, Permits, Share, moved};
use crate::limit::{Bucket, Limit, Limits, notes};
use crate::meter::Meter;
use crate::meter::{USED_ONE, Used};
use crate::time::{Clock, Nanos};
use crate::wide::{clamp, mul_div_ceil, mul_div_near};

/// Converts `bucket` from the limits `old` to the limits `new`, as of `clock`.
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
    let waits = bucket.queue_end > touched.now;
    // Another worker may have made decisions under the old limits after the change at `clock`.
    // Requests that were already waiting are replanned as of the change, and later requests must
    // not overtake them. A reset rounds to whole queue slots, so the distance between two slots is
    // correct only if both are computed as of the same instant. The slots of a queue that has not
    // been empty since the change must also be computed as of the same instant. For any other
    // queue, the time before the queue formed does not affect its level.
    let is_line = |limits: &Limits| {
        let mut all = limits.iter().map(|limit| limit.algorithm().meter());
        all.all(|meter| meter.as_leak().is_some())
    };
    let queue_end = |clock: Clock| {
        let converted = convert_levels((old, new), (carry, waits), bucket, clock);
        new.queue_end_of(&converted)
    };
    let is_late = waits && clock.now < touched.now && is_line(old) && is_line(new);
    let is_one_queue = || carry == Carry::Reset || old.waited_since(bucket, clock.now);
    let clock = if is_late && (is_one_queue() || queue_end(clock) > queue_end(touched)) {
        clock
    } else {
        touched
    };
    let mut converted = convert_levels((old, new), (carry, waits), bucket, clock);
    converted.last = touched.now;
    if waits {
        converted.queue_end = new.queue_end_of(&converted);
        let converts = |bucket: &Bucket| {
            let mut converted = convert_levels((old, new), (carry, waits), bucket, clock);
            if bucket.queue_end > clock.now {
                converted.queue_end = new.queue_end_of(&converted);
            }
            converted
        };
        new.continue_promises(&mut converted, (old, bucket), &converts);
    }
    converted
}

/// Like [`convert`], but converts only the levels. `waits` is true if a request is waiting in the
/// bucket.
fn convert_levels(
    (old, new): (&Limits, &Limits),
    (carry, waits): (Carry, bool),
    bucket: &Bucket,
    clock: Clock,
) -> Bucket {
    // The edit counts as touching the bucket, so that a later call with an earlier `now` cannot
    // move the bucket's clock back.
    let mut converted = new.start_at(clock);
    let notes = old.notes(bucket, clock.now);
    let levels = levels(old, (bucket, &notes), clock);
    let sources: Vec<_> = (new.iter().enumerate())
        .map(|(index, limit)| {
            let level = counterpart(&levels, limit, index, new)?;
            let gives_permits = limit.algorithm().holds_until_end();
            // Requests in flight keep their permits, because an edit never ends a request. Waiting
            // requests are in a queue and have no permits.
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

/// Returns a bucket whose limits have the given numbers of `used` units at `clock`, listed in the
/// order of the limits. Previews need this function, because they have only the reported usage of a
/// live bucket, not its state.
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

/// A limit whose fully used bucket takes longer to become full again because of an edit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Later {
    /// Name of the limit.
    pub limit: String,
    /// Time until a fully used bucket is full again without the edit.
    pub before: Nanos,
    /// Time until a fully used bucket is full again if the edit is made now.
    pub after: Nanos,
}

/// Returns the limits whose fully used bucket takes longer to become full again because of an edit.
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

/// The old level of one limit.
struct Level<'a> {
    limit: &'a Limit,
    words: Vec<u64>,
    used: Used,
    full: Used,
    /// Exact count, if the limit counts whole units. See [`notes`].
    exact: Option<u128>,
    share: Share,
}

impl Level<'_> {
    const fn algorithm(&self) -> &Algorithm {
        self.limit.algorithm()
    }

    /// Returns the algorithm if it limits requests in flight.
    const fn flight(&self) -> Option<&Concurrency> {
        match self.algorithm() {
            Algorithm::Concurrency(limit) => Some(limit),
            _ => None,
        }
    }

    /// Returns the requests in flight as permits, which are stored in the notes if no new limit
    /// continues them.
    fn permits(&self, clock: Clock) -> Option<Permits> {
        Permits::of(self.limit.name(), self.flight()?, &self.words, clock.now)
    }

    /// Writes the converted level to `words`, the state of `meter`. Returns the `Share` to store in
    /// the bucket's notes.
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
        let look = meter.decide(&mut words.to_vec(), &BucketRequest::new(0, clock.now));
        // Units taken from a window expire together with the used units. Units taken from a level
        // drain at the rate.
        let rate = meter.rate().filter(|_| !is_counted);
        let leaves = rate.map_or(Nanos::ZERO, |rate| drain_time(units(taken), rate));
        let until = clock.now.saturating_add(look.reset_after.max(leaves));
        Share { until, ..share }
    }

    /// Scales the count to a limit whose full level is `full`, so that its fraction of the limit
    /// stays the same. Returns the scaled count, rounded up, and the fraction of a unit that the
    /// rounding added.
    fn in_share(&self, carry: Carry, full: Used, is_adopted: bool) -> (u64, u64) {
        if carry == Carry::Stepped {
            return (units(carry.apply(self.used, self.full, full)), 0);
        }
        let [old, new] = [self.full, full].map(notes::of_used);
        let used = notes::of_used(self.used).saturating_sub(self.share.fraction.into());
        let exact = match self.exact.filter(|_| is_adopted) {
            // Scales both counters of a `sliding_counter` by the same factor as the whole level.
            Some(exact) if used > old => {
                mul_div_near(exact, carry.apply(used, old, new), used.max(1))
            }
            Some(exact) => mul_div_near(exact, new, old.max(1)),
            None => carry.apply(used, old, new),
        };
        notes::counted(exact)
    }
}

/// A difference smaller than this is considered a rounding error.
const ROUNDED: Used = USED_ONE >> 12;

/// Converts a level to cost units, rounded up.
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

/// Returns the old level that a new limit continues. This is the level of the old limit with the
/// same name. If no old limit has the same name, the level of the old limit at the same index is
/// used, unless a new limit has that old limit's name. Without this fallback, a renamed limit would
/// start with a full bucket.
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

/// How a live bucket's level is carried over when its limits change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Carry {
    /// Keeps the absolute level: 5 used units stay 5 used units. This is the default, because no
    /// sequence of such edits causes a key that has used little to be refused, or a unit to be
    /// granted twice.
    #[default]
    Keep,
    /// Keeps the used fraction: half full stays half full. Usage that exceeds the old capacity
    /// exceeds the new capacity by the same number of units.
    Proportional,
    /// `Proportional` as earlier versions computed it, for changes that they recorded. Each edit
    /// rounds every count up. Usage that exceeds the old capacity is kept, or raised to the new
    /// capacity if that is higher.
    #[serde(rename = "proportional")]
    Stepped,
    /// Discards all usage, as in a new bucket.
    Reset,
}

impl Carry {
    /// Names of the variants, as written in requests.
    pub const NAMES: [&'static str; 3] = ["keep", "proportional", "reset"];

    /// Parses the name of a carry.
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

    /// Returns the carry's name, as written in requests.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Keep => "keep",
            Self::Proportional | Self::Stepped => "proportional",
            Self::Reset => "reset",
        }
    }

    /// Converts the level `used` when the full level changes from `old` to `new`. Levels are
    /// measured in units so small that rounding to the nearest unit does not matter.
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
