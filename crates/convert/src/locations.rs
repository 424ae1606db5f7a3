//! Locations of nginx servers, and the rules for the limits that apply in them.
//!
//! ingress-nginx generates such servers from Ingress objects, so the converters for nginx and
//! ingress-nginx share this module. nginx applies the limits of exactly one location to a request.
//! A rule's `match` must therefore exclude locations that nginx prefers, unless they have the same
//! limit.

use serde_json::{Map, Value, json};

use crate::conditions::{Conditions, escaped, exempt, whole};
use crate::model::Model;
use crate::out::{Out, Place, Rule, quoted};

/// Maximum number of locations per server.
pub(crate) const MAX_LOCATIONS: usize = 1_000;
/// Maximum number of servers, and of server names.
pub(crate) const MAX_SERVERS: usize = 1_000;
/// Maximum number of different uses of limits.
pub(crate) const MAX_USES: usize = 512;
/// Maximum nesting depth of `not` in a match.
const MAX_NOT: usize = 4;
/// Maximum number of networks in a match.
const MAX_NETWORKS: usize = 64;
/// Maximum length of a regular expression in a rule file.
const MAX_REGEX: usize = 256;

/// A pattern for request paths.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Pattern {
    Exact(String),
    /// All paths that start with `text`. If `wins` is true, nginx tries no regular expressions
    /// after it chooses this prefix.
    Prefix {
        text: String,
        wins: bool,
    },
    /// A path, and all paths below it.
    Segments(String),
    /// A regular expression that matches whole paths.
    Regex(String),
}

impl Pattern {
    pub(crate) fn prefix(text: &str) -> Self {
        Self::Prefix {
            text: text.to_owned(),
            wins: false,
        }
    }

    /// Returns the pattern for a regular expression that may match anywhere in a path.
    pub(crate) fn search(regex: &str, ignores_case: bool) -> Self {
        let regex = whole(regex);
        Self::Regex(if ignores_case {
            format!("(?i:{regex})")
        } else {
            regex
        })
    }

    /// Returns the length of the pattern's text, in bytes.
    pub(crate) fn length(&self) -> usize {
        self.text().len()
    }

    pub(crate) fn is_everything(&self) -> bool {
        match self {
            Self::Prefix { text, .. } | Self::Segments(text) => text == "/",
            Self::Regex(regex) => regex == ".*" || regex == "/.*",
            Self::Exact(_) => false,
        }
    }

    /// Returns false if no path can match both patterns.
    fn overlaps(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Regex(_), _) | (_, Self::Regex(_)) => true,
            (Self::Exact(path), pattern) | (pattern, Self::Exact(path)) => pattern.has(path),
            (one, other) => one.has(other.text()) || other.has(one.text()),
        }
    }

    fn text(&self) -> &str {
        match self {
            Self::Exact(text)
            | Self::Prefix { text, .. }
            | Self::Segments(text)
            | Self::Regex(text) => text,
        }
    }

    /// Returns true if a path matches the pattern. A regular expression counts as matching every
    /// path.
    fn has(&self, path: &str) -> bool {
        match self {
            Self::Exact(text) => path == text,
            Self::Prefix { text, .. } => path.starts_with(text.as_str()),
            Self::Segments(text) => path.strip_prefix(text.as_str()).is_some_and(|rest| {
                rest.is_empty() || text.ends_with('/') || rest.starts_with('/')
            }),
            Self::Regex(_) => true,
        }
    }

    fn regex(&self) -> String {
        match self {
            Self::Exact(text) => escaped(text),
            Self::Prefix { text, .. } => format!("{}.*", escaped(text)),
            Self::Segments(text) => match text.strip_suffix('/') {
                Some(text) => format!("{}/.*", escaped(text)),
                None => format!("{}(?:/.*)?", escaped(text)),
            },
            Self::Regex(regex) => regex.clone(),
        }
    }

    fn test(&self) -> Value {
        match self {
            Self::Exact(text) => json!({ "exact": text }),
            Self::Segments(text) => json!({ "prefix": text }),
            Self::Prefix { text, .. } if text.ends_with('/') => json!({ "prefix": text }),
            pattern => json!({ "regex": pattern.regex() }),
        }
    }
}

