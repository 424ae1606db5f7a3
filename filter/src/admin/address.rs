//! The two ends of the current request's connection.

use std::net::IpAddr;

use loudou_rules::request::bare_address;

use crate::host::Host;

/// The property of the end in Envoy.
pub(super) const DESTINATION: &str = "destination\0address";

/// The address of one end, as a number.
pub(super) fn of(host: &dyn Host, end: &str) -> Option<IpAddr> {
    let address = host.property(end)?;
    let text = std::str::from_utf8(bare_address(&address)).ok()?;
    let address = text.parse::<IpAddr>().ok()?;
    Some(address.to_canonical())
}
