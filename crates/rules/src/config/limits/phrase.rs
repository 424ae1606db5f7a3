//! Describes a limit with a phrase that completes a sentence about a client, such as `may do 15 at
//! once, then one every 2s`.
//!
//! Each algorithm's phrases are defined next to its fields.

use alloc::borrow::ToOwned as _;
use alloc::format;
use alloc::string::{String, ToString as _};

use loudou_limiter::{Limit, Nanos, Rate, Source, Sources};
use serde_json::{Map, Value};

use crate::config::reader::written;
use crate::humanise::humanise;
use crate::joined::joined;
use crate::rule::Cost;

/// Describes what a limit means for clients whose requests have the given cost.
pub fn phrase(limit: &Limit, cost: &Cost) -> String {
    let algorithm = limit.algorithm();
    let numbers = Phrase {
        algorithm: algorithm.name(),
        fields: written(&limit.fixed()),
        capacity: algorithm.capacity(),
        in_units: *cost != Cost::Fixed(1),
    };
    let phrase = super::known(algorithm.name()).and_then(|entry| (entry.phrase)(&numbers));
    let mut phrase = phrase.unwrap_or_else(|| format!("is limited by {}", algorithm.name()));
    for (source, number) in sources(limit) {
        let path = joined(&source.metadata, ".");
        let more = format!(
            "; metadata {path} of a request replaces {number} of {}, up to {}",
            source.default, source.max
        );
        phrase.push_str(&more);
    }
    phrase
}

/// Returns the source and the name of each of a limit's numbers that requests supply.
fn sources(limit: &Limit) -> impl Iterator<Item = (&Source, &'static str)> {
    let named = limit.sources().into_iter().flat_map(|sources| {
        let Sources { capacity, amount } = sources;
        [
            (capacity, "the capacity"),
            (amount, "the amount of the rate"),
        ]
    });
    named.filter_map(|(source, name)| Some((source.as_ref()?, name)))
}

/// The numbers of a limit, as written in a rule file.
#[derive(Debug)]
pub(super) struct Phrase {
    pub(super) algorithm: &'static str,
    fields: Map<String, Value>,
    pub(super) capacity: u64,
    /// True if requests can cost more or less than one unit, so that the phrase must count units
    /// instead of requests.
    pub(super) in_units: bool,
}

impl Phrase {
    /// Returns the value of a field, or its default, as a string.
    pub(super) fn text(&self, name: &str) -> Option<String> {
        if let Some(value) = self.fields.get(name) {
            let text = value.as_str().map(str::to_owned);
            return Some(text.unwrap_or_else(|| value.to_string()));
        }
        let table = super::fields(self.algorithm).iter();
        let field = table.copied().find(|field| field.name == name)?;
        field.default.map(str::to_owned)
    }

    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.text(name)?.parse().ok()
    }

    pub(super) fn span(&self, name: &str) -> Option<Nanos> {
        Nanos::parse(&self.text(name)?)
    }

    pub(super) fn rate(&self) -> Option<Rate> {
        Rate::parse(&self.text("rate")?)
    }

    /// Returns the field `starts`, which specifies the first day of a calendar period, or an empty
    /// string if it is absent.
    pub(super) fn starts(&self) -> Map<String, Value> {
        let starts = self.fields.get("starts").and_then(Value::as_object);
        starts.cloned().unwrap_or_default()
    }

    pub(super) fn is(&self, name: &str, word: &str) -> bool {
        self.text(name).is_some_and(|text| text == word)
    }

    /// Returns a phrase such as `may do 15`.
    pub(super) fn may(&self, count: u64) -> String {
        let verb = if self.in_units { "take" } else { "do" };
        format!("may {verb} {}", self.some(count))
    }

    /// Returns a phrase such as `15` or `15 units`.
    pub(super) fn some(&self, count: u64) -> String {
        match (self.in_units, count) {
            (false, _) => count.to_string(),
            (true, 1) => "1 unit".to_owned(),
            (true, _) => format!("{count} units"),
        }
    }

    /// Returns a phrase such as `one every 2s` or `7 per second (one about every 143ms)`.
    pub(super) fn pace(&self, rate: Rate) -> String {
        let one = if self.in_units { "one unit" } else { "one" };
        let (amount, period) = (u64::from(rate.amount()), rate.period().get());
        if amount == 1 {
            return format!("{one} every {}", time(rate.period()));
        }
        let interval = period.checked_div(amount).unwrap_or(0);
        let each = Nanos::new(interval).to_string();
        if interval.checked_mul(amount) == Some(period) && each.len() <= 5 {
            return format!("{one} every {}", time(Nanos::new(interval)));
        }
        let (some, per) = (self.some(amount), time(rate.period()));
        if interval == 0 {
            return format!("{some} per {per}");
        }
        let about = humanise(period.div_ceil(amount));
        format!("{some} per {per} ({one} about every {about})")
    }

    /// Returns a phrase saying that early requests are held, or an empty string if the limit does
    /// not hold requests.
    pub(super) fn early(&self) -> Option<String> {
        let wait = self.span("max_wait")?;
        if wait == Nanos::ZERO {
            return Some(String::new());
        }
        Some(format!(
            "; requests that come too early are held for up to {wait}"
        ))
    }
}

