//! Summarizes all watched Envoys, and describes how their versions and rules in effect differ.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::sync::Arc;

use loudou_api::{RuleTotals, RuleView};
use serde_json::{Map, Value};

use super::history::Rates;
use crate::short_names::short_names;
use loudou_words::meaning::short;
use loudou_words::num::count;
use loudou_words::text::counted;

/// Maximum number of rules that a message names.
const NAMED: usize = 3;

/// A summary of one Envoy, which is shown together with the other Envoys.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct TargetSummary {
    pub(crate) url: String,
    /// Instance ID of the process. Empty before the first poll.
    pub(crate) instance: String,
    /// True if the last poll succeeded, or `None` before the first poll ends.
    pub(crate) up: Option<bool>,
    pub(crate) is_stale: bool,
    pub(crate) error: Option<String>,
    pub(crate) rates: Option<Rates>,
    pub(crate) generation: u64,
    pub(crate) version: String,
    /// Rules in effect, by name, or `None` before the first poll.
    pub(crate) rules: Option<BTreeMap<String, RuleInForce>>,
    pub(crate) uptime_ns: u64,
    pub(crate) warnings: usize,
    /// True if an earlier address in the list leads to the same process.
    pub(crate) is_twin: bool,
    /// True if the user marked the Envoy.
    pub(crate) is_marked: bool,
    /// Banner after a restart, and true if lost changes can be applied again.
    pub(crate) banner: Option<(String, bool)>,
}

impl TargetSummary {
    /// Keeps the earlier numbers while the screen is frozen, but updates the connection state and
    /// the restart banner.
    pub(crate) fn keep_numbers(&mut self, before: Self) {
        *self = Self {
            up: self.up,
            error: self.error.take(),
            banner: self.banner.take(),
            ..before
        };
    }
}

/// The parts of a rule in effect that are compared between Envoys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RuleInForce {
    mode: String,
    /// `None` until the rules have been read.
    numbers: Option<Arc<Numbers>>,
}

/// The parts of a rule that are compared, except its mode. They are precomputed to make comparisons
/// cheap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Numbers {
    /// Short description of the limits.
    limits: String,
    /// Hash of the rule without its mode and overrides.
    hash: u64,
    overrides: usize,
    overrides_hash: u64,
}

/// Returns the compared parts of each rule, by the rule's name.
pub(crate) fn numbers(rules: &[RuleView]) -> BTreeMap<String, Arc<Numbers>> {
    let of = |view: &RuleView| {
        let mut rest = view.rule.clone();
        let mut overrides = None;
        if let Some(fields) = rest.as_object_mut() {
            overrides = fields.remove("overrides");
            fields.remove("mode");
        }
        let numbers = Numbers {
            limits: short::line(&view.rule),
            hash: hash(&rest),
            overrides: overrides
                .as_ref()
                .and_then(Value::as_object)
                .map_or(0, Map::len),
            overrides_hash: hash(&overrides),
        };
        (view.name.clone(), Arc::new(numbers))
    };
    rules.iter().map(of).collect()
}

fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// Returns the rules in effect at an Envoy, by name. The modes come from the status. The other
/// parts come from the rules as last read.
pub(crate) fn in_force(
    totals: &[RuleTotals],
    numbers: &BTreeMap<String, Arc<Numbers>>,
) -> BTreeMap<String, RuleInForce> {
    let of = |totals: &RuleTotals| {
        let rule = RuleInForce {
            mode: totals.mode.clone(),
            numbers: numbers.get(&totals.name).cloned(),
        };
        (totals.name.clone(), rule)
    };
    totals.iter().map(of).collect()
}

/// Describes the other Envoys that do not answer or that have restarted, in a long and a short
/// form. `shown` is the number of the Envoy on the screen.
pub(crate) fn troubles(targets: &[TargetSummary], shown: usize) -> Option<(String, String)> {
    let urls: Vec<&str> = targets.iter().map(|target| target.url.as_str()).collect();
    let named = targets.iter().zip(short_names(&urls)).enumerate();
    let others = named.filter(|(number, _)| *number != shown);
    let mut troubles = others.filter_map(|(_, (target, name))| match &target.banner {
        _ if target.up == Some(false) => {
            let away = format!("{name} is away");
            Some((away.clone(), away))
        }
        Some((banner, offers)) => {
            let lost = if *offers { " and lost changes (a)" } else { "" };
            Some((
                format!("{name} {banner}"),
                format!("{name} restarted{lost}"),
            ))
        }
        None => None,
    });
    let (full, short) = troubles.next()?;
    match troubles.count() {
        0 => Some((full, short)),
        more => {
            let all = counted(count(more.saturating_add(1)), "other Envoy");
            Some((format!("{full}, and {more} more"), all))
        }
    }
}

