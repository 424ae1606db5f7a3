//! A small HTTP/1.1 client that sends its bytes unchanged.
//!
//! Other clients refuse to send the header values that a limiter must survive. This client sends
//! them over a kept connection, which it opens again if the peer has closed it.

use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::wire::{Message, Wire};

/// Timeout of a request. A longer request has hung, and the test fails.
const TIMEOUT: Duration = Duration::from_secs(20);

/// A request with method, path, headers in order, and body.
#[derive(Debug, Clone)]
pub struct Request {
    method: String,
    path: String,
    headers: Vec<(Vec<u8>, Vec<u8>)>,
    body: Option<Vec<u8>>,
    /// Chunk sizes of the body. Without chunks the request has a content length.
    chunk: Option<usize>,
}

impl Request {
    /// Creates a request with any method.
    pub fn new(method: &str, path: &str) -> Self {
        Self {
            method: method.to_owned(),
            path: path.to_owned(),
            headers: Vec::new(),
            body: None,
            chunk: None,
        }
    }

    /// Creates `GET path`.
    pub fn get(path: &str) -> Self {
        Self::new("GET", path)
    }

    /// Creates `POST path` without a body.
    pub fn post(path: &str) -> Self {
        Self::new("POST", path)
    }

    /// Adds a header, even a duplicate. The bytes are sent unchanged.
    #[must_use]
    pub fn header(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.headers
            .push((name.as_bytes().to_vec(), value.as_ref().to_vec()));
        self
    }

    /// Adds `Authorization: Bearer TOKEN`.
    #[must_use]
    pub fn token(self, token: &str) -> Self {
        self.header("authorization", format!("Bearer {token}"))
    }

    /// Sets the body, without a content type.
    #[must_use]
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = Some(body.into());
        self
    }

    /// Sends the body in chunks of this size, without a content length.
    #[must_use]
    pub const fn chunked(mut self, size: usize) -> Self {
        self.chunk = Some(size);
        self
    }

    /// Sets a JSON body with its content type.
    #[must_use]
    pub fn json(self, body: &Value) -> Self {
        self.header("content-type", "application/json")
            .body(body.to_string())
    }

    /// Adds a query parameter, whose value must not need encoding.
    #[must_use]
    pub fn with_query(mut self, name: &str, value: &str) -> Self {
        let sign = if self.path.contains('?') { '&' } else { '?' };
        self.path.extend([&*sign.to_string(), name, "=", value]);
        self
    }

    /// Returns the bytes on the wire.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut head = format!("{} {} HTTP/1.1\r\n", self.method, self.path);
        let has_host = self
            .headers
            .iter()
            .any(|(name, _)| name.eq_ignore_ascii_case(b"host"));
        if !has_host {
            head.push_str("host: loudou.test\r\n");
        }
        let expects_body = matches!(self.method.as_str(), "POST" | "PUT" | "PATCH");
        if self.chunk.is_some() {
            head.push_str("transfer-encoding: chunked\r\n");
        } else if self.body.is_some() || expects_body {
            let length = self.body.as_ref().map_or(0, Vec::len);
            head.extend(["content-length: ", &length.to_string(), "\r\n"]);
        }
        let mut bytes = head.into_bytes();
        for (name, value) in &self.headers {
            bytes.extend_from_slice(name);
            bytes.extend_from_slice(b": ");
            bytes.extend_from_slice(value);
            bytes.extend_from_slice(b"\r\n");
        }
        bytes.extend_from_slice(b"\r\n");
        let body = self.body.as_deref().unwrap_or_default();
        match self.chunk {
            None => bytes.extend_from_slice(body),
            Some(size) => encode_chunks(body, size, &mut bytes),
        }
        bytes
    }

    fn is_head(&self) -> bool {
        self.method == "HEAD"
    }
}

