//! Previews the effect of an edit on the known keys. For each key, a minute of requests is
//! simulated with the real rate limiter, once under the rule before the edit and once under the
//! rule after it. The requests are evenly spaced at the key's current rate.

use std::borrow::Cow;

use loudou_api::BroughtView;
use loudou_limiter::{Bucket, Carry, Clock, Limit, Limits, Nanos, Rate, convert, partly_used};
use loudou_rules::config::scaled;
use loudou_rules::rule::{Cost, Mode, Override, Rule};

use crate::draw::words::percent;
use loudou_print::cells::fit;
use loudou_words::num::{count, float, whole};
use loudou_words::text::{counted, escape};

/// Time span that is simulated.
const SPAN: Nanos = Nanos::from_secs(60);
/// Maximum number of decisions in one preview, because the preview is computed between two frames.
const MAX_DECISIONS: u64 = 100_000;
/// A key counts as refused in the long run if its rate exceeds the limit's rate by this factor. The
/// margin is needed because measured rates are inexact.
const ABOVE: f64 = 1.01;
/// Maximum number of keys that are named.
const NAMED: usize = 5;
/// Maximum width of a name, in cells.
const NAME: usize = 32;
/// Minimum share of refused requests at which the preview says that a key loses most of its
/// requests.
const MOST: f64 = 0.5;

/// Lists the first names and counts the others: `a, b and 3 more`.
pub(crate) fn named(names: &[String]) -> String {
    let some: Vec<&str> = names.iter().take(NAMED).map(String::as_str).collect();
    match names.len().saturating_sub(NAMED) {
        0 => some.join(", "),
        more => format!("{} and {more} more", some.join(", ")),
    }
}

/// Returns the name of a key, escaped and shortened.
pub(crate) fn name(key: &str) -> String {
    fit(&escape(key), NAME, '…').into_owned()
}

/// A key that an Envoy has reported to the app.
#[derive(Clone, Debug)]
pub(crate) struct Key<'a> {
    pub(crate) name: &'a str,
    /// Used units of each limit, by the limit's name.
    pub(crate) used: Vec<(&'a str, u64)>,
    /// Values for the rule's limits that the key's last request carried.
    pub(crate) numbers: &'a [BroughtView],
    /// Requests per second, including refused requests.
    pub(crate) per_second: f64,
    /// True if an operator or a penalty bans the key.
    pub(crate) is_banned: bool,
}

/// Effect of an edit on the known keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Preview {
    /// Number of simulated keys.
    seen: usize,
    /// Keys that are refused only after the edit, sorted by their number of requests, most first.
    refused: Vec<String>,
    /// Keys that are refused only before the edit.
    freed: Vec<String>,
    /// Keys that are refused both before and after the edit.
    still: Vec<String>,
}

/// What a rule grants a key.
enum Terms<'a> {
    Limits(Cow<'a, Limits>),
    Unlimited,
    Banned,
}

impl<'a> Terms<'a> {
    /// Returns what the rule grants to the key: the key's override or, if it has none, the limits
    /// of the rule.
    fn of(rule: &'a Rule, key: &Key<'_>) -> Self {
        let limits = || {
            rule.limits
                .with(&BroughtView::stored(&rule.limits, key.numbers))
        };
        match rule.overrides.get(key.name) {
            None => Self::Limits(limits()),
            Some(Override::Scale(scale)) => {
                let scaled = scaled(&limits(), *scale).map(Cow::Owned);
                Self::Limits(scaled.unwrap_or_else(limits))
            }
            Some(Override::Limits(limits)) => Self::Limits(Cow::Borrowed(limits)),
            Some(Override::Unlimited) => Self::Unlimited,
            Some(Override::Banned) => Self::Banned,
        }
    }

    fn limits(&self) -> Option<&Limits> {
        match self {
            Self::Limits(limits) => Some(limits),
            Self::Unlimited | Self::Banned => None,
        }
    }

    /// Returns true if decisions depend on the duration of requests.
    fn holds_until_end(&self) -> bool {
        self.limits().is_some_and(Limits::holds_until_end)
    }
}

