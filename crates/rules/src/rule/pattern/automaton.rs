//! Matches values by tracking the set of all pattern positions that the characters read so far may
//! have reached.
//!
//! Each step uses a table to look up which positions may follow, for four positions of the set at a
//! time. The next step keeps only the positions whose class contains the next character. The
//! maximum number of table rows needed for a character depends only on the pattern, so the cost of
//! the most expensive character is known once the pattern has been parsed.

use alloc::vec::Vec;

use super::bits::{Rows, place};
use super::class::Class;
use super::positions::Positions;
use super::tree::Tree;

/// Maximum number of 64-bit words in a set of positions.
pub(super) const MAX_WORDS: usize = super::syntax::MAX_POSITIONS / 64;
/// Number of table entries per group of eight positions: 16 for the subsets of the first four
/// positions, and 16 for the subsets of the other four.
const ENTRIES: usize = 32;
const GROUP_SIZE: usize = 8;
/// Number of ASCII characters.
const ASCII: usize = 128;
/// First code point after ASCII.
const FIRST_BEYOND: u32 = 128;
/// First value after the last code point.
const END: u32 = 0x0011_0000;

// Costs in nanoseconds on a typical processor in Envoy's sandbox. `cargo xtask bench regex`
// compares these costs with measurements on the current machine.

/// Cost of each character.
const CHARACTER: usize = 20;
/// Cost of each word of the set.
const WORD: usize = 6;
/// Cost of each group of eight positions that a character may reach.
const GROUP: usize = 6;
/// Additional cost of each group that a character may reach, per word of the group's table rows.
const ROW: usize = 2;

/// An automaton that matches whole values.
#[derive(Debug)]
pub(super) struct Automaton {
    /// Class of each ASCII character, as a row index in `masks`.
    ascii: Vec<u8>,
    /// Classes of the characters beyond ASCII. Each class applies from its code point up to the
    /// code point of the next entry.
    beyond: Vec<(u32, u8)>,
    /// A row for each class, with the positions that accept its characters.
    masks: Rows,
    groups: Vec<Group>,
    /// Table rows of all groups.
    table: Vec<u64>,
    /// Positions at which a value may start.
    first: Set,
    /// Positions at which a value may end.
    last: Set,
    empty: bool,
    /// Number of words in each set.
    words: usize,
    /// Time needed for the most expensive character, in nanoseconds.
    cost: usize,
}

/// A set of positions.
type Set = [u64; MAX_WORDS];

/// Eight positions.
#[derive(Clone, Copy, Debug)]
struct Group {
    /// Index of the group's first row in the table.
    at: usize,
    /// First word with positions that may follow these, and number of words up to and including the
    /// last such word.
    word: usize,
    words: usize,
}

/// State at the end of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct End {
    /// True if further characters could complete a match.
    pub is_open: bool,
    /// True if the value matches.
    pub matches: bool,
}

impl Automaton {
    /// Creates an automaton for the positions of a tree. Returns `None` if there are too many
    /// character classes.
    pub(super) fn new(tree: &Tree, positions: &Positions) -> Option<Self> {
        let mut own = Self {
            ascii: Vec::with_capacity(ASCII),
            beyond: Vec::new(),
            masks: Rows::new(0, positions.words),
            groups: Vec::new(),
            table: Vec::new(),
            first: set(&positions.first),
            last: set(&positions.last),
            empty: positions.empty,
            words: positions.words,
            cost: 0,
        };
        own.classify(tree, positions)?;
        own.tabulate(positions);
        own.cost = own.cost();
        Some(own)
    }

    /// Partitions the characters into classes. Two characters are in the same class if they are
    /// accepted by the same positions.
    fn classify(&mut self, tree: &Tree, positions: &Positions) -> Option<()> {
        let starts = starts(tree);
        let ends = starts.iter().skip(1).copied().chain([END]);
        for (start, end) in starts.iter().copied().zip(ends) {
            let has: Vec<bool> = tree.classes.iter().map(|class| class.has(start)).collect();
            let kind = tree.distinct.kind(start);
            let mut mask: Set = [0; MAX_WORDS];
            for (position, (class, own)) in positions.each.iter().enumerate() {
                if *own == kind && has.get(*class) == Some(&true) {
                    let (word, bit) = place(position);
                    if let Some(word) = mask.get_mut(word) {
                        *word |= bit;
                    }
                }
            }
            let class = self.masks.index_of(mask.get(..self.words)?);
            let class = u8::try_from(class).ok()?;
            while self.ascii.len() < ASCII && u32::try_from(self.ascii.len()).ok()? < end {
                self.ascii.push(class);
            }
            if end > FIRST_BEYOND && self.beyond.last().map(|(_, last)| *last) != Some(class) {
                self.beyond.push((start.max(FIRST_BEYOND), class));
            }
        }
        Some(())
    }

