//! Remarkable properties of a bucket besides its level: a ban, a pending penalty, an override, a denied lease.

use std::fmt;

use loudou_api::{BanBy, BanView, BucketState, BucketView, Event, KeyOverrideView, RuleView};

use super::{leased, short};
use crate::text::humanise;

/// The state `refusing` of a rule in shadow mode, which refuses nobody.
pub(crate) const WOULD_REFUSE: &str = "would refuse";

/// The state `banned` of a rule that does not enforce its bans.
pub(crate) const BAN_OFF: &str = "ban off";

/// The state for people.
pub(crate) const fn state_word(bucket: &BucketView) -> &'static str {
    match bucket.state {
        BucketState::Refusing if bucket.shadow => WOULD_REFUSE,
        BucketState::Banned if bucket.shadow => BAN_OFF,
        state => state.name(),
    }
}

/// A count of refusals: in parentheses for those of a rule in shadow mode, which passed.
pub(crate) fn refusals(count: impl fmt::Display, shadow: bool) -> String {
    if shadow {
        format!("({count})")
    } else {
        count.to_string()
    }
}

/// The origin of a ban.
pub(crate) const fn imposed(by: BanBy) -> &'static str {
    match by {
        BanBy::Operator => "by an operator",
        BanBy::Penalty => "by the rule's penalty",
        BanBy::Override => "by its override",
    }
}

/// The ban of a bucket, if its rule enforces it.
pub(crate) fn enforced_ban(bucket: &BucketView) -> Option<&BanView> {
    bucket.ban.as_ref().filter(|_| !bucket.shadow)
}

/// A ban in words.
pub(crate) fn banned(ban: &BanView, now_ns: Option<u64>) -> String {
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
pub(crate) struct Origins<'a> {
    /// The rule, which has the overrides and their edits.
    pub(crate) rule: Option<&'a RuleView>,
    /// The event of the ban.
    pub(crate) ban: Option<&'a Event>,
}

/// The properties, one line each.
pub(crate) fn stands_out(
    bucket: &BucketView,
    now_ns: Option<u64>,
    origins: Origins<'_>,
) -> Vec<String> {
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
