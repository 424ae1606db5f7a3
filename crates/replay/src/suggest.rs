//! Finds suitable limits for a rule. In a single pass over the requests, it computes for each key
//! and each candidate rate the smallest funnel capacity that refuses none of the key's requests.
//!
//! Levels are measured as times. At a rate of one unit per T, a request of cost c at time t raises
//! the level to `max(0, level - (t - last)) + c·T`. A funnel of capacity n admits the request if
//! and only if this level is at most n·T, and a refused request leaves the level unchanged.
//! Therefore the highest level of a funnel that never refuses is the capacity that the key needs.
//! Any smaller capacity would refuse at least one request, because up to the first refusal both
//! funnels have the same level. Levels are exact, because time is counted in nanoseconds multiplied
//! by the amount of the rate.
//!
//! Each rule is evaluated independently, except that `stop` is respected. A request counts even if
//! another rule would refuse it.
//!
//! `Grid` also counts the requests that each candidate capacity would refuse.

use std::fmt;

use loudou_limiter::{Nanos, Rate};
use loudou_rules::request::{Request as _, Sample};
use loudou_rules::rule::key::Key;
use loudou_rules::rule::{Mode, Reach, Rule, RuleFile};

use crate::error::{Error, Observer, Progress};
use crate::input::{Input, Intake};
use crate::keys::KeyPlaces;
use crate::read::{Reading, read};
use crate::record::{LogLine, LoggedRequest};
use crate::recording::Recording;
use crate::tally::RuleCounts;
use crate::{notes, rule_notes, run};
use loudou_words::num::float;
use loudou_words::text::counted;

/// Maximum number of keys that are tracked, over all rules.
pub const MOST_KEYS: usize = 1_000_000;
/// Maximum number of candidate rates.
pub const MOST_RATES: usize = 10;
/// Default rates.
const RATES: [&str; MOST_RATES] = [
    "1/m", "6/m", "20/m", "1/s", "2/s", "5/s", "10/s", "20/s", "50/s", "100/s",
];
/// Maximum number of capacities for which refusals are counted.
pub const MOST_CAPACITIES: usize = 10;
/// Default capacities for which refusals are counted.
const CAPACITIES: [u32; MOST_CAPACITIES] = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000];
/// Number of requests between progress reports.
const PROGRESS_REQUESTS: u64 = 4_096;

/// Capacities that the keys of one rule need.
#[derive(Debug)]
pub struct RuleNeeds {
    /// Name of the rule.
    pub name: String,
    /// Number of requests that the rule applies to and whose keys are tracked.
    pub requests: u64,
    /// Number of requests whose keys have an override. These requests are excluded from all other
    /// counts.
    pub excepted: u64,
    /// Number of requests that the rule applies to but that have no key. These requests are
    /// excluded from all other counts.
    pub without_key: u64,
    counts: RuleCounts,
    keys: Keys,
    grid: Grid,
}

/// Candidate rates and capacities, each in ascending order.
#[derive(Clone, Debug)]
pub struct Candidates {
    /// Candidate rates, at most [`MOST_RATES`].
    pub rates: Vec<Rate>,
    /// Candidate capacities, at most [`MOST_CAPACITIES`].
    pub capacities: Vec<u32>,
}

impl Default for Candidates {
    fn default() -> Self {
        let rates = RATES.iter().filter_map(|text| Rate::parse(text));
        Self {
            rates: rates.collect(),
            capacities: CAPACITIES.into(),
        }
    }
}

#[derive(Debug, Default)]
struct Keys {
    places: KeyPlaces,
    last: Vec<Nanos>,
    blocks: Vec<u32>,
    /// Funnel level for each key and rate.
    levels: Vec<u64>,
    /// Highest funnel level so far for each key and rate, in units.
    needs: Vec<u32>,
}

/// Capacities that all rules need.
#[derive(Debug)]
pub struct Suggestion {
    /// Candidate rates and capacities.
    pub tried: Candidates,
    /// Needs of each rule, in file order.
    pub rules: Vec<RuleNeeds>,
    /// Warnings about facts that could change the suggested limits.
    pub warnings: Vec<String>,
    /// Start times of the first and the last request, in nanoseconds, or `None` without requests.
    pub span_ns: Option<(u64, u64)>,
    /// Statistics of the input.
    pub intake: Intake,
}

