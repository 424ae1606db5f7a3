//! Reads `limits`.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use loudou_limiter::algorithm::Algorithm;
use loudou_limiter::bounds::{BadNumbers, MAX_AMOUNT, MAX_DRAIN, MAX_WAIT};
use loudou_limiter::{Limit, Limits, MAX_BUCKET_WORDS, MAX_LIMITS, Nanos};
use serde_json::Value;

use super::grammar::{Doc, Field, Form, List, Text, written_as};
use super::problem::Problem;
use super::reader::{Cursor, Report};
use super::suggest::nearest;
use super::{NameKind, name};
use crate::joined::joined;

mod concurrency;
mod leaks;
mod numbers;
#[cfg(feature = "words")]
mod phrase;
mod shaping;
pub(super) mod sources;
pub(super) mod windows;

pub(super) use numbers::{Numbers, duration};
#[cfg(feature = "words")]
pub use phrase::phrase;

/// An algorithm and its fields in rule files.
struct Entry {
    name: &'static str,
    /// Description of the algorithm in one or two sentences.
    doc: Doc,
    fields: &'static [Field],
    read: Read,
    /// Returns a phrase describing a limit that uses this algorithm.
    #[cfg(feature = "words")]
    phrase: fn(&phrase::Phrase) -> Option<String>,
}

/// Function that reads an algorithm from the fields of a limit. It returns `None` after reporting
/// an invalid field.
type Read = fn(&Numbers<'_, '_>, &mut Report) -> Option<Result<Algorithm, BadNumbers>>;

const ENTRIES: &[Entry] = &[
    leaks::FUNNEL,
    leaks::TOKEN_BUCKET,
    windows::FIXED_WINDOW,
    windows::SLIDING_WINDOW,
    windows::SLIDING_LOG,
    windows::SLIDING_COUNTER,
    shaping::LEAKY_QUEUE,
    shaping::SMOOTH_BURSTY,
    shaping::SMOOTH_WARMUP,
    concurrency::CONCURRENCY,
];

/// Grammar of a limit's name.
pub(super) const NAME: Text = Text::like("^[a-z0-9_-]{1,63}$", 0);
/// Grammar of a bucket's limits.
pub(super) const LIMITS: List = List {
    fewest: 1,
    most: MAX_LIMITS,
    item: Field::value(Form::OneOf(&DEFINED), ""),
};
/// References to the definitions of all algorithms.
const DEFINED: [Field; ENTRIES.len()] = {
    let mut defined = [Field::value(Form::Null, ""); ENTRIES.len()];
    let mut from = ENTRIES;
    let mut to: &mut [Field] = &mut defined;
    while let (Some((entry, rest)), Some((field, others))) =
        (from.split_first(), { to }.split_first_mut())
    {
        field.form = Form::Defined(entry.name);
        from = rest;
        to = others;
    }
    defined
};

/// Fields common to all limits.
pub const COMMON: [&str; 2] = ["name", "algorithm"];

const CAPACITY: Field = Field::required(
    "capacity",
    Form::Integer(1, MAX_AMOUNT),
    "The maximum cost that is admitted at once.",
)
.or_sourced("number_from_metadata");
const RATE: Field = Field::required(
    "rate",
    Form::Rate,
    "The rate at which capacity is refilled.",
)
.or_sourced("rate_from_metadata");

const MAX_WAIT_FIELD: Field = Field::optional(
    "max_wait",
    Form::Duration(&[Nanos::ZERO, MAX_WAIT]),
    "0s",
    "The maximum time that a request is held instead of being refused.",
);

/// Returns an algorithm's fields in documentation order. The list is empty if the algorithm is
/// unknown.
pub fn fields(algorithm: &str) -> &'static [Field] {
    known(algorithm).map_or(&[], |entry| entry.fields)
}

/// Returns the algorithm with this name or alias.
fn known(name: &str) -> Option<&'static Entry> {
    let name = written_as(name).unwrap_or(name);
    ENTRIES.iter().find(|entry| entry.name == name)
}

