//! Encodes requests and edits as bytes for sorting. A request can be decoded without parsing its
//! log line again.
//!
//! A log contains few distinct header names, so each name is stored once and referred to by number.

use std::borrow::Cow;
use std::collections::HashMap;

use loudou_limiter::Nanos;
use loudou_rules::request::Sample;

use super::record::{LoggedRequest, Text};
use super::verdict::LogVerdict;

/// Maximum number of header names that get a number. The number is limited because a hostile log
/// can contain arbitrarily many names.
const MOST_NAMES: usize = 1_024;

/// Location of a line: the index of its input and its line number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    /// Index of the input.
    pub(crate) input: u32,
    /// Line number (1-based).
    pub(crate) line: u64,
}

/// Header names found so far.
#[derive(Debug, Default)]
pub(crate) struct Names {
    numbers: HashMap<Box<str>, usize>,
    list: Vec<Box<str>>,
    /// Numbers of the last request's header names. The next request usually has the same names in
    /// the same order.
    last: Vec<usize>,
    /// True if some names have no number because the maximum was reached.
    pub(crate) is_full: bool,
    /// Request parts that occurred in at least one request, as [`flag`] bits.
    pub(crate) parts: u16,
}

impl Names {
    /// Returns the number of a header name, or `None` if the maximum is reached. `index` is the
    /// position of the header in its request.
    fn number(&mut self, index: usize, name: &str) -> Option<usize> {
        if let Some(number) = self.last.get(index)
            && self.list.get(*number).is_some_and(|last| **last == *name)
        {
            return Some(*number);
        }
        let number = match self.numbers.get(name) {
            Some(number) => *number,
            None if self.list.len() >= MOST_NAMES => {
                self.is_full = true;
                return None;
            }
            None => {
                let number = self.list.len();
                self.list.push(name.into());
                self.numbers.insert(name.into(), number);
                number
            }
        };
        if let Some(last) = self.last.get_mut(index) {
            *last = number;
        } else if self.last.len() < MOST_NAMES {
            self.last.push(number);
        }
        Some(number)
    }

    /// Returns all numbered names, in the order of their numbers.
    pub(crate) fn list(&self) -> &[Box<str>] {
        &self.list
    }
}

/// Flags in the first bytes of a record, which show the parts of the request that are present.
pub(crate) mod flag {
    pub(super) const EDIT: u16 = 1;
    pub(crate) const METHOD: u16 = 1 << 1;
    pub(crate) const PATH: u16 = 1 << 2;
    pub(crate) const HOST: u16 = 1 << 3;
    pub(super) const SOURCE: u16 = 1 << 4;
    pub(crate) const ROUTE: u16 = 1 << 5;
    pub(super) const COST: u16 = 1 << 6;
    pub(super) const MAX_WAIT: u16 = 1 << 7;
    pub(super) const DURATION: u16 = 1 << 8;
    pub(super) const STATUS: u16 = 1 << 9;
    pub(crate) const UNDERSCORES: u16 = 1 << 10;
    pub(super) const VERDICT: u16 = 1 << 11;
    pub(crate) const METADATA: u16 = 1 << 12;
    pub(crate) const SETTLED: u16 = 1 << 13;
}

/// Returns true if this record was written by [`edit`].
pub(crate) fn is_edit(mut bytes: &[u8]) -> bool {
    take_flags(&mut bytes).is_some_and(|flags| flags & flag::EDIT != 0)
}

/// Appends an edit to `out` as its original log line.
pub(crate) fn edit(out: &mut Vec<u8>, place: Place, line: &[u8]) {
    out.extend_from_slice(&flag::EDIT.to_le_bytes());
    write_place(out, place);
    write_text(out, line);
}

