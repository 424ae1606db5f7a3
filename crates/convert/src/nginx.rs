//! Converts nginx's `limit_req` and `limit_conn`.
//!
//! nginx stores the excess of each key in thousandths of a request, and decreases it at the
//! configured rate. A new request passes if the excess is then at most `burst`. This is a leaky
//! queue with `burst` waiting requests or, with `nodelay`, a funnel with a capacity of `burst` + 1.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use serde_json::{Value, json};

use crate::conditions::whole;
use crate::locations::{
    Host, Key, Location, MAX_LOCATIONS, MAX_SERVERS, MAX_USES, Pattern, Server, Use, add_rules,
};
use crate::model::Model;
use crate::model::nginx::{LimitConn, LimitReq};
use crate::number::Nginx;
use crate::out::{Out, Place, Problem, quoted};
use location::{Scope, has_look_around, nested, path_of, prefix_of};
use syntax::Directive;
use variables::Variables;

mod include;
mod location;
mod syntax;
mod variables;

/// Maximum time that Loudou delays a request, in seconds.
const MAX_WAIT_S: u64 = 3_600;

/// Returns true if a text is an nginx configuration. Directives in an nginx configuration end with
/// `;` and have no `:` after their name.
pub(crate) fn looks_like(text: &str) -> bool {
    let lines = text.lines().map(str::trim);
    let mut lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    let Some(first) = lines.next() else {
        return false;
    };
    let end = first.find(|c: char| !c.is_ascii_lowercase() && !c.is_ascii_digit() && c != '_');
    let (name, rest) = end
        .and_then(|end| first.split_at_checked(end))
        .unwrap_or((first, ""));
    let is_directive =
        !name.is_empty() && rest.starts_with(|c: char| c.is_whitespace() || c == '{' || c == ';');
    let is_end = |line: &str| {
        let line = line.split(" #").next().unwrap_or_default().trim_end();
        line.ends_with([';', '{', '}'])
    };
    is_directive && (is_end(first) || lines.any(|line| line.ends_with(';')))
}

/// Returns the limit for a rate and a burst. `delay` is the excess up to which requests pass
/// without a delay.
pub(crate) fn limit(rate: &Nginx, burst: u64, delay: u64) -> Value {
    if delay >= burst {
        return json!({
            "algorithm": "funnel",
            "capacity": burst.saturating_add(1),
            "rate": rate.text,
        });
    }
    let mut limit = json!({ "algorithm": "leaky_queue", "capacity": burst, "rate": rate.text });
    if let Some(fields) = limit.as_object_mut()
        && delay > 0
    {
        fields.insert("immediate".to_owned(), json!(delay));
    }
    limit
}

/// Returns the model of nginx's limit with the same parameters.
pub(crate) fn model(rate: &Nginx, burst: u64, delay: u64) -> Model {
    Model::LimitReq(LimitReq::new(rate.millis, burst, delay))
}

/// Returns a remark if nginx rounds the rate.
pub(crate) fn rounded(rate: &Nginx) -> Option<String> {
    let (whole, rest) = (rate.millis.div_euclid(1_000), rate.millis.rem_euclid(1_000));
    rate.is_rounded.then(|| {
        format!("nginx rounds the rate down to {whole}.{rest:03} requests per second, and so does this rule")
    })
}

/// Difference for `limit_conn`, which has no lease in nginx.
pub(crate) const LEASE: &str = "a request that runs for longer than the lease, 5 minutes, is no longer counted, and \
                                nginx counts it to its end; set `lease` above the longest request";

/// Warning about requests that both `limit_req` and `limit_conn` limit.
pub(crate) const REFUNDED: &str = "a request that `limit_conn` refuses takes nothing, and nginx counts it in `limit_req`; a delayed \
                                   request already runs while it waits, and nginx asks `limit_conn` after the delay";

/// A zone, as defined by `limit_req_zone` or `limit_conn_zone`.
struct Zone {
    key: Result<Key, String>,
    /// Rate of a `limit_req_zone`.
    rate: Option<Nginx>,
    text: String,
}

/// Limit settings of a level, which inner levels inherit.
#[derive(Clone, Default)]
struct Level<'a> {
    requests: Vec<&'a Directive>,
    connections: Vec<&'a Directive>,
    request_status: u64,
    connection_status: u64,
    request_dry: bool,
    connection_dry: bool,
}

