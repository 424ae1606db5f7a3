//! What one limit means, as the end of a sentence: `may do 15 at once, then one every 2s`.

use loudou_limiter::{Decimal, Limit, Nanos, Rate};
use loudou_rules::config::limit_fields;
use loudou_rules::rule::Cost;
use serde_json::{Map, Value};

use crate::text::humanise;

/// What a limit means to whoever it counts, when a request takes `cost`.
pub(super) fn phrase(limit: &Limit, cost: &Cost) -> String {
    let algorithm = limit.algorithm();
    let numbers = Numbers {
        algorithm: algorithm.name(),
        fields: match serde_json::to_value(limit) {
            Ok(Value::Object(fields)) => fields,
            _ => Map::new(),
        },
        capacity: algorithm.capacity(),
        in_units: *cost != Cost::Fixed(1),
    };
    let said = match algorithm.name() {
        "funnel" => numbers.leaking(),
        "token_bucket" => numbers.tokens(),
        "fixed_window" => numbers.fixed_window(),
        "sliding_window" => numbers.sliding_window(),
        "sliding_log" => numbers.sliding_log(),
        "sliding_counter" => numbers.sliding_counter(),
        "leaky_queue" => numbers.queue(),
        "smooth_bursty" => numbers.bursty(),
        "smooth_warmup" => numbers.warmup(),
        "concurrency" => numbers.concurrency(),
        _ => None,
    };
    said.unwrap_or_else(|| format!("is limited by {}", algorithm.name()))
}

/// The numbers of a limit, as in a rule file.
struct Numbers {
    algorithm: &'static str,
    fields: Map<String, Value>,
    capacity: u64,
    /// Whether a request takes more than one unit, so that requests and units are not the same.
    in_units: bool,
}

impl Numbers {
    /// The text of a field, or of what holds without it.
    fn text(&self, name: &str) -> Option<String> {
        if let Some(value) = self.fields.get(name) {
            let text = value.as_str().map(str::to_owned);
            return Some(text.unwrap_or_else(|| value.to_string()));
        }
        let table = limit_fields(self.algorithm).iter();
        let field = table.copied().find(|field| field.name == name)?;
        field.default.map(str::to_owned)
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.text(name)?.parse().ok()
    }

    fn span(&self, name: &str) -> Option<Nanos> {
        Nanos::parse(&self.text(name)?)
    }

    fn rate(&self) -> Option<Rate> {
        Rate::parse(&self.text("rate")?)
    }

    fn is(&self, name: &str, word: &str) -> bool {
        self.text(name).is_some_and(|text| text == word)
    }

    /// `may do 15`.
    fn may(&self, count: u64) -> String {
        let verb = if self.in_units { "take" } else { "do" };
        format!("may {verb} {}", self.some(count))
    }

    /// `15`, or `15 units`.
    fn some(&self, count: u64) -> String {
        match (self.in_units, count) {
            (false, _) => count.to_string(),
            (true, 1) => "1 unit".to_owned(),
            (true, _) => format!("{count} units"),
        }
    }

