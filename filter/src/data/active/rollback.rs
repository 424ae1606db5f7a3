//! Detects that Envoy has rolled back to an earlier configuration.
//!
//! If the VMs of an earlier configuration are still running, Envoy reuses them for a rollback
//! without notifying them. However, a draining listener accepts no connections, and Envoy assigns
//! connection IDs in the order in which connections are accepted. The configuration in force is
//! therefore the one under which the newest connection was accepted. Shared data contains the ID of
//! the newest connection served by the configuration in force. If a VM with another configuration
//! serves a newer connection, that configuration is in force again.

use loudou_limiter::Nanos;
use loudou_store::swap::swap;

use crate::host::{Host, HostStore};

/// Minimum interval between two reads of the connection ID by a VM with the configuration in force,
/// as long as the VM sees no newer connection. Reading the ID is the most expensive host call made
/// for a request, and new connections arrive in bursts.
///
/// The VM misses a connection only if all requests sent on it before a configuration update arrive
/// within this interval after a read. A missed connection matters only if a client sends another
/// request on it more than a second after the update, before the new listener has served any
/// connection.
const INTERVAL: Nanos = Nanos::from_millis(1);
/// Delay before a VM with another configuration checks again after it has seen a newer connection.
/// The check is throttled because each attempted rollback copies the whole record, and may still be
/// rejected (see [`Record::roll_back`](crate::record::Record::roll_back)).
const RETRY_INTERVAL: Nanos = Nanos::from_millis(100);

/// Per-VM connection state.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Connections {
    /// True if this VM's configuration is in force.
    pub(super) is_in_force: bool,
    /// ID of the newest connection known while this VM's configuration was in force.
    newest: u64,
    /// Time at which to read the connection ID next, if this VM's configuration is in force.
    read_at: Nanos,
    /// Time at which to check for a rollback next, if another configuration is in force.
    look_at: Nanos,
}

impl Connections {
    /// Returns true if the current request's connection shows that Envoy has rolled back to this
    /// configuration.
    pub(super) fn sees_rollback(&mut self, host: &dyn Host, share: &str, now: Nanos) -> bool {
        let next = if self.is_in_force {
            self.read_at
        } else {
            self.look_at
        };
        if now < next {
            return false;
        }
        self.read_at = now.saturating_add(INTERVAL);
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
            self.look_at = now.saturating_add(RETRY_INTERVAL);
        }
        is_newer
    }

    /// Makes the next request read the connection ID even if [`INTERVAL`] has not elapsed.
    pub(super) const fn read_at_once(&mut self) {
        self.read_at = Nanos::ZERO;
    }
}

/// Parses the stored ID of the newest connection.
fn number(bytes: &[u8]) -> u64 {
    bytes.first_chunk().copied().map_or(0, u64::from_le_bytes)
}

/// Stores a connection ID unless a newer ID is already stored. Returns the newest ID.
fn publish(host: &dyn Host, key: &[u8], id: u64) -> u64 {
    let mut newest = id;
    // If the write fails, a request on a later connection will store a newer ID.
    let _swapped = swap(&mut HostStore(host), key, &mut |bytes| {
        let known = number(bytes.unwrap_or_default());
        newest = known.max(id);
        (known < id).then(|| id.to_le_bytes().into())
    });
    newest
}
