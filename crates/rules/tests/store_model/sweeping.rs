//! Converting untouched buckets.

use loudou_limiter::{Bucket, BucketRequest, Carry, Nanos};
use loudou_rules::config::{RuleEdit, parse_edit, parse_rule};
use loudou_rules::rule::Rule;
use loudou_rules::rule_set::ActiveRule;
use loudou_rules::versions::History;
use loudou_store::memory::MemoryStore;
use loudou_store::page::Slot;
use loudou_store::{
    CAS_OVERWRITE, Cas, Charge, GaveUp, LiveRule, MAX_RETRIES, Receipt, ReleaseReason, SharedData,
    StoreFailed, StoreStats, Written,
};
use serde_json::{Value, json};

use super::{World, clock, daily, names_key, page_key};

mod pasts;

/// A rule and its history.
#[derive(Clone)]
struct Edited {
    rule: Rule,
    history: History,
}

impl Edited {
    fn new(name: &str, limits: &Value) -> Self {
        let rule = parse_rule(&json!({
            "name": name, "key": ["source"], "limits": limits,
            "penalty": { "after": 2, "within": "2s", "ban": "3s" },
        }));
        Self {
            rule: rule.expect("a valid rule"),
            history: History::default(),
        }
    }

    fn active(&self) -> ActiveRule {
        ActiveRule::new(self.rule.clone(), self.history.clone())
    }

    /// Returns the rule with its history forgotten.
    fn forgetful(&self) -> ActiveRule {
        let mut history = self.history.clone();
        history.forget(history.version);
        ActiveRule::new(self.rule.clone(), history)
    }

    fn edit(&mut self, edit: &RuleEdit, carry: Carry, at: u64) {
        let before = self.rule.clone();
        edit.apply(&mut self.rule);
        let note = (carry, Nanos::new(at), self.history.version + 1);
        self.history.note(&before, &self.rule, note);
    }

    fn limits(&mut self, limits: &Value, carry: Carry, at: u64) {
        let edit = parse_edit(&json!({ "limits": limits })).expect("valid");
        self.edit(&edit, carry, at);
    }

    /// Returns the bucket of a key after its conversion; `None` if it is unchanged.
    fn brought(&self, rule: &ActiveRule, key: &str, slot: &Slot, now: u64) -> Option<Bucket> {
        let (of, bucket) = ((key, rule.limits_of(key)), (&slot.bucket, slot.version));
        self.history
            .bring_forward(&self.rule, of, bucket, clock(now))
    }
}

impl World {
    fn sweep(&mut self, page: u32, rule: &ActiveRule, now: u64) -> Result<usize, GaveUp> {
        self.table
            .bring_page_forward(&mut self.store, page, rule, clock(now))
    }

    /// The slots of a page with their names.
    fn named_slots(&mut self, page: u32) -> Vec<(Slot, String)> {
        let page = self.table.page(&mut self.store, page).expect("readable");
        let Some((page, names)) = page else {
            return Vec::new();
        };
        let with_name = |slot: Slot| {
            let name = names.get(slot.fingerprint).expect("a name").to_owned();
            (slot, name)
        };
        page.slots.into_iter().map(with_name).collect()
    }

    fn raw_page(&mut self, page: u32) -> (Option<Cas>, Vec<u8>) {
        let mut bytes = Vec::new();
        let cas = self.store.get(&page_key(page), &mut bytes).expect("works");
        (cas, bytes)
    }

    /// Returns the answer to a request, and the resulting slot. Everything else stays unchanged.
    fn tried(&self, rule: &ActiveRule, key: &str, ask: BucketRequest) -> (Charge, Slot) {
        let (mut store, mut stats) = (self.store.clone(), StoreStats::default());
        let table = &self.table;
        let charge = table.charge(&mut store, &rule.acquire(key, ask), &mut stats);
        let slot = table.get(&mut store, table.id(rule.tag(), key));
        let slot = slot.expect("readable").expect("a bucket");
        (charge.expect("a decision"), slot)
    }
}

