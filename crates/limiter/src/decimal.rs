//! An exact decimal number with up to three decimal places.

use alloc::format;
use core::fmt;

use serde::{Serialize, Serializer};

/// A decimal number, stored as thousandths: `2.5` is stored as 2500.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Decimal(u32);

impl Decimal {
    /// Creates a decimal from a number of thousandths.
    ///
    /// ```
    /// use loudou_limiter::Decimal;
    ///
    /// assert_eq!(Decimal::from_thousandths(2_500).to_string(), "2.5");
    /// ```
    pub const fn from_thousandths(thousandths: u32) -> Self {
        Self(thousandths)
    }

    /// Returns the value in thousandths.
    pub const fn thousandths(self) -> u32 {
        self.0
    }

    /// Returns true if the value is 0.
    pub const fn is_zero(&self) -> bool {
        self.0 == 0
    }

    /// Parses a string such as `2`, `2.5` or `0.125`. Returns `None` if the string is malformed,
    /// has more than three decimal places, or is too large.
    ///
    /// ```
    /// use loudou_limiter::Decimal;
    ///
    /// assert_eq!(Decimal::parse("0.125"), Some(Decimal::from_thousandths(125)));
    /// assert_eq!(Decimal::parse("0.1255"), None, "a fourth decimal would be lost");
    /// ```
    pub fn parse(text: &str) -> Option<Self> {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        if !digits(whole) || !digits(fraction) || fraction.len() > 3 {
            return None;
        }
        let whole = whole.parse::<u32>().ok()?.checked_mul(1_000)?;
        let fraction = format!("{fraction:0<3}").parse().ok()?;
        whole.checked_add(fraction).map(Self)
    }
}

impl fmt::Display for Decimal {
    /// Writes the shortest form, such as `2.5`, or `2` for a whole number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.0 / 1_000, self.0 % 1_000);
        if rest == 0 {
            return write!(f, "{whole}");
        }
        let fraction = format!("{rest:03}");
        write!(f, "{whole}.{}", fraction.trim_end_matches('0'))
    }
}

impl Serialize for Decimal {
    /// Serialises the decimal as a number. The quotient is the `f64` nearest to the decimal, so the
    /// number is written as it was read.
    #[expect(clippy::float_arithmetic, reason = "nothing is decided by it")]
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0.is_multiple_of(1_000) {
            serializer.serialize_u32(self.0 / 1_000)
        } else {
            serializer.serialize_f64(f64::from(self.0) / 1_000.0)
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn reads_and_writes() {
        for (text, thousandths, written) in [
            ("0", 0, "0"),
            ("1", 1_000, "1"),
            ("1.0", 1_000, "1"),
            ("2.5", 2_500, "2.5"),
            ("0.125", 125, "0.125"),
            ("10.05", 10_050, "10.05"),
            ("007.010", 7_010, "7.01"),
            ("4294967.295", u32::MAX, "4294967.295"),
        ] {
            let decimal = Decimal::parse(text).expect(text);
            assert_eq!(decimal.thousandths(), thousandths, "{text}");
            assert_eq!(decimal.to_string(), written);
            assert_eq!(serde_json::to_string(&decimal).expect("a number"), written);
            assert_eq!(Decimal::parse(written), Some(decimal));
        }
    }

    #[test]
    fn refuses_what_is_not_a_decimal() {
        for text in [
            "",
            ".",
            "1.",
            ".5",
            "-1",
            "+1",
            "1e3",
            "1.2345",
            "1.2.3",
            "1,5",
            "4294967.296",
            "4294968",
            "99999999999",
            "NaN",
        ] {
            assert_eq!(Decimal::parse(text), None, "{text}");
        }
    }
}
