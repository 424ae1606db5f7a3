//! Stopping Envoy and starting it again on the same ports.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use anyhow::{Context as _, Result};
use rustix::net::{AddressFamily, SocketType, bind, socket, sockopt};

use super::{Envoy, wasm_of};
use crate::config::Config;

impl Envoy {
    /// Stops it and starts another one with this configuration on the same ports, which clients see as a
    /// restart.
    pub fn restart(self, config: &Config) -> Result<Self> {
        let addresses = [self.data, self.admin];
        let _reserved = addresses
            .map(reserve)
            .into_iter()
            .collect::<Result<Vec<_>>>()?;
        self.stop()?;
        let ports = addresses.map(|address| address.port());
        Self::start_with(config, Some(ports), wasm_of(config)?)
    }
}

/// Keeps an address for Envoy, while nothing listens there: the system gives out ports of ended listeners, to any
/// connection of any process. The socket never listens, so clients are refused as in a restart, and Envoy's
/// listeners may join it because both share the port (`SO_REUSEPORT`).
fn reserve(address: SocketAddr) -> Result<OwnedFd> {
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None)?;
    sockopt::set_socket_reuseport(&socket, true)?;
    bind(&socket, &address).with_context(|| format!("cannot reserve {address}"))?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener, TcpStream};

    use rustix::net::{getsockname, listen};

    use super::*;

    #[test]
    fn a_reserved_port_is_free_for_listeners_that_share_it_alone() -> Result<()> {
        // As Envoy listens.
        let before = reserve((Ipv4Addr::LOCALHOST, 0).into())?;
        listen(&before, 1)?;
        let address = SocketAddr::try_from(getsockname(&before)?)?;
        let reserved = reserve(address)?;
        let client = TcpStream::connect(address)?;
        drop((client, before));
        assert!(TcpListener::bind(address).is_err(), "taken by another");
        assert!(TcpStream::connect(address).is_err(), "nobody listens");
        let after = reserve(address)?;
        listen(&after, 1)?;
        drop(reserved);
        TcpStream::connect(address)?;
        Ok(())
    }
}
