//! Describes a bucket's state: the state's name, and any ban, penalty, override or denied lease.

use std::fmt;

use loudou_api::{
    BanBy, BanView, BroughtView, BucketState, BucketView, Event, KeyOverrideView, LimitView,
    OutageView, OverrideKind, RuleView,
};

use super::{leased, short};
use crate::text::humanise;

/// Name of the `refusing` state if the rule is not enforced.
pub const WOULD_REFUSE: &str = "would refuse";

/// Name of the `banned` state if the rule is not enforced.
pub const BAN_OFF: &str = "ban off";

/// A bucket's state, as shown to users. Unlike [`BucketState::Refusing`], [`Standing::Refusing`] means that the next
/// request would be refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// The bucket is unused, and the key has no requests.
    Idle,
    /// The bucket is unused, although the key has requests.
    Fine,
    /// The bucket is partly used, and the next request would be admitted.
    Busy,
    /// The next request would be refused, but no recent request has been refused.
    Full,
    /// The next request would be held.
    Held,
    /// The rule is not enforced. A recent request would have been refused, but the next one would be admitted.
    WouldHaveRefused,
    /// The rule is not enforced. The next request would be refused.
    WouldRefuse,
    /// A recent request was refused, but the next one would be admitted.
    Refused,
    /// The next request would be refused.
    Refusing,
    /// The key is banned, but the rule is not enforced.
    BanOff,
    /// The key is banned.
    Banned,
}

impl Standing {
    /// All states, in enum order.
    const ALL: [Self; 11] = [
        Self::Idle,
        Self::Fine,
        Self::Busy,
        Self::Full,
        Self::Held,
        Self::WouldHaveRefused,
        Self::WouldRefuse,
        Self::Refused,
        Self::Refusing,
        Self::BanOff,
        Self::Banned,
    ];

    /// Returns the state of a bucket. `has_requests` is true if the key has requests.
    pub fn of(bucket: &BucketView, has_requests: bool) -> Self {
        match (bucket.state, bucket.shadow) {
            (BucketState::Idle, _) if has_requests => Self::Fine,
            (BucketState::Idle, _) => Self::Idle,
            (BucketState::Busy, _) => Self::Busy,
            (BucketState::Held, _) => Self::Held,
            (BucketState::Refusing, true) if refuses_now(bucket) => Self::WouldRefuse,
            (BucketState::Refusing, true) => Self::WouldHaveRefused,
            (BucketState::Refusing, false) if refuses_now(bucket) => Self::Refusing,
            (BucketState::Refusing, false) => Self::Refused,
            (BucketState::Banned, true) => Self::BanOff,
            (BucketState::Banned, false) => Self::Banned,
        }
    }

    /// Returns the state of a bucket, taking requests from the last minute into account. `has_requests` is true if the
    /// key has requests, and `was_refused` if one of them was refused within the last minute.
    pub fn over_a_minute(bucket: &BucketView, has_requests: bool, was_refused: bool) -> Self {
        match Self::of(bucket, has_requests) {
            admits @ (Self::Idle | Self::Fine | Self::Busy) => {
                match (refuses_now(bucket), was_refused, bucket.shadow) {
                    (false, false, _) => admits,
                    (true, false, _) => Self::Full,
                    (false, true, false) => Self::Refused,
                    (false, true, true) => Self::WouldHaveRefused,
                    (true, true, false) => Self::Refusing,
                    (true, true, true) => Self::WouldRefuse,
                }
            }
            other => other,
        }
    }

    /// Returns the display name of the state.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Fine => "ok",
            Self::Busy => "busy",
            Self::Full => "full",
            Self::Held => "held",
            Self::WouldHaveRefused => "would have refused",
            Self::WouldRefuse => WOULD_REFUSE,
            Self::Refused => "refused",
            Self::Refusing => "refusing",
            Self::BanOff => BAN_OFF,
            Self::Banned => "banned",
        }
    }

    /// Returns the names of all states.
    pub fn words() -> [&'static str; 11] {
        Self::ALL.map(Self::word)
    }
}

/// Returns true if a request with the default cost would be refused.
pub fn refuses_now(bucket: &BucketView) -> bool {
    let is_unlimited = bucket
        .own
        .as_ref()
        .is_some_and(|own| own.gives == OverrideKind::Unlimited);
    let is_denied = bucket
        .lease
        .as_ref()
        .is_some_and(|lease| lease.denied_until_ns.is_some());
    match bucket.outage {
        _ if is_unlimited => false,
        Some(OutageView::Refuse) => true,
        Some(OutageView::Admit) => false,
        Some(OutageView::Local { .. }) | None => {
            // The waiting time is unknown if it depends on when other requests finish, so `remaining` must be checked
            // as well.
            let refuses =
                |limit: &LimitView| limit.retry_after_ns.is_some() || limit.remaining == 0;
            is_denied || bucket.limits.iter().any(refuses)
        }
    }
}

