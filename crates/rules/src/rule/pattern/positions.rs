//! Converts a tree to the positions of a Glushkov automaton: the characters of a pattern, with its
//! repetitions expanded, and the characters that may follow each of them.
//!
//! Conditions such as `\b` take no time at match time. Each position represents characters of a
//! single kind, so this module can determine in advance whether a condition holds between two
//! positions.

use alloc::vec;
use alloc::vec::Vec;

use super::bits::{Rows, both};
use super::tree::{EDGE, Kind, Node, Places, Tree};

/// Set of positions in a pattern.
#[derive(Debug)]
pub(super) struct Positions {
    /// For each position, the index of its class in the tree and the kind of its characters.
    pub each: Vec<(usize, Kind)>,
    /// Number of words in a set of positions.
    pub words: usize,
    /// A row for each position, with the positions that may follow it.
    pub follow: Rows,
    /// Positions at which a value may start.
    pub first: Vec<u64>,
    /// Positions at which a value may end.
    pub last: Vec<u64>,
    /// True if the empty value matches.
    pub empty: bool,
}

/// Returns the distinct kinds of the characters in a class.
fn kinds_of(tree: &Tree, class: usize) -> Vec<Kind> {
    let mut kinds = Vec::new();
    let ranges = tree.classes.get(class).map(super::class::Class::ranges);
    for (first, last) in ranges.unwrap_or_default() {
        // Beyond ASCII, all characters have the same kind.
        for code in *first..=(*last).min(first.saturating_add(128)) {
            let kind = tree.distinct.kind(code);
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
    }
    kinds
}

impl Positions {
    /// Returns the positions of a pattern, or `None` if there are more than `most`.
    pub(super) fn of(tree: &Tree, most: usize) -> Option<Self> {
        let kinds: Vec<Vec<Kind>> = (0..tree.classes.len())
            .map(|class| kinds_of(tree, class))
            .collect();
        let count = tree
            .root
            .positions(&|class| kinds.get(class).map_or(0, Vec::len));
        if count > most {
            return None;
        }
        let words = count.div_ceil(64).max(1);
        let sides = tree.distinct.kinds();
        let mut builder = Builder {
            kinds,
            sides,
            words,
            of_kind: Rows::new(usize::from(sides), words),
            each: Vec::with_capacity(count),
            follow: Rows::new(count, words),
        };
        let whole = builder.piece(&tree.root);
        Some(Self {
            first: whole.first.row(usize::from(EDGE)).to_vec(),
            last: whole.last.row(usize::from(EDGE)).to_vec(),
            empty: whole.empty.has(EDGE, EDGE),
            each: builder.each,
            words,
            follow: builder.follow,
        })
    }
}

struct Builder {
    /// Kinds of the characters in each class.
    kinds: Vec<Vec<Kind>>,
    /// Number of kinds of neighbours.
    sides: Kind,
    words: usize,
    /// A row for each kind, with the positions of this kind.
    of_kind: Rows,
    each: Vec<(usize, Kind)>,
    follow: Rows,
}

/// A part of the pattern.
struct Piece {
    /// A row for each kind of preceding character, with the positions at which the part may start.
    first: Rows,
    /// A row for each kind of following character, with the positions at which the part may end.
    last: Rows,
    /// Places at which the part matches the empty string.
    empty: Places,
}

impl Builder {
    fn nothing(&self, empty: Places) -> Piece {
        let rows = Rows::new(usize::from(self.sides), self.words);
        Piece {
            first: rows.clone(),
            last: rows,
            empty,
        }
    }

    fn piece(&mut self, node: &Node) -> Piece {
        match node {
            Node::Empty(places) => self.nothing(*places),
            Node::Class(class) => self.class(*class),
            Node::Concat(parts) => {
                let mut parts = parts.iter().rev();
                let last = parts.next().map(|part| self.piece(part));
                let mut whole = last.unwrap_or_else(|| self.nothing(Places::ALL));
                for part in parts {
                    let part = self.piece(part);
                    whole = self.concat(part, &whole);
                }
                whole
            }
            Node::Either(branches) => {
                let mut whole = self.nothing(Places::NONE);
                for branch in branches {
                    let branch = self.piece(branch);
                    whole.empty = whole.empty.or(branch.empty);
                    for side in (0..self.sides).map(usize::from) {
                        let (first, last) = (branch.first.row(side), branch.last.row(side));
                        whole.first.add(side, first, first);
                        whole.last.add(side, last, last);
                    }
                }
                whole
            }
            Node::Repeat(node, least, most) => self.repeat(node, *least, *most),
        }
    }

    fn class(&mut self, class: usize) -> Piece {
        let mut piece = self.nothing(Places::NONE);
        for kind in self.kinds.get(class).cloned().unwrap_or_default() {
            let position = self.each.len();
            self.each.push((class, kind));
            self.of_kind.set(usize::from(kind), position);
            for side in (0..self.sides).map(usize::from) {
                piece.first.set(side, position);
                piece.last.set(side, position);
            }
        }
        piece
    }

    /// Builds the copies of a repeated node from right to left, so that each copy is connected only
    /// to its successor.
    fn repeat(&mut self, node: &Node, least: usize, most: Option<usize>) -> Piece {
        let mut whole = self.nothing(Places::ALL);
        let mut copies = most.unwrap_or(least);
        if most.is_none() {
            whole = self.piece(node);
            self.connect(&whole.last, &whole.first);
            copies = copies.saturating_sub(1);
            if least == 0 {
                whole.empty = Places::ALL;
            }
        }
        for copy in (0..copies).rev() {
            let piece = self.piece(node);
            whole = self.concat(piece, &whole);
            if copy >= least {
                whole.empty = Places::ALL;
            }
        }
        whole
    }

    fn concat(&mut self, mut before: Piece, after: &Piece) -> Piece {
        self.connect(&before.last, &after.first);
        let mut last = after.last.clone();
        for side in 0..self.sides {
            let row = usize::from(side);
            for kind in 0..self.sides {
                let only = self.of_kind.row(usize::from(kind));
                if before.empty.has(side, kind) {
                    before.first.add(row, after.first.row(row), only);
                }
                if after.empty.has(kind, side) {
                    last.add(row, before.last.row(row), only);
                }
            }
        }
        Piece {
            first: before.first,
            last,
            empty: before.empty.and(after.empty),
        }
    }

    /// Records that the positions in `first` may follow the positions in `last`.
    fn connect(&mut self, last: &Rows, first: &Rows) {
        let mut to = vec![0; self.words];
        for before in (0..self.sides).map(usize::from) {
            for after in (0..self.sides).map(usize::from) {
                let kinds = (self.of_kind.row(before), self.of_kind.row(after));
                let pairs = first.row(before).iter().zip(kinds.1);
                for (to, (first, kind)) in to.iter_mut().zip(pairs) {
                    *to = first & kind;
                }
                if to.iter().all(|word| *word == 0) {
                    continue;
                }
                for position in both(last.row(after), kinds.0) {
                    self.follow.add(position, &to, &to);
                }
            }
        }
    }
}
