//! Reads `overrides` and `penalty`.

use alloc::format;
use alloc::string::{String, ToString};

use loudou_limiter::ban::Penalty;
use loudou_limiter::{Decimal, Limits, Nanos};
use loudou_store::names::MAX_KEY;
use serde_json::Value;

use super::grammar::{Field, Form, Names, Object, Text, object, words};
use super::limits::{self, Numbers};
use super::problem::{Path, Problem};
use super::reader::{Cursor, Report};
use super::scale::fits_scale;
use super::suggest::nearest;
use crate::rule::{Override, Overrides};

/// Maximum number of overrides of a rule.
pub const MAX_OVERRIDES: usize = 1_024;
/// Overrides in the form of a single word.
const WORDS: [(&str, Override); 2] = [
    ("unlimited", Override::Unlimited),
    ("banned", Override::Banned),
];
const SCALE: Field = Field::optional(
    "scale",
    Form::Decimal(
        Decimal::from_thousandths(1),
        Decimal::from_thousandths(1_000_000),
    ),
    "",
    "A factor for all numbers of the rule's limits that count cost units, rounded up; \
    times stay unchanged.",
);
/// Grammar of an override in object form. Exactly one of these fields must be present.
pub(super) const OVERRIDE: Object = object!(
    [
        SCALE,
        Field::optional(
            "limits",
            Form::Defined("limits"),
            "",
            "Limits that replace the rule's."
        ),
    ],
    &["scale", "limits"]
);
/// Grammar of a rule's overrides.
pub(super) const OVERRIDES: Names = Names {
    most: MAX_OVERRIDES,
    name: Text::like("^[!-~]+$", MAX_KEY.saturating_add(1)),
    not: [&[], &[]],
    value: Form::Or(&[
        Field::value(Form::Word(&words(&WORDS)), ""),
        Field::value(Form::Defined("override"), ""),
    ]),
};

/// Upper bound on the window and the ban durations of a penalty.
const MAX_SPAN: Nanos = Nanos::from_secs(31 * 86_400);
const SPAN: Form = Form::Duration(&[Nanos::from_millis(1), MAX_SPAN]);
/// Default growth factor, with which each ban is as long as the previous one.
const FACTOR: Decimal = Decimal::from_thousandths(1_000);
const MAX_FACTOR: Decimal = Decimal::from_thousandths(100_000);

/// Grammar of a penalty.
pub(super) const PENALTY: Object = object!([
    Field::required(
        "after",
        Form::Integer(1, 10_000),
        "Number of refusals that trigger a ban."
    ),
    Field::required(
        "within",
        SPAN,
        "The window in which refusals are counted; it begins with a refusal."
    ),
    Field::required("ban", SPAN, "The duration of the first ban."),
    Field::optional(
        "factor",
        Form::Decimal(FACTOR, MAX_FACTOR),
        "1",
        "The factor by which each further ban is longer."
    ),
    Field::optional(
        "max",
        SPAN,
        "as long as `ban`",
        "The maximum duration of a ban, and the time after which a past ban is forgotten."
    ),
]);

/// Reads the overrides of a rule. If `rule` contains the rule's limits, all scales must be valid
/// for them.
pub(super) fn overrides(
    cursor: &Cursor<'_, '_>,
    rule: Option<&Limits>,
    report: &mut Report,
) -> Overrides {
    let mut overrides = Overrides::default();
    let form = "an object of keys: { alice: { scale: 10 }, \"team-*\": unlimited }";
    let members = cursor.members(form, report);
    if members.len() > MAX_OVERRIDES {
        let allowed = format!("at most {MAX_OVERRIDES}");
        report.error(cursor, "too many overrides", &allowed);
        return overrides;
    }
    for (key, at) in members {
        let is_key = check_key(key, &at, report);
        if let (Some(value), true) = (one(&at, rule, report), is_key) {
            overrides.set(key, Some(value));
        }
    }
    overrides
}

