//! A single summary with a single stream, which is random, skewed, or adversarial.

use super::*;

/// Keys, of which small numbers are more frequent.
fn skewed() -> impl Strategy<Value = u64> {
    (0_u32..7).prop_flat_map(|bits| 0_u64..1 << bits)
}

proptest! {
    #![proptest_config(config(150))]

    #[test]
    fn counts_are_within_their_error(
        places in 1_usize..12,
        stream in prop::collection::vec((skewed(), 1_u64..4), 0..400),
    ) {
        let (mut summary, mut exact) = (Summary::new(places), Exact::new());
        for (key, times) in stream {
            add(&mut summary, &mut exact, key, times);
            holds(&summary, &exact, places);
            prop_assert!(summary.entries().len() < 2 * places);
        }
    }
}

/// Adversarial streams.
#[test]
fn streams_that_are_made_to_harm() {
    for places in [1, 2, 3, 8, 64] {
        for cycle in [
            1,
            places,
            places + 1,
            2 * places - 1,
            2 * places,
            2 * places + 1,
            3 * places,
        ] {
            // In a cycle, a key has always lost its counter when it returns.
            let (mut summary, mut exact) = (Summary::new(places), Exact::new());
            for n in 0..number(20 * cycle) {
                add(&mut summary, &mut exact, n % number(cycle), 1);
            }
            holds(&summary, &exact, places);
        }
        // A frequent key among keys that never return. It comes first, last, or in between.
        for at in 0..3 {
            let (mut summary, mut exact) = (Summary::new(places), Exact::new());
            for n in 0..3_000_u64 {
                if n / 1_000 == at {
                    add(
                        &mut summary,
                        &mut exact,
                        u64::MAX,
                        1 + 3_000 / number(places),
                    );
                }
                add(&mut summary, &mut exact, n, 1);
            }
            holds(&summary, &exact, places);
            assert_eq!(summary.most(|_| true)[0].key, u64::MAX.to_string());
        }
    }
}

#[test]
fn exact_while_every_key_has_a_place() {
    let (mut summary, mut exact) = (Summary::new(256), Exact::new());
    for n in 0..100_000_u64 {
        add(&mut summary, &mut exact, n * n % 251, 1);
    }
    assert_eq!(summary.floor(), 0);
    let counted = summary.entries().iter();
    let counted = counted.map(|entry| (entry.key.parse().expect("a key"), entry.count));
    assert_eq!(counted.collect::<Exact>(), exact);
}

#[test]
fn the_same_key_of_two_rules_is_two() {
    let mut summary = Summary::new(4);
    for rule in [1, 2, 2] {
        summary.add(rule, 99, "alice", 1);
    }
    let most = summary.most(|_| true);
    let most: Vec<(u32, u64)> = most.iter().map(|e| (e.rule_tag, e.count)).collect();
    assert_eq!(most, [(2, 2), (1, 1)]);
    assert_eq!(summary.most(|e| e.rule_tag == 1).len(), 1);
}

#[test]
fn equals_stand_in_the_order_of_their_keys() {
    let mut summary = Summary::new(8);
    for (fingerprint, key, times) in [(1, "c", 1), (2, "a", 1), (3, "b", 2), (4, "aa", 1)] {
        summary.add(RULE, fingerprint, key, times);
    }
    let keys: Vec<&str> = summary
        .most(|_| true)
        .iter()
        .map(|e| e.key.as_str())
        .collect();
    assert_eq!(keys, ["b", "a", "aa", "c"]);
}

#[test]
fn after_it_was_cleared_it_is_a_new_one() {
    let (mut summary, mut exact) = (Summary::new(4), Exact::new());
    for n in 0..100 {
        add(&mut summary, &mut exact, n, 3);
    }
    summary.clear();
    assert!(summary.is_empty() && summary.floor() == 0 && summary.entries().is_empty());
    exact.clear();
    for n in [99, 98, 99] {
        add(&mut summary, &mut exact, n, 1);
    }
    holds(&summary, &exact, 4);
}

#[test]
fn counts_stop_at_the_largest_number() {
    let mut summary = Summary::new(1);
    for key in 0..9 {
        summary.add(RULE, key, "k", u64::MAX);
    }
    let other = summary.clone();
    summary.merge(&other);
    assert_eq!(summary.floor(), u64::MAX);
}
