//! Findings about the displayed data. Like lints, findings point out conditions that an engineer on
//! call should look at, each with the number that triggered the finding.

use std::collections::BTreeMap;

use loudou_api::{RuleView, Status};
use loudou_limiter::Nanos;

use super::history::{Counts, Track};
use super::state::{Data, State};
use super::targets;
use crate::draw::words::{percent, rate};
use loudou_client::live::{Item, TimeLeft};
use loudou_words::num;
use loudou_words::text::{counted, humanise};

/// A rule that refuses more than this share of its requests is reported.
const MANY_REFUSED: f64 = 0.2;
/// Minimum request rate, per second, of a rule whose share of refused requests is reported.
const MIN_RATE: f64 = 1.0;
/// A live change that expires within this time is reported.
const SOON: Nanos = Nanos::from_secs(300);
/// Maximum number of expiring changes that are listed by name.
const ENDING: usize = 8;
/// A rule that has refused nothing for this long is reported, because its limits may be useless.
const LONG: Nanos = Nanos::from_secs(3_600);

/// New keys per second that a finding reports at the least.
const MIN_NEW: f64 = 10.0;

/// If the median admin API call takes this long, the admin listener is reported as slow. The filter
/// normally answers in a few milliseconds.
pub(crate) const SLOW: Nanos = Nanos::from_millis(250);

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Weight {
    Warning,
    Note,
}

/// A finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) weight: Weight,
    pub(crate) text: String,
}

/// Returns all findings, warnings first.
pub(crate) fn findings(state: &State) -> Vec<Finding> {
    let mut found = of_one(state);
    found.extend(apart(state));
    found.sort_by_key(|finding| finding.weight);
    found
}

/// Returns the findings that concern a single Envoy.
pub(crate) fn of_one(state: &State) -> Vec<Finding> {
    let Some(data) = &state.data else {
        return Vec::new();
    };
    let of_filter = of_filter(&data.status).cloned();
    let mut found: Vec<Finding> = of_filter.map(warning).collect();
    found.extend(new_keys(state).map(warning));
    let tracks = &state.history.rules;
    for rule in &data.rules.rules {
        let track = tracks.get(&rule.name);
        found.extend(refuses_many(rule, track));
        found.extend(refuses_nothing(rule, track, &data.status));
    }
    found.extend(ends_soon(state, data));
    found.extend(evicts(state, data));
    if state.is_stale() {
        let age = humanise(state.age().get() / 1_000_000_000 * 1_000_000_000);
        found.push(warning(format!("the last answer is {age} old")));
    }
    found.extend(slow(state));
    found.extend(gaps(state));
    found
}

/// Returns the filter's warnings, except the warning about evictions since Envoy started. Recent
/// evictions are reported by a separate finding instead.
pub(crate) fn of_filter(status: &Status) -> impl Iterator<Item = &String> {
    let of_start = status.store.evictions();
    let warnings = status.warnings.iter();
    warnings.filter(move |warning| Some(*warning) != of_start.as_ref())
}

const fn warning(text: String) -> Finding {
    let weight = Weight::Warning;
    Finding { weight, text }
}

const fn note(text: String) -> Finding {
    let weight = Weight::Note;
    Finding { weight, text }
}

fn refuses_many(rule: &RuleView, track: Option<&Track>) -> Option<Finding> {
    let rates = track?.rates()?;
    let all = rates.admitted + rates.refused + rates.shadow;
    let is_many = |refused: f64| all >= MIN_RATE && refused / all > MANY_REFUSED;
    let shares = |refused: f64| {
        let (share, refused, all) = (percent(refused / all), rate(Some(refused)), rate(Some(all)));
        format!("{share} of its requests, {refused}/s of {all}/s")
    };
    let name = &rule.name;
    if is_many(rates.refused) {
        return Some(warning(format!("{name} refuses {}", shares(rates.refused))));
    }
    let text = || {
        format!(
            "{name}, in shadow mode, would refuse {}",
            shares(rates.shadow)
        )
    };
    is_many(rates.shadow).then(|| note(text()))
}

/// Reports the live changes that expire soon, in the order of expiry.
fn ends_soon(state: &State, data: &Data) -> Vec<Finding> {
    let now_ms = data.status.unix_ms.saturating_add(state.age().as_millis());
    let mut ending: Vec<(Nanos, &Item)> = state
        .ledger
        .items()
        .filter_map(|item| match item.left(now_ms) {
            TimeLeft::For(left) if left <= SOON => Some((left, item)),
            TimeLeft::For(_) | TimeLeft::Endless | TimeLeft::Nothing => None,
        })
        .collect();
    ending.sort_by_key(|(left, _)| *left);
    let more = ending.len().saturating_sub(ENDING);
    let named = ending.into_iter().take(ENDING).map(|(left, item)| {
        let (kind, rule) = (item.kind().name(), &item.rule);
        let left = humanise(left.get() / 1_000_000_000 * 1_000_000_000);
        match item.key() {
            None => format!("the {kind} of {rule} ends in {left}"),
            Some(key) => {
                let key = state.shown_key(key);
                format!("the {kind} of {key} in {rule} ends in {left}")
            }
        }
    });
    let more = (more > 0).then(|| {
        let more = counted(num::count(more), "more change");
        format!("{more} by operators end within {}", humanise(SOON.get()))
    });
    named.chain(more).map(note).collect()
}

