//! The cost of a request in cost units.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use loudou_limiter::bounds::MAX_AMOUNT;
use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};

use super::settlement::Settlement;
use crate::request::Request;

/// Cost of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cost {
    /// A fixed cost.
    Fixed(u32),
    /// The value of a header.
    Header {
        /// Name of the header, in lower case.
        name: String,
        /// Cost if the header is missing or does not contain a whole number of at least 1.
        default: u32,
        /// Maximum cost. Larger values are capped at this cost.
        max: u32,
    },
    /// The value in the dynamic metadata at this path.
    Metadata {
        /// The namespace, and the keys below it.
        path: Vec<String>,
        /// Cost if the value is missing or is not a whole number of at least 1.
        default: u32,
        /// Maximum cost. Larger values are capped at this cost.
        max: u32,
    },
    /// One unit per this many bytes of content length, rounded up. Without a content length, the
    /// cost is 1.
    RequestBytes(u32),
    /// A cost that is reserved when the request arrives, and settled when the request ends.
    Settled(Box<Settlement>),
}

/// Cost charged for a request under a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Price {
    /// The cost.
    pub cost: u64,
    /// True if the request specifies an invalid cost, so that the default is charged.
    pub is_invalid: bool,
}

impl Price {
    const fn of(cost: u64) -> Self {
        let is_invalid = false;
        Self { cost, is_invalid }
    }

    /// Returns the price specified by a value of the request.
    fn named(value: Option<&[u8]>, default: u32, max: u32) -> Self {
        let Some(value) = value else {
            return Self::of(default.into());
        };
        let cost = whole(value.trim_ascii()).filter(|cost| *cost > 0);
        Self {
            cost: cost.map_or_else(|| default.into(), |cost| cost.min(max.into())),
            is_invalid: cost.is_none(),
        }
    }
}

impl Cost {
    /// Returns the cost of `request`, based on its headers or metadata.
    pub fn price(&self, request: &mut dyn Request) -> Price {
        match self {
            Self::Fixed(cost) => Price::of((*cost).into()),
            Self::Header { name, default, max } => {
                Price::named(request.header(name).as_deref(), *default, *max)
            }
            Self::Metadata { path, default, max } => {
                Price::named(request.metadata(path).as_deref(), *default, *max)
            }
            Self::RequestBytes(bytes) => {
                let length = request.header("content-length");
                let length = length.and_then(|length| whole(length.trim_ascii()));
                let cost = length.unwrap_or(0).div_ceil(u64::from(*bytes).max(1));
                Price::of(cost.clamp(1, MAX_AMOUNT.into()))
            }
            Self::Settled(settlement) => settlement.price(request),
        }
    }

    /// Minimum cost.
    pub fn least(&self) -> u32 {
        match self {
            Self::Fixed(cost) => *cost,
            Self::Header { .. } | Self::Metadata { .. } | Self::RequestBytes(_) => 1,
            Self::Settled(settlement) => settlement.least(),
        }
    }

    /// Returns the cost of a request that specifies none.
    pub fn usual(&self) -> u32 {
        match self {
            Self::Fixed(cost) => *cost,
            Self::Header { default, .. } | Self::Metadata { default, .. } => *default,
            Self::RequestBytes(_) => 1,
            Self::Settled(settlement) => settlement.usual(),
        }
    }

    /// Returns the settlement, if the cost is settled when a request ends.
    pub fn settlement(&self) -> Option<&Settlement> {
        match self {
            Self::Settled(settlement) => Some(settlement),
            _ => None,
        }
    }
}

/// Parses decimal digits. A number that is too large saturates at [`u64::MAX`].
pub(crate) fn whole(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |number, byte| {
        let digit = char::from(*byte).to_digit(10)?;
        Some(number.saturating_mul(10).saturating_add(digit.into()))
    })
}

impl Serialize for Cost {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = match self {
            Self::Fixed(cost) => return serializer.serialize_u32(*cost),
            Self::Settled(settlement) => return settlement.serialize(serializer),
            _ => serializer.serialize_map(None)?,
        };
        match self {
            Self::Fixed(_) | Self::Settled(_) => {}
            Self::Header { name, .. } => fields.serialize_entry("header", name)?,
            Self::Metadata { path, .. } => fields.serialize_entry("metadata", path)?,
            Self::RequestBytes(bytes) => fields.serialize_entry("request_bytes", bytes)?,
        }
        if let Self::Header { default, max, .. } | Self::Metadata { default, max, .. } = self {
            fields.serialize_entry("default", default)?;
            fields.serialize_entry("max", max)?;
        }
        fields.end()
    }
}
