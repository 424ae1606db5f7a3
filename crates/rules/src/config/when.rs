//! Reading `when`.

use loudou_limiter::{Decimal, Nanos};
use loudou_store::When;

use super::grammar::{Field, Form, Object, object};
use super::limits::Numbers;
use super::reader::{Cursor, Report};

const SMALLEST: Decimal = Decimal::from_thousandths(1);
const ALL: Decimal = Decimal::from_thousandths(1_000);
const WITHIN: Nanos = Nanos::from_secs(10);
const LEAST: u32 = 20;

/// The fields of `when`.
pub(super) const WHEN: Object = object!([
    Field::required(
        "upstream_error_rate_over",
        Form::Decimal(SMALLEST, ALL),
        "The rule starts to apply when more than this share of an upstream's responses are errors: its \
         own 5xx and 429, timeouts, resets, and failed connections."
    ),
    Field::optional(
        "until_under",
        Form::Decimal(SMALLEST, ALL),
        "half of upstream_error_rate_over",
        "The rule applies until the share is below this, or until there are no responses; at most \
             upstream_error_rate_over."
    ),
    Field::optional(
        "within",
        Form::Duration(&[Nanos::from_secs(1), Nanos::from_secs(3_600)]),
        "10s",
        "The period in which responses are counted."
    ),
    Field::optional(
        "least",
        Form::Integer(1, 1_000_000),
        "20",
        "The minimum number of responses; with fewer, the rule does not start to apply."
    ),
]);

pub(super) fn when(cursor: &Cursor<'_, '_>, report: &mut Report) -> Option<When> {
    let numbers = Numbers {
        fields: cursor.object(WHEN.names, report)?,
        table: WHEN.fields,
    };
    let over = numbers.decimal("upstream_error_rate_over", report);
    let until_under = numbers.decimal_up_to("until_under", over.unwrap_or(ALL), report);
    let within = numbers.duration("within", report);
    let least = numbers.integer("least", report);
    let half = Decimal::from_thousandths(over.unwrap_or(ALL).thousandths() / 2).max(SMALLEST);
    Some(When {
        over: over?,
        until_under: numbers.or("until_under", until_under, half)?,
        within: numbers.or("within", within, WITHIN)?,
        least: numbers.or("least", least, LEAST)?,
    })
}
