//! Keys, sizes and dates in words.

use serde_json::Value;

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
}
