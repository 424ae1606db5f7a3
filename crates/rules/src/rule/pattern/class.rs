//! Sets of characters, as ranges of code points.

use alloc::vec::Vec;

/// Maximum code point.
const LAST: u32 = 0x0010_FFFF;
/// Distance between an ASCII letter and the same letter in the other case.
const CASE: u32 = 32;

/// A set of characters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Class {
    /// First and last code point of each range, in order, with a gap between any two ranges.
    ranges: Vec<(u32, u32)>,
}

impl Class {
    pub(super) fn of(ranges: &[(u32, u32)]) -> Self {
        let mut class = Self::default();
        for (first, last) in ranges {
            class.add(*first, *last);
        }
        class
    }

    /// Returns the POSIX class with this name, which is written as `[:name:]` in patterns.
    pub(super) fn named(name: &str) -> Option<Self> {
        let ranges: &[&[u8; 2]] = match name {
            "alnum" => &[b"09", b"AZ", b"az"],
            "alpha" => &[b"AZ", b"az"],
            "ascii" => &[b"\x00\x7f"],
            "blank" => &[b"\t\t", b"  "],
            "cntrl" => &[b"\x00\x1f", b"\x7f\x7f"],
            "digit" => &[b"09"],
            "graph" => &[b"!~"],
            "lower" => &[b"az"],
            "print" => &[b" ~"],
            "punct" => &[b"!/", b":@", b"[`", b"{~"],
            "space" => &[b"\t\r", b"  "],
            "upper" => &[b"AZ"],
            "word" => &[b"09", b"AZ", b"__", b"az"],
            "xdigit" => &[b"09", b"AF", b"af"],
            _ => return None,
        };
        let mut class = Self::default();
        for [first, last] in ranges {
            class.add(u32::from(*first), u32::from(*last));
        }
        Some(class)
    }

    pub(super) fn ranges(&self) -> &[(u32, u32)] {
        &self.ranges
    }

    /// Adds a range.
    pub(super) fn add(&mut self, mut first: u32, mut last: u32) {
        self.ranges.retain(|(own_first, own_last)| {
            let touches =
                *own_first <= last.saturating_add(1) && first <= own_last.saturating_add(1);
            if touches {
                first = first.min(*own_first);
                last = last.max(*own_last);
            }
            !touches
        });
        let at = self.ranges.partition_point(|(own, _)| *own < first);
        self.ranges.insert(at, (first, last));
    }

    pub(super) fn add_all(&mut self, other: &Self) {
        for (first, last) in &other.ranges {
            self.add(*first, *last);
        }
    }

    /// Adds the other case of each ASCII letter in the class.
    pub(super) fn add_other_case(&mut self) {
        for (first, last) in self.ranges.clone() {
            let within = |from: u8, to: u8| (first.max(from.into()), last.min(to.into()));
            let (from, to) = within(b'a', b'z');
            if from <= to {
                self.add(from.saturating_sub(CASE), to.saturating_sub(CASE));
            }
            let (from, to) = within(b'A', b'Z');
            if from <= to {
                self.add(from.saturating_add(CASE), to.saturating_add(CASE));
            }
        }
    }

    /// Returns the class of all characters that are not in this class.
    pub(super) fn negated(&self) -> Self {
        let mut ranges = Vec::new();
        let mut next = 0;
        for (first, last) in &self.ranges {
            if next < *first {
                ranges.push((next, first.saturating_sub(1)));
            }
            next = last.saturating_add(1);
        }
        if next <= LAST {
            ranges.push((next, LAST));
        }
        Self { ranges }
    }

    pub(super) fn has(&self, code: u32) -> bool {
        let mut ranges = self.ranges.iter();
        ranges.any(|(first, last)| (*first..=*last).contains(&code))
    }
}