struct Reader {
    /// Addresses that already have a default server.
    listens: BTreeSet<String>,
    /// Addresses with an explicit default server.
    defaults: BTreeSet<String>,
    /// Server names, each with the address on which it is used.
    taken: BTreeSet<(String, String)>,
    zones: BTreeMap<(bool, String), Zone>,
    servers: Vec<Server>,
    /// Total number of server names.
    names: usize,
    /// Place and addresses of each server, in the order of `servers`.
    origins: Vec<Origin>,
    uses: Vec<Use>,
}

struct Origin {
    place: Place,
    /// Addresses of the server, or none if the server itself is not in the given files.
    listens: BTreeSet<String>,
    /// True if the server answers all requests itself, before nginx checks limits.
    returns: bool,
}

/// Converts the texts, which together configure one nginx.
pub(crate) fn convert(texts: &[(Rc<str>, &str)], out: &mut Out) -> Result<(), Problem> {
    let mut files = Vec::new();
    for (file, text) in texts {
        files.push((Rc::clone(file), syntax::read(file, text)?));
    }
    let all = include::resolve(&files, out)?;
    let mut variables = Variables::default();
    visit(&all, &mut |directive| match directive.name.as_str() {
        "map" | "geo" => variables.define(directive),
        "include" if is_of_interest(directive.arg(0)) => {
            let message = format!(
                "`{}` is not read; if limits are in it, name it as another FILE, with the same folder",
                quoted(&directive.text())
            );
            out.note(&directive.place, &message);
        }
        "limit_rate" | "limit_rate_after" => {
            let message = format!(
                "{}: bandwidth is out of scope, Loudou limits requests",
                quoted(&directive.text())
            );
            out.lost(&directive.place, &message);
        }
        "stream" | "mail" if directive.block.is_some() => {
            let mut has_limit = false;
            visit(directive.inner(), &mut |inner| {
                has_limit |= inner.name.starts_with("limit_conn");
            });
            if has_limit {
                let message = format!("limits in `{}`, which is not HTTP", directive.name);
                out.lost(&directive.place, &message);
            }
        }
        _ => {}
    });
    let mut reader = Reader {
        listens: BTreeSet::new(),
        defaults: BTreeSet::new(),
        taken: BTreeSet::new(),
        zones: BTreeMap::new(),
        servers: Vec::new(),
        origins: Vec::new(),
        names: 0,
        uses: Vec::new(),
    };
    visit(&all, &mut |directive| {
        reader.zone(directive, &variables, out);
        if is_default(directive) {
            reader.defaults.insert(address(directive.arg(0)));
        }
    });
    let start = Level {
        request_status: 503,
        connection_status: 503,
        ..Level::default()
    };
    reader.http(&all, start, out)?;
    reader.compare_servers(out);
    add_rules(&reader.servers, &reader.uses, out);
    Ok(())
}

/// Returns false for well-known files that contain no limits.
fn is_of_interest(file: &str) -> bool {
    ![
        "mime.types",
        "fastcgi_params",
        "fastcgi.conf",
        "uwsgi_params",
        "scgi_params",
        "proxy_params",
    ]
    .iter()
    .any(|name| file.ends_with(name))
}

/// Returns true if a `listen` directive makes its server the default for an address.
fn is_default(directive: &Directive) -> bool {
    let mut args = directive.args.iter();
    directive.name == "listen" && args.any(|arg| arg == "default_server" || arg == "default")
}

/// Returns the address of a `listen` directive in a normalized form.
fn address(listen: &str) -> String {
    let port = listen.strip_prefix("*:");
    let port = port.or_else(|| listen.strip_prefix("0.0.0.0:"));
    port.unwrap_or(listen).to_owned()
}

/// Calls a function for each directive, including nested ones. The parser limits the nesting depth
/// and therefore the recursion.
fn visit<'a>(directives: &'a [Directive], f: &mut impl FnMut(&'a Directive)) {
    for directive in directives {
        f(directive);
        visit(directive.inner(), f);
    }
}

impl Reader {
    fn zone(&mut self, directive: &Directive, variables: &Variables, out: &mut Out) {
        let is_request = match directive.name.as_str() {
            "limit_req_zone" => true,
            "limit_conn_zone" => false,
            _ => return,
        };
        let zone = directive.named("zone=").unwrap_or_default();
        let name = zone.split(':').next().unwrap_or_default().to_owned();
        let rate = directive.named("rate=").and_then(Nginx::parse);
        if name.is_empty() || is_request && rate.is_none() {
            let message = format!(
                "{}: expected `zone=NAME:SIZE`{}",
                quoted(&directive.text()),
                if is_request {
                    " and `rate=Nr/s` or `rate=Nr/m`"
                } else {
                    ""
                }
            );
            out.lost(&directive.place, &message);
            return;
        }
        let zone = Zone {
            key: variables.key(directive.arg(0)),
            rate,
            text: directive.text(),
        };
        self.zones.insert((is_request, name), zone);
    }

