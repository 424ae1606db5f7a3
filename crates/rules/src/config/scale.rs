//! Scales limits by an override's factor.
//!
//! Numbers that count cost units are multiplied. Times, such as window lengths, maximum waits and
//! warm-up times, stay unchanged. Fractions are rounded up, so a scale of 1 or more never makes a
//! limit stricter. The rule's numbers are whole, so a scale of 1 or less never makes a limit
//! looser.

use alloc::string::ToString as _;
use alloc::vec::Vec;

use loudou_limiter::bounds::{MAX_AMOUNT, MAX_PERIOD};
use loudou_limiter::wide::times;
use loudou_limiter::{Decimal, Limit, Limits, Nanos, Rate};
use serde_json::Value;

use super::reader::written;

/// Returns true if the limits can be scaled by this factor, regardless of the numbers that requests
/// carry for them.
pub(crate) fn fits_scale(limits: &Limits, scale: Decimal) -> bool {
    let largest = limits.is_template().then(|| limits.largest());
    scaled(limits, scale).is_some()
        && largest.is_none_or(|largest| scaled(&largest, scale).is_some())
}

/// Returns the limits scaled by this factor, or `None` if the scaled limits are invalid. Uses the defaults for numbers
/// that requests supply.
pub fn scaled(limits: &Limits, scale: Decimal) -> Option<Limits> {
    let limits = &*limits.with(&[]);
    let scale = scale.thousandths().into();
    let one = |limit: &Limit| {
        let mut fields = written(limit);
        let in_lumps = fields.get("refill").is_some_and(|how| how == "interval");
        for (name, value) in &mut fields {
            *value = match name.as_str() {
                "capacity" | "slot_capacity" | "initial" => Value::from(fits(value, scale)?),
                // An `immediate` above the capacity has the same effect as one equal to the
                // capacity: no request waits.
                "immediate" => Value::from(fits(value, scale).unwrap_or(MAX_AMOUNT)),
                "rate" => {
                    let rate = Rate::parse(value.as_str()?)?;
                    let rate = if in_lumps {
                        lumps(rate, scale)
                    } else {
                        continuous(rate, scale)
                    };
                    Value::from(rate?.to_string())
                }
                _ => continue,
            };
        }
        Some(Value::Object(fields))
    };
    let list: Option<Vec<Value>> = limits.iter().map(one).collect();
    let scaled = super::parse_limits(&Value::Array(list?)).ok()?;
    Some(scaled.storing(limits.numbers()))
}

/// Returns the scaled number of cost units, if it is within bounds.
fn fits(value: &Value, scale: u64) -> Option<u32> {
    amount(value.as_u64()?, scale)
}

fn amount(amount: u64, scale: u64) -> Option<u32> {
    let product = amount.saturating_mul(scale).div_ceil(1_000);
    let product = u32::try_from(product).ok()?;
    (product <= MAX_AMOUNT).then_some(product)
}

/// Scales the rate of an interval refill by multiplying its amount. The period does not change.
fn lumps(rate: Rate, scale: u64) -> Option<Rate> {
    Rate::new(amount(rate.amount().into(), scale)?, rate.period())
}

/// Returns the exact scaled rate, with a longer period if necessary. If the exact rate cannot be
/// expressed within the bounds, returns the next higher rate, whose period is too short by less
/// than a nanosecond. The slowest rate is one unit per [`MAX_PERIOD`].
fn continuous(rate: Rate, scale: u64) -> Option<Rate> {
    let (amount, period) = (
        u64::from(rate.amount()).checked_mul(scale)?,
        rate.period().get(),
    );
    // If the scaled amount is a whole number, the period is kept as written.
    let whole = gcd(amount, 1_000);
    let (amount, longer) = (amount.checked_div(whole)?, 1_000_u64.checked_div(whole)?);
    if let Some(exact) = within(amount, times(period, longer)) {
        return Some(exact);
    }
    let common = gcd(amount, period);
    let amount = amount.checked_div(common)?;
    let period = times(period.checked_div(common)?, longer);
    if let Some(exact) = within(amount, period) {
        return Some(exact);
    }
    let most = times(amount, MAX_PERIOD.get()).checked_div(period)?;
    let count = u64::try_from(most.clamp(1, MAX_AMOUNT.into())).ok()?;
    let period = u128::from(count)
        .checked_mul(period)?
        .checked_div(amount.into())?;
    let above = within(count, period.min(MAX_PERIOD.get().into()))?;
    // Near the bounds, rounding up could produce a rate above the rule's own, even with a scale of
    // at most 1.
    let is_more = times(above.amount().into(), rate.period().get())
        > times(rate.amount().into(), above.period().get());
    Some(if scale <= 1_000 && is_more {
        rate
    } else {
        above
    })
}

/// Returns a rate if its numbers are within bounds.
fn within(amount: u64, period: u128) -> Option<Rate> {
    let amount = u32::try_from(amount)
        .ok()
        .filter(|amount| *amount <= MAX_AMOUNT);
    let period = u64::try_from(period)
        .ok()
        .filter(|period| *period <= MAX_PERIOD.get());
    Rate::new(amount?, Nanos::new(period?))
}

/// Returns the greatest common divisor.
fn gcd(a: u64, b: u64) -> u64 {
    let (mut a, mut b) = (a, b);
    while let Some(rest) = a.checked_rem(b) {
        (a, b) = (b, rest);
    }
    a
}
