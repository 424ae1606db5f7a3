//! Compares a key's demand with its limit, and computes a rate that would suffice for the key.

use loudou_limiter::Rate;
use loudou_words::num::{float, whole};
use serde_json::Value;

use super::history::WINDOW_NS;
use super::rows::{Row, per_second};
use super::state::State;
use crate::draw::words::rate;

/// Demand of a key that exceeds its limit.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Demand {
    /// Demand in cost units per second. `allowed` is the limit's long-term rate.
    pub(crate) asks: f64,
    pub(crate) allowed: f64,
    /// A rate that would suffice, with the same period as the limit's rate: `40/m`.
    pub(crate) rate: String,
    /// Factor by which the limits would have to be raised to suffice: `1.4`.
    pub(crate) factor: String,
}

impl Demand {
    /// Returns a bucket's demand, averaged over the last minute or, if less than a minute was
    /// recorded, over the last few seconds. `None` if no requests are refused, the key is banned,
    /// the demand is within the limit, or a sufficient rate cannot be computed.
    pub(crate) fn of(state: &State, row: &Row) -> Option<Self> {
        let limit = row.limit()?;
        let allowed = per_second(limit)?;
        let track = state.history.buckets.get(&row.id)?;
        let minute = track.counted(WINDOW_NS).map(|counts| {
            (
                float(counts.all()) * 1e9 / float(WINDOW_NS),
                counts.refused.saturating_add(counts.shadow) > 0,
            )
        });
        let now = row
            .rates
            .map(|rates| (rates.all(), rates.refused + rates.shadow > 0.0));
        let (requests, is_refused) = minute.or(now)?;
        let asks = requests * cost(state, row)?;
        if !is_refused || row.view.ban.is_some() || asks <= allowed {
            return None;
        }
        let of_limit = Rate::parse(&limit.rate)?;
        let enough = round_up(asks * float(of_limit.period().get()) / 1e9);
        let period = limit.rate.split_once('/').map_or("s", |(_, period)| period);
        let factor = (asks / allowed * 10.0).ceil() / 10.0;
        Some(Self {
            asks,
            allowed,
            rate: format!("{enough}/{period}"),
            factor: if factor < 10.0 {
                format!("{factor:.1}")
            } else {
                round_up(factor).to_string()
            },
        })
    }

    /// Formats the demand: `asks 0.67/s, limit 0.5/s: 40/m would suffice (×1.4)`.
    pub(crate) fn words(&self) -> String {
        let [asks, allowed] = [self.asks, self.allowed].map(per_second_words);
        format!(
            "asks {asks}/s, limit {allowed}/s: {} would suffice (×{})",
            self.rate, self.factor
        )
    }
}

/// Formats a rate with at least two digits: `0.67`.
fn per_second_words(value: f64) -> String {
    if value < 1.0 {
        let digits = format!("{value:.2}");
        digits.strip_suffix('0').unwrap_or(&digits).to_owned()
    } else {
        rate(Some(value))
    }
}

/// Rounds up to a whole number. Large numbers keep two significant digits.
fn round_up(value: f64) -> u64 {
    let whole = whole(value.ceil());
    let step = 10_u64.saturating_pow(whole.checked_ilog10().unwrap_or(0).saturating_sub(1));
    whole.checked_next_multiple_of(step.max(1)).unwrap_or(whole)
}

/// Returns the cost of a request of this rule, in units, or `None` if each request declares its
/// cost.
fn cost(state: &State, row: &Row) -> Option<f64> {
    let cost = state
        .rule_named(&row.id.rule)?
        .rule
        .get("cost")
        .filter(|cost| !cost.is_null());
    cost.map_or(Some(1.0), |cost| Value::as_u64(cost).map(float))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::fixture::{feed, state};

    fn of(state: &State, key: &str) -> Option<String> {
        let rows = &state.data.as_ref().expect("data").rows;
        let row = rows.iter().find(|row| row.id.key == key).expect("a row");
        Demand::of(state, row).map(|demand| demand.words())
    }

    /// With a limit of 30/m, mallory sends one admitted and about 16 refused requests per second.
    #[test]
    fn what_a_refused_key_needs() {
        let mut state = state((80, 24), 3);
        let words = of(&state, "mallory").expect("it is refused");
        assert!(
            words.starts_with("asks 1") && words.contains("limit 0.5/s: "),
            "{words}"
        );
        assert_eq!(of(&state, "alice"), None);
        // Once a whole minute has been recorded, the demand is the average over that minute.
        for poll in 4..80 {
            feed(&mut state, poll);
        }
        let row = state
            .data
            .as_ref()
            .expect("data")
            .rows
            .iter()
            .find(|row| row.id.key == "mallory")
            .expect("a row");
        let demand = Demand::of(&state, row).expect("it is refused");
        let needed: f64 = demand
            .rate
            .strip_suffix("/m")
            .expect("per minute")
            .parse()
            .expect("a number");
        assert!(
            needed >= demand.asks * 60.0 && needed < demand.asks * 60.0 * 1.1 + 1.0,
            "{demand:?}"
        );
        let factor: f64 = demand.factor.parse().expect("a number");
        assert!(
            factor >= demand.asks / 0.5 && factor < demand.asks / 0.5 * 1.1 + 0.1,
            "{demand:?}"
        );
    }

    #[test]
    fn numbers_are_rounded_up() {
        let all = [0.2, 1.0, 40.3, 99.5, 101.0, 1234.0].map(round_up);
        assert_eq!(all, [1, 1, 41, 100, 110, 1300]);
        assert_eq!(
            [0.5, 0.666, 1.25].map(per_second_words),
            ["0.5", "0.67", "1.2"]
        );
    }
}