/// Returns one page with three keys of a rule that was edited twice, which are not converted yet.
/// One key has got an override since.
fn behind() -> (World, Edited) {
    let mut world = World::new(16);
    let mut edited = Edited::new("swept", &daily(8));
    let other = Edited::new("other", &daily(8)).active();
    for key in ["own", "k-0", "k-1"] {
        for rule in [&edited.active(), &other] {
            for _ in 0..4 {
                assert!(world.admits(rule, key, 1));
            }
        }
    }
    edited.limits(&daily(16), Carry::Proportional, 2);
    let own = json!({ "overrides": { "own": { "scale": 2 } } });
    edited.edit(&parse_edit(&own).expect("valid"), Carry::Keep, 3);
    (world, edited)
}

/// The remaining capacity of a key after one more request.
fn left(world: &World, rule: &ActiveRule, key: &str) -> u64 {
    let (charge, _) = world.tried(rule, key, BucketRequest::new(1, Nanos::new(9)));
    let answer = charge.answer.expect("nobody bans");
    answer.reported().expect("one").remaining
}

#[test]
fn a_sweep_reaches_keys_with_overrides() {
    let (mut world, edited) = behind();
    assert_eq!(world.sweep(0, &edited.active(), 5), Ok(3));
    let rule = edited.forgetful();
    // Four of eight become eight of sixteen. For the key with scale 2, the eight are of 32.
    let left = ["own", "k-0", "k-1"].map(|key| left(&world, &rule, key));
    assert_eq!(left, [32 - 9, 16 - 9, 16 - 9]);
}

/// An outdated rule converts nothing back, and a missing page is not created.
#[test]
fn nothing_to_bring_is_no_write() {
    let (mut world, edited) = behind();
    let old = edited.active();
    let mut newer = edited;
    newer.limits(&daily(9), Carry::Keep, 4);
    assert_eq!(world.sweep(0, &newer.active(), 5), Ok(3));
    let before = world.raw_page(0);
    for rule in [
        &old,
        &newer.active(),
        &Edited::new("none", &daily(1)).active(),
    ] {
        assert_eq!(world.sweep(0, rule, 6), Ok(0));
    }
    assert_eq!(world.raw_page(0), before);
    let mut empty = World::new(16);
    assert_eq!(empty.sweep(0, &old, 6), Ok(0));
    assert_eq!(empty.raw_page(0).0, None);
}

/// The limits of a key whose name is lost are unknown.
#[test]
fn a_bucket_without_a_name_stays_as_it_is() {
    let (mut world, edited) = behind();
    let rule = edited.active();
    let mut names = Vec::new();
    world.store.get(&names_key(0), &mut names).expect("works");
    let mut without = |bytes: &[u8]| {
        let written = world.store.set(&names_key(0), bytes, CAS_OVERWRITE);
        assert_eq!(written, Ok(Written::Done));
        let before = world.raw_page(0);
        let brought = world.sweep(0, &rule, 5);
        (brought, world.raw_page(0) == before)
    };
    assert_eq!(without(b""), (Ok(0), true));
    assert_eq!(without(b"LX"), (Ok(0), true));
    // The first entry consists of a fingerprint, a length, and "own". The other names stay.
    let rest = [&names[..3], &names[3 + 8 + 1 + 3..]].concat();
    assert_eq!(without(&rest), (Ok(2), false));
    assert_eq!(without(&rest), (Ok(0), true));
    assert_eq!(without(&names), (Ok(1), false));
}

/// A store on which other workers write a page just before each of the first writes of the sweep.
struct Busy<'a> {
    world: &'a mut World,
    rule: &'a ActiveRule,
    conflicts: u32,
    sets: u32,
}

