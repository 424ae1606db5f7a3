//! Sends very many requests in little time. A few threads each have many requests in flight, and do
//! not read the contents of answers. Envoy closes connections on which requests are pipelined, so
//! each connection has one request at a time.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::ops::Range;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};

use crate::clock::now;
use crate::http::Request;
use crate::load::Counts;

const THREADS: u64 = 2;
/// Number of connections per thread.
const CONNECTIONS: usize = 32;
/// Prefix of every answer. An answer ends with the body of Envoy's direct response, or has no body.
const ANSWER: &[u8] = b"HTTP/1.1 ";
/// Timeout of an answer. A slower answer is a failure.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Sends `request(n)` for every number below `requests`. Each answer must fit into one segment.
pub fn flood(
    address: SocketAddr,
    requests: u64,
    request: impl Fn(u64) -> Request + Sync,
) -> Result<()> {
    let part = requests.div_ceil(THREADS);
    let parts = (0..THREADS).map(|n| (n * part).min(requests)..((n + 1) * part).min(requests));
    thread::scope(|scope| {
        let request = &request;
        let threads: Vec<_> = parts
            .map(|part| scope.spawn(move || send(address, part, request)))
            .collect();
        let mut ended = threads.into_iter().map(thread::ScopedJoinHandle::join);
        ended.try_for_each(|end| end.unwrap_or_else(|_| Err(anyhow!("a thread panicked"))))
    })
}

fn send(address: SocketAddr, part: Range<u64>, request: impl Fn(u64) -> Request) -> Result<()> {
    Connections::open(address, CONNECTIONS)?
        .send(part.map(request))
        .map(drop)
}

/// Kept connections of one thread. Each has one request at a time.
#[derive(Debug)]
pub struct Connections {
    streams: Vec<TcpStream>,
    /// True if the thread polls for answers without a pause. False if it sleeps until an answer
    /// arrives.
    is_awake: bool,
}

impl Connections {
    /// Opens this many connections.
    pub fn open(address: SocketAddr, count: usize) -> Result<Self> {
        let streams = (0..count).map(|_| open(address));
        Ok(Self {
            streams: streams.collect::<Result<_>>()?,
            is_awake: false,
        })
    }

    /// Makes the thread poll while it waits for an answer, instead of sleeping. A peer that wakes
    /// another thread spends time on that, and in a virtual machine this takes as long as a small
    /// request.
    pub fn awake(mut self) -> Result<Self> {
        for stream in &self.streams {
            stream.set_nonblocking(true)?;
        }
        self.is_awake = true;
        Ok(self)
    }

    /// Sends requests, at most one per connection at a time, and counts the answers. Each answer
    /// must fit into one segment.
    pub fn send(&mut self, mut requests: impl Iterator<Item = Request>) -> Result<Counts> {
        let mut counts = Counts::default();
        loop {
            let mut sent = 0;
            // The order matters, because a request that was taken must be sent.
            for (stream, request) in self.streams.iter_mut().zip(requests.by_ref()) {
                stream.write_all(&request.encode()).context("cannot send")?;
                sent += 1;
            }
            if sent == 0 {
                return Ok(counts);
            }
            for stream in self.streams.iter_mut().take(sent) {
                counts.add(await_answer(stream, self.is_awake)?);
            }
        }
    }
}

fn open(address: SocketAddr) -> Result<TcpStream> {
    let stream = TcpStream::connect(address).context("cannot connect")?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    Ok(stream)
}

/// Returns the status of an answer.
fn await_answer(stream: &mut TcpStream, is_awake: bool) -> Result<u16> {
    let mut bytes = [0; 4096];
    let begin = now();
    let read = loop {
        match stream.read(&mut bytes) {
            Err(error) if is_awake && error.kind() == ErrorKind::WouldBlock => {
                ensure!(begin.elapsed() < TIMEOUT, "no answer");
                thread::yield_now();
            }
            read => break read.context("no answer")?,
        }
    };
    let answer = bytes.get(..read).unwrap_or_default();
    let status = answer
        .strip_prefix(ANSWER)
        .and_then(|rest| rest.first_chunk::<3>());
    let status = status.and_then(|status| std::str::from_utf8(status).ok()?.parse().ok());
    status.with_context(|| format!("not an answer: {}", String::from_utf8_lossy(answer)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::Upstream;

    #[test]
    fn answers_are_awaited_without_sleeping() -> Result<()> {
        let upstream = Upstream::start()?;
        let mut connections = Connections::open(upstream.address(), 4)?.awake()?;
        let requests = (0..100).map(|n| Request::get(&format!("/{n}")));
        let counts = connections.send(requests)?;
        assert_eq!((counts.of(200), upstream.requests()), (100, 100));
        Ok(())
    }

    #[test]
    fn sends_each_request_once() -> Result<()> {
        let upstream = Upstream::start()?;
        flood(upstream.address(), 1_000, |n| {
            Request::get(&format!("/{n}"))
        })?;
        assert_eq!(upstream.requests(), 1_000);
        Ok(())
    }
}
