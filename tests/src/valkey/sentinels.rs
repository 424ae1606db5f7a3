//! A primary with a replica, and three sentinels that let the replica take over.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};

use super::node::Node;
use super::{Reply, START};
use crate::clock::eventually;
use crate::temp::TempDir;

const SENTINELS: usize = 3;
/// Time limit for a failover. A replica takes over within seconds after its primary is lost.
const FAIL_OVER: Duration = Duration::from_mins(2);

/// Running servers. Node 0 is the first primary, and node 1 its replica.
#[derive(Debug)]
pub struct ValkeySentinels {
    nodes: Vec<Node>,
    sentinels: Vec<Node>,
    /// Removed after the servers have ended.
    _dir: TempDir,
}

impl ValkeySentinels {
    /// Name of the primary.
    pub const NAME: &str = "loudou";

    /// Starts the servers, and waits until the replica follows and every sentinel knows the other
    /// sentinels.
    pub fn start() -> Result<Self> {
        let dir = TempDir::new("valkey-sentinels")?;
        let serve = |command: &mut Command, port: u16, path: &Path| {
            Node::serve(command, port, path);
            Ok(())
        };
        let primary = Node::start(&dir, serve)?;
        let port = primary.address().port().to_string();
        let replica = Node::start(&dir, |command, own, path| {
            Node::serve(command, own, path);
            command.args(["--replicaof", "127.0.0.1", &port]);
            Ok(())
        })?;
        eventually(START, "the replica to follow", || {
            Ok(replica.is_following()?.then_some(()))
        })?;
        let sentinels = (0..SENTINELS)
            .map(|_| Node::start(&dir, |command, own, path| watch(command, own, path, &port)));
        let all = Self {
            sentinels: sentinels.collect::<Result<_>>()?,
            nodes: vec![primary, replica],
            _dir: dir,
        };
        eventually(START, "the sentinels to know each other", || {
            all.are_complete()
        })?;
        Ok(all)
    }

    /// Returns the URLs of the sentinels, for the relay's `--engine`.
    pub fn urls(&self) -> Vec<String> {
        self.sentinels.iter().map(Node::url).collect()
    }

    /// Returns the URL of a node.
    pub fn node_url(&self, node: usize) -> Result<String> {
        Ok(self.node(node)?.url())
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

    /// Makes a sentinel hang.
    pub fn pause_sentinel(&self, sentinel: usize) -> Result<()> {
        self.sentinel(sentinel)?.pause()
    }

    /// Runs a command on a sentinel. An error reply counts as an error.
    pub fn run_sentinel(&self, sentinel: usize, command: &[&str]) -> Result<Reply> {
        self.sentinel(sentinel)?.run(command)
    }

    /// Runs a command on a node. An error reply counts as an error.
    pub fn run(&self, node: usize, command: &[&str]) -> Result<Reply> {
        self.node(node)?.run(command)
    }

    /// Waits until node 1 has everything that was written to node 0.
    pub fn await_replica(&self) -> Result<()> {
        eventually(START, "the replica to have all writes", || {
            let offset = |node| {
                let Reply::Text(info) = self.run(node, &["INFO", "replication"])? else {
                    return Ok(None);
                };
                let mut lines = info.lines();
                let offset = lines.find_map(|line| line.strip_prefix("master_repl_offset:"));
                Ok::<_, anyhow::Error>(offset.and_then(|text| text.parse::<u64>().ok()))
            };
            // Read the primary's position first, so that later writes do not count.
            let (written, got) = (offset(0)?, offset(1)?);
            Ok((written.is_some() && written <= got).then_some(()))
        })
    }

    /// Ends the replication to node 1 for good. Node 1 may take over nevertheless.
    pub fn cut_replica(&self) -> Result<()> {
        // No such user exists, so the primary refuses the replica when it connects again.
        self.run(
            1,
            &[
                "CONFIG",
                "SET",
                "masteruser",
                "nobody",
                "masterauth",
                "nothing",
            ],
        )?;
        self.run(0, &["CLIENT", "KILL", "TYPE", "replica"])?;
        eventually(START, "the replica to lose its primary", || {
            Ok((!self.node(1)?.is_following()?).then_some(()))
        })
    }

    /// Waits until this sentinel names the node as the primary, and the node is one.
    pub fn await_primary(&self, sentinel: usize, node: usize) -> Result<()> {
        let sentinel = self.sentinel(sentinel)?;
        let node = self.node(node)?;
        let address = node.address();
        let named = Reply::List(vec![
            Reply::Text(address.ip().to_string()),
            Reply::Text(address.port().to_string()),
        ]);
        eventually(FAIL_OVER, "a sentinel to name the new primary", || {
            let answer = sentinel.run(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", Self::NAME])?;
            Ok((answer == named && node.is_primary()?).then_some(()))
        })
    }

    fn sentinel(&self, sentinel: usize) -> Result<&Node> {
        self.sentinels.get(sentinel).context("no such sentinel")
    }

    fn node(&self, node: usize) -> Result<&Node> {
        self.nodes.get(node).context("no such node")
    }

    fn are_complete(&self) -> Result<Option<()>> {
        let count = |sentinel: &Node, what: &str| {
            let list = sentinel.run(&["SENTINEL", what, Self::NAME])?;
            Ok::<_, anyhow::Error>(match list {
                Reply::List(list) => list.len(),
                _ => 0,
            })
        };
        for sentinel in &self.sentinels {
            let others = count(sentinel, "SENTINELS")?;
            if count(sentinel, "REPLICAS")? < 1 || others < SENTINELS.saturating_sub(1) {
                return Ok(None);
            }
        }
        Ok(Some(()))
    }
}

/// A sentinel needs a writable configuration file, because it keeps its state there.
fn watch(command: &mut Command, own: u16, path: &Path, port: &str) -> Result<()> {
    let name = ValkeySentinels::NAME;
    let quorum = SENTINELS.div_ceil(2);
    let file = path.join("sentinel.conf");
    let text = format!(
        "port {own}\nbind 127.0.0.1\ndir {}\n\
         sentinel monitor {name} 127.0.0.1 {port} {quorum}\n\
         sentinel down-after-milliseconds {name} 1000\n\
         sentinel failover-timeout {name} 10000\n",
        path.display()
    );
    fs::write(&file, text).context("cannot write a sentinel's file")?;
    command.arg(file).arg("--sentinel");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_takes_over() -> Result<()> {
        let mut sentinels = ValkeySentinels::start()?;
        sentinels.run(0, &["SET", "k", "1"])?;
        sentinels.await_replica()?;
        sentinels.cut_replica()?;
        sentinels.run(0, &["SET", "k", "2"])?;
        sentinels.kill(0)?;
        sentinels.await_primary(2, 1)?;
        assert_eq!(
            sentinels.run(1, &["GET", "k"])?,
            Reply::Text("1".to_owned())
        );
        Ok(())
    }
}
