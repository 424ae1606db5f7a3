//! Cluster client, with a slot map and one connection per node.
//!
//! The `redis` crate's cluster client blocks calls to all nodes while it is looking for a lost node. Here, each node
//! has its own connection and task, so losing a node affects only the keys in its slots.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use redis::{RedisError, RedisResult, Value};
use serde_json::json;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::connect::{Address, Target};
use super::node::{Node, in_time, run};
use crate::log::{Level, Log};
use crate::metrics::Metrics;

/// Interval between slot map refreshes while all nodes are connected.
const REFRESH_INTERVAL: Duration = Duration::from_secs(5);
/// Interval between slot map refreshes while a node is lost or no nodes are known.
const LOST_REFRESH_INTERVAL: Duration = Duration::from_millis(250);
/// Minimum interval between refreshes, regardless of the number of redirections.
const PAUSE: Duration = Duration::from_millis(50);
/// Number of slots in a Redis or Valkey cluster.
const SLOTS: u16 = 16_384;

/// Client for a cluster.
pub(super) struct Cluster {
    map: Mutex<Arc<Map>>,
    /// Triggers a slot map refresh after a `MOVED`.
    moved: Notify,
    /// True once the relay has tried to connect to every node in the slot map.
    is_ready: AtomicBool,
    metrics: Arc<Metrics>,
    log: Log,
}

/// Slot map: the slot ranges and the nodes that serve them.
#[derive(Default)]
struct Map {
    /// First slot, last slot and node of each range, sorted by slot.
    ranges: Vec<(u16, u16, Arc<Node>)>,
    nodes: BTreeMap<Address, Arc<Kept>>,
}

/// A node and its connection task. Dropping this value aborts the task.
struct Kept {
    node: Arc<Node>,
    task: JoinHandle<()>,
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Slot ranges in a node's reply: first slot, last slot and address.
type Ranges = Vec<(u16, u16, Address)>;

impl Cluster {
    /// Creates a client that does not know any nodes yet. [`Cluster::keep`] discovers them.
    pub(super) fn new(metrics: Arc<Metrics>, log: Log) -> Self {
        Self {
            map: Mutex::default(),
            moved: Notify::new(),
            is_ready: AtomicBool::new(false),
            metrics,
            log,
        }
    }

