//! Client for one of the engine's servers. All calls share a single connection, which a background task opens and
//! reopens.
//!
//! The task connects, pings the server every half second, and reconnects if the server does not respond. Until it has
//! reconnected, calls fail immediately. A hung server therefore delays only one call per Envoy, and later calls do not
//! have to wait until they time out.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use loudou_api::LeaseError;
use redis::aio::{ConnectionLike as _, MultiplexedConnection};
use redis::{Cmd, ErrorKind, Pipeline, RedisError, RedisResult, ServerErrorKind, Value};
use serde_json::json;
use tokio::sync::Notify;
use tokio::time::{Instant, interval, timeout, timeout_at};

use crate::engine::advice::advice;
use crate::engine::connect::{Address, Target};
use crate::engine::script::Script;
use crate::engine::{Moved, PATIENCE};
use crate::log::{Level, Log};
use crate::metrics::Metrics;
use crate::script::Call;

/// Interval between pings.
const CHECK: Duration = Duration::from_millis(500);
/// Interval between checks of the server's `maxmemory-policy`.
const MEMORY: Duration = Duration::from_mins(1);
/// Pause between connection attempts.
const RETRY: Duration = Duration::from_millis(100);

/// The current connection. The connection number prevents a late error on an earlier connection from closing the
/// current one.
#[derive(Default)]
struct Current {
    number: u64,
    connection: Option<MultiplexedConnection>,
    /// True if a call has timed out and the server has not replied to any commands since.
    is_silent: bool,
    /// True once a connection attempt has been made.
    is_tried: bool,
    /// Codes of script errors that have already been logged as warnings.
    refused: BTreeSet<String>,
}

/// Reason why a call returned no reply.
pub(super) enum Failure {
    /// Error to return for the key.
    Key(LeaseError),
    /// Redirection to another node of the cluster.
    Moved(Moved),
}

impl From<LeaseError> for Failure {
    fn from(error: LeaseError) -> Self {
        Self::Key(error)
    }
}

/// Client for a single server.
pub(super) struct Node {
    /// Address of the cluster node. `None` for a single server or a master, whose address the task resolves on each
    /// connection attempt.
    address: Option<Address>,
    current: Mutex<Current>,
    /// Wakes the task when the connection is lost or must be checked immediately.
    check: Notify,
    metrics: Arc<Metrics>,
    log: Log,
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reached = self.is_reached();
        f.debug_struct("Node")
            .field("reached", &reached)
            .finish_non_exhaustive()
    }
}

impl Node {
    /// Creates a client without a connection. [`Node::keep`] opens the connection.
    pub(super) fn new(address: Option<Address>, metrics: Arc<Metrics>, log: Log) -> Self {
        Self {
            address,
            current: Mutex::default(),
            check: Notify::new(),
            metrics,
            log,
        }
    }

    /// Returns true if the node has a connection.
    pub(super) fn is_reached(&self) -> bool {
        self.with(|current| current.connection.is_some())
    }

    /// Returns true once a connection attempt has been made.
    pub(super) fn is_tried(&self) -> bool {
        self.with(|current| current.is_tried)
    }

    /// Runs an administrative command with a timeout of [`PATIENCE`].
    pub(super) async fn ask(&self, command: &Cmd) -> RedisResult<Value> {
        let none = || RedisError::from((ErrorKind::Io, "no connection"));
        let connection = self.with(|current| current.connection.clone());
        let mut connection = connection.ok_or_else(none)?;
        in_time(run(&mut connection, command)).await
    }

    /// Runs a script. Fails with [`LeaseError::Timeout`] once the deadline has passed. The server may still run the
    /// script after that. The units taken by the script are then lost, so the fleet may admit too few requests, but
    /// never too many.
    pub(super) async fn call(
        &self,
        script: &Script,
        call: &Call,
        asking: bool,
        deadline: Instant,
    ) -> Result<Value, Failure> {
        let (number, is_silent, connection) = self.with(|current| {
            let connection = current.connection.clone();
            (current.number, current.is_silent, connection)
        });
        let mut connection = connection.ok_or(LeaseError::Unreachable)?;
        if is_silent {
            return Err(LeaseError::Timeout.into());
        }
        let run = self.evaluate(&mut connection, script, call, asking);
        let Ok(reply) = timeout_at(deadline, run).await else {
            // The task sends a ping immediately. The server replies to the ping only after running this script, so the
            // reply proves that it has caught up.
            self.with(|current| current.is_silent |= current.number == number);
            self.check.notify_one();
            return Err(LeaseError::Timeout.into());
        };
        match reply {
            Ok(value) => {
                self.has_answered(number);
                Ok(value)
            }
            Err(error) => Err(self.failed(number, &error)),
        }
    }

