//! Detects rollbacks to an earlier configuration.
//!
//! Envoy does not announce a rollback to a configuration whose VMs still live. It uses these VMs
//! again, unchanged. But a draining listener accepts no connections, and Envoy numbers the
//! connections of the process in the order of acceptance. So the configuration in force is the one
//! that accepted the newest connection. Shared data stores the number of the newest connection that
//! was served. If a VM of another configuration serves a newer connection, then its configuration is
//! in force again.

use loudou_limiter::Nanos;
use loudou_store::swap::swap;

use crate::host::{Host, HostStore};

/// Interval at which a VM of the configuration in force reads the connection number while it finds
/// no newer one. Reading it is the most expensive host call of a request, and new connections come
/// in bursts.
///
/// A connection can be missed only if all its requests before an update fall within this interval
/// after another read. That matters only if the connection is used more than a second after the
/// update, while the new listener has still served none.
const INTERVAL: Nanos = Nanos::from_millis(1);
/// Interval at which a VM of another configuration checks again after it saw a newer connection.
/// Each check copies the whole record, and the newer connection may not count as a rollback yet
/// (see [`Record::roll_back`](crate::record::Record::roll_back)).
const RETRY_INTERVAL: Nanos = Nanos::from_millis(100);

/// Connection state of one VM.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Connections {
    /// True if this VM's configuration is in force.
    pub(super) is_in_force: bool,
    /// Number of the newest connection served while the configuration was in force.
    newest: u64,
    /// Time of the next read, if the configuration is in force.
    read_at: Nanos,
    /// Time of the next check, if another configuration is in force.
    look_at: Nanos,
}

impl Connections {
    /// Returns true if the current request's connection shows that this configuration is in force
    /// again.
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

    /// Makes the next call read the connection number without waiting for [`INTERVAL`].
    pub(super) const fn read_at_once(&mut self) {
        self.read_at = Nanos::ZERO;
    }
}

/// Parses the stored number of the newest connection.
fn number(bytes: &[u8]) -> u64 {
    bytes.first_chunk().copied().map_or(0, u64::from_le_bytes)
}

/// Writes a connection number unless a newer one is stored. Returns the newest number.
fn publish(host: &dyn Host, key: &[u8], id: u64) -> u64 {
    let mut newest = id;
    // If this write fails, a request on the next connection writes a newer number.
    let _swapped = swap(&mut HostStore(host), key, &mut |bytes| {
        let known = number(bytes.unwrap_or_default());
        newest = known.max(id);
        (known < id).then(|| id.to_le_bytes().into())
    });
    newest
}
