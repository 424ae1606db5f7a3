//! Sends requests for a dozen users with different habits. Within seconds, every kind of bucket is
//! on the screen: nearly empty, filling and draining, full, and one that appears late. With several
//! Envoys, each user sends to them in turn.

use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use ureq::Agent;

/// Time limit of a request. A limit with `max_wait` holds requests.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Habit of one user. The user waits, then repeatedly sends a burst and pauses.
#[derive(Debug, Clone, Copy)]
pub(super) struct User {
    name: &'static str,
    method: &'static str,
    path: &'static str,
    wait_ms: u64,
    burst: u32,
    pause_ms: u64,
}

const fn user(
    name: &'static str,
    (method, path): (&'static str, &'static str),
    (wait_ms, burst, pause_ms): (u64, u32, u64),
) -> User {
    User {
        name,
        method,
        path,
        wait_ms,
        burst,
        pause_ms,
    }
}

const REPLY: (&str, &str) = ("POST", "/reply/42");
const API: (&str, &str) = ("GET", "/api/orders");
const SEARCH: (&str, &str) = ("GET", "/search?q=funnel");

/// The limits are in `rules.json`: 15 and 30/60s for replies, 40 and 10/s for the API.
const USERS: &[User] = &[
    // Steady, below the limit.
    user("alice", REPLY, (0, 1, 2_500)),
    // Bursts that fit only if the funnel has drained since the last burst, so some requests are
    // refused.
    user("bob", REPLY, (0, 6, 9_000)),
    // Never pauses, and is always refused.
    user("mallory", REPLY, (0, 1, 60)),
    // Steady and busy, but still admitted.
    user("carol", API, (0, 1, 150)),
    // Bursts above the rate, which are refused occasionally.
    user("dave", API, (500, 25, 2_000)),
    user("erin", SEARCH, (0, 1, 700)),
    // Bursts that are larger than the limit of one second.
    user("frank", SEARCH, (1_000, 8, 3_000)),
    // Absent at the start, and soon over the limit.
    user("nina-newcomer", REPLY, (4_000, 1, 300)),
    // A burst every ten seconds, larger than the bucket.
    user("batch-job", API, (1_500, 60, 10_000)),
    // Rare requests, for which the bucket is full again each time.
    user("night-owl", REPLY, (2_000, 1, 8_000)),
    user("scraper", SEARCH, (0, 1, 40)),
    user("mobile-app", API, (0, 1, 90)),
];

/// Running traffic, which stops when this is dropped.
#[derive(Debug)]
pub(super) struct Traffic {
    stop_signal: Arc<StopSignal>,
    threads: Vec<JoinHandle<()>>,
}

impl Traffic {
    /// Starts all users.
    pub(super) fn start(envoys: &[SocketAddr]) -> Self {
        let stop_signal = Arc::new(StopSignal::default());
        let begin = |user: &'static User| {
            let stop_signal = Arc::clone(&stop_signal);
            let urls = envoys
                .iter()
                .map(|address| format!("http://{address}{}", user.path));
            let urls: Vec<String> = urls.collect();
            thread::spawn(move || live(user, urls, &stop_signal))
        };
        let threads = USERS.iter().map(begin).collect();
        Self {
            stop_signal,
            threads,
        }
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.stop_signal.set();
        for thread in self.threads.drain(..) {
            // Ignore a panic of a user thread, because the demo ends anyway.
            drop(thread.join());
        }
    }
}

fn live(user: &User, mut urls: Vec<String>, stop_signal: &StopSignal) {
    let config = Agent::config_builder()
        .timeout_global(Some(TIMEOUT))
        .http_status_as_error(false)
        .proxy(None);
    let agent = Agent::new_with_config(config.build());
    let mut pause_ms = user.wait_ms;
    while !stop_signal.is_set_within(Duration::from_millis(pause_ms)) {
        for _ in 0..user.burst {
            // The demo reports an Envoy that has stopped, so a user ignores failed requests.
            if let [next, ..] = urls.as_mut_slice() {
                drop(send(&agent, user, next));
                urls.rotate_left(1);
            }
        }
        pause_ms = user.pause_ms;
    }
}

/// Sends a request and reads the answer, so that the agent can use the connection again.
fn send(agent: &Agent, user: &User, url: &str) -> Result<(), ureq::Error> {
    let name = ("x-user-id", user.name);
    let answer = match user.method {
        "POST" => agent.post(url).header(name.0, name.1).send_empty(),
        _ => agent.get(url).header(name.0, name.1).call(),
    };
    answer?.body_mut().read_to_vec().map(drop)
}

/// Stops all users immediately, even during a pause.
#[derive(Debug, Default)]
struct StopSignal {
    is_set: Mutex<bool>,
    changed: Condvar,
}

impl StopSignal {
    fn set(&self) {
        *self.is_set.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }

    fn is_set_within(&self, time: Duration) -> bool {
        let is_set = self.is_set.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self
            .changed
            .wait_timeout_while(is_set, time, |is_set| !*is_set);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn all_users_have_different_names() {
        let names: BTreeSet<_> = USERS.iter().map(|user| user.name).collect();
        assert_eq!(names.len(), USERS.len());
    }
}