    async fn evaluate(
        &self,
        connection: &mut MultiplexedConnection,
        script: &Script,
        call: &Call,
        asking: bool,
    ) -> RedisResult<Value> {
        if asking {
            // Use a pipeline. `ASKING` applies to the next command on the connection, which is shared with other calls.
            let mut both = Pipeline::new();
            both.cmd("ASKING").add_command(script.text(call));
            let replies = connection.req_packed_commands(&both, 1, 1).await?;
            return replies
                .into_iter()
                .next()
                .unwrap_or(Value::Nil)
                .extract_error();
        }
        match run(connection, &script.hash(call)).await {
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                self.metrics.scripts_sent.inc();
                run(connection, &script.text(call)).await
            }
            result => result,
        }
    }

    fn has_answered(&self, number: u64) {
        self.with(|current| {
            if current.number == number {
                current.is_silent = false;
            }
        });
    }

    fn failed(&self, number: u64, error: &RedisError) -> Failure {
        if error.is_io_error() || error.is_connection_dropped() {
            self.lose(number, error);
            return LeaseError::Unreachable.into();
        }
        self.has_answered(number);
        let is_in_cluster = self.address.is_some();
        match error.kind() {
            ErrorKind::Server(ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown) => {
                self.lose(number, error);
                return LeaseError::Unreachable.into();
            }
            ErrorKind::Server(
                ServerErrorKind::ClusterDown
                | ServerErrorKind::TryAgain
                | ServerErrorKind::BusyLoading,
            ) => {
                self.log_error("the engine is not ready", error, Level::Debug);
                return LeaseError::Unreachable.into();
            }
            ErrorKind::Server(kind @ (ServerErrorKind::Moved | ServerErrorKind::Ask))
                if is_in_cluster =>
            {
                if let Some((host, port)) = error.redirect_node() {
                    return Failure::Moved(Moved {
                        address: self.beside(host, port),
                        asking: kind == ServerErrorKind::Ask,
                    });
                }
            }
            _ => {}
        }
        let code = error.code().unwrap_or_default().to_owned();
        let is_new = self.with(|current| current.refused.insert(code));
        let level = if is_new { Level::Warn } else { Level::Debug };
        self.log_error("the engine refused a script", error, level);
        LeaseError::Refused.into()
    }

    /// Converts a host and port in a reply from this node to an address. An empty host means the node's own host.
    pub(super) fn beside(&self, host: &str, port: u16) -> Address {
        let own = self.address.as_ref().filter(|_| host.is_empty());
        let host = own.map_or_else(|| host.to_owned(), |own| own.host.clone());
        Address { host, port }
    }

    /// Closes the connection with the given number. Newer connections stay open.
    fn lose(&self, number: u64, error: &RedisError) {
        let was = self.with(|current| {
            let is_current = current.number == number;
            is_current.then(|| current.connection.take()).flatten()
        });
        if was.is_some() {
            self.log_error(self.message("lost"), error, Level::Warn);
            self.check.notify_one();
        }
    }

    fn message(&self, what: &str) -> &'static str {
        match (self.address.is_some(), what) {
            (false, "lost") => "lost the connection to the engine",
            (false, "reached") => "connected to the engine",
            (false, _) => "cannot connect to the engine",
            (true, "lost") => "lost the connection to a node of the engine",
            (true, "reached") => "connected to a node of the engine",
            (true, _) => "cannot connect to a node of the engine",
        }
    }

    fn log_error(&self, message: &str, error: &RedisError, level: Level) {
        // Do not log the error text, which may contain parts of a command. The error's kind and code are safe to log.
        let kind = format!("{:?}", error.kind());
        let advice = advice(error, None);
        let fields = json!({ "kind": kind, "code": error.code(), "advice": advice });
        self.write(level, message, fields);
    }

    fn write(&self, level: Level, message: &str, mut fields: serde_json::Value) {
        if let (Some(address), Some(fields)) = (&self.address, fields.as_object_mut()) {
            fields.insert("node".to_owned(), json!(address.to_string()));
        }
        self.log.write(level, message, fields);
    }

    fn with<T>(&self, work: impl FnOnce(&mut Current) -> T) -> T {
        work(&mut self.current.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Opens the connection, and reopens it whenever it is lost. Never returns.
    pub(super) async fn keep(&self, target: Target) {
        // Errors logged since the last successful connection, so that each is logged only once.
        let mut logged = Vec::new();
        loop {
            match timeout(PATIENCE, target.connect(self.address.as_ref())).await {
                Ok(Ok(connection)) => {
                    let number = self.with(|current| {
                        current.number = current.number.saturating_add(1);
                        current.connection = Some(connection.clone());
                        current.is_silent = false;
                        current.is_tried = true;
                        current.refused.clear();
                        current.number
                    });
                    self.metrics.engine_connects.inc();
                    self.write(Level::Info, self.message("reached"), json!({}));
                    logged.clear();
                    self.watch(number, connection).await;
                }
                failed => {
                    self.with(|current| {
                        current.connection = None;
                        current.is_tried = true;
                    });
                    let fields = match failed {
                        Ok(Err(error)) => target.explain(&error),
                        _ => json!({ "kind": "no answer" }),
                    };
                    if !logged.contains(&fields) {
                        self.write(Level::Warn, self.message("not reached"), fields.clone());
                        logged.push(fields);
                    }
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
    }

    /// Pings the server periodically. Returns when the connection is lost.
    async fn watch(&self, number: u64, mut connection: MultiplexedConnection) {
        let ping = redis::cmd("PING");
        let mut memory = interval(MEMORY);
        loop {
            tokio::select! {
                _ = memory.tick() => {
                    self.note_memory(&mut connection).await;
                    continue;
                }
                () = self.check.notified() => {
                    if self.with(|current| current.connection.is_none()) {
                        return;
                    }
                }
                () = tokio::time::sleep(CHECK) => {}
            }
            match in_time(run(&mut connection, &ping)).await {
                Ok(_) => self.has_answered(number),
                Err(error) => {
                    self.lose(number, &error);
                    return;
                }
            }
        }
    }

    /// Logs a warning if the server may evict leases. If the server does not report its eviction policy, for example
    /// because the user lacks permission, it is assumed not to evict leases.
    async fn note_memory(&self, connection: &mut MultiplexedConnection) {
        let mut info = redis::cmd("INFO");
        let reply = in_time(run(connection, info.arg("memory"))).await;
        let policy = reply.ok().and_then(|reply| evicts_by(&reply));
        let was = self.metrics.engine_evicts.get();
        self.metrics.engine_evicts.set(policy.is_some().into());
        if let (Some(policy), 0) = (policy, was) {
            let advice = if policy == "volatile-ttl" {
                "an evicted lease makes its bucket full again, and leases of fast rules are evicted first; set \
                 maxmemory-policy noeviction if limits must be exact"
            } else {
                "an evicted lease makes its bucket full again; set maxmemory-policy noeviction"
            };
            let fields = json!({ "policy": policy, "advice": advice });
            self.write(Level::Warn, "the engine may evict leases", fields);
        }
    }
}

pub(super) async fn run(
    connection: &mut MultiplexedConnection,
    command: &Cmd,
) -> RedisResult<Value> {
    connection
        .req_packed_command(command)
        .await?
        .extract_error()
}

/// Applies a timeout of [`PATIENCE`] to an operation.
pub(super) async fn in_time<T>(work: impl Future<Output = RedisResult<T>>) -> RedisResult<T> {
    let hung = || RedisError::from((ErrorKind::Io, "no answer"));
    timeout(PATIENCE, work)
        .await
        .unwrap_or_else(|_| Err(hung()))
}

/// Returns the eviction policy from a reply to `INFO memory`, or `None` if the server does not evict leases. The reply
/// may consist of one string per node, because this is how cluster clients return it.
pub(crate) fn evicts_by(reply: &Value) -> Option<String> {
    match reply {
        Value::BulkString(bytes) => policy(&String::from_utf8_lossy(bytes)),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => policy(text),
        Value::Array(nodes) => nodes.iter().find_map(evicts_by),
        Value::Map(nodes) => nodes.iter().find_map(|(_, node)| evicts_by(node)),
        _ => None,
    }
}

/// Returns the eviction policy from a single server's reply, or `None` if the server does not evict leases. Every lease
/// has an expiry time, so even the `volatile` policies may evict leases. Leases are safe from eviction only if the
/// policy is `noeviction` or `maxmemory` is not set.
fn policy(info: &str) -> Option<String> {
    let field = |name: &str| {
        let mut lines = info.lines();
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
    };
    let is_bounded = field("maxmemory").is_some_and(|bytes| bytes != "0");
    let policy = field("maxmemory_policy").filter(|policy| *policy != "noeviction");
    policy.filter(|_| is_bounded).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(bytes: u64, policy: &str) -> Value {
        let text = format!(
            "# Memory\r\nused_memory:1\r\nmaxmemory:{bytes}\r\nmaxmemory_human:1G\r\n\
             maxmemory_policy:{policy}\r\n"
        );
        Value::BulkString(text.into_bytes())
    }

    #[test]
    fn a_bound_and_a_policy_are_needed() {
        assert_eq!(evicts_by(&node(0, "allkeys-lru")), None);
        assert_eq!(evicts_by(&node(9, "noeviction")), None);
        for policy in ["allkeys-lru", "volatile-ttl"] {
            assert_eq!(evicts_by(&node(9, policy)).as_deref(), Some(policy));
        }
        assert_eq!(evicts_by(&Value::BulkString(Vec::new())), None);
    }

    #[test]
    fn one_node_is_enough() {
        let name = |text: &str| Value::BulkString(text.into());
        let nodes = Value::Map(vec![
            (name("a:1"), node(9, "noeviction")),
            (name("b:1"), node(9, "allkeys-random")),
        ]);
        assert_eq!(evicts_by(&nodes).as_deref(), Some("allkeys-random"));
    }
}
