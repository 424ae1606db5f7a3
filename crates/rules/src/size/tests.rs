use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use loudou_limiter::lease::{LEASE_WORDS, Lease};
use loudou_limiter::{Bucket, Decimal, Nanos};
use loudou_store::memory::MemoryStore;
use loudou_store::names::Names;
use loudou_store::page::{Page, Slot};
use loudou_store::top::{By, Tally};
use loudou_store::{SharedData, StoreStats, Table, UpstreamCondition};
use serde_json::{Value, json};

use super::*;
use crate::config::{parse, parse_limits};

fn page(words: &[u64]) -> Page {
    let bucket = Bucket {
        last: Nanos::MAX,
        given: u64::MAX,
        queue_end: Nanos::ZERO,
        words: words.into(),
    };
    let slot = |fingerprint| Slot {
        fingerprint,
        rule_tag: u32::MAX,
        version: u32::MAX,
        idle_at_ms: u64::MAX,
        held_until_ms: 0,
        admitted: u64::MAX,
        refused: u64::MAX,
        refused_at: loudou_store::page::Tick::default(),
        refused_since_ms: 0,
        flags: u8::MAX,
        origin: u32::MAX,
        ban_history: loudou_limiter::ban::BanHistory::default(),
        lease: None,
        bucket: bucket.clone(),
    };
    let slots = (0..16).map(slot).collect();
    Page {
        origins: u32::MAX,
        slots,
    }
}

/// A full page and its names have the computed size.
#[test]
fn sizes_are_those_of_what_is_written() {
    let limit =
        |name: &str| json!({ "name": name, "algorithm": "funnel", "capacity": 5, "rate": "1/s" });
    for count in [1, 2, 8] {
        let limits: Vec<Value> = (0..count).map(|n| limit(&alloc::format!("l{n}"))).collect();
        let limits = parse_limits(&Value::from(limits)).expect("valid");
        let mut bytes = Vec::new();
        page(&alloc::vec![u64::MAX; limits.words()]).encode(&mut bytes);
        assert_eq!(bytes.len(), PAGE_HEAD + SLOTS * bucket_bytes(&limits));
        assert_eq!(limits.state_bytes(), 8 * limits.words());
    }
    let mut names = Names::default();
    let mut bytes = Vec::new();
    for entry in 0..40 {
        names.add(entry, &"x".repeat(300), &Page::default());
    }
    names.encode(&mut bytes);
    assert_eq!(bytes.len(), names::bytes(names::ENTRIES, MAX_KEY));
}

/// A slot with a ban history, the shared counters and an upstream have the computed size.
#[test]
fn what_is_beside_the_buckets_is_as_large_as_said() {
    let mut with = page(&[u64::MAX]);
    for slot in &mut with.slots {
        slot.ban_history.banned_until_ms = 1;
    }
    let encoded = |page: &Page| {
        let mut bytes = Vec::new();
        page.encode(&mut bytes);
        bytes.len()
    };
    let plain = encoded(&page(&[u64::MAX]));
    assert_eq!(encoded(&with), plain + SLOTS * BAN_HISTORY);
    for slot in &mut with.slots {
        slot.refused_since_ms = 1;
    }
    assert_eq!(
        encoded(&with),
        plain + SLOTS * (BAN_HISTORY + REFUSED_SINCE)
    );

    let mut store = MemoryStore::new();
    for minute in 0..2 {
        let now = Nanos::from_secs(60 * minute);
        let mut tally = Tally::new("s");
        for n in 0..600 {
            for by in By::ALL {
                tally.count(
                    by,
                    1,
                    loudou_limiter::hash::mix(n),
                    &"x".repeat(MAX_KEY),
                    now,
                );
            }
        }
        tally.flush(&mut store, now.saturating_add(Nanos::from_secs(1)));
    }
    let mut bytes = Vec::new();
    store.get(b"s:top", &mut bytes).expect("readable");
    assert_eq!(bytes.len(), top::shared_bytes(MAX_KEY));

    let table = Table::open(&mut store, "s", 64, [0; 16], Nanos::ZERO).expect("opens");
    let when = UpstreamCondition {
        over: Decimal::from_thousandths(500),
        until_under: Decimal::from_thousandths(250),
        within: Nanos::from_secs(1),
        least: 2,
    };
    let mut stats = StoreStats::default();
    for cluster in ["a".repeat(24), "b".repeat(999)] {
        let cluster = cluster.as_bytes();
        table.respond(&mut store, &when, cluster, true, Nanos::ZERO, &mut stats);
    }
    let mut lengths = Vec::new();
    for place in 0..upstreams::PLACES {
        let place = u32::try_from(place).expect("few").to_le_bytes();
        let key = [&b"s:U"[..], &place].concat();
        if store.get(&key, &mut bytes).expect("readable").is_some() {
            lengths.push(bytes.len());
        }
    }
    lengths.sort_unstable();
    assert_eq!(lengths, [24, MAX_KEY].map(upstreams::bytes));
}

