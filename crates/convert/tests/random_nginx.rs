//! Random configurations of nginx with random requests. The converted rules decide like nginx, or a
//! warning says that they do not.
//!
//! The model chooses servers and locations as nginx does: `ngx_http_find_virtual_server` in
//! `ngx_http_request.c`, and `ngx_http_core_find_location` in `ngx_http_core_module.c`.
#![cfg(test)]

use std::collections::HashMap;
use std::fmt::Write as _;

use loudou_convert::model::nginx::LimitReq;
use loudou_convert::model::{Ask, Counter, Model, Said};
use loudou_convert::{Source, convert};
use loudou_limiter::{Nanos, Verdict};
use proptest::prelude::*;
use proptest::sample::select;

mod replayed;

const ZONES: usize = 6;

/// Key of a zone.
#[derive(Clone, Copy, Debug)]
enum Key {
    Address,
    Header,
    Host,
    Path,
    AddressAndPath,
    AddressAndHeader,
    Mapped,
}

/// Value of the map, and the names of its entries with their answers: counted or not.
#[derive(Clone, Debug)]
struct Mapping {
    default: bool,
    entries: Vec<(&'static str, bool)>,
}

/// A `limit_req`.
#[derive(Clone, Copy, Debug)]
struct Use {
    zone: usize,
    burst: u64,
    /// Requests that pass without a delay.
    delay: u64,
}

/// Settings of a level.
#[derive(Clone, Debug, Default)]
struct Level {
    /// Empty to inherit.
    limits: Vec<Use>,
    is_dry: Option<bool>,
    returns: bool,
}

#[derive(Clone, Debug)]
struct Location {
    place: Place,
    level: Level,
    nested: Vec<Self>,
}

#[derive(Clone, Debug)]
struct Server {
    names: Vec<&'static str>,
    level: Level,
    locations: Vec<Location>,
}

#[derive(Clone, Debug)]
struct Conf {
    zones: Vec<(Key, u64)>,
    map: Mapping,
    http: Level,
    servers: Vec<Server>,
    /// Explicit default server.
    default: Option<usize>,
}

#[derive(Clone, Debug)]
struct Request {
    gap_ms: u64,
    address: &'static str,
    host: &'static str,
    path: &'static str,
    header: &'static str,
}

/// A prefix, exact path or regular expression of a location, and its match by nginx.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Place {
    Prefix(&'static str),
    Wins(&'static str),
    Exact(&'static str),
    /// A regular expression, and the text that it finds at the end or the start.
    End(&'static str),
    Start(&'static str),
}

const PLACES: [Place; 13] = [
    Place::Prefix("/"),
    Place::Prefix("/a"),
    Place::Prefix("/a/"),
    Place::Prefix("/a/b"),
    Place::Prefix("/ab"),
    Place::Prefix("/b/x"),
    Place::Wins("/b"),
    Place::Wins("/a/b/c"),
    Place::Exact("/a"),
    Place::Exact("/a/b/c.png"),
    Place::End(".png"),
    Place::End("c"),
    Place::Start("/a/b"),
];
const PATHS: [&str; 15] = [
    "/",
    "/a",
    "/a/",
    "/ab",
    "/abc",
    "/a/b",
    "/a/b/",
    "/a/b/c",
    "/a/b/c.png",
    "/a/x.png",
    "/b",
    "/b.png",
    "/bc",
    "/b/x.png",
    "/c",
];
const NAMES: [&str; 9] = [
    "_",
    "a.com",
    "www.a.com",
    "*.a.com",
    ".b.com",
    "b.com",
    "www.*",
    "~^x\\.",
    "~^.*\\.org$",
];
const HOSTS: [&str; 9] = [
    "a.com",
    "www.a.com",
    "WWW.A.com",
    "x.a.com",
    "b.com",
    "x.b.com",
    "www.c.org",
    "y.org",
    "other.net",
];
const ENTRIES: [&str; 5] = ["\"\"", "vip", "~^v", "~*BOT", "bot1"];
const HEADERS: [&str; 6] = ["", "vip", "VIP", "bot1", "xbot", "u1"];

impl Place {
    fn directive(self) -> String {
        match self {
            Self::Prefix(text) => text.to_owned(),
            Self::Wins(text) => format!("^~ {text}"),
            Self::Exact(text) => format!("= {text}"),
            Self::End(text) => format!("~ {}$", text.replace('.', "\\.")),
            Self::Start(text) => format!("~* ^{}", text.to_uppercase()),
        }
    }

    fn has(self, path: &str) -> bool {
        match self {
            Self::Prefix(text) | Self::Wins(text) => path.starts_with(text),
            Self::Exact(text) => path == text,
            Self::End(text) => path.ends_with(text),
            Self::Start(text) => path.to_lowercase().starts_with(text),
        }
    }

    fn prefix(self) -> Option<&'static str> {
        match self {
            Self::Prefix(text) | Self::Wins(text) => Some(text),
            _ => None,
        }
    }

    /// nginx refuses two locations with the same prefix, or the same exact path.
    fn conflicts(self, other: Self) -> bool {
        match (self.prefix(), other.prefix()) {
            (Some(one), Some(other)) => one == other,
            _ => self == other,
        }
    }
}

impl Conf {
    fn text(&self) -> String {
        let mut out = String::new();
        let mapped = |is_counted: bool| {
            if is_counted {
                "$binary_remote_addr"
            } else {
                "\"\""
            }
        };
        writeln!(out, "map $http_x_key $mapped {{").expect("writes");
        writeln!(out, "  default {};", mapped(self.map.default)).expect("writes");
        for (name, is_counted) in &self.map.entries {
            writeln!(out, "  {name} {};", mapped(*is_counted)).expect("writes");
        }
        out += "}\n";
        for (number, (key, rate)) in self.zones.iter().enumerate() {
            let key = match key {
                Key::Address => "$binary_remote_addr",
                Key::Header => "$http_x_key",
                Key::Host => "$host",
                Key::Path => "$uri",
                Key::AddressAndPath => "$binary_remote_addr$uri",
                Key::AddressAndHeader => "$binary_remote_addr$http_x_key",
                Key::Mapped => "$mapped",
            };
            writeln!(
                out,
                "limit_req_zone {key} zone=z{number}:1m rate={rate}r/s;"
            )
            .expect("writes");
        }
        self.http.write(&mut out);
        for (number, server) in self.servers.iter().enumerate() {
            let default = if self.default == Some(number) {
                " default_server"
            } else {
                ""
            };
            writeln!(out, "server {{ listen 80{default};").expect("writes");
            if !server.names.is_empty() {
                writeln!(out, "server_name {};", server.names.join(" ")).expect("writes");
            }
            server.level.write(&mut out);
            for location in &server.locations {
                location.write(&mut out);
            }
            out += "}\n";
        }
        out
    }

    /// Returns the server that nginx chooses.
    fn server(&self, host: &str) -> &Server {
        let host = host.to_lowercase();
        let names = self.servers.iter().enumerate();
        let names =
            names.flat_map(|(server, one)| one.names.iter().map(move |name| (server, *name)));
        let names: Vec<(usize, &str)> = names.collect();
        let is_exact =
            |(_, name): &&(usize, &str)| *name == host || name.strip_prefix('.') == Some(&host);
        if let Some((server, _)) = names.iter().find(is_exact) {
            return &self.servers[*server];
        }
        // A longer name takes precedence over a shorter one, and of equal names the first.
        let longest = |part: fn(&'static str) -> Option<&'static str>,
                       fits: &dyn Fn(&str) -> bool| {
            let mut best: Option<(usize, &str)> = None;
            for server in 0..self.servers.len() {
                for part in self.servers[server]
                    .names
                    .iter()
                    .filter_map(|name| part(name))
                {
                    if fits(part) && best.is_none_or(|(_, best)| part.len() > best.len()) {
                        best = Some((server, part));
                    }
                }
            }
            best.map(|(server, _)| server)
        };
        let head = |name: &'static str| {
            let rest = name.strip_prefix('*').unwrap_or(name);
            rest.starts_with('.').then_some(rest)
        };
        let tail = |name: &'static str| name.strip_suffix('*');
        let regex = |(_, name): &&(usize, &str)| match *name {
            "~^x\\." => host.starts_with("x."),
            "~^.*\\.org$" => host.rsplit('.').next() == Some("org"),
            _ => false,
        };
        let found = longest(head, &|part| host.ends_with(part))
            .or_else(|| longest(tail, &|part| host.starts_with(part)))
            .or_else(|| names.iter().find(regex).map(|(server, _)| *server));
        &self.servers[found.or(self.default).unwrap_or(0)]
    }

    /// Returns the key of a request in a zone.
    fn key(&self, key: Key, request: &Request) -> String {
        let address = request.address.to_owned();
        let value = request.header;
        match key {
            Key::Address => address,
            Key::Header => value.to_owned(),
            Key::Host => request.host.to_lowercase(),
            Key::Path => request.path.to_owned(),
            Key::AddressAndPath => address + request.path,
            Key::AddressAndHeader => address + value,
            Key::Mapped => {
                let entries = &self.map.entries;
                // Texts are compared without case, and take precedence.
                let text = entries.iter().find(|(name, _)| match *name {
                    "\"\"" => value.is_empty(),
                    name => name.eq_ignore_ascii_case(value),
                });
                let regex = || {
                    entries.iter().find(|(name, _)| match *name {
                        "~^v" => value.starts_with('v'),
                        "~*BOT" => value.to_lowercase().contains("bot"),
                        _ => false,
                    })
                };
                let found = text.or_else(regex).map(|(_, is_counted)| *is_counted);
                if found.unwrap_or(self.map.default) {
                    address
                } else {
                    String::new()
                }
            }
        }
    }

    /// Answers all requests as nginx does.
    fn answers(&self, requests: &[Request]) -> Vec<Said> {
        let mut counters: HashMap<(usize, String), Counter> = HashMap::new();
        let mut now = ORIGIN_MS;
        let mut answers = Vec::new();
        for request in requests {
            now += request.gap_ms;
            let server = self.server(request.host);
            let mut levels = vec![&self.http, &server.level];
            if server.level.returns {
                answers.push(Said::Pass);
                continue;
            }
            find(&server.locations, request.path, &mut levels);
            if levels.len() > 2 && levels.last().is_some_and(|level| level.returns) {
                answers.push(Said::Pass);
                continue;
            }
            let inner = levels.iter().rev();
            let limits = inner.clone().find(|level| !level.limits.is_empty());
            let is_dry = inner
                .clone()
                .find_map(|level| level.is_dry)
                .unwrap_or(false);
            let mut said = Said::Pass;
            let mut next = Vec::new();
            for limit in limits.iter().flat_map(|level| &level.limits) {
                let (key, rate) = self.zones[limit.zone];
                let key = self.key(key, request);
                if key.is_empty() {
                    continue;
                }
                let place = (limit.zone, key);
                let model = Model::LimitReq(LimitReq::new(rate * 1_000, limit.burst, limit.delay));
                let ask = Ask {
                    now: Nanos::new(now * 1_000_000),
                    cost: 1,
                    end: None,
                };
                let (own, effect) = model.ask(counters.get(&place), &ask);
                next.push((place, effect));
                said = match (said, own) {
                    (Said::Refuse, _) | (_, Said::Refuse) => Said::Refuse,
                    (Said::Delay(one), Said::Delay(other)) => Said::Delay(one.max(other)),
                    (Said::Pass, own) => own,
                    (said, Said::Pass) => said,
                    _ => Said::Unknown,
                };
            }
            if said != Said::Refuse {
                for (place, effect) in next {
                    let counter = effect.keep(counters.remove(&place));
                    counters.insert(place, counter);
                }
            }
            answers.push(if is_dry { Said::Pass } else { said });
        }
        answers
    }
}

/// Adds the levels of the location that nginx chooses. Returns true if nginx tries no regular
/// expressions of outer levels.
fn find<'a>(locations: &'a [Location], path: &str, levels: &mut Vec<&'a Level>) -> bool {
    let exact = |one: &&Location| matches!(one.place, Place::Exact(_)) && one.place.has(path);
    if let Some(exact) = locations.iter().find(exact) {
        levels.push(&exact.level);
        return true;
    }
    let outer = levels.clone();
    let prefixes = locations
        .iter()
        .filter(|one| one.place.prefix().is_some() && one.place.has(path));
    let longest = prefixes.max_by_key(|one| one.place.prefix().map(str::len));
    if let Some(longest) = longest {
        levels.push(&longest.level);
        if find(&longest.nested, path, levels) {
            return true;
        }
        if matches!(longest.place, Place::Wins(_)) {
            return false;
        }
    }
    let is_regex = |one: &&Location| matches!(one.place, Place::End(_) | Place::Start(_));
    let mut regexes = locations.iter().filter(is_regex);
    if let Some(regex) = regexes.find(|one| one.place.has(path)) {
        *levels = outer;
        levels.push(&regex.level);
        find(&regex.nested, path, levels);
        return true;
    }
    false
}

impl Level {
    fn write(&self, out: &mut String) {
        for limit in &self.limits {
            let Use { zone, burst, delay } = limit;
            let delay = match delay {
                0 => String::new(),
                delay if delay >= burst => " nodelay".to_owned(),
                delay => format!(" delay={delay}"),
            };
            let burst = if *burst > 0 {
                format!(" burst={burst}{delay}")
            } else {
                String::new()
            };
            writeln!(out, "limit_req zone=z{zone}{burst};").expect("writes");
        }
        if let Some(is_dry) = self.is_dry {
            writeln!(
                out,
                "limit_req_dry_run {};",
                if is_dry { "on" } else { "off" }
            )
            .expect("writes");
        }
        if self.returns {
            out.push_str("return 204;\n");
        }
    }
}

impl Location {
    fn write(&self, out: &mut String) {
        writeln!(out, "location {} {{", self.place.directive()).expect("writes");
        self.level.write(out);
        for nested in &self.nested {
            nested.write(out);
        }
        out.push_str("}\n");
    }
}

fn level(returns: bool) -> impl Strategy<Value = Level> {
    let limit = (0..ZONES, 0_u64..4, 0_u64..3);
    let limit = limit.prop_map(|(zone, burst, delay)| Use {
        zone,
        burst,
        delay: if delay == 2 { burst } else { delay.min(burst) },
    });
    let limits = prop_oneof![
        3 => prop::collection::vec(limit.clone(), 0..2),
        1 => prop::collection::vec(limit, 2..3),
    ];
    let is_dry = prop_oneof![8 => Just(None), 1 => any::<bool>().prop_map(Some)];
    let returns = prop_oneof![6 => Just(false), 1 => Just(returns)];
    (limits, is_dry, returns).prop_map(|(mut limits, is_dry, returns)| {
        // nginx refuses the same zone twice.
        if let [one, other] = limits.as_mut_slice()
            && one.zone == other.zone
        {
            other.zone = (one.zone + 1) % ZONES;
        }
        Level {
            limits,
            is_dry,
            returns,
        }
    })
}

fn locations() -> impl Strategy<Value = Vec<Location>> {
    let nested = (select(&PLACES[..]), level(true));
    let nested = prop_oneof![
        4 => Just(Vec::new()),
        1 => prop::collection::vec(nested, 1..3),
    ];
    let one = (select(&PLACES[..]), level(true), nested);
    prop::collection::vec(one, 0..5).prop_map(|all| {
        let mut locations: Vec<Location> = Vec::new();
        for (place, level, inner) in all {
            if locations.iter().any(|other| other.place.conflicts(place)) {
                continue;
            }
            let mut nested: Vec<Location> = Vec::new();
            for (inner, level) in inner {
                // nginx refuses a location that is outside of its location.
                let is_inside = match (place, inner) {
                    (Place::Exact(_), _) => false,
                    (
                        Place::Prefix(outer) | Place::Wins(outer),
                        Place::Prefix(text) | Place::Wins(text) | Place::Exact(text),
                    ) => text.starts_with(outer),
                    (_, Place::End(_) | Place::Start(_)) => true,
                    _ => false,
                };
                if is_inside && !nested.iter().any(|other| other.place.conflicts(inner)) {
                    nested.push(Location {
                        place: inner,
                        level,
                        nested: Vec::new(),
                    });
                }
            }
            locations.push(Location {
                place,
                level,
                nested,
            });
        }
        locations
    })
}

fn conf() -> impl Strategy<Value = Conf> {
    let keys = select(
        &[
            Key::Address,
            Key::Address,
            Key::Header,
            Key::Host,
            Key::Path,
            Key::AddressAndPath,
            Key::AddressAndHeader,
            Key::Mapped,
            Key::Mapped,
        ][..],
    );
    let zones = prop::collection::vec((keys, 1_u64..4), ZONES);
    let entries = prop::sample::subsequence(&ENTRIES[..], 0..4).prop_shuffle();
    let entries = (entries, prop::collection::vec(any::<bool>(), 4));
    let map = (any::<bool>(), entries).prop_map(|(default, (names, answers))| Mapping {
        default,
        entries: names.into_iter().zip(answers).collect(),
    });
    let names = prop::collection::vec(select(&NAMES[..]), 0..3);
    let server = (names, level(true), locations()).prop_map(|(mut names, level, locations)| {
        names.sort_unstable();
        names.dedup();
        Server {
            names,
            level,
            locations,
        }
    });
    let servers = prop::collection::vec(server, 1..4);
    let http = prop_oneof![3 => Just(Level::default()), 1 => level(false)];
    let default = prop_oneof![2 => Just(None), 1 => (0_usize..3).prop_map(Some)];
    (zones, map, http, servers, default).prop_map(|(zones, map, http, servers, default)| Conf {
        default: default.filter(|server| *server < servers.len()),
        zones,
        map,
        http,
        servers,
    })
}

fn requests() -> impl Strategy<Value = Vec<Request>> {
    let gap = prop_oneof![3 => 0_u64..3, 2 => 0_u64..400, 1 => 0_u64..3_000];
    let one = (
        gap,
        select(&["10.0.0.1", "10.0.0.2"][..]),
        select(&HOSTS[..]),
        select(&PATHS[..]),
        select(&HEADERS[..]),
    );
    let one = one.prop_map(|(gap_ms, address, host, path, header)| Request {
        gap_ms,
        address,
        host,
        path,
        header,
    });
    prop::collection::vec(one, 1..120)
}

/// Start of the trace.
const ORIGIN_MS: u64 = 1_700_000_000_000;

/// Answers all requests by a rule file.
fn verdicts(rules: &str, requests: &[Request]) -> Vec<Verdict> {
    let mut trace = String::new();
    let mut now = ORIGIN_MS;
    for request in requests {
        now += request.gap_ms;
        let Request {
            address,
            host,
            path,
            header,
            ..
        } = request;
        let headers = if header.is_empty() {
            String::new()
        } else {
            format!(",\"headers\":{{\"x-key\":\"{header}\"}}")
        };
        writeln!(
            trace,
            "{{\"at_ns\":{now}000000,\"source\":\"{address}\",\"host\":\"{host}\",\"path\":\"{path}\"{headers}}}"
        ).expect("writes");
    }
    replayed::verdicts(rules, &trace)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn rules_decide_like_nginx_or_a_warning_says_so(conf in conf(), requests in requests()) {
        let text = conf.text();
        let bytes = text.as_bytes();
        let theirs: Vec<Verdict> = conf.answers(&requests).into_iter().map(|said| match said {
            Said::Pass => Verdict::Admit,
            Said::Delay(_) => Verdict::Hold,
            Said::Refuse | Said::Unknown => Verdict::Refuse,
        }).collect();
        let converted = convert(&[Source { name: "nginx.conf", bytes }]);
        let (rules, problems) = match converted {
            Ok(converted) => (converted.text, converted.warnings),
            Err(problems) => (String::new(), problems),
        };
        // Warnings that are no differences. The paths here are in the form of `normalize_path`.
        let is_difference = |message: &String| {
            let is_exact = ["normalize_path", "nginx ignores the names", "no request reaches it"];
            !is_exact.iter().any(|exact| message.contains(exact)) && !message.starts_with("no limit")
        };
        let messages = problems.into_iter().map(|problem| problem.message);
        let warnings: Vec<String> = messages.filter(is_difference).collect();
        if !warnings.is_empty() {
            return Ok(());
        }
        let ours = if rules.is_empty() {
            vec![Verdict::Admit; requests.len()]
        } else {
            verdicts(&rules, &requests)
        };
        for (index, (theirs, ours)) in theirs.iter().zip(&ours).enumerate() {
            prop_assert_eq!(theirs, ours, "request {} of\n{:#?}\n{}\n{}", index, &requests[..=index], text, rules);
        }
    }
}
