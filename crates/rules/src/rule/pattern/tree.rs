//! Represents a pattern as a tree that contains only the parts that affect whether a value matches.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::class::Class;

/// Kind of neighbour, as distinguished by conditions such as `^` and `\b`. [`EDGE`] is the
/// beginning or the end of a value. All other values are kinds of characters.
pub(super) type Kind = u8;
pub(super) const EDGE: Kind = 0;
pub(super) const WORD: Kind = 1;
pub(super) const FEED: Kind = 2;
pub(super) const RETURN: Kind = 3;
pub(super) const OTHER: Kind = 4;
/// Number of kinds of neighbours.
pub(super) const KINDS: u8 = 5;

/// A condition on a place in a value, represented by the set of all pairs of neighbours for which
/// it holds. Any combination of conditions can therefore also be represented by a set of pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Places(u32);

impl Places {
    pub(super) const ALL: Self = Self(u32::MAX);
    pub(super) const NONE: Self = Self(0);

    /// Returns the places between `before` and `after` for which `holds` is true.
    pub(super) fn of(holds: impl Fn(Kind, Kind) -> bool) -> Self {
        let mut places = 0;
        for before in 0..KINDS {
            for after in 0..KINDS {
                if holds(before, after) {
                    places |= Self::bit(before, after);
                }
            }
        }
        Self(places)
    }

    const fn bit(before: Kind, after: Kind) -> u32 {
        let place = before.saturating_mul(KINDS).saturating_add(after);
        1_u32.rotate_left(u32::from_le_bytes([place, 0, 0, 0]))
    }

    pub(super) const fn has(self, before: Kind, after: Kind) -> bool {
        self.0 & Self::bit(before, after) != 0
    }

    pub(super) const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    pub(super) const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// The kinds of characters distinguished by a pattern's conditions.
#[derive(Clone, Copy, Debug, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a kind of characters"
)]
pub(super) struct Distinct {
    /// True if the pattern has any conditions.
    pub any: bool,
    pub words: bool,
    pub feeds: bool,
    pub returns: bool,
}

impl Distinct {
    /// Number of kinds of neighbours.
    pub(super) const fn kinds(self) -> Kind {
        if self.any { KINDS } else { 1 }
    }

    /// Returns the kind of a character.
    pub(super) fn kind(self, code: u32) -> Kind {
        let ascii = u8::try_from(code).unwrap_or(u8::MAX);
        match ascii {
            _ if !self.any => EDGE,
            b'\n' if self.feeds => FEED,
            b'\r' if self.returns => RETURN,
            b'_' | b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' if self.words => WORD,
            _ => OTHER,
        }
    }
}

/// A pattern.
#[derive(Debug)]
pub(super) struct Tree {
    pub root: Node,
    /// The distinct sets of characters in the pattern.
    pub classes: Vec<Class>,
    pub distinct: Distinct,
}

/// A part of a pattern.
#[derive(Debug)]
pub(super) enum Node {
    /// The empty string, at these places.
    Empty(Places),
    /// A character of the class with this index.
    Class(usize),
    Concat(Vec<Self>),
    Either(Vec<Self>),
    /// A repeated node, with its minimum and maximum number of repetitions.
    Repeat(Box<Self>, usize, Option<usize>),
}

impl Node {
    /// Concatenates parts.
    pub(super) fn concat(parts: Vec<Self>) -> Self {
        let mut joined: Vec<Self> = Vec::with_capacity(parts.len());
        for part in parts {
            match (part, joined.last_mut()) {
                (Self::Empty(Places::ALL), _) => {}
                (Self::Empty(places), Some(Self::Empty(earlier))) => {
                    *earlier = earlier.and(places);
                }
                (part, _) => joined.push(part),
            }
        }
        Self::only(joined, Self::Concat).unwrap_or(Self::Empty(Places::ALL))
    }

    /// Combines parts as alternatives.
    pub(super) fn either(branches: Vec<Self>) -> Self {
        let mut joined: Vec<Self> = Vec::with_capacity(branches.len());
        let mut empty = Places::NONE;
        for branch in branches {
            match branch {
                Self::Empty(places) => empty = empty.or(places),
                branch => joined.push(branch),
            }
        }
        if empty != Places::NONE || joined.is_empty() {
            joined.push(Self::Empty(empty));
        }
        Self::only(joined, Self::Either).unwrap_or(Self::Empty(empty))
    }

    fn only(mut parts: Vec<Self>, all: fn(Vec<Self>) -> Self) -> Option<Self> {
        if parts.len() > 1 {
            return Some(all(parts));
        }
        parts.pop()
    }

    /// Repeats a node. Repetitions of the empty string and nested repetitions such as `a+*` do not
    /// add a level to the tree, so that its size is bounded by the number of positions.
    pub(super) fn repeat(self, least: usize, most: Option<usize>) -> Self {
        let is_simple = |least, most| least <= 1 && matches!(most, None | Some(1));
        match (self, least, most) {
            (Self::Empty(_), 0, _) | (_, _, Some(0)) => Self::Empty(Places::ALL),
            (node @ Self::Empty(_), ..) | (node, 1, Some(1)) => node,
            (Self::Repeat(node, own_least, own_most), least, most)
                if is_simple(least, most) && is_simple(own_least, own_most) =>
            {
                let is_once = most == Some(1) && own_most == Some(1);
                let least = if own_least == 0 { 0 } else { least };
                Self::Repeat(node, least, is_once.then_some(1))
            }
            (node, least, most) => Self::Repeat(Box::new(node), least, most),
        }
    }

    /// Returns the number of positions in the pattern, with its repetitions expanded. `of_class`
    /// returns the number of positions of a class.
    pub(super) fn positions(&self, of_class: &dyn Fn(usize) -> usize) -> usize {
        let sum = |parts: &[Self]| {
            let each = parts.iter().map(|part| part.positions(of_class));
            each.fold(0, usize::saturating_add)
        };
        match self {
            Self::Empty(_) => 0,
            Self::Class(class) => of_class(*class),
            Self::Concat(parts) | Self::Either(parts) => sum(parts),
            Self::Repeat(node, least, most) => {
                let times = most.unwrap_or_else(|| (*least).max(1));
                node.positions(of_class).saturating_mul(times)
            }
        }
    }
}
