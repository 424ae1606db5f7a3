//! Parses the syntax of nginx configurations: directives with arguments and blocks.

use std::rc::Rc;

use loudou_check::document::Position;

use crate::out::{Place, Problem};

/// Maximum nesting depth of blocks.
const MAX_DEPTH: usize = 32;
/// Maximum number of directives.
pub(super) const MAX_DIRECTIVES: usize = 100_000;

/// A directive, with its place in the source.
#[derive(Clone, Debug)]
pub(super) struct Directive {
    pub(super) name: String,
    pub(super) args: Vec<String>,
    pub(super) place: Place,
    /// Directives in the block, or `None` if the directive has no block.
    pub(super) block: Option<Vec<Self>>,
}

impl Directive {
    /// Returns the name and arguments of the directive, without its block.
    pub(super) fn text(&self) -> String {
        let mut text = self.name.clone();
        for arg in &self.args {
            text.push(' ');
            text.push_str(arg);
        }
        text
    }

    /// Returns the argument at an index, or an empty string if there is none.
    pub(super) fn arg(&self, index: usize) -> &str {
        self.args.get(index).map_or("", String::as_str)
    }

    /// Returns the value of an argument that starts with `name`, such as `zone=`.
    pub(super) fn named(&self, name: &str) -> Option<&str> {
        self.args.iter().find_map(|arg| arg.strip_prefix(name))
    }

    pub(super) fn inner(&self) -> &[Self] {
        self.block.as_deref().unwrap_or_default()
    }
}

/// Reads the characters of a text and tracks the position of the next one.
struct Reader<'a> {
    file: Rc<str>,
    rest: std::iter::Peekable<std::str::Chars<'a>>,
    position: Position,
    directives: usize,
}

enum Token {
    Word(String),
    Open,
    Close,
    End,
}

/// Parses a text into directives.
pub(super) fn read(file: &Rc<str>, text: &str) -> Result<Vec<Directive>, Problem> {
    let mut reader = Reader {
        file: Rc::clone(file),
        rest: text.chars().peekable(),
        position: Position { line: 1, column: 1 },
        directives: 0,
    };
    // Blocks that are still open. The first entry is the file itself.
    let mut open: Vec<(Vec<Directive>, Option<Directive>)> = vec![(Vec::new(), None)];
    let mut words: Vec<String> = Vec::new();
    let mut start = reader.place();
    loop {
        let place = reader.skip();
        let Some(token) = reader.token()? else {
            break;
        };
        match token {
            Token::Word(word) => {
                if words.is_empty() {
                    start = place;
                }
                words.push(word);
            }
            Token::End | Token::Open if words.is_empty() => {
                return Err(error(place, "expected a directive before this"));
            }
            Token::End => {
                let directive = reader.directive(&mut words, &start, None)?;
                if let Some((block, _)) = open.last_mut() {
                    block.push(directive);
                }
            }
            Token::Open => {
                let directive = reader.directive(&mut words, &start, Some(Vec::new()))?;
                if directive.name.ends_with("_by_lua_block") {
                    reader.skip_code()?;
                } else if open.len() > MAX_DEPTH {
                    return Err(error(place, &format!("nested deeper than {MAX_DEPTH}")));
                } else {
                    open.push((Vec::new(), Some(directive)));
                }
            }
            Token::Close if !words.is_empty() => {
                return Err(error(place, "expected `;` before `}`"));
            }
            Token::Close => {
                let Some((block, Some(mut directive))) = open.pop() else {
                    return Err(error(place, "a `}` without a `{`"));
                };
                directive.block = Some(block);
                if let Some((outer, _)) = open.last_mut() {
                    outer.push(directive);
                }
            }
        }
    }
    if !words.is_empty() {
        return Err(error(start, "expected `;` after this directive"));
    }
    match (open.pop(), open.len()) {
        (Some((block, None)), 0) => Ok(block),
        (Some((_, Some(directive))), _) => Err(error(directive.place, "a block without its `}`")),
        _ => Ok(Vec::new()),
    }
}

fn error(place: Place, message: &str) -> Problem {
    Problem::error(place, &format!("invalid syntax of nginx: {message}"))
}

