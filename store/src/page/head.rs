//! The beginning of a slot, read from the stored bytes: what a search needs to rule a bucket out.

use loudou_limiter::Nanos;

use super::{Bytes, FLAG_CONDUCT, FLAGS_IN_BYTES, Tick, UnknownPage, is_idle};

/// The beginning of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotHead {
    /// [`super::Slot::fingerprint`].
    pub fingerprint: u64,
    /// [`super::Slot::rule_tag`].
    pub rule_tag: u32,
    /// [`super::Slot::version`].
    pub version: u32,
    /// [`super::Slot::idle_at_ms`].
    pub idle_at_ms: u64,
    /// [`super::Slot::refused_at`]; `None` if no request was refused.
    refused_at: Option<Tick>,
    /// [`super::Slot::flags`].
    pub flags: u8,
    /// Whether the slot has a conduct: strikes, penalties or a ban.
    pub has_conduct: bool,
}

impl SlotHead {
    /// [`super::Slot::is_idle`].
    pub const fn is_idle(&self, now_ms: u64) -> bool {
        is_idle(self.idle_at_ms, self.flags, now_ms)
    }

    /// [`super::Slot::refused_within`].
    pub fn refused_within(&self, span: Nanos, now: Nanos) -> bool {
        self.refused_at
            .is_some_and(|tick| tick.is_within(span, now))
    }

    /// The head of the slot that begins with these bytes.
    pub(super) fn read(slot: &[u8]) -> Result<Self, UnknownPage> {
        let mut bytes = Bytes(slot);
        let (fingerprint, rule_tag, version) = (bytes.u64()?, bytes.u32()?, bytes.u32()?);
        let _last: [u8; 8] = bytes.take()?;
        let idle_at_ms = bytes.u40()?;
        let _admitted: [u8; 5] = bytes.take()?;
        let has_refused = bytes.take()? != [0; 5];
        let refused_at = Tick::from_bytes(bytes.take()?);
        let [flags] = bytes.take()?;
        Ok(Self {
            fingerprint,
            rule_tag,
            version,
            idle_at_ms,
            refused_at: has_refused.then_some(refused_at),
            flags: flags & !FLAGS_IN_BYTES,
            has_conduct: flags & FLAG_CONDUCT != 0,
        })
    }
}
