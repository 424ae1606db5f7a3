//! Searches in a store in memory, cut into steps at any place.

use std::collections::{BTreeMap, BTreeSet};

use loudou_limiter::{BucketRequest, Clock, Nanos};
use loudou_rules::config::parse_rule;
use loudou_rules::versions::History;
use loudou_store::memory::MemoryStore;
use loudou_store::{CAS_OVERWRITE, StoreStats};
use serde_json::{Value, json};

use super::*;

/// Reproducible pseudo-random numbers: Knuth's generator, by its high bits.
struct Random(u64);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        let next = self.0.wrapping_mul(6_364_136_223_846_793_005);
        self.0 = next.wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }
}

struct World {
    store: MemoryStore,
    table: Table,
    rules: Vec<ActiveRule>,
    now: u64,
}

impl World {
    fn new(buckets: u32, limits: &[Value]) -> Self {
        let mut store = MemoryStore::new();
        let table = Table::open(&mut store, "t", buckets, [7; 16], Nanos::ZERO).expect("new");
        let rule = |(n, limit): (usize, &Value)| {
            let rule = json!({ "name": format!("r{n}"), "key": [], "limits": [limit] });
            ActiveRule::new(parse_rule(&rule).expect("valid"), History::default())
        };
        Self {
            store,
            table,
            rules: limits.iter().enumerate().map(rule).collect(),
            now: 1_000_000_000,
        }
    }

    /// A world of one rule.
    fn daily(buckets: u32) -> Self {
        Self::new(
            buckets,
            &[json!({ "algorithm": "funnel", "capacity": 9, "rate": "1/d" })],
        )
    }

    fn take(&mut self, rule: usize, key: &str) {
        let ask = BucketRequest::new(1, Nanos::new(self.now));
        let take = self.rules[rule].acquire(key, ask);
        let charge = self
            .table
            .charge(&mut self.store, &take, &mut StoreStats::default());
        assert!(charge.is_ok(), "{key}");
    }

    fn reset(&mut self, key: &str) {
        let id = self.table.id(self.rules[0].tag(), key);
        self.table.reset(&mut self.store, id).expect("readable");
    }

    /// Loses the names of all pages.
    fn lose_names(&mut self) {
        for page in 0..self.table.pages() {
            let key = [b"t:n".as_slice(), &page.to_le_bytes()].concat();
            self.store.set(&key, &[], CAS_OVERWRITE).expect("written");
        }
    }

    /// One step; returns rule, key and state of what it found.
    fn step(
        &mut self,
        search: &Search,
        has_time: &mut dyn FnMut() -> bool,
    ) -> (Vec<(String, String, BucketState)>, Option<Cursor>) {
        let mut found = Vec::new();
        let mut place = Place {
            store: &mut self.store,
            table: &self.table,
            rules: &RulesByTag::new(self.rules.iter()),
            call_time: CallTime {
                clock: Clock::at(Nanos::new(self.now)),
                fleet: None,
            },
        };
        let next = search.step(&mut place, has_time, &mut |bucket| {
            let view = bucket.view();
            assert_eq!(view.state, bucket.state());
            found.push((view.rule, view.key, view.state));
        });
        (found, next)
    }

    /// All steps of a search; `between` is called after each with the keys that it found.
    fn all(
        &mut self,
        mut search: Search,
        random: &mut Random,
        mut between: impl FnMut(&mut Self, &mut Random),
    ) -> Vec<(String, String, BucketState)> {
        let mut all = Vec::new();
        let mut last = None;
        loop {
            let (mut found, next) = self.step(&search, &mut || random.below(4) > 0);
            assert!(found.len() <= search.most);
            all.append(&mut found);
            let Some(next) = next else { return all };
            let place = (next.page, next.after);
            assert!(
                Some(place) > last,
                "the cursor goes on: {last:?}, {place:?}"
            );
            last = Some(place);
            // As it comes back from a client.
            search.from = Cursor::parse(&next.to_string()).expect("its own form");
            between(self, random);
        }
    }
}

fn search(most: usize) -> Search {
    Search {
        most,
        ..Search::default()
    }
}

fn keys(found: &[(String, String, BucketState)]) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    for (_, key, _) in found {
        *counts.entry(key.as_str()).or_default() += 1;
    }
    counts
}

#[test]
fn every_bucket_is_found_once_wherever_steps_are_cut() {
    for seed in 0..60 {
        let random = &mut Random(seed);
        let buckets = 16 << random.below(8);
        let mut world = World::daily(buckets);
        let count = random.below(u64::from(buckets));
        let mut expected = BTreeSet::new();
        for n in 0..count {
            world.take(0, &format!("user-{n}"));
        }
        // Full pages may have evicted some.
        for n in 0..count {
            let key = format!("user-{n}");
            let id = world.table.id(world.rules[0].tag(), &key);
            if world
                .table
                .get(&mut world.store, id)
                .expect("read")
                .is_some()
            {
                expected.insert(key);
            }
        }
        let most = 1 + usize::try_from(random.below(40)).expect("small");
        let found = world.all(search(most), random, |_, _| {});
        let counts = keys(&found);
        assert!(counts.values().all(|count| *count == 1), "seed {seed}");
        assert!(
            counts
                .keys()
                .copied()
                .eq(expected.iter().map(String::as_str)),
            "seed {seed}"
        );
    }
}

