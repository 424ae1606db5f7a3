//! Replaces each `include` with the included files, if they are among the given files.

use std::collections::BTreeSet;
use std::rc::Rc;

use super::is_setting;
use super::syntax::{Directive, MAX_DIRECTIVES};
use crate::out::{Out, Place, Problem, quoted};

/// Maximum nesting depth of included files.
const MAX_INCLUDES: usize = 8;

type File = (Rc<str>, Vec<Directive>);

struct Resolver<'a> {
    files: &'a [File],
    used: BTreeSet<usize>,
    directives: usize,
}

/// Returns the directives of all files. The directives of an included file appear wherever a file
/// includes it.
pub(super) fn resolve(files: &[File], out: &mut Out) -> Result<Vec<Directive>, Problem> {
    let mut included = BTreeSet::new();
    for (number, (_, directives)) in files.iter().enumerate() {
        super::visit(directives, &mut |directive| {
            included.extend(matching(files, directive).filter(|other| *other != number));
        });
    }
    let mut resolver = Resolver {
        files,
        used: BTreeSet::new(),
        directives: 0,
    };
    let mut all = Vec::new();
    let has_http = |directives: &[Directive]| directives.iter().any(|one| one.name == "http");
    let main = files.iter().find(|(_, directives)| has_http(directives));
    // Files that are still unused in the second pass only include each other.
    for is_included in [false, true] {
        for (number, (_, directives)) in files.iter().enumerate() {
            if included.contains(&number) != is_included || resolver.used.contains(&number) {
                continue;
            }
            let is_part = |one: &&Directive| {
                matches!(one.name.as_str(), "server" | "location") || is_setting(one)
            };
            if let (Some((main, _)), Some(first)) = (main, directives.iter().find(is_part)) {
                let message = format!(
                    "no given file includes this one, so it has no settings of `http` in {} here; name it with the folder of its `include`",
                    quoted(main)
                );
                out.note(&first.place, &message);
            }
            resolver.used.insert(number);
            all.extend(resolver.level(directives, &mut vec![number])?);
        }
    }
    Ok(all)
}

impl Resolver<'_> {
    /// Returns the directives of a level, with each `include` replaced by the included files.
    /// `open` contains the indices of the files around the level.
    fn level(
        &mut self,
        directives: &[Directive],
        open: &mut Vec<usize>,
    ) -> Result<Vec<Directive>, Problem> {
        let mut level = Vec::new();
        for directive in directives {
            // A file cannot include itself, directly or indirectly. Such an `include` directive
            // stays in the result, which leads to a warning.
            let found = matching(self.files, directive)
                .filter(|number| !open.contains(number) && open.len() <= MAX_INCLUDES);
            let found: Vec<usize> = found.collect();
            for number in &found {
                let Some((_, inner)) = self.files.get(*number) else {
                    continue;
                };
                self.used.insert(*number);
                open.push(*number);
                let inner = self.level(inner, open)?;
                open.pop();
                level.extend(inner);
            }
            if !found.is_empty() {
                continue;
            }
            self.count(&directive.place)?;
            let block = match &directive.block {
                Some(block) => Some(self.level(block, open)?),
                None => None,
            };
            level.push(Directive {
                name: directive.name.clone(),
                args: directive.args.clone(),
                place: directive.place.clone(),
                block,
            });
        }
        Ok(level)
    }

    fn count(&mut self, place: &Place) -> Result<(), Problem> {
        self.directives = self.directives.saturating_add(1);
        if self.directives > MAX_DIRECTIVES {
            let message = format!("more than {MAX_DIRECTIVES} directives with included files");
            return Err(Problem::error(place.clone(), &message));
        }
        Ok(())
    }
}

/// Returns the indices of the files that an `include` directive names.
fn matching<'a>(
    files: &'a [File],
    directive: &'a Directive,
) -> impl Iterator<Item = usize> + use<'a> {
    let is_include = directive.name == "include";
    files
        .iter()
        .enumerate()
        .filter(move |(_, (name, _))| is_include && is_match(directive.arg(0), name))
        .map(|(number, _)| number)
}

/// Returns true if `path` may be a file that `pattern` names. The pattern and the path are compared
/// from their ends, so both may start at any folder. A wildcard such as `conf.d/*.conf` also needs
/// a folder in the path, because configurations often have several folders with such files.
fn is_match(pattern: &str, path: &str) -> bool {
    let pattern = pattern.strip_prefix("./").unwrap_or(pattern);
    let path = path.strip_prefix("./").unwrap_or(path);
    if pattern.contains('/') && pattern.contains(['*', '?']) && !path.contains('/') {
        return false;
    }
    let mut patterns = pattern.rsplit('/');
    let mut parts = path.rsplit('/');
    loop {
        match (patterns.next(), parts.next()) {
            (Some(pattern), Some(part)) => {
                if !is_name(pattern.as_bytes(), part.as_bytes()) {
                    return false;
                }
            }
            _ => return true,
        }
    }
}

/// Returns true if a name matches a pattern with the wildcards `*` and `?`.
fn is_name(pattern: &[u8], name: &[u8]) -> bool {
    let (mut pattern, mut name) = (pattern, name);
    // Backtracking point: the pattern after the last `*`, and the rest of the name that this
    // pattern must match.
    let mut last: Option<(&[u8], &[u8])> = None;
    loop {
        match (pattern, name) {
            ([b'*', rest @ ..], _) => {
                last = Some((rest, name));
                pattern = rest;
            }
            ([one, rest @ ..], [other, names @ ..]) if *one == b'?' || one == other => {
                (pattern, name) = (rest, names);
            }
            ([], []) => return true,
            _ => match last {
                Some((rest, [_, names @ ..])) => {
                    last = Some((rest, names));
                    (pattern, name) = (rest, names);
                }
                _ => return false,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files() {
        for (pattern, path, expected) in [
            ("/etc/nginx/conf.d/*.conf", "a.conf", false),
            ("/etc/nginx/a.conf", "a.conf", true),
            ("/etc/nginx/conf.d/*.conf", "./conf.d/a.conf", true),
            ("/etc/nginx/conf.d/*.conf", "sites/a.conf", false),
            ("conf.d/*.conf", "/etc/nginx/conf.d/a.conf", true),
            ("sites-enabled/*", "sites-enabled/a", true),
            ("a?b*c*.conf", "axbcc.conf", true),
            ("a?b*d*.conf", "axbcc.conf", false),
            ("a.conf", "b.conf", false),
        ] {
            assert_eq!(is_match(pattern, path), expected, "{pattern} {path}");
        }
    }
}
