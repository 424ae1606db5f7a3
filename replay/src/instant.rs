//! Wall times of logs, as nanoseconds since the Unix epoch.

use loudou_limiter::Nanos;

const MONTHS: [&[u8]; 12] = [
    b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec",
];

/// A date and a time of day.
struct Civil {
    year: u64,
    month: u64,
    day: u64,
    hour: u64,
    minute: u64,
    second: u64,
    nanos: u64,
}

/// Reads `2016-04-15T20:17:00.310Z`, with any number of decimals and any offset.
pub fn rfc3339(text: &[u8]) -> Option<Nanos> {
    let mut rest = text;
    let year = number(&mut rest, 4)?;
    let month = after(&mut rest, b"-", 2)?;
    let day = after(&mut rest, b"-", 2)?;
    let hour = after(&mut rest, b"T", 2).or_else(|| after(&mut rest, b" ", 2))?;
    let minute = after(&mut rest, b":", 2)?;
    let second = after(&mut rest, b":", 2)?;
    let nanos = decimals(&mut rest);
    let civil = Civil {
        year,
        month,
        day,
        hour,
        minute,
        second,
        nanos,
    };
    civil.unix(offset(rest)?)
}

/// Reads `10/Oct/2000:13:55:36 -0700`.
pub fn common_log(text: &[u8]) -> Option<Nanos> {
    let mut rest = text;
    let day = number(&mut rest, 2)?;
    rest = rest.strip_prefix(b"/")?;
    let (name, tail) = rest.split_at_checked(3)?;
    let month = MONTHS.iter().zip(1..).find(|(month, _)| **month == name)?.1;
    rest = tail;
    let year = after(&mut rest, b"/", 4)?;
    let hour = after(&mut rest, b":", 2)?;
    let minute = after(&mut rest, b":", 2)?;
    let second = after(&mut rest, b":", 2)?;
    let offset = offset(rest.strip_prefix(b" ")?)?;
    let civil = Civil {
        year,
        month,
        day,
        hour,
        minute,
        second,
        nanos: 0,
    };
    civil.unix(offset)
}

/// Reads a number of seconds, milliseconds, microseconds or nanoseconds since the epoch: which one is
/// told by its size, as all are of times after 2001.
pub fn epoch(text: &[u8]) -> Option<Nanos> {
    let mut rest = text;
    let digits = rest.iter().take_while(|b| b.is_ascii_digit()).count();
    let whole = number(&mut rest, digits).filter(|_| digits > 0)?;
    let nanos = decimals(&mut rest);
    if !rest.is_empty() {
        return None;
    }
    match whole {
        0..100_000_000_000 => whole.checked_mul(1_000_000_000)?.checked_add(nanos),
        100_000_000_000..100_000_000_000_000 => whole.checked_mul(1_000_000),
        100_000_000_000_000..100_000_000_000_000_000 => whole.checked_mul(1_000),
        _ => Some(whole),
    }
    .map(Nanos::new)
}

impl Civil {
    /// The instant, when the clock is `offset` seconds ahead of UTC.
    fn unix(&self, offset: i64) -> Option<Nanos> {
        let in_range = (1..=12).contains(&self.month)
            && (1..=31).contains(&self.day)
            && self.hour < 24
            && self.minute < 60
            && self.second <= 60;
        if !in_range {
            return None;
        }
        let of_day = self.hour * 3_600 + self.minute * 60 + self.second;
        let seconds = self.days()?.checked_mul(86_400)?.checked_add(of_day)?;
        let seconds = seconds.checked_add_signed(offset.checked_neg()?)?;
        let nanos = seconds.checked_mul(1_000_000_000)?;
        nanos.checked_add(self.nanos).map(Nanos::new)
    }

    /// Days since the epoch; `None` before it. Years begin in March, so that a leap day is the last.
    fn days(&self) -> Option<u64> {
        let year = if self.month > 2 {
            self.year
        } else {
            self.year.checked_sub(1)?
        };
        let month = (self.month + 9) % 12;
        let of_year = (153 * month + 2) / 5 + self.day - 1;
        let leap_days = year / 4 - year / 100 + year / 400;
        (year * 365 + leap_days + of_year).checked_sub(719_468)
    }
}

