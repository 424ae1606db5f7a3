//! Model test with workers that cache the record, through random edits, configurations, rollbacks
//! and ends of edits. After each step, every worker must have the same rules as a worker that reads
//! everything again.

use loudou_limiter::{Carry, mix};

use super::*;
use crate::RecordCaches;
use crate::current;
use crate::metrics::{Registry, StoreMetrics};
use crate::record::{Author, Record};

const SEEDS: u64 = 4;
const STEPS: u64 = 40;
const KEYS: [&str; 5] = ["alice", "bob", "team-*", "team-7", "carol"];
const RULES: [&str; 4] = ["a", "b", "c", "d"];

/// Returns random numbers from a seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(1);
        mix(self.0) % sides
    }

    fn of<'a, T: ?Sized>(&mut self, all: &[&'a T]) -> &'a T {
        let sides = u64::try_from(all.len()).expect("few");
        all[usize::try_from(self.roll(sides)).expect("few")]
    }
}

fn limit(capacity: u64) -> serde_json::Value {
    json!([{ "name": "l", "algorithm": "funnel", "capacity": capacity, "rate": "1/d" }])
}

fn gives(dice: &mut Dice) -> serde_json::Value {
    match dice.roll(4) {
        0 => json!("banned"),
        1 => json!("unlimited"),
        2 => json!({ "limits": limit(1 + dice.roll(9)) }),
        _ => json!({ "scale": 1 + dice.roll(4) }),
    }
}

/// Three configurations: rules that change, change places, change keys, come and go.
fn configurations() -> Vec<RuleFile> {
    let rule = |name: &str, capacity: u64, key: &str, path: &str| {
        json!({
            "name": name,
            "match": { "path": { "prefix": path } },
            "key": [key],
            "limits": limit(capacity),
            "overrides": { "alice": { "scale": 3 }, "team-*": { "limits": limit(8) }, "eve": "banned" },
        })
    };
    [
        json!([
            rule("a", 5, "source", "/"),
            rule("b", 6, "source", "/"),
            rule("c", 7, "source", "/")
        ]),
        json!([
            rule("c", 7, "source", "/"),
            rule("a", 9, "source", "/"),
            rule("d", 4, "source", "/")
        ]),
        json!([
            rule("a", 5, "method", "/"),
            rule("b", 6, "source", "/x"),
            rule("d", 4, "source", "/")
        ]),
    ]
    .iter()
    .map(file)
    .collect()
}

/// A change of the record by an operator.
fn edit(record: &mut Record, dice: &mut Dice, now: Nanos) -> bool {
    let author = Author {
        by: "ops".to_owned(),
        reason: "why".to_owned(),
        carry: [Carry::Keep, Carry::Proportional, Carry::Reset]
            [usize::try_from(dice.roll(3)).expect("few")],
        at: now,
        at_unix_ms: 0,
        expires_after: (dice.roll(3) == 0).then(|| Nanos::from_secs(1 + dice.roll(9))),
    };
    let version = record.next_version();
    let name = dice.of(&RULES);
    let kind = dice.roll(8);
    let (key, gives) = (dice.of(&KEYS), gives(dice));
    let tag = record
        .rule(name)
        .map(|rule| (rule.base.tag(), rule.history.version));
    if kind >= 6 {
        let trial = format!("{name}~trial");
        assert!(record.start_trial(&trial));
        if let Some(rule) = record.rule_mut(&trial) {
            let body = json!({ "limits": limit(1 + dice.roll(20)) });
            let edit = config::parse_edit(&body).expect("an edit");
            match kind {
                6 => rule.apply(&edit, &author, version),
                _ => rule.drop_edit(author.carry, now, version),
            }
        }
        record.end_trials();
        return dice.roll(8) > 0;
    }
    let Some(rule) = record.rule_mut(name) else {
        return false;
    };
    match kind {
        0 => rule.drop_edit(author.carry, now, version),
        1 => drop(rule.drop_override(key, now, version)),
        2 => {
            let gives = config::parse_override(key, &gives, None).expect("an override");
            rule.set_override(key, gives, &author, version);
        }
        3 => {
            let body = json!({ "overrides": { key: gives, "alice": { "scale": 2 } } });
            rule.apply(
                &config::parse_edit(&body).expect("an edit"),
                &author,
                version,
            );
        }
        4 => {
            let (tag, version) = tag.expect("known");
            record.forget(tag, version);
        }
        _ => {
            let body = json!({ "limits": limit(1 + dice.roll(20)), "mode": dice.of(&["enforce", "shadow"]) });
            rule.apply(
                &config::parse_edit(&body).expect("an edit"),
                &author,
                version,
            );
        }
    }
    // Sometimes only a preview.
    dice.roll(8) > 0
}

/// Values that are derived from a record for its users.
fn derived(record: &Record) -> String {
    let rules: Vec<_> = record
        .rules
        .iter()
        .map(|rule| (rule.effective().clone(), rule.activate()))
        .collect();
    format!(
        "{:?} {rules:?} {:?} {} {:?}",
        record.instance,
        record.rule_set().iter().collect::<Vec<_>>(),
        record.generation,
        record.next_expiry(),
    )
}

