//! Reading `limits`.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use serde_json::Value;

use super::problem::Problem;
use super::reader::{Cursor, Fields, Report};
use super::suggest::nearest;
use super::{NameKind, name};
use crate::algorithm::{
    Algorithm, BadNumbers, Funnel, MAX_AMOUNT, MAX_DRAIN, MAX_PERIOD, Refill, TokenBucket,
};
use crate::limit::{Limit, Limits, MAX_LIMITS};
use crate::rate::{RATE_FORM, Rate};

const FUNNEL: [&str; 4] = ["name", "algorithm", "capacity", "rate"];
const TOKEN_BUCKET: [&str; 6] = ["name", "algorithm", "capacity", "rate", "refill", "initial"];
const REFILLS: [(&str, Refill); 2] = [("greedy", Refill::Greedy), ("interval", Refill::Interval)];

pub(super) fn limits(cursor: &Cursor<'_>, report: &mut Report) -> Option<Limits> {
    let cursors = cursor.list(report)?;
    if cursors.is_empty() || cursors.len() > MAX_LIMITS {
        let message = format!("{} limits", cursors.len());
        report.error(cursor, message, &format!("1 to {MAX_LIMITS} limits"));
        return None;
    }
    let mut limits: Vec<Limit> = Vec::with_capacity(cursors.len());
    let mut names: Vec<&str> = Vec::with_capacity(cursors.len());
    for cursor in &cursors {
        let limit = limit(cursor, report);
        // A limit with a problem of its own has taken its name, too.
        if let Some(name) = own_name(cursor.value) {
            if names.contains(&name) {
                let at = cursor.path.field("name");
                let message = "another limit of this rule has this name";
                report.add(Problem::error(at, &Value::from(name), message));
                continue;
            }
            names.push(name);
        }
        limits.extend(limit);
    }
    if limits.len() == cursors.len() {
        Limits::new(limits)
    } else {
        None
    }
}

/// The name of a limit: that of its algorithm where it has none.
fn own_name(limit: &Value) -> Option<&str> {
    let name = limit.get("name").filter(|name| !name.is_null());
    name.or_else(|| limit.get("algorithm"))?.as_str()
}

fn limit(cursor: &Cursor<'_>, report: &mut Report) -> Option<Limit> {
    let algorithm = algorithm_name(cursor, report)?;
    let allowed: &[&str] = if algorithm == "funnel" {
        &FUNNEL
    } else {
        &TOKEN_BUCKET
    };
    let fields = cursor.object(allowed, report)?;
    let name = match fields.get("name") {
        Some(cursor) => name(&cursor, NameKind::Limit, report),
        None => Some(String::from(algorithm)),
    };
    let capacity = fields.need("capacity", "a whole number", report);
    let capacity = capacity.and_then(|capacity| capacity.integer(1, MAX_AMOUNT, report));
    let rate = fields
        .need("rate", RATE_FORM, report)
        .and_then(|rate| self::rate(&rate, report));
    let options = (algorithm == "token_bucket").then(|| token_bucket(&fields, capacity, report));
    let (name, capacity, rate) = (name?, u64::from(capacity?), rate?);
    let algorithm = match options {
        None => Funnel::new(capacity, rate).map(Algorithm::Funnel),
        Some((refill, initial)) => {
            let initial = initial.map_or(capacity, u64::from);
            TokenBucket::new(capacity, rate, refill, initial).map(Algorithm::TokenBucket)
        }
    };
    match algorithm {
        Ok(algorithm) => Some(Limit::new(name, algorithm)),
        Err(bad) => {
            report.add(bad_numbers(bad, cursor, &fields));
            None
        }
    }
}

/// The algorithm, read first because the other fields depend on it.
fn algorithm_name(cursor: &Cursor<'_>, report: &mut Report) -> Option<&'static str> {
    let allowed = Algorithm::NAMES.join(", ");
    if !cursor.value.is_object() {
        cursor.object(&TOKEN_BUCKET, report)?;
    }
    let Some(value) = cursor.value.get("algorithm") else {
        let message = "`algorithm` is missing";
        report.add(Problem::error(cursor.path.clone(), &Value::Null, message).allowed(allowed));
        cursor.object(&TOKEN_BUCKET, report)?;
        return None;
    };
    let text = value.as_str().unwrap_or("");
    let known = Algorithm::NAMES.into_iter().find(|known| *known == text);
    if known.is_none() {
        let at = cursor.path.field("algorithm");
        let problem = Problem::error(at, value, "unknown algorithm").allowed(allowed);
        report.add(problem.suggest(nearest(text, &Algorithm::NAMES)));
        // The numbers can still be looked at.
        let fields = cursor.object(&TOKEN_BUCKET, report)?;
        fields
            .get("capacity")
            .and_then(|capacity| capacity.integer(1, MAX_AMOUNT, report));
        fields
            .get("rate")
            .and_then(|rate| self::rate(&rate, report));
    }
    known
}

fn token_bucket(
    fields: &Fields<'_>,
    capacity: Option<u32>,
    report: &mut Report,
) -> (Refill, Option<u32>) {
    let refill = fields
        .get("refill")
        .and_then(|refill| refill.word(&REFILLS, report));
    let most = capacity.unwrap_or(MAX_AMOUNT);
    let initial = fields
        .get("initial")
        .and_then(|initial| initial.integer(0, most, report));
    (refill.unwrap_or_default(), initial)
}

fn rate(cursor: &Cursor<'_>, report: &mut Report) -> Option<Rate> {
    let rate = cursor.value.as_str().and_then(Rate::parse);
    let fits = rate.filter(|rate| rate.amount() <= MAX_AMOUNT && rate.period() <= MAX_PERIOD);
    if fits.is_none() {
        let text = cursor.value.as_str().unwrap_or("");
        let message = match rate {
            Some(_) => "out of range",
            None if is_nothing(text) => "a rate of nothing never admits",
            None => "not a rate",
        };
        let allowed = format!("{RATE_FORM}; at most {MAX_AMOUNT} per {MAX_PERIOD}");
        report.add(Problem::error(cursor.path.clone(), cursor.value, message).allowed(allowed));
    }
    fits
}

/// Whether the amount or the period of a rate is zero.
fn is_nothing(rate: &str) -> bool {
    let zero = |number: &str| !number.is_empty() && number.bytes().all(|b| b == b'0');
    rate.split_once('/').is_some_and(|(amount, period)| {
        zero(amount) || zero(period.trim_end_matches(|c: char| c.is_ascii_alphabetic()))
    })
}

fn bad_numbers(bad: BadNumbers, cursor: &Cursor<'_>, fields: &Fields<'_>) -> Problem {
    let (field, message, allowed) = match bad {
        BadNumbers::Capacity => ("capacity", "out of range", format!("1 to {MAX_AMOUNT}")),
        BadNumbers::Rate => ("rate", "out of range", RATE_FORM.to_string()),
        BadNumbers::Drain => {
            let allowed = format!("numbers with which a full bucket empties within {MAX_DRAIN}");
            ("rate", "too slow for this capacity", allowed)
        }
        BadNumbers::Initial => ("initial", "above the capacity", "0 to capacity".to_string()),
    };
    let value = fields.get(field).map_or(&Value::Null, |field| field.value);
    Problem::error(cursor.path.field(field), value, message).allowed(allowed)
}
