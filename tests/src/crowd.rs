//! Sends many requests at once without reading their answers. It implements only the part of HTTP/2
//! that sending needs.
//!
//! A connection carries a hundred requests, so ten thousand waiting requests need a hundred
//! descriptors on either side. Systems often allow a process about a thousand.

use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};

use anyhow::{Context as _, Result};

/// Number of streams that every server allows.
const PER_CONNECTION: usize = 100;
/// Client preface, and settings that change nothing.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
/// `:method: GET`, `:scheme: http`, `:path: /` and `:authority: a` in HPACK.
const HEAD: &[u8] = b"\x82\x86\x84\x01\x01a";
const HEADERS: u8 = 1;
/// Flags that end the request and its headers.
const WHOLE: u8 = 1 | 4;

/// Requests in flight. Dropping this disconnects their clients.
#[derive(Debug)]
pub struct Crowd {
    _connections: Vec<TcpStream>,
}

impl Crowd {
    /// Sends `GET /` `count` times, with one more header.
    pub fn send(address: SocketAddr, header: (&str, &str), count: usize) -> Result<Self> {
        Self::send_with(address, &[header], count)
    }

    /// Sends `GET /` `count` times with these headers. Their names and values must be shorter than
    /// 127 bytes.
    pub fn send_with(address: SocketAddr, headers: &[(&str, &str)], count: usize) -> Result<Self> {
        let block = block(headers)?;
        let mut connections = Vec::new();
        let mut left = count;
        while left > 0 {
            let now = left.min(PER_CONNECTION);
            let mut bytes = PREFACE.to_vec();
            for stream in (1..).step_by(2).take(now) {
                frame(stream, &block, &mut bytes)?;
            }
            let mut connection = TcpStream::connect(address).context("cannot connect")?;
            connection.write_all(&bytes).context("cannot send")?;
            connections.push(connection);
            left -= now;
        }
        Ok(Self {
            _connections: connections,
        })
    }
}

/// Encodes the headers in HPACK, without table and compression.
fn block(headers: &[(&str, &str)]) -> Result<Vec<u8>> {
    let mut block = HEAD.to_vec();
    for (name, value) in headers {
        block.push(0);
        for text in [name, value] {
            let length = u8::try_from(text.len()).ok().filter(|length| *length < 127);
            block.push(length.with_context(|| format!("too long: {text}"))?);
            block.extend_from_slice(text.as_bytes());
        }
    }
    Ok(block)
}

fn frame(stream: u32, block: &[u8], bytes: &mut Vec<u8>) -> Result<()> {
    let length = u8::try_from(block.len()).context("too many headers")?;
    bytes.extend_from_slice(&[0, 0, length, HEADERS, WHOLE]);
    bytes.extend_from_slice(&stream.to_be_bytes());
    bytes.extend_from_slice(block);
    Ok(())
}
