//! Helpers for reading fields of JSON objects.

use loudou_limiter::Carry;
use serde_json::Value;

/// Returns a field's value if it is a non-negative integer.
pub(crate) fn number(object: &Value, name: &str) -> Option<u64> {
    object.get(name)?.as_u64()
}

/// Returns a field's value if it is a string.
pub(crate) fn text(object: &Value, name: &str) -> Option<String> {
    object.get(name)?.as_str().map(ToOwned::to_owned)
}

/// Returns the value of the `carry` field if it is valid.
pub(crate) fn carry(object: &Value) -> Option<Carry> {
    Carry::parse(object.get("carry")?.as_str()?)
}

/// Returns the parsed elements of an array. `None` if any element is invalid.
pub(crate) fn list<T>(list: &Value, read: impl Fn(&Value) -> Option<T>) -> Option<Vec<T>> {
    list.as_array()?.iter().map(read).collect()
}

/// Reads an optional field. The outer `None` means that the field is present but invalid.
#[expect(clippy::option_option, reason = "absent and damaged are different")]
pub(crate) fn optional<T>(
    object: &Value,
    name: &str,
    read: impl FnOnce(&Value) -> Option<T>,
) -> Option<Option<T>> {
    match object.get(name) {
        None => Some(None),
        Some(value) => read(value).map(Some),
    }
}
