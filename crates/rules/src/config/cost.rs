//! Reads `cost`.

use alloc::format;

use loudou_limiter::bounds::MAX_AMOUNT;

use super::grammar::{Field, Form, Object, object};
use super::named::{HEADER_NAME, METADATA_PATH, Named, metadata_path, name};
use super::reader::{Cursor, Report};
use super::settlement::{self, LLM_TOKENS};
use super::suggest::nearest;
use crate::joined::joined;
use crate::rule::Cost;

const AMOUNT: Form = Form::Integer(1, MAX_AMOUNT);
const DEFAULT: Field = Field::optional(
    "default",
    AMOUNT,
    "",
    "The cost if the value is missing or invalid. Default: 1.",
);
const REQUEST_BYTES: Field = Field::optional(
    "request_bytes",
    Form::Integer(1, u32::MAX),
    "",
    "One unit per this many bytes of the content length, rounded up; at least one.",
);
/// Grammar of a cost: a number, a word, or [`COST`].
pub(super) const COSTS: Form = Form::Or(&[
    Field::value(AMOUNT, ""),
    Field::value(Form::Word(&[LLM_TOKENS]), ""),
    Field::value(Form::Defined("cost"), ""),
]);
/// Grammar of a cost in object form.
pub(super) const COST: Object = object!(
    [
        Field::optional(
            "header",
            HEADER_NAME,
            "",
            "The value of this header, a whole number from 1.",
        ),
        Field::optional(
            "metadata",
            METADATA_PATH,
            "",
            "The value in the dynamic metadata of earlier filters, a whole number from 1: the namespace, and the \
             keys below it.",
        ),
        DEFAULT,
        Field::optional(
            "max",
            AMOUNT,
            "",
            "With `header` or `metadata`: the maximum cost. With `settle`: the maximum reservation. Larger values count \
             as this.",
        ),
        REQUEST_BYTES,
        Field::optional(
            "settle",
            settlement::USAGES,
            "",
            "What the request cost when it has ended: the first number that is there. `reserve` is taken when the \
             request arrives.",
        ),
        Field::optional(
            "reserve",
            settlement::RESERVES,
            "",
            "With `settle`: the units that are taken when the request arrives, by the first source that is there, and \
             `max` without any.",
        ),
        Field::optional(
            "weights",
            Form::Defined("weights"),
            "",
            "With `settle: token_usage`: the cost of a token of each kind.",
        ),
        Field::optional(
            "beyond_reservation",
            Form::Boolean,
            "false",
            "With `settle`: if true, a request whose response was cut off may cost more than it reserved.",
        ),
    ],
    &["header", "metadata", "request_bytes", "settle"]
);
/// Fields that are allowed only in a cost with `settle`.
const WITH_SETTLE: [&str; 3] = ["reserve", "weights", "beyond_reservation"];

pub(super) fn cost(cursor: &Cursor<'_, '_>, report: &mut Report) -> Option<Cost> {
    if let Some(word) = cursor.value.as_str() {
        if word == LLM_TOKENS {
            return Some(settlement::llm_tokens());
        }
        let problem = cursor.wrong("unknown value").allowed(format!(
            "a whole number from 1 to {MAX_AMOUNT}, {LLM_TOKENS}, or an object with {}",
            joined(COST.choice, ", ")
        ));
        report.add(problem.suggest(nearest(word, &[LLM_TOKENS])));
        return None;
    }
    if !cursor.value.is_object() {
        return cursor.integer(1, MAX_AMOUNT, report).map(Cost::Fixed);
    }
    let fields = cursor.object(COST.names, report)?;
    let (kind, value) = fields.one_of(COST.choice, report)?;
    let (default, max) = (fields.get("default"), fields.get("max"));
    if kind == "settle" {
        if let Some(default) = default {
            let message = "without effect: a request without any source reserves `max`";
            report.error(&default, message, "a number at the end of `reserve`");
        }
        return settlement::settlement(&fields, &value, report);
    }
    for other in WITH_SETTLE.iter().filter_map(|name| fields.get(name)) {
        report.error(&other, "requires `settle`", "`settle` beside it");
    }
    if kind == "request_bytes" {
        for other in default.iter().chain(&max) {
            let message = "requires `header` or `metadata`";
            report.error(other, message, "`request_bytes` alone");
        }
        let bytes = value.integer_of(REQUEST_BYTES, report);
        return bytes.map(Cost::RequestBytes);
    }
    let default = match default {
        Some(default) => default.integer_of(DEFAULT, report),
        None => Some(1),
    };
    let least = default.unwrap_or(1);
    let max = fields.need("max", "the maximum cost of a request", report);
    let max = max.and_then(|max| max.integer(least, MAX_AMOUNT, report));
    if kind == "header" {
        let name = name(&value, Named::Header, report);
        let (name, default, max) = (name?, default?, max?);
        return Some(Cost::Header { name, default, max });
    }
    let path = metadata_path(&value, report);
    let (path, default, max) = (path?, default?, max?);
    Some(Cost::Metadata { path, default, max })
}
