//! Rules with `when` apply only while an upstream fails. The tests cover which responses count as
//! errors, for which cluster, and when the rule ends.

use std::io::Write as _;
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use loudou_tests::upstream::AS;
use loudou_tests::{Config, Envoy, Http, Operator, Request, Upstream, eventually};
use serde_json::{Value, json};

const SOON: Duration = Duration::from_secs(30);
/// Status of the filter's refusals, which no upstream uses in these tests.
const OURS: u16 = 418;

/// Returns a rule that refuses all requests for `/limited` while their upstream fails. The rule
/// applies when more than half of at least four responses are errors, and until less than a quarter
/// are errors.
fn brake(within: &str) -> Value {
    json!({
        "name": "brake",
        "match": { "path": { "prefix": "/limited" } },
        "when": {
            "upstream_error_rate_over": 0.5, "until_under": 0.25, "least": 4, "within": within,
        },
        "key": [],
        "limits": [{ "algorithm": "funnel", "capacity": 1, "rate": "1/d" }],
        "cost": 2,
        "refuse": { "status": OURS },
    })
}

fn to(cluster: &str) -> Value {
    json!({ "match": { "prefix": format!("/{cluster}") }, "route": { "cluster": cluster, "timeout": "20s" } })
}

fn field<'a>(object: &'a Value, name: &str) -> &'a Value {
    object.get(name).unwrap_or(&Value::Null)
}

/// Returns the upstreams that the status shows for the rule `brake`.
fn upstreams(ops: &mut Operator) -> Result<Vec<Value>> {
    let status = ops.get("/v1/status")?;
    let mut rules = field(&status, "rules").as_array().into_iter().flatten();
    let brake = rules.find(|rule| field(rule, "name") == "brake");
    let upstreams = brake.and_then(|rule| field(rule, "upstreams").as_array());
    upstreams
        .cloned()
        .with_context(|| format!("no upstreams: {status}"))
}

/// Returns the upstream of this cluster, or null if the filter has not seen it.
fn upstream(ops: &mut Operator, cluster: &str) -> Result<Value> {
    let mut all = upstreams(ops)?.into_iter();
    let found = all.find(|upstream| field(upstream, "cluster") == cluster);
    Ok(found.unwrap_or_default())
}

/// Waits until this many errors and responses are counted. Returns true if the rule applies.
fn counted(ops: &mut Operator, cluster: &str, errors: u64, responses: u64) -> Result<bool> {
    let what = format!("{errors} of {responses} responses of {cluster} to be errors");
    let found = eventually(SOON, &what, || {
        let found = upstream(ops, cluster)?;
        let is_it = field(&found, "errors") == errors && field(&found, "responses") == responses;
        Ok(is_it.then_some(found))
    })?;
    field(&found, "applies")
        .as_bool()
        .context("no word of the rule")
}

fn answer_as(path: &str, what: &str) -> Request {
    Request::get(path).header(AS, what)
}

/// Sends a request for `/limited` and returns its status.
fn limited(http: &mut Http) -> Result<u16> {
    Ok(http.send(&Request::get("/limited"))?.status)
}

/// A model of the rule's switch in plain integers.
#[derive(Default)]
struct Switch {
    errors: u64,
    all: u64,
    is_on: bool,
}

impl Switch {
    fn see(&mut self, status: &str) {
        self.errors += u64::from(status == "500");
        self.all += 1;
        self.is_on = if self.is_on {
            self.errors * 4 >= self.all
        } else {
            self.all >= 4 && self.errors * 2 > self.all
        };
    }
}

