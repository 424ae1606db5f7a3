//! A rule that is another one at some Envoys, as during a deployment.

use super::*;

/// The configurations' capacities of three Envoys.
const BASES: [u32; 3] = [2, 3, 3];

impl Fleet {
    /// Two more Envoys, one of each configuration: what they hold is what one holds that restarts.
    fn add_newcomers(&mut self, seed: u64) {
        for (chance, base) in [(8, 2), (9, 3)] {
            self.envoys.push(Envoy::with_base(base, chance, seed));
        }
        self.run(2_000);
    }

    /// Each Envoy has the changes that were made to its version of the rule, even if it starts
    /// later.
    fn assert_each(&mut self, of: [Expected; 2], what: &str) {
        let expected = |now| {
            let [two, three] = of;
            let [two, three] = [two.with_base(2, now), three.with_base(3, now)];
            vec![two, three, three]
        };
        let all = expected(self.now);
        assert_eq!(self.all(), all, "{what}");
        let known = self.envoys.len();
        self.add_newcomers(self.now);
        let mut all = expected(self.now);
        all.extend_from_within(..2);
        assert_eq!(self.all(), all, "{what}: those that come new");
        self.envoys.truncate(known);
    }
}

/// Does it at this Envoy, and notes what it should have done at all of that configuration.
fn act(fleet: &mut Fleet, expected: &mut [Expected; 2], (at, act): (usize, Act)) {
    if !fleet.envoys[at].act(act) {
        return;
    }
    let own = usize::from(at > 0);
    for (of, expected) in expected.iter_mut().enumerate() {
        // A ban needs the same key only.
        if of == own || matches!(act, Act::Ban(_) | Act::Unban) {
            expected.note(act, fleet.now);
        }
    }
}

#[test]
fn each_version_of_a_rule_has_changes_of_its_own() {
    let mut fleet = Fleet::with_bases(BASES, 11);
    let mut expected = [Expected::default(); 2];
    for one in [
        (0, Act::Edit(7, None)),
        (1, Act::Edit(9, None)),
        (2, Act::Override(5, None)),
        (0, Act::Override(4, None)),
        (0, Act::Edit(8, Some(3_600_000))),
        (2, Act::Edit(10, None)),
        (0, Act::DropEdit),
        (1, Act::Edit(11, None)),
        (0, Act::Edit(12, None)),
        (1, Act::DropEdit),
        (2, Act::DropOverride),
        (0, Act::DropOverride),
    ] {
        act(&mut fleet, &mut expected, one);
        fleet.run(1_000);
        fleet.assert_each(expected, &format!("{one:?}"));
    }
    fleet.engine.forget();
    fleet.run(2_000);
    fleet.assert_each(expected, "a new engine");
}

/// Neither Envoy knows of the other's change when it makes its own: both take the plain name.
#[test]
fn versions_that_are_changed_at_once_keep_their_changes() {
    for first in [0, 1] {
        let mut fleet = Fleet::with_bases(BASES, 12);
        let mut expected = [Expected::default(); 2];
        for of in [Act::Edit, Act::Override] {
            for at in [first, 1 - first] {
                act(
                    &mut fleet,
                    &mut expected,
                    (at, of(20 + 5 * u32::from(at > 0), None)),
                );
                fleet.run(STEP);
            }
            fleet.run(2_000);
            fleet.assert_each(expected, &format!("{first} was first"));
        }
        // The later changes replace them, under any name.
        for at in [0, 2] {
            act(
                &mut fleet,
                &mut expected,
                (at, Act::Edit(30 + u32::from(at > 0), None)),
            );
            fleet.run(1_000);
            fleet.assert_each(expected, &format!("{first} was first, then at {at}"));
        }
        for at in [1, 0] {
            act(&mut fleet, &mut expected, (at, Act::DropEdit));
            fleet.run(1_000);
            fleet.assert_each(expected, &format!("{first} was first, an end at {at}"));
        }
    }
}

/// Lost calls, an engine that is down or forgets everything, while one version of the rule is changed after the other.
#[test]
fn after_any_trouble_each_version_has_what_was_done_last() {
    for seed in 0..20 {
        let mut fleet = Fleet::with_bases(BASES, seed);
        let mut expected = [Expected::default(); 2];
        for phase in 0..6_u64 {
            for _ in 0..6 {
                match fleet.random.below(10) {
                    0 => fleet.engine.is_down = true,
                    1 => fleet.engine.forget(),
                    2 => fleet.lost = 30,
                    3..=5 => (fleet.engine.is_down, fleet.lost) = (false, 0),
                    _ => {}
                }
                let at = match phase % 2 {
                    0 => 0,
                    _ => 1 + usize::try_from(fleet.random.below(2)).expect("small"),
                };
                let one = fleet.random.act();
                act(&mut fleet, &mut expected, (at, one));
                let pause = 200 + fleet.random.below(900);
                fleet.run(pause);
            }
            (fleet.engine.is_down, fleet.lost) = (false, 0);
            fleet.run(10_000);
            fleet.assert_each(expected, &format!("seed {seed}, phase {phase}"));
        }
        let status = fleet.envoys[0].bench.get("/v1/status");
        assert_eq!(status["fleet"]["changes"]["unsent"], 0);
    }
}
