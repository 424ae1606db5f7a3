//! Searches in a line.

use crate::verdict::decisions_length;

/// The most places at which decisions are looked for.
const MOST_PLACES: usize = 64;

/// The length of the common start of two texts.
pub(super) fn shared(one: &[u8], other: &[u8]) -> usize {
    one.iter().zip(other).take_while(|(a, b)| a == b).count()
}

/// The first `mark`, which is short.
pub(super) fn find(text: &[u8], mark: &[u8]) -> Option<usize> {
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

/// The first `mark`, which begins with a quote, that no backslash escapes.
pub(super) fn find_unescaped(text: &[u8], mark: &[u8]) -> Option<usize> {
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

/// The last `mark`; before decisions, which may contain it, the one before the longest list of them.
pub(super) fn rfind_decisions(text: &[u8], mark: &[u8]) -> Option<usize> {
    let places = memchr::memmem::rfind_iter(text, mark).take(MOST_PLACES);
    let lists = places.filter(|at| {
        let list = text.get(at + mark.len()..).unwrap_or_default();
        decisions_length(list) == Some(list.len())
    });
    lists.last().or_else(|| memchr::memmem::rfind(text, mark))
}
