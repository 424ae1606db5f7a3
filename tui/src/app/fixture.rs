//! App states for tests: a simulated server with a few named users, at fixed times.

use loudou_api::{
    Access, BanBy, BanView, BucketState, BucketView, EditView, Event, EventKind, ExplainAnswer,
    FleetChanges, FleetStatus, KeyOverrideView, LeaseView, LimitView, OutageView, OverrideKind,
    RuleTotals, RuleView, Rules, Status, StoreStatus,
};
use loudou_limiter::Nanos;
use serde_json::json;

use super::effects::Effect;
use super::msg::{Msg, Snapshot};
use super::press::keys;
use super::state::{Settings, State};
use super::update::update;

pub(crate) const S: u64 = 1_000_000_000;
/// The server's clock at the first poll.
const START: u64 = 1_000 * S;
/// Instance ID of the simulated process.
pub(crate) const INSTANCE: &str = "0f1e2d3c4b5a6978";
/// 2026-11-21 14:03:07 UTC: the server's wall clock at the first poll.
pub(crate) const UNIX_MS: u64 = 1_795_269_787_000;

/// Returns the state for a terminal of the given size, after `polls` polls at intervals of one
/// second.
pub(crate) fn state(size: (u16, u16), polls: u64) -> State {
    let settings = Settings {
        url: "http://127.0.0.1:9911".to_owned(),
        is_usual: true,
        read_only: false,
        interval: Nanos::from_secs(1),
    };
    let mut state = State::new(settings, size);
    update(&mut state, Msg::Tick, Nanos::ZERO);
    for poll in 0..polls {
        feed(&mut state, poll);
    }
    state
}

/// Like [`state`], but a penalty bans `mallory` until 250 s after the first poll. `mallory` also
/// has an override, and `by-source` shadows `reply-per-user`.
pub(crate) fn banned(size: (u16, u16), polls: u64) -> State {
    let mut state = state(size, polls);
    let now = state.now;
    let mut snapshot = snapshot(polls);
    for (_, bucket) in &mut snapshot.buckets {
        if bucket.key == "mallory" {
            bucket.state = BucketState::Banned;
            bucket.ban = Some(BanView {
                until_ns: Some(START + 250 * S),
                by: BanBy::Penalty,
            });
            (bucket.strikes, bucket.penalties) = (2, 1);
            bucket.own = Some(KeyOverrideView {
                pattern: "mal*".to_owned(),
                gives: OverrideKind::Scale,
            });
        }
    }
    let mut rules = rules();
    rules[0].rule["penalty"] = json!({ "after": 20, "within": "1m", "ban": "5m" });
    rules[0].rule["overrides"] = json!({ "mal*": { "scale": 0.5 }, "root": "unlimited" });
    rules[2].rule["shadows"] = json!("reply-per-user");
    snapshot.rules = Some(Rules {
        instance: INSTANCE.to_owned(),
        now_ns: START,
        generation: 7,
        rules,
        next_cursor: None,
    });
    update(&mut state, Msg::Polled(Ok(Box::new(snapshot))), now);
    state
}

/// Like [`state`], but a fleet of four Envoys shares `reply-per-user`. The engine denies tokens to
/// `mallory`, whose lease has a debt. If `is_down`, one worker gets no answers from the engine, so
/// it limits requests locally.
pub(crate) fn shared(size: (u16, u16), polls: u64, is_down: bool) -> State {
    let mut state = state(size, polls);
    let now = state.now;
    let mut snapshot = snapshot(polls);
    let server = snapshot.status.now_ns;
    snapshot.status.fleet = Some(FleetStatus {
        envoys: 4,
        answered_ns: server - if is_down { 12 * S } else { S / 25 },
        workers_down: is_down.into(),
        calls: 1_204,
        failed: 3,
        granted: 5_310,
        held: 12,
        local: if is_down { 530 } else { 0 },
        changes: FleetChanges {
            generation: 41,
            known: 12,
            unsent: u64::from(is_down) * 2,
            ..FleetChanges::default()
        },
    });
    for (_, bucket) in &mut snapshot.buckets {
        let is_denied = bucket.key == "mallory";
        if bucket.rule == "reply-per-user" && is_down {
            bucket.outage = Some(OutageView::Local { envoys: 4 });
        }
        // Some buckets of a shared rule have no lease.
        if bucket.rule == "reply-per-user" && bucket.key != "carol" {
            let tokens = bucket.limits[0].remaining / 3;
            let left = bucket.limits.iter().map(|limit| limit.remaining - tokens);
            bucket.lease = Some(LeaseView {
                tokens,
                left: left.collect(),
                heard_ns: server - if is_denied { 3 * S } else { S / 25 },
                debt: if is_denied { 2 } else { 0 },
                denied_until_ns: is_denied.then_some(server + 1_400_000_000),
            });
        }
    }
    snapshot.events = [EventKind::FleetDown, EventKind::FleetUp]
        .into_iter()
        .zip(4..)
        .map(|(kind, seq)| Event {
            seq,
            at_ns: server - 10 * S + seq * S,
            kind,
            by: "loudou".to_owned(),
            detail: "the relay".to_owned(),
            ..Event::default()
        })
        .collect();
    update(&mut state, Msg::Polled(Ok(Box::new(snapshot))), now);
    state
}

