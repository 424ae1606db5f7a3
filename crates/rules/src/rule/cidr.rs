//! Client address networks.

use alloc::format;
use alloc::string::String;
use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::Serialize;

/// Description of the allowed networks, for use in messages.
pub const CIDR_FORM: &str = "an address or a network: 203.0.113.7, 203.0.113.0/24, 2001:db8::/32";

/// A network. A single address is a network with the full prefix length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr {
    network: IpAddr,
    length: u8,
}

/// Reason why a string is not a valid network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CidrError {
    /// The string is malformed.
    Form,
    /// The address has non-zero bits beyond the prefix. Contains the network with these bits
    /// cleared.
    HostBits(Cidr),
}

impl Cidr {
    /// Parses `203.0.113.0/24`, or a single address. IPv4-mapped IPv6 addresses become IPv4
    /// addresses.
    pub fn parse(text: &str) -> Result<Self, CidrError> {
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_odd| CidrError::Form)?;
        let most = bits(address);
        let length = match length {
            None => most,
            // `parse` alone would accept a sign and leading zeros.
            Some(digits) => digits
                .parse()
                .ok()
                .filter(|n: &u8| *n <= most && format!("{n}") == digits)
                .ok_or(CidrError::Form)?,
        };
        let (address, length) = match address.to_canonical() {
            IpAddr::V4(four) if address.is_ipv6() && length >= 96 => {
                (IpAddr::V4(four), length.saturating_sub(96))
            }
            _ => (address, length),
        };
        let network = network(address, length);
        let cidr = Self { network, length };
        if network == address {
            Ok(cidr)
        } else {
            Err(CidrError::HostBits(cidr))
        }
    }

    /// Returns true if the network contains `address`.
    pub fn contains(&self, address: IpAddr) -> bool {
        address.is_ipv4() == self.network.is_ipv4() && network(address, self.length) == self.network
    }

    /// Returns true if the network contains all of `other`'s addresses.
    pub fn covers(&self, other: &Self) -> bool {
        self.length <= other.length && self.contains(other.network)
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text())
    }
}

/// Maximum size of a network's text, in bytes.
const MAX_TEXT: usize = 43;

impl Cidr {
    /// Formats the network like the standard library does (RFC 5952), but without its formatting
    /// code, which would add two KiB to the filter. This text is the key of many requests, so
    /// formatting should also be fast.
    fn text(&self) -> String {
        let mut text = String::with_capacity(MAX_TEXT);
        match self.network {
            IpAddr::V4(four) => {
                for (index, octet) in four.octets().into_iter().enumerate() {
                    if index > 0 {
                        text.push('.');
                    }
                    push_number(&mut text, octet.into(), 10);
                }
            }
            IpAddr::V6(six) => push_groups(&mut text, six.segments()),
        }
        if self.length < bits(self.network) {
            text.push('/');
            push_number(&mut text, self.length.into(), 10);
        }
        text
    }
}

/// Appends a number in this base, with lower-case digits and no leading zeros.
fn push_number(text: &mut String, number: u16, base: u16) {
    if let Some(rest) = number.checked_div(base).filter(|rest| *rest > 0) {
        push_number(text, rest, base);
    }
    let digit = number.checked_rem(base).unwrap_or(0);
    text.extend(char::from_digit(digit.into(), base.into()));
}

/// Appends the groups of an IPv6 address. `::` replaces the longest run of two or more zero groups,
/// or the first of several such runs.
fn push_groups(text: &mut String, groups: [u16; 8]) {
    let (mut begin, mut end, mut from) = (8_usize, 8_usize, 0_usize);
    for (index, group) in groups.into_iter().enumerate() {
        let next = index.saturating_add(1);
        if group != 0 {
            from = next;
        } else if next.saturating_sub(from) > end.saturating_sub(begin).max(1) {
            (begin, end) = (from, next);
        }
    }
    for (index, group) in groups.into_iter().enumerate() {
        if index == begin {
            text.push_str("::");
        }
        if (begin..end).contains(&index) {
            continue;
        }
        if index > 0 && index != end {
            text.push(':');
        }
        push_number(text, group, 16);
    }
}

/// Number of leading address bits that identify a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct SourcePrefix {
    /// Prefix length for IPv4, in bits.
    #[serde(rename = "v4_prefix")]
    pub v4: u8,
    /// Prefix length for IPv6, in bits. A client usually controls a whole /64 network, so longer
    /// prefixes do not identify clients.
    #[serde(rename = "v6_prefix")]
    pub v6: u8,
}

impl Default for SourcePrefix {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl SourcePrefix {
    /// The default is the whole address for IPv4, and the /64 network for IPv6.
    pub const DEFAULT: Self = Self { v4: 32, v6: 64 };

