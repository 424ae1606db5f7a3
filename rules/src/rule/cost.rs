//! What a request takes.

use alloc::string::String;

use loudou_limiter::bounds::MAX_AMOUNT;
use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};

use crate::request::Request;

/// What a request takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cost {
    /// Every one the same.
    Fixed(u32),
    /// What a header says.
    Header {
        /// Its name, in lower case.
        name: String,
        /// Without the header, or when it says no whole number from 1.
        default: u32,
        /// More than this counts as this.
        max: u32,
    },
    /// One for each so many bytes of the body that are started; by the content length, and 1 without it.
    RequestBytes(u32),
}

/// What a rule charges for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Price {
    /// The cost.
    pub cost: u64,
    /// The request named a cost that is none, and the default is charged.
    pub is_odd: bool,
}

impl Price {
    const fn of(cost: u64) -> Self {
        let is_odd = false;
        Self { cost, is_odd }
    }
}

impl Cost {
    /// The cost of `request`, by what is known when its headers are there.
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
                    is_odd: cost.is_none(),
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

    /// The least that it charges.
    pub const fn least(&self) -> u32 {
        match self {
            Self::Fixed(cost) => *cost,
            Self::Header { .. } | Self::RequestBytes(_) => 1,
        }
    }

    /// What it charges if a request says nothing.
    pub const fn usual(&self) -> u32 {
        match self {
            Self::Fixed(cost) => *cost,
            Self::Header { default, .. } => *default,
            Self::RequestBytes(_) => 1,
        }
    }
}

/// Digits as a number; more than fit are as many as fit.
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