/// Applies the result of poll number `poll`.
pub(crate) fn feed(state: &mut State, poll: u64) -> Vec<Effect> {
    let msg = Msg::Polled(Ok(Box::new(snapshot(poll))));
    update(state, msg, Nanos::from_secs(poll))
}

/// Presses the keys in a string at the state's current time.
pub(crate) fn type_keys(state: &mut State, text: &str) -> Vec<Effect> {
    let mut effects = Vec::new();
    for press in keys(text) {
        let now = state.now;
        effects.extend(update(state, Msg::Press(press), now));
    }
    effects
}

/// Returns the snapshot that poll number `poll` reads.
pub(crate) fn snapshot(poll: u64) -> Snapshot {
    let now_ns = START + poll * S;
    Snapshot {
        took: Nanos::new(1_500_000 + 100_000 * (poll % 4)),
        status_age: Nanos::ZERO,
        status: status(now_ns, poll),
        buckets: buckets(now_ns, poll)
            .into_iter()
            .map(|bucket| (now_ns, bucket))
            .collect(),
        truncated: false,
        gone: Vec::new(),
        searching: None,
        rules: (poll == 0).then(|| Rules {
            instance: INSTANCE.to_owned(),
            now_ns,
            generation: 7,
            rules: rules(),
            next_cursor: None,
        }),
        events: if poll == 0 { events() } else { Vec::new() },
        last_seq: 3,
        events_lost: 0,
    }
}

fn status(now_ns: u64, poll: u64) -> Status {
    let totals = |name: &str, mode: &str, admitted, refused, shadow_refused| RuleTotals {
        name: name.to_owned(),
        mode: mode.to_owned(),
        admitted,
        refused,
        shadow_refused,
        edited: name == "search-per-key",
        ..RuleTotals::default()
    };
    Status {
        version: "0.1.0".to_owned(),
        git: "abcdef0".to_owned(),
        instance: INSTANCE.to_owned(),
        started_unix_ms: UNIX_MS - 3_600_000,
        generation: 7,
        now_ns,
        unix_ms: UNIX_MS + (now_ns - START) / 1_000_000,
        uptime_ns: now_ns - START + 3_600 * S,
        access: Access::Edit,
        store: StoreStatus {
            buckets: 4096,
            used: 36,
            ..StoreStatus::default()
        },
        rules: vec![
            totals(
                "reply-per-user",
                "enforce",
                1000 + 9 * poll,
                200 + 12 * poll,
                0,
            ),
            totals("search-per-key", "enforce", 5000 + 90 * poll, 3, 0),
            totals("by-source", "shadow", 7000 + 50 * poll, 0, 40 + poll),
        ],
        waiting: 0,
        not_held_deadline: 0,
        not_held_full: 0,
        fleet: None,
        warnings: vec![
            "no tokens are configured: every process on this machine may edit".to_owned(),
        ],
    }
}

