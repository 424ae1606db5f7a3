//! Recognises the columns before a time in the formats of Apache and NGINX: `CLIENT IDENT USER`.
//!
//! Other logs have another column, or another program's prefix, before them. The ident and the user
//! are nearly always `-`, and the user may have any name, so such a line could be read with the
//! wrong client. These columns are valid only if no other column can be the client.

use loudou_rules::request::bare_address;

use crate::source::is_address;

/// Facts about the client columns parsed so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Client {
    /// True if the client is an address, not a host name.
    pub(super) is_address: bool,
    /// True if the ident column is not `-`.
    has_ident: bool,
}

impl Client {
    /// Parses the ident column. Returns false if it has any other text.
    pub(super) fn ident(&mut self, value: &[u8]) -> bool {
        self.has_ident = value != b"-";
        is_word(value) && !value.ends_with(b":") && !is_like_address(value)
    }

    /// Returns true if this can be the user, and the client cannot be within it.
    pub(super) fn is_user(self, value: &[u8]) -> bool {
        if self.is_address && !self.has_ident {
            return true;
        }
        // `NAME - - USER` begins with the name of a virtual host, not with a client.
        let is_shifted = value.starts_with(b"- ");
        let mut words = value.split(|b| *b == b' ');
        (!self.has_ident || words.clone().count() == 1)
            && !is_shifted
            && !words.any(is_like_address)
    }
}

/// Returns true if this is an address, even with other text in place of its port.
fn is_like_address(text: &[u8]) -> bool {
    is_address(bare_address(text))
}

/// Returns true if this can be a host name.
pub(super) fn is_host_name(text: &[u8]) -> bool {
    let is_of_name = |byte: &u8| byte.is_ascii_alphanumeric() || b"._-".contains(byte);
    !text.is_empty() && text.iter().all(is_of_name)
}

/// Returns true if this can be a virtual host without a port: a name, such as `*.example.com`, or
/// `[ADDRESS]`.
pub(super) fn is_virtual_host(text: &[u8]) -> bool {
    let is_literal = text.starts_with(b"[") && text.ends_with(b"]");
    (is_literal && is_address(text)) || is_host_name(text.strip_prefix(b"*").unwrap_or(text))
}

/// Returns true if this can be the virtual host in a log that has virtual hosts. It may also be
/// empty, or an address, and may have a port.
pub(super) fn is_known_host(text: &[u8]) -> bool {
    let mut parts = text.rsplitn(2, |b| *b == b':');
    let (port, host) = (parts.next().unwrap_or_default(), parts.next());
    let is_port = !port.is_empty() && port.iter().all(u8::is_ascii_digit);
    let host = host.filter(|_| is_port).unwrap_or(text);
    text.is_empty() || is_virtual_host(host) || is_address(text)
}

/// Returns true if this can be the name of a user or of a socket, and not part of another kind of
/// line.
pub(super) fn is_word(text: &[u8]) -> bool {
    let is_other = |byte: &u8| byte.is_ascii_whitespace() || b"[]|,\"<>=".contains(byte);
    !text.is_empty() && !text.iter().any(is_other)
}
