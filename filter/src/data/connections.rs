//! Which configuration new connections are accepted for.
//!
//! Envoy tells nobody of a rollback to a configuration whose sandboxes still live: it uses them again as
//! they are. But a listener that drains accepts no connections, and Envoy numbers those of the whole process
//! in the order in which they come. So the configuration in force is the one that has accepted the newest
//! connection. The number of the newest one that it has served is in shared data; a sandbox of another
//! configuration that serves a newer one is in force again.

use loudou_limiter::Nanos;
use loudou_store::{CAS_ABSENT, Written};

use crate::host::Host;

/// How often a sandbox of the configuration in force asks for the number of a connection: it is a call of
/// the host.
const EVERY: Nanos = Nanos::new(100_000);
/// How often a number that another worker has written meanwhile is written again.
const MAX_TRIES: usize = 4;

/// What a sandbox knows of connections.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Connections {
    /// Whether its configuration is the one in force.
    pub(super) is_in_force: bool,
    /// The newest that was served while it was.
    newest: u64,
    /// When to ask again.
    ask_at: Nanos,
}

impl Connections {
    /// Whether the connection of the current request tells that this configuration is in force again.
    pub(super) fn tell_of_rollback(&mut self, host: &dyn Host, share: &str, now: Nanos) -> bool {
        if self.is_in_force && now < self.ask_at {
            return false;
        }
        self.ask_at = now.saturating_add(EVERY);
        let id = host.property("connection\0id");
        let Some(id) = id.and_then(|id| id.try_into().ok()).map(u64::from_le_bytes) else {
            return false;
        };
        if id <= self.newest {
            return false;
        }
        let key = [share.as_bytes(), b":newest"].concat();
        if self.is_in_force {
            self.newest = publish(host, &key, id);
            return false;
        }
        id > newest(host, &key).0
    }

    /// The configuration is in force again: what the next call learns counts at once.
    pub(super) const fn ask_now(&mut self) {
        self.ask_at = Nanos::ZERO;
    }
}

/// The newest connection that was served, and the version of its value.
fn newest(host: &dyn Host, key: &[u8]) -> (u64, u32) {
    let mut bytes = Vec::new();
    let Ok(Some(cas)) = host.shared_get(key, &mut bytes) else {
        return (0, CAS_ABSENT);
    };
    let id = bytes.first_chunk().copied().map_or(0, u64::from_le_bytes);
    (id, cas)
}

/// Writes a number, unless there is a newer one; the newest.
fn publish(host: &dyn Host, key: &[u8], id: u64) -> u64 {
    for _ in 0..MAX_TRIES {
        let (known, cas) = newest(host, key);
        if known >= id {
            return known;
        }
        if host.shared_set(key, &id.to_le_bytes(), cas) != Ok(Written::Conflict) {
            break;
        }
    }
    id
}
