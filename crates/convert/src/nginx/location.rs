//! Paths of nginx locations, and the requests that other locations take from them.

use crate::conditions::escaped;
use crate::locations::Pattern;
use crate::out::{Out, quoted};

use super::syntax::Directive;
use super::{Level, visit};

/// The context of a list of locations.
pub(super) struct Scope<'s, 'a> {
    pub(super) level: &'s Level<'a>,
    pub(super) parent: Option<&'a Directive>,
    /// Uses of limits in the parent location.
    pub(super) uses: &'s [usize],
    /// True if regular expressions of an outer level can take requests from these locations.
    pub(super) has_regex: bool,
    /// All location prefixes of the server.
    pub(super) paths: &'s [&'a str],
    /// Locations of each outer level, paired with the length of the enclosing location's path on
    /// that level.
    pub(super) outer: Vec<(usize, &'a Directive)>,
}

impl Scope<'_, '_> {
    /// Returns true if an outer location takes all requests for a path in this level. nginx first
    /// chooses the longest prefix in the outer level, and only then looks inside that location.
    pub(super) fn takes(&self, location: &Directive) -> bool {
        let (modifier, exact) = path_of(location);
        let path = prefix_of(location).unwrap_or(exact);
        self.outer.iter().any(|(length, outer)| {
            let is_longer = |prefix: &str| prefix.len() > *length && path.starts_with(prefix);
            prefix_of(outer).is_some_and(is_longer)
                || modifier == "=" && path_of(outer) == ("=", exact)
        })
    }

    /// Returns the pattern of a location. For a prefix, `wins` depends on the regular expressions
    /// that nginx tries after it. A `^~` modifier disables the regular expressions of the
    /// location's own level, and a `^~` on an enclosing location disables the outer regular
    /// expressions.
    pub(super) fn among_regexes(
        &self,
        pattern: Pattern,
        location: &Directive,
        level: &[Directive],
        out: &mut Out,
    ) -> Pattern {
        let Pattern::Prefix { text, wins } = pattern else {
            return pattern;
        };
        if self.parent.is_none() {
            return Pattern::Prefix { text, wins };
        }
        let is_regex = |one: &Directive| one.name == "location" && path_of(one).0.starts_with('~');
        let has_own = level.iter().any(is_regex);
        let has_outer = self.outer.iter().any(|(_, one)| is_regex(one));
        let (own, outer) = (has_own && !wins, self.has_regex);
        if has_own && has_outer && own != outer {
            let message = format!(
                "{}: nginx tries some regular expressions after it and others not, which a `match` cannot express, so requests may have the limits of other locations here",
                quoted(&location.text())
            );
            out.lost(&location.place, &message);
        }
        Pattern::Prefix {
            text,
            wins: !own && !outer,
        }
    }
}

/// Returns the modifier of a location, and its path or regular expression. nginx accepts a modifier
/// without a space after it. Without a modifier, the path is the first element and the second
/// element is empty.
pub(super) fn path_of(location: &Directive) -> (&str, &str) {
    let (first, second) = (location.arg(0), location.arg(1));
    let joined = ["=", "^~", "~*", "~"].into_iter().find_map(|modifier| {
        let rest = first.strip_prefix(modifier)?;
        second.is_empty().then_some((modifier, rest))
    });
    joined.unwrap_or((first, second))
}

/// Returns the path of a prefix location, or `None` for other locations.
pub(super) fn prefix_of(location: &Directive) -> Option<&str> {
    match path_of(location) {
        ("^~", path) | (path, "") => Some(path),
        _ => None,
    }
}

/// Returns the pattern for a regular expression inside a prefix location, where it applies only to
/// paths with that prefix. Returns `None` if a pattern cannot express this.
pub(super) fn nested(location: &Directive, parent: &Directive, paths: &[&str]) -> Option<Pattern> {
    let (modifier, regex) = path_of(location);
    let (outer, "") = path_of(parent) else {
        return None;
    };
    let mut own = 0_usize;
    visit(parent.inner(), &mut |inner| {
        let is_location = inner.name == "location";
        own = own.saturating_add(usize::from(is_location && prefix_of(inner).is_some()));
    });
    let inside = |path: &&&str| path.starts_with(outer) && **path != outer;
    // A longer prefix outside the parent takes some of the parent's paths.
    if paths.iter().filter(inside).count() > own {
        return None;
    }
    let ignores_case = modifier == "~*";
    if outer == "/" || !regex.contains('|') && regex.starts_with(&format!("^{}", escaped(outer))) {
        return Some(Pattern::search(regex, ignores_case));
    }
    if regex.contains('^') {
        return None;
    }
    match Pattern::search(regex, ignores_case) {
        Pattern::Regex(regex) => Some(Pattern::Regex(format!("{}(?:{regex})", escaped(outer)))),
        _ => None,
    }
}

pub(super) fn has_look_around(regex: &str) -> bool {
    let parts = ["(?=", "(?!", "(?<=", "(?<!", "\\1", "\\2"];
    parts.iter().any(|part| regex.contains(part))
}