    /// Reads the directives of an `http` block, or the top level of a file, which an `http` block
    /// may include.
    fn http<'a>(
        &mut self,
        directives: &'a [Directive],
        outer: Level<'a>,
        out: &mut Out,
    ) -> Result<(), Problem> {
        let level = inherit(directives, outer, out);
        let mut rest = None;
        for directive in directives {
            match directive.name.as_str() {
                "http" => self.http(directive.inner(), level.clone(), out)?,
                "server" if directive.block.is_some() => {
                    self.server(directive.inner(), level.clone(), &directive.place, out)?;
                }
                // A location outside a server comes from a file that a `server` block includes.
                "location" => {
                    rest.get_or_insert_with(|| directive.place.clone());
                }
                _ => {}
            }
        }
        if let Some(place) = rest {
            out.note(
                &place,
                "a location outside of a server: its limits apply to all hosts here that no server names, and the \
                 limits of its server are missing; name the file that includes it, too",
            );
            self.server(directives, level, &place, out)?;
            if let Some(server) = self.servers.last_mut() {
                server.is_default = true;
            }
            if let Some(origin) = self.origins.last_mut() {
                origin.listens.clear();
            }
        } else if !directives
            .iter()
            .any(|one| one.name == "server" || one.name == "http")
        {
            for directive in directives.iter().filter(|one| is_setting(one)) {
                let message = format!("{}: no server is at its level", quoted(&directive.text()));
                out.lost(&directive.place, &message);
            }
        }
        Ok(())
    }

    fn server<'a>(
        &mut self,
        directives: &'a [Directive],
        outer: Level<'a>,
        place: &Place,
        out: &mut Out,
    ) -> Result<(), Problem> {
        let level = inherit(directives, outer, out);
        let returns = returns(directives);
        let mut server = Server::default();
        let mut listens: BTreeSet<String> = BTreeSet::new();
        for directive in directives {
            match directive.name.as_str() {
                "server_name" => {
                    server
                        .hosts
                        .extend(directive.args.iter().flat_map(|name| hosts(name)));
                }
                "listen" => {
                    listens.insert(address(directive.arg(0)));
                }
                _ => {}
            }
            server.is_default |= is_default(directive);
        }
        if listens.is_empty() {
            listens.insert("80".to_owned());
        }
        // The first server of an address is its default, unless another server is explicitly the
        // default.
        for listen in &listens {
            server.is_default |=
                !self.defaults.contains(listen) && self.listens.insert(listen.clone());
        }
        self.names = self.names.saturating_add(server.hosts.len());
        self.take_names(&mut server, &listens, place, out);
        let mut paths: Vec<&str> = Vec::new();
        let mut many = 0_usize;
        visit(directives, &mut |directive| {
            if directive.name == "location" {
                many = many.saturating_add(1);
                paths.extend(prefix_of(directive));
            }
        });
        let is_full = self.servers.len() >= MAX_SERVERS || self.names > MAX_SERVERS;
        if many > MAX_LOCATIONS || is_full {
            let message = format!(
                "more than {MAX_LOCATIONS} locations in a server, or more than {MAX_SERVERS} servers or names of servers"
            );
            return Err(Problem::error(place.clone(), &message));
        }
        if !returns {
            let scope = Scope {
                level: &level,
                parent: None,
                uses: &[],
                has_regex: directives.iter().any(|directive| {
                    directive.name == "location" && path_of(directive).0.starts_with('~')
                }),
                paths: &paths,
                outer: Vec::new(),
            };
            self.locations(directives, &scope, &mut server, out)?;
        }
        let has_root = server
            .locations
            .iter()
            .any(|location| location.pattern == Pattern::prefix("/"));
        if !has_root {
            let uses = if returns {
                Vec::new()
            } else {
                self.uses(&level, out)
            };
            server.locations.push(Location {
                pattern: Pattern::prefix("/"),
                uses,
            });
        }
        if self.uses.len() > MAX_USES {
            return Err(Problem::error(
                place.clone(),
                &format!("more than {MAX_USES} limits"),
            ));
        }
        self.servers.push(server);
        self.origins.push(Origin {
            place: place.clone(),
            listens,
            returns,
        });
        Ok(())
    }

    /// Removes the names that earlier servers already use on the same addresses. If several servers
    /// of an address have the same name, nginx uses the first one.
    fn take_names(
        &mut self,
        server: &mut Server,
        listens: &BTreeSet<String>,
        place: &Place,
        out: &mut Out,
    ) {
        let taken = &mut self.taken;
        let mut ignored = Vec::new();
        server.hosts.retain(|host| {
            let name = format!("{host:?}");
            let mut is_new = false;
            for listen in listens {
                is_new |= taken.insert((listen.clone(), name.clone()));
            }
            if !is_new {
                ignored.push(host.regex());
            }
            is_new
        });
        if !ignored.is_empty() {
            let message = format!(
                "nginx ignores the names {} of this server, because an earlier server of its address has them",
                quoted(&ignored.join(", "))
            );
            out.note(place, &message);
        }
    }

    /// Adds the locations inside a server or location. Returns the number of added locations that
    /// nginx tries before the regular expressions of outer levels.
    fn locations<'a>(
        &mut self,
        directives: &'a [Directive],
        scope: &Scope<'_, 'a>,
        server: &mut Server,
        out: &mut Out,
    ) -> Result<usize, Problem> {
        let mut front = 0_usize;
        for directive in directives.iter().filter(|one| one.name == "location") {
            let level = inherit(directive.inner(), scope.level.clone(), out);
            let (modifier, path) = path_of(directive);
            let pattern = match (modifier, path) {
                ("=", path) => Pattern::Exact(path.to_owned()),
                ("^~", path) => Pattern::Prefix {
                    text: path.to_owned(),
                    wins: true,
                },
                ("~", regex) => Pattern::search(regex, false),
                ("~*", regex) => Pattern::search(regex, true),
                // A named location receives only nginx's internal redirects.
                (name, "") if name.starts_with('@') => continue,
                (path, _) => Pattern::prefix(path),
            };
            if modifier.starts_with('~') && has_look_around(path) {
                let message = format!(
                    "{}: look-around and back-references have no counterpart, so each rule of this server is lost that needs this path",
                    quoted(&directive.text())
                );
                out.note(&directive.place, &message);
            }
            // A `return` ends a request before nginx checks limits.
            let uses = if returns(directive.inner()) {
                Vec::new()
            } else {
                self.uses(&level, out)
            };
            let own = uses.clone();
            if let Some(parent) = scope.parent
                && (modifier.starts_with('~') || path_of(parent).0.starts_with('~'))
            {
                let nested = nested(directive, parent, scope.paths);
                match nested {
                    // nginx tries a nested regular expression before the regular expressions of
                    // outer levels.
                    Some(pattern) => {
                        server.locations.insert(front, Location { pattern, uses });
                        front = front.saturating_add(1);
                    }
                    None if uses == scope.uses && !scope.has_regex => {}
                    None => {
                        let message = format!(
                            "{} in {}: its requests have the limits of other locations here",
                            quoted(&directive.text()),
                            quoted(&parent.text())
                        );
                        out.lost(&directive.place, &message);
                    }
                }
            } else if scope.takes(directive) {
                let message = format!(
                    "{}: no request reaches it, because a location outside of its own takes them",
                    quoted(&directive.text())
                );
                out.note(&directive.place, &message);
                continue;
            } else {
                let pattern = scope.among_regexes(pattern, directive, directives, out);
                server.locations.push(Location { pattern, uses });
            }
            let siblings = directives.iter().filter(|one| one.name == "location");
            let siblings = siblings.map(|one| (prefix_of(directive).map_or(0, str::len), one));
            let inner = Scope {
                level: &level,
                parent: Some(directive),
                uses: &own,
                // Outer regular expressions take no requests from a `^~` prefix.
                has_regex: scope.has_regex && modifier != "^~",
                paths: scope.paths,
                outer: scope.outer.iter().copied().chain(siblings).collect(),
            };
            let more = self.locations(directive.inner(), &inner, server, out)?;
            front = front.saturating_add(more);
        }
        Ok(front)
    }

    /// Warns about servers that differ only in their port, which a match cannot test. A server of
    /// this kind is left out if it has no limits.
    fn compare_servers(&mut self, out: &mut Out) {
        let all = || self.servers.iter().zip(&self.origins);
        let mut kept = Vec::new();
        for (index, (server, origin)) in all().enumerate() {
            let mut is_kept = true;
            let mut is_noted = origin.listens.is_empty();
            for (number, (other, other_origin)) in all().enumerate() {
                let is_shared = |host: &Host| other.hosts.contains(host);
                let overlaps =
                    server.hosts.iter().any(is_shared) || server.is_default && other.is_default;
                if number == index
                    || !overlaps
                    || origin.listens == other_origin.listens
                    || other_origin.listens.is_empty()
                    || server.locations == other.locations
                {
                    continue;
                }
                if number < index && !is_noted {
                    is_noted = true;
                    let message = format!(
                        "this server and the one at {} serve the same hosts, or hosts without a server, on different ports, which a match cannot tell apart: \
                         limits of either also apply to requests of the other",
                        other_origin.place
                    );
                    out.note(&origin.place, &message);
                }
                let is_covered = server.hosts.iter().all(is_shared);
                if origin.returns
                    && !other_origin.returns
                    && is_covered
                    && (other.is_default || !server.is_default)
                {
                    is_kept = false;
                }
            }
            kept.push(is_kept);
        }
        let mut kept = kept.into_iter();
        self.servers.retain(|_| kept.next().unwrap_or(true));
    }

    /// Returns the indices of the uses of limits in a level. Equal uses share one index.
    fn uses(&mut self, level: &Level<'_>, out: &mut Out) -> Vec<usize> {
        let mut indices = Vec::new();
        let requests = level.requests.iter().map(|directive| (true, directive));
        let connections = level.connections.iter().map(|directive| (false, directive));
        for (is_request, directive) in requests.chain(connections) {
            let found = if is_request {
                self.request(directive, level)
            } else {
                self.connection(directive, level)
            };
            match found {
                Ok(found) => {
                    let same = self.uses.iter().position(|other| other.is_same(&found));
                    indices.push(same.unwrap_or_else(|| {
                        self.uses.push(found);
                        self.uses.len().saturating_sub(1)
                    }));
                }
                Err(why) => {
                    let message = format!("{}: {why}", quoted(&directive.text()));
                    out.lost(&directive.place, &message);
                }
            }
        }
        if let (false, [.., last]) = (level.requests.is_empty(), level.connections.as_slice()) {
            let found = self
                .uses
                .iter_mut()
                .rev()
                .find(|one| one.place == last.place);
            if let Some(found) = found
                && !found.differences.iter().any(|text| text == REFUNDED)
            {
                found.differences.push(REFUNDED.to_owned());
            }
        }
        indices
    }

    fn request(&self, directive: &Directive, level: &Level<'_>) -> Result<Use, String> {
        let name = directive.named("zone=").unwrap_or_default();
        let zone = self.zones.get(&(true, name.to_owned()));
        let zone =
            zone.ok_or_else(|| format!("no `limit_req_zone` for the zone `{}`", quoted(name)))?;
        let key = zone.key.clone().map_err(|why| no_key(zone, &why))?;
        let rate = zone.rate.as_ref().ok_or("no rate")?;
        let number = |name: &str| match directive.named(name) {
            None => Ok(None),
            Some(text) => match text.parse::<u64>() {
                Ok(number) => Ok(Some(number)),
                Err(_) => Err(format!("`{name}{}` is not a whole number", quoted(text))),
            },
        };
        let burst = number("burst=")?.unwrap_or(0);
        let is_immediate = directive.args.iter().any(|arg| arg == "nodelay");
        let delay = number("delay=")?.unwrap_or(0);
        let delay = if is_immediate { burst } else { delay };
        let mut differences = Vec::new();
        let longest = burst.saturating_sub(delay).saturating_mul(1_000);
        if delay < burst && longest.checked_div(rate.millis).unwrap_or(0) > MAX_WAIT_S {
            differences.push(
                "a request that would wait for longer than an hour is refused, and nginx lets it wait".to_owned(),
            );
        }
        Ok(Use {
            zone: format!("req {name}"),
            name: name.to_owned(),
            key,
            limit: limit(rate, burst, delay),
            model: model(rate, burst, delay),
            label: label(name),
            status: level.request_status,
            is_dry: level.request_dry,
            place: directive.place.clone(),
            original: format!("{}, with {}", directive.text(), zone.text),
            remarks: rounded(rate).into_iter().collect(),
            differences,
        })
    }

    fn connection(&self, directive: &Directive, level: &Level<'_>) -> Result<Use, String> {
        let name = directive.arg(0);
        let zone = self.zones.get(&(false, name.to_owned()));
        let zone =
            zone.ok_or_else(|| format!("no `limit_conn_zone` for the zone `{}`", quoted(name)))?;
        let key = zone.key.clone().map_err(|why| no_key(zone, &why))?;
        let number = directive.arg(1);
        let capacity: u64 = number
            .parse()
            .map_err(|_wrong| format!("`{}` is not a whole number", quoted(number)))?;
        Ok(Use {
            zone: format!("conn {name}"),
            name: name.to_owned(),
            key,
            limit: json!({ "algorithm": "concurrency", "capacity": capacity }),
            model: Model::LimitConn(LimitConn { most: capacity }),
            label: label(name),
            status: level.connection_status,
            is_dry: level.connection_dry,
            place: directive.place.clone(),
            original: format!("{}, with {}", directive.text(), zone.text),
            remarks: Vec::new(),
            differences: vec![LEASE.to_owned()],
        })
    }
}

