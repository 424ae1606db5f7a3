//! Clients for the rules with `concurrency`, whose requests stay in flight for a while.
//!
//! The upstream sends half an answer and waits until the client leaves. Clients open connections
//! long before they use them, so that many of them belong to listeners that drain.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use super::book::{Book, Key};
use super::model::{Event, Outcome};
use super::plan::SLOTS;
use super::random::Random;
use super::rules::KEY;
use super::timeline::At;
use crate::http::{Request, open};
use crate::upstream::AS;
use crate::wire::Wire;

/// Number of open connections that are not used yet.
const SPARE: usize = 40;
/// Maximum number of requests in flight of one thread.
const MOST: usize = 60;
const MS: u64 = 1_000_000;

/// A connection for one request, which has not been sent yet.
struct Spare {
    wire: Wire,
    opened: At,
}

/// A request in flight.
struct Held {
    _wire: Wire,
    key: Arc<Key>,
    /// Index of the request among the requests of the key.
    index: usize,
    until: At,
}

/// Keeps requests in flight until `stop` is closed.
pub fn run(book: &Book, address: SocketAddr, mut random: Random, stop: &Receiver<()>) {
    let rules: Vec<usize> = (0..book.rules.len())
        .filter(|rule| book.is_held(*rule))
        .collect();
    let mut spare: Vec<Spare> = Vec::new();
    let mut held: Vec<Held> = Vec::new();
    loop {
        let pause = Duration::from_millis(random.between(5, 25));
        if !matches!(stop.recv_timeout(pause), Err(RecvTimeoutError::Timeout)) {
            return;
        }
        let now = book.now();
        for old in held.extract_if(.., |held| held.until <= now) {
            leave(book, &old);
        }
        while spare.len() < SPARE {
            let Ok(wire) = open(address) else { break };
            let opened = book.now();
            spare.push(Spare { wire, opened });
        }
        let rule = rules.get(random.below(rules.len())).copied();
        let key = rule.and_then(|rule| book.busy_key(rule, random.below(SLOTS)));
        let (Some(key), true) = (key, held.len() < MOST && !spare.is_empty()) else {
            continue;
        };
        // Sometimes send more requests than the rule allows.
        let times = if random.percent(10) { 10 } else { 1 };
        for _ in 0..times.min(spare.len()) {
            let next = spare.swap_remove(random.below(spare.len()));
            let lasts = random.between(50, 700) * MS;
            held.extend(hold(book, next, &key, lasts));
        }
    }
}

fn hold(book: &Book, spare: Spare, key: &Arc<Key>, lasts: u64) -> Option<Held> {
    let Spare { mut wire, opened } = spare;
    let rule = book.rules.get(key.rule).map_or("", |rule| &rule.name);
    let request = Request::get(&format!("/{rule}")).header(KEY, &key.name);
    let sent = book.now();
    drop(wire.send(&request.header(AS, "hold").encode()));
    // Read only the head of the answer, because the rest never arrives.
    let head = wire.receive(true).ok().flatten();
    let answered = book.now();
    let status = head.and_then(|head| head.start_line.split(' ').nth(1)?.parse::<u16>().ok());
    let outcome = match status {
        Some(200) => Outcome::Admitted,
        Some(429) => Outcome::Refused,
        _ => Outcome::Unknown,
    };
    let event = Event {
        sent,
        answered,
        outcome,
        opened,
        held_until: None,
        pass: None,
    };
    let index = book.event(key, event);
    (outcome == Outcome::Admitted).then(|| Held {
        _wire: wire,
        key: Arc::clone(key),
        index,
        until: answered + lasts,
    })
}

/// Records that a client is about to leave.
fn leave(book: &Book, held: &Held) {
    let now = book.now();
    if let Some(event) = held.key.record().events.get_mut(held.index) {
        event.held_until = Some(now);
    }
    book.count("held in flight", 1);
}
