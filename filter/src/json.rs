//! Reading fields of what this filter wrote itself.

use serde_json::Value;

/// The whole number in a field.
pub(crate) fn number(object: &Value, name: &str) -> Option<u64> {
    object.get(name)?.as_u64()
}

/// The text in a field.
pub(crate) fn text(object: &Value, name: &str) -> Option<String> {
    object.get(name)?.as_str().map(ToOwned::to_owned)
}

/// The elements of a list, if all of them can be read.
pub(crate) fn list<T>(list: &Value, read: impl Fn(&Value) -> Option<T>) -> Option<Vec<T>> {
    list.as_array()?.iter().map(read).collect()
}
