//! Rates and durations in the syntax of rule files.

const SECOND: u64 = 1_000_000_000;

/// Formats a duration in the syntax of rule files.
pub(crate) fn duration(nanos: u64) -> String {
    for (unit, name) in [
        (86_400 * SECOND, "d"),
        (3_600 * SECOND, "h"),
        (60 * SECOND, "m"),
        (SECOND, "s"),
        (1_000_000, "ms"),
        (1_000, "us"),
    ] {
        if nanos >= unit && nanos.is_multiple_of(unit) {
            return format!("{}{name}", nanos.div_euclid(unit));
        }
    }
    format!("{nanos}ns")
}

/// Formats a rate in the syntax of rule files, such as `10/s` or `100/90s`.
pub(crate) fn rate(amount: u64, nanos: u64) -> String {
    let period = duration(nanos);
    let period = period
        .strip_prefix('1')
        .filter(|unit| unit.bytes().all(|byte| byte.is_ascii_lowercase()));
    match period {
        Some(unit) if !matches!(unit, "ms" | "us" | "ns") => format!("{amount}/{unit}"),
        _ => format!("{amount}/{}", duration(nanos)),
    }
}

/// Parses a duration in Protobuf's JSON format, such as `60s` or `0.5s`.
pub(crate) fn proto_duration(text: &str) -> Option<u64> {
    let seconds = text.strip_suffix('s')?;
    let (whole, fraction) = seconds.split_once('.').unwrap_or((seconds, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(fraction) || fraction.len() > 9 {
        return None;
    }
    let fraction: u64 = format!("{fraction:0<9}").parse().ok()?;
    let whole = whole.parse::<u64>().ok()?.checked_mul(SECOND)?;
    whole.checked_add(fraction)
}

/// Returns the length of a rate limit service's unit, in nanoseconds. In the service, a month has
/// 30 days and a year has 365 days.
pub(crate) fn unit(name: &str) -> Option<u64> {
    let seconds: u64 = match name.to_ascii_lowercase().as_str() {
        "second" => 1,
        "minute" => 60,
        "hour" => 3_600,
        "day" => 86_400,
        "week" => 7 * 86_400,
        "month" => 30 * 86_400,
        "year" => 365 * 86_400,
        _ => return None,
    };
    seconds.checked_mul(SECOND)
}

/// Rate of nginx's `limit_req`, which nginx stores in thousandths of a request per second.
pub(crate) struct Nginx {
    /// Rate in thousandths of a request per second.
    pub(crate) millis: u64,
    /// Rate in the syntax of rule files.
    pub(crate) text: String,
    /// True if nginx rounded the rate down.
    pub(crate) is_rounded: bool,
}

impl Nginx {
    /// Parses a rate such as `10r/s` or `30r/m`. Returns `None` for a rate of 0, which nginx
    /// rejects.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (number, scale) = match text.split_at_checked(text.len().checked_sub(3)?)? {
            (number, "r/s") => (number, 1),
            (number, "r/m") => (number, 60),
            _ => return None,
        };
        let number: u64 = number.parse().ok()?;
        Self::new(number, scale)
    }

    /// Returns the rate for a number of requests per `scale` seconds, where `scale` is 1 or 60.
    pub(crate) fn new(number: u64, scale: u64) -> Option<Self> {
        let thousandths = number.checked_mul(1_000)?;
        let millis = thousandths.checked_div(scale)?;
        let is_rounded = !thousandths.is_multiple_of(scale);
        if millis == 0 {
            return None;
        }
        let text = if is_rounded {
            rate(millis, 1_000 * SECOND)
        } else if scale == 1 {
            rate(number, SECOND)
        } else {
            rate(number, 60 * SECOND)
        };
        Some(Self {
            millis,
            text,
            is_rounded,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_of_nginx_are_rounded_as_nginx_rounds_them() {
        let text = |text: &str| Nginx::parse(text).map(|rate| (rate.text, rate.is_rounded));
        assert_eq!(text("10r/s"), Some(("10/s".to_owned(), false)));
        assert_eq!(text("3r/m"), Some(("3/m".to_owned(), false)));
        assert_eq!(text("100r/m"), Some(("1666/1000s".to_owned(), true)));
        assert_eq!(text("1r/m"), Some(("16/1000s".to_owned(), true)));
        for wrong in [
            "0r/s",
            "10",
            "10r/h",
            "-1r/s",
            "r/s",
            "99999999999999999999r/s",
        ] {
            assert_eq!(text(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn durations_of_protobuf() {
        assert_eq!(proto_duration("60s"), Some(60 * SECOND));
        assert_eq!(proto_duration("0.050s"), Some(50_000_000));
        assert_eq!(proto_duration("1.5s"), Some(1_500_000_000));
        for wrong in ["60", "s", "-1s", "1m", "99999999999999s", "1.0000000001s"] {
            assert_eq!(proto_duration(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn durations_and_rates_are_in_the_form_of_rule_files() {
        assert_eq!(duration(90 * SECOND), "90s");
        assert_eq!(duration(50_000_000), "50ms");
        assert_eq!(rate(10, SECOND), "10/s");
        assert_eq!(rate(100, 90 * SECOND), "100/90s");
        assert_eq!(rate(10, 50_000_000), "10/50ms");
        assert_eq!(rate(1, 1_000_000), "1/1ms");
    }
}
