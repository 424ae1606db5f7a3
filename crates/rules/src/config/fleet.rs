//! Reads `fleet` and `scope`, and finds limits that cannot be shared by a fleet.

use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;

use loudou_limiter::algorithm::Algorithm;
use loudou_limiter::lease::Unfit;
use loudou_limiter::{Limit, Limits, Nanos};
use serde_json::Value;

use super::grammar::{Field, Form, Object, Text, object, words};
use super::limits::Numbers;
use super::problem::{Path, Problem};
use super::reader::written;
use super::reader::{Cursor, Report};
use crate::rule::{FleetSettings, OnOutage, Override, Overrides, Rule, Scope, Secret};

/// Maximum size of a cluster name, in bytes.
const MAX_CLUSTER: usize = 256;
/// Maximum size of a token, in bytes.
const MAX_TOKEN: usize = 256;
const LEASE: Nanos = Nanos::from_millis(200);
const TIMEOUT: Nanos = Nanos::from_millis(30);
const OUTAGES: [(&str, OnOutage); 3] = [
    ("local", OnOutage::Local),
    ("admit", OnOutage::Admit),
    ("refuse", OnOutage::Refuse),
];
/// Allowed values of the field `scope`.
pub(super) const SCOPES: [(&str, Scope); 2] = [("envoy", Scope::Envoy), ("fleet", Scope::Fleet)];
pub(super) const SCOPE: Field = Field::optional(
    "scope",
    Form::Word(&words(&SCOPES)),
    "envoy",
    "The Envoys that share the buckets: each has its own (envoy), or all of them share one per key (fleet).",
);
const CREDIT: Field = Field::optional(
    "credit",
    Form::Integer(0, 1_000),
    "0",
    "The cost that may pass per key and Envoy before the relay has answered. 0: no request passes without a \
     token.",
);
const ON_OUTAGE: Field = Field::optional(
    "on_outage",
    Form::Word(&words(&OUTAGES)),
    "local",
    "The decision while the relay does not answer: each Envoy limits alone, by the capacity and the rate \
     divided by the known number of Envoys (local), or requests pass (admit), or they are refused (refuse).",
);
const ENVOYS: Field = Field::optional(
    "envoys",
    Form::Integer(1, 10_000),
    "1",
    "The number of Envoys by which each divides the limits while the relay does not answer, until the relay has \
     reported how many there are.",
);
/// Grammar of the field `fleet`.
pub(super) const FLEET: Object = object!([
    Field::required(
        "cluster",
        Form::Text(Text::any(MAX_CLUSTER)),
        "The relay's cluster, by its name in Envoy's configuration."
    ),
    Field::optional(
        "lease",
        Form::Duration(&[Nanos::from_millis(10), Nanos::from_secs(10)]),
        "200ms",
        "The time for which an Envoy may use tokens that it was granted."
    ),
    Field::optional(
        "timeout",
        Form::Duration(&[Nanos::from_millis(1), Nanos::from_secs(1)]),
        "30ms",
        "The maximum time for a call to the relay, and the longest that a request waits for tokens."
    ),
    CREDIT,
    ON_OUTAGE,
    ENVOYS,
    Field::optional(
        "token",
        Form::Text(Text::like("^[!-~]+$", MAX_TOKEN)),
        "",
        "The shared secret that the relay requires, sent as `authorization: Bearer TOKEN`. Envoy's own \
         configuration dump shows it."
    ),
]);

pub(super) fn settings(cursor: &Cursor<'_, '_>, report: &mut Report) -> Option<FleetSettings> {
    let numbers = Numbers {
        fields: cursor.object(FLEET.names, report)?,
        table: FLEET.fields,
    };
    let fields = &numbers.fields;
    let cluster = fields.need("cluster", "the name of an Envoy cluster", report);
    let cluster = cluster.and_then(|cluster| cluster.text(MAX_CLUSTER, report));
    let lease = numbers.duration("lease", report);
    let timeout = numbers.duration("timeout", report);
    let credit = fields.get(CREDIT.name);
    let credit = match credit {
        Some(credit) => credit.integer_of(CREDIT, report),
        None => Some(0),
    };
    let on_outage = fields.get(ON_OUTAGE.name);
    let on_outage = on_outage.and_then(|outage| outage.word(&OUTAGES, report));
    let envoys = match fields.get(ENVOYS.name) {
        Some(envoys) => envoys.integer_of(ENVOYS, report),
        None => Some(1),
    };
    let token = fields.get("token");
    let token = token.and_then(|token| self::token(&token, report));
    Some(FleetSettings {
        cluster: cluster?.to_string(),
        lease: numbers.or("lease", lease, LEASE)?,
        timeout: numbers.or("timeout", timeout, TIMEOUT)?,
        credit: credit?,
        on_outage: on_outage.unwrap_or_default(),
        envoys: envoys?,
        token,
    })
}

