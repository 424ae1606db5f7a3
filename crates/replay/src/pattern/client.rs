//! The columns before a time in the formats of Apache and NGINX: `CLIENT IDENT USER`.
//!
//! Other logs have another column, or the prefix of another program, before them. What identd says and the user are
//! `-` nearly always, and the user may have any name, so that such a line would be read with the wrong client. These
//! columns are valid only where no other one can be the client.

use loudou_rules::request::bare_address;

use crate::source::is_address;

/// What the columns have shown so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Client {
    /// Whether the client is an address, and not the name of a host.
    pub(super) is_address: bool,
    /// Whether identd said something.
    has_ident: bool,
}

impl Client {
    /// Takes what identd says; false if that is something else.
    pub(super) fn ident(&mut self, value: &[u8]) -> bool {
        self.has_ident = value != b"-";
        is_word(value) && !value.ends_with(b":") && !is_like_address(value)
    }

    /// Whether this can be the user, and no column that the client may be in.
    pub(super) fn is_user(self, value: &[u8]) -> bool {
        if self.is_address && !self.has_ident {
            return true;
        }
        // `NAME - - USER`: the name of a virtual host, and no client.
        let is_shifted = value.starts_with(b"- ");
        let mut words = value.split(|b| *b == b' ');
        (!self.has_ident || words.clone().count() == 1)
            && !is_shifted
            && !words.any(is_like_address)
    }
}

/// Whether this is an address, perhaps with something else in the place of its port.
fn is_like_address(text: &[u8]) -> bool {
    is_address(bare_address(text))
}

/// Whether this can be the name of a host.
pub(super) fn is_host_name(text: &[u8]) -> bool {
    let is_of_name = |byte: &u8| byte.is_ascii_alphanumeric() || b"._-".contains(byte);
    !text.is_empty() && text.iter().all(is_of_name)
}

/// Whether this can be a virtual host, without a port: a name, also `*.example.com`, or `[ADDRESS]`.
pub(super) fn is_virtual_host(text: &[u8]) -> bool {
    let is_literal = text.starts_with(b"[") && text.ends_with(b"]");
    (is_literal && is_address(text)) || is_host_name(text.strip_prefix(b"*").unwrap_or(text))
}

/// Whether this can be what a log with virtual hosts has for one: also none, an address, or a port with it.
pub(super) fn is_known_host(text: &[u8]) -> bool {
    let mut parts = text.rsplitn(2, |b| *b == b':');
    let (port, host) = (parts.next().unwrap_or_default(), parts.next());
    let is_port = !port.is_empty() && port.iter().all(u8::is_ascii_digit);
    let host = host.filter(|_| is_port).unwrap_or(text);
    text.is_empty() || is_virtual_host(host) || is_address(text)
}

/// Whether this can be the name of a user, or of a socket, and not a part of a line of another kind.
pub(super) fn is_word(text: &[u8]) -> bool {
    let is_other = |byte: &u8| byte.is_ascii_whitespace() || b"[]|,\"<>=".contains(byte);
    !text.is_empty() && !text.iter().any(is_other)
}
