//! The two ends of the current request's connection.

use std::net::IpAddr;

use loudou_rules::request::bare_address;

use crate::host::Host;

/// The property of the end in Envoy.
pub(super) const DESTINATION: &str = "destination\0address";

/// The property of the end at the client.
pub(super) const SOURCE: &str = "source\0address";

/// Whether the client is on this machine. A port of 0 means that the address came from a header, which any client
/// can write.
pub(super) fn is_source_loopback(host: &dyn Host) -> bool {
    let from_header = host
        .property(SOURCE)
        .is_some_and(|source| source.ends_with(b":0"));
    !from_header && of(host, SOURCE).is_some_and(|address| address.is_loopback())
}

/// The address of one end, as a number.
pub(super) fn of(host: &dyn Host, end: &str) -> Option<IpAddr> {
    let address = host.property(end)?;
    let text = std::str::from_utf8(bare_address(&address)).ok()?;
    let address = text.parse::<IpAddr>().ok()?;
    Some(address.to_canonical())
}