    /// Fills `groups` and `table`.
    fn tabulate(&mut self, positions: &Positions) {
        for from in (0..positions.each.len()).step_by(GROUP_SIZE) {
            let follow = |at: usize| positions.follow.row(from.saturating_add(at));
            let is_used = |word: &usize| {
                (0..GROUP_SIZE).any(|at| follow(at).get(*word).is_some_and(|bits| *bits != 0))
            };
            let mut used = (0..self.words).filter(is_used);
            let first = used.next();
            let last = used.next_back().or(first);
            // If sets are one word long, `step_in_one_word` needs rows of one word.
            let none = usize::from(self.words == 1);
            let words = first.zip(last).map_or(none, |(first, last)| {
                last.saturating_sub(first).saturating_add(1)
            });
            let word = first.unwrap_or_default();
            self.groups.push(Group {
                at: self.table.len(),
                word,
                words,
            });
            for entry in 0..ENTRIES {
                let half = (entry >> 4) << 2;
                for word in word..word.saturating_add(words) {
                    let of_bit = |bit: usize| {
                        let is_in = (entry >> bit) & 1 == 1;
                        let row = follow(half.saturating_add(bit));
                        row.get(word).copied().filter(|_| is_in)
                    };
                    let all = (0..4).filter_map(of_bit);
                    self.table.push(all.fold(0, |sum, bits| sum | bits));
                }
            }
        }
    }

    /// Returns the time, in nanoseconds, needed for the most expensive character. The time depends
    /// on the groups that a character may reach.
    fn cost(&self) -> usize {
        let of_class = |class: usize| {
            let bytes = self
                .masks
                .row(class)
                .iter()
                .flat_map(|word| word.to_le_bytes());
            let reached = self.groups.iter().zip(bytes).filter(|(_, byte)| *byte != 0);
            reached.fold(CHARACTER, |sum, (group, _)| {
                let rows = ROW.saturating_mul(group.words);
                sum.saturating_add(GROUP).saturating_add(rows)
            })
        };
        let worst = (0..self.masks.len()).map(of_class).max();
        let of_words = WORD.saturating_mul(self.words);
        worst.unwrap_or(CHARACTER).saturating_add(of_words)
    }

    /// Returns the maximum time per byte of a value, in nanoseconds.
    pub(super) const fn cost_per_byte(&self) -> usize {
        self.cost
    }

    /// Returns the memory used by the automaton, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let words = self.table.len().saturating_add(self.masks.size());
        let groups = self.groups.len().saturating_mul(size_of::<Group>());
        let beyond = self.beyond.len().saturating_mul(size_of::<(u32, u8)>());
        size_of::<Self>()
            .saturating_add(words.saturating_mul(8))
            .saturating_add(groups)
            .saturating_add(beyond)
            .saturating_add(ASCII)
    }

    /// Reads a value, or the beginning of a truncated value.
    pub(super) fn run(&self, value: &[u8], is_cut: bool) -> End {
        let mut run = Run {
            automaton: self,
            next: self.first,
            matches: self.empty,
        };
        let mut left = value.len();
        for chunk in value.utf8_chunks() {
            let (valid, invalid) = (chunk.valid(), chunk.invalid());
            left = left
                .saturating_sub(valid.len())
                .saturating_sub(invalid.len());
            // An incomplete character at the end of a truncated value may have been valid before
            // the truncation.
            let is_end = is_cut && left == 0;
            let replaced = !invalid.is_empty() && !is_end;
            let replaced = replaced.then_some(char::REPLACEMENT_CHARACTER);
            for c in valid.chars().chain(replaced) {
                if !run.step(c) {
                    return End {
                        is_open: false,
                        matches: false,
                    };
                }
            }
        }
        End {
            is_open: run.next != [0; MAX_WORDS],
            matches: run.matches,
        }
    }

    fn class_of(&self, c: char) -> usize {
        let code = u32::from(c);
        let ascii = usize::try_from(code)
            .ok()
            .and_then(|code| self.ascii.get(code));
        let class = ascii.copied().unwrap_or_else(|| {
            let after = self.beyond.partition_point(|(start, _)| *start <= code);
            let class = self.beyond.get(after.wrapping_sub(1));
            class.map_or(0, |(_, class)| *class)
        });
        usize::from(class)
    }
}

