//! Very many requests in little time: from few threads, each of which has many requests in flight and does
//! not read the answers' contents. Envoy closes connections on which requests are pipelined, so each
//! connection has one request at a time.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::ops::Range;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};

use crate::http::Request;
use crate::load::Counts;

const THREADS: u64 = 2;
/// The connections of a thread.
const CONNECTIONS: usize = 32;
/// Every answer begins with this, and ends with the body of Envoy's direct response or has none.
const ANSWER: &[u8] = b"HTTP/1.1 ";
/// An answer that takes longer is a failure.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Sends `request(n)` for every number below `requests`. Each answer has to fit into one segment.
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

/// Kept connections of one thread, each of which has one request at a time.
#[derive(Debug)]
pub struct Connections(Vec<TcpStream>);

impl Connections {
    /// So many connections.
    pub fn open(address: SocketAddr, count: usize) -> Result<Self> {
        let streams = (0..count).map(|_| open(address));
        streams.collect::<Result<_>>().map(Self)
    }

    /// Sends requests, as many at once as there are connections; counts the answers. Each has to fit into one
    /// segment.
    pub fn send(&mut self, mut requests: impl Iterator<Item = Request>) -> Result<Counts> {
        let mut counts = Counts::default();
        loop {
            let mut sent = 0;
            // In this order: a request that is taken is sent.
            for (stream, request) in self.0.iter_mut().zip(requests.by_ref()) {
                stream.write_all(&request.encode()).context("cannot send")?;
                sent += 1;
            }
            if sent == 0 {
                return Ok(counts);
            }
            for stream in self.0.iter_mut().take(sent) {
                counts.add(await_answer(stream)?);
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

/// The status of an answer.
fn await_answer(stream: &mut TcpStream) -> Result<u16> {
    let mut bytes = [0; 4096];
    let read = stream.read(&mut bytes).context("no answer")?;
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
    fn sends_each_request_once() -> Result<()> {
        let upstream = Upstream::start()?;
        flood(upstream.address(), 1_000, |n| {
            Request::get(&format!("/{n}"))
        })?;
        assert_eq!(upstream.requests(), 1_000);
        Ok(())
    }
}