/// Reads a secret. If the secret is invalid, the reported problem does not reveal its value.
fn token(cursor: &Cursor<'_, '_>, report: &mut Report) -> Option<Secret> {
    let text = cursor.value.as_str().unwrap_or("");
    let fits = (1..=MAX_TOKEN).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic());
    if !fits {
        let allowed = format!("1 to {MAX_TOKEN} printable characters of ASCII, without spaces");
        report.error(&cursor.with(&Value::Null), "invalid token", &allowed);
    }
    fits.then(|| Secret::new(text.to_string()))
}

/// Reports that a rule has fleet scope although the file configures no fleet.
pub(super) fn no_fleet(scope: &Cursor<'_, '_>, report: &mut Report) {
    let message = "`scope: fleet` needs the field `fleet` in the file";
    let allowed =
        "envoy, or fleet with `fleet: { cluster: NAME }` beside `rules`: the cluster of the relay";
    report.error(scope, message, allowed);
}

/// Replaces the message of `problem` with an explanation of why an edit cannot change the scope.
pub(super) fn not_edited(problem: &mut Problem) {
    problem.message =
        "an edit cannot change the scope, because each scope has separate buckets".into();
    problem.suggestion = None;
}

/// Returns a problem for each limit of the rule or its overrides that cannot be shared by a fleet.
/// The list is empty unless the rule has fleet scope. The problems' paths are relative to the rule.
pub fn unshared(rule: &Rule) -> Vec<Problem> {
    let (limits, overrides) = (
        Path::root().field("limits"),
        Path::root().field("overrides"),
    );
    if rule.scope == Scope::Envoy {
        return Vec::new();
    }
    let mut problems = of_limits(&rule.limits, &limits);
    problems.extend(of_overrides(&rule.overrides, &overrides));
    problems
}

/// Returns a problem for each of these limits that cannot be shared by a fleet. `at` is the path of
/// the limits.
pub(super) fn of_limits(limits: &Limits, at: &Path) -> Vec<Problem> {
    let largest = limits.largest();
    let limits = largest.iter().enumerate();
    let problems = limits.filter_map(|(index, limit)| of_limit(limit, &at.index(index)));
    problems.collect()
}

/// Returns a problem for each limit in these overrides that cannot be shared by a fleet. `at` is
/// the path of the overrides.
pub(super) fn of_overrides(overrides: &Overrides, at: &Path) -> Vec<Problem> {
    let own = overrides.iter().filter_map(|(pattern, own)| match own {
        Override::Limits(limits) => Some((pattern, limits)),
        _ => None,
    });
    let problems =
        own.flat_map(|(pattern, limits)| of_limits(limits, &at.field(&pattern).field("limits")));
    problems.collect()
}

fn of_limit(limit: &Limit, at: &Path) -> Option<Problem> {
    let name = limit.name();
    let (field, why, allowed) = match limit.algorithm().shared().err()? {
        Unfit::Algorithm => (
            "algorithm",
            "",
            "funnel, token_bucket, and fixed_window with align: clock, none of them with max_wait or initial",
        ),
        Unfit::MaxWait => (
            "max_wait",
            ": each Envoy would have its own queue",
            "0s with scope: fleet",
        ),
        Unfit::Initial => (
            "initial",
            ": an unused bucket is always full",
            "the capacity with scope: fleet",
        ),
        Unfit::Clock => (
            period_field(limit),
            ": the engine's clock has whole microseconds",
            "a period of whole microseconds, with scope: fleet",
        ),
        Unfit::Align => (
            "align",
            ": its windows begin at another time in each Envoy",
            "clock with scope: fleet",
        ),
        Unfit::Calendar => (
            "window",
            ": the engine's windows all have one length",
            "a duration with scope: fleet, such as 1d with align: clock",
        ),
    };
    let value = written(limit).get(field).cloned().unwrap_or_default();
    let message = format!("a fleet cannot share the limit `{name}`{why}");
    Some(Problem::error(at.field(field), &value, message).allowed(allowed))
}

/// Name of the field that contains a limit's period.
const fn period_field(limit: &Limit) -> &'static str {
    match limit.algorithm() {
        Algorithm::FixedWindow(_) => "window",
        _ => "rate",
    }
}
