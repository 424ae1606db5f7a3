//! The size of a value: aliases repeat values, so that a short text could become a large tree.

use serde_json::Value;

/// The size of a value in addition to its text, in bytes.
const VALUE_BYTES: usize = 32;

/// The size of a value.
#[derive(Clone, Copy, Default)]
pub(super) struct Size {
    pub(super) bytes: usize,
    pub(super) depth: usize,
}

impl Size {
    pub(super) fn of(value: &Value) -> Self {
        let (own, inner): (usize, Vec<Self>) = match value {
            Value::String(text) => (text.len(), Vec::new()),
            Value::Array(values) => (0, values.iter().map(Self::of).collect()),
            Value::Object(fields) => (
                fields.keys().map(String::len).sum(),
                fields.values().map(Self::of).collect(),
            ),
            Value::Null | Value::Bool(_) | Value::Number(_) => (0, Vec::new()),
        };
        let is_leaf = !value.is_array() && !value.is_object();
        let bytes = inner.iter().map(|size| size.bytes);
        let depth = inner.iter().map(|size| size.depth).max().unwrap_or(0);
        Self {
            bytes: bytes.fold(own.saturating_add(VALUE_BYTES), usize::saturating_add),
            depth: depth.saturating_add(usize::from(!is_leaf)),
        }
    }
}
