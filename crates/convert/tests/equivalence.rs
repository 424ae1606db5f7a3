//! The converted rules decide like the limiters that they replace, on random traffic.
#![cfg(test)]

use loudou_check::{Content, check};
use loudou_convert::model::envoy::LocalBucket;
use loudou_convert::model::nginx::LimitReq;
use loudou_convert::model::service::Window;
use loudou_convert::model::{self, Counter, Model, Said};
use loudou_convert::{Source, convert};
use loudou_limiter::{Bucket, BucketRequest, Limits, Nanos, Verdict};
use loudou_rules::rule::Rule;
use proptest::prelude::*;

/// Converts a text, and returns its rules.
fn rules(name: &str, text: &str) -> Vec<Rule> {
    let bytes = text.as_bytes();
    let converted =
        convert(&[Source { name, bytes }]).unwrap_or_else(|errors| panic!("{text}\n{errors:?}"));
    let text = converted.text;
    let mut checked = check("rules.yaml", text.as_bytes(), |_| Vec::new());
    let (report, content) = checked.remove(0);
    let lines = report.lines(&|_, text| text.to_owned());
    let Some(Content::Rules(file, _)) = content else {
        panic!("{text}\n{lines}");
    };
    file.rules
}

/// One bucket of a converted rule.
struct Ours {
    limits: Limits,
    bucket: Bucket,
}

impl Ours {
    fn of(name: &str, text: &str) -> Self {
        let rules = rules(name, text);
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
        let (said, effect) = self.model.ask(self.counter.as_ref(), &ask);
        match said {
            Said::Refuse | Said::Unknown => return (Verdict::Refuse, 0),
            Said::Pass | Said::Delay(_) => {
                self.counter = Some(effect.keep(self.counter.take()));
            }
        }
        match said {
            Said::Delay(wait) => (Verdict::Hold, wait.get() / 1_000_000),
            _ => (Verdict::Admit, 0),
        }
    }
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

    /// A full window refuses all further requests, so it does not matter if refused ones count.
    #[test]
    fn rate_limit_service(
        requests in 1_u64..20,
        gaps in prop::collection::vec(prop_oneof![0_u64..10, 0_u64..30_000], 1..200),
    ) {
        let text = format!(
            "domain: d\ndescriptors:\n- {{ key: remote_address, rate_limit: {{ unit: minute, requests_per_unit: {requests} }} }}\n"
        );
        let mut ours = Ours::of("ratelimit.yaml", &text);
        let model = Model::Window(Window::new(requests, 60_000_000_000));
        let mut theirs = Theirs::new(model);
        let mut now = 1_000_000_u64;
        for gap in gaps {
            now += gap;
            prop_assert_eq!(ours.ask(now).0, theirs.ask(now).0, "at {} ms", now);
        }
    }
}
