//! Text log formats: columns separated by literals. A format is compiled from NGINX's or Envoy's
//! notation.
//!
//! NGINX and Apache escape quotes inside a column, so a line can be parsed from left to right.
//! Envoy does not escape quotes. In Envoy's logs, the protocol marks the end of the request column.
//! The columns after the user agent are parsed backwards from the end of the line, and the
//! remainder is the user agent.

use columns::Columns;

use crate::record::{LoggedRequest, OtherLine, Unread};
use crate::verdict::decisions_length;

pub(crate) use envoy::envoy;
pub(crate) use nginx::{built_in, nginx};

mod client;
mod columns;
mod envoy;
mod nginx;

/// Maximum number of columns in a format.
const MOST_PIECES: usize = 64;
/// Maximum length of a format, in bytes.
const MAX_FORMAT: usize = 4_096;

/// A column and the literal that follows it.
#[derive(Clone, Debug)]
struct Piece {
    field: Field,
    /// Name of the column as written in the format.
    name: Box<str>,
    /// Literal after the column. Only the last column may have an empty literal, and then extends
    /// to the end of the line.
    then: Box<[u8]>,
}

/// Part of a format.
#[derive(Clone, Debug)]
enum Token {
    Literal(Vec<u8>),
    Column(Field, Box<str>),
}

/// Differences between programs in how they write logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Dialect {
    /// True if quotes and control characters inside a column are escaped.
    escapes: bool,
    /// True if the timestamp is the time at which the request ended.
    time_is_end: bool,
}

/// Format of a text log.
#[derive(Clone, Debug)]
pub struct Pattern {
    lead: Box<[u8]>,
    pieces: Vec<Piece>,
    /// Index of the column that receives the remainder of the line after all other columns have
    /// been parsed.
    pivot: Option<usize>,
    dialect: Dialect,
}

/// Describes where and why a line does not match a format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Misfit {
    /// Offset of the mismatch in the line.
    pub(crate) at: usize,
    /// Offset up to which the line matches the format if the mismatch is ignored.
    pub(crate) reach: usize,
    why: Why,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    /// The beginning of the line does not match.
    Lead,
    /// The literal after this column is missing.
    After(usize),
    /// The value of this column is invalid.
    Value(usize),
    /// The line continues after the last column.
    Longer,
    /// The request column is empty or contains no valid request.
    NoRequest,
    Connection,
}

impl Pattern {
    /// Compiles a format in NGINX's notation (`$remote_addr …`) or in Envoy's (`%START_TIME% …`).
    pub fn parse(format: &str) -> Result<Self, String> {
        let format = format.strip_suffix("\\n").unwrap_or(format).trim_end();
        if format.len() > MAX_FORMAT {
            return Err(format!("longer than {MAX_FORMAT} bytes"));
        }
        let operator = |found: &[u8]| matches!(found, [b'%', b'A'..=b'Z', ..]);
        let is_envoy = format.as_bytes().windows(2).any(operator);
        let pattern = match (is_envoy, format.contains('$')) {
            (true, _) => envoy(format)?,
            (false, true) => nginx(format)?,
            (false, false) => {
                return Err(
                    "expected NGINX's notation, like `$remote_addr [$time_local] \"$request\"`, \
                    or Envoy's, like `[%START_TIME%] \"%REQ(:METHOD)% %REQ(:PATH)%\"`"
                        .into(),
                );
            }
        };
        let has = |any: &[Field]| {
            pattern
                .pieces
                .iter()
                .any(|piece| any.contains(&piece.field))
        };
        if !has(&[Field::Time]) {
            let time = if is_envoy {
                "`%START_TIME%`"
            } else {
                "`$time_local`, `$time_iso8601` or `$msec`"
            };
            return Err(format!("the format has no time: expected {time}"));
        }
        if !has(&[Field::Request, Field::Method, Field::Path]) {
            let request = if is_envoy {
                "`%REQ(:PATH)%`"
            } else {
                "`$request` or `$request_uri`"
            };
            return Err(format!("the format has no request: expected {request}"));
        }
        Ok(pattern)
    }