#[test]
fn on_and_off_at_two_thresholds() -> Result<()> {
    let server = Upstream::start()?;
    let config = Config::new(json!([brake("1h")])).upstream(server.address());
    let envoy = Envoy::start(&config)?;
    let (mut http, mut ops) = (envoy.data(), Operator::viewer(&envoy));
    ensure!(upstreams(&mut ops)?.is_empty(), "nothing was seen yet");
    let mut switch = Switch::default();
    let mut turns = Vec::new();
    for status in [["500"; 3].as_slice(), &["200"; 10], &["500"; 12]].concat() {
        http.send(&answer_as("/", status))?;
        let before = switch.is_on;
        switch.see(status);
        let applies = counted(&mut ops, "upstream", switch.errors, switch.all)?;
        ensure!(applies == switch.is_on, "after {} responses", switch.all);
        if before == applies {
            continue;
        }
        turns.push(switch.all);
        let expected = if applies { OURS } else { 200 };
        ensure!(limited(&mut http)? == expected);
        if !applies {
            switch.see("200");
        }
    }
    ensure!(turns == [4, 13, 23], "{turns:?}");
    let events = ops.events(0)?.into_iter();
    let turned: Vec<Value> = events.filter(|e| e["rule"] == "brake").collect();
    let kinds: Vec<&Value> = turned.iter().map(|e| &e["kind"]).collect();
    ensure!(
        kinds == ["upstream_fails", "upstream_heals", "upstream_fails"],
        "{turned:?}"
    );
    let detail = &turned[0]["detail"];
    ensure!(
        detail == "upstream upstream: 3 of 4 responses are errors",
        "{detail}"
    );
    envoy.stop()
}

/// Every kind of upstream failure must count as an error. Each kind uses a separate cluster.
#[test]
fn responses_that_count_as_errors() -> Result<()> {
    let server = Upstream::start()?;
    let gone = Upstream::start()?.address();
    let clusters = [
        "busy", "broken", "closes", "cuts", "slow", "gone", "none", "full",
    ];
    let mut config = Config::new(json!([brake("1h")]));
    let mut routes = Vec::new();
    for name in clusters {
        let address = match name {
            "none" => None,
            "gone" => Some(gone),
            _ => Some(server.address()),
        };
        config = config.cluster(name, address);
        let mut route = to(name);
        if name == "slow" {
            route["route"]["timeout"] = json!("0.05s");
        }
        if name == "full" {
            let none = json!({ "thresholds": [{ "max_pending_requests": 0 }] });
            config = config.cluster_field("circuit_breakers", none);
        }
        routes.push(route);
    }
    let envoy = Envoy::start(&config.routes(json!(routes)))?;
    let mut ops = Operator::viewer(&envoy);
    let cases = [
        ("busy", "429", Some(429)),
        ("broken", "502", Some(502)),
        ("closes", "close", Some(503)),
        ("cuts", "cut", None),
        ("slow", "hang", Some(504)),
        ("gone", "200", Some(503)),
        ("none", "200", Some(503)),
        ("full", "200", Some(503)),
    ];
    for (cluster, how, status) in cases {
        let answer = envoy.data().send(&answer_as(&format!("/{cluster}"), how));
        let got = answer.ok().map(|answer| answer.status);
        ensure!(got == status, "{cluster}: {got:?}");
        counted(&mut ops, cluster, 1, 1)?;
    }
    envoy.stop()
}

