//! How much memory the store takes when every bucket is in use.

use super::names;
use super::page::{PAGE_HEAD, SLOTS, slot_bytes};
use crate::config::scaled;
use crate::limit::Limits;
use crate::rule::key::MAX_KEY;
use crate::rule::{Override, Rule, RuleFile};

/// The length of a key that is counted with where nothing is known of the keys.
pub const USUAL_KEY: usize = 24;
/// About what the host keeps beside a value: its key, its version, and its place in a hash table.
const VALUE_OVERHEAD: usize = 150;

/// Bytes of Envoy's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// With every bucket in use, each of the largest rule's, and keys of [`USUAL_KEY`] bytes.
    pub full: u64,
    /// The bound: with keys as long as can be, and the names of evicted buckets still there.
    pub most: u64,
}

/// The most bytes that a bucket of these limits takes in its page.
pub fn bucket_bytes(limits: &Limits) -> usize {
    slot_bytes(limits.words())
}

/// The most bytes that a bucket of a rule takes, whatever its key.
fn rule_bytes(rule: &Rule) -> usize {
    let own = rule.overrides.values().map(|own| match own {
        Override::Limits(limits) => bucket_bytes(limits),
        Override::Scale(scale) => {
            scaled(&rule.limits, *scale).map_or(0, |limits| bucket_bytes(&limits))
        }
        Override::Unlimited | Override::Banned => 0,
    });
    own.max().unwrap_or(0).max(bucket_bytes(&rule.limits))
}

/// The memory of a file's store, by its largest bucket.
pub fn memory(file: &RuleFile) -> Memory {
    let buckets = file.rules.iter().map(rule_bytes);
    let bucket = buckets.max().unwrap_or_else(|| slot_bytes(0));
    let page = bucket.saturating_mul(SLOTS).saturating_add(PAGE_HEAD);
    let pages = u64::from(file.store.buckets).div_ceil(u64::try_from(SLOTS).unwrap_or(1));
    let all = |names: usize| {
        let page = page
            .saturating_add(names)
            .saturating_add(VALUE_OVERHEAD.saturating_mul(2));
        pages.saturating_mul(u64::try_from(page).unwrap_or(u64::MAX))
    };
    Memory {
        full: all(names::bytes(SLOTS, USUAL_KEY)),
        most: all(names::bytes(names::ENTRIES, MAX_KEY)),
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::config::{parse, parse_limits};
    use crate::limit::Bucket;
    use crate::store::names::Names;
    use crate::store::page::{Page, Slot};
    use crate::time::Nanos;
    use serde_json::{Value, json};

    fn page(words: &[u64]) -> Page {
        let bucket = Bucket {
            last: Nanos::MAX,
            given: u64::MAX,
            words: words.into(),
        };
        let slot = |fingerprint| Slot {
            fingerprint,
            rule_tag: u32::MAX,
            limits_tag: u32::MAX,
            idle_at_ms: u64::MAX,
            held_until_ms: 0,
            admitted: u64::MAX,
            refused: u64::MAX,
            flags: u8::MAX,
            origin: u32::MAX,
            conduct: crate::ban::Conduct::default(),
            bucket: bucket.clone(),
        };
        let slots = (0..16).map(slot).collect();
        Page {
            origins: u32::MAX,
            slots,
        }
    }

    /// A full page and its names are as large as they are said to be.
    #[test]
    fn sizes_are_those_of_what_is_written() {
        let limit = |name: &str| json!({ "name": name, "algorithm": "funnel", "capacity": 5, "rate": "1/s" });
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

    #[test]
    fn the_largest_bucket_counts() {
        let rule = |name: &str, limits: Value| json!({ "name": name, "key": [], "limits": limits });
        let funnel = |name: &str| json!({ "name": name, "algorithm": "funnel", "capacity": 5, "rate": "1/s" });
        let of = |rules: Value| {
            let document = json!({ "version": 1, "store": { "buckets": 64 }, "rules": rules });
            memory(&parse(&document).file.expect("valid"))
        };
        let small = of(json!([rule("a", json!([funnel("x")]))]));
        let large = of(json!([
            rule("a", json!([funnel("x")])),
            rule("b", json!([funnel("x"), funnel("y")]))
        ]));
        assert_eq!(large.full - small.full, 64 * 16);
        assert_eq!(large.most - small.most, 64 * 16);
        assert!(small.full < small.most);
        // Four pages of 16 buckets, with names of 24 bytes.
        assert_eq!(small.full, 4 * (8 + 16 * 67 + 3 + 16 * 33 + 300));
        assert!(of(json!([])).full < small.full);
    }
}