    fn new(tokens: Vec<Token>, dialect: Dialect) -> Result<Self, String> {
        let mut pattern = Self {
            lead: Box::default(),
            pieces: Vec::new(),
            pivot: None,
            dialect,
        };
        for token in fused(tokens) {
            match (token, pattern.pieces.last_mut()) {
                (Token::Literal(text), None) => pattern.lead = text.into(),
                (Token::Literal(text), Some(piece)) => piece.then = text.into(),
                (Token::Column(_, name), Some(last)) if last.then.is_empty() => {
                    let before = &last.name;
                    return Err(format!("nothing separates {before} from {name}"));
                }
                (Token::Column(field, name), _) => pattern.pieces.push(Piece {
                    field,
                    name,
                    then: Box::default(),
                }),
            }
        }
        if pattern.pieces.len() > MOST_PIECES {
            return Err(format!("more than {MOST_PIECES} columns"));
        }
        let agent = |piece: &Piece| piece.field == Field::Header("user-agent".into());
        if !dialect.escapes {
            pattern.pivot = pattern.pieces.iter().position(agent);
        }
        Ok(pattern)
    }

    /// Parses a line. `is_known` is true if the user specified this format or an earlier line
    /// matched it.
    pub(crate) fn read<'a>(
        &'a self,
        line: &'a [u8],
        is_known: bool,
    ) -> Result<LoggedRequest<'a>, Misfit> {
        let misfit = |at, why| Misfit { at, reach: at, why };
        let mut rest = line
            .strip_prefix(&*self.lead)
            .ok_or_else(|| misfit(shared(line, &self.lead), Why::Lead))?;
        let offset = |rest: &[u8]| line.len() - rest.len();
        let mut columns = Columns::new(self.dialect, is_known);
        let forward = self.pivot.unwrap_or(self.pieces.len());
        let (mut garbled, mut doubtful) = (None, None);
        for (index, piece) in self.pieces.iter().enumerate().take(forward) {
            let found = self.end_of(index, rest);
            let end = found.ok_or_else(|| misfit(offset(rest), Why::After(index)))?;
            let (value, tail) = rest.split_at_checked(end).unwrap_or((rest, &[]));
            if let Err(wrong) = columns.set(piece, value) {
                let wrong = misfit(offset(rest), wrong.at(index));
                let kept = match piece.field {
                    Field::Request if !wrong.is_other() => &mut garbled,
                    Field::Client | Field::Ident | Field::User => &mut doubtful,
                    _ => return Err(wrong),
                };
                kept.get_or_insert(wrong);
            }
            rest = tail.get(piece.then.len()..).unwrap_or_default();
        }
        match self.pivot {
            Some(pivot) => self.backward(pivot, offset(rest), rest, &mut columns)?,
            None if !rest.is_empty() => return Err(misfit(offset(rest), Why::Longer)),
            None => {}
        }
        if let Some(wrong) = doubtful {
            let reach = line.len();
            return Err(Misfit { reach, ..wrong });
        }
        match garbled {
            None => Ok(columns.request()),
            // The request column is malformed and the server answered with a 4xx status, so the
            // server did not accept it as a request either. An example is a TLS handshake on a
            // plaintext port.
            Some(wrong) if columns.is_client_error() => Err(Misfit {
                why: Why::NoRequest,
                ..wrong
            }),
            Some(wrong) => Err(wrong),
        }
    }

    /// Returns the length of column `index`, which starts at the beginning of `rest`.
    fn end_of(&self, index: usize, rest: &[u8]) -> Option<usize> {
        let piece = self.pieces.get(index)?;
        if piece.then.is_empty() {
            return Some(rest.len());
        }
        if piece.field == Field::Decisions
            && let Some(end) = decisions_length(rest)
            && rest.get(end..)?.starts_with(&piece.then)
        {
            return Some(end);
        }
        let next = self.pieces.get(index + 1);
        match next {
            // The column before a timestamp is the user name, which can contain anything except the
            // literal that follows the timestamp.
            Some(time) if time.field == Field::Time && !time.then.is_empty() => {
                let end = find(rest, &time.then)?;
                memchr::memmem::rfind(rest.get(..end)?, &piece.then)
            }
            // The host can be an IPv6 address, so the port is the part after the last colon.
            Some(port) if port.field == Field::Port => {
                let end = find(rest, &port.then)?;
                memchr::memmem::rfind(rest.get(..end)?, &piece.then)
            }
            _ if self.dialect.escapes && piece.then.starts_with(b"\"") => {
                find_unescaped(rest, &piece.then)
            }
            // The path can contain quotes, which Envoy does not escape.
            _ if piece.field == Field::Request => end_of_request(rest, &piece.then),
            _ => find(rest, &piece.then),
        }
    }

    /// Parses the columns after `pivot` backwards from the end of the line, and `pivot` from the
    /// remainder. `from` is the offset of `rest` in the line.
    fn backward<'a>(
        &'a self,
        pivot: usize,
        from: usize,
        rest: &'a [u8],
        columns: &mut Columns<'a>,
    ) -> Result<(), Misfit> {
        let misfit = |at: usize, why: Why| Misfit { at, reach: at, why };
        let missing = |index: usize| misfit(from, Why::After(index));
        let last = self.pieces.len() - 1;
        let then = |index: usize| self.pieces.get(index).map_or(&[][..], |piece| &piece.then);
        let mut rest = rest.strip_suffix(then(last)).ok_or_else(|| missing(last))?;
        for index in (pivot..=last).rev() {
            let Some(piece) = self.pieces.get(index) else {
                continue;
            };
            let value = if index == pivot {
                rest
            } else {
                let before = then(index - 1);
                let found = match piece.field {
                    Field::Decisions => rfind_decisions(rest, before),
                    _ => memchr::memmem::rfind(rest, before),
                };
                let found = found.ok_or_else(|| missing(index - 1))?;
                let value = rest.get(found + before.len()..).unwrap_or_default();
                rest = rest.get(..found).unwrap_or_default();
                value
            };
            let set = columns.set(piece, value);
            set.map_err(|wrong| misfit(from + rest.len(), wrong.at(index)))?;
        }
        Ok(())
    }

    /// Converts a mismatch to the error for a line that does not match this format.
    pub(crate) fn unread(&self, misfit: Misfit) -> Unread {
        let quoted = |text: &[u8]| format!("`{}`", String::from_utf8_lossy(text));
        let piece = |index: usize| self.pieces.get(index);
        let mut untimed = false;
        let message = match misfit.why {
            Why::NoRequest => return Unread::Other(OtherLine::NoRequest),
            Why::Connection => return Unread::Other(OtherLine::Connection),
            Why::Lead => format!("expected {}", quoted(&self.lead)),
            Why::Longer => "expected the end of the line".to_owned(),
            Why::After(index) => {
                let Some(piece) = piece(index) else {
                    return Unread::bad("too few columns");
                };
                format!("expected {} after {}", quoted(&piece.then), piece.name)
            }
            Why::Value(index) => match piece(index).map(|piece| &piece.field) {
                Some(Field::Time) => {
                    untimed = true;
                    "expected a time like 10/Oct/2000:13:55:36 -0700, 2016-04-15T20:17:00.310Z or \
                     1460751420.310"
                        .to_owned()
                }
                Some(Field::Request) => "the request is not `METHOD PATH PROTOCOL`".to_owned(),
                Some(Field::Client | Field::KnownClient | Field::ClientAddress) => {
                    "expected the client's address".to_owned()
                }
                Some(Field::Source) => {
                    let name = piece(index).map_or("", |piece| &piece.name);
                    format!("expected an address in {name}")
                }
                Some(Field::Ident) => "expected `-` after the client's address".to_owned(),
                Some(Field::User) => {
                    "expected a user; this leaves open which column is the client".to_owned()
                }
                Some(Field::VirtualHost) => "expected the name of a virtual host".to_owned(),
                _ => format!(
                    "expected digits in {}",
                    piece(index).map_or("", |p| &p.name)
                ),
            },
        };
        Unread::Bad {
            message: format!("column {}: {message}", misfit.at + 1),
            at: misfit.at,
            untimed,
        }
    }
}