/// A location, with the limits that apply to its requests.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Location {
    pub(crate) pattern: Pattern,
    /// Indices of the uses of limits that apply in the location.
    pub(crate) uses: Vec<usize>,
}

/// A server name.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Host {
    Exact(String),
    /// All hosts that end with this string, such as `.example.com`.
    Suffix(String),
    /// All hosts that start with this string, such as `www.`.
    Prefix(String),
    /// All hosts that consist of one label and this suffix. nginx has no such server names;
    /// ingress-nginx writes a regular expression instead.
    Label(String),
    /// A regular expression that matches whole hosts.
    Regex(String),
}

impl Host {
    fn test(&self) -> Option<Value> {
        match self {
            Self::Exact(text) => Some(json!({ "exact": text })),
            Self::Suffix(text) => Some(json!({ "suffix": text })),
            Self::Prefix(text) => Some(json!({ "prefix": text })),
            Self::Label(_) | Self::Regex(_) => None,
        }
    }

    /// Returns true if nginx prefers this name to `other` and a host can match both.
    fn takes_from(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Exact(name), Self::Suffix(suffix)) => name.ends_with(suffix.as_str()),
            (Self::Exact(name), Self::Prefix(prefix)) => name.starts_with(prefix.as_str()),
            (Self::Suffix(one), Self::Suffix(other)) => one != other && one.ends_with(other),
            (Self::Prefix(one), Self::Prefix(other)) => one != other && one.starts_with(other),
            (Self::Exact(name), Self::Label(suffix)) => name
                .strip_suffix(suffix.as_str())
                .is_some_and(|label| !label.contains('.')),
            (Self::Suffix(_), Self::Prefix(_))
            | (Self::Suffix(_) | Self::Prefix(_), Self::Label(_))
            | (Self::Exact(_) | Self::Suffix(_) | Self::Prefix(_), Self::Regex(_)) => true,
            _ => false,
        }
    }

    pub(crate) fn regex(&self) -> String {
        match self {
            Self::Exact(text) => escaped(text),
            Self::Suffix(text) => format!(".*{}", escaped(text)),
            Self::Prefix(text) => format!("{}.*", escaped(text)),
            Self::Label(text) => format!("[0-9a-z_-]+{}", escaped(text)),
            Self::Regex(regex) => regex.clone(),
        }
    }
}

/// An nginx server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Server {
    pub(crate) hosts: Vec<Host>,
    /// True if the server also serves hosts that match no server name.
    pub(crate) is_default: bool,
    pub(crate) locations: Vec<Location>,
}

/// The requests that a zone counts, and the key by which it counts them.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Key {
    pub(crate) conditions: Conditions,
    pub(crate) parts: Vec<Value>,
    pub(crate) differences: Vec<String>,
}

/// One use of a limit in the source, with the settings that apply there.
#[derive(Clone, Debug)]
pub(crate) struct Use {
    /// Name of the zone that counts the requests.
    pub(crate) zone: String,
    /// Text from which the rule's name is derived.
    pub(crate) name: String,
    pub(crate) key: Key,
    /// Fields of the limit in the rule file, without its name.
    pub(crate) limit: Value,
    /// Model of this limit in nginx.
    pub(crate) model: Model,
    /// Name of the limit within its rule.
    pub(crate) label: String,
    pub(crate) status: u64,
    pub(crate) is_dry: bool,
    pub(crate) place: Place,
    pub(crate) original: String,
    pub(crate) remarks: Vec<String>,
    pub(crate) differences: Vec<String>,
}

impl Use {
    /// Returns true if both uses have the same zone, limit, status and dry-run setting.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.zone == other.zone
            && self.limit == other.limit
            && self.status == other.status
            && self.is_dry == other.is_dry
    }
}

/// Requests to which one use of a limit applies: servers, and the paths in them.
#[derive(Clone, PartialEq)]
struct Region {
    servers: Vec<usize>,
    path: Paths,
}

