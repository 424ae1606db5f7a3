//! Collects the column values of a line, and builds the request from them.

use std::borrow::Cow;

use loudou_limiter::Nanos;
use loudou_rules::request::Sample;

use super::client::{Client, is_host_name, is_known_host, is_virtual_host, is_word};
use super::{Dialect, Field, Piece, Unit, Why};
use crate::instant;
use crate::record::{LoggedRequest, Text};
use crate::source::{self, is_address};
use crate::verdict::LogVerdict;
use loudou_words::num::whole;

/// Columns parsed so far in a line.
pub(super) struct Columns<'a> {
    dialect: Dialect,
    /// True if the format is already known. Otherwise, columns are checked more strictly to detect
    /// the format.
    is_known: bool,
    client: Client,
    at: Nanos,
    duration: Option<Nanos>,
    status: Option<u16>,
    verdict: Option<LogVerdict>,
    received: Option<u64>,
    request: Sample<'a>,
    query: Option<Text<'a>>,
}

/// Reason why a column's value is invalid.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wrong {
    Kind,
    NoRequest,
    Connection,
}

impl Wrong {
    pub(super) const fn at(self, index: usize) -> Why {
        match self {
            Self::Kind => Why::Value(index),
            Self::NoRequest => Why::NoRequest,
            Self::Connection => Why::Connection,
        }
    }
}

impl<'a> Columns<'a> {
    pub(super) fn new(dialect: Dialect, is_known: bool) -> Self {
        Self {
            dialect,
            is_known,
            client: Client::default(),
            at: Nanos::ZERO,
            duration: None,
            status: None,
            verdict: None,
            received: None,
            request: Sample::default(),
            query: None,
        }
    }

    /// Sets the value of a column.
    pub(super) fn set(&mut self, piece: &'a Piece, value: &'a [u8]) -> Result<(), Wrong> {
        let request = &mut self.request;
        let escapes = self.dialect.escapes;
        let text = || known(value).map(|value| plain(value, escapes));
        match &piece.field {
            Field::Other => {}
            Field::Time => self.at = time(value).ok_or(Wrong::Kind)?,
            Field::Request => return self.request_line(value),
            Field::Method => request.method = text(),
            Field::Path => request.path = text(),
            Field::Query => self.query = text(),
            Field::Host => request.host = text(),
            Field::VirtualHost
            | Field::Client
            | Field::KnownClient
            | Field::ClientAddress
            | Field::Ident
            | Field::User => return self.identity(&piece.field, value),
            Field::Source => return self.source(value),
            Field::Route => request.route = text(),
            Field::Status => {
                if known(value).is_some() {
                    let status = digits(value).ok_or(Wrong::Kind)?;
                    self.status = status.try_into().ok();
                }
            }
            Field::Duration(unit) => return self.lasts(*unit, value),
            Field::Header(name) => {
                if let Some(value) = text() {
                    request.headers.push((Cow::Borrowed(name), value));
                }
            }
            Field::Cookie(name) => {
                if let Some(value) = text() {
                    let pair = [name.as_bytes(), b"=", &value].concat();
                    request.headers.push((Cow::Borrowed("cookie"), pair.into()));
                }
            }
            Field::Cause => {
                self.verdict = self.verdict.max(Some(LogVerdict::of_cause(value)));
            }
            Field::Decisions => {
                self.verdict = self.verdict.max(Some(LogVerdict::of_decisions(value)));
            }
            Field::Received => self.received = digits(value),
            Field::Port => {
                let is_port = has_host(request) && digits(value).is_some();
                return is_port.then_some(()).ok_or(Wrong::Kind);
            }
            Field::Digits => {
                if known(value).is_some() {
                    digits(value).ok_or(Wrong::Kind)?;
                }
            }
        }
        Ok(())
    }

    /// Sets the client address. Rejects values with characters that belong to other columns.
    fn source(&mut self, value: &'a [u8]) -> Result<(), Wrong> {
        let is_other = |byte: &u8| byte.is_ascii_whitespace() || b",\"".contains(byte);
        if value.iter().any(is_other) {
            return Err(Wrong::Kind);
        }
        let address = known(value).and_then(source::address);
        self.request.source = address.map(Cow::Borrowed);
        Ok(())
    }

    /// Adds a duration column to the total duration.
    fn lasts(&mut self, unit: Unit, value: &[u8]) -> Result<(), Wrong> {
        if known(value).is_some()
            && let Some(more) = span(unit, value)?
        {
            let before = self.duration.unwrap_or_default();
            self.duration = Some(before.saturating_add(more));
        }
        Ok(())
    }

    /// Sets the host, client, ident or user column of a built-in format.
    fn identity(&mut self, field: &Field, value: &'a [u8]) -> Result<(), Wrong> {
        let is_valid = match field {
            Field::VirtualHost => {
                let text = known(value).map(|value| plain(value, self.dialect.escapes));
                self.request.host = text;
                if self.is_known {
                    is_known_host(value)
                } else {
                    is_virtual_host(value) && !is_address(value)
                }
            }
            Field::Ident => self.client.ident(value),
            Field::User => self.client.is_user(value),
            _ => {
                let address = source::address(value);
                let is_socket = address.is_none() && is_word(value);
                self.client.is_address = is_address(value);
                self.request.source = address.map(Cow::Borrowed);
                match field {
                    Field::ClientAddress => self.client.is_address,
                    Field::KnownClient if known(value).is_none() => false,
                    _ => self.client.is_address || is_host_name(value) || is_socket,
                }
            }
        };
        is_valid.then_some(()).ok_or(Wrong::Kind)
    }

