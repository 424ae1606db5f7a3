//! JSON Schemas for fields whose types are defined in crates that do not depend on `schemars`.

use loudou_rules::config::{Access, Severity};
use schemars::{Schema, SchemaGenerator, json_schema};
use serde::Serialize;

use crate::TopBy;

/// Returns the schema for a string that must be one of `values`.
fn words<T: Serialize>(values: &[T]) -> Schema {
    json_schema!({ "type": "string", "enum": values })
}

pub(crate) fn access(_: &mut SchemaGenerator) -> Schema {
    words(&[Access::View, Access::Edit])
}

pub(crate) fn severity(_: &mut SchemaGenerator) -> Schema {
    words(&[Severity::Error, Severity::Warning])
}

pub(crate) fn top_by(_: &mut SchemaGenerator) -> Schema {
    words(&TopBy::ALL)
}