/// Paths of a server to which a use of a limit applies.
#[derive(Clone, PartialEq)]
enum Paths {
    All,
    /// Paths that pass the test, except for the excluded paths.
    Some(Value, Option<Value>),
    /// Separate tests, which together would be too long for one regular expression.
    Each(Vec<Value>),
    /// The paths would need a `not` that is nested too deeply, or a regular expression that is too
    /// long.
    Inexpressible,
}

/// Adds the rules for all uses of limits.
pub(crate) fn add_rules(servers: &[Server], uses: &[Use], out: &mut Out) {
    let mut has_paths = None;
    let regions: Vec<Vec<Region>> = (0..uses.len())
        .map(|index| regions(servers, index))
        .collect();
    let mut done = vec![false; uses.len()];
    for (index, limit) in uses.iter().enumerate() {
        if done.get(index) == Some(&true) {
            continue;
        }
        let Some(mine) = regions.get(index) else {
            continue;
        };
        if mine.is_empty() {
            let message = format!("{}: no request reaches it", limit.original);
            out.lost(&limit.place, &message);
            continue;
        }
        // Limits with the same key, requests and status share a bucket.
        let mut group = Vec::new();
        for (other, candidate) in uses.iter().enumerate().skip(index) {
            if candidate.key == limit.key
                && candidate.status == limit.status
                && candidate.is_dry == limit.is_dry
                && regions.get(other) == Some(mine)
                && group.len() < 8
                && let Some(done) = done.get_mut(other)
            {
                *done = true;
                group.push(candidate);
            }
        }
        let is_split = mine.len() > 1
            || mine
                .iter()
                .any(|region| matches!(region.path, Paths::Each(_)))
            || uses
                .iter()
                .any(|other| other.zone == limit.zone && !other.is_same(limit));
        for region in mine {
            for path in alternatives(&region.path) {
                if !matches!(path, Paths::All) {
                    has_paths.get_or_insert_with(|| limit.place.clone());
                }
                add_rule(servers, region, &path, &group, is_split, out);
            }
        }
    }
    if let Some(place) = has_paths {
        out.note(
            &place,
            "nginx decodes and normalizes paths before it compares them, and Loudou compares them as Envoy passes them: \
             set normalize_path and merge_slashes in Envoy",
        );
    }
}

fn alternatives(path: &Paths) -> Vec<Paths> {
    match path {
        Paths::Each(tests) => {
            let tests = tests.iter();
            tests.map(|test| Paths::Some(test.clone(), None)).collect()
        }
        path => vec![path.clone()],
    }
}

