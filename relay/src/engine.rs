//! The engine: one connection that all calls share, kept by a task of its own.
//!
//! The task connects, looks every half second whether the engine still answers, and connects again when it
//! does not. Meanwhile calls are refused at once instead of waiting for their time to be up: an engine that
//! hangs costs each Envoy one slow call, not all of them.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use loudou_api::LeaseError;
use redis::aio::{ConnectionLike as _, MultiplexedConnection};
use redis::cluster_async::ClusterConnection;
use redis::{Cmd, ErrorKind, RedisError, RedisResult, Script, ServerErrorKind, Value};
use serde_json::json;
use tokio::sync::Notify;
use tokio::time::{Instant, interval, timeout, timeout_at};

use crate::log::{Level, Log};
use crate::metrics::Metrics;
use crate::script::{Call, FLEET, LEASE};

mod advice;
mod connect;
mod memory;

use advice::advice;
pub use connect::Target;

/// The pause between two looks at a connection.
const LOOK: Duration = Duration::from_millis(500);
/// An engine that takes longer for a look or a connection has hung.
const PATIENCE: Duration = Duration::from_secs(1);
/// The pause between two looks at what the engine does when its memory is full.
const MEMORY: Duration = Duration::from_mins(1);
/// The pause between two attempts to connect.
const RETRY: Duration = Duration::from_millis(100);

/// A connection; clones share it.
#[derive(Clone)]
pub(crate) enum Connection {
    Single(MultiplexedConnection),
    Cluster(ClusterConnection),
}

impl Connection {
    async fn run(&mut self, command: &Cmd) -> RedisResult<Value> {
        let reply = match self {
            Self::Single(connection) => connection.req_packed_command(command).await?,
            Self::Cluster(connection) => connection.req_packed_command(command).await?,
        };
        reply.extract_error()
    }
}

/// The current connection, with a number so that an error of an earlier one does not end it.
#[derive(Default)]
struct Current {
    number: u64,
    connection: Option<Connection>,
    /// The codes of errors of scripts that it was warned of.
    refused: BTreeSet<String>,
}

/// The script of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// [`LEASE`].
    Lease,
    /// [`FLEET`].
    Fleet,
}

struct Prepared {
    text: &'static str,
    hash: String,
}

impl Prepared {
    fn new(text: &'static str) -> Self {
        Self {
            text,
            hash: Script::new(text).get_hash().to_owned(),
        }
    }
}

/// The engine, as the relay's calls see it.
pub struct Engine {
    current: Mutex<Current>,
    lost: Notify,
    lease: Prepared,
    fleet: Prepared,
    metrics: Arc<Metrics>,
    log: Log,
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
    /// An engine that is not connected yet; [`Engine::keep`] does that.
    pub fn new(metrics: Arc<Metrics>, log: Log) -> Self {
        Self {
            current: Mutex::default(),
            lost: Notify::new(),
            lease: Prepared::new(LEASE),
            fleet: Prepared::new(FLEET),
            metrics,
            log,
        }
    }

    /// Whether there is a connection.
    pub fn is_reached(&self) -> bool {
        self.with(|current| current.connection.is_some())
    }

    /// Runs a script until the deadline. A script that has run out of time may still run: what it takes
    /// is lost, which is on the strict side.
    pub async fn call(
        &self,
        which: Which,
        call: &Call,
        deadline: Instant,
    ) -> Result<Value, LeaseError> {
        let (number, connection) =
            self.with(|current| (current.number, current.connection.clone()));
        let mut connection = connection.ok_or(LeaseError::Unreachable)?;
        let run = self.evaluate(&mut connection, which, call);
        match timeout_at(deadline, run).await {
            Err(_) => Err(LeaseError::Timeout),
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(self.failed(number, &connection, &error)),
        }
    }

