//! Converts between the limiter's types and the JSON of relay calls. The format is defined by types
//! in [`loudou_api`], but the code derived for them would add 50 KiB to the Wasm module. This
//! module therefore builds and reads the JSON as a [`Value`] tree.

use loudou_api::RELAY_HEADER;
use loudou_limiter::Nanos;
use loudou_limiter::lease::{Demand, Grant, RemainingUnits, Shared, Terms};
use serde_json::{Map, Value};

use super::travel::{self, Changes, ChangesAnswer, ReceivedChange};
use crate::host::Host;
use crate::json::{list, number, optional, text};

/// Maximum size of a response, in bytes. Responses for 512 keys and responses with the maximum
/// amount of changes are both smaller than this.
const MAX_ANSWER: usize = 512 << 10;

fn object(fields: &mut [(&str, Value)]) -> Value {
    let mut object = Map::new();
    // `collect` would pull in a sort, which would add 5 KiB to the Wasm module.
    for (name, value) in fields {
        object.insert((*name).to_owned(), value.take());
    }
    Value::Object(object)
}

/// Returns the JSON of a call that requests tokens for keys.
pub(super) fn call(namespace: &str, keys: Vec<Value>) -> Vec<u8> {
    let call = object(&mut [
        ("namespace", namespace.into()),
        ("instance", "".into()),
        ("keys", Value::Array(keys)),
    ]);
    serde_json::to_vec(&call).unwrap_or_default()
}

/// Returns the JSON of a heartbeat call. The call signals that this Envoy is alive, reports local
/// changes, and fetches changes that this Envoy does not have yet.
pub(super) fn heartbeat_call(
    namespace: &str,
    instance: &str,
    changes: &Changes,
    now: Nanos,
) -> Vec<u8> {
    let mut unsent = Vec::new();
    for change in changes.unsent() {
        unsent.push(self::unsent(change, now));
    }
    let call = object(&mut [
        ("namespace", namespace.into()),
        ("instance", instance.into()),
        ("epoch", changes.head.epoch.as_str().into()),
        ("generation", changes.head.generation.into()),
        ("changes", Value::Array(unsent)),
    ]);
    serde_json::to_vec(&call).unwrap_or_default()
}

fn unsent(change: &travel::Change, now: Nanos) -> Value {
    let ends_in = match change.until {
        Nanos::MAX => 0,
        until => until.since(now).millis_ceil().max(1),
    };
    object(&mut [
        ("name", change.name.as_str().into()),
        (
            "value",
            serde_json::from_slice(&change.value).unwrap_or_default(),
        ),
        ("age_ms", now.since(change.made_at).as_millis().into()),
        ("ends_in_ms", ends_in.into()),
        ("instance", change.by.as_str().into()),
    ])
}

/// Returns the JSON of a token request for a key.
pub(super) fn asked(rule: &str, key: &str, terms: &Terms, demand: Demand) -> Value {
    let limits = terms.limits().iter().copied().map(limit);
    object(&mut [
        ("rule", rule.into()),
        ("key", key.into()),
        ("limits", Value::Array(limits.collect())),
        ("want", demand.want.into()),
        ("need", demand.need.into()),
        ("debt", demand.debt.into()),
    ])
}

fn limit(limit: Shared) -> Value {
    let capacity = ("capacity", limit.capacity().into());
    match limit {
        Shared::Leak { rate, .. } => object(&mut [
            capacity,
            ("amount", rate.amount().into()),
            ("period_ns", rate.period().get().into()),
        ]),
        Shared::Interval { rate, .. } => object(&mut [
            capacity,
            ("amount", rate.amount().into()),
            ("interval_ns", rate.period().get().into()),
        ]),
        Shared::Window { window, .. } => {
            object(&mut [capacity, ("window_ns", window.get().into())])
        }
    }
}

/// A relay response.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answer {
    /// Each key's grant, or `None` if the engine gave no answer for the key.
    pub(super) grants: Vec<Option<Grant>>,
    /// Number of Envoys that the engine has counted, or 0 if the call was not a heartbeat or the
    /// engine did not answer.
    pub(super) envoys: u64,
    pub(super) changes: ChangesAnswer,
}

/// Returns the relay's response to a call for `keys` keys. Returns `None` if the response came from
/// Envoy or another proxy rather than from the relay, or if it is an error, too large or invalid.
pub(super) fn received(host: &dyn Host, size: usize, keys: usize) -> Option<Answer> {
    let is_ok = host.called_header(":status")? == b"200";
    host.called_header(RELAY_HEADER).filter(|_| is_ok)?;
    if size > MAX_ANSWER {
        return None;
    }
    answer(&host.called_body(MAX_ANSWER)?, keys)
}