impl Reader<'_> {
    fn place(&self) -> Place {
        Place::new(&self.file, self.position)
    }

    fn next(&mut self) -> Option<char> {
        let c = self.rest.next()?;
        if c == '\n' {
            self.position.line = self.position.line.saturating_add(1);
            self.position.column = 1;
        } else {
            self.position.column = self.position.column.saturating_add(1);
        }
        Some(c)
    }

    /// Skips whitespace and comments. Returns the place of the next token.
    fn skip(&mut self) -> Place {
        while let Some(c) = self.rest.peek().copied() {
            if c == '#' {
                while self.rest.peek().is_some_and(|c| *c != '\n') {
                    self.next();
                }
            } else if !c.is_whitespace() {
                break;
            }
            self.next();
        }
        self.place()
    }

    fn token(&mut self) -> Result<Option<Token>, Problem> {
        let place = self.place();
        let Some(first) = self.next() else {
            return Ok(None);
        };
        Ok(Some(match first {
            '{' => Token::Open,
            '}' => Token::Close,
            ';' => Token::End,
            quote @ ('"' | '\'') => Token::Word(self.quoted(quote, place)?),
            first => Token::Word(self.word(first)),
        }))
    }

    fn quoted(&mut self, quote: char, place: Place) -> Result<String, Problem> {
        let mut word = String::new();
        loop {
            match self.next() {
                None => return Err(error(place, "a text without its end")),
                Some('\\') => match self.next() {
                    Some(c) if c == quote || c == '\\' => word.push(c),
                    Some(c) => word.extend(['\\', c]),
                    None => {}
                },
                Some(c) if c == quote => return Ok(word),
                Some(c) => word.push(c),
            }
        }
    }

    fn word(&mut self, first: char) -> String {
        let mut word = String::new();
        let mut last = None;
        let mut c = first;
        loop {
            word.push(c);
            last = (last != Some('\\') || c != '\\').then_some(c);
            match self.rest.peek() {
                // The braces in `${name}` are part of the word. An escaped character loses its
                // special meaning.
                Some('{') if c == '$' => {}
                Some('}') if word.contains("${") => {}
                Some(';' | '{' | '}') if last == Some('\\') => {}
                Some(';' | '{' | '}') | None => return word,
                Some(next) if next.is_whitespace() => return word,
                Some(_) => {}
            }
            match self.next() {
                Some(next) => c = next,
                None => return word,
            }
        }
    }

    fn directive(
        &mut self,
        words: &mut Vec<String>,
        place: &Place,
        block: Option<Vec<Directive>>,
    ) -> Result<Directive, Problem> {
        self.directives = self.directives.saturating_add(1);
        if self.directives > MAX_DIRECTIVES {
            let message = format!("more than {MAX_DIRECTIVES} directives");
            return Err(error(place.clone(), &message));
        }
        let mut words = std::mem::take(words).into_iter();
        Ok(Directive {
            name: words.next().unwrap_or_default(),
            args: words.collect(),
            place: place.clone(),
            block,
        })
    }

    /// Skips a block of Lua code. Braces in Lua code are balanced, except in strings and comments.
    fn skip_code(&mut self) -> Result<(), Problem> {
        let place = self.place();
        let mut depth = 1_usize;
        while depth > 0 {
            match self.next() {
                Some('{') => depth = depth.saturating_add(1),
                Some('}') => depth = depth.saturating_sub(1),
                Some(quote @ ('"' | '\'')) => self.skip_string(quote),
                Some('-') if self.rest.peek() == Some(&'-') => {
                    self.next();
                    if self.rest.peek() == Some(&'[') {
                        self.next();
                        if self.skip_long() {
                            continue;
                        }
                    }
                    while self.rest.peek().is_some_and(|c| *c != '\n') {
                        self.next();
                    }
                }
                Some('[') => {
                    self.skip_long();
                }
                Some(_) => {}
                None => return Err(error(place, "a block without its `}`")),
            }
        }
        Ok(())
    }

    /// Skips a Lua string, which ends at its closing quote or at the end of the line.
    fn skip_string(&mut self, quote: char) {
        while let Some(c) = self.next() {
            match c {
                '\\' => {
                    self.next();
                }
                c if c == quote || c == '\n' => return,
                _ => {}
            }
        }
    }

    /// Skips the rest of a Lua long bracket, such as `[==[ text ]==]`. Returns false if no long
    /// bracket starts here.
    fn skip_long(&mut self) -> bool {
        let mut level = 0_usize;
        while self.rest.peek() == Some(&'=') {
            self.next();
            level = level.saturating_add(1);
        }
        if self.rest.peek() != Some(&'[') {
            return false;
        }
        self.next();
        // Number of `=` since the last `]`, or `None` if another character followed.
        let mut end: Option<usize> = None;
        while let Some(c) = self.next() {
            end = match (c, end) {
                (']', Some(count)) if count == level => return true,
                (']', _) => Some(0),
                ('=', Some(count)) => Some(count.saturating_add(1)),
                _ => None,
            };
        }
        true
    }
}
