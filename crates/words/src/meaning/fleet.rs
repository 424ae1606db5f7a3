//! Describes a rule with `scope: fleet`: the upper bound on admitted units, the waiting times, and the behaviour during
//! an outage.

use loudou_limiter::lease::{LeaseSettings, Shared, Terms};
use loudou_limiter::{Limit, Nanos, Rate};
use loudou_rules::rule::{Cost, FleetSettings, Mode, OnOutage, Rule, Scope};
use serde::Serialize;

use super::short;

/// Number of Envoys used in examples.
const EXAMPLE: u32 = 4;
const MINUTE: Nanos = Nanos::from_secs(60);
/// Time spans for which the fleet's maximum is computed, with their names and short forms.
const SPANS: [(Nanos, &str, &str); 3] = [
    (MINUTE, "minute", "60s"),
    (Nanos::from_secs(3_600), "hour", "1h"),
    (Nanos::from_secs(86_400), "day", "1d"),
];

/// Effects of sharing a rule's buckets: the maximum that the fleet admits, how long requests wait, and the behaviour
/// during an outage.
#[derive(Debug, Serialize)]
pub struct Sharing {
    /// Maximum that the fleet admits under each limit.
    bounds: Vec<Bound>,
    /// Maximum time a request waits for the relay.
    waits_at_most_ns: u64,
    /// True if tokens for busy keys are requested in advance, so that few requests have to wait.
    #[serde(rename = "leases_beforehand")]
    prefetches: bool,
    /// How decisions are made while the relay is not responding.
    on_outage: OnOutage,
    /// Descriptions of all effects, one line each.
    pub meaning: Vec<String>,
}

/// Maximum number of units that all Envoys combined admit under a limit.
#[derive(Debug, Serialize)]
struct Bound {
    limit: String,
    /// Period to which the maximum applies: any time span of this length or, for a fixed window, each window.
    window_ns: u64,
    /// Maximum number of units without credit, regardless of the number of Envoys.
    at_most: u64,
    /// Additional number of units that each Envoy may admit on credit.
    at_most_more_per_envoy: u64,
}

/// Describes the effects of sharing a rule's buckets across the fleet. Returns `None` if each Envoy has its own
/// buckets, or if the rule is off.
pub fn sharing(rule: &Rule, fleet: Option<&FleetSettings>) -> Option<Sharing> {
    if rule.scope == Scope::Envoy || rule.mode == Mode::Off {
        return None;
    }
    let fleet = fleet?;
    let settings = fleet.lease_settings();
    let terms = Terms::of(&rule.limits, &settings).ok()?;
    let limits = rule.limits.iter().map(Limit::name);
    let limits: Vec<(&str, Shared)> = limits.zip(terms.limits().iter().copied()).collect();
    let bound = |(name, limit): &(&str, Shared)| Bound::new(name, *limit, &settings);
    let mut meaning = bounds_in_words(&limits, &settings, &rule.cost);
    meaning.extend(waits(rule, &terms));
    meaning.push(outage(rule, fleet));
    if fleet.on_outage == OnOutage::Local {
        meaning.extend(failures(&limits, &settings));
    }
    if rule.penalty.is_some() {
        meaning.push(
            "a ban by its penalty applies in the Envoy whose refusals triggered it".to_owned(),
        );
    }
    Some(Sharing {
        bounds: limits.iter().map(bound).collect(),
        waits_at_most_ns: match rule.mode {
            Mode::Enforce => settings.timeout.get(),
            Mode::Shadow | Mode::Off => 0,
        },
        prefetches: terms.prefetches(rule.cost.least().into()),
        on_outage: fleet.on_outage,
        meaning,
    })
}

impl Bound {
    fn new(name: &str, limit: Shared, settings: &LeaseSettings) -> Self {
        let (window, at_most) = match limit {
            Shared::Window { capacity, window } => (window, capacity),
            Shared::Leak { rate, .. } | Shared::Interval { rate, .. } => {
                let (span, ..) = span(rate);
                (span, limit.most_in(span, settings.lease))
            }
        };
        Self {
            limit: name.to_owned(),
            window_ns: window.get(),
            at_most,
            at_most_more_per_envoy: settings.most_on_credit(),
        }
    }
}

/// Returns the shortest duration in [`SPANS`] that is at least as long as the rate's period, with its name and short
/// form. If the period is longer than a day, returns the period.
fn span(rate: Rate) -> (Nanos, String, String) {
    let period = rate.period();
    let named = SPANS.iter().find(|(span, ..)| period <= *span);
    named.map_or_else(
        || (period, period.to_string(), period.to_string()),
        |(span, name, form)| (*span, (*name).to_owned(), (*form).to_owned()),
    )
}

/// Describes the upper bounds of all limits, one line each.
fn bounds_in_words(
    limits: &[(&str, Shared)],
    settings: &LeaseSettings,
    cost: &Cost,
) -> Vec<String> {
    let units = match cost {
        Cost::Fixed(1) => "",
        _ => " units",
    };
    let lines = limits.iter().enumerate().map(|(index, (name, limit))| {
        let begin = match index {
            0 => "shared by the fleet:",
            _ => "and",
        };
        let bound = bound_in_words(*limit, settings, units);
        let more = match settings.most_on_credit() {
            0 => ", however many Envoys".to_owned(),
            more => format!(", and {more} more for each Envoy"),
        };
        match limits {
            [_] => format!("{begin} {bound}{more}"),
            _ => format!("{begin} {bound}{more} ({name})"),
        }
    });
    lines.collect()
}