/// The rules of a worker, as it decides by them.
fn in_force(plane: &DataPlane) -> String {
    format!("{:?}", plane.active.as_ref().expect("active").rules())
}

struct World {
    host: FakeHost,
    files: Vec<RuleFile>,
    /// Workers with their configurations.
    workers: Vec<(DataPlane, usize)>,
    admins: Vec<Records>,
    dice: Dice,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut caches = RecordCaches::default();
        let files = configurations();
        let mut admins = vec![records(), records(), records()];
        let mut workers = Vec::new();
        for at in [0, 0, 1] {
            workers.push((DataPlane::new(files[at].clone(), Nanos::ZERO), at));
        }
        // An admin role and two data roles with different configurations share a VM.
        admins[0].sharing(&mut caches);
        for at in [0, 2] {
            let plane = DataPlane::new(files[at].clone(), Nanos::ZERO);
            workers.push((plane.sharing(&mut caches), at));
        }
        let host = FakeHost::default();
        host.now.set(100);
        // The others are older, and adopt nothing.
        assert!(DataPlane::new(files[0].clone(), host.now()).start(&host));
        for (worker, _) in &mut workers {
            assert!(worker.start(&host));
        }
        Self {
            host,
            files,
            workers,
            admins,
            dice: Dice(seed << 32),
        }
    }

    fn metrics(&self) -> StoreMetrics {
        StoreMetrics::define(&self.host, &mut Registry::default(), "loudou")
    }

    fn step(&mut self) {
        let now = self.host.now();
        let metrics = self.metrics();
        match self.dice.roll(12) {
            0 => self.host.pass(Nanos::from_secs(1 + self.dice.roll(4))),
            1 => {
                // A new configuration is loaded, in a new VM or in the existing one.
                let at = usize::try_from(self.dice.roll(3)).expect("few");
                let place = usize::try_from(self.dice.roll(3)).expect("few");
                let new = DataPlane::new(self.files[at].clone(), now);
                self.workers[place] = (new, at);
                assert!(self.workers[place].0.start(&self.host));
            }
            2 => {
                let at = usize::try_from(self.dice.roll(3)).expect("few");
                let file = Bases::of(&self.files[at]);
                let by = &self.admins[1];
                let changed = by.change(&self.host, |record| record.roll_back(&file, now));
                if changed.expect("readable").1.is_some() {
                    metrics.announce_change(&self.host);
                }
            }
            _ => {
                let (by, rival) = (self.dice.roll(3), self.dice.roll(6));
                let by = &self.admins[usize::try_from(by).expect("few")];
                let (host, dice) = (&self.host, &mut self.dice);
                let mut tries = 0;
                let mut changes = false;
                let announced = metrics.changes(host);
                let record = by.edit(host, &mut |record| {
                    tries += 1;
                    if tries == 1 && rival <= 1 {
                        // Another worker is faster. It has not read this either.
                        let other = records().edit(host, &mut |record| edit(record, dice, now));
                        other.expect("edited");
                    }
                    changes = edit(record, dice, now);
                    changes
                });
                let record = record.expect("edited");
                if rival >= 4 {
                    // Another worker is slower.
                    let other = records().edit(host, &mut |record| edit(record, dice, now));
                    other.expect("edited");
                }
                if [1, 4].contains(&rival) {
                    metrics.announce_change(host);
                }
                if changes {
                    current::announce(host, by, &metrics, (&record, announced), now);
                }
                // In the end each change is announced.
                if [0, 5].contains(&rival) {
                    metrics.announce_change(host);
                }
            }
        }
    }

    fn check(&mut self, what: &str) {
        let metrics = self.metrics();
        let now = self.host.now();
        // Ends come first, noticed by any worker.
        let by = usize::try_from(self.dice.roll(3)).expect("few");
        current::recent(&self.host, &self.admins[by], &metrics, now).expect("a record");
        let anew = current::load(&self.host, &records(), &metrics, now).expect("a record");
        for admin in &self.admins {
            let recent = current::recent(&self.host, admin, &metrics, now).expect("a record");
            assert_eq!(recent, anew, "{what}");
            assert_eq!(derived(&recent), derived(&anew), "{what}");
        }
        for (worker, at) in &mut self.workers {
            send(worker, &self.host, Some(b"alice"));
            let before = self.host.metric("loudou.generation");
            // Configured before all others, so that it adopts nothing.
            let mut anew = DataPlane::new(self.files[*at].clone(), Nanos::ZERO);
            assert!(anew.start(&self.host));
            assert_eq!(before, self.host.metric("loudou.generation"), "{what}");
            assert_eq!(in_force(worker), in_force(&anew), "{what}");
        }
    }
}

#[test]
fn what_is_kept_is_what_would_be_read() {
    for seed in 1..=SEEDS {
        let mut world = World::new(seed);
        for step in 0..STEPS {
            world.step();
            world.check(&format!("seed {seed}, step {step}"));
        }
    }
}