/// Parses a response. Returns `None` if the response is invalid or does not contain exactly `keys`
/// answers.
fn answer(answer: &[u8], keys: usize) -> Option<Answer> {
    let answer: Value = serde_json::from_slice(answer).ok()?;
    let answers = answer.get("keys")?.as_array()?;
    let grants: Option<Vec<_>> = answers.iter().map(grant).collect();
    Some(Answer {
        grants: grants.filter(|grants| grants.len() == keys)?,
        envoys: number(&answer, "envoys").unwrap_or(0),
        changes: parse_changes(&answer)?,
    })
}

fn parse_changes(answer: &Value) -> Option<ChangesAnswer> {
    // Loops are used because each `collect` into an `Option` would add half a kibibyte to the Wasm
    // module.
    let each = |name| match answer.get(name).and_then(Value::as_array) {
        Some(list) => list.as_slice(),
        None => &[],
    };
    let mut changes = ChangesAnswer {
        epoch: text(answer, "epoch").unwrap_or_default(),
        generation: number(answer, "generation").unwrap_or(0),
        more: answer.get("more").and_then(Value::as_bool).unwrap_or(false),
        ..ChangesAnswer::default()
    };
    for change in each("changes") {
        changes.received.push(parse_change(change)?);
    }
    for one in each("rejected") {
        changes
            .refused
            .push((text(one, "name")?, text(one, "why")?));
    }
    Some(changes)
}

fn parse_change(change: &Value) -> Option<ReceivedChange> {
    let value = change.get("value").filter(|value| !value.is_null());
    let millis = |name| number(change, name).unwrap_or(0);
    Some(ReceivedChange {
        name: text(change, "name")?,
        value: value.map_or_else(Vec::new, |value| {
            serde_json::to_vec(value).unwrap_or_default()
        }),
        age: Nanos::from_millis(millis("age_ms")),
        ends_in: Some(Nanos::from_millis(millis("ends_in_ms"))).filter(|span| !span.is_zero()),
        by: text(change, "instance").unwrap_or_default(),
        generation: number(change, "generation")?,
    })
}

#[expect(clippy::option_option, reason = "an error and nonsense are different")]
fn grant(answer: &Value) -> Option<Option<Grant>> {
    if answer.get("error").is_some_and(Value::is_string) {
        return Some(None);
    }
    let or_0 = |name| number(answer, name).unwrap_or(0);
    let left = optional(answer, "left", |left| {
        RemainingUnits::of(list(left, Value::as_u64)?)
    });
    Some(Some(Grant {
        granted: number(answer, "granted")?,
        charged: number(answer, "charged")?,
        wait: micros(or_0("wait_us")),
        left: left?.unwrap_or_default(),
        ends_in: micros(or_0("ends_us")),
    }))
}

const fn micros(micros: u64) -> Nanos {
    Nanos::new(micros.saturating_mul(1_000))
}

