//! Clients for the rules that hold requests. At any time, most of them send to the same key, so
//! that many requests wait when something changes. Some clients leave while they wait.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use super::book::{Book, Key, SECOND};
use super::model::{Event, Outcome};
use super::passes::NUMBER;
use super::plan::SLOTS;
use super::random::Random;
use super::rules::KEY;
use super::timeline::At;
use crate::http::{Request, open};
use crate::wire::Wire;

/// Time for which most clients send to the same key.
const RUSH: u64 = 3 * SECOND;
/// Time limit for a waiting client. Queues are shorter, so a client that waits longer was
/// forgotten.
const PATIENCE: Duration = Duration::from_secs(30);

/// Sends requests, one at a time, until `stop` is closed.
pub fn run(book: &Book, address: SocketAddr, mut random: Random, stop: &Receiver<()>) {
    let lines: Vec<usize> = (0..book.rules.len())
        .filter(|rule| book.waits(*rule))
        .collect();
    let mut connection = None;
    loop {
        let pause = Duration::from_millis(random.between(10, 80));
        if !matches!(stop.recv_timeout(pause), Err(RecvTimeoutError::Timeout)) {
            return;
        }
        let Some(key) = choose(book, &lines, &mut random) else {
            continue;
        };
        if random.percent(20) {
            connection = None;
        }
        let leaves = random.percent(6);
        let leaves = leaves.then(|| Duration::from_millis(random.between(20, 600)));
        connection = ask(book, address, connection, &key, leaves);
    }
}

/// Chooses the key to which most clients send, or any other key.
fn choose(book: &Book, lines: &[usize], random: &mut Random) -> Option<Arc<Key>> {
    let turn = usize::try_from(book.now() / RUSH).unwrap_or(0);
    let (rule, slot) = if random.percent(75) {
        (turn, turn / lines.len().max(1) % SLOTS)
    } else {
        (random.below(lines.len()), random.below(SLOTS))
    };
    let rule = lines.get(rule.checked_rem(lines.len())?)?;
    book.busy_key(*rule, slot)
}

struct Connection {
    wire: Wire,
    opened: At,
}

/// Sends one request. Returns the connection if another request may follow.
fn ask(
    book: &Book,
    address: SocketAddr,
    connection: Option<Connection>,
    key: &Key,
    leaves: Option<Duration>,
) -> Option<Connection> {
    let rule = book.rules.get(key.rule).map_or("", |rule| &rule.name);
    let number = book.passes.number();
    let request = Request::get(&format!("/{rule}")).header(KEY, &key.name);
    let request = request.header(NUMBER, number.to_string());
    let opened = book.now();
    let mut connection = match connection {
        Some(connection) => connection,
        None => Connection {
            wire: open(address).ok()?,
            opened,
        },
    };
    connection.wire.patience(leaves.unwrap_or(PATIENCE)).ok()?;
    let sent = book.now();
    drop(connection.wire.send(&request.encode()));
    let answer = connection.wire.receive(false).ok().flatten();
    let answered = book.now();
    let status = answer.as_ref();
    let status = status.and_then(|head| head.start_line.split(' ').nth(1)?.parse::<u16>().ok());
    let outcome = match status {
        Some(200) => Outcome::Admitted,
        Some(429) => Outcome::Refused,
        _ => Outcome::Unknown,
    };
    let event = Event {
        sent,
        answered,
        outcome,
        opened: connection.opened,
        held_until: None,
        pass: None,
    };
    let index = book.event(key, event);
    key.record().numbers.push((number, index));
    let is_kept = outcome != Outcome::Unknown && !answer?.closes();
    is_kept.then_some(connection)
}
