//! Reading `cost`.

use loudou_limiter::bounds::MAX_AMOUNT;

use super::matches::{Named, name};
use super::reader::{Cursor, Report};
use crate::rule::Cost;

/// The fields of a cost that is no number.
pub(super) const FIELDS: &[&str] = &["header", "default", "max", "request_bytes"];
/// What such a cost is by, of which there is exactly one.
pub(super) const KINDS: &[&str] = &["header", "request_bytes"];

pub(super) fn cost(cursor: &Cursor<'_, '_>, report: &mut Report) -> Option<Cost> {
    if !cursor.value.is_object() {
        return cursor.integer(1, MAX_AMOUNT, report).map(Cost::Fixed);
    }
    let fields = cursor.object(FIELDS, report)?;
    let (kind, value) = fields.one_of(KINDS, report)?;
    let (default, max) = (fields.get("default"), fields.get("max"));
    if kind == "request_bytes" {
        for other in default.iter().chain(&max) {
            report.error(
                other,
                "only beside `header`",
                "nothing beside `request_bytes`",
            );
        }
        let bytes = value.integer(1, u32::MAX, report);
        return bytes.map(Cost::RequestBytes);
    }
    let name = name(&value, Named::Header, report);
    let default = match default {
        Some(default) => default.integer(1, MAX_AMOUNT, report),
        None => Some(1),
    };
    let least = default.unwrap_or(1);
    let max = fields.need("max", "the most that a request may name", report);
    let max = max.and_then(|max| max.integer(least, MAX_AMOUNT, report));
    Some(Cost::Header {
        name: name?,
        default: default?,
        max: max?,
    })
}