/// Describes an upper bound: `at most 15 + 0.5/s × (60s + 200ms) = 45 in any minute`.
fn bound_in_words(limit: Shared, settings: &LeaseSettings, units: &str) -> String {
    let lease = settings.lease;
    match limit {
        Shared::Leak { capacity, rate } => {
            let (time, name, form) = span(rate);
            let (most, pace) = (limit.most_in(time, lease), pace(rate, time));
            format!(
                "at most {capacity} + {pace} × ({form} + {lease}) = {most}{units} in any {name}"
            )
        }
        Shared::Interval { capacity, rate } => {
            let (time, name, _) = span(rate);
            let (most, amount) = (limit.most_in(time, lease), u64::from(rate.amount()));
            let refills = most
                .saturating_sub(capacity)
                .checked_div(amount)
                .unwrap_or(0);
            format!(
                "at most {capacity} + {refills} refills of {amount} = {most}{units} in any {name}"
            )
        }
        Shared::Window { capacity, window } => {
            let known = SPANS.iter().find(|(span, ..)| *span == window);
            let name = known.map_or_else(|| window.to_string(), |(_, name, _)| (*name).to_owned());
            format!("at most {capacity}{units} in each {name}")
        }
    }
}

/// Formats a rate per second (`0.5/s`) if the bound is per minute and the rate can be written exactly with three
/// decimals. Otherwise, formats the rate using its own period.
fn pace(rate: Rate, span: Nanos) -> String {
    let per_second = u128::from(rate.amount()) * 1_000_000_000_000;
    let period = u128::from(rate.period().get());
    let is_exact = per_second.checked_rem(period) == Some(0);
    match per_second.checked_div(period) {
        Some(thousandths) if is_exact && span == MINUTE => {
            let (whole, rest) = (thousandths / 1_000, thousandths % 1_000);
            let decimals = format!(".{rest:03}");
            let decimals = decimals.trim_end_matches('0').trim_end_matches('.');
            format!("{whole}{decimals}/s")
        }
        _ => rate.to_string(),
    }
}

/// Describes which requests wait for the relay, and for how long.
fn waits(rule: &Rule, terms: &Terms) -> Vec<String> {
    let LeaseSettings {
        lease,
        timeout,
        credit,
    } = terms.settings();
    if rule.mode == Mode::Shadow {
        return vec!["in shadow mode, no request waits for the relay".to_owned()];
    }
    let wait = if terms.prefetches(rule.cost.least().into()) {
        format!(
            "a key's first request waits for the relay, at most {timeout}; busy keys get tokens in advance"
        )
    } else {
        format!(
            "too few units return in {lease} to get tokens in advance: requests wait for the relay, at most \
             {timeout}, unless their key was just refused"
        )
    };
    let on_credit = format!("{credit} of a key pass in each Envoy before the relay has answered");
    match credit {
        0 => vec![wait],
        _ => vec![on_credit, wait],
    }
}

/// Describes how decisions are made during an outage.
fn outage(rule: &Rule, fleet: &FleetSettings) -> String {
    let begin = "if the relay does not answer,";
    match (fleet.on_outage, rule.mode) {
        (OnOutage::Local, _) => {
            let (envoys, since) = match fleet.envoys {
                1 => (EXAMPLE, ""),
                envoys => (
                    envoys,
                    ", which is assumed until the relay has reported a number",
                ),
            };
            let part = rule.limits.divided(envoys);
            let part = part.map_or_else(String::new, |limits| short::of_limits(&limits));
            format!("{begin} each Envoy limits alone; with {envoys} Envoys{since}, each has {part}")
        }
        (OnOutage::Admit, _) => format!("{begin} requests pass"),
        (OnOutage::Refuse, Mode::Enforce) => format!("{begin} requests are refused"),
        (OnOutage::Refuse, _) => format!("{begin} requests count as refused"),
    }
}

/// Describes, one per line, the upper bounds that apply while one Envoy receives no responses from the relay for a
/// duration D but other Envoys do.
fn failures(limits: &[(&str, Shared)], settings: &LeaseSettings) -> Vec<String> {
    let lines = limits.iter().enumerate().map(|(index, (name, limit))| {
        let begin = match index {
            0 => "while an Envoy has no answers for a time D and others have,",
            _ => "and",
        };
        let twice = limit.capacity().saturating_mul(2);
        let lease = settings.lease;
        let bound = match *limit {
            Shared::Leak { rate, .. } => {
                let (time, span_name, form) = span(rate);
                let pace = pace(rate, time);
                format!("at most {twice} + {pace} × ({form} + {lease} + D) in any {span_name}")
            }
            Shared::Interval { rate, .. } => {
                let (_, span_name, form) = span(rate);
                let amount = rate.amount();
                format!(
                    "at most {twice} + the refills of {amount} in {form} + {lease} + D in any {span_name}"
                )
            }
            Shared::Window { window, .. } => {
                let known = SPANS.iter().find(|(span, ..)| *span == window);
                let of = known.map_or_else(|| window.to_string(), |(_, name, _)| (*name).to_owned());
                format!("at most {twice} in each {of}")
            }
        };
        let more = match settings.most_on_credit() {
            0 => String::new(),
            more => format!(", and {more} more for each Envoy"),
        };
        match limits {
            [_] => format!("{begin} {bound}{more}"),
            _ => format!("{begin} {bound}{more} ({name})"),
        }
    });
    lines.collect()
}

#[cfg(test)]
mod tests;
