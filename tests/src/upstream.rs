//! A small HTTP/1.1 server to which Envoy passes requests. It counts the requests that arrive.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use anyhow::{Context as _, Result};

use crate::clock::now;
use crate::wire::{Message, Wire};

const ANSWER: [&str; 2] = [
    "HTTP/1.1 200 OK\r\n",
    "content-type: text/plain\r\ncontent-length: 3\r\n\r\nok\n",
];

const HALF: [&str; 2] = ["HTTP/1.1 200 OK\r\n", "content-length: 9\r\n\r\nhalf"];

const UPGRADED: &[u8] =
    b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n";

/// Request header that selects the answer:
///
/// - a number: an answer with this status
/// - `hang`: no answer
/// - `close`: the connection ends before an answer
/// - `cut`: the connection ends in the middle of the body
/// - `hold`: half a body, which does not end until the client leaves
/// - `flaky`: 500 and 200 in turn
/// - `upgrade`: another protocol from then on
/// - `gate`: `200 ok`, when [`Upstream::open_gate`] is called
/// - `echo`: the body of the request, with its header [`TYPE`] as content type
/// - `dribble`: like `echo`, in pieces of seven bytes
/// - `dribble-cut`: like `dribble`, but the connection ends in the middle
pub const AS: &str = "x-answer-as";

/// Request header with the content type of an echo.
pub const TYPE: &str = "x-answer-type";

/// Request header whose value is copied to the response header `x-cost`.
pub const COST: &str = "x-answer-cost";

/// A server on a free port. It answers a request with `200 ok`, or as the request's header [`AS`]
/// selects. Dropping this stops it.
#[derive(Debug)]
pub struct Upstream {
    address: SocketAddr,
    shared: Arc<Shared>,
}

/// A function that is called with each request when it arrives.
struct Witness(Box<dyn Fn(&Message) + Send + Sync>);

impl fmt::Debug for Witness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Witness")
    }
}

#[derive(Debug, Default)]
struct Shared {
    requests: AtomicU64,
    /// Sum of the costs in the requests' headers.
    spent: AtomicU64,
    stopped: AtomicBool,
    /// Time at which the last request of each path arrived. `None` if the server does not record
    /// it.
    arrivals: Option<Mutex<BTreeMap<String, Instant>>>,
    witness: Option<Witness>,
    /// True if the gate is open.
    gate: (Mutex<bool>, Condvar),
    /// Open connections. Stopping the server closes them while their threads use them.
    open: Mutex<BTreeMap<u64, TcpStream>>,
}

impl Upstream {
    /// Starts the server.
    pub fn start() -> Result<Self> {
        Self::start_as(Shared::default())
    }

    /// Starts a server that records when requests arrive.
    pub fn start_with_log() -> Result<Self> {
        Self::start_as(Shared {
            arrivals: Some(Mutex::default()),
            ..Shared::default()
        })
    }

    /// Starts a server that calls `witness` with each request when it arrives.
    pub(crate) fn start_before(witness: impl Fn(&Message) + Send + Sync + 'static) -> Result<Self> {
        Self::start_as(Shared {
            witness: Some(Witness(Box::new(witness))),
            ..Shared::default()
        })
    }

    fn start_as(shared: Shared) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no port to listen")?;
        let address = listener.local_addr()?;
        let shared = Arc::new(shared);
        let for_thread = Arc::clone(&shared);
        thread::spawn(move || accept(&listener, &for_thread));
        Ok(Self { address, shared })
    }

    /// Returns the server's address.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the number of requests since the start.
    pub fn requests(&self) -> u64 {
        self.shared.requests.load(Ordering::Relaxed)
    }

    /// Returns the sum of the costs in the headers [`COST`] of all requests.
    pub fn spent(&self) -> u64 {
        self.shared.spent.load(Ordering::Relaxed)
    }

    /// Opens the gate: answers all requests that wait at it, and all later ones.
    pub fn open_gate(&self) {
        self.shared.open_gate();
    }

    /// Returns the time at which the last request of each path arrived, for a server that records
    /// it.
    pub fn arrivals(&self) -> BTreeMap<String, Instant> {
        let arrivals = self.shared.arrivals.as_ref();
        let arrivals = arrivals.map(|log| log.lock().unwrap_or_else(PoisonError::into_inner));
        arrivals.map_or_else(BTreeMap::new, |log| log.clone())
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::Release);
        self.shared.open_gate();
        // Wake the accepting thread, which then notices that it has to stop.
        drop(TcpStream::connect(self.address));
        let mut open = self
            .shared
            .open
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        for (_, stream) in std::mem::take(&mut *open) {
            drop(stream.shutdown(Shutdown::Both));
        }
    }
}

