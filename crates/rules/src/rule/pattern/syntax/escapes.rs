//! Parses escapes, which start with a backslash.

use super::super::class::Class;
use super::super::tree::{EDGE, Node};
use super::{Read, Reader};

/// Meaning of an escape.
pub(super) enum Escaped {
    Char(char),
    Class(Class),
    /// A condition such as `\b`.
    Place(Node),
}

const HEX: &str = "an invalid code point; allowed: \\x41, \\x{e9}, \\u00e9, \\U000000e9";

impl Reader<'_> {
    /// Parses the rest of an escape after its backslash.
    pub(super) fn escape(&mut self) -> Read<Escaped> {
        let Some(c) = self.chars.next() else {
            return Err("nothing follows the last `\\`");
        };
        let node = match c {
            'd' | 'D' => return Ok(perl("digit", c)),
            's' | 'S' => return Ok(perl("space", c)),
            'w' | 'W' => return Ok(perl("word", c)),
            'x' => return self.code(2),
            'u' => return self.code(4),
            'U' => return self.code(8),
            'a' => return Ok(Escaped::Char('\x07')),
            'f' => return Ok(Escaped::Char('\x0c')),
            't' => return Ok(Escaped::Char('\t')),
            'n' => return Ok(Escaped::Char('\n')),
            'r' => return Ok(Escaped::Char('\r')),
            'v' => return Ok(Escaped::Char('\x0b')),
            'A' => self.place(|before, _| before == EDGE),
            'z' => self.place(|_, after| after == EDGE),
            'b' => self.boundary()?,
            'B' => self.word(|before, after| before == after),
            '<' => self.word(|before, after| !before && after),
            '>' => self.word(|before, after| before && !after),
            '0'..='9' => return Err("back-references are not supported"),
            'p' | 'P' => return Err("classes of Unicode such as \\pL are not supported"),
            c if c.is_ascii() && !c.is_ascii_alphanumeric() => return Ok(Escaped::Char(c)),
            _ => return Err("unknown letter after `\\`"),
        };
        Ok(Escaped::Place(node))
    }

    /// Parses the rest of `\b`, which may be `\b{start}` or similar.
    fn boundary(&mut self) -> Read<Node> {
        let rest = self.chars.as_str().strip_prefix('{');
        let named = rest.is_some_and(|rest| {
            rest.trim_start()
                .starts_with(|c: char| c == '-' || c.is_ascii_alphabetic())
        });
        if !named {
            return Ok(self.word(|before, after| before != after));
        }
        if self.eat("{start}") {
            Ok(self.word(|before, after| !before && after))
        } else if self.eat("{end}") {
            Ok(self.word(|before, after| before && !after))
        } else if self.eat("{start-half}") {
            Ok(self.word(|before, _| !before))
        } else if self.eat("{end-half}") {
            Ok(self.word(|_, after| !after))
        } else {
            Err("unknown \\b{…}; allowed: start, end, start-half, end-half")
        }
    }

    /// Parses a code point with `digits` digits, or with any number of digits in braces.
    fn code(&mut self, digits: usize) -> Read<Escaped> {
        self.skip_space();
        let in_braces = self.eat("{");
        self.skip_space();
        let (mut code, mut count) = (0_u32, 0_usize);
        while in_braces || count < digits {
            if in_braces && self.eat("}") {
                break;
            }
            let digit = self.next().and_then(|c| c.to_digit(16)).ok_or(HEX)?;
            code = code.checked_mul(16).ok_or(HEX)? | digit;
            count = count.saturating_add(1);
        }
        let c = char::from_u32(code).filter(|_| count > 0);
        c.map(Escaped::Char).ok_or(HEX)
    }
}

/// Returns the class of `\d` or a similar escape. An upper-case letter negates the class.
fn perl(name: &str, letter: char) -> Escaped {
    let class = Class::named(name).unwrap_or_default();
    Escaped::Class(if letter.is_ascii_uppercase() {
        class.negated()
    } else {
        class
    })
}
