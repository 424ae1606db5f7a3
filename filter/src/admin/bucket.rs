//! The JSON view of a bucket, including its limits and any ban, penalty or override.

use loudou_api::{
    BanBy, BanView, BroughtView, BucketState, BucketView, KeyOverrideView, LeaseView, LimitView,
    OverrideKind, REFUSING_FOR,
};
use loudou_limiter::ban::BanHistory;
use loudou_limiter::lease::Lease;
use loudou_limiter::{BucketDecision, BucketRequest, Clock, Nanos};
use loudou_rules::fleet::FleetView;
use loudou_rules::level::Level;
use loudou_rules::rule::{Mode, Override};
use loudou_rules::rule_set::{ActiveRule, Grant};
use loudou_store::Outage;
use loudou_store::page::{FLAG_PINNED, Slot};

use super::answer::Failure;

/// Returns the view of a bucket as of `call_time`. The stored bucket is not changed.
pub(super) fn view(rule: &ActiveRule, slot: &Slot, key: &str, call_time: CallTime) -> BucketView {
    Current::new(rule, slot, key, call_time).view()
}

/// A bucket and its state at the time of the call, from which the JSON view is created.
pub(super) struct Current<'a> {
    rule: &'a ActiveRule,
    slot: &'a Slot,
    key: &'a str,
    now: Nanos,
    level: Level<'a>,
    /// The decision for a hypothetical request with cost 0.
    state: BucketDecision,
    /// The decision for a hypothetical request with the rule's usual cost.
    usual: BucketDecision,
    ban: Option<BanView>,
}

impl<'a> Current<'a> {
    pub(super) fn new(
        rule: &'a ActiveRule,
        slot: &'a Slot,
        key: &'a str,
        call_time: CallTime,
    ) -> Self {
        let Clock { now, wall } = call_time.clock;
        let level = Level::of(rule, key, Some(slot), call_time.clock, call_time.fleet);
        let decide = |cost| level.answer(&BucketRequest::new(cost, now).at_wall(wall));
        Self {
            rule,
            slot,
            key,
            now,
            state: decide(0),
            // If the usual cost is 0, the decision is computed for one unit instead.
            usual: decide(rule.rule().cost.usual().max(1).into()),
            ban: ban_view(rule, slot, key, now),
            level,
        }
    }

    pub(super) fn state(&self) -> BucketState {
        let is_limited = matches!(self.rule.grant(self.key), Grant::Limits(_));
        let refuses_all = self.level.outage() == Some(Outage::Refuse) && self.usual.is_refused();
        if self.ban.is_some() {
            BucketState::Banned
        } else if refuses_all && is_limited || self.slot.refused_within(REFUSING_FOR, self.now) {
            BucketState::Refusing
        } else if self.slot.bucket.queue_end > self.now {
            BucketState::Held
        } else if self.state.reset_after() == Nanos::ZERO {
            BucketState::Idle
        } else {
            BucketState::Busy
        }
    }

    pub(super) fn view(&self) -> BucketView {
        let (rule, slot, key, now) = (self.rule, self.slot, self.key, self.now);
        let limits = self.level.limits();
        let decisions = self.state.decisions().zip(self.usual.decisions());
        let used = self.level.used(&self.state, now);
        let numbers = used.into_iter().zip(decisions);
        let views = limits.iter().zip(numbers);
        let views = views.map(|(limit, (used, (level, usual)))| {
            LimitView::new(limit, used, level, usual.retry_after)
        });
        let ban_history = ban_history(rule, slot, now);
        let ban = self.ban;
        BucketView {
            rule: rule.rule().name.clone(),
            key: key.to_owned(),
            limits: views.collect(),
            reported: self.usual.reported_index(),
            admitted: slot.admitted,
            refused: slot.refused,
            refused_at_ns: slot.refused_before(now).map(Nanos::get),
            refused_since_ns: slot.refused_since(now).map(Nanos::get),
            shadow: rule.rule().mode != Mode::Enforce,
            last_seen_ns: slot.bucket.last.get(),
            state: self.state(),
            hidden_ban: imposed(slot, now)
                .filter(|_| ban.is_some_and(|ban| ban.by == BanBy::Override)),
            ban,
            strikes: ban_history.strikes.into(),
            penalties: ban_history.bans.into(),
            lease: self
                .level
                .lease()
                .and_then(|lease| lease_view(lease, limits.iter().count(), now)),
            outage: self.level.outage().map(Into::into),
            own: key_override(rule, key),
            numbers: BroughtView::of(&rule.rule().limits, limits.numbers()),
        }
    }
}

