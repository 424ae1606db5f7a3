//! What some keys of a rule get instead of its limits.

use loudou_limiter::{Decimal, Limits};
use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};

use super::key_map::KeyMap;

/// What a key gets instead of its rule's limits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Override {
    /// The rule's limits, with this many times as much of everything that counts cost units.
    Scale(Decimal),
    /// Other limits.
    Limits(Limits),
    /// None: whatever it asks for is admitted.
    Unlimited,
    /// Nothing is admitted.
    Banned,
}

/// The overrides of a rule. A key is exact, or a beginning followed by `*`.
pub type Overrides = KeyMap<Override>;

impl<T: Serialize> Serialize for KeyMap<T> {
    /// An object of patterns.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_map(Some(self.len()))?;
        for (pattern, value) in self.iter() {
            fields.serialize_entry(&pattern, value)?;
        }
        fields.end()
    }
}
