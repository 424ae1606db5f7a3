//! Identifies an Envoy process by a unique ID and its start time.
//!
//! The ID is part of the shared rule record, which has the same lifetime as Envoy's shared data.
//! Generations and event numbers start at 1 in every process, so clients need the ID to tell which
//! process a number belongs to.

use loudou_limiter::{Clock, Nanos};

use crate::host::Host;

/// Number of hexadecimal digits in an ID.
pub(crate) const DIGITS: usize = 16;

/// ID and start time of an Envoy process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Instance {
    /// 64 random bits in hexadecimal. The bits are not derived from the store's random seed,
    /// because the seed must stay secret.
    pub(crate) id: String,
    /// Creation time of the shared data, in milliseconds since the Unix epoch.
    pub(crate) started_unix_ms: u64,
}

impl Default for Instance {
    fn default() -> Self {
        Self {
            id: "0".repeat(DIGITS),
            started_unix_ms: 0,
        }
    }
}

impl Instance {
    /// Creates an instance with a random ID and the current time as its start time.
    pub(crate) fn start(host: &dyn Host) -> Self {
        let random = host.random();
        let id = random.first_chunk().copied().map_or(0, u64::from_le_bytes);
        Self {
            id: format!("{id:016x}"),
            started_unix_ms: host.unix_ms(),
        }
    }

    /// Returns the instance with the ID and start time from a record, or `None` if the ID is
    /// invalid.
    pub(crate) fn of(id: &[u8], started_unix_ms: u64) -> Option<Self> {
        let id = str::from_utf8(id).ok().filter(|id| is_id(id))?;
        Some(Self {
            id: id.to_owned(),
            started_unix_ms,
        })
    }

    /// Returns the `ETag` of the rules at `generation`.
    pub(crate) fn etag(&self, generation: u64) -> String {
        format!("\"{}-{generation}\"", self.id)
    }

    /// Returns true if an `If-Match` tag was issued by another Envoy process.
    pub(crate) fn is_other(&self, if_match: &str) -> bool {
        let tag = if_match.trim_matches('"');
        tag.split_once('-')
            .is_some_and(|(id, _)| is_id(id) && id != self.id)
    }

    /// Returns the time since the process started, according to the wall clock.
    pub(crate) const fn age(&self, at: Clock) -> Nanos {
        let age_ms = at.wall.as_millis().saturating_sub(self.started_unix_ms);
        Nanos::from_secs(age_ms / 1_000)
    }
}

/// Parses an event position: `INSTANCE-SEQ`, or just the sequence number.
pub(crate) fn parse_place(text: &str) -> Option<(Option<String>, u64)> {
    let Some((id, seq)) = text.split_once('-') else {
        return Some((None, text.parse().ok()?));
    };
    let id = is_id(id).then(|| id.to_owned())?;
    Some((Some(id), seq.parse().ok()?))
}

fn is_id(text: &str) -> bool {
    text.len() == DIGITS && text.bytes().all(|digit| digit.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::fake::FakeHost;

    #[test]
    fn a_process_is_read_back_unless_it_is_damaged() {
        let host = FakeHost::default();
        let started = Instance::start(&host);
        let id = b"0707070707070707";
        assert_eq!(Instance::of(id, 1_700_000_000_000), Some(started));
        for id in [&b"07"[..], b"0707070707070-07", b"\xff707070707070707", b""] {
            assert_eq!(Instance::of(id, 7), None, "{id:?}");
        }
        let other = FakeHost::default();
        other.chance.set(1);
        assert_ne!(Instance::start(&other).id, Instance::start(&host).id);
    }

    #[test]
    fn an_etag_of_another_process_differs_from_a_stale_one() {
        let here = Instance::start(&FakeHost::default());
        for (seen, is_other) in [
            ("\"0808080808080808-1\"", true),
            ("0808080808080808-1", true),
            (here.etag(1).as_str(), false),
            ("\"1\"", false),
            ("\"08-1\"", false),
            ("", false),
        ] {
            assert_eq!(here.is_other(seen), is_other, "{seen}");
        }
    }
}