    fn map(&self) -> Arc<Map> {
        Arc::clone(&self.map.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns true if at least one node is connected and the relay has tried at least once to connect to every node.
    pub(super) fn is_reached(&self) -> bool {
        let map = self.map();
        let mut nodes = map.nodes.values();
        if !self.is_ready.load(Ordering::Acquire) {
            if map.nodes.is_empty() || !nodes.all(|kept| kept.node.is_tried()) {
                return false;
            }
            self.is_ready.store(true, Ordering::Release);
            nodes = map.nodes.values();
        }
        nodes.any(|kept| kept.node.is_reached())
    }

    /// Returns the number of nodes with slots, and how many of them are not connected.
    pub(super) fn nodes(&self) -> (usize, usize) {
        let map = self.map();
        let lost = map.nodes.values().filter(|kept| !kept.node.is_reached());
        (map.nodes.len(), lost.count())
    }

    /// Returns the node that serves a key's slot, or `None` if no known node serves it.
    pub(super) fn node_of(&self, key: &str) -> Option<Arc<Node>> {
        let slot = slot(key.as_bytes());
        let map = self.map();
        let at = map.ranges.partition_point(|(_, last, _)| *last < slot);
        let (_, _, node) = map.ranges.get(at).filter(|(first, ..)| *first <= slot)?;
        Some(Arc::clone(node))
    }

    /// Returns the node that a redirection points to, or `None` if it is not in the slot map yet.
    pub(super) fn node_at(&self, address: &Address) -> Option<Arc<Node>> {
        let map = self.map();
        map.nodes.get(address).map(|kept| Arc::clone(&kept.node))
    }

    /// Requests a slot map refresh after a `MOVED`, or after a redirection to an unknown node.
    pub(super) fn has_moved(&self) {
        self.moved.notify_one();
    }

    /// Refreshes the slot map periodically. Never returns.
    pub(super) async fn keep(&self, target: Target) {
        let mut logged = Vec::new();
        loop {
            match self.fetch_slots(&target).await {
                Ok(ranges) => {
                    if self.adopt(&ranges, &target) {
                        let fields = json!({ "nodes": self.nodes().0 });
                        self.log
                            .write(Level::Info, "connected to the engine", fields);
                    }
                    logged.clear();
                }
                Err(error) => {
                    let fields = target.explain(&error);
                    if !logged.contains(&fields) {
                        let message = "cannot connect to the engine";
                        self.log.write(Level::Warn, message, fields.clone());
                        logged.push(fields);
                    }
                }
            }
            tokio::time::sleep(PAUSE).await;
            let (nodes, lost) = self.nodes();
            let pause = if nodes == 0 || lost > 0 {
                LOST_REFRESH_INTERVAL
            } else {
                REFRESH_INTERVAL
            };
            // A `MOVED` reply cuts the pause short.
            drop(timeout(pause, self.moved.notified()).await);
        }
    }

    /// Asks all nodes for their slot ranges and returns the most common reply, because a partitioned node may return
    /// outdated ranges. If no known node replies, asks the nodes given in `--engine`.
    async fn fetch_slots(&self, target: &Target) -> RedisResult<Ranges> {
        let command = {
            let mut command = redis::cmd("CLUSTER");
            command.arg("SLOTS");
            command
        };
        let map = self.map();
        let known = map.nodes.values().map(|kept| {
            let (node, command) = (&kept.node, &command);
            async move {
                Ok(read(&node.ask(command).await?, |host, port| {
                    node.beside(host, port)
                }))
            }
        });
        let known = join_all(known).await;
        if let Ok(ranges) = most(known) {
            return Ok(ranges);
        }
        let named = target.seeds().map(|(seed, host)| {
            let command = &command;
            async move {
                let mut connection = in_time(target.connect_to(seed)).await?;
                let reply = in_time(run(&mut connection, command)).await?;
                let beside = |other: &str, port| Address {
                    host: if other.is_empty() { &host } else { other }.to_owned(),
                    port,
                };
                Ok(read(&reply, beside))
            }
        });
        most(join_all(named).await)
    }

    /// Replaces the slot map. Nodes that are still present keep their connections. Returns true if no node was known
    /// before.
    fn adopt(&self, ranges: &Ranges, target: &Target) -> bool {
        let before = self.map();
        let mut map = Map::default();
        for (first, last, address) in ranges {
            let kept = map.nodes.get(address).or_else(|| before.nodes.get(address));
            let kept = kept.map_or_else(|| self.start(address, target), Arc::clone);
            map.ranges.push((*first, *last, Arc::clone(&kept.node)));
            map.nodes.insert(address.clone(), kept);
        }
        map.ranges.sort_by_key(|(first, ..)| *first);
        *self.map.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(map);
        before.nodes.is_empty()
    }

    fn start(&self, address: &Address, target: &Target) -> Arc<Kept> {
        let metrics = Arc::clone(&self.metrics);
        let node = Arc::new(Node::new(Some(address.clone()), metrics, self.log));
        let (keeper, target) = (Arc::clone(&node), target.clone());
        let task = tokio::spawn(async move { keeper.keep(target).await });
        Arc::new(Kept { node, task })
    }
}

/// Returns the most common reply with slots. If no node has replied with slots, returns the first error.
fn most(answers: Vec<RedisResult<Ranges>>) -> RedisResult<Ranges> {
    let mut counts: BTreeMap<Ranges, usize> = BTreeMap::new();
    let mut failed = None;
    for answer in answers {
        match answer {
            Ok(ranges) if ranges.is_empty() => {}
            Ok(ranges) => {
                let count = counts.entry(ranges).or_default();
                *count = count.saturating_add(1);
            }
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    let best = counts.into_iter().max_by_key(|(_, count)| *count);
    let none = || RedisError::from((redis::ErrorKind::Io, "no node has slots"));
    match best {
        Some((ranges, _)) => Ok(ranges),
        None => Err(failed.unwrap_or_else(none)),
    }
}

/// Parses the reply to `CLUSTER SLOTS`. `beside` converts a host and a port to an address. The host may be empty.
fn read(reply: &Value, beside: impl Fn(&str, u16) -> Address) -> Ranges {
    let Value::Array(ranges) = reply else {
        return Ranges::new();
    };
    let number = |value: &Value| match value {
        Value::Int(number) => u16::try_from(*number).ok(),
        _ => None,
    };
    let range = |range: &Value| {
        let Value::Array(parts) = range else {
            return None;
        };
        let [first, last, Value::Array(primary), ..] = parts.as_slice() else {
            return None;
        };
        let [host, port, ..] = primary.as_slice() else {
            return None;
        };
        let host = match host {
            Value::BulkString(host) => String::from_utf8_lossy(host).into_owned(),
            Value::SimpleString(host) => host.clone(),
            _ => String::new(),
        };
        // Redis returns `?` as the host of a node that does not know its own address yet.
        let is_known = host != "?";
        is_known.then_some(())?;
        let (first, last) = (number(first)?, number(last)?);
        (first <= last && last < SLOTS)
            .then(|| Some((first, last, beside(&host, number(port)?))))?
    };
    let mut ranges: Ranges = ranges.iter().filter_map(range).collect();
    ranges.sort_unstable();
    ranges
}

/// Returns a key's slot. If the key has a hash tag (`{…}`), only the tag is hashed.
fn slot(key: &[u8]) -> u16 {
    let braced = || {
        let (_, rest) = split_at(key, b'{')?;
        let (tag, _) = split_at(rest, b'}')?;
        (!tag.is_empty()).then_some(tag)
    };
    crc16(braced().unwrap_or(key)) & (SLOTS - 1)
}

/// Splits `text` at the first occurrence of a byte.
fn split_at(text: &[u8], byte: u8) -> Option<(&[u8], &[u8])> {
    let at = text.iter().position(|other| *other == byte)?;
    let (before, after) = text.split_at_checked(at)?;
    Some((before, after.get(1..)?))
}

/// CRC-16/XMODEM.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc: u16, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| {
            let shifted = crc << 1;
            if crc & 0x8000 == 0 {
                shifted
            } else {
                shifted ^ 0x1021
            }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_cluster() {
        // The expected values are actual replies to `CLUSTER KEYSLOT`.
        assert_eq!(crc16(b"123456789"), 0x31C3);
        assert_eq!(slot(b"123456789"), 12_739);
        assert_eq!(slot(b"foo"), 12_182);
        assert_eq!(slot(b"loudou:fleet:{foo}:record"), 12_182);
        assert_eq!(slot(b"{}foo"), crc16(b"{}foo") & 16_383);
        assert_eq!(slot(b"foo{{bar}}"), crc16(b"{bar") & 16_383);
    }

    fn range(first: i64, last: i64, host: &str, port: i64) -> Value {
        let node = vec![Value::BulkString(host.into()), Value::Int(port)];
        Value::Array(vec![
            Value::Int(first),
            Value::Int(last),
            Value::Array(node),
        ])
    }

    #[test]
    fn what_is_no_range_is_left_out() {
        let beside = |host: &str, port| Address {
            host: if host.is_empty() { "own" } else { host }.to_owned(),
            port,
        };
        let reply = Value::Array(vec![
            range(100, 16_383, "", 1),
            range(0, 99, "a", 2),
            range(5, 2, "b", 3),
            range(0, 16_384, "c", 4),
            range(7, 8, "?", 5),
            range(-1, 8, "d", 6),
            Value::Nil,
        ]);
        let at = |host: &str, port| Address {
            host: host.to_owned(),
            port,
        };
        let expected = vec![(0, 99, at("a", 2)), (100, 16_383, at("own", 1))];
        assert_eq!(read(&reply, beside), expected);
        assert_eq!(read(&Value::Nil, beside), Ranges::new());
    }

    #[test]
    fn most_nodes_are_right() {
        let at = |port| {
            vec![(
                0,
                16_383,
                Address {
                    host: "a".to_owned(),
                    port,
                },
            )]
        };
        let lost = || Err(RedisError::from((redis::ErrorKind::Io, "lost")));
        let answers = vec![lost(), Ok(at(1)), Ok(at(2)), Ok(Ranges::new()), Ok(at(2))];
        assert_eq!(most(answers).ok(), Some(at(2)));
        assert!(most(vec![lost(), Ok(Ranges::new())]).is_err());
    }
}