impl Misfit {
    /// Returns true if the line matches the format but is not a request.
    pub(crate) const fn is_other(self) -> bool {
        matches!(self.why, Why::NoRequest | Why::Connection)
    }
}

/// Merges adjacent method, path and protocol columns into one request column. Of the three, only
/// the path can contain spaces.
fn fused(tokens: Vec<Token>) -> Vec<Token> {
    let is_space = |token: &Token| matches!(token, Token::Literal(text) if *text == *b" ");
    let mut out: Vec<Token> = Vec::with_capacity(tokens.len());
    for token in tokens {
        if let (
            [
                ..,
                Token::Column(Field::Method, _),
                first,
                Token::Column(Field::Path, name),
                second,
            ],
            Token::Column(Field::Other, protocol),
        ) = (out.as_slice(), &token)
            && is_space(first)
            && is_space(second)
            && protocol.to_ascii_uppercase().contains("PROTOCOL")
        {
            let name = name.clone();
            out.truncate(out.len() - 4);
            out.push(Token::Column(Field::Request, name));
            continue;
        }
        out.push(token);
    }
    out
}

/// Type of a column, which determines how its value is parsed and used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Field {
    Time,
    /// `METHOD PATH PROTOCOL`.
    Request,
    Method,
    Path,
    Query,
    Host,
    /// Address of the client, with or without a port.
    Source,
    /// Like [`Self::Source`], but in a built-in format. The value is an address, a host name or
    /// `-`.
    Client,
    /// Client address or host name, but never `-`, after a virtual host with a port.
    KnownClient,
    /// Client address, but never a host name, after a virtual host without a port.
    ClientAddress,
    /// User name according to the client's identd: one word, or `-` if unknown.
    Ident,
    /// Authenticated user name, which can be any text if the line begins with an address and `-`.
    User,
    /// Virtual host without a port. An IP address is accepted only if the format is already known.
    VirtualHost,
    Route,
    Status,
    /// Duration of the request, or a part of it, in this unit. If a line has several duration
    /// columns, their sum is the duration of the request.
    Duration(Unit),
    /// Size of the request body, in bytes.
    Received,
    Header(Box<str>),
    Cookie(Box<str>),
    /// Envoy's response code details, which give the cause of the response.
    Cause,
    /// Decisions of the filter. The list can contain spaces and commas.
    Decisions,
    /// Port that follows a host.
    Port,
    /// Number of bytes, or `-`.
    Digits,
    Other,
}

