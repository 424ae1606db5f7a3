//! The verdict of one rule.

use loudou_limiter::BucketDecision;
use loudou_limiter::ban::Ban;
use loudou_store::{Charge, GaveUp, Leased, Receipt};

use crate::fleet::FleetView;
use crate::rule::{OnError, OnOutage, Reach};

/// The verdict of one rule.
#[derive(Clone, Debug)]
pub enum Answer {
    /// The bucket decided; in shadow mode a refusal is only counted.
    Decided(BucketDecision),
    /// The key is banned.
    Banned(Ban),
    /// The key has no limits.
    Unlimited,
    /// The request has no key, and the rule does not apply.
    Skipped,
    /// The request has no key, and is refused because of that.
    KeyMissing,
    /// A value is longer than the rule's match tests, and the request is refused because of that.
    ValueTooLong,
    /// The request has several values of its key, and is refused because of that.
    KeyAmbiguous,
    /// The engine of the fleet cannot be asked, and requests are refused as long as that lasts.
    Outage,
    /// The store failed; the rule's `on_error` applies.
    GaveUp(GaveUp),
}

impl Answer {
    /// The refusal of a request that gets no bucket.
    pub(super) fn without_key(reach: Reach) -> Self {
        match reach {
            Reach::Refuse => Self::ValueTooLong,
            Reach::Yes | Reach::No => Self::KeyMissing,
        }
    }

    pub(super) fn of(
        charge: Result<Charge, GaveUp>,
        fleet: Option<FleetView>,
    ) -> (Self, Option<Receipt>) {
        let charge = match charge {
            Ok(charge) => charge,
            Err(gave_up) => return (Self::GaveUp(gave_up), None),
        };
        let is_local = charge.leased.is_some_and(Leased::is_local);
        match (fleet.map(|fleet| fleet.on_outage), charge.answer) {
            (Some(OnOutage::Refuse), Ok(_)) if is_local => (Self::Outage, None),
            (Some(OnOutage::Admit), Ok(_)) if is_local => (Self::Unlimited, None),
            (_, answer) => {
                let answer = answer.map_or_else(Self::Banned, Self::Decided);
                (answer, charge.receipt)
            }
        }
    }

    /// Whether the request would be refused if the rule were enforced.
    pub fn refuses(&self, on_error: OnError) -> bool {
        match self {
            Self::Decided(decision) => decision.is_refused(),
            Self::Skipped | Self::Unlimited => false,
            Self::KeyMissing
            | Self::KeyAmbiguous
            | Self::ValueTooLong
            | Self::Outage
            | Self::Banned(_) => true,
            Self::GaveUp(_) => on_error == OnError::Refuse,
        }
    }
}
