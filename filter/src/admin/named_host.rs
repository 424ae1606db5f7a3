//! The host that a request names. A name that anybody may point at this machine is not enough where no token is
//! needed: a web page that rebinds its name (DNS rebinding) could read the answers.

use std::net::IpAddr;

use loudou_rules::config::AdminSettings;

use super::address;
use super::answer::Failure;
use crate::escaped::shown;
use crate::host::Host;

/// Refuses a request for another host. With tokens and without configured hosts, any host will do: no web page
/// has a token, and names of services and proxies are many.
pub(super) fn check(host: &dyn Host, settings: &AdminSettings) -> Result<(), Failure> {
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
    // IPv6 addresses are written in brackets, and no others are.
    if address.is_ipv6() != inner.is_some() {
        return false;
    }
    let address = address.to_canonical();
    address.is_loopback() || address::of(host, address::DESTINATION) == Some(address)
}

/// An authority without its port.
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