/// Unit of a duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    Milliseconds,
    Seconds,
}

// Functions that search for a literal in a line.

/// Maximum number of positions at which the start of a decision list is looked for.
const MOST_PLACES: usize = 64;

/// Returns the length of the common prefix of two byte strings.
fn shared(one: &[u8], other: &[u8]) -> usize {
    one.iter().zip(other).take_while(|(a, b)| a == b).count()
}

/// Returns the position of the first occurrence of `mark`, which is expected to be short.
fn find(text: &[u8], mark: &[u8]) -> Option<usize> {
    let first = *mark.first()?;
    let mut from = 0;
    loop {
        let rest = text.get(from..)?;
        let found = memchr::memchr(first, rest)?;
        if rest.get(found..)?.starts_with(mark) {
            return Some(from + found);
        }
        from += found + 1;
    }
}

/// Returns the position of the first occurrence of `mark` whose leading quote is not escaped with a
/// backslash.
fn find_unescaped(text: &[u8], mark: &[u8]) -> Option<usize> {
    let mut from = 0;
    loop {
        let rest = text.get(from..)?;
        let found = memchr::memchr2(b'\\', b'"', rest)?;
        let here = rest.get(found..)?;
        if here.first() == Some(&b'\\') {
            from += found + 2;
        } else if here.starts_with(mark) {
            return Some(from + found);
        } else {
            from += found + 1;
        }
    }
}

/// Returns the position of the `mark` before the decision list at the end of `text`. A decision
/// list can itself contain `mark`, so the longest list is chosen. Without a decision list, this is
/// the last occurrence of `mark`.
fn rfind_decisions(text: &[u8], mark: &[u8]) -> Option<usize> {
    let places = memchr::memmem::rfind_iter(text, mark).take(MOST_PLACES);
    let lists = places.filter(|at| {
        let list = text.get(at + mark.len()..).unwrap_or_default();
        decisions_length(list) == Some(list.len())
    });
    lists.last().or_else(|| memchr::memmem::rfind(text, mark))
}

/// Returns the end of `METHOD PATH PROTOCOL` in a log that does not escape quotes. The request ends
/// at the first `mark` that follows a protocol.
///
/// A path with quotes can contain `mark`, but it cannot contain spaces, because Envoy refuses them.
/// So the first protocol after two spaces is the real one, even if the path or a later column
/// contains text that looks like a protocol. If there is no protocol, as in a custom format, the
/// request ends at the first `mark`.
fn end_of_request(text: &[u8], mark: &[u8]) -> Option<usize> {
    let mut from = 0;
    while let Some(found) = text.get(from..).and_then(|rest| find(rest, mark)) {
        let end = from + found;
        if text.get(..end).is_some_and(ends_in_protocol) {
            return Some(end);
        }
        from = end + 1;
    }
    find(text, mark)
}

/// Returns true if `request` consists of at least two words followed by a protocol, such as
/// `HTTP/1.1` or `-`.
fn ends_in_protocol(request: &[u8]) -> bool {
    let mut words = request.rsplitn(3, |byte| *byte == b' ');
    let (last, path, method) = (words.next(), words.next(), words.next());
    let is_protocol = |word: &[u8]| match word.strip_prefix(b"HTTP/") {
        Some(version) => {
            let is_version = |byte: &u8| byte.is_ascii_digit() || *byte == b'.';
            !version.is_empty() && version.iter().all(is_version)
        }
        None => word == b"-",
    };
    last.is_some_and(is_protocol) && path.is_some() && method.is_some()
}

#[cfg(test)]
mod tests;
