//! Exceptions from a rule's limits for some keys.

use loudou_limiter::{Decimal, Limits};
use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};

use super::key_map::KeyMap;

/// The exception from a rule's limits for a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Override {
    /// The rule's limits, with all numbers that count cost units multiplied by this factor.
    Scale(Decimal),
    /// Other limits.
    Limits(Limits),
    /// No limits: every request is admitted.
    Unlimited,
    /// No request is admitted.
    Banned,
}

/// The overrides of a rule. A key is exact, or a prefix followed by `*`.
pub type Overrides = KeyMap<Override>;

impl<T: Serialize> Serialize for KeyMap<T> {
    /// An object of patterns.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_map(Some(self.len()))?;
        for (pattern, value) in self.entries() {
            fields.serialize_entry(&*pattern, value)?;
        }
        fields.end()
    }
}
