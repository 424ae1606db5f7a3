//! A Valkey cluster: three primaries, each with a replica.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use super::node::Node;
use super::{Reply, START};
use crate::clock::eventually;
use crate::temp::TempDir;

/// Number of a cluster's last slot. The first one is 0.
const LAST_SLOT: u32 = 16_383;
const PRIMARIES: u32 = 3;
/// Time limit for a failover. A replica takes over within seconds after its primary is lost.
const FAIL_OVER: Duration = Duration::from_mins(1);

/// A running cluster. Nodes 0 to 2 are the first primaries, and node n + 3 is the replica of node n.
#[derive(Debug)]
pub struct ValkeyCluster {
    nodes: Vec<Node>,
    dir: TempDir,
}

impl ValkeyCluster {
    /// Starts the nodes, joins them, and waits until all slots are served and all replicas follow.
    pub fn start() -> Result<Self> {
        let dir = TempDir::new("valkey-cluster")?;
        let nodes = (0..PRIMARIES.saturating_mul(2)).map(|_| Node::start(&dir, options));
        let cluster = Self {
            nodes: nodes.collect::<Result<_>>()?,
            dir,
        };
        cluster.share_slots()?;
        cluster.join()?;
        cluster.follow()?;
        Ok(cluster)
    }

    /// Returns the URLs for the relay's `--engine`.
    pub fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(Node::url).collect()
    }

    /// Returns the directory with the nodes' logs.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Kills a node.
    pub fn kill(&mut self, node: usize) -> Result<()> {
        self.nodes.get_mut(node).context("no such node")?.kill();
        Ok(())
    }

    /// Makes a node hang.
    pub fn pause(&self, node: usize) -> Result<()> {
        self.node(node)?.pause()
    }

    /// Lets a hanging node continue.
    pub fn resume(&self, node: usize) -> Result<()> {
        self.node(node)?.resume()
    }

    /// Runs a command on a node. An error reply counts as an error.
    pub fn run(&self, node: usize, command: &[&str]) -> Result<Reply> {
        self.node(node)?.run(command)
    }

    fn node(&self, node: usize) -> Result<&Node> {
        self.nodes.get(node).context("no such node")
    }

    /// Returns the node that serves a key now.
    pub fn primary_of(&self, key: &str) -> Result<usize> {
        for at in 0..self.nodes.len() {
            // Only the node that serves the key answers. The other nodes reply with its address.
            if self.run(at, &["GET", key]).is_ok() {
                return Ok(at);
            }
        }
        bail!("no node serves {key:?}")
    }

    /// Waits until a node is a primary.
    pub fn await_primary(&self, node: usize) -> Result<()> {
        eventually(FAIL_OVER, "a replica to take over", || {
            let state = self.run(node, &["CLUSTER", "INFO"])?;
            let is_primary = self.node(node)?.is_primary()?;
            Ok((is_primary && is_whole(&state)).then_some(()))
        })
    }

    fn share_slots(&self) -> Result<()> {
        let slots = LAST_SLOT.saturating_add(1);
        let begin = |part: u32| {
            slots
                .saturating_mul(part)
                .checked_div(PRIMARIES)
                .unwrap_or(0)
        };
        for (at, part) in (0..).zip(0..PRIMARIES) {
            let (first, next) = (begin(part), begin(part.saturating_add(1)));
            let (first, last) = (first.to_string(), next.saturating_sub(1).to_string());
            self.run(at, &["CLUSTER", "ADDSLOTSRANGE", &first, &last])?;
        }
        Ok(())
    }

    fn join(&self) -> Result<()> {
        for node in self.nodes.iter().skip(1) {
            let port = node.address().port();
            let bus = port.saturating_add(1).to_string();
            let port = port.to_string();
            self.run(0, &["CLUSTER", "MEET", "127.0.0.1", &port, &bus])?;
        }
        self.everywhere("the nodes to know each other", |at| {
            let Reply::Text(nodes) = self.run(at, &["CLUSTER", "NODES"])? else {
                bail!("no list of nodes");
            };
            let known = nodes.lines().filter(|line| line.contains(" connected"));
            let state = self.run(at, &["CLUSTER", "INFO"])?;
            Ok(known.count() == self.nodes.len() && is_whole(&state))
        })
    }

    fn follow(&self) -> Result<()> {
        let primaries = usize::try_from(PRIMARIES)?;
        for at in 0..primaries {
            let Reply::Text(id) = self.run(at, &["CLUSTER", "MYID"])? else {
                bail!("a node without an id");
            };
            let replica = at.saturating_add(primaries);
            self.run(replica, &["CLUSTER", "REPLICATE", &id])?;
        }
        self.everywhere("the replicas to follow", |at| {
            Ok(at < primaries || self.node(at)?.is_following()?)
        })
    }

    fn everywhere(&self, what: &str, holds: impl Fn(usize) -> Result<bool>) -> Result<()> {
        eventually(START, what, || {
            for at in 0..self.nodes.len() {
                if !holds(at)? {
                    return Ok(None);
                }
            }
            Ok(Some(()))
        })
    }
}

/// Returns true if all slots are served.
fn is_whole(info: &Reply) -> bool {
    matches!(info, Reply::Text(text) if text.contains("cluster_state:ok"))
}

/// Adds the options of a node.
fn options(command: &mut Command, port: u16, path: &Path) -> Result<()> {
    let bus = port.checked_add(1).context("no port for the bus")?;
    Node::serve(command, port, path);
    command
        .args(["--cluster-enabled", "yes", "--cluster-node-timeout", "1000"])
        .args(["--cluster-port", &bus.to_string()]);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_takes_over() -> Result<()> {
        let mut cluster = ValkeyCluster::start()?;
        let primary = cluster.primary_of("k")?;
        cluster.kill(primary)?;
        let replica = primary.saturating_add(3);
        cluster.await_primary(replica)?;
        cluster.run(replica, &["SET", "k", "1"])?;
        Ok(())
    }
}