/// Reads the override for a single key. If `rule` contains the rule's limits, a scale must be valid
/// for them.
pub(super) fn one(
    cursor: &Cursor<'_, '_>,
    rule: Option<&Limits>,
    report: &mut Report,
) -> Option<Override> {
    if !cursor.value.is_object() {
        return word(cursor, report);
    }
    let fields = cursor.object(OVERRIDE.names, report)?;
    let (kind, value) = fields.one_of(OVERRIDE.choice, report)?;
    if kind == "limits" {
        let limits = limits::limits(&value, report)?;
        if limits.is_template() {
            let allowed = "fixed numbers, or a scale of the numbers that requests bring";
            report.error(&value, "the limits of an override are fixed", allowed);
            return None;
        }
        return Some(Override::Limits(limits));
    }
    let scale = value.decimal_of(SCALE, report)?;
    if rule.is_some_and(|limits| !fits_scale(limits, scale)) {
        report.add(misfit(value.path(), scale));
    }
    Some(Override::Scale(scale))
}

/// Returns a problem for a scale that would push the rule's limits out of bounds.
pub(super) fn misfit(at: Path, scale: Decimal) -> Problem {
    let written = serde_json::to_vec(&scale).unwrap_or_default();
    let value = serde_json::from_slice(&written).unwrap_or_default();
    let allowed = "a scale with which the rule's limits stay within their bounds";
    Problem::error(at, &value, "out of range for the rule's limits").allowed(allowed)
}

fn word(cursor: &Cursor<'_, '_>, report: &mut Report) -> Option<Override> {
    let found = cursor.value.as_str();
    let known = WORDS.into_iter().find(|(word, _)| found == Some(word));
    if known.is_none() {
        let problem = cursor.wrong("unknown value");
        let allowed = "unlimited, banned, { scale: 10 }, { limits: […] }";
        let suggestion = found.and_then(|found| nearest(found, &words(&WORDS)));
        report.add(problem.allowed(allowed).suggest(suggestion));
    }
    known.map(|(_, value)| value)
}

/// Checks the key of an override, and reports a problem if it is invalid. Bytes other than
/// printable ASCII must be escaped, as in bucket keys.
pub(super) fn check_key(pattern: &str, at: &Cursor<'_, '_>, report: &mut Report) -> bool {
    let key = pattern.strip_suffix('*').unwrap_or(pattern);
    let problem = |message: &str, allowed: &str| at.wrong_name(message).allowed(allowed);
    if pattern.is_empty() || key.len() > MAX_KEY {
        let allowed = format!("a key of 1 to {MAX_KEY} bytes, or a prefix of one and *");
        report.add(problem("invalid key", &allowed));
        return false;
    }
    if is_printable(key) {
        return true;
    }
    let escaped = escape(pattern);
    let allowed = "a key as buckets show it: bytes that are not printable ASCII as %XX";
    report.add(problem("invalid characters in a key", allowed).suggest(Some(&escaped)));
    false
}

/// Returns true if the key is well-formed: not too long, and entirely printable ASCII without
/// spaces.
pub fn is_key(key: &str) -> bool {
    !key.is_empty() && key.len() <= MAX_KEY && is_printable(key)
}

pub(super) fn is_printable(key: &str) -> bool {
    key.bytes().all(|b| b.is_ascii_graphic())
}

/// Escapes the bytes that keys must not contain.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_graphic() {
            escaped.push(char::from(byte));
        } else {
            escaped.extend([format!("%{byte:02X}")]);
        }
    }
    escaped
}

pub(super) fn penalty(cursor: &Cursor<'_, '_>, report: &mut Report) -> Option<Penalty> {
    let numbers = Numbers {
        fields: cursor.object(PENALTY.names, report)?,
        table: PENALTY.fields,
    };
    let after = numbers.integer("after", report);
    let within = numbers.duration("within", report);
    let ban = numbers.duration("ban", report);
    let factor = numbers.decimal("factor", report);
    let factor = numbers.or("factor", factor, FACTOR);
    let max = numbers.duration("max", report);
    let max = numbers.or("max", max, ban.unwrap_or_default());
    let (ban, max) = (ban?, max?);
    if max < ban {
        let at = cursor.path().field("max");
        let value = Value::from(max.to_string());
        let problem = Problem::error(at, &value, "shorter than the first ban");
        report.add(problem.allowed(format!("{ban} or more")));
    }
    Some(Penalty {
        after: u16::try_from(after?).ok()?,
        within: within?,
        ban,
        factor: factor?,
        max,
    })
}
