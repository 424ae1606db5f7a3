//! Parses patterns in the syntax of the regex-lite crate, for which the first rule files were
//! written.
//!
//! A pattern only determines whether the whole value matches, so groups capture nothing, and
//! repetitions are neither greedy nor lazy. Group names and laziness are accepted and ignored.

use alloc::string::String;
use alloc::vec::Vec;
use core::mem::take;
use core::str::Chars;

use super::class::Class;
use super::tree::{Distinct, EDGE, FEED, Node, Places, RETURN, Tree, WORD};

mod classes;
mod escapes;

/// Maximum nesting depth of groups.
const MAX_DEPTH: u32 = 16;
/// Maximum number of positions, which is also the capacity of an automaton's sets.
pub(super) const MAX_POSITIONS: usize = 512;
pub(super) const TOO_LARGE: &str =
    "too large: with its repetitions written out it has more than 512 characters";

type Read<T> = Result<T, &'static str>;

/// Parses a pattern. `Err` describes the problem.
pub(super) fn parse(text: &str) -> Read<Tree> {
    let mut reader = Reader {
        chars: text.chars(),
        flags: Flags::default(),
        classes: Vec::new(),
        distinct: Distinct::default(),
    };
    let root = reader.branches(0)?;
    if reader.peek().is_some() {
        return Err("`)` without `(`");
    }
    Ok(Tree {
        root,
        classes: reader.classes,
        distinct: reader.distinct,
    })
}

#[derive(Clone, Copy, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag of the syntax"
)]
struct Flags {
    any_case: bool,
    lines: bool,
    dot_feeds: bool,
    returns: bool,
    spaced: bool,
}

struct Reader<'a> {
    chars: Chars<'a>,
    flags: Flags,
    classes: Vec<Class>,
    distinct: Distinct,
}

