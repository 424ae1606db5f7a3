//! The Lua scripts, and the key names and arguments to call them with.
//!
//! The lease script receives only numbers and an escaped key name. Every byte of a key other than letters, digits and
//! `-._~` is escaped. A request therefore cannot terminate the key name early, choose its slot (`{}`), or address
//! another key.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};

use loudou_api::{
    Change, LeaseKey, LeaseLimit, LeaseRequest, MAX_ALL_CHANGES_BYTES, MAX_ANSWER_CHANGES,
    MAX_ANSWER_CHANGES_BYTES, MAX_CHANGES, TOMBSTONE_S,
};
use serde_json::json;

/// Script that leases units for one key.
pub const LEASE: &str = include_str!("lease.lua");
/// Script that maintains the record of a fleet's members and changes.
pub const FLEET: &str = include_str!("fleet.lua");
/// Number of milliseconds after its last call during which an instance counts as a member of the fleet.
pub const RECENT_MS: u64 = 10_000;

/// Keys and arguments for a script call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Call {
    /// Key names, all in the same slot.
    pub keys: Vec<String>,
    /// Arguments that follow the keys.
    pub arguments: Vec<String>,
}

/// Builds a call to [`LEASE`] for a key.
pub fn lease(namespace: &str, key: &LeaseKey) -> Call {
    let mut name = String::from("loudou:lease");
    for part in [namespace, &key.rule, &key.key] {
        name.push(':');
        escape(&mut name, part);
    }
    let mut arguments = vec![key.want, key.need, key.debt];
    for limit in &key.limits {
        arguments.extend(numbers(*limit));
    }
    Call {
        keys: vec![name],
        arguments: arguments.iter().map(u64::to_string).collect(),
    }
}

/// Converts a limit to arguments for [`LEASE`]: kind, capacity, num, den and amount.
fn numbers(limit: LeaseLimit) -> [u64; 5] {
    match limit {
        LeaseLimit::Leak {
            capacity,
            amount,
            period_ns,
        } => {
            let (num, den) = reduced(amount.saturating_mul(1_000), period_ns);
            [0, capacity, num, den, 0]
        }
        LeaseLimit::Interval {
            capacity,
            amount,
            interval_ns,
        } => {
            let (num, den) = reduced(1_000, interval_ns);
            [1, capacity, num, den, amount]
        }
        LeaseLimit::Window {
            capacity,
            window_ns,
        } => {
            let (num, den) = reduced(1_000, window_ns);
            [2, capacity, num, den, 0]
        }
    }
}

/// Reduces a fraction to lowest terms.
fn reduced(num: u64, den: u64) -> (u64, u64) {
    let (mut one, mut other) = (num, den);
    while other != 0 {
        (one, other) = (other, one.checked_rem(other).unwrap_or(0));
    }
    let over = |number: u64| number.checked_div(one).unwrap_or(number);
    (over(num), over(den))
}

/// Builds a call to [`FLEET`] for a request. `accepted` contains the changes that are within the bounds.
pub fn fleet(request: &LeaseRequest, accepted: &[&Change]) -> Call {
    let mut tag = String::new();
    escape(&mut tag, &request.namespace);
    let key = |name: &str| format!("loudou:fleet:{{{tag}}}:{name}");
    let fresh = format!("{:016x}", RandomState::new().build_hasher().finish());
    let mut arguments = vec![
        request.instance.clone(),
        fresh,
        request.epoch.clone(),
        request.generation.to_string(),
        RECENT_MS.to_string(),
        TOMBSTONE_S.saturating_mul(1_000).to_string(),
        MAX_CHANGES.to_string(),
        MAX_ALL_CHANGES_BYTES.to_string(),
        MAX_ANSWER_CHANGES.to_string(),
        MAX_ANSWER_CHANGES_BYTES.to_string(),
    ];
    for change in accepted {
        let is_end = change.value.is_null();
        let ends_in_ms = if is_end { 0 } else { change.ends_in_ms };
        arguments.push(change.name.clone());
        arguments.push(stored(change, &request.instance));
        arguments.push(u8::from(is_end).to_string());
        arguments.extend([change.age_ms, ends_in_ms].map(|ms| ms.to_string()));
    }
    Call {
        keys: ["callers", "record", "changes", "order", "ends"]
            .map(key)
            .to_vec(),
        arguments,
    }
}

/// Returns the JSON that the engine stores for a change. It contains neither the generation, which the engine assigns,
/// nor the times, which the engine stores separately.
pub(crate) fn stored(change: &Change, instance: &str) -> String {
    let maker = match change.instance.as_str() {
        "" => instance,
        maker => maker,
    };
    json!({
        "name": change.name,
        "value": change.value,
        "instance": maker,
    })
    .to_string()
}

/// Appends `text` to a key name. Every byte other than letters, digits and `-._~` is written as `%XX`.
fn escape(to: &mut String, text: &str) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            to.push(char::from(byte));
        } else {
            to.extend(["%", &format!("{byte:02X}")]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_breaks_out_of_a_key() {
        let named = |namespace: &str, rule: &str, key: &str| {
            let key = LeaseKey::new(rule, key, Vec::new());
            lease(namespace, &key).keys.concat()
        };
        assert_eq!(named("n", "r", "nina"), "loudou:lease:n:r:nina");
        assert_eq!(
            named("n", "a b", "{x}:\r\n\0%ä"),
            "loudou:lease:n:a%20b:%7Bx%7D%3A%0D%0A%00%25%C3%A4"
        );
        assert_ne!(named("a:b", "c", "d"), named("a", "b:c", "d"));
        assert_ne!(named("a%3Ab", "c", "d"), named("a:b", "c", "d"));
        let request = LeaseRequest::new("a}b", "");
        let keys = fleet(&request, &[]).keys;
        assert!(
            keys.iter()
                .all(|key| key.starts_with("loudou:fleet:{a%7Db}:"))
        );
    }

    #[test]
    fn numbers_are_whole_and_small() {
        let most = LeaseLimit::Leak {
            capacity: 1_000_000_000,
            amount: 999_999_999,
            period_ns: 31_622_400_000_000_000,
        };
        let odd = LeaseLimit::Leak {
            capacity: 1,
            amount: 1_000_000_000,
            period_ns: 3_599_999_999_999,
        };
        let limit = 1_u64 << 45;
        for limits in [most, odd] {
            let [_, _, num, den, _] = numbers(limits);
            assert!(num < limit && den < limit, "{num}/{den}");
        }
        let minute = LeaseLimit::Leak {
            capacity: 15,
            amount: 30,
            period_ns: 60_000_000_000,
        };
        assert_eq!(numbers(minute), [0, 15, 1, 2_000_000, 0]);
        let window = LeaseLimit::Window {
            capacity: 5,
            window_ns: 1_000_000_000,
        };
        assert_eq!(numbers(window), [2, 5, 1, 1_000_000, 0]);
    }
}