fn encode_chunks(body: &[u8], size: usize, bytes: &mut Vec<u8>) {
    for chunk in body.chunks(size.max(1)) {
        bytes.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        bytes.extend_from_slice(chunk);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(b"0\r\n\r\n");
}

/// An answer.
#[derive(Debug, Clone)]
pub struct Response {
    /// Status code.
    pub status: u16,
    /// Headers in the order of arrival, with names in lower case and with duplicates.
    pub headers: Vec<(String, Vec<u8>)>,
    /// The whole body.
    pub body: Vec<u8>,
}

impl Response {
    /// Returns the first value of a header, if it exists and is UTF-8.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self
            .headers
            .iter()
            .find(|(n, _)| n.eq_ignore_ascii_case(name));
        found.and_then(|(_, value)| std::str::from_utf8(value).ok())
    }

    /// Returns the body as text. Invalid UTF-8 is replaced.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Returns the body as JSON.
    pub fn json(&self) -> Result<Value> {
        serde_json::from_slice(&self.body)
            .with_context(|| format!("status {}, not JSON: {:?}", self.status, self.text()))
    }

    fn from_message(message: Message) -> Result<Self> {
        let status = message
            .start_line
            .split(' ')
            .nth(1)
            .and_then(|code| code.parse().ok());
        let status = status.with_context(|| format!("no status: {:?}", message.start_line))?;
        Ok(Self {
            status,
            headers: message.headers,
            body: message.body,
        })
    }
}

/// A client of one address with one kept connection.
#[derive(Debug)]
pub struct Http {
    address: SocketAddr,
    wire: Option<Wire>,
}

impl Http {
    /// Creates a client, which connects with the first request.
    pub const fn new(address: SocketAddr) -> Self {
        Self {
            address,
            wire: None,
        }
    }

    /// Opens the connection now.
    pub fn connect(&mut self) -> Result<()> {
        if self.wire.is_none() {
            self.wire = Some(open(self.address)?);
        }
        Ok(())
    }

    /// Returns true if a connection is open for the next request.
    pub const fn is_open(&self) -> bool {
        self.wire.is_some()
    }

    /// Closes the connection. The next request opens another.
    pub fn close(&mut self) {
        self.wire = None;
    }

    /// Sends a request and reads the answer.
    ///
    /// If the peer has closed a kept connection before the first byte of its answer, the client
    /// opens another connection once, because the peer has not processed the request.
    pub fn send(&mut self, request: &Request) -> Result<Response> {
        let kept = self.wire.is_some();
        let mut answer = self.attempt(request)?;
        if answer.is_none() && kept {
            answer = self.attempt(request)?;
        }
        let address = self.address;
        answer.with_context(|| format!("{address} closed the connection without an answer"))
    }

    /// Sends a request without a retry. Returns `None` if the peer closed the connection before an
    /// answer.
    pub fn send_once(&mut self, request: &Request) -> Result<Option<Response>> {
        self.attempt(request)
    }

    /// Sends `GET path`.
    pub fn get(&mut self, path: &str) -> Result<Response> {
        self.send(&Request::get(path))
    }

    /// Makes one attempt. Returns `None` if the connection was closed before an answer. Keeps the
    /// connection only if the whole answer arrived.
    fn attempt(&mut self, request: &Request) -> Result<Option<Response>> {
        let mut wire = match self.wire.take() {
            Some(wire) => wire,
            None => open(self.address)?,
        };
        // Ignore a failure to send. A peer may answer and close the connection before it has read
        // everything (413, 431). Without an answer, `receive` fails.
        drop(wire.send(&request.encode()));
        let Some(message) = wire.receive(request.is_head())? else {
            return Ok(None);
        };
        if !message.closes() {
            self.wire = Some(wire);
        }
        Response::from_message(message).map(Some)
    }
}

/// Opens a connection.
pub(crate) fn open(address: SocketAddr) -> Result<Wire> {
    let stream = TcpStream::connect_timeout(&address, TIMEOUT)
        .with_context(|| format!("cannot connect to {address}"))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    Ok(Wire::new(stream))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_bytes_go_out_as_they_are() {
        let request = Request::get("/a")
            .header("x-user-id", b"\xff\xfe")
            .header("x-user-id", "");
        let bytes = request.encode();
        assert_eq!(
            bytes,
            b"GET /a HTTP/1.1\r\nhost: loudou.test\r\nx-user-id: \xff\xfe\r\nx-user-id: \r\n\r\n"
        );
    }

    #[test]
    fn a_post_without_a_body_says_so() {
        let bytes = Request::post("/a").header("host", "h").encode();
        assert_eq!(
            bytes,
            b"POST /a HTTP/1.1\r\ncontent-length: 0\r\nhost: h\r\n\r\n"
        );
    }

    #[test]
    fn chunks_carry_their_sizes() {
        let bytes = Request::post("/a").body("hello").chunked(4).encode();
        let text = String::from_utf8(bytes).expect("ASCII");
        assert!(
            text.ends_with("transfer-encoding: chunked\r\n\r\n4\r\nhell\r\n1\r\no\r\n0\r\n\r\n"),
            "{text}"
        );
    }
}