impl Reader<'_> {
    fn peek(&self) -> Option<char> {
        self.chars.clone().next()
    }

    fn peek_second(&self) -> Option<char> {
        self.chars.clone().nth(1)
    }

    fn eat(&mut self, text: &str) -> bool {
        let rest = self.chars.as_str().strip_prefix(text);
        if let Some(rest) = rest {
            self.chars = rest.chars();
        }
        rest.is_some()
    }

    /// Returns the next character. If the flag `x` is set, skips any whitespace and comments after
    /// the character.
    fn next(&mut self) -> Option<char> {
        let next = self.chars.next();
        self.skip_space();
        next
    }

    fn skip_space(&mut self) {
        while self.flags.spaced {
            match self.peek() {
                Some('#') => while self.chars.next().is_some_and(|c| c != '\n') {},
                Some(c) if c.is_whitespace() => {
                    self.chars.next();
                }
                _ => return,
            }
        }
    }

    /// Parses alternatives up to the end of their group.
    fn branches(&mut self, depth: u32) -> Read<Node> {
        if depth > MAX_DEPTH {
            return Err("groups are nested too deeply; allowed: 16 levels");
        }
        let (mut branches, mut parts) = (Vec::new(), Vec::new());
        loop {
            self.skip_space();
            match self.peek() {
                None | Some(')') => break,
                Some('|') => {
                    self.chars.next();
                    branches.push(Node::concat(take(&mut parts)));
                }
                Some('(') => parts.extend(self.group(depth)?),
                Some('?' | '*' | '+' | '{') => {
                    let Some(node) = parts.pop() else {
                        return Err("nothing to repeat before `?`, `*`, `+` or `{`");
                    };
                    let (least, most) = self.times()?;
                    let node = Node::repeat(node, least, most);
                    if node.positions(&|_| 1) > MAX_POSITIONS {
                        return Err(TOO_LARGE);
                    }
                    parts.push(node);
                }
                Some(_) => parts.push(self.single()?),
            }
        }
        branches.push(Node::concat(parts));
        let node = Node::either(branches);
        if node.positions(&|_| 1) > MAX_POSITIONS {
            return Err(TOO_LARGE);
        }
        Ok(node)
    }

    /// Parses a group. Returns `None` for flags without a group, such as `(?i)`.
    fn group(&mut self, depth: u32) -> Read<Option<Node>> {
        let outside = self.flags;
        self.next();
        if ["?=", "?!", "?<=", "?<!"].iter().any(|look| self.eat(look)) {
            return Err("look-around is not supported");
        }
        if self.eat("?P<") || self.eat("?<") {
            self.name()?;
        } else if self.eat("?") && self.flags()? {
            return Ok(None);
        }
        let node = self.branches(depth.saturating_add(1))?;
        if self.chars.next() != Some(')') {
            return Err("`(` without `)`");
        }
        self.flags = outside;
        Ok(Some(node))
    }

    /// Parses the name of a group.
    fn name(&mut self) -> Read<()> {
        let name = self.chars.as_str().split_once('>');
        let Some((name, rest)) = name else {
            return Err("the name of a group has no `>` at its end");
        };
        let is_part = |c: char| {
            !c.is_ascii() || c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '[' | ']')
        };
        let starts_well =
            !name.starts_with(|c: char| c.is_ascii() && !c.is_ascii_alphabetic() && c != '_');
        if name.is_empty() || !starts_well || !name.chars().all(is_part) {
            return Err("invalid name of a group");
        }
        self.chars = rest.chars();
        Ok(())
    }

    /// Parses flags after `(?`. Returns true if they end with `)`, in which case they apply to the
    /// rest of the enclosing group.
    fn flags(&mut self) -> Read<bool> {
        let (mut on, mut seen, mut nothing) = (true, String::new(), false);
        loop {
            let Some(c) = self.chars.next() else {
                return Err("`(?` without `:` or `)`");
            };
            let flag = match c {
                ':' | ')' if seen.ends_with('-') => return Err("no flag after `-`"),
                ')' if seen.is_empty() => return Err("`(?)` has no flag"),
                ':' | ')' => return Ok(c == ')'),
                _ if seen.chars().any(|other| other == c) => return Err("a flag is repeated"),
                '-' => {
                    on = false;
                    seen.push(c);
                    continue;
                }
                'i' => &mut self.flags.any_case,
                'm' => &mut self.flags.lines,
                's' => &mut self.flags.dot_feeds,
                'R' => &mut self.flags.returns,
                'x' => &mut self.flags.spaced,
                // Neither flag affects whether a value matches.
                'U' | 'u' => &mut nothing,
                _ => return Err("unknown flag; allowed: i, m, s, R, U, u, x"),
            };
            *flag = on;
            seen.push(c);
        }
    }

    /// Parses the minimum and maximum number of repetitions of the preceding part.
    fn times(&mut self) -> Read<(usize, Option<usize>)> {
        let times = match self.chars.next() {
            Some('?') => (0, Some(1)),
            Some('*') => (0, None),
            Some('+') => (1, None),
            _ => self.counted()?,
        };
        self.eat("?");
        Ok(times)
    }

    fn counted(&mut self) -> Read<(usize, Option<usize>)> {
        self.skip_space();
        let least = self.number()?;
        let mut most = Some(least);
        if self.peek() == Some(',') {
            self.next();
            most = None;
            if self.peek() != Some('}') {
                most = Some(self.number()?);
            }
        }
        if self.next() != Some('}') {
            return Err("`{` without `}`; allowed: {3}, {3,}, {3,5}");
        }
        if most.is_some_and(|most| least > most) {
            return Err("a repetition with a minimum above its maximum");
        }
        Ok((least, most))
    }

    fn number(&mut self) -> Read<usize> {
        let mut number: Option<usize> = None;
        while self.peek().is_some_and(char::is_whitespace) {
            self.chars.next();
        }
        while let Some(digit) = self.peek().and_then(|c| c.to_digit(10)) {
            let digit = usize::try_from(digit).unwrap_or_default();
            number = Some(number.unwrap_or(0).saturating_mul(10).saturating_add(digit));
            self.next();
        }
        while self.peek().is_some_and(char::is_whitespace) {
            self.chars.next();
        }
        number.ok_or("a number is missing; allowed: {3}, {3,}, {3,5}")
    }

    /// Parses a part that contains no other parts.
    fn single(&mut self) -> Read<Node> {
        let class = match self.chars.next() {
            Some('[') => self.bracket()?,
            Some('.') => self.dot(),
            Some('\\') => match self.escape()? {
                escapes::Escaped::Place(node) => return Ok(node),
                escapes::Escaped::Char(c) => self.letter(c),
                escapes::Escaped::Class(class) => class,
            },
            Some('^') if self.flags.lines => {
                let returns = self.flags.returns;
                return Ok(self.line(|before, after| {
                    before == EDGE || before == FEED || returns && before == RETURN && after != FEED
                }));
            }
            Some('$') if self.flags.lines => {
                let returns = self.flags.returns;
                return Ok(self.line(|before, after| {
                    after == EDGE
                        || after == FEED && (!returns || before != RETURN)
                        || returns && after == RETURN
                }));
            }
            Some('^') => return Ok(self.place(|before, _| before == EDGE)),
            Some('$') => return Ok(self.place(|_, after| after == EDGE)),
            Some(c) => self.letter(c),
            None => return Err("the pattern ends too early"),
        };
        Ok(self.class(class))
    }

    /// Returns a node for a condition on the neighbouring characters.
    fn place(&mut self, holds: impl Fn(u8, u8) -> bool) -> Node {
        self.distinct.any = true;
        Node::Empty(Places::of(holds))
    }

    /// Returns a node for a condition on line boundaries.
    fn line(&mut self, holds: impl Fn(u8, u8) -> bool) -> Node {
        self.distinct.feeds = true;
        self.distinct.returns |= self.flags.returns;
        self.place(holds)
    }

    /// Returns a node for a condition on whether the neighbours are word characters.
    fn word(&mut self, holds: impl Fn(bool, bool) -> bool) -> Node {
        self.distinct.words = true;
        self.place(|before, after| holds(before == WORD, after == WORD))
    }

    fn dot(&self) -> Class {
        match (self.flags.dot_feeds, self.flags.returns) {
            (true, _) => Class::default().negated(),
            (false, false) => Class::of(&[(0x0a, 0x0a)]).negated(),
            (false, true) => Class::of(&[(0x0a, 0x0a), (0x0d, 0x0d)]).negated(),
        }
    }

    fn letter(&self, c: char) -> Class {
        let mut class = Class::of(&[(c.into(), c.into())]);
        if self.flags.any_case {
            class.add_other_case();
        }
        class
    }

    fn class(&mut self, class: Class) -> Node {
        let known = self.classes.iter().position(|known| *known == class);
        Node::Class(known.unwrap_or_else(|| {
            self.classes.push(class);
            self.classes.len().saturating_sub(1)
        }))
    }
}