    async fn evaluate(
        &self,
        connection: &mut Connection,
        which: Which,
        call: &Call,
    ) -> RedisResult<Value> {
        let script = match which {
            Which::Lease => &self.lease,
            Which::Fleet => &self.fleet,
        };
        let by_hash = connection
            .run(&command("EVALSHA", &script.hash, call))
            .await;
        match by_hash {
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                self.metrics.scripts_sent.add(1);
                connection.run(&command("EVAL", script.text, call)).await
            }
            result => result,
        }
    }

    fn failed(&self, number: u64, connection: &Connection, error: &RedisError) -> LeaseError {
        let is_replica = matches!(
            error.kind(),
            ErrorKind::Server(ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown)
        );
        let is_io = error.is_io_error() || error.is_connection_dropped();
        // A cluster's connection looks for other nodes by itself.
        if (is_io || is_replica) && matches!(connection, Connection::Single(_)) {
            self.lose(number, error);
        }
        if is_io || error.kind() == ErrorKind::ClusterConnectionNotFound {
            return LeaseError::Unreachable;
        }
        let code = error.code().unwrap_or_default().to_owned();
        let is_new = self.with(|current| current.refused.insert(code));
        let level = if is_new { Level::Warn } else { Level::Debug };
        self.log_error("the engine refused a script", error, level);
        LeaseError::Refused
    }

    /// Ends a connection, unless there is a newer one.
    fn lose(&self, number: u64, error: &RedisError) {
        let was = self.with(|current| {
            let is_current = current.number == number;
            is_current.then(|| current.connection.take()).flatten()
        });
        if was.is_some() {
            self.metrics.engine_up.set(0);
            self.log_error("engine lost", error, Level::Warn);
            self.lost.notify_one();
        }
    }

    fn log_error(&self, message: &str, error: &RedisError, level: Level) {
        // The text of an error may have a part of a command in it; its kind and code have not.
        let kind = format!("{:?}", error.kind());
        let advice = advice(error, None);
        let fields = json!({ "kind": kind, "code": error.code(), "advice": advice });
        self.log.write(level, message, fields);
    }

    fn with<T>(&self, work: impl FnOnce(&mut Current) -> T) -> T {
        work(&mut self.current.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Keeps a connection, forever.
    pub async fn keep(&self, target: Target) {
        // The errors logged since the engine was reached last.
        let mut logged = Vec::new();
        loop {
            match timeout(target.patience(), target.connect()).await {
                Ok(Ok(connection)) => {
                    let number = self.with(|current| {
                        current.number = current.number.saturating_add(1);
                        current.connection = Some(connection.clone());
                        current.refused.clear();
                        current.number
                    });
                    self.metrics.engine_up.set(1);
                    self.metrics.engine_connects.add(1);
                    self.log.write(Level::Info, "engine reached", json!({}));
                    logged.clear();
                    self.watch(number, connection).await;
                }
                failed => {
                    self.with(|current| current.connection = None);
                    self.metrics.engine_up.set(0);
                    let fields = match failed {
                        Ok(Err(error)) => target.explain(&error),
                        _ => json!({ "kind": "no answer" }),
                    };
                    if !logged.contains(&fields) {
                        self.log
                            .write(Level::Warn, "engine not reached", fields.clone());
                        logged.push(fields);
                    }
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
    }

    /// Warns of an engine that may evict leases; one that does not tell is taken for one that does not.
    async fn note_memory(&self, connection: &mut Connection) {
        let mut info = redis::cmd("INFO");
        let reply = timeout(PATIENCE, connection.run(info.arg("memory"))).await;
        let policy = reply.ok().and_then(Result::ok);
        let policy = policy.and_then(|reply| memory::evicts_by(&reply));
        let was = self.metrics.engine_evicts.get();
        self.metrics.engine_evicts.set(policy.is_some().into());
        if let (Some(policy), 0) = (policy, was) {
            let advice =
                "a bucket whose lease is evicted is full again: set maxmemory-policy noeviction";
            let fields = json!({ "policy": policy, "advice": advice });
            self.log
                .write(Level::Warn, "the engine may evict leases", fields);
        }
    }

    /// Returns when the connection is lost. That of a cluster stays in use until there is another: most of
    /// its nodes may still answer.
    async fn watch(&self, number: u64, mut connection: Connection) {
        let ping = redis::cmd("PING");
        let mut memory = interval(MEMORY);
        loop {
            tokio::select! {
                _ = memory.tick() => self.note_memory(&mut connection).await,
                () = self.lost.notified() => {
                    if self.with(|current| current.connection.is_none()) {
                        return;
                    }
                }
                () = tokio::time::sleep(LOOK) => {
                    let answer = timeout(PATIENCE, connection.run(&ping)).await;
                    let hung = || RedisError::from((ErrorKind::Io, "no answer"));
                    let Err(error) = answer.unwrap_or_else(|_| Err(hung())) else {
                        continue;
                    };
                    if matches!(connection, Connection::Single(_)) {
                        self.lose(number, &error);
                    } else {
                        self.log_error("a node of the engine is lost", &error, Level::Warn);
                    }
                    return;
                }
            }
        }
    }
}

fn command(name: &str, script: &str, call: &Call) -> Cmd {
    let mut command = redis::cmd(name);
    command.arg(script).arg(call.keys.len());
    for text in call.keys.iter().chain(&call.arguments) {
        command.arg(text);
    }
    command
}
