//! The health of upstreams in shared data. Workers agree, and the number of places is bounded.

use loudou_limiter::{Decimal, Nanos};
use loudou_store::memory::MemoryStore;
use loudou_store::upstreams::{PLACES, PROMISED, Upstream};
use loudou_store::{Cas, SharedData, StoreFailed, Table, UpstreamCondition, Written};

use super::World;

const HALF: UpstreamCondition = UpstreamCondition {
    over: Decimal::from_thousandths(500),
    until_under: Decimal::from_thousandths(250),
    within: Nanos::from_secs(1),
    least: 2,
};

impl World {
    fn respond(&mut self, cluster: &str, is_error: bool, now: Nanos) -> Option<bool> {
        let (table, stats) = (&self.table, &mut self.stats);
        let cluster = cluster.as_bytes();
        let turned = table.respond(&mut self.store, &HALF, cluster, is_error, now, stats);
        turned.map(|health| health.fails())
    }

    fn fails(&mut self, when: &UpstreamCondition, cluster: &str, now: Nanos) -> bool {
        let fails = self
            .table
            .fails(&mut self.store, when, cluster.as_bytes(), now);
        fails.expect("the store does not fail")
    }

    fn seen(&mut self) -> Vec<Upstream> {
        let seen = self.table.upstreams(&mut self.store);
        seen.expect("the store does not fail")
    }
}

#[test]
fn a_switch_for_each_cluster_and_each_when() {
    let (mut world, now) = (World::new(64), Nanos::from_secs(7));
    assert!(!world.fails(&HALF, "a", now));
    assert_eq!(world.respond("a", true, now), None);
    assert_eq!(world.respond("a", true, now), Some(true));
    assert_eq!(world.respond("a", true, now), None);
    assert_eq!(world.respond("b", false, now), None);
    assert!(world.fails(&HALF, "a", now));
    assert!(!world.fails(&HALF, "b", now));
    let others = [
        UpstreamCondition { least: 3, ..HALF },
        UpstreamCondition {
            over: Decimal::from_thousandths(501),
            ..HALF
        },
        UpstreamCondition {
            until_under: Decimal::from_thousandths(251),
            ..HALF
        },
        UpstreamCondition {
            within: Nanos::from_secs(2),
            ..HALF
        },
    ];
    for other in others {
        assert!(!world.fails(&other, "a", now), "{other:?}");
    }
    // An empty window is off, even if that was not written.
    assert!(!world.fails(&HALF, "a", Nanos::from_secs(8)));
    world.respond("B", false, now);
    let clusters: Vec<_> = world.seen().into_iter().map(|seen| seen.cluster).collect();
    assert_eq!(clusters, [b"B", b"a", b"b"]);
}

/// Only the displayed name is cut, not the identity of clusters.
#[test]
fn long_names() {
    let mut world = World::new(64);
    let long = "x".repeat(1_000);
    for end in ["a", "b"] {
        let cluster = format!("{long}{end}");
        world.respond(&cluster, true, Nanos::ZERO);
    }
    let seen = world.seen();
    assert_eq!(seen.len(), 2);
    assert!(seen.iter().all(|seen| seen.cluster.len() == 128));
    assert!(seen.iter().all(|seen| seen.health.count().responses == 1));
}

/// As many clusters as are promised a place, under many seeds. Also where every place was written before,
/// for clusters without further responses.
#[test]
fn every_promised_cluster_has_a_place() {
    for n in 0..100_u8 {
        let mut world = World::new(64);
        let seed = [n; 16];
        world.table =
            Table::open(&mut world.store, "seeded", 64, seed, Nanos::ZERO).expect("opens");
        let mut now = Nanos::ZERO;
        if n < 2 {
            for old in 0..15_000 {
                world.respond(&format!("old{old}"), true, now);
            }
            world.stats.lost_responses = 0;
            now = Nanos::from_secs(10);
        }
        for cluster in 0..PROMISED {
            world.respond(&format!("cluster{cluster}"), true, now);
            world.respond(&format!("cluster{cluster}"), true, now);
        }
        assert_eq!(world.stats.lost_responses, 0, "seed {n}");
        for cluster in 0..PROMISED {
            let cluster = format!("cluster{cluster}");
            assert!(world.fails(&HALF, &cluster, now), "seed {n}: {cluster}");
        }
    }
}

/// A store that counts reads.
struct Counting<'a> {
    world: &'a mut World,
    reads: usize,
}

impl SharedData for Counting<'_> {
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<Option<Cas>, StoreFailed> {
        self.reads += 1;
        self.world.store.get(key, value)
    }

    fn set(&mut self, key: &[u8], value: &[u8], expected: Cas) -> Result<Written, StoreFailed> {
        self.world.store.set(key, value, expected)
    }
}