/// Reads all inputs, and finds the limits that each rule would need.
pub fn suggest(
    inputs: Vec<Input<'_>>,
    reading: &Reading<'_>,
    (file, tried): (&RuleFile, Candidates),
    observer: &mut dyn Observer,
) -> Result<Suggestion, Error> {
    let recording = read(inputs, reading, observer)?;
    needs(recording, (file, tried), MOST_KEYS, observer)
}

/// Finds the limits that each rule would need. Tracks at most `most_keys` keys over all rules.
fn needs(
    mut recording: Recording,
    (file, tried): (&RuleFile, Candidates),
    most_keys: usize,
    observer: &mut dyn Observer,
) -> Result<Suggestion, Error> {
    let new = |rule| RuleNeeds::new(rule, &tried);
    let mut rules: Vec<RuleNeeds> = file.rules.iter().map(new).collect();
    let (mut beyond, mut edits, mut requests, mut room) = (0_u64, 0_u64, 0_u64, most_keys);
    let mut clients = run::counts_by_client(file).then(run::clients);
    let records = recording.intake.records;
    let mut span_ns = None;
    while let Some((_, line)) = recording.next().map_err(Error::Sort)? {
        let LogLine::Request(mut record) = line else {
            edits += 1;
            continue;
        };
        run::add_client(clients.as_mut(), &record.request);
        // Requests arrive in the order of their start times, so this is the latest so far.
        let at_ns = record.at.get();
        span_ns = Some((span_ns.map_or(at_ns, |(first, _)| first), at_ns));
        let rules = (rules.as_mut_slice(), file.rules.as_slice());
        beyond += u64::from(!add(&mut record, rules, &tried.rates, &mut room));
        requests += 1;
        if requests.is_multiple_of(PROGRESS_REQUESTS) {
            let progress = Progress::Deciding { requests, records };
            observer.progress(progress).map_err(Error::Observer)?;
        }
    }
    let intake = recording.intake;
    let mut warnings = notes::of_log(&intake, clients.as_ref(), requests);
    warnings.extend(left_out(edits, (beyond, most_keys)));
    // Without any requests, warnings about the rules would be meaningless.
    for (needs, rule) in rules.iter().zip(&file.rules).filter(|_| requests > 0) {
        rule_notes::of_log(&intake, "", (rule, &needs.counts), &mut warnings);
        needs.warn(&mut warnings);
    }
    Ok(Suggestion {
        tried,
        rules,
        warnings,
        span_ns,
        intake,
    })
}

/// Adds a request to each rule that applies to it. Returns false if a rule has not tracked the
/// request's key before and there is no `room` for more keys.
fn add(
    record: &mut LoggedRequest<'_>,
    (needs, rules): (&mut [RuleNeeds], &[Rule]),
    rates: &[Rate],
    room: &mut usize,
) -> bool {
    let mut has_room = true;
    let mut is_stopped = false;
    for (needs, rule) in needs.iter_mut().zip(rules) {
        let is_enforced = rule.mode == Mode::Enforce;
        if is_enforced && is_stopped {
            continue;
        }
        let request = &mut record.request;
        let Some(key) = needs.key_of(rule, request) else {
            continue;
        };
        is_stopped |= is_enforced && rule.stop;
        if rule.overrides.get(&key).is_some() {
            needs.excepted += 1;
            continue;
        }
        let settled = rule.cost.settlement().and(record.settled);
        let own = request.cost().or(settled);
        let cost = own.unwrap_or_else(|| rule.cost.price(request).cost);
        let one = (key.as_str(), record.at, cost);
        has_room &= needs.add(one, rates, room);
    }
    has_room
}

/// Returns warnings about edits in a trace and about requests whose keys are not tracked.
fn left_out(edits: u64, (beyond, most_keys): (u64, usize)) -> impl Iterator<Item = String> {
    let edits = (edits > 0).then(|| {
        let edits = counted(edits, "edit");
        format!("{edits} of rules in the trace left out: each rule counts as it is in the file")
    });
    let beyond = (beyond > 0).then(|| {
        let requests = counted(beyond, "request");
        format!(
            "{requests} of keys beyond the first {most_keys} are left out; a part of the log (--from, --to) has fewer"
        )
    });
    edits.into_iter().chain(beyond)
}