/// Returns the names and descriptions of all algorithms.
pub(super) fn docs() -> impl Iterator<Item = (&'static str, &'static str)> {
    ENTRIES.iter().map(|entry| (entry.name, entry.doc.text()))
}

pub(super) fn limits(cursor: &Cursor<'_, '_>, report: &mut Report) -> Option<Limits> {
    let cursors = cursor.list(report)?;
    if cursors.is_empty() || cursors.len() > MAX_LIMITS {
        let message = format!("{} limits", cursors.len());
        report.error(cursor, &message, &format!("1 to {MAX_LIMITS} limits"));
        return None;
    }
    let mut limits: Vec<Limit> = Vec::with_capacity(cursors.len());
    let mut names: Vec<&str> = Vec::with_capacity(cursors.len());
    for cursor in &cursors {
        let limit = limit(cursor, report);
        // The name of an invalid limit also counts as taken.
        if let Some(name) = own_name(cursor.value) {
            if names.contains(&name) {
                let at = cursor.path().field("name");
                let message = "duplicate limit name in this rule";
                report.add(Problem::error(at, &Value::from(name), message));
                continue;
            }
            names.push(name);
        }
        limits.extend(limit);
    }
    if limits.len() != cursors.len() {
        return None;
    }
    let fits = |limits: &Limits| limits.largest().words() <= MAX_BUCKET_WORDS;
    let limits = Limits::new(limits).filter(fits);
    if limits.is_none() {
        let bytes = MAX_BUCKET_WORDS.saturating_mul(size_of::<u64>());
        let allowed = format!("limits with at most {bytes} bytes of state together");
        report.error(cursor, "too much state for one bucket", &allowed);
    }
    limits
}

/// Returns the name of a limit, which defaults to the name of its algorithm.
fn own_name(limit: &Value) -> Option<&str> {
    let name = limit.get("name").filter(|name| !name.is_null());
    if let Some(name) = name {
        return name.as_str();
    }
    let algorithm = limit.get("algorithm")?.as_str()?;
    Some(written_as(algorithm).unwrap_or(algorithm))
}

fn limit(cursor: &Cursor<'_, '_>, report: &mut Report) -> Option<Limit> {
    let entry = entry(cursor, report)?;
    let written = cursor.object(&allowed(entry), report)?;
    let (sources, fixed) = sources::read((&written, entry.fields), cursor.value, report)?;
    let fixed = fixed.as_ref().map_or(*cursor, |fixed| cursor.with(fixed));
    // The field names have already been checked above, so this call reports no problems.
    let fields = fixed.object(&allowed(entry), &mut Report::default())?;
    let name = match fields.get("name") {
        Some(cursor) => name(&cursor, NameKind::Limit, report),
        None => Some(String::from(entry.name)),
    };
    let numbers = Numbers {
        fields,
        table: entry.fields,
    };
    let algorithm = (entry.read)(&numbers, report);
    match (name, algorithm?) {
        (Some(_), Ok(algorithm)) if sources.amount.is_some() && algorithm.may_hold() => {
            let rate = written.get("rate").unwrap_or(*cursor);
            let message = "a rate from metadata is not possible for a limit that holds requests, because their turns are \
                           computed with the rate";
            report.error(&rate, message, "a fixed rate, or max_wait: 0s");
            None
        }
        (Some(name), Ok(algorithm)) => {
            let limit = Limit::new(name, algorithm).sourced(sources);
            match limit.check_sources() {
                Ok(()) => Some(limit),
                Err(bad) => {
                    let problem = bad_numbers(bad, cursor, &numbers);
                    let message = format!(
                        "with the numbers that requests may bring: {}",
                        problem.message
                    );
                    report.add(Problem { message, ..problem });
                    None
                }
            }
        }
        (None, Ok(_)) => None,
        (_, Err(bad)) => {
            report.add(bad_numbers(bad, cursor, &numbers));
            None
        }
    }
}

fn allowed(entry: &Entry) -> Vec<&'static str> {
    let own = entry.fields.iter().map(|field| field.name);
    COMMON.into_iter().chain(own).collect()
}

