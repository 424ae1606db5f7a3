//! Parses bracketed character classes.

use super::super::class::Class;
use super::escapes::Escaped;
use super::{Read, Reader};

const UNCLOSED: &str = "`[` without `]`";

/// An element of a class.
enum Item {
    Char(char),
    Class(Class),
}

impl Reader<'_> {
    /// Parses the rest of a class after its `[`.
    pub(super) fn bracket(&mut self) -> Read<Class> {
        self.skip_space();
        let is_negated = self.peek() == Some('^');
        if is_negated {
            self.next();
        }
        let mut class = Class::default();
        while self.peek() == Some('-') {
            self.next();
            class.add('-'.into(), '-'.into());
        }
        // A class is never empty, so a `]` at the beginning is an element.
        if class.ranges().is_empty() && self.peek() == Some(']') {
            self.next();
            class.add(']'.into(), ']'.into());
        }
        loop {
            self.skip_space();
            match (self.peek().ok_or(UNCLOSED)?, self.peek_second()) {
                (']', _) => break,
                ('[', _) => class.add_all(&self.posix()?),
                ('&', Some('&')) | ('-', Some('-')) | ('~', Some('~')) => {
                    return Err("`&&`, `--` and `~~` in a class are not supported");
                }
                _ => self.range(&mut class)?,
            }
        }
        self.chars.next();
        if self.flags.any_case {
            class.add_other_case();
        }
        Ok(if is_negated { class.negated() } else { class })
    }

    /// Parses a character, a range, or a class such as `\d`.
    fn range(&mut self, class: &mut Class) -> Read<()> {
        let first = match self.item()? {
            Item::Class(other) => {
                class.add_all(&other);
                return Ok(());
            }
            Item::Char(first) => first,
        };
        self.skip_space();
        let mut last = first;
        if self.peek() == Some('-') && !matches!(self.after_dash(), Some(']' | '-')) {
            self.next();
            let Item::Char(to) = self.item()? else {
                return Err("a range in a class ends with a class");
            };
            last = to;
        }
        if first > last {
            return Err("a range in a class with its last character first");
        }
        class.add(first.into(), last.into());
        Ok(())
    }

    /// Returns the character after a dash.
    fn after_dash(&self) -> Option<char> {
        let mut rest = self.chars.clone();
        rest.next();
        let is_space = |c: &char| self.flags.spaced && c.is_whitespace();
        rest.find(|c| !is_space(c))
    }

    fn item(&mut self) -> Read<Item> {
        match self.chars.next() {
            None => Err(UNCLOSED),
            Some('\\') => match self.escape()? {
                Escaped::Char(c) => Ok(Item::Char(c)),
                Escaped::Class(class) => Ok(Item::Class(class)),
                Escaped::Place(_) => Err("a condition such as \\b in a class"),
            },
            Some(c) => Ok(Item::Char(c)),
        }
    }

    /// Parses a named class, such as `[:alpha:]` or `[:^alpha:]`.
    fn posix(&mut self) -> Read<Class> {
        const NESTED: &str = "a class in a class is not supported, except names such as [:alpha:]";
        let rest = self.chars.as_str().strip_prefix("[:").ok_or(NESTED)?;
        let (name, rest) = rest.split_once(":]").ok_or(NESTED)?;
        let (name, is_negated) = match name.strip_prefix('^') {
            Some(name) => (name, true),
            None => (name, false),
        };
        let class = Class::named(name).ok_or(NESTED)?;
        self.chars = rest.chars();
        Ok(if is_negated { class.negated() } else { class })
    }
}