/// Returns the index of the limit to show for a bucket: the reported limit if it is refusing requests, otherwise the
/// limit with the highest level.
pub fn main_limit(bucket: &BucketView) -> usize {
    let reported = bucket.limits.get(bucket.reported);
    if reported.is_some_and(|limit| limit.retry_after_ns.is_some() || limit.remaining == 0) {
        return bucket.reported;
    }
    // Levels are fractions and are compared by cross-multiplication. In case of a tie, the reported limit takes
    // precedence, then the first limit.
    let is_higher = |one: &LimitView, other: &LimitView| {
        let ((part, whole), (least, of)) = (one.level(0), other.level(0));
        let product = |part: u64, whole: u64| u128::from(part).saturating_mul(whole.into());
        product(part, of) > product(least, whole)
    };
    let mut highest = (bucket.reported, reported);
    for (place, limit) in bucket.limits.iter().enumerate() {
        if highest.1.is_none_or(|high| is_higher(limit, high)) {
            highest = (place, Some(limit));
        }
    }
    highest.0
}

/// Returns the name of a bucket's state when it is unknown whether the key has requests.
pub fn state_word(bucket: &BucketView) -> &'static str {
    Standing::of(bucket, false).word()
}

/// Describes the capacities and rates that the last request supplied for the bucket's limits. Returns `None` if none of
/// the limits read their numbers from requests.
pub fn brought(bucket: &BucketView) -> Option<String> {
    if bucket.numbers.is_empty() {
        return None;
    }
    let mut words = Vec::new();
    for BroughtView {
        limit,
        capacity,
        amount,
    } in &bucket.numbers
    {
        let numbers = [("capacity", capacity), ("rate", amount)];
        let numbers = numbers
            .into_iter()
            .filter_map(|(name, number)| Some((name, (*number)?)));
        words.extend(numbers.map(|(name, number)| format!("{limit} {name} {number}")));
    }
    Some(if words.is_empty() {
        "its last request brought no number of its limits".to_owned()
    } else {
        format!("its last request brought {}", words.join(", "))
    })
}

/// Formats the number of refusals. In shadow mode, the number is shown in parentheses, because the requests were
/// admitted.
pub fn refusals(count: impl fmt::Display, shadow: bool) -> String {
    if shadow {
        format!("({count})")
    } else {
        count.to_string()
    }
}

/// Describes the origin of a ban.
pub const fn imposed(by: BanBy) -> &'static str {
    match by {
        BanBy::Operator => "by an operator",
        BanBy::Penalty => "by the rule's penalty",
        BanBy::Override => "by its override",
    }
}

/// Returns a bucket's ban, if its rule is enforced.
pub fn enforced_ban(bucket: &BucketView) -> Option<&BanView> {
    bucket.ban.as_ref().filter(|_| !bucket.shadow)
}

/// Describes a ban and the time left on it.
pub fn banned(ban: &BanView, now_ns: Option<u64>) -> String {
    let left = match (ban.until_ns, now_ns) {
        (None, _) if ban.by == BanBy::Override => String::new(),
        (None, _) => " until unbanned".to_owned(),
        (Some(_), None) => " temporarily".to_owned(),
        (Some(until), Some(now)) => {
            format!(" for {} more", humanise(until.saturating_sub(now)))
        }
    };
    format!("banned {}{left}", imposed(ban.by))
}

/// The rule and the event that explain a bucket's override and ban, if known.
#[derive(Clone, Copy, Debug, Default)]
pub struct Origins<'a> {
    /// The bucket's rule, with its overrides and their edits.
    pub rule: Option<&'a RuleView>,
    /// The event that reported the ban.
    pub ban: Option<&'a Event>,
}

/// Describes a bucket's ban, refusals, lease, penalties and override, in one line each.
pub fn stands_out(bucket: &BucketView, now_ns: Option<u64>, origins: Origins<'_>) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(ban) = &bucket.ban {
        let mut line = banned(ban, now_ns);
        if bucket.shadow {
            line.push_str(", not enforced: the rule is in shadow mode or off");
        }
        lines.push(line);
        let event = origins.ban.filter(|_| ban.by == BanBy::Operator);
        lines.extend(event.map(|event| made("ban", &event.by, &event.reason)));
    }
    lines.extend(refused_since(bucket, now_ns));
    lines.extend(leased::owed_and_denied(bucket, now_ns));
    match bucket.penalties {
        0 => {}
        1 => lines.push("1 penalty still counts: the next ban may be longer".to_owned()),
        count => lines.push(format!(
            "{count} penalties still count: the next ban may be longer"
        )),
    }
    match bucket.strikes {
        0 => {}
        1 => lines.push("1 refusal counts towards a ban".to_owned()),
        count => lines.push(format!("{count} refusals count towards a ban")),
    }
    if let Some(entry) = &bucket.own {
        lines.extend(override_of(entry, now_ns, origins.rule));
    }
    lines
}

