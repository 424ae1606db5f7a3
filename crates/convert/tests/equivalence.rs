//! The converted rules decide like the limiters that they replace, on random traffic and random
//! locations.
#![cfg(test)]

use std::borrow::Cow;

use loudou_check::{Content, check};
use loudou_convert::model::envoy::LocalBucket;
use loudou_convert::model::nginx::LimitReq;
use loudou_convert::model::{self, Counter, Model, Said};
use loudou_convert::{Source, convert};
use loudou_limiter::{Bucket, BucketRequest, Limits, Nanos, Verdict};
use loudou_rules::request::Sample;
use loudou_rules::rule::{Reach, Rule};
use proptest::prelude::*;

/// Converts a text, and returns its rules and its warnings.
fn rules(name: &str, text: &str) -> (Vec<Rule>, String) {
    let bytes = text.as_bytes();
    let converted =
        convert(&[Source { name, bytes }]).unwrap_or_else(|errors| panic!("{text}\n{errors:?}"));
    let warnings: Vec<String> = converted
        .warnings
        .into_iter()
        .map(|warning| warning.message)
        .collect();
    let text = converted.text;
    let mut checked = check("rules.yaml", text.as_bytes(), |_| Vec::new());
    let (report, content) = checked.remove(0);
    let lines = report.lines(&|_, text| text.to_owned());
    let Some(Content::Rules(file, _)) = content else {
        panic!("{text}\n{lines}");
    };
    (file.rules, warnings.join("\n"))
}

/// One bucket of a converted rule.
struct Ours {
    limits: Limits,
    bucket: Bucket,
}

impl Ours {
    fn of(name: &str, text: &str) -> Self {
        let (rules, _) = rules(name, text);
        let limits = rules[0].limits.clone();
        let bucket = limits.start(Nanos::new(0));
        Self { limits, bucket }
    }

    /// Returns the verdict, and the wait in milliseconds.
    fn ask(&mut self, now_ms: u64) -> (Verdict, u64) {
        let ask = BucketRequest::new(1, Nanos::new(now_ms * 1_000_000));
        let answer = self.limits.answer(&mut self.bucket, &ask);
        match (answer.verdict(), answer.wait().get() / 1_000_000) {
            // nginx does not delay a request by less than a millisecond.
            (Verdict::Hold, 0) => (Verdict::Admit, 0),
            answer => answer,
        }
    }
}

/// One counter of the source.
struct Theirs {
    model: Model,
    counter: Option<Counter>,
}

impl Theirs {
    const fn new(model: Model) -> Self {
        Self {
            model,
            counter: None,
        }
    }

    /// Returns the verdict, and the wait in milliseconds.
    fn ask(&mut self, now_ms: u64) -> (Verdict, u64) {
        let ask = model::Ask {
            now: Nanos::new(now_ms * 1_000_000),
            cost: 1,
            end: None,
        };
        let (said, counter) = self.model.ask(self.counter.as_ref(), &ask);
        match said {
            Said::Refuse => return (Verdict::Refuse, 0),
            Said::Pass | Said::Delay(_) => self.counter = Some(counter),
        }
        match said {
            Said::Delay(wait) => (Verdict::Hold, wait.get() / 1_000_000),
            _ => (Verdict::Admit, 0),
        }
    }
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

    fn length(self) -> usize {
        match self {
            Self::Prefix(text) | Self::Wins(text) => text.len(),
            _ => 0,
        }
    }
}

/// Returns the location that nginx chooses.
fn chosen<'a, T>(locations: &'a [(Place, T)], path: &str) -> Option<&'a (Place, T)> {
    let mut matching = locations.iter().filter(|(place, _)| place.has(path));
    let exact = matching
        .clone()
        .find(|(place, _)| matches!(place, Place::Exact(_)));
    let is_prefix = |place: &Place| matches!(place, Place::Prefix(_) | Place::Wins(_));
    let longest = matching
        .clone()
        .filter(|(place, _)| is_prefix(place))
        .max_by_key(|(place, _)| place.length());
    if exact.is_some() {
        return exact;
    }
    if longest.is_some_and(|(place, _)| matches!(place, Place::Wins(_))) {
        return longest;
    }
    let regex = matching.find(|(place, _)| matches!(place, Place::End(_) | Place::Start(_)));
    regex.or(longest)
}

/// Distinct locations, each with its number of a zone or without a limit.
fn locations() -> impl Strategy<Value = Vec<(Place, Option<bool>)>> {
    let one = (prop::sample::select(&PLACES[..]), any::<Option<bool>>());
    prop::collection::vec(one, 1..7).prop_map(|all| {
        let mut distinct: Vec<(Place, Option<bool>)> = Vec::new();
        for (place, limit) in all {
            // nginx refuses two locations with the same prefix.
            let is_same = |(other, _): &(Place, Option<bool>)| match (*other, place) {
                (Place::Prefix(a) | Place::Wins(a), Place::Prefix(b) | Place::Wins(b)) => a == b,
                (a, b) => a == b,
            };
            if !distinct.iter().any(is_same) {
                distinct.push((place, limit));
            }
        }
        distinct
    })
}