/// Appends a request to `out` without its timestamp, which the sorter stores separately.
pub(crate) fn request(
    out: &mut Vec<u8>,
    names: &mut Names,
    place: Place,
    logged: &LoggedRequest<'_>,
) {
    let request = &logged.request;
    let texts = [
        (flag::METHOD, &request.method),
        (flag::PATH, &request.path),
        (flag::HOST, &request.host),
        (flag::SOURCE, &request.source),
        (flag::ROUTE, &request.route),
    ];
    let numbers = [
        (flag::COST, request.cost),
        (flag::MAX_WAIT, request.max_wait.map(Nanos::get)),
        (flag::DURATION, logged.duration.map(Nanos::get)),
        (flag::STATUS, logged.status.map(u64::from)),
        (flag::VERDICT, logged.verdict.map(LogVerdict::number)),
        (flag::SETTLED, logged.settled),
    ];
    let mut flags = if request.underscores {
        flag::UNDERSCORES
    } else {
        0
    };
    for (flag, text) in &texts {
        flags |= if text.is_some() { *flag } else { 0 };
    }
    for (flag, number) in &numbers {
        flags |= if number.is_some() { *flag } else { 0 };
    }
    if !request.metadata.is_empty() {
        flags |= flag::METADATA;
    }
    names.parts |= flags;
    out.extend_from_slice(&flags.to_le_bytes());
    write_place(out, place);
    for text in texts.iter().filter_map(|(_, text)| text.as_deref()) {
        write_text(out, text);
    }
    for number in numbers.iter().filter_map(|(_, number)| *number) {
        write_number(out, number);
    }
    write_length(out, request.headers.len());
    for (index, (name, value)) in request.headers.iter().enumerate() {
        let number = names.number(index, name);
        write_length(out, number.map_or(0, |number| number + 1));
        if number.is_none() {
            write_text(out, name.as_bytes());
        }
        write_text(out, value);
    }
    if !request.metadata.is_empty() {
        write_length(out, request.metadata.len());
        for (path, value) in &request.metadata {
            write_text(out, path.as_bytes());
            write_text(out, value);
        }
    }
}

/// Decodes the output of [`edit`].
pub(crate) fn decode_edit(mut bytes: &[u8]) -> Option<(Place, &[u8])> {
    let rest = &mut bytes;
    take_flags(rest)?;
    Some((take_place(rest)?, take_text(rest)?))
}

/// Decodes the output of [`request`]. Returns `None` if the bytes are invalid.
pub(crate) fn decode<'a>(
    at: Nanos,
    mut bytes: &'a [u8],
    names: &'a Names,
) -> Option<(Place, LoggedRequest<'a>)> {
    let rest = &mut bytes;
    let flags = take_flags(rest)?;
    let place = take_place(rest)?;
    let mut text = |flag| (flags & flag != 0).then(|| take_text(rest));
    let (method, path) = (text(flag::METHOD), text(flag::PATH));
    let (host, source, route) = (text(flag::HOST), text(flag::SOURCE), text(flag::ROUTE));
    let mut number = |flag| (flags & flag != 0).then(|| take_number(rest));
    let (cost, max_wait) = (number(flag::COST), number(flag::MAX_WAIT));
    let (duration, status) = (number(flag::DURATION), number(flag::STATUS));
    let (verdict, settled) = (number(flag::VERDICT), number(flag::SETTLED));
    // A value that is present but invalid makes the whole record invalid.
    let text = |value: Option<Option<&'a [u8]>>| match value {
        Some(Some(value)) => Some(Some(Text::Borrowed(value))),
        Some(None) => None,
        None => Some(None),
    };
    let number = |value: Option<Option<u64>>| match value {
        Some(Some(value)) => Some(Some(value)),
        Some(None) => None,
        None => Some(None),
    };
    let request = Sample {
        method: text(method)?,
        path: text(path)?,
        host: text(host)?,
        source: text(source)?,
        route: text(route)?,
        cost: number(cost)?,
        max_wait: number(max_wait)?.map(Nanos::new),
        underscores: flags & flag::UNDERSCORES != 0,
        headers: take_headers(rest, names)?,
        metadata: if flags & flag::METADATA == 0 {
            Vec::new()
        } else {
            take_metadata(rest)?
        },
        ..Sample::default()
    };
    let logged = LoggedRequest {
        at,
        request,
        duration: number(duration)?.map(Nanos::new),
        status: number(status)?.and_then(|status| u16::try_from(status).ok()),
        settled: number(settled)?,
        verdict: number(verdict)?.map(LogVerdict::from_number),
        received: None,
    };
    Some((place, logged))
}

type Headers<'a> = Vec<(Cow<'a, str>, Text<'a>)>;

fn take_headers<'a>(rest: &mut &'a [u8], names: &'a Names) -> Option<Headers<'a>> {
    let count = take_length(rest)?;
    // Each header takes at least two bytes, so the remaining length bounds the allocation even if
    // the count is wrong.
    let mut headers = Vec::with_capacity(count.min(rest.len()));
    for _ in 0..count {
        let name = match take_length(rest)?.checked_sub(1) {
            Some(number) => names.list.get(number)?,
            None => str::from_utf8(take_text(rest)?).ok()?,
        };
        headers.push((Cow::Borrowed(name), Cow::Borrowed(take_text(rest)?)));
    }
    Some(headers)
}

fn take_metadata<'a>(rest: &mut &'a [u8]) -> Option<Vec<(String, Text<'a>)>> {
    let count = take_length(rest)?;
    // Each value takes at least two bytes, so the remaining length bounds the allocation even if
    // the count is wrong.
    let mut metadata = Vec::with_capacity(count.min(rest.len()));
    for _ in 0..count {
        let path = str::from_utf8(take_text(rest)?).ok()?.to_owned();
        metadata.push((path, Cow::Borrowed(take_text(rest)?)));
    }
    Some(metadata)
}

