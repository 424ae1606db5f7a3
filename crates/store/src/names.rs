//! Printable keys of the buckets in a page. These names are stored in a separate value, which is
//! written only when a bucket is created. The page, which every request reads and writes, therefore
//! stays small.
//!
//! ```text
//! names  "LN" | version u8 | entry…      entry  fingerprint u64 | length u8 | bytes
//! ```

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::page::{Page, SLOTS};

const MAGIC: [u8; 3] = *b"LN\x01";
/// Prefix of the store keys of names; see [`crate::page::KIND`].
pub(crate) const KIND: u8 = b'n';
/// Maximum stored size of a key, in bytes. Longer keys are truncated.
pub const MAX_KEY: usize = 128;
/// Maximum number of names for one page. Two workers may add names at the same time, each based on
/// a different version of the page. There is room for twice as many names as buckets, so that both
/// workers' names are kept.
pub const ENTRIES: usize = 2 * SLOTS;

/// Maximum encoded size of `entries` names with keys of `key` bytes.
pub const fn bytes(entries: usize, key: usize) -> usize {
    let entry = key.saturating_add(size_of::<u64>()).saturating_add(1);
    entries.saturating_mul(entry).saturating_add(MAGIC.len())
}

/// Iterates over the fingerprints and keys in stored names. An unreadable value is treated as
/// empty.
pub(crate) fn entries(bytes: &[u8]) -> impl Iterator<Item = (u64, &str)> {
    let mut rest = bytes.strip_prefix(&MAGIC).unwrap_or_default();
    let entries = core::iter::from_fn(move || {
        let (fingerprint, tail) = rest.split_first_chunk::<8>()?;
        let (length, tail) = tail.split_first()?;
        let (name, tail) = tail.split_at_checked(usize::from(*length))?;
        rest = tail;
        Some((u64::from_le_bytes(*fingerprint), name))
    });
    entries.filter_map(|(fingerprint, name)| Some((fingerprint, core::str::from_utf8(name).ok()?)))
}

/// Stored names of the buckets in a page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    entries: Vec<(u64, String)>,
}

impl Names {
    /// Decodes names. An unreadable value is treated as empty.
    pub fn decode(bytes: &[u8]) -> Self {
        let entries = entries(bytes).map(|(fingerprint, name)| (fingerprint, name.to_string()));
        Self {
            entries: entries.collect(),
        }
    }

    /// Encodes the names into `out`, replacing its contents.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(&MAGIC);
        for (fingerprint, name) in &self.entries {
            let Ok(length) = u8::try_from(name.len()) else {
                continue;
            };
            out.extend_from_slice(&fingerprint.to_le_bytes());
            out.push(length);
            out.extend_from_slice(name.as_bytes());
        }
    }

    /// Returns the key of a bucket.
    pub fn get(&self, fingerprint: u64) -> Option<&str> {
        self.entries
            .iter()
            .find(|(own, _)| *own == fingerprint)
            .map(|(_, name)| name.as_str())
    }

    /// Returns true if there is no room for another name, so that the next name replaces an
    /// existing one.
    pub fn is_full(&self) -> bool {
        self.entries.len() >= ENTRIES
    }

    /// Adds a key. If there is no room, names of buckets that are no longer in `page` are removed
    /// first.
    pub fn add(&mut self, fingerprint: u64, key: &str, page: &Page) {
        self.entries.retain(|(own, _)| *own != fingerprint);
        while self.is_full() {
            let lives = |own| page.slots.iter().any(|slot| slot.fingerprint == own);
            let gone = self
                .entries
                .iter()
                .position(|(own, _)| !lives(*own))
                .unwrap_or(0);
            self.entries.remove(gone);
        }
        let end = key
            .char_indices()
            .map(|(i, _)| i)
            .find(|i| *i >= MAX_KEY)
            .unwrap_or(key.len());
        self.entries
            .push((fingerprint, key.get(..end).unwrap_or_default().to_string()));
    }
}
