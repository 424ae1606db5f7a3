//! Which limit would a rule need? One pass gives for each key, at each of some rates, the least capacity of a funnel
//! that refuses none of its requests.
//!
//! At a rate of one unit each T, a request of cost c at the instant t leaves the level `max(0, level - (t - last)) + c·T`,
//! in time. A funnel of capacity n admits it if and only if that is at most n·T, and a refused request takes nothing. So
//! the highest level of a key that is never refused is the capacity that it needs, and with any smaller one it is refused
//! at least once: until its first refusal both levels are the same. Levels are exact: time is counted in nanoseconds
//! times the amount of the rate.

use std::collections::HashMap;

use loudou_limiter::{Nanos, Rate, fingerprint};
use loudou_rules::request::Sample;
use loudou_rules::rule::key::Key;
use loudou_rules::rule::{Cost, Fit, Rule, RuleFile};

use super::error::{Error, Observer, Progress};
use super::input::{Input, Intake};
use super::num::float;
use super::read::{Reading, read};
use super::record::LogLine;

mod share;

pub use share::{Share, Subject};

/// The most keys of all rules that are followed.
pub const MOST_KEYS: usize = 1_000_000;
/// The most rates that are tried.
pub const MOST_RATES: usize = 10;
/// The rates that are tried if none are named.
pub const RATES: [&str; MOST_RATES] = [
    "1/m", "6/m", "20/m", "1/s", "2/s", "5/s", "10/s", "20/s", "50/s", "100/s",
];
/// The number of requests between two progress reports.
const PROGRESS_REQUESTS: u64 = 4_096;

/// The needs of the keys of one rule.
#[derive(Debug)]
pub struct RuleNeeds {
    /// The rule.
    pub name: String,
    /// The requests that it applies to and that have a key.
    pub requests: u64,
    /// Whether the cost of its requests is not in the log, so that each counts as 1.
    pub is_cost_unknown: bool,
    cost: u64,
    /// For each key and each rate: the level, and the most units that it reached.
    keys: Keys,
}

#[derive(Debug, Default)]
struct Keys {
    /// The place of each key, by its fingerprint: among a million keys, two have the same once in 37 million logs.
    places: HashMap<u64, u32>,
    last: Vec<Nanos>,
    levels: Vec<u64>,
    needs: Vec<u32>,
}

/// The needs of all rules.
#[derive(Debug)]
pub struct Suggestion {
    /// The rates that were tried, in the order of the numbers.
    pub rates: Vec<Rate>,
    /// The rules, in the order of the file.
    pub rules: Vec<RuleNeeds>,
    /// Requests of keys beyond [`MOST_KEYS`], which are in no number.
    pub beyond: u64,
    /// What was read.
    pub intake: Intake,
}

/// Reads all inputs, and finds what each rule would need at these rates, at most [`MOST_RATES`].
pub fn suggest(
    inputs: Vec<Input<'_>>,
    reading: &Reading<'_>,
    (file, rates): (&RuleFile, &[Rate]),
    observer: &mut dyn Observer,
) -> Result<Suggestion, Error> {
    let mut recording = read(inputs, reading, observer)?;
    let rates: Vec<Rate> = rates.iter().copied().take(MOST_RATES).collect();
    let mut rules: Vec<RuleNeeds> = file.rules.iter().map(RuleNeeds::new).collect();
    let (mut beyond, mut requests, mut keys) = (0, 0_u64, 0);
    let records = recording.intake.records;
    while let Some((_, line)) = recording.next().map_err(Error::Sort)? {
        let LogLine::Request(mut record) = line else {
            continue;
        };
        for (needs, rule) in rules.iter_mut().zip(&file.rules) {
            if let Some(key) = key_of(rule, &mut record.request) {
                beyond += u64::from(!needs.add(&key, record.at, &rates, &mut keys));
            }
        }
        requests += 1;
        if requests.is_multiple_of(PROGRESS_REQUESTS) {
            let progress = Progress::Deciding { requests, records };
            observer.progress(progress).map_err(Error::Observer)?;
        }
    }
    Ok(Suggestion {
        rates,
        rules,
        beyond,
        intake: recording.intake,
    })
}