fn write_place(out: &mut Vec<u8>, place: Place) {
    write_number(out, place.input.into());
    write_number(out, place.line);
}

fn write_text(out: &mut Vec<u8>, text: &[u8]) {
    write_length(out, text.len());
    out.extend_from_slice(text);
}

fn write_length(out: &mut Vec<u8>, length: usize) {
    write_number(out, loudou_words::num::count(length));
}

/// Appends a number as a little-endian base-128 varint (LEB128). In every byte except the last, the
/// highest bit is set.
fn write_number(out: &mut Vec<u8>, mut number: u64) {
    while number > 0x7f {
        out.push((number & 0x7f).to_le_bytes().first().copied().unwrap_or(0) | 0x80);
        number >>= 7;
    }
    out.push(number.to_le_bytes().first().copied().unwrap_or(0));
}

fn take_flags(rest: &mut &[u8]) -> Option<u16> {
    let (flags, tail) = rest.split_first_chunk()?;
    *rest = tail;
    Some(u16::from_le_bytes(*flags))
}

fn take_place(rest: &mut &[u8]) -> Option<Place> {
    Some(Place {
        input: u32::try_from(take_number(rest)?).ok()?,
        line: take_number(rest)?,
    })
}

fn take_number(rest: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (byte, tail) = rest.split_first()?;
        *rest = tail;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

fn take_length(rest: &mut &[u8]) -> Option<usize> {
    usize::try_from(take_number(rest)?).ok()
}

fn take_text<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = take_length(rest)?;
    let (text, tail) = rest.split_at_checked(length)?;
    *rest = tail;
    Some(text)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(bytes: Option<&[u8]>) -> Option<Text<'_>> {
        bytes.map(Cow::Borrowed)
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            texts in prop::collection::vec(prop::option::of(prop::collection::vec(any::<u8>(), 0..200)), 5),
            numbers in prop::collection::vec(prop::option::of(any::<u64>()), 4),
            status in prop::option::of(any::<u16>()),
            verdict in prop::option::of((0_u64..3).prop_map(LogVerdict::from_number)),
            headers in prop::collection::vec(("[a-zA-Z_-]{0,3}", prop::collection::vec(any::<u8>(), 0..9)), 0..5),
            metadata in prop::collection::vec(("[a-z.]{0,5}", prop::collection::vec(any::<u8>(), 0..9)), 0..3),
            line in any::<u64>(),
            underscores in any::<bool>(),
        ) {
            let nanos = |index: usize| numbers[index].map(Nanos::new);
            let logged = LoggedRequest {
                at: Nanos::new(7),
                request: Sample {
                    method: text(texts[0].as_deref()),
                    path: text(texts[1].as_deref()),
                    host: text(texts[2].as_deref()),
                    source: text(texts[3].as_deref()),
                    route: text(texts[4].as_deref()),
                    cost: numbers[0],
                    max_wait: nanos(1),
                    underscores,
                    headers: headers
                        .iter()
                        .map(|(name, value)| (name.as_str().into(), value.as_slice().into()))
                        .collect(),
                    metadata: metadata
                        .iter()
                        .map(|(path, value)| (path.clone(), value.as_slice().into()))
                        .collect(),
                    ..Sample::default()
                },
                duration: nanos(2),
                status,
                settled: numbers[3],
                verdict,
                received: None,
            };
            let place = Place { input: 3, line };
            let (mut names, mut out) = (Names::default(), Vec::new());
            request(&mut out, &mut names, place, &logged);
            let Some((found, read)) = decode(Nanos::new(7), &out, &names) else {
                return Err(TestCaseError::fail("not read"));
            };
            prop_assert_eq!((found, read), (place, logged));
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let names = Names::default();
            let read = decode(Nanos::ZERO, &bytes, &names);
            prop_assert!(read.is_none_or(|(_, read)| read.request.headers.is_empty()));
        }
    }

    #[test]
    fn any_number_of_names_takes_bounded_memory() {
        let (mut names, mut out) = (Names::default(), Vec::new());
        for n in 0..3 * MOST_NAMES {
            out.clear();
            let logged = LoggedRequest {
                request: Sample {
                    headers: vec![(format!("x-{n}").into(), b"v"[..].into())],
                    ..Sample::default()
                },
                ..LoggedRequest::default()
            };
            request(&mut out, &mut names, Place::default(), &logged);
            let read = decode(Nanos::ZERO, &out, &names);
            assert!(matches!(read, Some((_, read)) if read == logged), "{n}");
        }
        assert_eq!((names.list.len(), names.is_full), (MOST_NAMES, true));
    }
}