impl Shared {
    fn open_gate(&self) {
        let (is_open, opened) = &self.gate;
        *is_open.lock().unwrap_or_else(PoisonError::into_inner) = true;
        opened.notify_all();
    }

    fn pass_gate(&self) {
        let (is_open, opened) = &self.gate;
        let is_open = is_open.lock().unwrap_or_else(PoisonError::into_inner);
        drop(opened.wait_while(is_open, |is_open| !*is_open));
    }

    fn note(&self, request_line: &str) {
        let Some(arrivals) = &self.arrivals else {
            return;
        };
        let at = now();
        let path = request_line.split(' ').nth(1).unwrap_or_default();
        let mut arrivals = arrivals.lock().unwrap_or_else(PoisonError::into_inner);
        arrivals.insert(path.to_owned(), at);
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for (id, stream) in (0..).zip(listener.incoming()) {
        if shared.stopped.load(Ordering::Acquire) {
            return;
        }
        let Ok(stream) = stream else { continue };
        let Ok(twin) = stream.try_clone() else {
            continue;
        };
        shared
            .open
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(id, twin);
        let shared = Arc::clone(shared);
        thread::spawn(move || {
            serve(stream, &shared);
            shared
                .open
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .remove(&id);
        });
    }
}

fn content_type(request: &Message) -> String {
    let kind = request.header(TYPE).unwrap_or(b"text/plain");
    format!("content-type: {}\r\n", String::from_utf8_lossy(kind))
}

/// Sends a body in chunks of seven bytes, but not its end.
fn dribble(wire: &mut Wire, request: &Message, body: &[u8]) -> Result<()> {
    let kind = content_type(request);
    wire.send(format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n{kind}\r\n").as_bytes())?;
    for piece in body.chunks(7) {
        let size = format!("{:x}\r\n", piece.len());
        wire.send(&[size.as_bytes(), piece, b"\r\n"].concat())?;
    }
    Ok(())
}

/// Answers requests until the client closes the connection. Ignores a broken connection, because
/// the client reports it.
fn serve(stream: TcpStream, shared: &Shared) {
    drop(stream.set_nodelay(true));
    let mut wire = Wire::new(stream);
    while let Ok(Some(request)) = wire.receive(false) {
        shared.note(&request.start_line);
        if let Some(Witness(witness)) = &shared.witness {
            witness(&request);
        }
        let before = shared.requests.fetch_add(1, Ordering::Relaxed);
        let cost = request.header(COST).map(|cost| {
            let cost = String::from_utf8_lossy(cost);
            shared
                .spent
                .fetch_add(cost.parse().unwrap_or(0), Ordering::Relaxed);
            format!("x-cost: {cost}\r\n")
        });
        let cost = cost.unwrap_or_default();
        let respond = |wire: &mut Wire, [line, rest]: [&str; 2]| {
            wire.send([line, &cost, rest].concat().as_bytes())
        };
        let sent = match request.header(AS) {
            None => respond(&mut wire, ANSWER),
            Some(b"gate") => {
                shared.pass_gate();
                respond(&mut wire, ANSWER)
            }
            Some(b"echo") => {
                let head = format!(
                    "content-length: {}\r\n{}\r\n",
                    request.body.len(),
                    content_type(&request)
                );
                respond(&mut wire, ["HTTP/1.1 200 OK\r\n", &head])
                    .and_then(|()| wire.send(&request.body))
            }
            Some(b"dribble") => {
                dribble(&mut wire, &request, &request.body).and_then(|()| wire.send(b"0\r\n\r\n"))
            }
            Some(b"dribble-cut") => {
                let half = request
                    .body
                    .get(..request.body.len() / 2)
                    .unwrap_or_default();
                drop(dribble(&mut wire, &request, half));
                return;
            }
            Some(b"hang") => continue,
            Some(b"close") => return,
            Some(b"upgrade") => wire.send(UPGRADED),
            Some(b"hold") => respond(&mut wire, HALF),
            Some(b"cut") => {
                drop(respond(&mut wire, HALF));
                return;
            }
            Some(status) => {
                let status = match status {
                    b"flaky" if before.is_multiple_of(2) => b"500",
                    b"flaky" => b"200",
                    status => status,
                };
                let status = String::from_utf8_lossy(status);
                let line = format!("HTTP/1.1 {status} As Told\r\n");
                respond(&mut wire, [&line, "content-length: 0\r\n\r\n"])
            }
        };
        if sent.is_err() {
            return;
        }
    }
}
