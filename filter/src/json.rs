//! Reads fields from JSON that this filter wrote.

use loudou_limiter::Carry;
use serde_json::Value;

/// Returns the whole number in a field.
pub(crate) fn number(object: &Value, name: &str) -> Option<u64> {
    object.get(name)?.as_u64()
}

/// Returns the text in a field.
pub(crate) fn text(object: &Value, name: &str) -> Option<String> {
    object.get(name)?.as_str().map(ToOwned::to_owned)
}

/// Returns the field `carry`.
pub(crate) fn carry(object: &Value) -> Option<Carry> {
    Carry::parse(object.get("carry")?.as_str()?)
}

/// Returns the elements of a list, or `None` if any cannot be read.
pub(crate) fn list<T>(list: &Value, read: impl Fn(&Value) -> Option<T>) -> Option<Vec<T>> {
    list.as_array()?.iter().map(read).collect()
}

/// Reads a field that may be absent. The outer `None` means that it is present but damaged.
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
