//! Products of 64-bit and 128-bit numbers that may overflow their type, and quotients of such
//! products.

/// Returns `a·b/c`, and true if the division has a remainder. If the quotient does not fit in 128
/// bits, returns the maximum.
fn divide_product(a: u128, b: u128, c: u128) -> (u128, bool) {
    if let Some(product) = a.checked_mul(b) {
        let quotient = product.checked_div(c).unwrap_or(u128::MAX);
        return (
            quotient,
            product.checked_rem(c).is_some_and(|rest| rest > 0),
        );
    }
    let (low, high) = a.carrying_mul(b, 0);
    if high >= c {
        return (u128::MAX, false);
    }
    // Long division, bit by bit. `rest` stays below `c`.
    let (mut rest, mut quotient) = (high, 0_u128);
    for bit in (0..u128::BITS).rev() {
        let overflows = rest >> 127 == 1;
        rest = rest << 1 | low.wrapping_shr(bit) & 1;
        quotient <<= 1;
        if overflows || rest >= c {
            rest = rest.wrapping_sub(c);
            quotient |= 1;
        }
    }
    (quotient, rest > 0)
}

/// Returns the full 128-bit product of two 64-bit numbers.
///
/// Not inlined. Wasm has no 128-bit multiplication, so each inlined copy would take about 80 bytes
/// of code.
#[inline(never)]
pub fn times(a: u64, b: u64) -> u128 {
    // Most products fit in 64 bits and need only one multiply instruction.
    if a.leading_zeros().saturating_add(b.leading_zeros()) >= u64::BITS {
        return u128::from(a.wrapping_mul(b));
    }
    u128::from(a).saturating_mul(u128::from(b))
}

/// Returns the product of two 128-bit numbers, or the maximum if it overflows. Not inlined, for the
/// same reason as [`times`].
#[inline(never)]
pub(crate) fn product(a: u128, b: u128) -> u128 {
    a.saturating_mul(b)
}

/// Converts a number to 64 bits. Larger numbers are converted to the maximum.
pub(crate) fn clamp(wide: u128) -> u64 {
    u64::try_from(wide).unwrap_or(u64::MAX)
}

/// Returns `a·b/c`, rounded down.
pub(crate) fn mul_div(a: u128, b: u128, c: u128) -> u128 {
    divide_product(a, b, c).0
}

/// Returns `a·b/c`, rounded up.
pub(crate) fn mul_div_ceil(a: u128, b: u128, c: u128) -> u128 {
    let (quotient, rest) = divide_product(a, b, c);
    quotient.saturating_add(rest.into())
}

/// Returns `a·b/c`, rounded to the nearest whole number. Scaling a value and then scaling it back
/// therefore restores the value, unless the value is finer than the coarser of the two scales.
pub(crate) fn mul_div_near(a: u128, b: u128, c: u128) -> u128 {
    let (quotient, has_rest) = divide_product(a, b, c);
    if !has_rest {
        return quotient;
    }
    // The remainder is below `c`, so computing it modulo 2^128 gives the exact remainder.
    let rest = a.wrapping_mul(b).wrapping_sub(quotient.wrapping_mul(c));
    quotient.saturating_add((rest >= c.saturating_sub(rest)).into())
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn products_are_whole_on_both_sides_of_64_bits() {
        let ones = (0..=64).map(|bits| u64::MAX.checked_shr(64 - bits).unwrap_or(0));
        let numbers: Vec<u64> = ones.flat_map(|ones| [ones, ones ^ ones >> 1]).collect();
        for a in &numbers {
            for b in &numbers {
                assert_eq!(times(*a, *b), u128::from(*a) * u128::from(*b), "{a} * {b}");
            }
        }
    }

    /// Checks each quotient with the inverse operation: `a·b = q·c + r` modulo 2^128, with `r`
    /// below `c`.
    #[test]
    fn quotients_give_the_product_back() {
        let numbers = [
            1,
            2,
            3,
            7,
            0xffff_ffff,
            1 << 64,
            (1 << 64) + 1,
            12_345_678_901_234_567_890_123_456_789,
            1 << 127,
            (1 << 127) + 12_345,
            u128::MAX - 1,
            u128::MAX,
        ];
        for a in numbers {
            for b in numbers {
                for c in numbers {
                    let (low, high) = a.carrying_mul(b, 0);
                    let quotient = mul_div(a, b, c);
                    if high >= c {
                        assert_eq!(quotient, u128::MAX, "{a} * {b} / {c}");
                        assert_eq!(mul_div_ceil(a, b, c), u128::MAX);
                        continue;
                    }
                    let rest = low.wrapping_sub(quotient.wrapping_mul(c));
                    assert!(rest < c, "{a} * {b} / {c}");
                    let (back_low, back_high) = quotient.carrying_mul(c, rest);
                    assert_eq!((back_low, back_high), (low, high), "{a} * {b} / {c}");
                    let ceil = quotient.saturating_add(u128::from(rest > 0));
                    assert_eq!(mul_div_ceil(a, b, c), ceil);
                }
            }
        }
        assert_eq!(
            (mul_div(5, 7, 0), mul_div_ceil(5, 7, 0)),
            (u128::MAX, u128::MAX)
        );
    }
}