fn of(rules: &Value) -> Memory {
    let document = json!({ "version": 1, "store": { "buckets": 1_024 }, "rules": rules });
    memory(&parse(&document).file.expect("valid"))
}

fn rule(name: &str, limits: usize) -> Value {
    let limit =
        |n| json!({ "name": format!("l{n}"), "algorithm": "funnel", "capacity": 5, "rate": "1/s" });
    let limits: Vec<Value> = (0..limits).map(limit).collect();
    json!({ "name": name, "key": [{ "header": "x" }], "limits": limits })
}

#[test]
fn the_largest_bucket_counts() {
    let (small, large) = (
        of(&json!([rule("a", 1)])),
        of(&json!([rule("a", 1), rule("b", 2)])),
    );
    // A page of 1 080 bytes takes 1 152 bytes, and a page of 1 336 bytes takes 1 408.
    let grown = 64 * 256;
    assert!((grown..grown + 8_000).contains(&(large.full - small.full)));
    assert!(small.full < small.most);
    assert!(of(&json!([])).full < small.full);
    // 64 pages, with 32 names of 24 bytes each, and the counters of `top`.
    let pages = 64 * (1_152 + 1_152 + 2 * 96);
    let (counters, metrics) = (65_536 + 96, 3_000);
    let rules = small.full - pages - counters - metrics;
    assert!((5 * 256..5 * 512).contains(&rules), "{rules}");
}

/// Overrides, penalties and counters are part of the sum.
#[test]
fn penalties_overrides_and_upstreams_count() {
    let plain = of(&json!([rule("a", 1)]));
    let with = |field: &str, value: Value| {
        let mut rule = rule("a", 1);
        rule[field] = value;
        of(&json!([rule]))
    };
    let penalty = with(
        "penalty",
        json!({ "after": 3, "within": "1s", "ban": "1s" }),
    );
    assert!(penalty.full >= plain.full + 64 * 256, "18 bytes for each");
    let difference = penalty.most.abs_diff(plain.most);
    assert!(difference < 1_024, "anybody may be banned: {difference}");

    let when = with("when", json!({ "upstream_error_rate_over": 0.5 }));
    assert!((200_000..300_000).contains(&(when.full - plain.full)));
    assert!((1_300_000..1_500_000).contains(&(when.most - plain.most)));

    let many = |own: Value| {
        let all: serde_json::Map<String, Value> = (0..1_000)
            .map(|n| (format!("{n:024}"), own.clone()))
            .collect();
        with("overrides", Value::Object(all))
    };
    let word = many(json!("unlimited"));
    assert!(word.worker > plain.worker + 1_000 * 200);
    assert!(
        word.full > plain.full + 5 * 1_000 * 38,
        "the configuration is kept five times"
    );
    let scale = many(json!({ "scale": 2 }));
    let limits = many(json!({ "limits": rule("b", 1)["limits"] }));
    assert!(word.worker < scale.worker && scale.worker < limits.worker);

    let matches = |path: Value| with("match", json!({ "path": path })).worker;
    let regex = |text: &str| matches(json!({ "regex": text }));
    assert!(regex("/a") > matches(json!({ "exact": "/a" })) + 1_000);
    assert!(regex("(?:.*a){60}") > regex("/a") + 10_000);
}