#[test]
fn buckets_that_stay_are_found_once_while_others_come_and_go() {
    for seed in 0..40 {
        let random = &mut Random(seed);
        let mut world = World::daily(256);
        for n in 0..60 {
            world.take(0, &format!("stays-{n}"));
            world.take(0, &format!("goes-{n}"));
        }
        let most = 1 + usize::try_from(random.below(9)).expect("small");
        let found = world.all(search(most), random, |world, random| {
            // Half of them do not exist at any time, so that no page is full.
            let key = format!("goes-{}", random.below(60));
            if random.below(2) == 0 {
                world.reset(&key);
            } else {
                world.take(0, &key);
            }
        });
        let counts = keys(&found);
        for n in 0..60 {
            assert_eq!(counts.get(&*format!("stays-{n}")), Some(&1), "seed {seed}");
        }
    }
}

/// A step without any time still makes progress, so a search ends even on a stalled machine.
#[test]
fn a_step_without_time_makes_progress() {
    let mut world = World::daily(16_384);
    for n in 0..2_000 {
        world.take(0, &format!("user-{n}"));
    }
    let mut search = search(500);
    search.key = Some("nobody".to_owned());
    let mut steps = 0;
    loop {
        let (found, next) = world.step(&search, &mut || false);
        assert!(found.is_empty());
        steps += 1;
        let Some(next) = next else { break };
        search.from = next;
    }
    // Most pages of this world have buckets.
    assert!(steps <= 1_024 * VALUE / MIN_STEP_WORK + 1, "{steps}");
    let (_, next) = world.step(&search, &mut || true);
    assert_eq!(next, None, "a step ends early only for lack of time");
}

/// The heads of buckets must not exclude any bucket in the state, with any algorithm.
#[test]
fn a_filter_finds_exactly_what_the_list_has() {
    let limits = [
        json!({ "algorithm": "funnel", "capacity": 3, "rate": "3/s" }),
        json!({ "algorithm": "token_bucket", "capacity": 3, "rate": "3/s" }),
        json!({ "algorithm": "token_bucket", "capacity": 3, "rate": "3/s", "initial": 1 }),
        json!({ "algorithm": "token_bucket", "capacity": 2, "rate": "1/s", "refill": "interval" }),
        json!({ "algorithm": "fixed_window", "capacity": 3, "window": "1s" }),
        json!({ "algorithm": "fixed_window", "capacity": 3, "window": "1s", "align": "clock" }),
        json!({ "algorithm": "sliding_window", "capacity": 3, "window": "1s", "slots": 4 }),
        json!({ "algorithm": "sliding_counter", "capacity": 3, "window": "1s" }),
        json!({ "algorithm": "sliding_log", "capacity": 3, "window": "1s" }),
        json!({ "algorithm": "smooth_bursty", "rate": "2/s" }),
        json!({ "algorithm": "smooth_warmup", "rate": "3/s", "warmup": "1s" }),
        json!({ "algorithm": "leaky_queue", "capacity": 3, "rate": "3/s" }),
        json!({ "algorithm": "concurrency", "capacity": 2, "lease": "1s" }),
    ];
    let mut seen = BTreeSet::new();
    for seed in 0..30 {
        let random = &mut Random(seed);
        let mut world = World::new(4_096, &limits);
        for _ in 0..400 {
            let rule = usize::try_from(random.below(13)).expect("small");
            world.take(rule, &format!("k{}", random.below(5)));
            world.now += random.below(40_000_000);
        }
        world.now += random.below(15_000_000_000);
        let all = world.all(search(500), random, |_, _| {});
        for state in BucketState::ALL {
            let mut filtered = search(500);
            filtered.state = Some(state);
            let found = world.all(filtered, random, |_, _| {});
            let expected = all.iter().filter(|(_, _, other)| *other == state);
            assert!(found.iter().eq(expected), "seed {seed}, {state:?}");
            if !found.is_empty() {
                seen.insert(state.name());
            }
        }
    }
    assert_eq!(seen.len(), 3, "{seen:?}");
}

#[test]
fn a_text_is_found_wherever_it_is_in_a_key() {
    for is_lost in [false, true] {
        let mut world = World::daily(64);
        for key in [
            "alice",
            "alicia",
            "bob",
            "abba",
            "a%2Fb",
            "αβγ",
            &"x".repeat(128),
        ] {
            world.take(0, key);
        }
        if is_lost {
            world.lose_names();
        }
        let random = &mut Random(1);
        let all = world.all(search(500), random, |_, _| {});
        let texts = [
            "a", "al", "lic", "alice", "alicex", "bb", "ab", "β", "%2F", "#", "0", "f", "#0", "xx",
            "d", "1",
        ];
        let long = "x".repeat(127);
        for text in texts.into_iter().chain([long.as_str()]) {
            let mut by_text = search(500);
            by_text.key = Some(text.to_owned());
            let found = world.all(by_text, random, |_, _| {});
            let expected = all.iter().filter(|(_, key, _)| key.contains(text));
            assert!(found.iter().eq(expected), "{text}: {found:?}");
        }
    }
}

#[test]
fn rules_are_found_by_their_tags() {
    let limit = json!({ "algorithm": "funnel", "capacity": 9, "rate": "1/d" });
    for count in [0, 1, 2, 3, 255, 256] {
        let world = World::new(16, &vec![limit.clone(); count]);
        let rules = RulesByTag::new(world.rules.iter());
        for rule in &world.rules {
            let found = rules.get(rule.tag()).expect("it is there");
            assert_eq!(found.rule().name, rule.rule().name);
        }
        assert!(rules.get(1).is_none());
    }
}