    /// Returns the network of a client as text. Returns `None` if the source is not an IP address
    /// but, for example, a Unix socket.
    pub(super) fn apply(self, source: &[u8]) -> Option<String> {
        let address = address(source)?;
        let length = if address.is_ipv4() { self.v4 } else { self.v6 };
        let network = network(address, length);
        Some(Cidr { network, length }.text())
    }
}

/// Parses a client address, ignoring a trailing zone. IPv4-mapped IPv6 addresses become IPv4
/// addresses.
pub(super) fn address(source: &[u8]) -> Option<IpAddr> {
    let bare = source.split(|b| *b == b'%').next()?;
    let address: IpAddr = core::str::from_utf8(bare).ok()?.parse().ok()?;
    Some(address.to_canonical())
}

const fn bits(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

/// Returns an address with all but the first `length` bits cleared.
fn network(address: IpAddr, length: u8) -> IpAddr {
    let away = u32::from(bits(address).saturating_sub(length));
    match address {
        IpAddr::V4(four) => {
            let mask = u32::MAX.checked_shl(away).unwrap_or(0);
            Ipv4Addr::from_bits(four.to_bits() & mask).into()
        }
        IpAddr::V6(six) => {
            let mask = u128::MAX.checked_shl(away).unwrap_or(0);
            Ipv6Addr::from_bits(six.to_bits() & mask).into()
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    fn cidr(text: &str) -> Cidr {
        Cidr::parse(text).expect(text)
    }

    /// Compares the results with the standard library, except for IPv4-mapped IPv6 addresses, which
    /// this module treats as IPv4 addresses.
    #[test]
    fn addresses_are_written_as_the_standard_library_does() {
        let model = |address: IpAddr| {
            let whole = Cidr {
                network: address,
                length: bits(address),
            };
            assert_eq!(whole.to_string(), address.to_string());
            let part = Cidr { length: 9, ..whole };
            assert_eq!(part.to_string(), format!("{address}/9"));
        };
        // Tests every combination of zero groups, with small and large values in the remaining
        // groups.
        for zeros in 0..=u8::MAX {
            for fill in [1, 0xa, 0xffff, 0x0f00] {
                let group = |place: u32| {
                    if zeros.wrapping_shr(place) & 1 == 1 {
                        0
                    } else {
                        fill
                    }
                };
                let six = Ipv6Addr::from([0, 1, 2, 3, 4, 5, 6, 7].map(group));
                if six.to_ipv4_mapped().is_none() {
                    model(six.into());
                }
            }
            model(Ipv4Addr::new(zeros, 0, zeros.wrapping_mul(7), 255).into());
        }
    }

    #[test]
    fn networks_are_read_and_written() {
        for text in [
            "203.0.113.0/24",
            "203.0.113.7",
            "0.0.0.0/0",
            "2001:db8::/32",
            "::1",
            "::/0",
        ] {
            assert_eq!(cidr(text).to_string(), text);
        }
        assert_eq!(cidr("10.0.0.1/32").to_string(), "10.0.0.1");
        assert_eq!(cidr("::ffff:10.0.0.0/104").to_string(), "10.0.0.0/8");
        for odd in [
            "",
            "10.0.0",
            "10.0.0.0/33",
            "10.0.0.0/+8",
            "10.0.0.0/08",
            "::/129",
            "10.0.0.0/",
            "10.0.0.0/8/8",
            "fe80::1%eth0",
            "host",
        ] {
            assert_eq!(Cidr::parse(odd), Err(CidrError::Form), "{odd}");
        }
        let meant = Cidr::parse("203.0.113.7/24");
        assert_eq!(meant, Err(CidrError::HostBits(cidr("203.0.113.0/24"))));
    }

    #[test]
    fn addresses_are_in_networks() {
        let within = |network: &str, source: &[u8]| {
            address(source).is_some_and(|address| cidr(network).contains(address))
        };
        assert!(within("203.0.113.0/24", b"203.0.113.255"));
        assert!(!within("203.0.113.0/24", b"203.0.114.0"));
        assert!(within("203.0.113.0/24", b"::ffff:203.0.113.9"));
        assert!(within("0.0.0.0/0", b"1.2.3.4"));
        assert!(!within("0.0.0.0/0", b"2001:db8::1"));
        assert!(!within("::/0", b"1.2.3.4"));
        assert!(within("fe80::/10", b"fe80::1%eth0"));
        for odd in [&b"/tmp/socket"[..], b"", b"\xff\xfe", b"%", b"1.2.3.4:5"] {
            assert!(!within("::/0", odd) && !within("0.0.0.0/0", odd));
        }
    }
}