/// Describes how long requests have been refused: `refused since 12m ago, last 2s ago`.
fn refused_since(bucket: &BucketView, now_ns: Option<u64>) -> Option<String> {
    const SECOND: u64 = 1_000_000_000;
    let (since_ns, now_ns) = bucket.refused_since_ns.zip(now_ns)?;
    // The time of the last refusal is rounded down to a quarter of a second, so it may precede the first refusal.
    let last_ns = bucket.refused_at_ns.map_or(since_ns, |at| at.max(since_ns));
    let [first, last] = [since_ns, last_ns].map(|at| match now_ns.saturating_sub(at) {
        0..SECOND => "just now".to_owned(),
        // Show whole seconds only, because tenths would flicker in the terminal.
        ns => format!(
            "{} ago",
            humanise(ns.div_euclid(SECOND).saturating_mul(SECOND))
        ),
    });
    let refused = if bucket.shadow {
        "would have been refused"
    } else {
        "refused"
    };
    let last = if first == last {
        String::new()
    } else {
        format!(", last {last}")
    };
    Some(format!("{refused} since {first}{last}"))
}

/// Describes an override, including its numbers. If the override was edited, also describes the edit's expiry, author
/// and reason.
fn override_of(
    entry: &KeyOverrideView,
    now_ns: Option<u64>,
    rule: Option<&RuleView>,
) -> Vec<String> {
    let pattern = &entry.pattern;
    let all = rule.and_then(|rule| rule.rule.get("overrides"));
    let gives = all.and_then(|all| all.get(pattern)).map(short::gives);
    let gives = gives.unwrap_or_else(|| entry.gives.name().to_owned());
    let mut line = format!("override of {pattern}: {gives}");
    let mut edited = rule.into_iter().flat_map(|rule| &rule.overrides);
    let Some(edited) = edited.find(|edited| edited.key == *pattern) else {
        return vec![line];
    };
    let edit = &edited.edit;
    if let Some((until, now)) = edit.expires_at_ns.zip(now_ns) {
        let left = humanise(until.saturating_sub(now));
        line.push_str(", expires in ");
        line.push_str(&left);
    }
    vec![line, made("override", &edit.by, &edit.reason)]
}

/// Describes a change's author and reason.
fn made(what: &str, by: &str, reason: &str) -> String {
    let reason = match reason {
        "" => "no reason given",
        reason => reason,
    };
    format!("{what} made by {by}: {reason}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_the_last_request_in_words() {
        let view = |capacity, amount| BroughtView {
            limit: "burst".to_owned(),
            capacity,
            amount,
        };
        let words = |numbers: &[BroughtView]| {
            brought(&BucketView {
                numbers: numbers.to_vec(),
                ..BucketView::default()
            })
        };
        assert_eq!(words(&[]), None);
        for (view, expected) in [
            (
                view(Some(500), Some(7)),
                "its last request brought burst capacity 500, burst rate 7",
            ),
            (view(None, Some(7)), "its last request brought burst rate 7"),
            (
                view(None, None),
                "its last request brought no number of its limits",
            ),
        ] {
            assert_eq!(words(&[view]).as_deref(), Some(expected));
        }
    }

    #[test]
    fn a_run_of_refusals_in_words() {
        const S: u64 = 1_000_000_000;
        let now = 10_000 * S;
        let line = |since: Option<u64>, at: Option<u64>, shadow: bool| {
            let bucket = BucketView {
                refused_since_ns: since,
                refused_at_ns: at,
                shadow,
                ..BucketView::default()
            };
            assert_eq!(stands_out(&bucket, None, Origins::default()), [""; 0]);
            stands_out(&bucket, Some(now), Origins::default()).join("|")
        };
        let ago = |ns: u64| Some(now - ns);
        for (since, at, shadow, text) in [
            (None, ago(3 * S), false, ""),
            (
                ago(720 * S),
                ago(2 * S),
                false,
                "refused since 12m ago, last 2s ago",
            ),
            (
                ago(94 * S + S / 2),
                ago(S / 2),
                false,
                "refused since 1m34s ago, last just now",
            ),
            (
                ago(90 * S),
                ago(5 * S),
                true,
                "would have been refused since 1m30s ago, last 5s ago",
            ),
            (
                ago(9 * S),
                ago(9 * S + S / 4),
                false,
                "refused since 9s ago",
            ),
            (ago(0), ago(S / 5), false, "refused since just now"),
            // The clock of the worker that responded lags behind another worker's clock.
            (
                Some(now + S),
                Some(now + S),
                false,
                "refused since just now",
            ),
        ] {
            assert_eq!(line(since, at, shadow), text);
        }
    }
}