/// Returns random bits for jitter, so that the Envoys in a fleet do not all act at the same moment.
pub(super) fn jitter(host: &dyn Host) -> u64 {
    let random = host.random();
    random.first_chunk().copied().map_or(0, u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use loudou_api::{
        Change, KeyAnswer, Lease, LeaseAnswer, LeaseError, LeaseRequest, RejectedChange,
    };
    use loudou_limiter::Rate;
    use loudou_limiter::lease::LeaseSettings;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_call_is_one_of_the_contract() {
        let rate = Rate::parse("30/m").expect("a rate");
        let limits = [
            Shared::Leak { capacity: 15, rate },
            Shared::Interval { capacity: 16, rate },
            Shared::Window {
                capacity: 17,
                window: Nanos::from_secs(9),
            },
        ];
        let settings = LeaseSettings {
            lease: Nanos::from_millis(200),
            timeout: Nanos::from_millis(30),
            credit: 0,
        };
        let terms = Terms::new(&limits, &settings).expect("valid");
        let demand = Demand {
            want: 7,
            need: 2,
            debt: 3,
        };
        let hostile = "a\"\\\n{}\u{0}\u{202e}";
        let call = call("ns", vec![asked("r", hostile, &terms, demand)]);
        let read = LeaseRequest::read(&call).expect("a call of the contract");
        let written = serde_json::to_value(&read).expect("JSON");
        let limits = json!([
            { "capacity": 15, "amount": 30, "period_ns": 60_000_000_000_u64 },
            { "capacity": 16, "amount": 30, "interval_ns": 60_000_000_000_u64 },
            { "capacity": 17, "window_ns": 9_000_000_000_u64 },
        ]);
        let key = json!({ "rule": "r", "key": hostile, "limits": limits, "want": 7, "need": 2, "debt": 3 });
        assert_eq!(written["keys"], json!([key]));
        assert_eq!(
            (read.namespace.as_str(), read.instance.as_str()),
            ("ns", "")
        );
    }

    /// Returns a ban in its stored form, and in the form sent to the relay half a second later.
    fn ban() -> (travel::Change, Change) {
        let kept = travel::Change {
            name: "ban/r/k%2F".to_owned(),
            value: b"{\"by\":\"ops\"}".to_vec(),
            made_at: Nanos::from_millis(1_000),
            until: Nanos::new(9_000_000_001),
            by: "00000000000000ff".to_owned(),
            sent: travel::Sent::Unsent,
            ..travel::Change::default()
        };
        let travels = Change {
            name: kept.name.clone(),
            value: json!({ "by": "ops" }),
            age_ms: 500,
            ends_in_ms: 7_501,
            instance: kept.by.clone(),
            ..Change::default()
        };
        (kept, travels)
    }

    /// Returns an edit's removal in its stored form, and in the form sent to the relay half a
    /// second later.
    fn end() -> (travel::Change, Change) {
        let kept = travel::Change {
            name: "edit/r".to_owned(),
            made_at: Nanos::from_millis(1_000),
            until: Nanos::MAX,
            sent: travel::Sent::Unsent,
            ..travel::Change::default()
        };
        let travels = Change {
            name: kept.name.clone(),
            age_ms: 500,
            ..Change::default()
        };
        (kept, travels)
    }

    #[test]
    fn changes_are_sent_in_the_words_of_the_contract() {
        let mut changes = Changes::default();
        (changes.head.epoch, changes.head.generation) = ("e1".to_owned(), 12);
        changes.all = vec![ban().0, travel::Change::default(), end().0];
        let sent = heartbeat_call(
            "ns",
            "0123456789abcdef",
            &changes,
            Nanos::from_millis(1_500),
        );
        let read = LeaseRequest::read(&sent).expect("a call of the contract");
        assert_eq!((read.epoch.as_str(), read.generation), ("e1", 12));
        assert_eq!(read.changes, [ban().1, end().1]);
    }

    #[test]
    fn changes_of_the_contract_are_heard() {
        let numbered = |generation, change| Change {
            generation,
            ..change
        };
        let written = LeaseAnswer {
            envoys: 2,
            epoch: "e2".to_owned(),
            generation: 4,
            changes: vec![numbered(3, ban().1), numbered(4, end().1)],
            more: true,
            rejected: vec![RejectedChange {
                name: "edit/s".to_owned(),
                why: "no room".to_owned(),
            }],
            ..LeaseAnswer::default()
        };
        let bytes = serde_json::to_vec(&written).expect("JSON");
        let heard = answer(&bytes, 0).expect("an answer").changes;
        let told = |kept: travel::Change, generation, ends_in| ReceivedChange {
            name: kept.name,
            value: kept.value,
            age: Nanos::from_millis(500),
            ends_in,
            by: kept.by,
            generation,
        };
        let ends_in = Some(Nanos::from_millis(7_501));
        assert_eq!(
            heard.received,
            [told(ban().0, 3, ends_in), told(end().0, 4, None)]
        );
        let numbers = (heard.epoch.as_str(), heard.generation, heard.more);
        assert_eq!(numbers, ("e2", 4, true));
        assert_eq!(heard.refusal("edit/s"), Some("no room"));
        assert_eq!(heard.refusal("edit/s2"), None);
    }

    #[test]
    fn an_answer_of_the_contract_is_read() {
        let lease = Lease {
            granted: 5,
            charged: 1,
            wait_us: 2,
            left: vec![3, 970],
            ends_us: 4,
        };
        let written = LeaseAnswer {
            envoys: 4,
            keys: vec![
                KeyAnswer::Lease(lease),
                KeyAnswer::Failed(LeaseError::Timeout),
            ],
            ..LeaseAnswer::default()
        };
        let bytes = serde_json::to_vec(&written).expect("JSON");
        let grant = Grant {
            granted: 5,
            charged: 1,
            wait: Nanos::new(2_000),
            left: RemainingUnits::of([3, 970]).expect("few"),
            ends_in: Nanos::new(4_000),
        };
        let read = answer(&bytes, 2).expect("an answer");
        assert_eq!(read.grants, [Some(grant), None]);
        assert_eq!(read.envoys, 4);
        assert_eq!(answer(&bytes, 1), None);
        assert_eq!(answer(&bytes[1..], 2), None);
        for wrong in [
            "{}",
            "{\"keys\":[{}]}",
            "{\"keys\":[{\"granted\":-1,\"charged\":0}]}",
            r#"{"keys":[{"granted":1,"charged":0,"left":3}]}"#,
            r#"{"keys":[{"granted":1,"charged":0,"left":[3,null]}]}"#,
            r#"{"keys":[{"granted":1,"charged":0,"left":[1,2,3,4,5,6,7,8,9]}]}"#,
        ] {
            assert_eq!(answer(wrong.as_bytes(), 1), None, "{wrong}");
        }
    }
}
