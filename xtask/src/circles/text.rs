//! One module's source: its modules, names and imports, and every path in it.
//!
//! Read from tokens, because macros and attributes contain paths too. Tests are left out.

use std::collections::BTreeSet;

use anyhow::Result;
use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

/// A path as written, `crate`, `self` and `super` included.
pub(super) type Path = Vec<String>;

/// The name of a glob import.
pub(super) const ALL: &str = "*";

/// Keywords that are followed by the name of what they define.
const DEFINES: &[&str] = &[
    "const", "enum", "fn", "static", "struct", "trait", "type", "union",
];
/// Keywords that begin an item which ends with a block, or with `;` before one.
const BLOCKS: &[&str] = &[
    "async",
    "enum",
    "extern",
    "fn",
    "impl",
    "macro_rules",
    "mod",
    "struct",
    "trait",
    "union",
    "unsafe",
];
/// Keywords that begin an item or statement which ends with `;`, whatever blocks are in it.
const LINES: &[&str] = &["const", "let", "static", "type", "use"];

/// A module without its tests.
#[derive(Debug, Default)]
pub(super) struct Text {
    /// `mod name;`, or with a body in the same file.
    pub(super) modules: Vec<(String, Option<Self>)>,
    /// The names of items.
    pub(super) defined: BTreeSet<String>,
    pub(super) imports: Vec<Import>,
    /// Every path of two names or more outside of `use`.
    pub(super) paths: Vec<Path>,
    /// Every identifier outside of `use`.
    pub(super) names: BTreeSet<String>,
}

/// One name that a `use` imports.
#[derive(Debug)]
pub(super) struct Import {
    pub(super) path: Path,
    /// The name in this module; [`ALL`] for `*`.
    pub(super) name: String,
    /// Whether it is re-exported.
    pub(super) public: bool,
}

impl Text {
    pub(super) fn read(source: &str) -> Result<Self> {
        let source = source.strip_prefix('\u{feff}').unwrap_or(source);
        let stream: TokenStream = source.parse().map_err(|error| anyhow::anyhow!("{error}"))?;
        let mut text = Self::default();
        text.items(&without_tests(stream));
        Ok(text)
    }

    /// Reads the items directly in the module, not those inside functions.
    fn items(&mut self, tokens: &[TokenTree]) {
        let mut rest = tokens;
        let mut public = false;
        while let Some((token, after)) = rest.split_first() {
            rest = after;
            let TokenTree::Ident(word) = token else {
                // The `(crate)` of `pub(crate)` is between `pub` and the item.
                public &= matches!(token, TokenTree::Group(_));
                continue;
            };
            let word = word.to_string();
            match (word.as_str(), after) {
                ("pub", _) => {
                    public = true;
                    continue;
                }
                ("mod", [TokenTree::Ident(name), TokenTree::Group(body), ..]) => {
                    let mut text = Self::default();
                    let tokens: Vec<TokenTree> = body.stream().into_iter().collect();
                    text.items(&tokens);
                    self.modules.push((name.to_string(), Some(text)));
                    // Its paths are resolved with its own names in scope.
                    rest = after.get(2..).unwrap_or_default();
                }
                ("mod", [TokenTree::Ident(name), ..]) => {
                    self.modules.push((name.to_string(), None));
                }
                ("use", _) if !begins(after, '<') => {
                    rest = self.import(after, public);
                }
                ("macro_rules", [_, TokenTree::Ident(name), ..]) => {
                    self.defined.insert(name.to_string());
                }
                (word, [TokenTree::Ident(name), ..]) if DEFINES.contains(&word) => {
                    self.defined.insert(name.to_string());
                }
                _ => {}
            }
            public = false;
        }
        self.paths(tokens, true);
    }

    /// Reads every path, except those of `mod` and `use`.
    fn paths(&mut self, tokens: &[TokenTree], outside: bool) {
        let mut rest = tokens;
        let mut before: Option<&TokenTree> = None;
        while let Some((token, after)) = rest.split_first() {
            rest = after;
            match token {
                TokenTree::Group(group) => {
                    let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                    self.paths(&inner, false);
                }
                TokenTree::Ident(word) if word == "use" && !begins(after, '<') => {
                    rest = if outside {
                        skip_line(after)
                    } else {
                        self.import(after, false)
                    };
                }
                TokenTree::Ident(word) if word == "mod" && outside => {
                    if let [TokenTree::Ident(_), TokenTree::Group(_), after @ ..] = after {
                        rest = after;
                    }
                }
                // A lifetime, such as `'static`.
                TokenTree::Ident(_) if before.is_some_and(|before| is(before, '\'')) => {}
                TokenTree::Ident(word) => {
                    let mut path = vec![word.to_string()];
                    while let [colon, second, TokenTree::Ident(name), after @ ..] = rest
                        && is(colon, ':')
                        && is(second, ':')
                    {
                        path.push(name.to_string());
                        rest = after;
                    }
                    self.names.extend(path.iter().cloned());
                    if path.len() > 1 {
                        self.paths.push(path);
                    }
                }
                _ => {}
            }
            before = Some(token);
        }
    }

