//! Reads the fields of a limit whose numbers are taken from each request's metadata.

use alloc::format;

use loudou_limiter::bounds::{MAX_AMOUNT, MAX_PERIOD};
use loudou_limiter::{Nanos, Source, Sources};
use serde_json::Value;

use super::numbers::Numbers;
use crate::config::grammar::{Field, Form, Object, object};
use crate::config::named::{METADATA_FORM, METADATA_PATH, metadata_path};
use crate::config::reader::{Cursor, Fields, Report};

const AMOUNT: Form = Form::Integer(1, MAX_AMOUNT);
const DEFAULT: Field = Field::required(
    "default",
    AMOUNT,
    "The number for a request that brings none, or a wrong one.",
);
const MAX: Field = Field::required(
    "max",
    AMOUNT,
    "The maximum number. Larger numbers count as this.",
);
/// Grammar of a number taken from each request.
pub(in crate::config) const NUMBER: Object = object!([
    Field::required(
        "metadata",
        METADATA_PATH,
        "The path of the number, a whole number from 1, in the dynamic metadata of earlier filters: the namespace, and \
         the keys below it.",
    ),
    DEFAULT,
    MAX,
]);
/// Grammar of a rate whose amount is taken from each request.
pub(in crate::config) const RATE: Object = object!([
    Field::required(
        "amount",
        Form::Defined("number_from_metadata"),
        "The amount of the rate.",
    ),
    PER,
]);
const PER: Field = Field::required(
    "per",
    Form::Duration(&[Nanos::new(1), MAX_PERIOD]),
    "The period of the rate.",
);

/// Reads the sources of a limit's numbers. If there are any, also returns a copy of the limit in which the default
/// numbers replace the sources. Returns `None` after reporting a problem.
pub(super) fn read(
    (fields, table): (&Fields<'_, '_>, &[Field]),
    limit: &Value,
    report: &mut Report,
) -> Option<(Sources, Option<Value>)> {
    let mut sources = Sources::default();
    let mut fixed: Option<Value> = None;
    let mut fix = |field: &str, value: Value| {
        let fixed = fixed.get_or_insert_with(|| limit.clone());
        if let Some(place) = fixed.get_mut(field) {
            *place = value;
        }
    };
    let is_fixed = |field: &&Field| field.name == "rate" && field.sourced.is_none();
    if let Some(rate) = fields.get("rate").filter(|own| own.value.is_object())
        && table.iter().any(|field| is_fixed(&field))
    {
        let message =
            "a rate from metadata is not possible here, because warm-up belongs to one rate";
        report.error(&rate, message, "a fixed rate");
        return None;
    }
    let object = |name: &str| {
        let field = table.iter().find(|field| field.name == name)?;
        let own = fields.get(name).filter(|own| own.value.is_object())?;
        field.sourced.map(|_| (own, field.form))
    };
    if let Some((capacity, form)) = object("capacity") {
        let most = match form {
            Form::Integer(_, most) => most,
            _ => MAX_AMOUNT,
        };
        let source = number(&capacity, most, report)?;
        fix("capacity", Value::from(source.default));
        sources.capacity = Some(source);
    }
    if let Some((rate, _)) = object("rate") {
        let parts = rate.object(RATE.names, report)?;
        let amount = parts.need("amount", &NUMBER.names.join(", "), report);
        let amount = amount.and_then(|amount| number(&amount, MAX_AMOUNT, report));
        let numbers = Numbers {
            fields: parts,
            table: &[PER],
        };
        let per = numbers.duration("per", report);
        let (amount, per) = (amount?, per?);
        fix("rate", Value::from(format!("{}/{per}", amount.default)));
        sources.amount = Some(amount);
    }
    // `initial` and `slot_capacity` are not allowed, because their meaning depends on the capacity.
    if sources.capacity.is_some() {
        for name in ["initial", "slot_capacity"] {
            if let Some(given) = fields.get(name) {
                let message = "not possible with a capacity from metadata, which it follows";
                report.error(&given, message, "nothing");
                return None;
            }
        }
    }
    Some((sources, fixed))
}

fn number(cursor: &Cursor<'_, '_>, most: u32, report: &mut Report) -> Option<Source> {
    let fields = cursor.object(NUMBER.names, report)?;
    let path = fields.need("metadata", METADATA_FORM, report);
    let metadata = path.and_then(|path| metadata_path(&path, report));
    let default = fields.need("default", &DEFAULT.form.allowed(), report);
    let default = default.and_then(|default| default.integer(1, most, report));
    let max = fields.need("max", &MAX.form.allowed(), report);
    let max = max.and_then(|max| max.integer(default.unwrap_or(1), most, report));
    Some(Source {
        metadata: metadata?,
        default: default?,
        max: max?,
    })
}
