//! Reads limits' per-request numbers from a request's metadata.
//!
//! Only earlier filters write the metadata, but they may copy values sent by the client, so the
//! numbers cannot be trusted. If a value is missing or is not a single whole number, the default is
//! used. A number above the maximum is treated as the maximum, and 0 is treated as 1.

use alloc::vec::Vec;

use loudou_limiter::{Limits, Numbers, RequestNumbers, Source};

use crate::request::Request;
use crate::rule::whole;

/// Result of looking up a number in a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FoundNumber {
    /// The number is valid and used unchanged.
    Valid(u32),
    /// The request has no value at the path, so the default is used.
    Missing,
    /// The value is not a single whole number, so the default is used.
    Invalid,
    /// The number is 0, so 1 is used.
    TooSmall,
    /// The number is above the maximum, so the maximum is used. A number that does not fit into 32
    /// bits is replaced with the largest 32-bit number.
    TooLarge(u32),
}

impl FoundNumber {
    /// Looks up a source's number in a request.
    fn of(source: &Source, request: &mut dyn Request) -> Self {
        let (mut count, mut found) = (0_u32, None);
        request.each_metadata(&source.metadata, &mut |value| {
            let value = value.trim_ascii();
            count = count.saturating_add(1);
            found = whole(value).or_else(|| is_huge(value).then_some(u64::MAX));
        });
        match found {
            _ if count == 0 => Self::Missing,
            Some(0) if count == 1 => Self::TooSmall,
            Some(number) if count == 1 => match u32::try_from(number) {
                Ok(number) if number <= source.max => Self::Valid(number),
                number => Self::TooLarge(number.unwrap_or(u32::MAX)),
            },
            _ => Self::Invalid,
        }
    }

    /// Returns the number that a bucket stores, with 0 for the default.
    const fn stored(self) -> u32 {
        match self {
            Self::Valid(number) | Self::TooLarge(number) => number,
            Self::Missing | Self::Invalid => 0,
            Self::TooSmall => 1,
        }
    }

    /// Returns true if the number was missing, invalid or out of range.
    pub const fn is_odd(self) -> bool {
        !matches!(self, Self::Valid(_))
    }
}

/// Returns true for a number of 10²¹ or above, which JSON writes with an exponent: `1.5e21`.
pub(crate) fn is_huge(value: &[u8]) -> bool {
    let mut parts = value.split(|byte| matches!(byte, b'e' | b'E'));
    let (Some(mantissa), Some(exponent), None) = (parts.next(), parts.next(), parts.next()) else {
        return false;
    };
    let starts = mantissa
        .first()
        .is_some_and(|byte| (b'1'..=b'9').contains(byte));
    let is_number = starts
        && mantissa
            .iter()
            .all(|byte| byte.is_ascii_digit() || *byte == b'.');
    let exponent = whole(exponent.strip_prefix(b"+").unwrap_or(exponent));
    is_number && exponent.is_some_and(|exponent| exponent >= 21)
}

/// Numbers that a request carries for one limit. A number is `None` if requests do not supply it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FoundNumbers {
    /// Index of the limit.
    pub limit: usize,
    /// The capacity.
    pub capacity: Option<FoundNumber>,
    /// The rate's amount.
    pub amount: Option<FoundNumber>,
}

impl FoundNumbers {
    /// Returns true if a number was missing, invalid or out of range.
    pub(crate) fn is_odd(&self) -> bool {
        let mut numbers = [self.capacity, self.amount].into_iter().flatten();
        numbers.any(FoundNumber::is_odd)
    }

    /// Returns the numbers in the format that buckets store.
    fn brought(&self) -> RequestNumbers {
        let stored = |found: Option<FoundNumber>| found.map_or(0, FoundNumber::stored);
        let (capacity, amount) = (stored(self.capacity), stored(self.amount));
        RequestNumbers { capacity, amount }
    }
}

/// Looks up the numbers for all limits in a request.
pub fn find(limits: &Limits, request: &mut dyn Request) -> Vec<FoundNumbers> {
    let mut found = Vec::new();
    for (index, limit) in limits.iter().enumerate() {
        let Some(sources) = limit.sources() else {
            continue;
        };
        let mut find =
            |source: Option<&Source>| source.map(|source| FoundNumber::of(source, request));
        let mut numbers = FoundNumbers {
            limit: index,
            capacity: find(sources.capacity.as_ref()),
            amount: find(sources.amount.as_ref()),
        };
        // If the numbers together do not form a valid limit, the default numbers are used.
        if !limit.accepts(numbers.brought()) {
            let invalid = |found: Option<FoundNumber>| found.map(|_| FoundNumber::Invalid);
            numbers.capacity = invalid(numbers.capacity);
            numbers.amount = invalid(numbers.amount);
        }
        found.push(numbers);
    }
    found
}

/// Returns the numbers in the format that buckets store.
pub(crate) fn stored(found: &[FoundNumbers]) -> Numbers {
    found
        .iter()
        .map(|found| found.brought().to_word())
        .collect()
}
