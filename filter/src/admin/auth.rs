//! Authenticates and authorizes API callers.

use std::net::IpAddr;

use loudou_api::Access;
use loudou_rules::config::AdminSettings;
use loudou_rules::request::bare_address;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::answer::Failure;
use crate::escaped::shown;
use crate::host::Host;

/// The caller that sent a request.
#[derive(Clone, Debug)]
pub(super) struct Caller {
    pub(super) name: String,
    pub(super) access: Access,
}

/// Authenticates the caller of the current request.
pub(super) fn authorize(host: &dyn Host, settings: &AdminSettings) -> Result<Caller, Failure> {
    if host.request_header("origin").is_some() {
        let detail = "requests from web pages (with an Origin header) are refused";
        return Err(Failure::new(403, "Forbidden", detail));
    }
    named_host(host, settings)?;
    if settings.tokens.is_empty() {
        return loopback(host);
    }
    let header = host.request_header("authorization").unwrap_or_default();
    let Some(token) = bearer(&header) else {
        let detail = "send a token: `Authorization: Bearer TOKEN` (loudou: LOUDOU_TOKEN)";
        return Err(Failure::new(401, "Unauthorized", detail));
    };
    let digest: [u8; 32] = Sha256::digest(token).into();
    // The given token is compared with every configured token in constant time, so that the
    // response time leaks no information about the tokens.
    let mut known = None;
    for token in &settings.tokens {
        if bool::from(token.sha256.ct_eq(&digest)) {
            known = Some(token);
        }
    }
    known
        .map(|token| Caller {
            name: token.name.clone(),
            access: token.may,
        })
        .ok_or_else(|| Failure::new(401, "Unauthorized", "unknown token"))
}

fn bearer(header: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = header.split_first_chunk::<7>()?;
    scheme
        .eq_ignore_ascii_case(b"bearer ")
        .then(|| token.trim_ascii())
        .filter(|t| !t.is_empty())
}

/// Returns the caller if the request comes from this machine. If no tokens are configured, no other
/// callers are allowed.
fn loopback(host: &dyn Host) -> Result<Caller, Failure> {
    if is_source_loopback(host) {
        return Ok(Caller {
            name: "loopback".to_owned(),
            access: Access::Edit,
        });
    }
    let detail =
        "no tokens are configured, so only loopback clients may call; configure admin.tokens";
    Err(Failure::new(403, "Forbidden", detail))
}

// Addresses of the connection that carries the current request.

/// Envoy property that contains the local address of the connection.
pub(super) const DESTINATION: &str = "destination\0address";

/// Envoy property that contains the client's address.
const SOURCE: &str = "source\0address";

/// Returns true if the client is on this machine. A client address with port 0 is not trusted,
/// because Envoy took it from a header that any client can set.
pub(super) fn is_source_loopback(host: &dyn Host) -> bool {
    let from_header = host
        .property(SOURCE)
        .is_some_and(|source| source.ends_with(b":0"));
    !from_header && address_of(host, SOURCE).is_some_and(|address| address.is_loopback())
}

/// Returns the IP address in a property, either [`SOURCE`] or [`DESTINATION`].
pub(super) fn address_of(host: &dyn Host, end: &str) -> Option<IpAddr> {
    let address = host.property(end)?;
    let text = std::str::from_utf8(bare_address(&address)).ok()?;
    let address = text.parse::<IpAddr>().ok()?;
    Some(address.to_canonical())
}

// Host name checks for requests. If no tokens are configured, only names that always refer to this
// machine are accepted. Otherwise a website could make its own domain resolve to this machine (DNS
// rebinding) and read the responses.

/// Rejects a request whose `:authority` names an unknown host. If tokens but no hosts are
/// configured, all hosts are accepted: web pages do not have a token, and operators reach the API
/// through many service and proxy names.
fn named_host(host: &dyn Host, settings: &AdminSettings) -> Result<(), Failure> {
    if settings.hosts.is_empty() && !settings.tokens.is_empty() {
        return Ok(());
    }
    let authority = host.request_header(":authority").unwrap_or_default();
    let authority = String::from_utf8(authority).unwrap_or_default();
    let is_known = name(&authority).is_some_and(|name| is_known(name, host, settings));
    if is_known {
        return Ok(());
    }
    let named = shown(&authority);
    let detail = format!(
        "the host `{named}` is neither loopback nor the address of this listener: call it by one of these, or add \
         the name to admin.hosts"
    );
    Err(Failure::new(403, "Forbidden", detail))
}

fn is_known(name: &str, host: &dyn Host, settings: &AdminSettings) -> bool {
    let lower = name.to_ascii_lowercase();
    let text = lower.strip_suffix('.').unwrap_or(&lower);
    if text == "localhost" || settings.hosts.iter().any(|known| known == text) {
        return true;
    }
    let inner = text
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    let Ok(address) = inner.unwrap_or(text).parse::<IpAddr>() else {
        return false;
    };
    // In an authority, IPv6 addresses, and only they, are enclosed in brackets.
    if address.is_ipv6() != inner.is_some() {
        return false;
    }
    let address = address.to_canonical();
    address.is_loopback() || address_of(host, DESTINATION) == Some(address)
}

/// Returns the host in an authority, without the port.
fn name(authority: &str) -> Option<&str> {
    let end = authority.rfind(']').map_or(0, |end| end.saturating_add(1));
    let colon = authority.get(end..)?.find(':');
    let Some(colon) = colon else {
        return Some(authority);
    };
    let (name, port) = authority.split_at_checked(end.saturating_add(colon))?;
    let digits = port.strip_prefix(':')?;
    let is_port = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    is_port.then_some(name)
}
