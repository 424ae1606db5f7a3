//! Reads the fields of an object according to their grammar.

use alloc::format;

use loudou_limiter::bounds::{MAX_AMOUNT, MAX_PERIOD};
use loudou_limiter::{Decimal, Nanos, Rate};
use serde_json::Value;

use crate::config::grammar::{Field, Form};
use crate::config::reader::{Cursor, Fields, Report};
use crate::config::suggest::nearest;

/// Reads the fields of an object according to their grammar. A getter returns `None` if the field
/// is absent or invalid. It reports the field if it is invalid, or if it is absent and has no
/// default.
#[derive(Debug)]
pub(in crate::config) struct Numbers<'a, 'c> {
    pub(in crate::config) fields: Fields<'a, 'c>,
    pub(in crate::config) table: &'static [Field],
}

impl<'a, 'c> Numbers<'a, 'c> {
    /// Returns the field `name` and its form, if the field is present. Reports an absent field that
    /// has no default.
    pub(super) fn field(&self, name: &str, report: &mut Report) -> Option<(Cursor<'a, 'c>, Form)> {
        let field = self.table.iter().find(|field| field.name == name)?;
        let cursor = match field.default {
            Some(_) => self.fields.get(name),
            None => self.fields.need(name, &field.form.allowed(), report),
        };
        Some((cursor?, field.form))
    }

    /// Returns true if the field is present.
    pub(in crate::config) fn has(&self, name: &str) -> bool {
        self.fields.get(name).is_some()
    }

    /// Returns `value` if the field is present, and `default` otherwise.
    pub(in crate::config) fn or<T>(&self, name: &str, value: Option<T>, default: T) -> Option<T> {
        if self.has(name) { value } else { Some(default) }
    }

    pub(in crate::config) fn integer(&self, name: &str, report: &mut Report) -> Option<u32> {
        match self.field(name, report)? {
            (cursor, Form::Integer(least, most)) => cursor.integer(least, most, report),
            _ => None,
        }
    }

    /// Reads a whole number. `most` is an additional upper bound, derived from another field.
    pub(in crate::config) fn integer_up_to(
        &self,
        name: &str,
        most: u32,
        report: &mut Report,
    ) -> Option<u32> {
        match self.field(name, report)? {
            (cursor, Form::Integer(least, bound)) => cursor.integer(least, most.min(bound), report),
            _ => None,
        }
    }

    pub(in crate::config) fn decimal(&self, name: &str, report: &mut Report) -> Option<Decimal> {
        let (cursor, form) = self.field(name, report)?;
        let Form::Decimal(least, most) = form else {
            return None;
        };
        cursor.decimal(least, most, report)
    }

    /// Reads a number with decimals. `most` is an additional upper bound, derived from another
    /// field.
    pub(in crate::config) fn decimal_up_to(
        &self,
        name: &str,
        most: Decimal,
        report: &mut Report,
    ) -> Option<Decimal> {
        match self.field(name, report)? {
            (cursor, Form::Decimal(least, bound)) => cursor.decimal(least, most.min(bound), report),
            _ => None,
        }
    }

    pub(in crate::config) fn boolean(&self, name: &str, report: &mut Report) -> Option<bool> {
        self.field(name, report)?.0.boolean(report)
    }

    pub(in crate::config) fn rate(&self, name: &str, report: &mut Report) -> Option<Rate> {
        rate(&self.field(name, report)?.0, report)
    }

    pub(in crate::config) fn duration(&self, name: &str, report: &mut Report) -> Option<Nanos> {
        match self.field(name, report)? {
            (cursor, form @ Form::Duration(_)) => duration(&cursor, form, report),
            _ => None,
        }
    }

    /// Reads the field `max_wait`, or returns its default.
    pub(in crate::config) fn max_wait(&self, default: Nanos, report: &mut Report) -> Option<Nanos> {
        let max_wait = self.duration("max_wait", report);
        self.or("max_wait", max_wait, default)
    }

    pub(in crate::config) fn word<T: Copy>(
        &self,
        name: &str,
        words: &[(&str, T)],
        report: &mut Report,
    ) -> Option<T> {
        self.field(name, report)?.0.word(words, report)
    }
}

fn rate(cursor: &Cursor<'_, '_>, report: &mut Report) -> Option<Rate> {
    let rate = cursor.value.as_str().and_then(Rate::parse);
    let fits = rate.filter(|rate| rate.amount() <= MAX_AMOUNT && rate.period() <= MAX_PERIOD);
    if fits.is_none() {
        let text = cursor.value.as_str().unwrap_or("");
        let message = match rate {
            Some(_) => "out of range",
            None if is_zero_rate(text) => "a rate of zero never admits",
            None => "invalid rate",
        };
        let problem = cursor.wrong(message);
        report.add(problem.allowed(Form::Rate.allowed()));
    }
    fits
}

/// Returns true if the amount or the period of a rate is zero.
fn is_zero_rate(rate: &str) -> bool {
    let zero = |number: &str| !number.is_empty() && number.bytes().all(|b| b == b'0');
    rate.split_once('/').is_some_and(|(amount, period)| {
        zero(amount) || zero(period.trim_end_matches(|c: char| c.is_ascii_alphabetic()))
    })
}

/// Reads a duration. `form` must allow durations, but may also allow other values.
pub(in crate::config) fn duration(
    cursor: &Cursor<'_, '_>,
    form: Form,
    report: &mut Report,
) -> Option<Nanos> {
    let [least, most] = form.duration()?;
    let duration = cursor.value.as_str().and_then(Nanos::parse);
    let fits = duration.filter(|duration| (least..=most).contains(duration));
    if fits.is_none() {
        let text = cursor.value.as_str().unwrap_or("");
        let message = if duration.is_some() {
            "out of range"
        } else {
            "invalid duration"
        };
        let problem = cursor.wrong(message);
        let number = match cursor.value {
            Value::Number(number) => Some(format!("{number}s")),
            Value::String(text) if text.bytes().all(|b| b.is_ascii_digit()) => {
                Some(format!("{text}s"))
            }
            _ => None,
        };
        let meant = number.filter(|text| Nanos::parse(text).is_some());
        let meant = meant.as_deref().or_else(|| nearest(text, form.words()));
        report.add(problem.suggest(meant).allowed(form.allowed()));
    }
    fits
}