/// Simulates the keys under the rule before and after the edit. Returns `None` if a limit depends
/// on the duration of requests, which is unknown.
pub(crate) fn preview(
    before: &Rule,
    after: &Rule,
    carry: Carry,
    keys: &mut [Key<'_>],
) -> Option<Preview> {
    if before.limits.holds_until_end() || after.limits.holds_until_end() {
        return None;
    }
    keys.sort_by(|one, other| other.per_second.total_cmp(&one.per_second));
    let most = MAX_DECISIONS / 2 / count(keys.len()).max(1);
    let mut preview = Preview::default();
    for key in keys.iter() {
        let terms = [before, after].map(|rule| Terms::of(rule, key));
        if terms.iter().any(Terms::holds_until_end) {
            continue;
        }
        preview.seen = preview.seen.saturating_add(1);
        let buckets = buckets(key, &terms, carry);
        let [was, will] = [(before, 0), (after, 1)].map(|(rule, side)| {
            let (terms, bucket) = (terms.get(side)?, buckets.get(side)?);
            loss(key, rule, (terms, bucket.as_ref()), most)
        });
        let name = name(key.name);
        match (was, will) {
            (None, Some(share)) if share >= MOST => {
                preview
                    .refused
                    .push(format!("{name} (loses {})", percent(share)));
            }
            (None, Some(_)) => preview.refused.push(name),
            (Some(_), None) => preview.freed.push(name),
            (Some(_), Some(_)) => preview.still.push(name),
            (None, None) => {}
        }
    }
    Some(preview)
}

/// Returns the bucket of a key before and after the edit, with `None` where no limits apply.
fn buckets(key: &Key<'_>, [before, after]: &[Terms<'_>; 2], carry: Carry) -> [Option<Bucket>; 2] {
    let clock = Clock::at(Nanos::ZERO);
    let live = before.limits().map(|limits| {
        let used: Vec<u64> = limits.iter().map(|limit| used(key, limit)).collect();
        (limits, partly_used(limits, &used, clock))
    });
    let carried = after.limits().map(|after| match &live {
        Some((before, live)) => convert(before, after, carry, live, clock),
        None => after.start_at(clock),
    });
    [live.map(|(_, bucket)| bucket), carried]
}

fn used(key: &Key<'_>, limit: &Limit) -> u64 {
    let mut used = key.used.iter();
    let of_limit = used.find(|(name, _)| *name == limit.name());
    of_limit.map_or(0, |(_, units)| *units)
}

/// Returns the share of a key's requests that a rule refuses within the time span if the key's rate
/// stays the same, or `None` if the rule refuses none of them.
fn loss(
    key: &Key<'_>,
    rule: &Rule,
    (terms, bucket): (&Terms<'_>, Option<&Bucket>),
    most: u64,
) -> Option<f64> {
    let gap = gap(key.per_second)?;
    if rule.mode != Mode::Enforce {
        // A rule that is not in mode `enforce` refuses no requests, not even requests of banned
        // keys.
        return None;
    }
    if key.is_banned {
        return Some(1.0);
    }
    let (limits, bucket) = match terms {
        Terms::Banned => return Some(1.0),
        Terms::Unlimited => return None,
        Terms::Limits(limits) => (limits, bucket?),
    };
    let cost = match rule.cost {
        Cost::Fixed(cost) => cost.into(),
        Cost::Header { .. } | Cost::Metadata { .. } | Cost::RequestBytes(_) | Cost::Settled(_) => 1,
    };
    // Share of requests that are refused in the long run, once the burst is used up.
    let demand = key.per_second * float(cost);
    let rates = limits.iter().filter_map(|limit| limit.algorithm().rate());
    let rates = rates.map(per_second).filter(|rate| demand > rate * ABOVE);
    if let Some(rate) = rates.min_by(f64::total_cmp) {
        return Some(1.0 - rate / demand);
    }
    played(limits, bucket.clone(), (cost, gap), most)
}

/// Simulates at most `most` requests with this gap between them. Returns the share of refused
/// requests, or `None` if none is refused.
fn played(
    limits: &Limits,
    mut bucket: Bucket,
    (cost, gap): (u64, Nanos),
    most: u64,
) -> Option<f64> {
    let requests = (SPAN.get() / gap.get().max(1)).clamp(1, most.max(1));
    let (mut at, mut refused) = (Nanos::ZERO, 0_u64);
    for _ in 0..requests {
        at = at.saturating_add(gap);
        let is_refused = limits.decide(&mut bucket, cost, at).is_refused();
        refused = refused.saturating_add(is_refused.into());
    }
    (refused > 0).then(|| float(refused) / float(requests))
}

fn per_second(rate: Rate) -> f64 {
    f64::from(rate.amount()) * 1e9 / float(rate.period().get())
}

/// Returns the time between two requests, or `None` if there are no requests.
fn gap(per_second: f64) -> Option<Nanos> {
    let gap = 1e9 / per_second;
    (gap.is_finite() && gap >= 1.0).then(|| Nanos::new(whole(gap)))
}

impl Preview {
    /// Returns the lines that the question about the edit shows.
    pub(crate) fn lines(&self) -> Vec<String> {
        if self.seen == 0 {
            return vec!["no key was seen for long enough to tell the effect".to_owned()];
        }
        let seen = counted(count(self.seen), "key");
        let mut lines = vec![format!("of {seen} seen, if they go on as in the last 10s:")];
        for (keys, one, many) in [
            (&self.refused, "becomes refused", "become refused"),
            (&self.freed, "is freed", "are freed"),
            (&self.still, "stays refused", "stay refused"),
        ] {
            let words = match keys.len() {
                0 => continue,
                1 => one,
                _ => many,
            };
            lines.push(format!("- {} {words}: {}", keys.len(), named(keys)));
        }
        if lines.len() == 1 {
            lines.push("- none is refused, before and after".to_owned());
        }
        lines
    }
}

#[cfg(test)]
mod tests;
