//! HTTP/1.1 on a socket, with the framing that the client and the upstream of the tests need.
//!
//! Header values stay bytes, because tests send and expect bytes that are not UTF-8.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};

const CHUNK: usize = 16 * 1024;
/// Maximum size of a head, without the blank line after it.
const MAX_HEAD: usize = 1024 * 1024;

/// A request or a response.
#[derive(Debug, Clone, Default)]
pub(crate) struct Message {
    pub(crate) start_line: String,
    /// Headers in the order of arrival, with names in lower case and with duplicates.
    pub(crate) headers: Vec<(String, Vec<u8>)>,
    pub(crate) body: Vec<u8>,
}

impl Message {
    /// Returns the first value of a header.
    pub(crate) fn header(&self, name: &str) -> Option<&[u8]> {
        let found = self
            .headers
            .iter()
            .find(|(n, _)| n.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_slice())
    }

    /// Returns true if the sender closes the connection afterwards.
    pub(crate) fn closes(&self) -> bool {
        self.header("connection")
            .is_some_and(|value| value.eq_ignore_ascii_case(b"close"))
    }

    fn parse_head(head: &[u8]) -> Result<Self> {
        let mut lines = head.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii);
        let start = lines.next().unwrap_or_default();
        let mut message = Self {
            start_line: String::from_utf8_lossy(start).into_owned(),
            ..Self::default()
        };
        for line in lines.filter(|line| !line.is_empty()) {
            let colon = line.iter().position(|&byte| byte == b':');
            let (name, value) = colon
                .and_then(|at| line.split_at_checked(at))
                .with_context(|| format!("no header: {:?}", String::from_utf8_lossy(line)))?;
            let name = String::from_utf8_lossy(name).to_ascii_lowercase();
            let value = value.strip_prefix(b":").unwrap_or(value);
            message.headers.push((name, value.trim_ascii().to_vec()));
        }
        Ok(message)
    }
}

/// A connection, and the bytes that were read ahead.
#[derive(Debug)]
pub(crate) struct Wire {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Wire {
    pub(crate) const fn new(stream: TcpStream) -> Self {
        Self {
            stream,
            buffer: Vec::new(),
        }
    }

    /// Sets the timeout of each later read.
    pub(crate) fn patience(&self, time: Duration) -> Result<()> {
        self.stream
            .set_read_timeout(Some(time))
            .context("no time-out")
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) -> Result<()> {
        self.stream.write_all(bytes).context("cannot send")
    }

    /// Reads the next message. Returns `None` if the peer closed the connection before its first
    /// byte. `bodyless` is for answers whose headers announce a body that does not follow (HEAD).
    pub(crate) fn receive(&mut self, bodyless: bool) -> Result<Option<Message>> {
        let Some(head) = self.head()? else {
            return Ok(None);
        };
        let mut message = Message::parse_head(&head)?;
        if bodyless {
            return Ok(Some(message));
        }
        let chunked = message.header("transfer-encoding").is_some();
        message.body = if chunked {
            self.chunks()?
        } else if let Some(length) = message.header("content-length") {
            let text = String::from_utf8_lossy(length);
            let length = text
                .parse()
                .with_context(|| format!("content-length {text:?}"))?;
            self.take(length)?
        } else {
            Vec::new()
        };
        Ok(Some(message))
    }

    fn head(&mut self) -> Result<Option<Vec<u8>>> {
        let mut searched = 0;
        loop {
            let fresh = self.buffer.get(searched..).unwrap_or_default();
            if let Some(at) = fresh.windows(4).position(|four| four == b"\r\n\r\n") {
                return self.take(searched + at + 4).map(Some);
            }
            ensure!(
                self.buffer.len() < MAX_HEAD,
                "more than {MAX_HEAD} bytes of headers"
            );
            searched = self.buffer.len().saturating_sub(3);
            if !self.fill()? {
                ensure!(
                    self.buffer.is_empty(),
                    "the connection ended within the headers"
                );
                return Ok(None);
            }
        }
    }

    fn chunks(&mut self) -> Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let line = self.line()?;
            let text = String::from_utf8_lossy(&line);
            let size = usize::from_str_radix(text.trim(), 16)
                .with_context(|| format!("chunk size {text:?}"))?;
            let chunk = self.take(size)?;
            self.line()?;
            if size == 0 {
                return Ok(body);
            }
            body.extend_from_slice(&chunk);
        }
    }

    fn line(&mut self) -> Result<Vec<u8>> {
        loop {
            if let Some(at) = self.buffer.iter().position(|&byte| byte == b'\n') {
                return self.take(at + 1);
            }
            ensure!(self.fill()?, "the connection ended within a line");
        }
    }

    fn take(&mut self, count: usize) -> Result<Vec<u8>> {
        while self.buffer.len() < count {
            ensure!(self.fill()?, "the connection ended within the body");
        }
        let rest = self.buffer.split_off(count);
        Ok(std::mem::replace(&mut self.buffer, rest))
    }

    /// Reads more bytes. Returns false at the end of the stream.
    fn fill(&mut self) -> Result<bool> {
        let mut chunk = [0; CHUNK];
        loop {
            match self.stream.read(&mut chunk) {
                Ok(count) => {
                    self.buffer
                        .extend_from_slice(chunk.get(..count).unwrap_or_default());
                    return Ok(count > 0);
                }
                // The process got a signal, for example when it was stopped for a moment.
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return Ok(false),
                Err(error) => bail!("no answer: {error}"),
            }
        }
    }
}
