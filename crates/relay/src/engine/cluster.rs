//! A cluster: which node has which slots, and a connection to each of them.
//!
//! The client of the `redis` crate holds up the calls of all nodes while it looks for one that is lost. Here
//! each node has a connection of its own, so a lost one concerns its keys alone.

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

/// The pause between two looks at the slots while all nodes are reached.
const CALM: Duration = Duration::from_secs(5);
/// The same while a node is lost, or none is known.
const HURRY: Duration = Duration::from_millis(250);
/// The least pause between two looks, however many keys have moved.
const PAUSE: Duration = Duration::from_millis(50);
/// The number of slots of every cluster.
const SLOTS: u16 = 16_384;

/// A cluster.
pub(super) struct Cluster {
    map: Mutex<Arc<Map>>,
    /// A key has moved.
    moved: Notify,
    /// True if all nodes of the first slots were tried.
    is_ready: AtomicBool,
    metrics: Arc<Metrics>,
    log: Log,
}

/// The slots, and the nodes that have them.
#[derive(Default)]
struct Map {
    /// The first and last slot of each range, in their order.
    ranges: Vec<(u16, u16, Arc<Node>)>,
    nodes: BTreeMap<Address, Arc<Kept>>,
}

/// A node with its task, which ends with it.
struct Kept {
    node: Arc<Node>,
    task: JoinHandle<()>,
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The ranges of slots as a node gives them.
type Ranges = Vec<(u16, u16, Address)>;

impl Cluster {
    /// A cluster of which no node is known yet; [`Cluster::keep`] looks for them.
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

    /// Returns true if a node answers, and all were tried.
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

    /// The number of nodes with slots, and of those that are not reached.
    pub(super) fn nodes(&self) -> (usize, usize) {
        let map = self.map();
        let lost = map.nodes.values().filter(|kept| !kept.node.is_reached());
        (map.nodes.len(), lost.count())
    }

    /// The node of a key.
    pub(super) fn node_of(&self, key: &str) -> Option<Arc<Node>> {
        let slot = slot(key.as_bytes());
        let map = self.map();
        let at = map.ranges.partition_point(|(_, last, _)| *last < slot);
        let (_, _, node) = map.ranges.get(at).filter(|(first, ..)| *first <= slot)?;
        Some(Arc::clone(node))
    }

    /// The node at an address to which a key has moved; `None` if it is not known yet.
    pub(super) fn node_at(&self, address: &Address) -> Option<Arc<Node>> {
        let map = self.map();
        map.nodes.get(address).map(|kept| Arc::clone(&kept.node))
    }

    /// A key has moved to another node.
    pub(super) fn has_moved(&self) {
        self.moved.notify_one();
    }

    /// Keeps the map, forever.
    pub(super) async fn keep(&self, target: Target) {
        let mut logged = Vec::new();
        loop {
            match self.look(&target).await {
                Ok(ranges) => {
                    if self.adopt(&ranges, &target) {
                        let fields = json!({ "nodes": self.nodes().0 });
                        self.log.write(Level::Info, "engine reached", fields);
                    }
                    logged.clear();
                }
                Err(error) => {
                    let fields = target.explain(&error);
                    if !logged.contains(&fields) {
                        let message = "engine not reached";
                        self.log.write(Level::Warn, message, fields.clone());
                        logged.push(fields);
                    }
                }
            }
            tokio::time::sleep(PAUSE).await;
            let (nodes, lost) = self.nodes();
            let pause = if nodes == 0 || lost > 0 { HURRY } else { CALM };
            // A key that has moved ends the pause.
            drop(timeout(pause, self.moved.notified()).await);
        }
    }

    /// The slots as most nodes see them: one that was cut off may know an earlier state.
    async fn look(&self, target: &Target) -> RedisResult<Ranges> {
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

    /// Replaces the map; returns true if there was none. Nodes that are in both keep their connections.
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

/// The answer that most have given; else the first error.
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

/// The reply to `CLUSTER SLOTS`; `beside` gives the address for a host, which may be empty, and a port.
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
        // A node that does not know its own address yet.
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

/// The slot of a key, by its part in braces if it has one.
fn slot(key: &[u8]) -> u16 {
    let braced = || {
        let (_, rest) = split_at(key, b'{')?;
        let (tag, _) = split_at(rest, b'}')?;
        (!tag.is_empty()).then_some(tag)
    };
    crc16(braced().unwrap_or(key)) & (SLOTS - 1)
}

/// The parts before and after the first of these bytes.
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
        // From `CLUSTER KEYSLOT`.
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