fn add_rule(
    servers: &[Server],
    region: &Region,
    path: &Paths,
    group: &[&Use],
    is_split: bool,
    out: &mut Out,
) {
    let Some(first) = group.first() else {
        return;
    };
    let mut rule = Rule::new(&first.name, &first.place, &first.original);
    let others = group.iter().skip(1);
    let others = others.map(|limit| (limit.place.clone(), quoted(&limit.original)));
    rule.originals.extend(others);
    let mut conditions = first.key.conditions.clone();
    let mut is_exact = true;
    let excludes_path = matches!(path, Paths::Some(_, Some(_)));
    let mut of_hosts = Conditions::default();
    hosts(servers, &region.servers, &mut of_hosts);
    let source = conditions.not.as_ref().and_then(|not| not.get("source"));
    if let Some(Value::Array(networks)) = source
        && (excludes_path || of_hosts.not.is_some() || networks.len() > MAX_NETWORKS)
        && first.key.parts == [json!({ "source": { "v6_prefix": 128 } })]
        && let Some(overrides) = exempt(networks)
    {
        // A match has only one `not`, with a bounded list of networks, so overrides exempt the
        // networks instead.
        conditions.not = None;
        rule.set("overrides", Value::Object(overrides));
    }
    match path {
        Paths::All => {}
        Paths::Some(test, not) => {
            conditions.path = (*test != Value::Null).then(|| test.clone());
            if let Some(not) = not {
                is_exact &= conditions.exclude(not.clone());
            }
        }
        Paths::Each(_) | Paths::Inexpressible => {
            let message = format!(
                "{}: its locations are too many, or take requests from each other in a way that one `match` cannot express",
                rule.original()
            );
            out.lost(&first.place, &message);
            return;
        }
    }
    let is_exact_host = hosts(servers, &region.servers, &mut conditions);
    if let Some(value) = conditions.value() {
        rule.set("match", value);
    }
    rule.set("key", json!(first.key.parts));
    let mut labels: Vec<&str> = Vec::new();
    let mut limits = Vec::new();
    for limit in group {
        let mut fields = Map::new();
        // The names of limits are optional, but a rule with several limits needs distinct names.
        if group.len() > 1 {
            let same = labels.iter().filter(|label| **label == limit.label).count();
            let name = match same {
                0 => limit.label.clone(),
                n => format!("{}-{}", limit.label, n.saturating_add(1)),
            };
            fields.insert("name".to_owned(), json!(name));
            labels.push(&limit.label);
        }
        if let Value::Object(own) = &limit.limit {
            fields.extend(own.clone());
        }
        limits.push(Value::Object(fields));
        rule.counts(&limit.zone, limit.model.clone());
        rule.remarks.extend(limit.remarks.clone());
        for difference in limit.differences.iter().chain(&limit.key.differences) {
            rule.differs(difference.clone());
        }
    }
    rule.set("limits", Value::Array(limits));
    if first.is_dry {
        rule.set("mode", json!("shadow"));
    }
    if first.status < 400 {
        rule.differs(format!(
            "status {} is not an error, and Loudou refuses with 400 to 599; it is 429 here",
            first.status
        ));
    } else {
        rule.status(first.status);
    }
    if is_split {
        rule.differs(
            "nginx counts all requests of this zone together, and this rule counts its own requests only",
        );
    }
    if !is_exact {
        rule.differs(
            "the rule also applies to requests of other locations, because a match has only one `not`",
        );
    }
    if !is_exact_host {
        rule.differs(
            "the rule also applies to hosts of other servers, because its `match` cannot exclude them",
        );
    }
    out.add(rule);
}

/// A server name, with its index among the names of all servers.
type Name<'a> = (usize, &'a Host);

/// Adds a condition for the hosts of the servers in `mine`. Returns false if the condition also
/// matches hosts of other servers.
fn hosts(servers: &[Server], mine: &[usize], conditions: &mut Conditions) -> bool {
    if mine.len() == servers.len() {
        return true;
    }
    let names = servers.iter().enumerate();
    let names = names.flat_map(|(server, one)| {
        let is_mine = mine.contains(&server);
        one.hosts.iter().map(move |host| (is_mine, host))
    });
    let (mut own, mut others): (Vec<Name<'_>>, Vec<Name<'_>>) = (Vec::new(), Vec::new());
    for (place, (is_mine, host)) in names.enumerate() {
        if is_mine {
            own.push((place, host));
        } else {
            others.push((place, host));
        }
    }
    others.retain(|(_, host)| !own.iter().any(|(_, one)| one == host));
    let is_default = |index: &usize| servers.get(*index).is_some_and(|server| server.is_default);
    if !mine.iter().any(is_default) {
        host_conditions(&hosts_of(&own), conditions);
        others.retain(|other| own.iter().any(|host| takes_from(*other, *host)));
    }
    // The servers' own names that nginx prefers to an excluded name. The condition is inexact if
    // nginx prefers another server's name to one of these.
    let inner: Vec<Name<'_>> = own
        .iter()
        .filter(|host| others.iter().any(|other| takes_from(**host, *other)))
        .copied()
        .collect();
    let is_deeper = |host: &Name<'_>| others.iter().any(|other| takes_from(*other, *host));
    let is_exact = !inner.iter().any(is_deeper);
    let (others, inner) = (hosts_of(&others), hosts_of(&inner));
    let mut excluded = match others.as_slice() {
        [] => return true,
        [host] if host.test().is_some() => json!({ "host": host.test() }),
        others => json!({ "headers": [authority(others)] }),
    };
    if let (Some(fields), false) = (excluded.as_object_mut(), inner.is_empty()) {
        fields.insert("not".to_owned(), json!({ "headers": [authority(&inner)] }));
    }
    is_exact && !is_too_long(&excluded) && conditions.exclude(excluded)
}

