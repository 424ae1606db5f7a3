//! Byte layout of the record: a fixed-size head, the IDs of all parts of the rules, and then the
//! encoded parts in the same order. The IDs tell readers which parts have changed, so that they do
//! not have to decode the others.
//!
//! A later build may append its own data after the parts ([`super::Later`]). This build preserves
//! that data.

use std::borrow::Cow;
use std::rc::Rc;

use super::part::{Id, PARTS, Text};
use super::rule::Parts;
use super::{Later, Record, RuleRecord};
use crate::formats::{RECORD, RECORD_NAME};
use crate::instance::{DIGITS, Instance};

/// Magic bytes and format version at the start of a record. An earlier format started with a brace.
const MAGIC: [u8; 8] = {
    let [a, b, c, d, e, f, g] = RECORD_NAME;
    [a, b, c, d, e, f, g, RECORD]
};
/// Size of an encoded part ID, in bytes.
const ID: usize = size_of::<u128>() + size_of::<u32>();
/// Size of the head, in bytes.
const HEAD: usize = MAGIC.len() + DIGITS + 4 * size_of::<u64>() + 3 * size_of::<u32>();
/// An encoded part with its ID.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stored<'a> {
    pub(super) id: Id,
    pub(super) text: &'a [u8],
}

/// A rule's encoded parts: base, edit, edited overrides, and history.
pub(super) type StoredRule<'a> = [Stored<'a>; PARTS];

/// IDs and encodings of a rule's four parts.
pub(super) type Texts<'a> = [(Id, Cow<'a, [u8]>); PARTS];

/// A record whose parts have not been decoded yet.
#[derive(Debug)]
pub(super) struct Layout<'a> {
    /// The record without its rules.
    pub(super) head: Record,
    pub(super) rules: Vec<StoredRule<'a>>,
    pub(super) gone: Vec<StoredRule<'a>>,
}

/// A reader that consumes bytes from the front of a slice.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*first)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// Reads the number of rules in a list. Returns `None` if there are not enough bytes left for
    /// this many rules.
    fn count(&mut self) -> Option<usize> {
        let count = usize::try_from(self.u32()?).ok()?;
        (count.checked_mul(PARTS * ID)? <= self.0.len()).then_some(count)
    }

    fn text(&mut self, bytes: u32) -> Option<&'a [u8]> {
        let (text, rest) = self.0.split_at_checked(usize::try_from(bytes).ok()?)?;
        self.0 = rest;
        Some(text)
    }

    /// Reads the data appended by a later build.
    fn later(&mut self) -> Option<Later> {
        if self.0.is_empty() {
            return Some(Later::default());
        }
        let bytes = self.u32()?;
        let appended = self.text(bytes).filter(|appended| !appended.is_empty())?;
        Some(Later {
            appended: Rc::from(appended),
            ..Later::default()
        })
    }

    fn ids(&mut self, rules: usize) -> Option<Vec<StoredRule<'a>>> {
        let mut all = Vec::with_capacity(rules);
        for _ in 0..rules {
            let mut rule = [Stored {
                id: Id::default(),
                text: &[],
            }; PARTS];
            for part in &mut rule {
                let hash = u128::from_le_bytes(self.array()?);
                let bytes = self.u32()?;
                part.id = Id { hash, bytes };
            }
            all.push(rule);
        }
        Some(all)
    }

    fn texts(&mut self, rules: &mut [StoredRule<'a>]) -> Option<()> {
        for part in rules.iter_mut().flatten() {
            part.text = self.text(part.id.bytes)?;
        }
        Some(())
    }
}

impl<'a> Layout<'a> {
    /// Parses the layout. Returns `None` if the bytes are corrupt or have another format.
    pub(super) fn read(bytes: &'a [u8]) -> Option<Self> {
        let mut rest = Rest(bytes);
        if rest.array()? != MAGIC {
            return None;
        }
        let id: [u8; DIGITS] = rest.array()?;
        let head = Record {
            instance: Instance::of(&id, rest.u64()?)?,
            generation: rest.u64()?,
            since_ns: rest.u64()?,
            taken_ns: rest.u64()?,
            rollbacks: rest.u32()?,
            ..Record::default()
        };
        let rules = rest.count()?;
        let gone = rest.count()?;
        let mut rules = rest.ids(rules)?;
        let mut gone = rest.ids(gone)?;
        rest.texts(&mut rules)?;
        rest.texts(&mut gone)?;
        let later = rest.later()?;
        let head = Record { later, ..head };
        rest.0.is_empty().then_some(Self { head, rules, gone })
    }