/// Allocations have the same sizes as in Envoy. Sizes above the classes take whole pages.
#[test]
fn allocations_are_rounded_up() {
    for (bytes, most) in [(1, 8), (1_024, 1_024), (1_025, 1_152), (262_144, 262_144)] {
        assert_eq!(allocated(bytes), most);
    }
    assert_eq!(allocated(262_145), 33 * 8_192);
    // A short string is stored in the node. A string of 1 007 bytes and its final zero take 1 008
    // bytes.
    assert_eq!(value(22), 96);
    assert_eq!(value(23), 32 + 96);
    assert_eq!(value(1_007), 1_024 + 96);
    assert!(CLASSES.is_sorted());
}

/// A bucket that a fleet shares also has a lease, and its requests may wait for the relay.
#[test]
fn a_shared_bucket_has_a_lease() {
    let of_limits = |limits: usize, fields: &Value| {
        let mut rule = rule("a", limits);
        for (name, value) in fields.as_object().expect("an object") {
            rule[name] = value.clone();
        }
        let fleet = json!({ "cluster": "relay" });
        let document = json!({ "version": 1, "fleet": fleet, "rules": [rule] });
        parse(&document).file.expect("valid")
    };
    let file = |fields: &Value| of_limits(2, fields);
    let own = file(&json!({}));
    let shared = file(&json!({ "scope": "fleet" }));
    let bytes = |file: &RuleFile| file.rules.iter().map(bucket_bytes_of).sum::<usize>();
    for (limits, later) in [(1, 0), (2, 1), (8, 7)] {
        let shared = of_limits(limits, &json!({ "scope": "fleet" }));
        let lease = Lease::from_words(&[u64::MAX; LEASE_WORDS], &[u32::MAX; 7][..later]);
        let mut page = page(&alloc::vec![u64::MAX; shared.rules[0].limits.words()]);
        for slot in &mut page.slots {
            slot.lease = Some(Box::new(lease));
        }
        let mut written = Vec::new();
        page.encode(&mut written);
        assert_eq!(written.len(), PAGE_HEAD + SLOTS * bytes(&shared));
    }
    let (of_own, of_shared) = (memory(&own), memory(&shared));
    assert!(of_shared.full > of_own.full);
    assert!(of_shared.most > of_own.most + wide(FLEET_CHANGES));
    assert_eq!((of_own.held, of_shared.held), (0, 64 << 20));
    let counted = file(&json!({ "scope": "fleet", "mode": "shadow" }));
    assert_eq!(memory(&counted).held, 0);
}

/// The memory in use grows with each bucket. A full store without evictions takes less memory than
/// a store with evictions.
#[test]
fn what_is_in_use_is_between_nothing_and_full() {
    let document = json!({
        "version": 1,
        "store": { "buckets": 1_024 },
        "rules": [{
            "name": "r",
            "key": [{ "header": "x" }],
            "limits": [{ "algorithm": "funnel", "capacity": 5, "rate": "1/s" }],
        }],
    });
    let file = parse(&document).file.expect("valid");
    let of = |buckets| in_use(&file, buckets);
    let memory = memory(&file);
    assert!((0..1_024).all(|buckets| of(buckets) <= of(buckets + 1)));
    // Each of the first 64 buckets takes a page and a name.
    let page = page_memory(largest(&file, usual_bytes), 1, (1, USUAL_KEY));
    assert_eq!(of(64) - of(0), 64 * page);
    assert_eq!(of(65) - of(64), of(66) - of(65));
    assert!(of(1_024) < memory.full && memory.full < of(1_024) * 3 / 2);
}