/// Returns the buckets. Each bucket has a fixed level in percent, and admits and refuses a fixed
/// number of requests per second.
fn buckets(now_ns: u64, poll: u64) -> Vec<BucketView> {
    let habits = [
        ("mallory", 98, 1, 12, BucketState::Refusing),
        ("alice", 40, 2, 0, BucketState::Busy),
        ("bob", 75, 3, 0, BucketState::Busy),
        ("carol", 0, 0, 0, BucketState::Idle),
        ("dave\u{1b}[31m\u{202e}evil", 12, 1, 0, BucketState::Busy),
        (
            "a-key-that-is-longer-than-any-column-has-a-right-to-be",
            60,
            2,
            0,
            BucketState::Busy,
        ),
    ];
    let mut buckets: Vec<BucketView> = habits
        .into_iter()
        .map(|(key, level, admitted, refused, state)| BucketView {
            rule: "reply-per-user".to_owned(),
            key: key.to_owned(),
            limits: vec![
                limit("burst", "funnel", 15, "30/m", level, 30 * S),
                limit(
                    "daily",
                    "token_bucket",
                    1000,
                    "1000/d",
                    level / 10,
                    86_400 * S,
                ),
            ],
            reported: 0,
            admitted: 100 + admitted * poll,
            refused: refused * (poll + poll / 3),
            last_seen_ns: now_ns - S / 10,
            refused_at_ns: (refused > 0).then_some(now_ns - S / 10),
            refused_since_ns: (refused > 0).then_some(START - 700 * S),
            state,
            ..BucketView::default()
        })
        .collect();
    buckets.extend((0..30).map(|number| BucketView {
        rule: "search-per-key".to_owned(),
        key: format!("key-{number:02}"),
        limits: vec![limit("search", "funnel", 100, "20/s", number, 5 * S)],
        reported: 0,
        admitted: 10 + number * poll / 10,
        refused: 0,
        last_seen_ns: now_ns - number * S,
        state: if number == 0 {
            BucketState::Idle
        } else {
            BucketState::Busy
        },
        ..BucketView::default()
    }));
    buckets
}

fn limit(
    name: &str,
    algorithm: &str,
    capacity: u64,
    rate: &str,
    percent: u64,
    drain_ns: u64,
) -> LimitView {
    LimitView {
        name: name.to_owned(),
        algorithm: algorithm.to_owned(),
        capacity,
        rate: rate.to_owned(),
        used: capacity - capacity * (100 - percent) / 100,
        remaining: capacity * (100 - percent) / 100,
        retry_after_ns: (percent > 95).then_some(1_400_000_000),
        reset_after_ns: drain_ns / 100 * percent,
        drain_ns,
        drains: true,
    }
}

/// Returns the rules, all of generation 7.
pub(crate) fn rules() -> Vec<RuleView> {
    let rule = |name: &str, mode: &str, limits, matches| RuleView {
        name: name.to_owned(),
        instance: INSTANCE.to_owned(),
        generation: 7,
        rule: json!({
            "name": name, "match": matches, "key": [{"header": "x-user-id"}],
            "on_missing_key": "skip", "limits": limits, "cost": 1, "mode": mode,
        }),
        totals: RuleTotals {
            name: name.to_owned(),
            mode: mode.to_owned(),
            ..RuleTotals::default()
        },
        ..RuleView::default()
    };
    let reply = json!({"methods": ["POST"], "path": {"prefix": "/reply"}});
    let burst = json!([
        {"name": "burst", "algorithm": "funnel", "capacity": 15, "rate": "30/m"},
        {
            "name": "daily", "algorithm": "token_bucket", "capacity": 1000, "rate": "1000/d",
            "refill": "greedy", "initial": 1000
        },
    ]);
    let search =
        json!([{"name": "search", "algorithm": "funnel", "capacity": 100, "rate": "20/s"}]);
    let edit = EditView {
        by: "ops".to_owned(),
        reason: "launch day".to_owned(),
        at_ns: START - 300 * S,
        at_unix_ms: 0,
        expires_at_ns: Some(START + 1_500 * S),
    };
    vec![
        rule("reply-per-user", "enforce", burst, reply),
        RuleView {
            edit: Some(edit),
            edit_body: Some(json!({ "limits": search })),
            ..rule("search-per-key", "enforce", search.clone(), json!({}))
        },
        rule("by-source", "shadow", search, json!({})),
    ]
}

fn events() -> Vec<Event> {
    let event = |seq, kind, ago: u64, by: &str, detail: &str, reason: &str| Event {
        seq,
        at_ns: START - ago * S,
        kind,
        by: by.to_owned(),
        detail: detail.to_owned(),
        reason: reason.to_owned(),
        generation: 7,
        ..Event::default()
    };
    vec![
        event(1, EventKind::Configured, 900, "loudou", "3 rules", ""),
        Event {
            rule: Some("search-per-key".to_owned()),
            ..event(
                2,
                EventKind::Edit,
                300,
                "ops",
                "search: rate 10/s → 20/s",
                "launch day",
            )
        },
        Event {
            rule: Some("reply-per-user".to_owned()),
            key: Some("bo\u{7}b".to_owned()),
            ..event(3, EventKind::Reset, 20, "ops", "was reset", "support case")
        },
    ]
}

/// Returns the explanation in the API examples, which contains every outcome.
pub(crate) fn explained() -> ExplainAnswer {
    let example = include_str!("../../../crates/api/examples/explain.json");
    serde_json::from_str(example).expect("the contract")
}