    /// Parses `METHOD PATH PROTOCOL`.
    fn request_line(&mut self, line: &'a [u8]) -> Result<(), Wrong> {
        if matches!(line, b"" | b"-") || line.starts_with(b"- http") {
            return Err(Wrong::NoRequest);
        }
        if line == b"- - -" {
            return Err(Wrong::Connection);
        }
        let first = memchr::memchr(b' ', line).ok_or(Wrong::Kind)?;
        let last = memchr::memrchr(b' ', line).filter(|last| *last > first);
        let last = last.ok_or(Wrong::Kind)?;
        let method = line.get(..first).unwrap_or_default();
        let path = line.get(first + 1..last).unwrap_or_default();
        let (host, path) = absolute(path);
        let escapes = self.dialect.escapes;
        let text = |value| known(value).map(|value| plain(value, escapes));
        self.request.method = text(method);
        self.request.path = text(path);
        if self.request.host.is_none() {
            self.request.host = host.and_then(text);
        }
        Ok(())
    }

    /// Returns true if the response status was 4xx.
    pub(super) fn is_client_error(&self) -> bool {
        self.status
            .is_some_and(|status| (400..500).contains(&status))
    }

    /// Builds the request after all columns have been parsed.
    pub(super) fn request(self) -> LoggedRequest<'a> {
        let Self {
            dialect,
            mut at,
            duration,
            status,
            verdict,
            received,
            mut request,
            query,
            ..
        } = self;
        if dialect.time_is_end {
            at = Nanos::new(at.get().saturating_sub(duration.unwrap_or_default().get()));
        }
        if let Some(query) = query
            && request
                .path
                .as_ref()
                .is_none_or(|path| !path.contains(&b'?'))
        {
            let path = request.path.take().unwrap_or_default();
            request.path = Some([&*path, b"?", &*query].concat().into());
        }
        LoggedRequest {
            at,
            request,
            duration,
            status,
            settled: None,
            verdict,
            received,
        }
    }
}

/// Returns true if the text before the last colon is a host name or a complete address, not a
/// truncated IPv6 address.
fn has_host(request: &Sample<'_>) -> bool {
    let host = request.host.as_deref().unwrap_or_default();
    is_virtual_host(host)
}

/// Splits a URL such as `https://example.com:443/path` into host and path. Any other path is
/// returned unchanged.
fn absolute(path: &[u8]) -> (Option<&[u8]>, &[u8]) {
    let rest = [&b"http://"[..], b"https://", b"ws://", b"wss://"]
        .iter()
        .find_map(|scheme| path.strip_prefix(*scheme));
    let Some(rest) = rest else {
        return (None, path);
    };
    let end = rest.iter().position(|b| *b == b'/').unwrap_or(rest.len());
    match rest.split_at_checked(end) {
        Some((host, b"")) => (Some(host), b"/"),
        Some((host, path)) => (Some(host), path),
        None => (None, path),
    }
}

/// Returns the column, or `None` if it is empty or `-`.
fn known(column: &[u8]) -> Option<&[u8]> {
    Some(column).filter(|column| !column.is_empty() && **column != *b"-")
}

/// Parses a timestamp in any supported format.
fn time(text: &[u8]) -> Option<Nanos> {
    match text.get(2) {
        Some(b'/') => instant::common_log(text),
        _ => instant::rfc3339(text).or_else(|| instant::epoch(text)),
    }
}

/// Parses a duration. A negative value, such as the -1 that stands for an unanswered request,
/// yields `None`.
fn span(unit: Unit, text: &[u8]) -> Result<Option<Nanos>, Wrong> {
    let text = str::from_utf8(text).map_err(|_not_text| Wrong::Kind)?;
    if let (Unit::Milliseconds, Ok(ms)) = (unit, text.parse()) {
        return Ok(Some(Nanos::from_millis(ms)));
    }
    let micros = match unit {
        Unit::Milliseconds => 1e3,
        Unit::Seconds => 1e6,
    };
    let number: f64 = text.parse().map_err(|_not_a_number| Wrong::Kind)?;
    // Logs have at most microsecond precision, so rounding removes the error of the multiplication.
    let nanos = whole((number * micros).round()).saturating_mul(1_000);
    Ok((number >= 0.0).then_some(Nanos::new(nanos)))
}

fn digits(text: &[u8]) -> Option<u64> {
    let is_number = text.iter().all(u8::is_ascii_digit);
    let text = str::from_utf8(text).ok().filter(|_| is_number)?;
    text.parse().ok()
}

/// Decodes the escape sequences of NGINX (`\x22`) and Apache (also `\"`, `\\`, `\n` and similar).
fn plain(text: &[u8], escapes: bool) -> Text<'_> {
    if !escapes || memchr::memchr(b'\\', text).is_none() {
        return Cow::Borrowed(text);
    }
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, tail)) = rest.split_first() {
        let (byte, tail) = match tail.split_first() {
            Some((mark, after)) if *first == b'\\' => match mark {
                b'x' => byte(after).unwrap_or((b'\\', tail)),
                b'"' | b'\\' => (*mark, after),
                b'n' => (b'\n', after),
                b't' => (b'\t', after),
                b'r' => (b'\r', after),
                b'b' => (8, after),
                b'f' => (12, after),
                b'v' => (11, after),
                _ => (b'\\', tail),
            },
            _ => (*first, tail),
        };
        out.push(byte);
        rest = tail;
    }
    Cow::Owned(out)
}

/// Parses two hexadecimal digits at the start of `text`. Returns the byte and the rest of `text`.
fn byte(text: &[u8]) -> Option<(u8, &[u8])> {
    let (digits, rest) = text.split_at_checked(2)?;
    let is_hex = digits.iter().all(u8::is_ascii_hexdigit);
    let digits = str::from_utf8(digits).ok().filter(|_| is_hex)?;
    Some((u8::from_str_radix(digits, 16).ok()?, rest))
}
