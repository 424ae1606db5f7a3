//! The engine: a single Redis or Valkey server, or the nodes of a cluster.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use loudou_api::LeaseError;
use redis::Value;
use tokio::time::Instant;

use crate::log::Log;
use crate::metrics::Metrics;
use crate::script::{Call, FLEET, LEASE};

mod advice;
mod cluster;
mod connect;
mod node;
mod script;

use cluster::Cluster;
use connect::Address;
pub use connect::Target;
use node::{Failure, Node};
use script::Script;

/// Timeout of health checks and connection attempts. A server that takes longer than this is
/// considered hung.
const PATIENCE: Duration = Duration::from_secs(1);
/// Maximum number of cluster nodes to try for a call while a slot is being migrated.
const NODES: usize = 3;

/// Redirection to another cluster node (`MOVED` or `ASK`).
struct Moved {
    address: Address,
    /// True for `ASK`: the slot is being migrated, so the redirection applies only to this call.
    asking: bool,
}

/// The script to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// [`LEASE`].
    Lease,
    /// [`FLEET`].
    Fleet,
}

enum Servers {
    One(Node),
    Cluster(Cluster),
}

/// Client for the engine.
pub struct Engine {
    servers: Servers,
    lease: Script,
    fleet: Script,
    target: Target,
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reached = self.is_reached();
        f.debug_struct("Engine")
            .field("reached", &reached)
            .finish_non_exhaustive()
    }
}

impl Engine {
    /// Creates a client without connections. [`Engine::keep`] opens them.
    pub fn new(target: Target, metrics: Arc<Metrics>, log: Log) -> Self {
        let servers = if target.is_cluster() {
            Servers::Cluster(Cluster::new(metrics, log))
        } else {
            Servers::One(Node::new(None, metrics, log))
        };
        Self {
            servers,
            lease: Script::new(LEASE),
            fleet: Script::new(FLEET),
            target,
        }
    }

    /// Returns true if the relay is connected to at least one of the engine's servers.
    pub fn is_reached(&self) -> bool {
        match &self.servers {
            Servers::One(node) => node.is_reached(),
            Servers::Cluster(cluster) => cluster.is_reached(),
        }
    }

    /// Returns the number of servers that hold keys, and how many of them are not connected.
    pub fn nodes(&self) -> (usize, usize) {
        match &self.servers {
            Servers::One(node) => (1, usize::from(!node.is_reached())),
            Servers::Cluster(cluster) => cluster.nodes(),
        }
    }

    /// Opens the connections, and reopens them when they are lost. Never returns.
    pub async fn keep(&self) {
        let target = self.target.clone();
        match &self.servers {
            Servers::One(node) => node.keep(target).await,
            Servers::Cluster(cluster) => cluster.keep(target).await,
        }
    }

    /// Runs a script on the server that stores its keys. Fails with [`LeaseError::Timeout`] once the deadline has
    /// passed.
    pub async fn call(
        &self,
        which: Which,
        call: &Call,
        deadline: Instant,
    ) -> Result<Value, LeaseError> {
        let script = match which {
            Which::Lease => &self.lease,
            Which::Fleet => &self.fleet,
        };
        let cluster = match &self.servers {
            Servers::One(node) => {
                return match node.call(script, call, false, deadline).await {
                    Ok(value) => Ok(value),
                    Err(Failure::Key(error)) => Err(error),
                    Err(Failure::Moved(_)) => Err(LeaseError::Refused),
                };
            }
            Servers::Cluster(cluster) => cluster,
        };
        let key = call.keys.first().map_or("", String::as_str);
        let (mut node, mut asking) = (cluster.node_of(key), false);
        for _ in 0..NODES {
            let asked = node.ok_or(LeaseError::Unreachable)?;
            match asked.call(script, call, asking, deadline).await {
                Ok(value) => return Ok(value),
                Err(Failure::Key(error)) => return Err(error),
                Err(Failure::Moved(moved)) => {
                    node = cluster.node_at(&moved.address);
                    asking = moved.asking;
                    if node.is_none() || !asking {
                        cluster.has_moved();
                    }
                }
            }
        }
        Err(LeaseError::Unreachable)
    }
}