/// The search ends at a place that was never written, or after a fixed number of places.
#[test]
fn a_search_is_short() {
    let (mut world, now) = (World::new(64), Nanos::from_secs(7));
    let reads = |world: &mut World, cluster: &str| {
        let (table, mut stats) = (world.table.clone(), world.stats);
        let mut counting = Counting { world, reads: 0 };
        table.respond(
            &mut counting,
            &HALF,
            cluster.as_bytes(),
            true,
            now,
            &mut stats,
        );
        counting.reads
    };
    assert_eq!(reads(&mut world, "first"), 1);
    let mut sum = 0;
    for n in 0..PROMISED {
        sum += reads(&mut world, &format!("c{n}"));
    }
    assert!(sum < 1_250, "{sum} reads for 1024 responses");
    let mut most = 0;
    for n in 0..15_000 {
        most = most.max(reads(&mut world, &format!("d{n}")));
    }
    assert_eq!(most, 20);
}

/// When all places are taken, counted clusters keep their places, and other clusters are reported.
#[test]
fn places_are_bounded_and_given_to_those_who_count() {
    let (mut world, now) = (World::new(64), Nanos::from_secs(7));
    let before = world.store.len();
    for n in 0..10_000 {
        world.respond(&format!("c{n}"), true, now);
    }
    let places = world.store.len() - before;
    assert!((4_000..=PLACES).contains(&places), "{places}");
    let lost = world.stats.lost_responses;
    assert_eq!(usize::try_from(lost).expect("few"), 10_000 - places);
    assert_eq!(world.seen().len(), places);
    // Each cluster that had a place still has it.
    for seen in world.seen() {
        let cluster = String::from_utf8(seen.cluster).expect("text");
        assert_eq!(world.respond(&cluster, true, now), Some(true));
    }
    assert_eq!(world.stats.lost_responses, lost);
    // A second later all windows are empty, and other clusters take the places permanently.
    let later = Nanos::from_secs(8);
    for n in 0..PROMISED {
        world.respond(&format!("d{n}"), true, later);
        world.respond(&format!("d{n}"), true, later);
        assert!(world.fails(&HALF, &format!("d{n}"), later), "d{n}");
    }
    assert_eq!(world.stats.lost_responses, lost);
    let seen = world.seen();
    let new = seen.iter().filter(|seen| seen.cluster.starts_with(b"d"));
    assert_eq!(new.count(), PROMISED);
    assert!(world.store.len() - before <= PLACES);
}

/// A store in which another worker is faster, a number of times.
struct Raced<'a> {
    world: &'a mut World,
    times: u32,
}

impl SharedData for Raced<'_> {
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<Option<Cas>, StoreFailed> {
        let read = self.world.store.get(key, value);
        if self.times > 0 {
            self.times -= 1;
            self.world.respond("a", true, Nanos::ZERO);
        }
        read
    }

    fn set(&mut self, key: &[u8], value: &[u8], expected: Cas) -> Result<Written, StoreFailed> {
        self.world.store.set(key, value, expected)
    }
}

#[test]
fn no_response_is_lost_to_another_worker() {
    for times in [0, 1, 5, 64, 65] {
        let mut world = World::new(64);
        let (table, mut stats) = (world.table.clone(), world.stats);
        let mut raced = Raced {
            world: &mut world,
            times,
        };
        table.respond(&mut raced, &HALF, b"a", true, Nanos::ZERO, &mut stats);
        let lost = u32::from(times > 64);
        let seen = world.seen();
        assert_eq!(seen[0].health.count().responses, times + 1 - lost);
        assert_eq!(seen.len(), 1, "not in two places");
        assert_eq!(stats.lost_responses, u64::from(lost));
        assert_eq!(stats.cas_retries, u64::from(times));
    }
}

struct Failing;

impl SharedData for Failing {
    fn get(&mut self, _: &[u8], _: &mut Vec<u8>) -> Result<Option<Cas>, StoreFailed> {
        Err(StoreFailed)
    }

    fn set(&mut self, _: &[u8], _: &[u8], _: Cas) -> Result<Written, StoreFailed> {
        Err(StoreFailed)
    }
}

#[test]
fn a_failing_store_is_told() {
    let World {
        table, mut stats, ..
    } = World::new(64);
    let fails = table.fails(&mut Failing, &HALF, b"a", Nanos::ZERO);
    assert_eq!(fails, Err(StoreFailed));
    assert_eq!(table.upstreams(&mut Failing), Err(StoreFailed));
    table.respond(&mut Failing, &HALF, b"a", true, Nanos::ZERO, &mut stats);
    assert_eq!(stats.lost_responses, 1);
}

/// Values of another version are not touched, and the next place is used.
#[test]
fn values_of_another_version_stay() {
    let mut world = World::new(64);
    world.respond("a", true, Nanos::ZERO);
    let mut key = Vec::new();
    for place in 0..u32::try_from(PLACES).expect("few") {
        let at = [&b"test:U"[..], &place.to_le_bytes()].concat();
        let there = world.store.get(&at, &mut Vec::new());
        if there.expect("does not fail").is_some() {
            key = at;
        }
    }
    let mut store = MemoryStore::clone(&world.store);
    store.set(&key, b"\x02new", 0).expect("written");
    world.store = store;
    world.respond("a", true, Nanos::ZERO);
    assert_eq!(world.respond("a", true, Nanos::ZERO), Some(true));
    let mut value = Vec::new();
    world.store.get(&key, &mut value).expect("does not fail");
    assert_eq!(value, b"\x02new");
    assert_eq!(world.seen().len(), 1);
}
