//! Reading `when`.

use alloc::vec::Vec;

use loudou_limiter::{Decimal, Nanos};
use loudou_store::When;

use super::limits::field::{Field, Form, Numbers, about};
use super::reader::{Cursor, Report};

const SMALLEST: Decimal = Decimal::from_thousandths(1);
const ALL: Decimal = Decimal::from_thousandths(1_000);
const WITHIN: Nanos = Nanos::from_secs(10);
const LEAST: u32 = 20;

/// The fields of `when`.
pub(super) const FIELDS: &[Field] = &[
    Field {
        name: "upstream_error_rate_over",
        form: Form::Decimal(SMALLEST, ALL),
        default: None,
        doc: about(
            "The rule applies once more than this share of an upstream's responses are errors: 5xx and 429 of its \
             own, time-outs, resets, and connections that fail.",
        ),
    },
    Field {
        name: "until_under",
        form: Form::Decimal(SMALLEST, ALL),
        default: Some("half of upstream_error_rate_over"),
        doc: about(
            "It applies until the share is under this, or until there are no responses; at most \
             upstream_error_rate_over.",
        ),
    },
    Field {
        name: "within",
        form: Form::Duration(Nanos::from_secs(1), Nanos::from_secs(3_600)),
        default: Some("10s"),
        doc: about("The time over which responses are counted."),
    },
    Field {
        name: "least",
        form: Form::Integer(1, 1_000_000),
        default: Some("20"),
        doc: about("With fewer responses than this, the rule does not begin to apply."),
    },
];

pub(super) fn when(cursor: &Cursor<'_, '_>, report: &mut Report) -> Option<When> {
    let names: Vec<&str> = FIELDS.iter().map(|field| field.name).collect();
    let numbers = Numbers {
        fields: cursor.object(&names, report)?,
        table: FIELDS,
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