/// A number of exactly `digits` digits, which are taken from `rest`.
fn number(rest: &mut &[u8], digits: usize) -> Option<u64> {
    let (head, tail) = rest.split_at_checked(digits)?;
    let mut number: u64 = 0;
    for digit in head {
        let digit = u64::from(digit.checked_sub(b'0').filter(|digit| *digit < 10)?);
        number = number.checked_mul(10)?.checked_add(digit)?;
    }
    *rest = tail;
    Some(number)
}

/// The same behind `mark`; nothing is taken when that is not there.
fn after(rest: &mut &[u8], mark: &[u8], digits: usize) -> Option<u64> {
    let mut tail = rest.strip_prefix(mark)?;
    let number = number(&mut tail, digits)?;
    *rest = tail;
    Some(number)
}

/// The nanoseconds of `.310`, which is taken from `rest`; what is finer than them is dropped.
fn decimals(rest: &mut &[u8]) -> u64 {
    let Some(tail) = rest.strip_prefix(b".") else {
        return 0;
    };
    let digits = tail.iter().take_while(|b| b.is_ascii_digit()).count();
    let (decimals, tail) = tail.split_at_checked(digits).unwrap_or_default();
    *rest = tail;
    let mut nanos = 0;
    let mut worth: u64 = 100_000_000;
    for digit in decimals {
        nanos += u64::from(digit.saturating_sub(b'0')) * worth;
        worth /= 10;
    }
    nanos
}

/// The seconds of `Z`, `+02:00` or `-0700`.
fn offset(text: &[u8]) -> Option<i64> {
    let (sign, mut rest) = match text {
        b"Z" | b"z" => return Some(0),
        [b'+', rest @ ..] => (1, rest),
        [b'-', rest @ ..] => (-1, rest),
        _ => return None,
    };
    let hours = number(&mut rest, 2)?;
    let minutes = after(&mut rest, b":", 2).or_else(|| number(&mut rest, 2))?;
    let seconds = i64::try_from(hours * 3_600 + minutes * 60).ok()?;
    (rest.is_empty() && hours < 24 && minutes < 60).then_some(sign * seconds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn times_of_envoy() {
        assert_eq!(
            rfc3339(b"2016-04-15T20:17:00.310Z"),
            Some(Nanos::new(1_460_751_420_310_000_000))
        );
        assert_eq!(rfc3339(b"1970-01-01T00:00:00Z"), Some(Nanos::new(0)));
        assert_eq!(
            rfc3339(b"2000-02-29 23:59:59.5+02:00"),
            Some(Nanos::new(951_861_599_500_000_000))
        );
        assert_eq!(
            rfc3339(b"2024-12-31T23:59:60.123456789999Z"),
            Some(Nanos::new(1_735_689_600_123_456_789))
        );
        for wrong in [
            "",
            "2016-04-15",
            "2016-13-15T20:17:00Z",
            "2016-04-15T25:17:00Z",
            "2016-04-15T20:17:00",
            "1969-12-31T23:59:59Z",
            "1970-01-01T00:00:00+01:00",
            "9999-12-31T23:59:59Z",
            "2016-04-15T20:17:00.Zx",
            "0000-01-01T00:00:00Z",
        ] {
            assert_eq!(rfc3339(wrong.as_bytes()), None, "{wrong}");
        }
    }

    #[test]
    fn times_of_nginx() {
        assert_eq!(
            common_log(b"10/Oct/2000:13:55:36 -0700"),
            Some(Nanos::new(971_211_336_000_000_000))
        );
        assert_eq!(common_log(b"10/Okt/2000:13:55:36 -0700"), None);
        assert_eq!(common_log(b"10/Oct/2000:13:55:36"), None);
    }

    #[test]
    fn times_as_numbers() {
        let one = Some(Nanos::new(1_460_751_420_310_000_000));
        assert_eq!(epoch(b"1460751420.310"), one);
        assert_eq!(epoch(b"1460751420310"), one);
        assert_eq!(epoch(b"1460751420310000"), one);
        assert_eq!(epoch(b"1460751420310000000"), one);
        for wrong in ["", ".5", "-1", "1e9", "99999999999999999999"] {
            assert_eq!(epoch(wrong.as_bytes()), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn no_text_is_too_strange(text in any::<Vec<u8>>()) {
            let times = [rfc3339(&text), common_log(&text), epoch(&text)];
            prop_assert!(times.iter().flatten().count() <= 1);
        }
    }
}