    /// Returns the encoding of the part with this ID, if any rule has such a part. The rule at
    /// `place` is checked first, because rules are rarely reordered.
    fn text(&self, place: usize, part: usize, id: Id) -> Option<&'a [u8]> {
        let all = || self.rules.iter().chain(&self.gone);
        let near = all().nth(place).into_iter();
        let mut stored = near.chain(all()).filter_map(|rule| rule.get(part));
        stored
            .find(|stored| stored.id == id)
            .map(|found| found.text)
    }
}

/// Encodes a record. Parts that are already encoded in the previous record (`found`) are copied
/// instead of being encoded again.
pub(super) fn write(record: &Record, found: Option<&Layout<'_>>) -> Vec<u8> {
    assemble(record, &texts(record, found))
}

/// Like [`write()`], but also sets the IDs of the record's parts.
pub(super) fn write_and_identify(record: &mut Record, found: Option<&Layout<'_>>) -> Vec<u8> {
    let texts = texts(record, found);
    let bytes = assemble(record, &texts);
    let (ids, _) = texts.as_chunks::<PARTS>();
    for (rule, texts) in record.every_mut().zip(ids) {
        let ids = texts.each_ref().map(|(id, _)| *id);
        if !rule.is_identified() {
            Rc::make_mut(rule).identify(ids);
        }
    }
    bytes
}

/// Encodes the parts of all rules, in rule order.
fn texts<'a>(record: &Record, found: Option<&Layout<'a>>) -> Vec<(Id, Cow<'a, [u8]>)> {
    let rules = record.all().enumerate();
    rules
        .flat_map(|(at, rule)| parts(at, rule, found))
        .collect()
}

/// Concatenates a record's head, part IDs and encoded parts.
pub(super) fn assemble(record: &Record, parts: &[(Id, Cow<'_, [u8]>)]) -> Vec<u8> {
    let (known, _) = parts.as_chunks::<PARTS>();
    let (known, gone_known) = known.split_at(record.rules.len().min(known.len()));
    let rules = record.later.beside(known, false);
    let gone = record.later.beside(gone_known, true);
    let all = || rules.iter().chain(&gone).flatten();
    let appended = &record.later.appended;
    let texts: usize = all().map(|part| part.text.len()).sum();
    let mut bytes = Vec::with_capacity(HEAD + all().count() * ID + texts + appended.len() + 4);
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(record.instance.id.as_bytes());
    for number in [
        record.instance.started_unix_ms,
        record.generation,
        record.since_ns,
        record.taken_ns,
    ] {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    let wide = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
    for number in [record.rollbacks, wide(rules.len()), wide(gone.len())] {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    for part in all() {
        bytes.extend_from_slice(&part.id.hash.to_le_bytes());
        bytes.extend_from_slice(&part.id.bytes.to_le_bytes());
    }
    for part in all() {
        bytes.extend_from_slice(part.text);
    }
    if !appended.is_empty() {
        bytes.extend_from_slice(&wide(appended.len()).to_le_bytes());
        bytes.extend_from_slice(appended);
    }
    bytes
}

/// Encodes the parts of the rule at index `place`.
fn parts<'a>(place: usize, rule: &RuleRecord, found: Option<&Layout<'a>>) -> Texts<'a> {
    let parts: &Parts = rule;
    let write = [
        |parts: &Parts| parts.base.write(),
        |parts: &Parts| parts.edit.write(),
        |parts: &Parts| parts.own.write(),
        |parts: &Parts| parts.history.write(),
    ];
    let ids = [
        parts.base.id(),
        parts.edit.id(),
        parts.own.id(),
        parts.history.id(),
    ];
    let mut known = ids.into_iter().enumerate();
    write.map(|write| {
        let stored = known.next().and_then(|(part, id)| {
            let text = found?.text(place, part, id?)?;
            Some((id?, Cow::Borrowed(text)))
        });
        stored.unwrap_or_else(|| {
            let text = write(parts);
            (Id::of(&text), Cow::Owned(text))
        })
    })
}