proptest! {
    /// Rates per second are whole numbers of thousandths, so both count exactly.
    #[test]
    fn nginx_per_second(
        rate in 1_u64..50,
        burst in 0_u64..20,
        mode in 0_u64..3,
        gaps in prop::collection::vec(prop_oneof![0_u64..3, 0_u64..200, 0_u64..3_000], 1..200),
    ) {
        let (word, delay) = match mode {
            0 => ("nodelay".to_owned(), burst),
            1 => (String::new(), 0),
            _ => ("delay=3".to_owned(), 3),
        };
        let text = format!(
            "limit_req_zone $binary_remote_addr zone=one:1m rate={rate}r/s;\nserver {{ limit_req zone=one burst={burst} {word}; }}\n"
        );
        let mut ours = Ours::of("nginx.conf", &text);
        let limit = LimitReq::new(rate * 1_000, burst, delay);
        let mut theirs = Theirs::new(Model::LimitReq(limit));
        let mut now = 1_000_000_u64;
        for gap in gaps {
            now += gap;
            let (verdict, wait) = theirs.ask(now);
            prop_assert_eq!(ours.ask(now), (verdict, wait), "at {}", now);
        }
    }

    /// nginx rounds a rate per minute to thousandths per second, and so does the rule. Requests come
    /// at whole seconds, where nginx does not round again.
    #[test]
    fn nginx_per_minute(
        rate in prop_oneof![1_u64..4, 1_u64..2_000],
        burst in 0_u64..10,
        gaps in prop::collection::vec(prop_oneof![0_u64..100, 60_u64..63], 1..200),
    ) {
        let text = format!(
            "limit_req_zone $binary_remote_addr zone=one:1m rate={rate}r/m;\nserver {{ limit_req zone=one burst={burst} nodelay; }}\n"
        );
        let mut ours = Ours::of("nginx.conf", &text);
        let limit = LimitReq::new(rate * 1_000 / 60, burst, burst);
        let mut theirs = Theirs::new(Model::LimitReq(limit));
        let mut now = 1_000_u64;
        for gap in gaps {
            now += gap;
            let (verdict, _) = theirs.ask(now * 1_000);
            prop_assert_eq!(ours.ask(now * 1_000).0, verdict, "at {} s", now);
        }
    }

    /// Instants and rates are multiples of powers of two, so that Envoy's doubles are exact.
    #[test]
    fn envoy_local(
        max in 1_u32..20,
        fill in prop::sample::select(&[1_u32, 2, 4, 8][..]),
        interval in prop::sample::select(&[("0.250s", 250), ("0.5s", 500), ("1s", 1_000), ("4s", 4_000)][..]),
        gaps in prop::collection::vec(prop_oneof![0_u32..3, 0_u32..40], 1..200),
    ) {
        let text = format!(
            "http_filters:\n  - name: limit\n    typed_config:\n      \"@type\": type.googleapis.com/envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit\n      \
             stat_prefix: limit\n      token_bucket: {{ max_tokens: {max}, tokens_per_fill: {fill}, fill_interval: {} }}\n      \
             filter_enabled: {{ default_value: {{ numerator: 100 }} }}\n      filter_enforced: {{ default_value: {{ numerator: 100 }} }}\n",
            interval.0
        );
        let mut ours = Ours::of("envoy.yaml", &text);
        let interval = Nanos::new(interval.1 * 1_000_000);
        let bucket = LocalBucket::new(u64::from(max), u64::from(fill), interval);
        let mut theirs = Theirs::new(Model::LocalBucket(bucket));
        let mut eighths = 80_000_u32;
        for gap in gaps {
            eighths += gap;
            let now = u64::from(eighths) * 125;
            prop_assert_eq!(ours.ask(now).0, theirs.ask(now).0, "at {}/8 s", eighths);
        }
    }

    /// A rule reaches exactly the paths whose location has its limit.
    #[test]
    fn nginx_locations(locations in locations(), of_server in any::<Option<bool>>()) {
        let limit = |limit: Option<bool>| match limit {
            None => String::new(),
            Some(first) => format!("limit_req zone=zone-{first};"),
        };
        let mut text = "limit_req_zone $binary_remote_addr zone=zone-true:1m rate=1r/s;\n\
                        limit_req_zone $binary_remote_addr zone=zone-false:1m rate=2r/s;\nserver {\n"
            .to_owned();
        text += &limit(of_server);
        let blocks = locations.iter().map(|(place, own)| {
            format!("location {} {{ {} }}\n", place.directive(), limit(*own))
        });
        text.extend(blocks);
        text += "}\n";
        prop_assume!(of_server.is_some() || locations.iter().any(|(_, own)| own.is_some()));
        let bytes = text.as_bytes();
        let refused = convert(&[Source { name: "nginx.conf", bytes }]).is_err();
        let is_lost = |warnings: &str| warnings.contains("cannot express") || warnings.contains("no request reaches");
        // Without any rule, there is no rule file.
        if refused {
            return Ok(());
        }
        let (rules, warnings) = rules("nginx.conf", &text);
        for path in PATHS {
            let limit = chosen(&locations, path).and_then(|(_, own)| *own).or(of_server);
            for first in [true, false] {
                let rule = rules.iter().find(|rule| rule.name == format!("zone-{first}"));
                let Some(rule) = rule else {
                    prop_assert!(limit != Some(first) || is_lost(&warnings), "{}\n{}\n{}", text, path, warnings);
                    continue;
                };
                let mut request = Sample {
                    path: Some(Cow::Borrowed(path.as_bytes())),
                    ..Sample::default()
                };
                let reaches = rule.reach(&mut request) == Reach::Yes;
                prop_assert_eq!(reaches, limit == Some(first), "{}\n{}\n{:?}", text, path, rule);
            }
        }
    }
}