/// Returns true if nginx prefers the first server name to the second for some hosts.
fn takes_from((place, host): Name<'_>, (other_place, other): Name<'_>) -> bool {
    match (host, other) {
        (Host::Regex(_), Host::Regex(_)) => place < other_place,
        _ => host.takes_from(other),
    }
}

fn hosts_of<'a>(names: &[Name<'a>]) -> Vec<&'a Host> {
    names.iter().map(|(_, host)| *host).collect()
}

/// Returns true if a match contains a regular expression that is too long for a rule file.
fn is_too_long(value: &Value) -> bool {
    match value {
        Value::Object(fields) => fields.iter().any(|(name, value)| {
            let text = value.as_str().filter(|_| name == "regex");
            text.is_some_and(|text| text.len() > MAX_REGEX) || is_too_long(value)
        }),
        Value::Array(items) => items.iter().any(is_too_long),
        _ => false,
    }
}

/// Adds a condition that the requested host matches one of these names.
pub(crate) fn host_conditions(hosts: &[&Host], conditions: &mut Conditions) {
    match hosts {
        [] => {}
        [host] if host.test().is_some() => conditions.host = host.test(),
        hosts => conditions.headers.push(authority(hosts)),
    }
}

/// Returns a test that passes if the requested host matches one of the names. The requested host
/// may include a port.
fn authority(hosts: &[&Host]) -> Value {
    let hosts: Vec<String> = hosts.iter().map(|host| host.regex()).collect();
    let regex = format!("(?i:{})(?::[0-9]+)?", hosts.join("|"));
    json!({ "name": ":authority", "regex": regex })
}

/// Returns the regions of requests to which a use of a limit applies. Servers with the same paths
/// form one region.
fn regions(servers: &[Server], index: usize) -> Vec<Region> {
    let mut regions: Vec<Region> = Vec::new();
    for (number, server) in servers.iter().enumerate() {
        // nginx sends no requests to a server that has no name and is not a default server.
        if server.hosts.is_empty() && !server.is_default {
            continue;
        }
        let Some(path) = paths(server, index) else {
            continue;
        };
        match regions.iter_mut().find(|region| region.path == path) {
            Some(region) => region.servers.push(number),
            None => regions.push(Region {
                servers: vec![number],
                path,
            }),
        }
    }
    regions
}