    /// `one every 2s`, or `7 per second (one about every 143ms)`.
    fn pace(&self, rate: Rate) -> String {
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

    /// What happens to those who come too early.
    fn early(&self) -> Option<String> {
        let wait = self.span("max_wait")?;
        if wait == Nanos::ZERO {
            return Some(String::new());
        }
        Some(format!(
            "; what comes too early waits its turn for up to {wait}"
        ))
    }

    fn leaking(&self) -> Option<String> {
        let (may, pace) = (self.may(self.capacity), self.pace(self.rate()?));
        Some(format!("{may} at once, then {pace}{}", self.early()?))
    }

    fn tokens(&self) -> Option<String> {
        let may = self.may(self.capacity);
        let mut said = if self.is("refill", "interval") {
            let rate = self.rate()?;
            let amount = u64::from(rate.amount());
            let back = match amount {
                _ if amount >= self.capacity => "all of it comes".to_owned(),
                1 => format!("{} comes", self.some(1)),
                _ => format!("{} come", self.some(amount)),
            };
            format!(
                "{may} at once, and {back} back every {}, in one go",
                time(rate.period())
            )
        } else {
            format!("{may} at once, then {}", self.pace(self.rate()?))
        };
        let initial = self.number("initial").unwrap_or(self.capacity);
        if initial == 0 {
            said.push_str("; a new bucket starts with nothing");
        } else if initial < self.capacity {
            said.push_str("; a new bucket starts with ");
            said.push_str(&initial.to_string());
        }
        said.push_str(&self.early()?);
        Some(said)
    }

    fn fixed_window(&self) -> Option<String> {
        let (may, window) = (self.may(self.capacity), self.span("window")?);
        if !self.is("align", "clock") {
            return Some(format!(
                "{may} in each window of {window}, which begins with its first request"
            ));
        }
        Some(match window.to_string().as_str() {
            "1d" => format!("{may} in each day, from midnight UTC"),
            "1h" | "1m" | "1s" => format!("{may} in each {} of the clock", time(window)),
            other => format!("{may} in each {other} of the clock, counted from 1970 in UTC"),
        })
    }

    fn sliding_window(&self) -> Option<String> {
        let (window, slots) = (self.span("window")?.get(), self.number("slots")?);
        let slot = window.checked_div(slots)?;
        let each = if slot.checked_mul(slots) == Some(window) {
            Nanos::new(slot).to_string()
        } else {
            format!("about {}", humanise(slot))
        };
        let whole = self.number("capacity")?;
        let in_slot = self.number("slot_capacity")?;
        let mut said = format!(
            "{} in any {slots} slots of {each} in a row",
            self.may(whole)
        );
        if in_slot < whole {
            let more = format!(", at most {in_slot} of them in one slot");
            said.push_str(&more);
        }
        Some(said)
    }

    fn sliding_log(&self) -> Option<String> {
        let (may, window) = (self.may(self.capacity), self.span("window")?);
        let refused = if self.is("count_refused", "true") {
            "; refused ones count, too, so hammering does not help"
        } else {
            ""
        };
        Some(format!("{may} in any {window}{refused}"))
    }

    fn sliding_counter(&self) -> Option<String> {
        let (may, window) = (self.may(self.capacity), self.span("window")?);
        let may = may.replacen("may do ", "may do about ", 1);
        let may = may.replacen("may take ", "may take about ", 1);
        let worst = self.capacity.saturating_mul(2);
        Some(format!(
            "{may} in any {window} (estimated from two counters; at worst {worst})"
        ))
    }

    fn queue(&self) -> Option<String> {
        let rate = self.rate()?;
        let pace = self.pace(rate);
        let verb = if self.in_units { "take" } else { "do" };
        let (immediate, wait) = (self.number("immediate")?, self.span("max_wait")?);
        if immediate >= self.capacity {
            let all = self.capacity.saturating_add(1);
            return Some(format!("{} at once, then {pace}", self.may(all)));
        }
        if wait == Nanos::ZERO {
            let more = match immediate {
                0 => String::new(),
                _ => format!(", and up to {} ahead of that pace", self.some(immediate)),
            };
            return Some(format!(
                "may {verb} {pace}{more}; what would have to wait is refused"
            ));
        }
        let mut said = format!(
            "may {verb} {pace}, and up to {} more wait their turn",
            self.some(self.capacity)
        );
        if immediate > 0 {
            let more = format!(" (the first {immediate} of them pass at once)");
            said.push_str(&more);
        }
        // The longest wait is that of the last place.
        let waiting = self.capacity.saturating_sub(immediate);
        if time_of(waiting, rate) > wait {
            let more = format!("; what would wait longer than {wait} is refused");
            said.push_str(&more);
        }
        Some(said)
    }

    fn bursty(&self) -> Option<String> {
        let rate = self.rate()?;
        let verb = if self.in_units { "take" } else { "do" };
        let mut said = format!("may {verb} {}", self.pace(rate));
        let stored = self.capacity.saturating_sub(1);
        if stored > 0 {
            let more = format!("; idle time saves up to {} for later", self.some(stored));
            said.push_str(&more);
        }
        if self.in_units {
            said.push_str("; a request passes once those before it are paid off");
        }
        Some(said + &self.early()?)
    }

    fn warmup(&self) -> Option<String> {
        let (rate, warmup) = (self.rate()?, self.span("warmup")?);
        let factor = Decimal::parse(&self.text("cold_factor")?)?;
        let verb = if self.in_units { "take" } else { "do" };
        let mut said = format!("may {verb} {}", self.pace(rate));
        if factor > Decimal::from_thousandths(1_000) {
            let more = format!(
                " when warm; when cold (at first, and after {warmup} without requests) {factor} times as \
                 slowly, until {warmup} of use have warmed it up"
            );
            said.push_str(&more);
        }
        if self.in_units {
            said.push_str("; a request passes once those before it are paid off");
        }
        Some(said + &self.early()?)
    }

    fn concurrency(&self) -> Option<String> {
        let lease = self.span("lease")?;
        let twice = lease.saturating_add(lease);
        Some(format!(
            "may have {} under way at the same time; what is not heard to end stops counting after {lease} to {twice}",
            self.some(self.capacity)
        ))
    }
}

/// `second`, `minute`, `hour`, `day`, or the time itself.
fn time(span: Nanos) -> String {
    let text = span.to_string();
    match text.as_str() {
        "1s" => "second".to_owned(),
        "1m" => "minute".to_owned(),
        "1h" => "hour".to_owned(),
        "1d" => "day".to_owned(),
        _ => text,
    }
}

/// The time in which so much passes at `rate`.
fn time_of(amount: u64, rate: Rate) -> Nanos {
    let span = u128::from(amount).saturating_mul(rate.period().get().into());
    let span = span.div_ceil(u128::from(rate.amount()).max(1));
    Nanos::new(u64::try_from(span).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use loudou_limiter::algorithm::Algorithm;
    use loudou_rules::config::parse_limits;
    use serde_json::json;

    use super::*;

    fn say(limit: &Value, cost: u32) -> String {
        let limits = parse_limits(&json!([limit])).expect("valid");
        phrase(limits.iter().next().expect("one"), &Cost::Fixed(cost))
    }

    #[test]
    fn paces() {
        for (rate, said) in [
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
            assert_eq!(say(&limit, 1), format!("may do 15 at once, then {said}"));
        }
        let limit = json!({ "algorithm": "funnel", "capacity": 15, "rate": "7/s" });
        assert_eq!(
            say(&limit, 2),
            "may take 15 units at once, then 7 units per second (one unit about every 143ms)"
        );
    }

    #[test]
    fn lumps_and_slots() {
        let lumps = |rate: &str| {
            let limit = json!({ "algorithm": "token_bucket", "capacity": 5, "rate": rate,
                "refill": "interval" });
            say(&limit, 1)
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
            say(&slots, 1),
            "may do 5 in any 3 slots of about 334ms in a row"
        );
    }

    /// None falls through to the words for what is not known.
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
                let said = say(&limit, cost);
                assert!(said.starts_with("may "), "{name}: {said}");
                assert_eq!(said.contains("unit"), cost > 1, "{name}: {said}");
            }
        }
    }
}
