//! A rule whose buckets a fleet shares: the bound, waits and outages, in numbers and in words.

use loudou_limiter::lease::{LeaseSettings, Shared, Terms};
use loudou_limiter::{Limit, Nanos, Rate};
use loudou_rules::rule::{Cost, FleetSettings, Mode, OnOutage, Rule, Scope};
use serde::Serialize;

use super::short;

/// The number of Envoys in examples.
const EXAMPLE: u32 = 4;
const MINUTE: Nanos = Nanos::from_secs(60);
/// The times for which bounds are given, with their names and forms.
const SPANS: [(Nanos, &str, &str); 3] = [
    (MINUTE, "minute", "60s"),
    (Nanos::from_secs(3_600), "hour", "1h"),
    (Nanos::from_secs(86_400), "day", "1d"),
];

/// The consequences of sharing the buckets of a rule.
#[derive(Debug, Serialize)]
pub struct Sharing {
    /// For each limit, the most that the fleet passes.
    bounds: Vec<Bound>,
    /// Maximum time that a request waits for the relay.
    waits_at_most_ns: u64,
    /// True if busy keys get tokens beforehand, so that only few of their requests wait.
    leases_beforehand: bool,
    /// The decision while the relay does not answer.
    on_outage: OnOutage,
    /// All of this in words.
    pub meaning: Vec<String>,
}

/// Maximum amount that the fleet passes by a limit, in cost units.
#[derive(Debug, Serialize)]
struct Bound {
    limit: String,
    /// The length of the time: of any such time, or of each window of a fixed window.
    window_ns: u64,
    /// However many Envoys there are.
    at_most: u64,
    /// In addition, for each Envoy.
    at_most_more_per_envoy: u64,
}

/// The meaning of a rule's scope; `None` if each Envoy has its own buckets, or if the rule is off.
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
        leases_beforehand: terms.leases_beforehand(rule.cost.least().into()),
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

/// The shortest time with a name in which a rate gives its amount, its name, and its form; the rate's
/// period if there is none.
fn span(rate: Rate) -> (Nanos, String, String) {
    let period = rate.period();
    let named = SPANS.iter().find(|(span, ..)| period <= *span);
    named.map_or_else(
        || (period, period.to_string(), period.to_string()),
        |(span, name, form)| (*span, (*name).to_owned(), (*form).to_owned()),
    )
}

/// The bounds of all limits, a line each.
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

/// `at most 15 + 0.5/s × (60s + 200ms) = 45 in any minute`.
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

/// A rate per second for bounds of a minute, where that is exact: `0.5/s`. Else as it is written.
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

/// Who waits for the relay, and how long.
fn waits(rule: &Rule, terms: &Terms) -> Vec<String> {
    let LeaseSettings {
        lease,
        timeout,
        credit,
    } = terms.settings();
    if rule.mode == Mode::Shadow {
        return vec!["in shadow mode, no request waits for the relay".to_owned()];
    }
    let wait = if terms.leases_beforehand(rule.cost.least().into()) {
        format!(
            "a key's first request waits for the relay, at most {timeout}; busy keys get tokens beforehand"
        )
    } else {
        format!(
            "too little comes back in {lease} to get tokens beforehand: requests wait for the relay, at most \
             {timeout}, unless their key was just refused"
        )
    };
    let on_credit = format!("{credit} of a key pass in each Envoy before the relay has answered");
    match credit {
        0 => vec![wait],
        _ => vec![on_credit, wait],
    }
}

/// The consequences of an outage.
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
            format!(
                "{begin} each Envoy limits alone by its part; of {envoys} Envoys{since}, each has {part}"
            )
        }
        (OnOutage::Admit, _) => format!("{begin} requests pass"),
        (OnOutage::Refuse, Mode::Enforce) => format!("{begin} requests are refused"),
        (OnOutage::Refuse, _) => format!("{begin} requests count as refused"),
    }
}

/// The bounds while an Envoy has no answers for a time D and others have some, a line each.
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
