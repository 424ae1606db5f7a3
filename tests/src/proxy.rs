//! A TCP proxy that delays, replaces or cuts a server's answers, like a bad network or a bad
//! server.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::clock::pause_for;

/// Maximum number of bytes read at once. Small answers are read whole.
const CHUNK: usize = 64 * 1024;

/// Effect on the server's answers, on open connections as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Answers pass.
    Pass,
    /// Answers pass after this time.
    Delay(Duration),
    /// The client gets these bytes instead of an answer.
    Instead(&'static [u8]),
    /// Half of an answer passes. Then the connection ends.
    Half,
    /// The connection ends before an answer.
    Close,
    /// The connection ends before every n-th answer. The others pass.
    CloseSome(u64),
}

/// A proxy on a free port. Dropping this stops it.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    server: Mutex<SocketAddr>,
    mode: Mutex<Mode>,
    answers: AtomicU64,
    is_stopped: AtomicBool,
    /// Open connections of clients. Stopping the proxy closes them while their threads use them.
    open: Mutex<BTreeMap<u64, TcpStream>>,
}

impl Proxy {
    /// Starts a proxy in front of this server.
    pub fn start(server: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no port to listen")?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            server: Mutex::new(server),
            mode: Mutex::new(Mode::Pass),
            answers: AtomicU64::new(0),
            is_stopped: AtomicBool::new(false),
            open: Mutex::default(),
        });
        let for_thread = Arc::clone(&shared);
        thread::spawn(move || accept(&listener, &for_thread));
        Ok(Self { address, shared })
    }

    /// Returns the proxy's address.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Changes the effect on later answers.
    pub fn set(&self, mode: Mode) {
        *lock(&self.shared.mode) = mode;
    }

    /// Forwards to another server from now on, and ends the open connections.
    pub fn lead_to(&self, server: SocketAddr) {
        *lock(&self.shared.server) = server;
        for client in lock(&self.shared.open).values() {
            drop(client.shutdown(Shutdown::Both));
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.is_stopped.store(true, Ordering::Release);
        // Wake the accepting thread, which then notices that it has to stop.
        drop(TcpStream::connect(self.address));
        for (_, client) in std::mem::take(&mut *lock(&self.shared.open)) {
            drop(client.shutdown(Shutdown::Both));
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for (id, client) in (0..).zip(listener.incoming()) {
        if shared.is_stopped.load(Ordering::Acquire) {
            return;
        }
        let Ok(client) = client else { continue };
        let Ok(twin) = client.try_clone() else {
            continue;
        };
        lock(&shared.open).insert(id, twin);
        let shared = Arc::clone(shared);
        thread::spawn(move || {
            // Ignore a broken connection, because the client notices it.
            drop(connect(&client, &shared));
            drop(client.shutdown(Shutdown::Both));
            lock(&shared.open).remove(&id);
        });
    }
}

/// Serves a connection until the client or the server closes it.
fn connect(client: &TcpStream, shared: &Shared) -> Result<()> {
    let server = *lock(&shared.server);
    let server = TcpStream::connect(server)?;
    for stream in [client, &server] {
        stream.set_nodelay(true)?;
    }
    let (from, mut to) = (client.try_clone()?, server.try_clone()?);
    let requests = thread::spawn(move || {
        drop(pump(from, |bytes| {
            Ok(to.write_all(bytes).map(|()| true)?)
        }));
        drop(to.shutdown(Shutdown::Both));
    });
    let mut to = client;
    let ended = pump(server, |bytes| {
        let mode = *lock(&shared.mode);
        let half = bytes.len().div_euclid(2);
        let passes: &[u8] = match mode {
            Mode::Pass => bytes,
            Mode::Delay(time) => {
                pause_for(time);
                bytes
            }
            Mode::Instead(bytes) => bytes,
            Mode::Half => bytes.get(..half).unwrap_or_default(),
            Mode::Close => &[],
            Mode::CloseSome(nth) => {
                let before = shared.answers.fetch_add(1, Ordering::Relaxed);
                if before.saturating_add(1).is_multiple_of(nth) {
                    return Ok(false);
                }
                bytes
            }
        };
        to.write_all(passes)?;
        Ok(!matches!(mode, Mode::Half | Mode::Close))
    });
    drop(client.shutdown(Shutdown::Both));
    drop(requests.join());
    ended
}

/// Forwards everything that is read, until the end or until `pass` returns false.
fn pump(mut from: TcpStream, mut pass: impl FnMut(&[u8]) -> Result<bool>) -> Result<()> {
    let mut chunk = vec![0; CHUNK];
    loop {
        let count = from.read(&mut chunk)?;
        if count == 0 || !pass(chunk.get(..count).unwrap_or_default())? {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::now;
    use crate::http::Http;
    use crate::upstream::Upstream;

    #[test]
    fn passes_delays_and_breaks() -> Result<()> {
        let upstream = Upstream::start()?;
        let proxy = Proxy::start(upstream.address())?;
        let mut http = Http::new(proxy.address());
        assert_eq!(http.get("/")?.text(), "ok\n");
        let delay = Duration::from_millis(30);
        proxy.set(Mode::Delay(delay));
        let begin = now();
        assert_eq!(http.get("/")?.status, 200);
        assert!(begin.elapsed() >= delay);
        proxy.set(Mode::Instead(b"HTTP/1.1 204 No\r\n\r\n"));
        assert_eq!(http.get("/")?.status, 204);
        proxy.set(Mode::Half);
        assert!(http.get("/").is_err());
        proxy.set(Mode::Close);
        assert!(http.get("/").is_err());
        proxy.set(Mode::Pass);
        assert_eq!(http.get("/")?.status, 200);
        assert_eq!(upstream.requests(), 6);
        Ok(())
    }
}
