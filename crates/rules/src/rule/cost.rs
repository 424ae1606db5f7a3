//! The cost of a request.

use alloc::string::String;

use loudou_limiter::bounds::MAX_AMOUNT;
use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};

use crate::request::Request;

/// The cost of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cost {
    /// The same for every request.
    Fixed(u32),
    /// The value of a header.
    Header {
        /// The header's name, in lower case.
        name: String,
        /// The cost if the header is missing or is not a whole number from 1.
        default: u32,
        /// The maximum; larger values count as this.
        max: u32,
    },
    /// One unit per this many bytes of the content length, rounded up; 1 without a content length.
    RequestBytes(u32),
}

/// The cost that a rule charges for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Price {
    /// The cost.
    pub cost: u64,
    /// Whether the request named an invalid cost, so that the default is charged.
    pub is_invalid: bool,
}

impl Price {
    const fn of(cost: u64) -> Self {
        let is_invalid = false;
        Self { cost, is_invalid }
    }
}

impl Cost {
    /// The cost of `request`, as far as its headers show.
    pub fn price(&self, request: &mut dyn Request) -> Price {
        match self {
            Self::Fixed(cost) => Price::of((*cost).into()),
            Self::Header { name, default, max } => {
                let Some(value) = request.header(name) else {
                    return Price::of((*default).into());
                };
                let cost = whole(value.trim_ascii()).filter(|cost| *cost > 0);
                Price {
                    cost: cost.map_or_else(|| (*default).into(), |cost| cost.min((*max).into())),
                    is_invalid: cost.is_none(),
                }
            }
            Self::RequestBytes(bytes) => {
                let length = request.header("content-length");
                let length = length.and_then(|length| whole(length.trim_ascii()));
                let cost = length.unwrap_or(0).div_ceil(u64::from(*bytes).max(1));
                Price::of(cost.clamp(1, MAX_AMOUNT.into()))
            }
        }
    }

    /// The minimum cost.
    pub const fn least(&self) -> u32 {
        match self {
            Self::Fixed(cost) => *cost,
            Self::Header { .. } | Self::RequestBytes(_) => 1,
        }
    }

    /// The cost of a request that names none.
    pub const fn usual(&self) -> u32 {
        match self {
            Self::Fixed(cost) => *cost,
            Self::Header { default, .. } => *default,
            Self::RequestBytes(_) => 1,
        }
    }
}

/// Digits as a number; saturates at the maximum.
fn whole(digits: &[u8]) -> Option<u64> {
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
        match self {
            Self::Fixed(cost) => serializer.serialize_u32(*cost),
            Self::Header { name, default, max } => {
                let mut fields = serializer.serialize_map(Some(3))?;
                fields.serialize_entry("header", name)?;
                fields.serialize_entry("default", default)?;
                fields.serialize_entry("max", max)?;
                fields.end()
            }
            Self::RequestBytes(bytes) => {
                let mut fields = serializer.serialize_map(Some(1))?;
                fields.serialize_entry("request_bytes", bytes)?;
                fields.end()
            }
        }
    }
}