/// The key of a request that a rule applies to.
fn key_of(rule: &Rule, request: &mut Sample<'_>) -> Option<String> {
    if rule.matches.fit(request) != Fit::Yes {
        return None;
    }
    match rule.key_of(request) {
        Key::Bucket(key) => Some(key),
        Key::Skip | Key::Refuse | Key::Ambiguous => None,
    }
}

impl RuleNeeds {
    fn new(rule: &Rule) -> Self {
        let (cost, is_cost_unknown) = match rule.cost {
            Cost::Fixed(cost) => (cost, false),
            Cost::Header { .. } | Cost::RequestBytes(_) => (1, true),
        };
        Self {
            name: rule.name.clone(),
            requests: 0,
            is_cost_unknown,
            cost: cost.into(),
            keys: Keys::default(),
        }
    }

    /// Adds a request; false if its key is one too many.
    fn add(&mut self, key: &str, at: Nanos, rates: &[Rate], all: &mut usize) -> bool {
        let next = u32::try_from(self.keys.last.len()).unwrap_or(u32::MAX);
        let print = fingerprint(key);
        let place = match self.keys.places.get(&print) {
            Some(place) => *place,
            None if *all >= MOST_KEYS => return false,
            None => {
                *all += 1;
                self.keys.places.insert(print, next);
                self.keys.last.push(at);
                let end = self.keys.levels.len() + rates.len();
                self.keys.levels.resize(end, 0);
                self.keys.needs.resize(end, 0);
                next
            }
        };
        self.requests += 1;
        let place = usize::try_from(place).unwrap_or(usize::MAX);
        let Some(last) = self.keys.last.get_mut(place) else {
            return true;
        };
        let passed = at.since(*last).get();
        *last = at.max(*last);
        let from = place * rates.len();
        let levels = self.keys.levels.iter_mut().skip(from);
        let needs = self.keys.needs.iter_mut().skip(from);
        for ((level, need), rate) in levels.zip(needs).zip(rates) {
            let period = rate.period().get();
            let left = level.saturating_sub(passed.saturating_mul(rate.amount().into()));
            *level = left.saturating_add(self.cost.saturating_mul(period));
            let units = level.div_ceil(period.max(1));
            *need = (*need).max(u32::try_from(units).unwrap_or(u32::MAX));
        }
        true
    }

    /// The number of keys.
    pub fn keys(&self) -> usize {
        self.keys.last.len()
    }

    /// The needs of all keys at the rate with this number, the largest first.
    pub fn at(&self, rate: usize, rates: usize) -> Needs {
        let needs = self.keys.needs.iter().skip(rate).step_by(rates.max(1));
        let mut sorted: Vec<u32> = needs.copied().collect();
        sorted.sort_unstable_by(|one, other| other.cmp(one));
        Needs(sorted)
    }
}

/// The capacities that keys need at one rate, the largest first.
#[derive(Clone, Debug)]
pub struct Needs(Vec<u32>);

impl Needs {
    /// The capacity that so many of a thousand keys are content with, at least.
    pub fn per_mille(&self, per_mille: usize) -> u32 {
        let at = self.0.len() * 1_000_usize.saturating_sub(per_mille) / 1_000;
        let sorted = &self.0;
        sorted
            .get(at)
            .or_else(|| sorted.last())
            .copied()
            .unwrap_or(0)
    }

    /// The least capacity under which at most `most` keys are refused.
    pub fn capacity(&self, most: usize) -> u32 {
        self.0.get(most).copied().unwrap_or(0).max(1)
    }

    /// How many keys a capacity refuses at least once.
    pub fn refused(&self, capacity: u32) -> usize {
        self.0.partition_point(|need| *need > capacity)
    }
}

/// The number of the rate at the knee: from there on a higher rate saves little capacity. That is the point farthest
/// below the line between the first and the last one, both axes logarithmic (Satopää et al., "Finding a Kneedle in a
/// Haystack").
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
    let best = points.iter().enumerate();
    let best = best.max_by(|(_, one), (_, other)| below(one).total_cmp(&below(other)));
    best.map(|(number, _)| number)
}

#[cfg(test)]
mod tests;