/// Returns true if a level contains `return` and therefore answers all of its requests itself.
fn returns(directives: &[Directive]) -> bool {
    directives
        .iter()
        .any(|directive| directive.name == "return")
}

/// Returns true for a limit directive that inner levels inherit.
fn is_setting(directive: &Directive) -> bool {
    matches!(
        directive.name.as_str(),
        "limit_req"
            | "limit_conn"
            | "limit_req_status"
            | "limit_conn_status"
            | "limit_req_dry_run"
            | "limit_conn_dry_run"
    )
}

fn no_key(zone: &Zone, why: &str) -> String {
    format!(
        "the key in `{}` has no counterpart: {why}",
        quoted(&zone.text)
    )
}

/// Converts a zone's name to the syntax of a limit's name.
fn label(zone: &str) -> String {
    crate::out::slug(zone)
}

/// Returns the limit settings of a level. A level with its own `limit_req` directives inherits no
/// `limit_req`, and the same is true of `limit_conn`.
fn inherit<'a>(directives: &'a [Directive], outer: Level<'a>, out: &mut Out) -> Level<'a> {
    let all = |name: &str| -> Vec<&'a Directive> {
        directives
            .iter()
            .filter(|directive| directive.name == name)
            .collect()
    };
    let mut level = outer;
    for (name, kept) in [
        ("limit_req", &mut level.requests),
        ("limit_conn", &mut level.connections),
    ] {
        let own = all(name);
        if !own.is_empty() {
            *kept = own;
        }
    }
    for (name, status) in [
        ("limit_req_status", &mut level.request_status),
        ("limit_conn_status", &mut level.connection_status),
    ] {
        if let Some(directive) = all(name).last() {
            match directive.arg(0).parse() {
                Ok(number @ 400..=599) => *status = number,
                _ => out.lost(
                    &directive.place,
                    &format!("{}: expected 400 to 599", quoted(&directive.text())),
                ),
            }
        }
    }
    for (name, dry) in [
        ("limit_req_dry_run", &mut level.request_dry),
        ("limit_conn_dry_run", &mut level.connection_dry),
    ] {
        if let Some(directive) = all(name).last() {
            *dry = directive.arg(0) == "on";
        }
    }
    for name in ["limit_req_log_level", "limit_conn_log_level"] {
        if let Some(directive) = all(name).last() {
            let text = quoted(&directive.text());
            let message = format!("{text}: Envoy's access log shows refusals");
            out.lost(&directive.place, &message);
        }
    }
    level
}

/// Returns the hosts that a `server_name` matches.
fn hosts(name: &str) -> Vec<Host> {
    // A regular expression is not converted to lower case, because `\S` and `\s` differ.
    if let Some(regex) = name.strip_prefix('~') {
        return vec![Host::Regex(whole(regex))];
    }
    let name = name.to_ascii_lowercase();
    if let Some(domain) = name.strip_prefix("*.") {
        return vec![Host::Suffix(format!(".{domain}"))];
    }
    if let Some(domain) = name.strip_prefix('.') {
        return vec![Host::Exact(domain.to_owned()), Host::Suffix(name.clone())];
    }
    if let Some(start) = name.strip_suffix(".*") {
        return vec![Host::Prefix(format!("{start}."))];
    }
    // A server without a name matches no host, and `_` is a conventional name that no client sends.
    if name.is_empty() || name == "_" {
        return Vec::new();
    }
    vec![Host::Exact(name)]
}