/// Reports a rule that received requests but refused none of them, either since Envoy started at
/// least an hour ago, or in the last hour.
fn refuses_nothing(rule: &RuleView, track: Option<&Track>, status: &Status) -> Option<Finding> {
    let name = &rule.name;
    let totals = status.rules.iter().find(|totals| totals.name == *name)?;
    let is_idle =
        |counts: Counts| counts.admitted > 0 && counts.refused.saturating_add(counts.shadow) == 0;
    if status.uptime_ns >= LONG.get() && is_idle(Counts::of_rule(totals)) {
        let up = humanise(status.uptime_ns / 60_000_000_000 * 60_000_000_000);
        let text = format!("{name} has refused nothing in the {up} since Envoy started");
        return Some(note(text));
    }
    let last_hour = track?.counted(LONG.get())?;
    let text = || format!("{name} has refused nothing in the last hour");
    is_idle(last_hour).then(|| note(text()))
}

/// Describes the new keys if most requests have one, or if the new keys of a minute would fill the
/// store. In the first minute after the start of Envoy, every key is new.
pub(crate) fn new_keys(state: &State) -> Option<String> {
    let data = state.data.as_ref()?;
    let (status, store) = (&data.status, &data.status.store);
    let recent = state.history.store.now()?;
    let counts = recent.counts;
    let per_second = recent.per_second(counts.created);
    let is_most = counts.created.saturating_mul(2) >= counts.decided;
    let fills = per_second * 60.0 >= num::float(store.buckets);
    if status.uptime_ns < 60_000_000_000 || per_second < MIN_NEW || !(is_most || fills) {
        return None;
    }
    let share = percent(num::fraction(counts.created, counts.decided));
    let new = rate(Some(per_second));
    let rule = new_keys_rule(data).map_or_else(String::new, |rule| format!(", most in {rule}"));
    let full = percent(num::fraction(store.used, store.buckets));
    let evicted = match counts.evicted {
        0 => "none".to_owned(),
        count => format!("{}/s", rate(Some(recent.per_second(count)))),
    };
    Some(format!(
        "{share} of requests have a new key: {new} new keys/s{rule}; store {full} full, {evicted} evicted in use"
    ))
}

/// Returns the rule that has most of the buckets with a single request, if it has over half of them.
fn new_keys_rule(data: &Data) -> Option<&str> {
    let mut rules: BTreeMap<&str, u64> = BTreeMap::new();
    let new = data.rows.iter().filter(|row| row.has_one_request());
    for row in new {
        let count = rules.entry(row.id.rule.as_str()).or_default();
        *count = count.saturating_add(1);
    }
    let all = rules
        .values()
        .fold(0_u64, |sum, count| sum.saturating_add(*count));
    let (rule, most) = rules.into_iter().max_by_key(|(_, count)| *count)?;
    (most > all / 2).then_some(rule)
}

fn evicts(state: &State, data: &Data) -> Option<Finding> {
    let recent = state.history.store.recent()?;
    let evicted = Some(recent.counts.evicted).filter(|evicted| *evicted > 0)?;
    let count = counted(evicted, "bucket");
    let within = humanise(recent.within_ns / 1_000_000_000 * 1_000_000_000);
    let per_second = rate(Some(recent.per_second(evicted)));
    Some(warning(format!(
        "the store evicted {count} in use in the last {within}, {per_second}/s: their keys begin anew; raise \
         store.buckets (now {}) and restart Envoy",
        data.status.store.buckets
    )))
}

fn slow(state: &State) -> Option<Finding> {
    let (median, _) = state.polls.latency(state.now)?;
    let text = || {
        let took = humanise(median.get() / 1_000_000 * 1_000_000);
        format!("the admin listener takes {took} to answer: it, or the way to it, is busy")
    };
    (median >= SLOW).then(|| warning(text()))
}

fn gaps(state: &State) -> Option<Finding> {
    let (count, longest) = state.polls.gaps(state.now)?;
    let gaps = counted(num::count(count), "gap");
    let longest = humanise(longest.get() / 1_000_000_000 * 1_000_000_000);
    Some(note(format!(
        "{gaps} of up to {longest} in the last 5 minutes of polls: rates across them are averages"
    )))
}

/// Reports differences between the watched Envoys.
pub(crate) fn apart(state: &State) -> Vec<Finding> {
    if state.is_hidden {
        return Vec::new();
    }
    let differences = targets::differences(&state.targets).into_iter();
    differences.map(warning).collect()
}