/// State while a value is being read.
struct Run<'a> {
    automaton: &'a Automaton,
    /// Positions at which the next character may match.
    next: Set,
    /// True if the value would match if it ended here.
    matches: bool,
}

impl Run<'_> {
    /// Reads a character. Returns false if the value can no longer match.
    fn step(&mut self, c: char) -> bool {
        let own = self.automaton;
        let mask = own.masks.row(own.class_of(c));
        if own.words == 1 {
            return self.step_in_one_word(mask);
        }
        let mut now: Set = [0; MAX_WORDS];
        let (mut any, mut matches) = (0, 0);
        let sets = self.next.iter().zip(&own.last);
        for ((now, mask), (next, last)) in now.iter_mut().zip(mask).zip(sets) {
            *now = next & mask;
            any |= *now;
            matches |= *now & last;
        }
        self.matches = matches != 0;
        if any == 0 {
            return false;
        }
        self.next = [0; MAX_WORDS];
        for (now, groups) in now.iter().zip(own.groups.chunks(8)) {
            if *now == 0 {
                continue;
            }
            for (byte, group) in now.to_le_bytes().iter().zip(groups) {
                if *byte != 0 {
                    self.add(*byte, group);
                }
            }
        }
        true
    }

    /// Adds the positions that may follow those positions of a group whose bits are set in `byte`.
    fn add(&mut self, byte: u8, group: &Group) {
        let (low, high) = entries(byte);
        let table = &self.automaton.table;
        let row = |entry: usize| {
            let at = entry.wrapping_mul(group.words).wrapping_add(group.at);
            table.get(at..).unwrap_or_default().iter()
        };
        let next = self.next.iter_mut().skip(group.word).take(group.words);
        for ((next, low), high) in next.zip(row(low)).zip(row(high)) {
            *next |= low | high;
        }
    }

    fn step_in_one_word(&mut self, mask: &[u64]) -> bool {
        let own = self.automaton;
        let ([next, ..], [last, ..], [mask, ..]) = (&mut self.next, &own.last, mask) else {
            return false;
        };
        let now = *next & mask;
        self.matches = now & last != 0;
        *next = 0;
        for (byte, rows) in now
            .to_le_bytes()
            .iter()
            .zip(own.table.chunks_exact(ENTRIES))
        {
            if *byte != 0 {
                let (low, high) = entries(*byte);
                for entry in [low, high] {
                    *next |= rows.get(entry).copied().unwrap_or_default();
                }
            }
        }
        now != 0
    }
}

/// Returns the indices of the two table entries for those positions of a group whose bits are set
/// in `byte`.
fn entries(byte: u8) -> (usize, usize) {
    (usize::from(byte & 15), usize::from(byte >> 4) | 16)
}

fn set(words: &[u64]) -> Set {
    let mut set = [0; MAX_WORDS];
    for (to, word) in set.iter_mut().zip(words) {
        *to = *word;
    }
    set
}

/// Returns, in order, the code points at which the class or the kind of characters may change.
fn starts(tree: &Tree) -> Vec<u32> {
    let mut starts = alloc::vec![0];
    let mut add = |start: u32| {
        if let Err(at) = starts.binary_search(&start) {
            starts.insert(at, start);
        }
    };
    let kinds = [
        Class::named("word"),
        Some(Class::of(&[(0x0a, 0x0a), (0x0d, 0x0d)])),
    ];
    let kinds = kinds.iter().flatten().filter(|_| tree.distinct.any);
    for class in tree.classes.iter().chain(kinds) {
        for (first, last) in class.ranges() {
            add(*first);
            add(last.saturating_add(1).min(END.saturating_sub(1)));
        }
    }
    starts
}
