//! Applies faults to a fleet.

use loudou_limiter::{Carry, convert};

use super::{Event, Fleet, MS};
use crate::engine::Health;
use crate::setup::Fault;

impl Fleet<'_> {
    pub(super) fn adopt(&mut self, envoy: usize) {
        let latest = self.editions.len() - 1;
        let (_, local, _) = &self.editions[latest];
        let clock = self.clock();
        let of = &mut self.envoys[envoy];
        let (_, before, _) = &self.editions[of.edition];
        of.local = convert(before, local, Carry::Keep, &of.local, clock);
        of.edition = latest;
        self.lease(envoy, |lease, _| lease.after_edit());
    }

    pub(super) fn fault(&mut self, number: usize) {
        let (_, fault) = &self.setup.faults[number];
        match fault {
            Fault::Down { hangs: true } => self.engine.health = Health::Hangs,
            Fault::Down { hangs: false } => self.engine.health = Health::Refuses,
            Fault::KeyLost => self.engine.health = Health::KeyLost,
            Fault::Full => self.engine.health = Health::Full,
            Fault::Up => self.engine.health = Health::Up,
            Fault::UpEmpty => {
                self.engine.health = Health::Up;
                self.engine.forget();
            }
            Fault::Failover { lost } => self.engine.fail_over(*lost, self.now),
            Fault::Jump(by) => self.engine.jump(*by),
            Fault::Edit(limits) => {
                self.edit(limits);
                for envoy in 0..self.envoys.len() {
                    let after = self.random.below(1_000 * MS);
                    self.schedule(after, Event::Adopt(envoy));
                }
            }
            Fault::Restart => {
                let envoy = self.restarts % self.envoys.len();
                self.restarts += 1;
                self.envoys[envoy] = self.fresh();
            }
        }
    }
}