    /// Reads an import from after its `use`, and returns the tokens that follow it.
    fn import<'a>(&mut self, tokens: &'a [TokenTree], public: bool) -> &'a [TokenTree] {
        let rest = skip_line(tokens);
        let tree = tokens.get(..tokens.len().saturating_sub(rest.len()));
        self.tree(tree.unwrap_or_default(), &[], public);
        rest
    }

    fn tree(&mut self, tokens: &[TokenTree], prefix: &[String], public: bool) {
        for part in tokens.split(|token| is(token, ',')) {
            let mut path = prefix.to_vec();
            let mut name = None;
            let mut words = part.iter();
            while let Some(token) = words.next() {
                match token {
                    TokenTree::Ident(word) if word == "as" => {
                        name = words.next().map(ToString::to_string);
                    }
                    TokenTree::Ident(word) => path.push(word.to_string()),
                    TokenTree::Group(group) => {
                        let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                        self.tree(&inner, &path, public);
                        path.clear();
                    }
                    token if is(token, '*') => name = Some(ALL.to_owned()),
                    _ => {}
                }
            }
            if path.len() > 1 && path.last().is_some_and(|last| last == "self") {
                path.pop();
            }
            if let Some(last) = path.last() {
                let name = name.unwrap_or_else(|| last.clone());
                self.imports.push(Import { path, name, public });
            }
        }
    }
}

/// The tokens without items that are compiled only for tests.
fn without_tests(stream: TokenStream) -> Vec<TokenTree> {
    let tokens: Vec<TokenTree> = stream.into_iter().collect();
    let mut kept = Vec::with_capacity(tokens.len());
    let mut rest = tokens.as_slice();
    while let Some((token, after)) = rest.split_first() {
        rest = after;
        match (token, after) {
            (hash, [mark, TokenTree::Group(attribute), ..])
                if is(hash, '#') && is(mark, '!') && is_for_tests(attribute) =>
            {
                return Vec::new();
            }
            (hash, [TokenTree::Group(attribute), item @ ..])
                if is(hash, '#') && is_for_tests(attribute) =>
            {
                rest = skip_item(item);
            }
            (TokenTree::Group(group), _) => {
                let inner = without_tests(group.stream()).into_iter().collect();
                kept.push(Group::new(group.delimiter(), inner).into());
            }
            _ => kept.push(token.clone()),
        }
    }
    kept
}

/// Whether an attribute is `test`, or `cfg` with `test` in it that is not inside of `not`.
fn is_for_tests(attribute: &Group) -> bool {
    let tokens: Vec<TokenTree> = attribute.stream().into_iter().collect();
    match tokens.as_slice() {
        [TokenTree::Ident(word)] => word == "test",
        [TokenTree::Ident(word), TokenTree::Group(predicate)] => {
            word == "cfg" && names_test(predicate.stream())
        }
        _ => false,
    }
}

fn names_test(predicate: TokenStream) -> bool {
    let tokens: Vec<TokenTree> = predicate.into_iter().collect();
    let mut rest = tokens.as_slice();
    while let Some((token, after)) = rest.split_first() {
        rest = after;
        match token {
            TokenTree::Ident(word) if word == "not" => {
                rest = after.get(1..).unwrap_or_default();
            }
            TokenTree::Ident(word) if word == "test" => return true,
            TokenTree::Group(group) if names_test(group.stream()) => return true,
            _ => {}
        }
    }
    false
}

/// The tokens after the item, statement, field or arm that `tokens` begin with.
fn skip_item(tokens: &[TokenTree]) -> &[TokenTree] {
    let mut rest = tokens;
    let mut keyword = None;
    while let Some((token, after)) = rest.split_first() {
        match token {
            TokenTree::Ident(word) if keyword.is_none() => {
                let word = word.to_string();
                if LINES.contains(&word.as_str()) && !begins_block(after) {
                    return skip_line(after);
                }
                if word != "pub" {
                    keyword = Some(BLOCKS.contains(&word.as_str()) || begins_block(after));
                }
            }
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => return after,
            token if is(token, ';') => return after,
            token if is(token, ',') && keyword != Some(true) => return after,
            _ => {}
        }
        rest = after;
    }
    rest
}

/// `const fn` and its like end with a block, other than `const NAME`.
fn begins_block(tokens: &[TokenTree]) -> bool {
    matches!(tokens, [TokenTree::Ident(word), ..] if BLOCKS.contains(&word.to_string().as_str()))
}

/// The tokens after the next `;`.
fn skip_line(tokens: &[TokenTree]) -> &[TokenTree] {
    let end = tokens.iter().position(|token| is(token, ';'));
    end.and_then(|end| tokens.get(end.saturating_add(1)..))
        .unwrap_or_default()
}

fn is(token: &TokenTree, mark: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == mark)
}

fn begins(tokens: &[TokenTree], mark: char) -> bool {
    tokens.first().is_some_and(|token| is(token, mark))
}
