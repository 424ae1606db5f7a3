//! Rules, limits, spans and dates in words.

use loudou_limiter::config::spoken_value;
use serde_json::Value;

/// A limit of a rule as it travels: `funnel 15, 30/m`. Reads any algorithm, also one that is newer
/// than this program.
pub(super) fn limit(limit: &Value) -> String {
    let Some(fields) = limit.as_object() else {
        return limit.to_string();
    };
    let word = |value: &Value| {
        value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned)
    };
    let mut text = fields.get("algorithm").map_or_else(|| "?".to_owned(), word);
    let mut mark = " ";
    for (name, value) in &spoken_value(fields) {
        match name.as_str() {
            "name" | "algorithm" => continue,
            "capacity" | "rate" => text.extend([mark, word(value).as_str()]),
            _ => text.extend([mark, name, " ", word(value).as_str()]),
        }
        mark = ", ";
    }
    text
}

/// The name and the words of each limit of a rule as it travels.
pub(super) fn limits(rule: &Value) -> Vec<(String, String)> {
    let limits = rule.get("limits").and_then(Value::as_array);
    limits
        .into_iter()
        .flatten()
        .map(|value| {
            let name = value.get("name").and_then(Value::as_str);
            (name.unwrap_or_default().to_owned(), limit(value))
        })
        .collect()
}

/// The parts of a rule's key as it travels: `header x-user-id : path`.
pub(super) fn key(rule: &Value) -> String {
    let parts = rule.get("key").and_then(Value::as_array);
    let words: Vec<String> = parts
        .into_iter()
        .flatten()
        .map(|part| match (part.as_str(), part.as_object()) {
            (Some(word), _) => word.to_owned(),
            (_, Some(fields)) => {
                let words = fields.iter().map(|(name, value)| {
                    let value = value
                        .as_str()
                        .map_or_else(|| value.to_string(), str::to_owned);
                    format!("{name} {value}")
                });
                words.collect::<Vec<_>>().join(" ")
            }
            _ => part.to_string(),
        })
        .collect();
    words.join(" : ")
}

/// A size in binary units, in words: `6.9 MiB`.
pub(super) fn bytes(bytes: u64) -> String {
    let tenths = |unit: u64| {
        let tenths = bytes.saturating_mul(10).checked_div(unit).unwrap_or(0);
        format!("{}.{}", tenths / 10, tenths % 10)
    };
    match bytes {
        0..1_048_576 => format!("{} KiB", tenths(1 << 10)),
        1_048_576..1_073_741_824 => format!("{} MiB", tenths(1 << 20)),
        _ => format!("{} GiB", tenths(1 << 30)),
    }
}

/// A time of the wall clock, in UTC: `2026-11-21 14:03:07Z`.
pub(super) fn date(unix_ms: u64) -> String {
    let seconds = unix_ms / 1_000;
    let (days, of_day) = (seconds / 86_400, seconds % 86_400);
    // Days since 1 March of year 0, in eras of 400 years of 146 097 days, so that a leap day is the
    // last day of its year.
    let shifted = days.saturating_add(719_468);
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (of_era
        .saturating_sub(of_era / 1_460)
        .saturating_add(of_era / 36_524)
        .saturating_sub(of_era / 146_096))
        / 365;
    let year_start = (year_of_era.saturating_mul(365))
        .saturating_add(year_of_era / 4)
        .saturating_sub(year_of_era / 100);
    let of_year = of_era.saturating_sub(year_start);
    let month_from_march = (of_year.saturating_mul(5).saturating_add(2)) / 153;
    let before_month = (month_from_march.saturating_mul(153).saturating_add(2)) / 5;
    let day = of_year.saturating_sub(before_month).saturating_add(1);
    let january = month_from_march >= 10;
    let month = (month_from_march.saturating_add(2) % 12).saturating_add(1);
    let year = era
        .saturating_mul(400)
        .saturating_add(year_of_era)
        .saturating_add(u64::from(january));
    let (hour, minute, second) = (of_day / 3_600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn dates() {
        for (unix_s, text) in [
            (0, "1970-01-01 00:00:00Z"),
            (951_782_399, "2000-02-28 23:59:59Z"),
            (951_782_400, "2000-02-29 00:00:00Z"),
            (1_709_251_199, "2024-02-29 23:59:59Z"),
            (1_709_251_200, "2024-03-01 00:00:00Z"),
            (1_795_269_787, "2026-11-21 14:03:07Z"),
            (4_107_542_400, "2100-03-01 00:00:00Z"),
        ] {
            assert_eq!(date(unix_s * 1_000), text);
        }
        assert!(!date(u64::MAX).is_empty());
    }

    #[test]
    fn limits_of_unknown_algorithms_are_shown_too() {
        let new = json!({"name": "x", "algorithm": "log", "capacity": 3, "window": "1m"});
        assert_eq!(limit(&new), "log 3, window 1m");
        assert_eq!(limit(&json!(7)), "7");
        let tokens = json!({"algorithm": "token_bucket", "capacity": 9, "rate": "3/s",
            "refill": "greedy", "initial": 9});
        assert_eq!(limit(&tokens), "token_bucket 9, 3/s");
    }

    #[test]
    fn sizes() {
        assert_eq!(bytes(110 * 64), "6.8 KiB");
        assert_eq!(bytes(110 * 65_536), "6.8 MiB");
        assert_eq!(bytes(110 * 16_777_216), "1.7 GiB");
    }
}
