//! Detects rollbacks: the configuration for which new connections are accepted is in force.
//!
//! Envoy does not announce a rollback to a configuration whose sandboxes still live: it uses them again
//! unchanged. But a draining listener accepts no connections, and Envoy numbers the connections of the whole
//! process in order of arrival. So the configuration in force is the one that has accepted the newest
//! connection. Shared data has the number of the newest connection that it has served; a sandbox of another
//! configuration that serves a newer one is in force again.

use loudou_limiter::Nanos;
use loudou_store::swap::swap;

use crate::host::{Host, HostStore};

/// The interval at which a sandbox of the configuration in force reads the number of a connection, a call of the host
/// that takes more than any other of a request, while it finds no newer one: new connections come in bursts. It matters
/// for a connection whose requests before an update are all within so long after another read, if it is used more than
/// a second after the update, when the new listener has still served none.
const EVERY: Nanos = Nanos::from_millis(1);
/// The interval at which a sandbox of another configuration looks again after it saw a rollback, which may not be
/// one yet ([`Record::roll_back`](crate::record::Record::roll_back)): each such look copies the whole record.
const AGAIN_IN: Nanos = Nanos::from_millis(100);

/// A sandbox's knowledge of connections.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Connections {
    /// Whether its configuration is the one in force.
    pub(super) is_in_force: bool,
    /// The newest connection that was served while it was in force.
    newest: u64,
    /// The time of the next read, for the configuration in force.
    read_at: Nanos,
    /// The time of the next look, for another configuration.
    look_at: Nanos,
}

impl Connections {
    /// Whether the connection of the current request shows that this configuration is in force again.
    pub(super) fn sees_rollback(&mut self, host: &dyn Host, share: &str, now: Nanos) -> bool {
        let next = if self.is_in_force {
            self.read_at
        } else {
            self.look_at
        };
        if now < next {
            return false;
        }
        self.read_at = now.saturating_add(EVERY);
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
            self.read_at_once();
            return false;
        }
        let mut bytes = Vec::new();
        let known = host.shared_get(&key, &mut bytes);
        let is_newer = id > known.map_or(0, |_| number(&bytes));
        if is_newer {
            self.look_at = now.saturating_add(AGAIN_IN);
        }
        is_newer
    }

    /// The configuration is in force again: the next call reads the number at once.
    pub(super) const fn read_at_once(&mut self) {
        self.read_at = Nanos::ZERO;
    }
}

/// The number of the newest connection that was served, from its stored form.
fn number(bytes: &[u8]) -> u64 {
    bytes.first_chunk().copied().map_or(0, u64::from_le_bytes)
}

/// Writes a number, unless a newer one is stored; returns the newest.
fn publish(host: &dyn Host, key: &[u8], id: u64) -> u64 {
    let mut newest = id;
    // If this write fails, the next connection writes its number.
    let _swapped = swap(&mut HostStore(host), key, &mut |bytes| {
        let known = number(bytes.unwrap_or_default());
        newest = known.max(id);
        (known < id).then(|| id.to_le_bytes().into())
    });
    newest
}