/// Successes, responses that no upstream sent, and requests whose clients disconnected must not
/// count as errors.
#[test]
fn responses_that_do_not_count_as_errors() -> Result<()> {
    let server = Upstream::start()?;
    let always = json!({
        "name": "always", "match": { "path": { "prefix": "/up/limited" } }, "key": [], "cost": 2,
        "limits": [{ "algorithm": "funnel", "capacity": 1, "rate": "1/d" }],
    });
    let direct = json!({ "match": { "prefix": "/direct" }, "direct_response": { "status": 500 } });
    let config = Config::new(json!([brake("1h"), always]));
    let config = config.cluster("up", Some(server.address()));
    // A later filter that answers in place of the upstream.
    let config = config.filter_behind(json!({ "name": "fault", "typed_config": {
        "@type": "type.googleapis.com/envoy.extensions.filters.http.fault.v3.HTTPFault",
        "abort": { "header_abort": {}, "percentage": { "numerator": 100 } },
    } }));
    let mut retried = json!({ "match": { "prefix": "/up/retried" }, "route": { "cluster": "up" } });
    retried["route"]["retry_policy"] = json!({ "retry_on": "5xx", "num_retries": 1 });
    let envoy = Envoy::start(&config.routes(json!([retried, to("up"), direct])))?;
    let (mut http, mut ops) = (envoy.data(), Operator::viewer(&envoy));
    for (path, how, status) in [
        ("/up/retried", "flaky", 200),
        ("/up", "404", 404),
        ("/up/limited", "200", 429),
        ("/direct", "200", 500),
        ("/elsewhere", "200", 404),
    ] {
        ensure!(http.send(&answer_as(path, how))?.status == status, "{path}");
    }
    let aborted = Request::get("/up").header("x-envoy-fault-abort-request", "500");
    ensure!(http.send(&aborted)?.status == 500);
    let before = server.requests();
    ensure!(before == 3, "two tries and a 404: {before}");
    let mut leaver = TcpStream::connect(envoy.data_address())?;
    write!(leaver, "GET /up HTTP/1.1\r\nhost: a\r\n{AS}: hang\r\n\r\n")?;
    eventually(SOON, "the request to arrive", || {
        Ok((server.requests() > before).then_some(()))
    })?;
    drop(leaver);
    eventually(SOON, "the request to end", || {
        let active = envoy.counter("cluster.up.upstream_rq_active")?;
        Ok((active == 0).then_some(()))
    })?;
    ensure!(http.get("/up")?.status == 200);
    ensure!(!counted(&mut ops, "up", 0, 3)?);
    ensure!(upstreams(&mut ops)?.len() == 1, "one upstream");
    envoy.stop()
}

/// If a route has two clusters, the rule must refuse only requests for the failing cluster, even if
/// the filter makes Envoy select the route again.
#[test]
fn each_cluster_has_its_own_switch() -> Result<()> {
    for explain in [false, true] {
        let (bad, good) = (Upstream::start()?, Upstream::start()?);
        let mut rule = brake("1h");
        rule["respond"] = json!({ "explain_header": explain });
        let weighted = json!([{ "name": "bad", "weight": 50 }, { "name": "good", "weight": 50 }]);
        let both = json!({
            "match": { "prefix": "/limited" },
            "route": { "weighted_clusters": { "clusters": weighted } },
        });
        let config = Config::new(json!([rule]));
        let config = config
            .cluster("bad", Some(bad.address()))
            .cluster("good", Some(good.address()));
        let envoy = Envoy::start(&config.routes(json!([to("bad"), to("good"), both])))?;
        let mut ops = Operator::viewer(&envoy);
        let mut http = envoy.data();
        for _ in 0..4 {
            http.send(&answer_as("/bad", "500"))?;
        }
        ensure!(counted(&mut ops, "bad", 4, 4)?);
        let mut refused = 0;
        for _ in 0..100 {
            match limited(&mut http)? {
                OURS => refused += 1,
                status => ensure!(status == 200, "{status}"),
            }
        }
        ensure!((1..100).contains(&refused), "{refused} of 100");
        ensure!(bad.requests() == 4 && good.requests() == 100 - refused);
        ensure!(!counted(&mut ops, "good", 0, 100 - refused)?);
        envoy.stop()?;
    }
    Ok(())
}

/// The counts of several workers must add up exactly.
#[test]
fn workers_agree() -> Result<()> {
    let server = Upstream::start()?;
    let config = Config::new(json!([brake("1h")])).upstream(server.address());
    let envoy = Envoy::start(&config.concurrency(4))?;
    let mut ops = Operator::viewer(&envoy);
    let answers = envoy.load(2_000, 32, |n| {
        answer_as("/", if n % 4 == 0 { "200" } else { "500" })
    })?;
    ensure!(answers.of(500) == 1_500, "{answers:?}");
    ensure!(counted(&mut ops, "upstream", 1_500, 2_000)?);
    let answers = envoy.load(200, 32, |_| Request::get("/limited"))?;
    ensure!(answers.of(OURS) == 200, "{answers:?}");
    let store = ops.get("/v1/status")?["store"].clone();
    ensure!(store["lost_responses"] == 0, "{store}");
    ensure!(server.requests() == 2_000);
    envoy.stop()
}