/// Describes the differences between the first Envoy and the others, one sentence for each
/// difference.
pub(crate) fn differences(targets: &[TargetSummary]) -> Vec<String> {
    let urls: Vec<&str> = targets.iter().map(|target| target.url.as_str()).collect();
    let names = short_names(&urls);
    let mut known = targets
        .iter()
        .zip(&names)
        .filter_map(|(target, name)| Some((target, name, target.rules.as_ref()?)));
    let mut found = twins(targets, &names);
    let Some((own, here, ours)) = known.next() else {
        return found;
    };
    for (other, there, theirs) in known {
        if own.version != other.version {
            found.push(format!(
                "versions differ: {} at {here}, {} at {there}",
                own.version, other.version
            ));
        }
        let rules = of_rules(ours, theirs, (here, there));
        if !rules.is_empty() {
            let more = rules.len().saturating_sub(NAMED);
            let mut text = rules.into_iter().take(NAMED).collect::<Vec<_>>().join("; ");
            if more > 0 {
                text.push_str("; and ");
                text.push_str(&counted(count(more), "more rule"));
            }
            found.push(format!("rules differ: {text}"));
        }
    }
    found
}

/// Describes the addresses that lead to the same Envoy as an earlier address in the list.
fn twins(targets: &[TargetSummary], names: &[String]) -> Vec<String> {
    let mut found = Vec::new();
    for (number, target) in targets
        .iter()
        .enumerate()
        .filter(|(_, target)| target.is_twin)
    {
        let first = targets
            .iter()
            .position(|other| other.instance == target.instance);
        let (first, name) = (first.and_then(|first| names.get(first)), names.get(number));
        if let Some((first, name)) = first.zip(name) {
            found.push(format!(
                "{first} and {name} are one Envoy: it counts once in sums"
            ));
        }
    }
    found
}

/// For each instance, returns true if it also occurs earlier in the list.
pub(crate) fn are_twins<'a>(instances: impl Iterator<Item = &'a str>) -> Vec<bool> {
    let mut seen = BTreeSet::new();
    let is_twin = instances.map(|instance| !instance.is_empty() && !seen.insert(instance));
    is_twin.collect()
}

/// Describes the rules that differ between two Envoys.
fn of_rules(
    ours: &BTreeMap<String, RuleInForce>,
    theirs: &BTreeMap<String, RuleInForce>,
    (here, there): (&str, &str),
) -> Vec<String> {
    let names: BTreeSet<&String> = ours.keys().chain(theirs.keys()).collect();
    let differ = names.into_iter().filter_map(|name| {
        let way = match (ours.get(name), theirs.get(name)) {
            (Some(own), Some(other)) => way(own, other, (here, there))?,
            (Some(_), None) => format!("is not at {there}"),
            (None, _) => format!("is not at {here}"),
        };
        Some(format!("{name} {way}"))
    });
    differ.collect()
}

/// Describes the first difference between two rules of the same name.
fn way(own: &RuleInForce, other: &RuleInForce, (here, there): (&str, &str)) -> Option<String> {
    if own.mode != other.mode {
        return Some(format!(
            "is {} at {here}, {} at {there}",
            own.mode, other.mode
        ));
    }
    // If one of the rules has not been read yet, no difference is known.
    let (own, other) = (own.numbers.as_ref()?, other.numbers.as_ref()?);
    if own.limits != other.limits {
        let (ours, theirs) = (&own.limits, &other.limits);
        return Some(format!("has {ours} at {here}, {theirs} at {there}"));
    }
    if own.hash != other.hash {
        return Some(format!("is another rule at {there} than at {here}"));
    }
    if own.overrides != other.overrides {
        let number = |overrides| counted(count(overrides), "override");
        let (ours, theirs) = (number(own.overrides), number(other.overrides));
        return Some(format!("has {ours} at {here}, {theirs} at {there}"));
    }
    let is_other = own.overrides_hash != other.overrides_hash;
    is_other.then(|| format!("has other overrides at {there} than at {here}"))
}
