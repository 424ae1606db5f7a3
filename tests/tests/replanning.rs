//! A queue whose rate changes while requests wait in it. Requests reach the upstream at the new
//! rate in the order of their arrival, and later requests follow behind.
//!
//! The tests measure the instants at which requests reach the upstream. A busy machine delays these
//! instants, so the tests compare them with the schedule that starts at the change. No request may
//! be earlier than this schedule, and most requests must be late by about the same time.

use std::io::Write as _;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use loudou_tests::{Config, Envoy, Operator, Update, Upstream, eventually, now};
use serde_json::{Value, json};

const SOON: Duration = Duration::from_secs(30);
/// Number of requests that wait when the rate changes, and number of requests sent after the
/// change.
const WAITING: u32 = 8;
const LATER: u32 = 12;
/// The first rate and its period. At this rate, the last request would wait for 16 s.
const SLOW: (&str, Duration) = ("1/2s", Duration::from_secs(2));
const FAST: (&str, Duration) = ("20/s", Duration::from_millis(50));

fn limits(rate: &str) -> Value {
    json!([{ "name": "pace", "algorithm": "leaky_queue", "capacity": 100, "rate": rate }])
}

fn rules(rate: &str) -> Value {
    json!([{ "name": "shape", "key": [{ "header": "x-user-id" }], "limits": limits(rate) }])
}

struct World {
    upstream: Upstream,
    envoy: Envoy,
    ops: Operator,
    clients: Vec<TcpStream>,
}

impl World {
    /// Starts an Envoy whose queue has this rate, configured over LDS or ECDS. Sends alice's first
    /// request, which passes.
    fn new(rate: &str, by_extension: bool) -> Result<Self> {
        let upstream = Upstream::start_with_log()?;
        let envoy = Envoy::start(&config(rate, &upstream, by_extension))?;
        let ops = Operator::editor(&envoy);
        let mut world = Self {
            upstream,
            envoy,
            ops,
            clients: Vec::new(),
        };
        world.send("first")?;
        eventually(SOON, "the first one to pass", || {
            Ok((world.upstream.requests() == 1).then_some(()))
        })?;
        Ok(world)
    }

    /// Sends requests that wait, one after another.
    fn wait(&mut self) -> Result<()> {
        for number in 0..WAITING {
            self.send(&format!("w{number}"))?;
            eventually(SOON, "another one to wait", || {
                let passed = self.passed("w").len();
                let waiting = self.ops.waiting()?;
                let known = waiting + u64::try_from(passed)?;
                Ok((known > u64::from(number)).then_some(()))
            })?;
        }
        Ok(())
    }

    /// Sends a request of alice on a separate connection.
    fn send(&mut self, name: &str) -> Result<()> {
        let mut socket = TcpStream::connect(self.envoy.data_address())?;
        let request = format!("GET /{name} HTTP/1.1\r\nhost: a\r\nx-user-id: alice\r\n\r\n");
        socket.write_all(request.as_bytes())?;
        self.clients.push(socket);
        Ok(())
    }

    /// Returns the instants at which requests whose names begin with `name` passed, in order.
    fn passed(&self, name: &str) -> Vec<Instant> {
        let arrivals = self.upstream.arrivals();
        let named = arrivals.iter();
        let named = named.filter(|(path, _)| path.starts_with(&format!("/{name}")));
        let mut passed: Vec<_> = named.map(|(_, at)| *at).collect();
        passed.sort();
        passed
    }

