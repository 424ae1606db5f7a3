//! Validates the columns before the timestamp in Apache and NGINX formats: `CLIENT IDENT USER`.
//!
//! Some logs have an additional column, or the prefix of another program, before these columns. The
//! ident and user columns are nearly always `-`, and the user name can be any text, so a shifted
//! line could be parsed with the wrong client. Therefore these columns are valid only if no other
//! column could be the client.

use loudou_rules::request::bare_address;

use crate::source::is_address;

/// Facts about the client columns parsed so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Client {
    /// True if the client column is an IP address, not a host name.
    pub(super) is_address: bool,
    /// True if the ident column is not `-`.
    has_ident: bool,
}

impl Client {
    /// Parses the ident column. Returns false if its value cannot be an ident.
    pub(super) fn ident(&mut self, value: &[u8]) -> bool {
        self.has_ident = value != b"-";
        is_word(value) && !value.ends_with(b":") && !is_like_address(value)
    }

    /// Returns true if `value` can be the user name and cannot contain the client address.
    pub(super) fn is_user(self, value: &[u8]) -> bool {
        if self.is_address && !self.has_ident {
            return true;
        }
        // In `NAME - - USER`, the first column is a virtual host, not a client.
        let is_shifted = value.starts_with(b"- ");
        let mut words = value.split(|b| *b == b' ');
        (!self.has_ident || words.clone().count() == 1)
            && !is_shifted
            && !words.any(is_like_address)
    }
}

/// Returns true if `text` is an IP address, even if it is followed by an invalid port.
fn is_like_address(text: &[u8]) -> bool {
    is_address(bare_address(text))
}

/// Returns true if `text` can be a host name.
pub(super) fn is_host_name(text: &[u8]) -> bool {
    let is_of_name = |byte: &u8| byte.is_ascii_alphanumeric() || b"._-".contains(byte);
    !text.is_empty() && text.iter().all(is_of_name)
}

/// Returns true if `text` can be a virtual host without a port: a name such as `*.example.com`, or
/// `[ADDRESS]`.
pub(super) fn is_virtual_host(text: &[u8]) -> bool {
    let is_literal = text.starts_with(b"[") && text.ends_with(b"]");
    (is_literal && is_address(text)) || is_host_name(text.strip_prefix(b"*").unwrap_or(text))
}

/// Returns true if `text` can be the virtual host in a log that is known to contain virtual hosts.
/// Beyond what [`is_virtual_host`] accepts, `text` can be empty or an IP address, and can include a
/// port.
pub(super) fn is_known_host(text: &[u8]) -> bool {
    let mut parts = text.rsplitn(2, |b| *b == b':');
    let (port, host) = (parts.next().unwrap_or_default(), parts.next());
    let is_port = !port.is_empty() && port.iter().all(u8::is_ascii_digit);
    let host = host.filter(|_| is_port).unwrap_or(text);
    text.is_empty() || is_virtual_host(host) || is_address(text)
}

/// Returns true if `text` can be the name of a user or a socket. Characters that suggest another
/// log format are not allowed.
pub(super) fn is_word(text: &[u8]) -> bool {
    let is_other = |byte: &u8| byte.is_ascii_whitespace() || b"[]|,\"<>=".contains(byte);
    !text.is_empty() && !text.iter().any(is_other)
}
