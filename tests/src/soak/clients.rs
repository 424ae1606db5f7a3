//! The load: a few threads, each with connections of different ages. For each request, a thread
//! chooses a key and a connection.

use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use super::book::{Book, Key};
use super::model::{Event, Outcome};
use super::plan::SLOTS;
use super::random::Random;
use super::rules::KEY;
use super::timeline::At;
use crate::http::{Http, Request};

/// Number of connections per thread that stay open as long as Envoy allows, across listeners that
/// drain.
const KEPT: usize = 6;
/// Number of connections per thread that are often closed and opened again.
const FRESH: usize = 2;
/// The thread closes a kept connection after one request in this many, at random.
const LAST: u64 = 400;

struct Connection {
    http: Http,
    /// Time of the request that opened the connection. `None` before the first request.
    opened: Option<At>,
}

/// Sends requests until `stop` is closed.
pub fn run(book: &Book, address: SocketAddr, mut random: Random, stop: &Receiver<()>) {
    let new = |_| Connection {
        http: Http::new(address),
        opened: None,
    };
    let mut kept: Vec<Connection> = (0..KEPT).map(new).collect();
    let mut fresh: Vec<Connection> = (0..FRESH).map(new).collect();
    loop {
        let pause = Duration::from_millis(random.between(2, 12));
        if !matches!(stop.recv_timeout(pause), Err(RecvTimeoutError::Timeout)) {
            return;
        }
        let (rule, slot) = (random.below(book.rules.len()), random.below(SLOTS));
        let key = book.busy_key(rule, slot);
        let Some(key) = key.filter(|_| !book.is_held(rule) && !book.waits(rule)) else {
            continue;
        };
        // Sometimes use up all units of a key at once, over all connections in turn.
        let times = if random.percent(4) { 30 } else { 1 };
        for _ in 0..times {
            let is_kept = random.percent(70);
            let pool = if is_kept { &mut kept } else { &mut fresh };
            let which = random.below(pool.len());
            let Some(connection) = pool.get_mut(which) else {
                continue;
            };
            book.event(&key, ask(book, connection, &key));
            let ends = if is_kept { LAST } else { 10 };
            if random.between(1, ends) == 1 {
                connection.http.close();
            }
        }
    }
}

/// Sends one request for a key.
fn ask(book: &Book, connection: &mut Connection, key: &Key) -> Event {
    let Connection { http, opened } = connection;
    let rule = book.rules.get(key.rule).map_or("", |rule| &rule.name);
    let request = Request::get(&format!("/{rule}")).header(KEY, &key.name);
    let sent = book.now();
    if !http.is_open() {
        *opened = None;
    }
    let opened = *opened.get_or_insert(sent);
    let answer = http.send_once(&request);
    let answered = book.now();
    let outcome = match answer.ok().flatten().map(|answer| answer.status) {
        Some(200) => Outcome::Admitted,
        Some(429) => Outcome::Refused,
        _ => Outcome::Unknown,
    };
    Event {
        sent,
        answered,
        outcome,
        opened,
        held_until: None,
        pass: None,
    }
}