impl RuleNeeds {
    fn new(rule: &Rule, tried: &Candidates) -> Self {
        Self {
            name: rule.name.clone(),
            requests: 0,
            excepted: 0,
            without_key: 0,
            counts: RuleCounts::default(),
            keys: Keys::default(),
            grid: Grid::new(tried.rates.len(), &tried.capacities),
        }
    }

    /// Returns the request's key if the rule applies to the request.
    fn key_of(&mut self, rule: &Rule, request: &mut Sample<'_>) -> Option<String> {
        if rule.reach(request) != Reach::Yes {
            return None;
        }
        self.counts.matched += 1;
        match rule.key_of(request) {
            Key::Bucket(key) => return Some(key),
            Key::Skip => self.counts.skipped += 1,
            Key::Refuse | Key::Ambiguous => {}
        }
        self.without_key += 1;
        None
    }

    /// Adds warnings about facts that could change the suggested limits of this rule.
    fn warn(&self, warnings: &mut Vec<String>) {
        let mut warn = |text: &str| warnings.push(format!("rule {}: {text}", self.name));
        if self.excepted > 0 {
            let requests = counted(self.excepted, "request");
            warn(&format!("{requests} of keys with an override are left out"));
        }
        if self.without_key > 0 && self.keys() > 0 {
            let (requests, all) = (counted(self.without_key, "request"), self.counts.matched);
            warn(&format!(
                "{requests} of {all} have no key, and are left out"
            ));
        }
        if self.uncounted() > 0 {
            warn("too many keys are refused to follow all; shares of requests are lower bounds");
        }
    }

    /// Adds a request. Returns false if its key is not tracked yet and there is no `room` for more
    /// keys.
    fn add(
        &mut self,
        (key, at, cost): (&str, Nanos, u64),
        rates: &[Rate],
        room: &mut usize,
    ) -> bool {
        let keys = &mut self.keys;
        let Some(place) = keys.places.place(key, *room > 0) else {
            return false;
        };
        if place == keys.last.len() {
            *room = room.saturating_sub(1);
            keys.last.push(at);
            keys.blocks.push(NONE);
            let end = keys.levels.len() + rates.len();
            keys.levels.resize(end, 0);
            keys.needs.resize(end, 0);
        }
        self.requests += 1;
        let (Some(last), Some(block)) = (
            self.keys.last.get_mut(place),
            self.keys.blocks.get_mut(place),
        ) else {
            return true;
        };
        let passed = at.since(*last).get();
        *last = at.max(*last);
        let from = place * rates.len();
        let levels = self.keys.levels.iter_mut().skip(from);
        let needs = self.keys.needs.iter_mut().skip(from);
        for (number, ((level, need), rate)) in levels.zip(needs).zip(rates).enumerate() {
            let period = rate.period().get();
            let passed = passed.saturating_mul(rate.amount().into());
            let left = level.saturating_sub(passed);
            let cost = cost.saturating_mul(period);
            let step = Step {
                passed,
                cost,
                period,
                left,
                need: *need,
            };
            self.grid.add(block, number, &step);
            *level = left.saturating_add(cost);
            let units = level.div_ceil(period.max(1));
            let units = if *level == u64::MAX { u64::MAX } else { units };
            *need = (*need).max(u32::try_from(units).unwrap_or(u32::MAX));
        }
        true
    }

    /// Returns true if the rule matched at least one request.
    pub const fn has_matched(&self) -> bool {
        self.counts.matched > 0
    }

    /// Returns the number of tracked keys.
    pub fn keys(&self) -> usize {
        self.keys.last.len()
    }

    /// Returns the number of requests that a funnel would refuse, for each rate and capacity. The
    /// counts are ordered by rate, then by capacity. If [`Self::uncounted`] is not 0, the counts
    /// are lower bounds.
    pub fn refused(&self) -> &[u64] {
        &self.grid.refused
    }

