//! What some keys of a rule get instead of its limits.

use alloc::string::String;

use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};

use super::key_map::KeyMap;
use crate::decimal::Decimal;
use crate::limit::Limits;

/// What a key gets instead of its rule's limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Override {
    /// The rule's limits, with capacities and rates this many times as large.
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

impl Override {
    /// As in a rule file.
    pub fn value(&self) -> Value {
        match self {
            Self::Scale(scale) => json!({ "scale": scale }),
            Self::Limits(limits) => json!({ "limits": limits }),
            Self::Unlimited => Value::from("unlimited"),
            Self::Banned => Value::from("banned"),
        }
    }
}

impl Serialize for Override {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.value().serialize(serializer)
    }
}

impl Serialize for Overrides {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let fields = self.iter().map(|(key, value)| (key, value.value()));
        let fields: Map<String, Value> = fields.collect();
        fields.serialize(serializer)
    }
}