/// Returns a key's ban. A ban imposed by an override takes precedence over one stored in the slot,
/// and has no known end.
pub(super) fn ban_view(rule: &ActiveRule, slot: &Slot, key: &str, now: Nanos) -> Option<BanView> {
    if matches!(rule.grant(key), Grant::Banned) {
        let (until_ns, by) = (None, BanBy::Override);
        return Some(BanView { until_ns, by });
    }
    imposed(slot, now)
}

/// Returns the ban stored in a slot.
pub(super) fn imposed(slot: &Slot, now: Nanos) -> Option<BanView> {
    let ban = slot.ban_history.ban(now)?;
    let by = if slot.flags & FLAG_PINNED == 0 {
        BanBy::Penalty
    } else {
        BanBy::Operator
    };
    Some(BanView {
        until_ns: ban.until.map(Nanos::get),
        by,
    })
}

/// Returns the refusals and bans that still count towards the rule's next penalty.
fn ban_history(rule: &ActiveRule, slot: &Slot, now: Nanos) -> BanHistory {
    let mut ban_history = slot.ban_history;
    ban_history.settle(now);
    match &rule.rule().penalty {
        Some(penalty) => ban_history.expire(penalty, now),
        None => ban_history = BanHistory::default(),
    }
    ban_history
}

fn key_override(rule: &ActiveRule, key: &str) -> Option<KeyOverrideView> {
    let (pattern, own) = rule.rule().overrides.get_with_pattern(key)?;
    let gives = match own {
        Override::Scale(_) => OverrideKind::Scale,
        Override::Limits(_) => OverrideKind::Limits,
        Override::Unlimited => OverrideKind::Unlimited,
        Override::Banned => OverrideKind::Banned,
    };
    Some(KeyOverrideView { pattern, gives })
}

/// Creates a 404 response that explains why the key has no bucket.
pub(super) fn no_bucket(rule: &ActiveRule, key: &str) -> Failure {
    let own = key_override(rule, key).filter(|_| !matches!(rule.grant(key), Grant::Limits(_)));
    let detail = match own {
        None => "this key has no bucket: nothing of its limits is used".to_owned(),
        Some(KeyOverrideView { pattern, gives }) => {
            let gives = gives.name();
            format!("this key needs no bucket: the override of `{pattern}` makes it {gives}")
        }
    };
    Failure::new(404, "Not found", detail)
}

// Fleet-wide buckets, as known from the engine's last response to this Envoy.

/// A call's clock reading and the fleet state at that time.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallTime {
    pub(super) clock: Clock,
    /// `None` if no worker is configured with a fleet.
    pub(super) fleet: Option<FleetView>,
}

impl CallTime {
    /// Returns true if the fleet's engine is unavailable.
    pub(super) fn is_outage(&self) -> bool {
        self.fleet.is_some_and(|fleet| fleet.is_down)
    }
}

/// Returns the view of a lease with the given number of limits. `None` if the engine has not
/// responded yet.
pub(super) fn lease_view(lease: &Lease, limits: usize, now: Nanos) -> Option<LeaseView> {
    let seen = lease.seen()?;
    Some(LeaseView {
        tokens: lease.tokens(now),
        left: (0..limits).map(|limit| seen.left.at(limit)).collect(),
        heard_ns: seen.at.get(),
        debt: lease.debt(),
        denied_until_ns: lease.denied_until(now).map(Nanos::get),
    })
}
