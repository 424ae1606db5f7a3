//! The columns before a time in the formats of Apache and NGINX: `CLIENT IDENT USER`.
//!
//! Other logs have another column, or the prefix of another program, before them. What identd says and the user are
//! `-` nearly always, and the user may have any name, so that such a line would be read with the wrong client. These
//! columns are valid only where no other one can be the client.

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
        is_word(value) && !value.ends_with(b":") && !is_address(value)
    }

    /// Whether this can be the user, and no column that the client may be in.
    pub(super) fn is_user(self, value: &[u8]) -> bool {
        if self.is_address && !self.has_ident {
            return true;
        }
        let mut words = value.split(|b| *b == b' ');
        (!self.has_ident || words.clone().count() == 1) && !words.any(is_address)
    }
}

/// Whether this can be the name of a host or of a user, and not a part of a line of another kind.
pub(super) fn is_word(text: &[u8]) -> bool {
    let is_other = |byte: &u8| byte.is_ascii_whitespace() || b"[]|,\"<>=".contains(byte);
    !text.is_empty() && !text.iter().any(is_other)
}
