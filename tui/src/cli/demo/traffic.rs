//! Sends requests as a dozen users with different habits. Within seconds, the screen shows buckets
//! in every state: nearly empty, filling and draining, full, and one that appears late. With
//! several Envoys, each user sends requests to the Envoys in turn.

use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use ureq::Agent;

/// Time limit of a request. A limit with `max_wait` holds requests.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Sending pattern of one user. The user waits, then repeatedly sends a burst and pauses.
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

/// `rules.json` contains the limits: 15 and 30/60s for replies, 40 and 10/s for the API.
const USERS: &[User] = &[
    // Sends at a steady rate below the limit.
    user("alice", REPLY, (0, 1, 2_500)),
    // Sends bursts that are admitted completely only if the funnel has drained since the last
    // burst, so some requests are refused.
    user("bob", REPLY, (0, 6, 9_000)),
    // Hardly pauses, so most requests are refused.
    user("mallory", REPLY, (0, 1, 60)),
    // Sends fast at a steady rate, but is still admitted.
    user("carol", API, (0, 1, 150)),
    // Sends bursts faster than the rate, so some requests are refused.
    user("dave", API, (500, 25, 2_000)),
    user("erin", SEARCH, (0, 1, 700)),
    // Sends bursts that exceed the per-second limit.
    user("frank", SEARCH, (1_000, 8, 3_000)),
    // Sends nothing at first, and soon exceeds the limit.
    user("nina-newcomer", REPLY, (4_000, 1, 300)),
    // Sends a burst larger than the bucket every ten seconds.
    user("batch-job", API, (1_500, 60, 10_000)),
    // Sends so rarely that the bucket has recovered completely before each request.
    user("night-owl", REPLY, (2_000, 1, 8_000)),
    user("scraper", SEARCH, (0, 1, 40)),
    user("mobile-app", API, (0, 1, 90)),
];

/// Running traffic, which stops when this value is dropped.
#[derive(Debug)]
pub(super) struct Traffic {
    stop_signal: Arc<StopSignal>,
    threads: Vec<JoinHandle<()>>,
}

impl Traffic {
    /// Starts a thread for each user.
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

/// Signal that stops all users immediately, even during a pause.
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