    /// Returns the number of refusals that [`Self::refused`] does not include because too many keys
    /// were refused.
    pub const fn uncounted(&self) -> u64 {
        self.grid.uncounted
    }

    /// Returns the capacities that all keys need at the rate with index `rate`, in descending
    /// order. `rates` is the number of candidate rates.
    pub fn at(&self, rate: usize, rates: usize) -> Needs {
        let needs = self.keys.needs.iter().skip(rate).step_by(rates.max(1));
        let mut sorted: Vec<u32> = needs.copied().collect();
        sorted.sort_unstable_by(|one, other| other.cmp(one));
        Needs(sorted)
    }
}

/// Capacities that keys need at one rate, in descending order.
#[derive(Clone, Debug)]
pub struct Needs(Vec<u32>);

impl Needs {
    /// Returns the smallest capacity with which at least `per_mille` of every thousand keys are
    /// never refused.
    pub fn per_mille(&self, per_mille: usize) -> u32 {
        let at = self.0.len() * 1_000_usize.saturating_sub(per_mille) / 1_000;
        let sorted = &self.0;
        sorted
            .get(at)
            .or_else(|| sorted.last())
            .copied()
            .unwrap_or(0)
    }

    /// Returns the smallest capacity that refuses requests of at most `most` keys.
    pub fn capacity(&self, most: usize) -> u32 {
        self.0.get(most).copied().unwrap_or(0).max(1)
    }

    /// Returns the number of keys that are refused at least once with this capacity.
    pub fn refused(&self, capacity: u32) -> usize {
        self.0.partition_point(|need| *need > capacity)
    }
}

/// Returns the index of the rate at the knee of the curve. Beyond the knee, a higher rate saves
/// little capacity. The knee is the point farthest below the line between the first and the last
/// point, with both axes logarithmic (Satopää et al., "Finding a Kneedle in a Haystack").
pub fn knee(rates: &[Rate], capacities: &[u32]) -> Option<usize> {
    let points: Vec<(f64, f64)> = rates
        .iter()
        .zip(capacities)
        .map(|(rate, capacity)| {
            let per_second = f64::from(rate.amount()) * 1e9 / float(rate.period().get());
            (per_second.log2(), f64::from((*capacity).max(1)).log2())
        })
        .collect();
    let (first, last) = (points.first()?, points.last()?);
    let (wide, tall) = (last.0 - first.0, first.1 - last.1);
    if wide <= 0.0 {
        return Some(0);
    }
    let below = |(x, y): &(f64, f64)| {
        let line = first.1 - (x - first.0) / wide * tall;
        line - y
    };
    // Among equally distant points, choose the lowest rate, because it is the tightest limit.
    let best = points.iter().enumerate().rev();
    let best = best.max_by(|(_, one), (_, other)| below(one).total_cmp(&below(other)));
    best.map(|(number, _)| number)
}

// Counts the requests that would be refused at each rate and capacity.
//
// Until a funnel first refuses a request of a key, its level equals the level of a funnel that
// never refuses. Therefore a key needs separate levels only after its first refusal, and most keys
// in a log never need them.

/// Maximum total size of the separate levels, in bytes.
const MOST_BYTES: usize = 128 << 20;
/// Block index of a key that has no separate levels.
const NONE: u32 = u32::MAX;

/// Separate levels of each key that was refused at some rate and capacity, and the number of
/// refusals.
#[derive(Debug, Default)]
struct Grid {
    capacities: Vec<u32>,
    rates: usize,
    /// One block for each refused key. A block contains one level for each rate and capacity,
    /// ordered by rate.
    levels: Vec<u64>,
    /// Number of refused requests for each rate and capacity, ordered by rate.
    refused: Vec<u64>,
    /// Number of refusals that were not counted because the levels reached their maximum size.
    uncounted: u64,
}

/// A request, evaluated at one candidate rate.
#[derive(Clone, Copy, Debug)]
struct Step {
    /// Time since the key's previous request, multiplied by the amount of the rate.
    passed: u64,
    /// Cost of the request as a time: its units multiplied by `period`.
    cost: u64,
    /// Time for one unit, multiplied by the amount of the rate.
    period: u64,
    /// Level before this request if nothing has been refused, after draining for the elapsed time.
    left: u64,
    /// Highest level before this request if nothing has been refused, in units.
    need: u32,
}

