//! The protocol of Redis and Valkey (RESP2) on a socket, as far as tests need it to look into a
//! server.

use std::fmt::Debug;
use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

/// Timeout of a command. A longer command has hung.
const TIMEOUT: Duration = Duration::from_secs(20);

/// A reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// No value.
    Nil,
    /// A number.
    Number(i64),
    /// A text or bytes. Invalid UTF-8 is replaced.
    Text(String),
    /// A list of replies.
    List(Vec<Self>),
    /// An error reply.
    Error(String),
}

impl Reply {
    /// Returns the numbers in a list. A text of digits counts as a number.
    pub fn numbers(&self) -> Result<Vec<i64>> {
        let Self::List(list) = self else {
            bail!("not a list: {self:?}");
        };
        list.iter().map(Self::number).collect()
    }

    /// Returns the number.
    pub fn number(&self) -> Result<i64> {
        match self {
            Self::Number(number) => Ok(*number),
            Self::Text(text) => text.parse().with_context(|| format!("no number: {text:?}")),
            other => bail!("no number: {other:?}"),
        }
    }

    /// Returns the texts in a list.
    pub fn texts(&self) -> Result<Vec<String>> {
        let Self::List(list) = self else {
            bail!("not a list: {self:?}");
        };
        let text = |reply: &Self| match reply {
            Self::Text(text) => Ok(text.clone()),
            other => bail!("no text: {other:?}"),
        };
        list.iter().map(text).collect()
    }
}

/// A TCP or Unix socket.
trait Socket: Read + Write + Debug + Send {
    fn set_timeouts(&self, timeout: Duration) -> std::io::Result<()>;
}

impl Socket for TcpStream {
    fn set_timeouts(&self, timeout: Duration) -> std::io::Result<()> {
        self.set_read_timeout(Some(timeout))?;
        self.set_write_timeout(Some(timeout))
    }
}

impl Socket for UnixStream {
    fn set_timeouts(&self, timeout: Duration) -> std::io::Result<()> {
        self.set_read_timeout(Some(timeout))?;
        self.set_write_timeout(Some(timeout))
    }
}

/// A connection to a server.
#[derive(Debug)]
pub struct Resp {
    socket: BufReader<Box<dyn Socket>>,
}

impl Resp {
    /// Connects to a Unix socket.
    pub fn unix(path: &Path) -> Result<Self> {
        let socket = UnixStream::connect(path)
            .with_context(|| format!("cannot connect to {}", path.display()))?;
        Self::on(Box::new(socket))
    }

    /// Connects to a port.
    pub fn tcp(address: SocketAddr) -> Result<Self> {
        let socket = TcpStream::connect_timeout(&address, TIMEOUT)
            .with_context(|| format!("cannot connect to {address}"))?;
        socket.set_nodelay(true)?;
        Self::on(Box::new(socket))
    }

    fn on(socket: Box<dyn Socket>) -> Result<Self> {
        socket.set_timeouts(TIMEOUT)?;
        Ok(Self {
            socket: BufReader::new(socket),
        })
    }

    /// Sets the timeout of later commands.
    pub fn patience(&mut self, timeout: Duration) -> Result<()> {
        self.socket.get_ref().set_timeouts(timeout)?;
        Ok(())
    }

    /// Runs a command. An error reply counts as an error.
    pub fn run(&mut self, command: &[&str]) -> Result<Reply> {
        match self.ask(command)? {
            Reply::Error(error) => bail!("{command:?}: {error}"),
            reply => Ok(reply),
        }
    }

    /// Runs a command. Returns an error reply like any other reply.
    pub fn ask(&mut self, command: &[&str]) -> Result<Reply> {
        let mut bytes = format!("*{}\r\n", command.len()).into_bytes();
        for part in command {
            bytes.extend_from_slice(format!("${}\r\n{part}\r\n", part.len()).as_bytes());
        }
        self.socket.get_mut().write_all(&bytes)?;
        self.reply()
    }

    fn line(&mut self) -> Result<String> {
        let mut line = Vec::new();
        self.socket.read_until(b'\n', &mut line)?;
        let text = line.strip_suffix(b"\r\n").context("the line ends early")?;
        Ok(String::from_utf8_lossy(text).into_owned())
    }

    fn reply(&mut self) -> Result<Reply> {
        let line = self.line()?;
        let (kind, rest) = line.split_at_checked(1).context("an empty reply")?;
        Ok(match kind {
            "+" => Reply::Text(rest.to_owned()),
            "-" => Reply::Error(rest.to_owned()),
            ":" => Reply::Number(rest.parse()?),
            "$" | "*" if rest == "-1" => Reply::Nil,
            "$" => {
                let length: usize = rest.parse()?;
                let mut bytes = vec![0; length.saturating_add(2)];
                self.socket.read_exact(&mut bytes)?;
                bytes.truncate(length);
                Reply::Text(String::from_utf8_lossy(&bytes).into_owned())
            }
            "*" => {
                let count: usize = rest.parse()?;
                Reply::List((0..count).map(|_| self.reply()).collect::<Result<_>>()?)
            }
            _ => bail!("no reply: {line:?}"),
        })
    }
}
