//! A small HTTP/1.1 server for Envoy to pass requests to, which counts the requests that arrive.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use anyhow::{Context as _, Result};

use crate::clock::now;
use crate::wire::{Message, Wire};

const ANSWER: &[u8] =
    b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 3\r\n\r\nok\n";

const HALF: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf";

const UPGRADED: &[u8] =
    b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n";

/// The request header that selects the answer: a status; none at all (`hang`); the end
/// of the connection before an answer (`close`) or in the middle of its body (`cut`); with half a body
/// and no end until the client leaves (`hold`); with 500 and 200 in turn (`flaky`); with another protocol
/// from then on (`upgrade`).
pub const AS: &str = "x-answer-as";

/// A server on a port of the operating system's choice; it answers every request with `200 ok`, or as
/// the request's header [`AS`] selects, and stops when dropped.
#[derive(Debug)]
pub struct Upstream {
    address: SocketAddr,
    shared: Arc<Shared>,
}

/// Is told of each request when it arrives.
struct Witness(Box<dyn Fn(&Message) + Send + Sync>);

impl fmt::Debug for Witness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Witness")
    }
}

#[derive(Debug, Default)]
struct Shared {
    requests: AtomicU64,
    stopped: AtomicBool,
    /// When the request of each path last arrived, if that is noted.
    arrivals: Option<Mutex<BTreeMap<String, Instant>>>,
    witness: Option<Witness>,
    /// The open connections, so that stopping can close them under their threads.
    open: Mutex<BTreeMap<u64, TcpStream>>,
}

impl Upstream {
    /// Starts the server.
    pub fn start() -> Result<Self> {
        Self::start_as(Shared::default())
    }

    /// Starts a server that notes when the request of each path arrives.
    pub fn start_with_log() -> Result<Self> {
        Self::start_as(Shared {
            arrivals: Some(Mutex::default()),
            ..Shared::default()
        })
    }

    /// Starts a server that tells `witness` of each request when it arrives.
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

    /// Its address.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// The number of requests since the start.
    pub fn requests(&self) -> u64 {
        self.shared.requests.load(Ordering::Relaxed)
    }

    /// When the request of each path last arrived, for a server with a log.
    pub fn arrivals(&self) -> BTreeMap<String, Instant> {
        let arrivals = self.shared.arrivals.as_ref();
        let arrivals = arrivals.map(|log| log.lock().unwrap_or_else(PoisonError::into_inner));
        arrivals.map_or_else(BTreeMap::new, |log| log.clone())
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::Release);
        // Wakes the accepting thread, which then sees the request to stop.
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

/// Answers until the client closes; broken connections are the client's problem.
fn serve(stream: TcpStream, shared: &Shared) {
    drop(stream.set_nodelay(true));
    let mut wire = Wire::new(stream);
    while let Ok(Some(request)) = wire.receive(false) {
        shared.note(&request.start_line);
        if let Some(Witness(witness)) = &shared.witness {
            witness(&request);
        }
        let before = shared.requests.fetch_add(1, Ordering::Relaxed);
        let sent = match request.header(AS) {
            None => wire.send(ANSWER),
            Some(b"hang") => continue,
            Some(b"close") => return,
            Some(b"upgrade") => wire.send(UPGRADED),
            Some(b"hold") => wire.send(HALF),
            Some(b"cut") => {
                drop(wire.send(HALF));
                return;
            }
            Some(status) => {
                let status = match status {
                    b"flaky" if before.is_multiple_of(2) => b"500",
                    b"flaky" => b"200",
                    status => status,
                };
                let status = String::from_utf8_lossy(status);
                wire.send(
                    format!("HTTP/1.1 {status} As Told\r\ncontent-length: 0\r\n\r\n").as_bytes(),
                )
            }
        };
        if sent.is_err() {
            return;
        }
    }
}