impl Grid {
    fn new(rates: usize, capacities: &[u32]) -> Self {
        Self {
            capacities: capacities.to_vec(),
            rates,
            refused: vec![0; rates * capacities.len()],
            ..Self::default()
        }
    }

    /// Decides a request at the rate with index `rate`, under every capacity.
    fn add(&mut self, block: &mut u32, rate: usize, step: &Step) {
        let tried = self.capacities.len();
        for at in 0..tried {
            let Some(capacity) = self.capacities.get(at).copied() else {
                return;
            };
            let most = u64::from(capacity).saturating_mul(step.period);
            let has_level = step.need > capacity;
            if !has_level && step.left.saturating_add(step.cost) <= most {
                // If this capacity admits the request, every larger capacity does too.
                return;
            }
            let cell = rate * tried + at;
            let Some(level) = self.level(block, cell) else {
                self.uncounted += 1;
                return;
            };
            let left = if has_level {
                level.saturating_sub(step.passed)
            } else {
                step.left
            };
            let filled = left.saturating_add(step.cost);
            let is_refused = filled > most;
            *level = if is_refused { left } else { filled };
            if let Some(refused) = self.refused.get_mut(cell) {
                *refused += u64::from(is_refused);
            }
        }
    }

    /// Returns a key's level for a rate and capacity, or `None` if the levels have reached their
    /// maximum size.
    fn level(&mut self, block: &mut u32, cell: usize) -> Option<&mut u64> {
        let size = self.rates * self.capacities.len();
        if *block == NONE {
            let end = self.levels.len() + size;
            if end > MOST_BYTES / size_of::<u64>() {
                return None;
            }
            *block = u32::try_from(self.levels.len() / size.max(1)).ok()?;
            self.levels.resize(end, 0);
        }
        let block = usize::try_from(*block).ok()?;
        self.levels.get_mut(block * size + cell)
    }
}

// Upper bounds on the refusals that a suggested limit may cause, such as "at most 0.1 % of users
// refused".

/// Unit in which a [`Share`] is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// Share of the keys that are refused at least once.
    Users,
    /// Share of the requests that are refused.
    Requests,
}

/// A share of all keys or of all requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    hundred_thousandths: u32,
    /// Unit: keys or requests.
    pub subject: Subject,
}

impl Share {
    /// Parses a share such as `0.1%users` or `1%requests`, with at most three decimals.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || "invalid share; write it like 0.1%users or 1%requests".to_owned();
        let (number, subject) = text.split_once('%').ok_or_else(wrong)?;
        let subject = match subject.trim() {
            "users" => Subject::Users,
            "requests" => Subject::Requests,
            _ => return Err(wrong()),
        };
        let number = number.trim();
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let is_number = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
        if whole.is_empty() || !is_number(whole) || !is_number(fraction) || fraction.len() > 3 {
            return Err(wrong());
        }
        let digits = format!("{whole}{fraction:0<3}");
        let parsed: u32 = digits.parse().map_err(|_error| wrong())?;
        if parsed > 100_000 {
            return Err("a share is at most 100%".to_owned());
        }
        Ok(Self {
            hundred_thousandths: parsed,
            subject,
        })
    }

    /// Returns this share of `count`, rounded down.
    pub fn of(self, count: u64) -> u64 {
        let of = u128::from(count) * u128::from(self.hundred_thousandths) / 100_000;
        u64::try_from(of).unwrap_or(u64::MAX)
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (
            self.hundred_thousandths / 1_000,
            self.hundred_thousandths % 1_000,
        );
        let digits = format!("{rest:03}");
        let digits = digits.trim_end_matches('0');
        let point = if digits.is_empty() { "" } else { "." };
        let subject = match self.subject {
            Subject::Users => "keys",
            Subject::Requests => "requests",
        };
        write!(f, "{whole}{point}{digits} % of the {subject}")
    }
}

#[cfg(test)]
mod tests;
