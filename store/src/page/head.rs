//! The beginning of a slot, read from the stored bytes: what a search needs to rule a bucket out.

use super::{Bytes, FLAG_CONDUCT, FLAGS_IN_BYTES, UnknownPage, is_idle};

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

    /// The head of the slot that begins with these bytes.
    pub(super) fn read(slot: &[u8]) -> Result<Self, UnknownPage> {
        let mut bytes = Bytes(slot);
        let (fingerprint, rule_tag, version) = (bytes.u64()?, bytes.u32()?, bytes.u32()?);
        let _last: [u8; 8] = bytes.take()?;
        let idle_at_ms = bytes.u40()?;
        let _counts: [u8; 10] = bytes.take()?;
        let [flags] = bytes.take()?;
        Ok(Self {
            fingerprint,
            rule_tag,
            version,
            idle_at_ms,
            flags: flags & !FLAGS_IN_BYTES,
            has_conduct: flags & FLAG_CONDUCT != 0,
        })
    }
}
