//! Remarkable properties of a bucket besides its level: a ban, a pending penalty, an override, a denied lease.

use std::fmt;

use loudou_api::{
    BanBy, BanView, BucketState, BucketView, Event, KeyOverrideView, LimitView, OutageView,
    OverrideKind, RuleView,
};

use super::{leased, short};
use crate::text::humanise;

/// The state `refusing` of a rule in shadow mode, which refuses nobody.
pub const WOULD_REFUSE: &str = "would refuse";

/// The state `banned` of a rule that does not enforce its bans.
pub const BAN_OFF: &str = "ban off";

/// The state for people, which says `refusing` only while the next request would be refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// Nothing is taken, and no request comes.
    Idle,
    /// Nothing is taken, although requests come.
    Fine,
    /// Something is taken, and the next request would be admitted.
    Busy,
    /// The next request would wait.
    Held,
    /// A rule in shadow mode would have refused a moment ago.
    WouldHaveRefused,
    /// A rule in shadow mode would refuse.
    WouldRefuse,
    /// It refused a moment ago, and would admit now.
    Refused,
    /// The next request would be refused.
    Refusing,
    /// Its rule does not enforce its ban.
    BanOff,
    /// It refuses until the ban ends.
    Banned,
}

impl Standing {
    /// All of them.
    const ALL: [Self; 10] = [
        Self::Idle,
        Self::Fine,
        Self::Busy,
        Self::Held,
        Self::WouldHaveRefused,
        Self::WouldRefuse,
        Self::Refused,
        Self::Refusing,
        Self::BanOff,
        Self::Banned,
    ];

    /// The state of a bucket, whose key has requests or not.
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

    /// The word on the screen.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Fine => "ok",
            Self::Busy => "busy",
            Self::Held => "held",
            Self::WouldHaveRefused => "would have refused",
            Self::WouldRefuse => WOULD_REFUSE,
            Self::Refused => "refused",
            Self::Refusing => "refusing",
            Self::BanOff => BAN_OFF,
            Self::Banned => "banned",
        }
    }

    /// All words.
    pub fn words() -> [&'static str; 10] {
        Self::ALL.map(Self::word)
    }
}

/// Returns true if a request of the usual cost would be refused.
fn refuses_now(bucket: &BucketView) -> bool {
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
            // The time is unknown if it depends on the end of other requests.
            let refuses =
                |limit: &LimitView| limit.retry_after_ns.is_some() || limit.remaining == 0;
            is_denied || bucket.limits.iter().any(refuses)
        }
    }
}

/// The limit that stands for a bucket: the one that refuses, else the one with the highest level.
pub fn main_limit(bucket: &BucketView) -> usize {
    let reported = bucket.limits.get(bucket.reported);
    if reported.is_some_and(|limit| limit.retry_after_ns.is_some() || limit.remaining == 0) {
        return bucket.reported;
    }
    // Fractions are compared by their products. The first of equal ones counts, but before all the reported one.
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

/// The state for people, where nothing is known about the requests of its key.
pub fn state_word(bucket: &BucketView) -> &'static str {
    Standing::of(bucket, false).word()
}

/// A count of refusals: in parentheses for a rule in shadow mode, whose requests passed.
pub fn refusals(count: impl fmt::Display, shadow: bool) -> String {
    if shadow {
        format!("({count})")
    } else {
        count.to_string()
    }
}

/// The origin of a ban.
pub const fn imposed(by: BanBy) -> &'static str {
    match by {
        BanBy::Operator => "by an operator",
        BanBy::Penalty => "by the rule's penalty",
        BanBy::Override => "by its override",
    }
}

/// The ban of a bucket, if its rule enforces it.
pub fn enforced_ban(bucket: &BucketView) -> Option<&BanView> {
    bucket.ban.as_ref().filter(|_| !bucket.shadow)
}

/// A ban in words.
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

/// Where the ban and the override of a bucket come from, as far as that is known.
#[derive(Clone, Copy, Debug, Default)]
pub struct Origins<'a> {
    /// The rule, which has the overrides and their edits.
    pub rule: Option<&'a RuleView>,
    /// The event of the ban.
    pub ban: Option<&'a Event>,
}

/// The properties, one line each.
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

/// Since when the key of a bucket is refused: `refused since 12m ago, last 2s ago`.
fn refused_since(bucket: &BucketView, now_ns: Option<u64>) -> Option<String> {
    const SECOND: u64 = 1_000_000_000;
    let (since_ns, now_ns) = bucket.refused_since_ns.zip(now_ns)?;
    // The last refusal is known to a quarter of a second only, and may seem to be before the first.
    let last_ns = bucket.refused_at_ns.map_or(since_ns, |at| at.max(since_ns));
    let [first, last] = [since_ns, last_ns].map(|at| match now_ns.saturating_sub(at) {
        0..SECOND => "just now".to_owned(),
        // Tenths would only flicker.
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

/// An override with its numbers and, if it was edited, its end, author and reason.
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

/// The author of a change and the reason.
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
            // Read by a worker whose clock is behind.
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
