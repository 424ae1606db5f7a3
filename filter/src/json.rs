//! Reads fields of JSON that this filter wrote.

use loudou_limiter::Carry;
use serde_json::Value;

/// The whole number in a field.
pub(crate) fn number(object: &Value, name: &str) -> Option<u64> {
    object.get(name)?.as_u64()
}

/// The text in a field.
pub(crate) fn text(object: &Value, name: &str) -> Option<String> {
    object.get(name)?.as_str().map(ToOwned::to_owned)
}

/// The field `carry`.
pub(crate) fn carry(object: &Value) -> Option<Carry> {
    Carry::parse(object.get("carry")?.as_str()?)
}

/// The elements of a list, if all of them can be read.
pub(crate) fn list<T>(list: &Value, read: impl Fn(&Value) -> Option<T>) -> Option<Vec<T>> {
    list.as_array()?.iter().map(read).collect()
}

/// A field that may be absent; `None` if it is present but damaged.
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
