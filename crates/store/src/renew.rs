//! Creates slots, resets them, and converts them to new versions of their rule.

use loudou_limiter::ban::BanHistory;
use loudou_limiter::{Clock, Limits};

use crate::attempt::root_of;
use crate::page::{FLAG_KEEPS_GAIN, Slot, Tick, gain_flag};
use crate::table::BucketId;
use crate::table::LiveRule;

impl Slot {
    /// Creates a slot for an unused bucket.
    pub(crate) fn new(
        (rule, limits): (&dyn LiveRule, &Limits),
        id: BucketId,
        origin: u32,
        clock: Clock,
    ) -> Self {
        Self {
            fingerprint: id.fingerprint,
            rule_tag: id.rule_tag,
            version: rule.version(),
            idle_at_ms: 0,
            held_until_ms: 0,
            admitted: 0,
            refused: 0,
            refused_at: Tick::default(),
            refused_since_ms: 0,
            flags: gain_flag(limits),
            origin,
            ban_history: BanHistory::default(),
            lease: None,
            bucket: limits.start_at(clock),
        }
    }

    /// Creates a replacement for this slot in which waiting requests keep their places in the
    /// queue. Returns `None` if no requests are waiting.
    pub(crate) fn reset_behind_queue(
        &self,
        rule: &dyn LiveRule,
        key: &str,
        (id, origin): (BucketId, u32),
        clock: Clock,
    ) -> Option<Self> {
        let limits = &*rule.limits_in(key, Some((&self.bucket, self.version)));
        let mut new_bucket = Self::new((rule, limits), id, origin, clock);
        new_bucket.bucket = limits.reset_behind_queue(&rule.bucket_of(key, self, clock), clock)?;
        limits.set_root(&mut new_bucket.bucket, root_of(self.origin));
        new_bucket.note(limits, &limits.peek(&new_bucket.bucket, 0, clock.now));
        Some(new_bucket)
    }

    /// Converts a slot from an earlier version of its rule to the current version. Returns true if
    /// its state changed. In that case, `origin` becomes the slot's new origin, and the lease
    /// discards state that depends on the earlier limits.
    pub(crate) fn bring_forward(
        &mut self,
        rule: &dyn LiveRule,
        (key, limits): (&str, &Limits),
        origin: u32,
        clock: Clock,
    ) -> bool {
        let brought = rule.bring_forward((key, limits), (&self.bucket, self.version), clock);
        let is_edited = self.version != rule.version();
        self.version = rule.version();
        let Some(bucket) = brought else { return false };
        self.bucket = bucket;
        // The promised times of waiting requests remain valid. From now on, these requests are
        // identified by the root.
        limits.set_root(&mut self.bucket, root_of(self.origin));
        self.origin = origin;
        self.flags = self.flags & !FLAG_KEEPS_GAIN | gain_flag(limits);
        // Evaluates the limits directly, because a decision would not evaluate them for a banned
        // key.
        self.note(limits, &limits.peek(&self.bucket, 0, clock.now));
        if let Some(lease) = &mut self.lease {
            if is_edited {
                lease.after_edit();
            } else {
                lease.after_numbers();
            }
        }
        self.note_lease(clock.now, false);
        true
    }
}
