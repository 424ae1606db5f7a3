//! The straight way of a decision: most requests find their bucket in its page, unchanged rules, and a slot without
//! any of the optional parts, and are admitted at once or refused. They are decided in place. Everything else is
//! left to the other way, which decides alike.

use alloc::boxed::Box;

use loudou_limiter::{Bucket, Nanos, Taken, Words};

use super::{Attempt, Charge, Planned};
use crate::page::{Evicted, gain_flag};
use crate::receipt::Receipt;
use crate::rule::Age;

/// The most words of a bucket that is decided in place: those of eight limits with a word each.
const MOST_WORDS: usize = 8;

impl Attempt<'_> {
    /// Decides in place; `None` if the other way has to, and nothing is changed.
    pub(super) fn plan_straight(&mut self) -> Option<Box<Planned>> {
        let take = &self.take;
        let limits = take.limits;
        if take.lease.is_some() || take.ask.cost == 0 || limits.holds_until_end() {
            return None;
        }
        let mut slot = self.page.find_plain(self.id.fingerprint)?;
        let age = take.rule.age(slot.version());
        if age != Age::Current || slot.flags() != gain_flag(limits) {
            return None;
        }
        let mut room = [0; MOST_WORDS];
        let words = room.get_mut(..limits.words())?;
        let count = slot.read(words)?;
        let before = Bucket {
            last: slot.last(),
            given: 0,
            line: Nanos::ZERO,
            words: Words::from_slice(words.get(..count)?),
        };
        let ask = take.ask.not_before(before.last);
        let answer = limits.answer_plainly(words, &ask)?;
        let is_refused = answer.is_refused();
        if is_refused && take.rule.penalty().is_some() || !slot.has_room_for(words) {
            return None;
        }
        let idle_at = ask.now.saturating_add(answer.reset_after());
        slot.write(words);
        slot.note(ask.now, idle_at.millis_ceil(), is_refused);
        let receipt = Receipt::of(self.id, Taken::from(before, ask), slot.origin());
        Some(Box::new(Planned {
            charge: Charge {
                receipt: (!is_refused).then_some(receipt),
                answer: Ok(answer),
                leased: None,
            },
            is_new: false,
            evicted: Evicted::Nothing,
        }))
    }
}

#[cfg(test)]
mod tests;
