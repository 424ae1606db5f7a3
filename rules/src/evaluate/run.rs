//! The rules of a set against one request, one rule at a time.

use alloc::sync::Arc;

use loudou_limiter::Clock;
use loudou_store::{Give, SharedData, StoreStats, Table};

use super::{Answer, Outcome, RuleOutcome};
use crate::active_rule::ActiveRule;
use crate::request::Request;
use crate::rule::key::Key;
use crate::rule::{Mode, Reach};

/// An evaluation in progress.
pub(super) struct Run<'a> {
    pub(super) outcome: Outcome,
    pub(super) table: &'a Table,
    pub(super) store: &'a mut dyn SharedData,
    pub(super) request: &'a mut dyn Request,
    pub(super) clock: Clock,
    pub(super) stats: &'a mut StoreStats,
}

impl Run<'_> {
    /// Evaluates a rule that may match, unless an enforced one before it refused or stopped.
    pub(super) fn evaluate(&mut self, index: usize, active: &Arc<ActiveRule>) {
        let rule = active.rule();
        let is_enforced = rule.mode == Mode::Enforce;
        if is_enforced && self.outcome.stopped_by.is_some() {
            return;
        }
        let mut reach = Reach::Yes;
        if !active.matches_all() {
            reach = rule.reach(self.request);
            if reach == Reach::No {
                return;
            }
            if !active.applies(self.table, self.store, self.request, self.clock.now) {
                return;
            }
        }
        let key = match reach {
            Reach::Refuse => Key::Refuse,
            Reach::Yes | Reach::No => rule.key_of(self.request),
        };
        let stops = rule.stop && is_enforced && !matches!(key, Key::Skip);
        if !is_enforced || !self.outcome.is_refused() {
            let place = self
                .outcome
                .add(RuleOutcome::new(index, Arc::clone(active)));
            self.decide(place, reach, key);
        }
        if stops {
            self.outcome.stopped_by = Some(index);
        }
    }

    /// Decides on the key at one of the rules of the outcome, in its place: an outcome is large to move.
    fn decide(&mut self, place: usize, reach: Reach, key: Key) {
        let Some(one) = self.outcome.rules.get_mut(place) else {
            return;
        };
        match key {
            Key::Skip => {}
            Key::Refuse => one.answer = Answer::without_key(reach),
            Key::Ambiguous => one.answer = Answer::KeyAmbiguous,
            Key::Bucket(key) => {
                let of: (_, &mut dyn SharedData) = (self.table, &mut *self.store);
                one.charge(key, of, self.request, self.clock, self.stats);
            }
        }
        let refuses = one.is_enforced() && one.refuses();
        let waits = one.waits_for_lease();
        if !refuses && !waits {
            return;
        }
        let mut give = |give: &Give<'_>| {
            // Lost returns are counted.
            let _lost = self.table.give(self.store, give, self.stats);
        };
        if waits {
            self.outcome.put_off(&mut give, self.clock);
        } else if refuses {
            self.outcome.overrule(&mut give, self.clock);
        }
    }
}
