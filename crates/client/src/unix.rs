//! HTTP over a Unix socket.

use std::fmt;
use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use ureq::Error;
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, LazyBuffers, NextTimeout, Transport,
};

/// Connects to the Unix socket at this path. The host in the request's URL is ignored.
#[derive(Debug)]
pub(super) struct UnixConnector(pub(super) PathBuf);

impl Connector for UnixConnector {
    type Out = UnixTransport;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        _chained: Option<()>,
    ) -> Result<Option<UnixTransport>, Error> {
        let stream = UnixStream::connect(&self.0)?;
        let config = details.config;
        let buffers = LazyBuffers::new(config.input_buffer_size(), config.output_buffer_size());
        Ok(Some(UnixTransport { stream, buffers }))
    }
}

/// An open connection.
pub(super) struct UnixTransport {
    stream: UnixStream,
    buffers: LazyBuffers,
}

impl fmt::Debug for UnixTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UnixTransport").finish_non_exhaustive()
    }
}

impl Transport for UnixTransport {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        let limit = timeout.not_zero().map(|limit| *limit);
        self.stream.set_write_timeout(limit)?;
        let output = self.buffers.output().get(..amount).unwrap_or_default();
        let written = self.stream.write_all(output);
        written.map_err(|error| timed(error, timeout))
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        let limit = timeout.not_zero().map(|limit| *limit);
        self.stream.set_read_timeout(limit)?;
        let input = self.buffers.input_append_buf();
        let amount = loop {
            match self.stream.read(input) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read.map_err(|error| timed(error, timeout))?,
            }
        };
        self.buffers.input_appended(amount);
        Ok(amount > 0)
    }

    fn is_open(&mut self) -> bool {
        // If the peer has closed the socket, a read returns zero bytes immediately.
        let mut byte = [0];
        let is_set = self.stream.set_nonblocking(true).is_ok();
        let read = rustix::net::recv(&self.stream, &mut byte, rustix::net::RecvFlags::PEEK);
        let is_reset = self.stream.set_nonblocking(false).is_ok();
        is_set && is_reset && matches!(read, Err(rustix::io::Errno::AGAIN))
    }
}

/// Converts an I/O error. A socket reports a timeout as `WouldBlock`.
fn timed(error: io::Error, timeout: NextTimeout) -> Error {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Error::Timeout(timeout.reason),
        _ => Error::Io(error),
    }
}