/// Returns `second`, `minute`, `hour`, `day`, or the duration as a string.
pub(super) fn time(span: Nanos) -> String {
    let text = span.to_string();
    match text.as_str() {
        "1s" => "second".to_owned(),
        "1m" => "minute".to_owned(),
        "1h" => "hour".to_owned(),
        "1d" => "day".to_owned(),
        _ => text,
    }
}

/// Returns the time that `rate` needs to admit `amount`, rounded up.
pub(super) fn time_of(amount: u64, rate: Rate) -> Nanos {
    let span = u128::from(amount).saturating_mul(rate.period().get().into());
    let span = span.div_ceil(u128::from(rate.amount()).max(1));
    Nanos::new(u64::try_from(span).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use crate::config::{limit_fields, parse_limits};
    use loudou_limiter::algorithm::Algorithm;
    use serde_json::json;

    use super::*;

    fn phrase_of(limit: &Value, cost: u32) -> String {
        let limits = parse_limits(&json!([limit])).expect("valid");
        phrase(limits.iter().next().expect("one"), &Cost::Fixed(cost))
    }

    #[test]
    fn paces() {
        for (rate, expected) in [
            ("30/60s", "one every 2s"),
            ("1/m", "one every minute"),
            ("60/m", "one every second"),
            ("4/s", "one every 250ms"),
            ("7/s", "7 per second (one about every 143ms)"),
            ("1000/d", "1000 per day (one about every 1m27s)"),
            ("64/s", "64 per second (one about every 16ms)"),
            ("2/1ns", "2 per 1ns"),
            ("1/d", "one every day"),
        ] {
            let limit = json!({ "algorithm": "funnel", "capacity": 15, "rate": rate });
            assert_eq!(
                phrase_of(&limit, 1),
                format!("may do 15 at once, then {expected}")
            );
        }
        let limit = json!({ "algorithm": "funnel", "capacity": 15, "rate": "7/s" });
        assert_eq!(
            phrase_of(&limit, 2),
            "may take 15 units at once, then 7 units per second (one unit about every 143ms)"
        );
    }

    #[test]
    fn lumps_and_slots() {
        let lumps = |rate: &str| {
            let limit = json!({ "algorithm": "token_bucket", "capacity": 5, "rate": rate,
                "refill": "interval" });
            phrase_of(&limit, 1)
        };
        let start = "may do 5 at once, and";
        assert_eq!(
            lumps("2/h"),
            format!("{start} 2 come back every hour, in one go")
        );
        assert_eq!(
            lumps("1/h"),
            format!("{start} 1 comes back every hour, in one go")
        );
        let all = format!("{start} all of it comes back every 90s, in one go");
        assert_eq!([lumps("5/90s"), lumps("9/90s")], [all.clone(), all]);
        let slots = json!({ "algorithm": "sliding_window", "capacity": 5, "window": "1s",
            "slots": 3, "slot_capacity": 5 });
        assert_eq!(
            phrase_of(&slots, 1),
            "may do 5 in any 3 slots of about 334ms in a row"
        );
    }

    /// Checks that no algorithm falls back to the phrase for unknown algorithms.
    #[test]
    fn every_algorithm_has_words() {
        for name in Algorithm::NAMES {
            let mut limit = json!({ "algorithm": name });
            let needed = limit_fields(name).iter().filter(|f| f.default.is_none());
            for field in needed {
                limit[field.name] = match field.name {
                    "capacity" => json!(5),
                    "rate" => json!("1/s"),
                    _ => json!("1m"),
                };
            }
            for cost in [1, 2] {
                let expected = phrase_of(&limit, cost);
                assert!(expected.starts_with("may "), "{name}: {expected}");
                assert_eq!(expected.contains("unit"), cost > 1, "{name}: {expected}");
            }
        }
    }
}
