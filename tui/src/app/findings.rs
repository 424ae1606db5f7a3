//! Findings about what a screen shows, in the manner of lints: what an engineer on call should look at, with the
//! number that makes it one.

use loudou_api::RuleView;
use loudou_limiter::Nanos;

use super::history::Track;
use super::state::{Data, State};
use super::targets;
use crate::draw::words::{percent, rate};
use crate::num::{self, fraction};
use crate::text::{counted, humanise};

/// A rule that refuses more than this share of its requests.
const MANY_REFUSED: f64 = 0.2;
/// The least requests per second that such a share is about.
const LEAST_RATE: f64 = 1.0;
/// A store that is filled beyond this share.
const NEARLY_FULL: f64 = 0.9;
/// The time before the end of an edit.
const SOON: Nanos = Nanos::from_secs(300);
/// The time after which a limit that was never reached may be of no use.
const LONG: Nanos = Nanos::from_secs(3_600);

/// The time of a call from which on the admin listener is slow: the filter answers in a few milliseconds.
pub(crate) const SLOW: Nanos = Nanos::from_millis(250);

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Weight {
    Warning,
    Note,
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) weight: Weight,
    pub(crate) text: String,
}

/// All findings, warnings first.
pub(crate) fn findings(state: &State) -> Vec<Finding> {
    let mut found = of_one(state);
    found.extend(apart(state));
    found.sort_by_key(|finding| finding.weight);
    found
}

/// Those about one Envoy alone.
pub(crate) fn of_one(state: &State) -> Vec<Finding> {
    let Some(data) = &state.data else {
        return Vec::new();
    };
    let mut found: Vec<Finding> = data.status.warnings.iter().cloned().map(warning).collect();
    let now = state.server_ns().saturating_add(state.age().get());
    let tracks = &state.history.rules;
    for rule in &data.rules.rules {
        found.extend(refuses_many(rule, tracks.get(&rule.name)));
        found.extend(ends_soon(rule, now));
        found.extend(never_reached(rule, data));
    }
    found.extend(nearly_full(data));
    if state.is_stale() {
        let age = humanise(state.age().get() / 1_000_000_000 * 1_000_000_000);
        found.push(warning(format!("the last answer is {age} old")));
    }
    found.extend(slow(state));
    found.extend(gaps(state));
    found
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
    let is_many = |refused: f64| all >= LEAST_RATE && refused / all > MANY_REFUSED;
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

fn ends_soon(rule: &RuleView, now: u64) -> Vec<Finding> {
    let left = |until: Option<u64>| {
        let left = until?.checked_sub(now)?;
        (left <= SOON.get()).then(|| humanise(left / 1_000_000_000 * 1_000_000_000))
    };
    let edit = rule.edit.iter().filter_map(|edit| {
        let left = left(edit.expires_at_ns)?;
        Some(format!("the edit of {} ends in {left}", rule.name))
    });
    let overrides = rule.overrides.iter().filter_map(|own| {
        let left = left(own.edit.expires_at_ns)?;
        Some(format!(
            "the override of {} in {} ends in {left}",
            own.key, rule.name
        ))
    });
    edit.chain(overrides).map(note).collect()
}

fn never_reached(rule: &RuleView, data: &Data) -> Option<Finding> {
    let mut all = data.status.rules.iter();
    let totals = all.find(|totals| totals.name == rule.name)?;
    let is_idle = totals.refused == 0 && totals.shadow_refused == 0 && totals.passed() > 0;
    let is_long = data.status.uptime_ns >= LONG.get();
    let text = || {
        let up = humanise(data.status.uptime_ns / 60_000_000_000 * 60_000_000_000);
        format!(
            "{} has refused nothing in the {up} since Envoy started",
            rule.name
        )
    };
    (is_idle && is_long).then(|| note(text()))
}

fn nearly_full(data: &Data) -> Option<Finding> {
    let store = &data.status.store;
    let used = fraction(store.used, store.buckets);
    // Idle buckets give way without a loss.
    let busy = 1.0 - fraction(store.sampled_idle, store.sampled.max(1));
    let text = || {
        format!(
            "the store is {} full, and {} of its buckets are in use: raise store.buckets",
            percent(used),
            percent(busy)
        )
    };
    (store.sampled > 0 && used * busy >= NEARLY_FULL).then(|| warning(text()))
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

/// Where the Envoys that are watched differ.
fn apart(state: &State) -> Vec<Finding> {
    if state.is_hidden {
        return Vec::new();
    }
    let differences = targets::differences(&state.targets).into_iter();
    differences.map(warning).collect()
}