    /// Sends more requests after a change to the fast rate, and checks that all requests pass by
    /// the schedule. The change took effect between `sent` and `answered`.
    fn passes_fast(mut self, (sent, answered): (Instant, Instant)) -> Result<()> {
        let before = self.passed("w").iter().filter(|at| **at < sent).count();
        for number in 0..LATER {
            self.send(&format!("later{number}"))?;
        }
        let all = usize::try_from(WAITING + LATER)?;
        eventually(SOON, "all to pass", || {
            let passed = self.passed("w").len() + self.passed("later").len();
            Ok((passed == all).then_some(()))
        })?;
        let mut passed = [self.passed("w"), self.passed("later")].concat();
        passed.sort();
        let after = passed.split_off(before);
        let mut late = Vec::new();
        for (place, at) in (0..).zip(&after) {
            let due = sent + FAST.1 * place;
            ensure!(*at >= due, "{place} is early by {:?}", due - *at);
            late.push(at.saturating_duration_since(answered + FAST.1 * place));
        }
        // Waiting requests are ahead of all requests that arrive after the change.
        let first = self.passed("later").first().copied();
        let ahead = FAST.1 * (WAITING - u32::try_from(before)?);
        ensure!(
            first.is_some_and(|at| at >= sent + ahead),
            "{first:?} overtook"
        );
        late.sort();
        let least = late.first().copied().unwrap_or_default();
        let soon = late.iter().filter(|late| **late <= least + FAST.1 * 3);
        ensure!(2 * soon.count() > late.len(), "half are late: {late:?}");
        let is_old = |late: &Duration| *late >= SLOW.1 * WAITING / 2;
        ensure!(
            !late.iter().any(is_old),
            "one passed as planned before: {late:?}"
        );
        eventually(SOON, "nobody to wait", || {
            Ok((self.ops.waiting()? == 0).then_some(()))
        })?;
        self.envoy.stop()
    }
}

fn config(rate: &str, upstream: &Upstream, by_extension: bool) -> Config {
    let config = Config::new(rules(rate)).upstream(upstream.address());
    let config = config.concurrency(2).drain_s(60);
    if by_extension {
        config.extension()
    } else {
        config
    }
}

/// Runs `change`. Returns the instants before and after it.
fn timed(change: impl FnOnce() -> Result<()>) -> Result<(Instant, Instant)> {
    let sent = now();
    change()?;
    Ok((sent, now()))
}

#[test]
fn an_edit_frees_a_slow_queue() -> Result<()> {
    let mut world = World::new(SLOW.0, false)?;
    world.wait()?;
    let edit = json!({ "limits": limits(FAST.0) });
    let changed = timed(|| world.ops.edit("shape", "carry=keep", &edit).map(drop))?;
    world.passes_fast(changed)
}

#[test]
fn a_new_listener_frees_the_queue_of_the_old_one() -> Result<()> {
    let mut world = World::new(SLOW.0, false)?;
    world.wait()?;
    let new = config(FAST.0, &world.upstream, false);
    let changed = timed(|| {
        ensure!(world.envoy.push(&new)? == Update::Accepted);
        Ok(())
    })?;
    world.passes_fast(changed)
}

#[test]
fn a_new_extension_frees_the_queue_of_the_old_one() -> Result<()> {
    let mut world = World::new(SLOW.0, true)?;
    world.wait()?;
    let new = config(FAST.0, &world.upstream, true);
    let changed = timed(|| {
        ensure!(world.envoy.push_extension(&new)? == Update::Accepted);
        Ok(())
    })?;
    world.passes_fast(changed)
}

/// After a change to a limit that holds no requests, waiting requests must pass if they fit, and
/// there must be room for other requests.
#[test]
fn a_reset_to_a_funnel_has_no_line() -> Result<()> {
    let mut world = World::new("1/10s", false)?;
    world.wait()?;
    let funnel = json!([{
        "name": "pace", "algorithm": "funnel", "capacity": 1000, "rate": "1000/s"
    }]);
    world
        .ops
        .edit("shape", "carry=reset", &json!({ "limits": funnel }))?;
    for _ in 0..20 {
        let request = loudou_tests::Request::get("/").header("x-user-id", "alice");
        let answer = world.envoy.data().send(&request)?;
        ensure!(answer.status == 200, "{answer:?}");
    }
    eventually(SOON, "those that waited to pass", || {
        Ok((world.passed("w").len() == usize::try_from(WAITING)?).then_some(()))
    })?;
    world.envoy.stop()
}

/// After any number of resets of a key, its waiting requests must stay in one queue with later
/// requests.
#[test]
fn resets_of_the_key_keep_the_queue() -> Result<()> {
    let mut world = World::new(SLOW.0, false)?;
    world.wait()?;
    for _ in 0..5 {
        world.ops.reset("shape", "alice")?;
    }
    let edit = json!({ "limits": limits(FAST.0) });
    let changed = timed(|| world.ops.edit("shape", "carry=keep", &edit).map(drop))?;
    world.passes_fast(changed)
}