/// Reads the field `algorithm`, which determines the other fields of the limit.
fn entry(cursor: &Cursor<'_, '_>, report: &mut Report) -> Option<&'static Entry> {
    let names = joined(Algorithm::NAMES, ", ");
    let Some(object) = cursor.value.as_object() else {
        cursor.object(&["name", "algorithm", "…"], report)?;
        return None;
    };
    let Some(value) = object.get("algorithm") else {
        let message = "`algorithm` is missing";
        report.add(Problem::error(cursor.path(), &Value::Null, message).allowed(names));
        look_over(cursor, report);
        return None;
    };
    let text = value.as_str().unwrap_or("");
    let known = known(text);
    if known.is_none() {
        let at = cursor.path().field("algorithm");
        let problem = Problem::error(at, value, "unknown algorithm").allowed(names);
        report.add(problem.suggest(nearest(text, Algorithm::NAMES)));
        look_over(cursor, report);
    }
    known
}

/// Reports further problems with a limit whose algorithm is unknown: fields that no algorithm has,
/// and numbers that no algorithm accepts.
fn look_over(cursor: &Cursor<'_, '_>, report: &mut Report) {
    let mut all: Vec<&str> = COMMON.to_vec();
    for field in ENTRIES.iter().flat_map(|entry| entry.fields) {
        if !all.contains(&field.name) {
            all.push(field.name);
        }
    }
    let Some(fields) = cursor.object(&all, report) else {
        return;
    };
    let numbers = Numbers {
        fields,
        table: &[CAPACITY, RATE],
    };
    for field in numbers.table {
        match field.form {
            _ if !numbers.has(field.name) => {}
            Form::Integer(..) => drop(numbers.integer(field.name, report)),
            _ => drop(numbers.rate(field.name, report)),
        }
    }
}

fn bad_numbers(bad: BadNumbers, cursor: &Cursor<'_, '_>, numbers: &Numbers<'_, '_>) -> Problem {
    let (field, message, allowed) = match bad {
        BadNumbers::Capacity => ("capacity", "out of range", CAPACITY.form.allowed()),
        BadNumbers::Rate => ("rate", "out of range", RATE.form.allowed()),
        BadNumbers::Drain => {
            let allowed = format!(
                "a capacity and a rate with which a full bucket empties within {MAX_DRAIN}"
            );
            ("rate", "too slow for this capacity", allowed)
        }
        BadNumbers::Initial => ("initial", "above the capacity", "0 to capacity".to_string()),
        BadNumbers::Align => {
            let allowed = "process, or refill: interval".to_string();
            (
                "align",
                "continuous refills have no periods to align",
                allowed,
            )
        }
        BadNumbers::Window => ("window", "out of range", windows::WINDOW.form.allowed()),
        BadNumbers::Slots => ("slots", "out of range", windows::SLOTS.form.allowed()),
        BadNumbers::SlotCapacity => {
            let allowed = "capacity/slots, rounded up, to capacity".to_string();
            (
                "slot_capacity",
                "with this the capacity cannot be reached",
                allowed,
            )
        }
        BadNumbers::Burst => {
            let allowed = format!("numbers with which at most {MAX_AMOUNT} pass at once");
            ("burst_seconds", "too much for this rate", allowed)
        }
        BadNumbers::Warmup => ("warmup", "out of range", shaping::WARMUP.form.allowed()),
        BadNumbers::ColdFactor => (
            "cold_factor",
            "out of range",
            shaping::COLD_FACTOR.form.allowed(),
        ),
        BadNumbers::Lease => (
            "lease",
            "out of range",
            concurrency::LEASE_FIELD.form.allowed(),
        ),
        BadNumbers::MaxWait => ("max_wait", "out of range", MAX_WAIT_FIELD.form.allowed()),
    };
    let value = numbers.fields.get(field);
    let value = value.map_or(&Value::Null, |field| field.value);
    Problem::error(cursor.path().field(field), value, message).allowed(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_algorithm_can_be_read() {
        let names: Vec<&str> = ENTRIES.iter().map(|entry| entry.name).collect();
        assert_eq!(names, Algorithm::NAMES);
    }
}