/// Returns the paths of a server to which a use of a limit applies.
///
/// If several locations match a path, nginx prefers one of them. The locations therefore form
/// levels. A location is one level above the highest location from which it takes requests if the
/// use applies to only one of the two, and otherwise on the same level. The use applies to a path
/// if the highest level that the path matches is even. A match expresses this with nested `not`
/// conditions.
fn paths(server: &Server, index: usize) -> Option<Paths> {
    let has = |location: &Location| location.uses.contains(&index);
    if !server.locations.iter().any(has) {
        return None;
    }
    if server.locations.iter().all(has) {
        return Some(Paths::All);
    }
    if has_mixed_prefixes(server) {
        return Some(Paths::Inexpressible);
    }
    let mut order: Vec<(usize, &Location)> = server.locations.iter().enumerate().collect();
    let has_regex = order
        .iter()
        .any(|(_, location)| matches!(location.pattern, Pattern::Regex(_)));
    order.sort_by_key(|(place, location)| rank(*place, location, has_regex));
    // The use applies to locations on even levels. A location to which the use does not apply is on
    // no level if it overlaps no lower level.
    let mut levels: Vec<(usize, &Location)> = Vec::new();
    for (_, location) in order {
        let wanted = usize::from(!has(location));
        let below = levels.iter();
        let below = below.filter(|(_, other)| other.pattern.overlaps(&location.pattern));
        let highest = below.map(|(level, _)| *level).max();
        let level = match highest {
            None if wanted == 1 => continue,
            None => 0,
            Some(level) if level % 2 == wanted => level,
            Some(level) => level.saturating_add(1),
        };
        levels.push((level, location));
    }
    let top = levels.iter().map(|(level, _)| *level).max().unwrap_or(0);
    if top > MAX_NOT {
        return Some(Paths::Inexpressible);
    }
    let mut inner: Option<Value> = None;
    for level in (0..=top).rev() {
        let patterns = levels
            .iter()
            .filter(|(other, _)| *other >= level && other.abs_diff(level) % 2 == 0);
        let patterns: Vec<&Pattern> = patterns.map(|(_, location)| &location.pattern).collect();
        let test = union(&patterns);
        let is_long = |test: &Value| {
            let regex = test.get("regex").and_then(Value::as_str);
            regex.is_some_and(|regex| regex.len() > MAX_REGEX)
        };
        if level == 0 {
            if test.as_ref().is_some_and(is_long) {
                return Some(match inner {
                    None => Paths::Each(patterns.iter().map(|pattern| pattern.test()).collect()),
                    Some(_) => Paths::Inexpressible,
                });
            }
            return Some(match (test, inner) {
                (None, None) => Paths::All,
                (test, inner) => Paths::Some(test.unwrap_or_default(), inner),
            });
        }
        if test.as_ref().is_some_and(is_long) {
            return Some(Paths::Inexpressible);
        }
        let mut fields = Map::new();
        fields.extend(test.map(|test| ("path".to_owned(), test)));
        fields.extend(inner.map(|inner| ("not".to_owned(), inner)));
        inner = Some(Value::Object(fields));
    }
    Some(Paths::All)
}

/// Returns true if a prefix that wins over regular expressions contains a prefix that does not. In
/// that case, regular expressions apply to only a part of the outer prefix.
fn has_mixed_prefixes(server: &Server) -> bool {
    let patterns = server.locations.iter().map(|location| &location.pattern);
    let mut regexes = patterns
        .clone()
        .filter(|one| matches!(one, Pattern::Regex(_)));
    let wins = |one: &&Pattern| matches!(one, Pattern::Prefix { wins: true, .. });
    let mut winners = patterns.clone().filter(wins);
    let is_inner = |outer: &Pattern, one: &Pattern| {
        matches!(one, Pattern::Prefix { wins: false, .. }) && one != outer && outer.has(one.text())
    };
    regexes.next().is_some()
        && winners.any(|outer| patterns.clone().any(|one| is_inner(outer, one)))
}

/// Returns a sort key that orders locations by nginx's preference, with the least preferred
/// location first.
fn rank(place: usize, location: &Location, has_regex: bool) -> (u8, usize) {
    match &location.pattern {
        Pattern::Prefix { text, wins: false } | Pattern::Segments(text) => (0, text.len()),
        // Among regular expressions, nginx prefers the first one in the file.
        Pattern::Regex(_) => (1, usize::MAX.saturating_sub(place)),
        Pattern::Prefix { text, wins: true } => (if has_regex { 2 } else { 0 }, text.len()),
        Pattern::Exact(text) => (3, text.len()),
    }
}

/// Returns a test that passes if any of the patterns matches, or `None` if they match all paths.
fn union(patterns: &[&Pattern]) -> Option<Value> {
    if patterns.iter().any(|pattern| pattern.is_everything()) {
        return None;
    }
    let mut kept: Vec<&Pattern> = Vec::new();
    for pattern in patterns {
        if !kept.contains(pattern) {
            kept.push(pattern);
        }
    }
    match kept.as_slice() {
        [pattern] => Some(pattern.test()),
        // ingress-nginx generates one location for a path and another one for all paths below it.
        [Pattern::Exact(path), Pattern::Prefix { text, .. }]
        | [Pattern::Prefix { text, .. }, Pattern::Exact(path)]
            if text.strip_suffix('/') == Some(path) =>
        {
            Some(json!({ "prefix": path }))
        }
        patterns => {
            let regexes: Vec<String> = patterns.iter().map(|pattern| pattern.regex()).collect();
            Some(json!({ "regex": regexes.join("|") }))
        }
    }
}
