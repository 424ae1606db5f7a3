//! Parses timestamps in logs. Results are in nanoseconds since the Unix epoch.
//!
//! The date formats are few and fixed, and every log line contains a timestamp, so this module uses
//! its own fast parser. `jiff` does the calendar arithmetic.

use jiff::civil::{Date, Time};
use jiff::tz::Offset;
use loudou_limiter::Nanos;

const MONTHS: [&[u8]; 12] = [
    b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec",
];

/// Parses a timestamp such as `2016-04-15T20:17:00.310Z`, with any number of decimals and any UTC
/// offset.
pub fn rfc3339(text: &[u8]) -> Option<Nanos> {
    let mut rest = text;
    let year = number(&mut rest, 4)?;
    let month = after(&mut rest, b"-", 2)?;
    let day = after(&mut rest, b"-", 2)?;
    let hour = after(&mut rest, b"T", 2).or_else(|| after(&mut rest, b" ", 2))?;
    let minute = after(&mut rest, b":", 2)?;
    let second = after(&mut rest, b":", 2)?;
    let nanos = decimals(&mut rest);
    let (date, time) = ([year, month, day], [hour, minute, second]);
    instant(date, time, nanos, offset(rest)?)
}

/// Parses a timestamp such as `10/Oct/2000:13:55:36 -0700`.
pub fn common_log(text: &[u8]) -> Option<Nanos> {
    let mut rest = text;
    let day = number(&mut rest, 2)?;
    rest = rest.strip_prefix(b"/")?;
    let (name, tail) = rest.split_at_checked(3)?;
    let month = month(name)?;
    rest = tail;
    let year = after(&mut rest, b"/", 4)?;
    let hour = after(&mut rest, b":", 2)?;
    let minute = after(&mut rest, b":", 2)?;
    let second = after(&mut rest, b":", 2)?;
    let (date, time) = ([year, month, day], [hour, minute, second]);
    instant(date, time, 0, offset(rest.strip_prefix(b" ")?)?)
}

/// Returns the number of a month (1 to 12) for its abbreviated English name.
pub(crate) fn month(name: &[u8]) -> Option<u64> {
    let found = MONTHS.iter().zip(1..).find(|(month, _)| **month == name);
    found.map(|(_, number)| number)
}

/// Parses a number of seconds, milliseconds, microseconds or nanoseconds since the epoch. The
/// magnitude of the number reveals the unit, assuming that all times are after 2001.
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

/// Converts a local date and time with the given UTC offset. Returns `None` if the date or the
/// resulting instant is before 1970.
fn instant(date: [u64; 3], time: [u64; 3], nanos: u64, offset: Offset) -> Option<Nanos> {
    let [year, month, day] = date;
    let [hour, minute, second] = time;
    if year < 1970 {
        return None;
    }
    // A leap second is treated as the first second of the next minute.
    let leap = u64::from(second == 60);
    let date = Date::new(i16::try_from(year).ok()?, small(month)?, small(day)?).ok()?;
    let time = Time::new(small(hour)?, small(minute)?, small(second - leap)?, 0).ok()?;
    let timestamp = offset.to_timestamp(date.to_datetime(time)).ok()?;
    let seconds = u64::try_from(timestamp.as_second()).ok()?;
    let nanos_before = seconds.checked_add(leap)?.checked_mul(1_000_000_000)?;
    nanos_before.checked_add(nanos).map(Nanos::new)
}

fn small(number: u64) -> Option<i8> {
    i8::try_from(number).ok()
}

/// Parses a number with exactly `digits` digits and removes it from the start of `rest`.
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

/// Like [`number`], but also removes `mark` before the number. Removes nothing if `mark` or the
/// number is missing.
fn after(rest: &mut &[u8], mark: &[u8], digits: usize) -> Option<u64> {
    let mut tail = rest.strip_prefix(mark)?;
    let number = number(&mut tail, digits)?;
    *rest = tail;
    Some(number)
}

/// Removes a fraction such as `.310` from the start of `rest` and returns it in nanoseconds,
/// rounded down.
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

/// Parses a UTC offset such as `Z`, `+02:00` or `-0700`.
fn offset(text: &[u8]) -> Option<Offset> {
    let (sign, mut rest) = match text {
        b"Z" | b"z" => return Some(Offset::UTC),
        [b'+', rest @ ..] => (1, rest),
        [b'-', rest @ ..] => (-1, rest),
        _ => return None,
    };
    let hours = number(&mut rest, 2)?;
    let minutes = after(&mut rest, b":", 2).or_else(|| number(&mut rest, 2))?;
    if !rest.is_empty() || hours > 23 || minutes > 59 {
        return None;
    }
    let seconds = i32::try_from(hours * 3_600 + minutes * 60).ok()?;
    Offset::from_seconds(sign * seconds).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn envoys_times() {
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
            "1969-12-31T23:59:59-01:00",
            "2023-02-29T00:00:00Z",
            "2024-04-31T00:00:00Z",
        ] {
            assert_eq!(rfc3339(wrong.as_bytes()), None, "{wrong}");
        }
    }

    #[test]
    fn nginx_times() {
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
        fn arbitrary_text_never_panics(text in any::<Vec<u8>>()) {
            let times = [rfc3339(&text), common_log(&text), epoch(&text)];
            prop_assert!(times.iter().flatten().count() <= 1);
        }
    }
}