impl SharedData for Busy<'_> {
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<Option<Cas>, StoreFailed> {
        self.world.store.get(key, value)
    }

    fn set(&mut self, key: &[u8], value: &[u8], expected: Cas) -> Result<Written, StoreFailed> {
        self.sets += 1;
        if self.sets <= self.conflicts {
            // The served key has no bucket yet.
            let new = format!("new-{}", self.sets % 4);
            assert!(self.world.take(self.rule, &new, 5).is_ok());
            if self.sets == 1 {
                // A touched key is converted already.
                assert!(self.world.take(self.rule, "k-0", 5).is_ok());
            }
        }
        self.world.store.set(key, value, expected)
    }
}

#[test]
fn conflicts_are_tried_again_and_lose_nothing() {
    let (mut world, edited) = behind();
    let rule = edited.active();
    let table = world.table.clone();
    let sweep = |world: &mut World, conflicts: u32| {
        let mut busy = Busy {
            world,
            rule: &rule,
            conflicts,
            sets: 0,
        };
        let brought = table.bring_page_forward(&mut busy, 0, &rule, clock(5));
        (brought, busy.sets)
    };
    let (mut again, _) = behind();
    let most = MAX_RETRIES;
    assert_eq!(
        sweep(&mut again, most + 1),
        (Err(GaveUp::Conflicts), most + 1)
    );
    assert_eq!(
        sweep(&mut again, 0),
        (Ok(2), 1),
        "the third was touched meanwhile"
    );
    assert_eq!(sweep(&mut world, 2), (Ok(2), 3));
    let left = ["own", "k-0", "k-1", "new-1", "new-2"].map(|key| left(&world, &rule, key));
    assert_eq!(left, [32 - 9, 16 - 10, 16 - 9, 16 - 2, 16 - 2]);
}

/// A failing host, or a page of another format, is not touched.
#[test]
fn what_cannot_be_read_or_written_is_left_alone() {
    struct Failing(MemoryStore, bool);

    impl SharedData for Failing {
        fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<Option<Cas>, StoreFailed> {
            if self.1 {
                Err(StoreFailed)
            } else {
                self.0.get(key, value)
            }
        }

        fn set(&mut self, _: &[u8], _: &[u8], _: Cas) -> Result<Written, StoreFailed> {
            Err(StoreFailed)
        }
    }

    let (mut world, edited) = behind();
    let rule = edited.active();
    for reads_fail in [false, true] {
        let mut failing = Failing(world.store.clone(), reads_fail);
        let brought = world
            .table
            .bring_page_forward(&mut failing, 0, &rule, clock(5));
        assert_eq!(brought, Err(GaveUp::Failed));
    }
    let (_, mut bytes) = world.raw_page(0);
    bytes[2] += 1;
    let written = world.store.set(&page_key(0), &bytes, CAS_OVERWRITE);
    assert_eq!(written, Ok(Written::Done));
    assert_eq!(world.sweep(0, &rule, 5), Err(GaveUp::UnknownPage));
    assert_eq!(world.raw_page(0).1, bytes);
}

/// Amounts taken before a sweep are given back only if the sweep did not change the bucket.
#[test]
fn a_sweep_is_an_edit_to_what_is_given_back() {
    let mut world = World::new(16);
    let mut edited = Edited::new("swept", &daily(8));
    let first = edited.active();
    let receipts = ["own", "k-0"].map(|key| world.receipt(&first, key, 1).expect("admitted"));
    // Only one of the two keys gets other numbers.
    let own = json!({ "overrides": { "own": { "scale": 2 } } });
    edited.edit(&parse_edit(&own).expect("valid"), Carry::Keep, 3);
    let rule = edited.active();
    assert_eq!(world.sweep(0, &rule, 5), Ok(2));
    let give = |world: &mut World, key: &str, receipt: &Receipt| {
        let give = rule.release(key, receipt, ReleaseReason::Refused, clock(6));
        let given = world
            .table
            .release(&mut world.store, &give, &mut world.stats);
        assert_eq!(given, Ok(()));
        left(world, &rule, key)
    };
    assert_eq!(give(&mut world, "own", &receipts[0]), 16 - 2);
    assert_eq!(give(&mut world, "k-0", &receipts[1]), 8 - 1);
}
