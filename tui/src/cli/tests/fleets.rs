//! `loudou check` on files with rules that a fleet shares.

use super::checks::check;
use super::*;

const FLEET: &str = "\
version: 1
fleet:
  cluster: loudou-relay
  token: geheim
rules:
  - name: per-user
    scope: fleet
    key: [ { header: x-user-id } ]
    limits:
      - { name: burst, algorithm: funnel, capacity: 15, rate: 30/60s }
      - { name: daily, algorithm: fixed_window, capacity: 1000, window: 1d, align: clock }
  - name: everything
    scope: fleet
    mode: shadow
    key: []
    limits: [ { algorithm: funnel, capacity: 100, rate: 700/s } ]
  - name: own
    key: [ source ]
    limits: [ { algorithm: funnel, capacity: 5, rate: 1/s } ]
";

/// The bound of each shared rule, the requests that wait, and the effect of an outage.
#[test]
fn a_fleet_is_described_in_numbers() {
    assert_snapshot!("check_fleet", check(FLEET, "").seen());
    assert_snapshot!("check_fleet_json", check(FLEET, "-o json").seen());
    let credit = FLEET.replace("token: geheim", "credit: 20\n  lease: 20ms");
    assert_snapshot!("check_fleet_credit", check(&credit, "").seen());
}

#[test]
fn what_a_fleet_cannot_share_is_an_error() {
    let own = FLEET.replace("700/s", "700/s, max_wait: 1s");
    let own = own.replace(
        "algorithm: funnel, capacity: 15, rate: 30/60s",
        "algorithm: sliding_log, capacity: 15, window: 1m",
    );
    assert_snapshot!(check(&own, "").seen(), @r#"
    (standard input):10:35: error: rules[0].limits[0].algorithm: "sliding_log": a fleet cannot share the limit `burst`; allowed: funnel, token_bucket, and fixed_window with align: clock, none of them with max_wait or initial
      10 |       - { name: burst, algorithm: sliding_log, capacity: 15, window: 1m }
         |                                   ^
    (standard input):16:74: error: rules[1].limits[0].max_wait: "1s": a fleet cannot share the limit `funnel`: each Envoy would have its own queue; allowed: 0s with scope: fleet
      16 |  { algorithm: funnel, capacity: 100, rate: 700/s, max_wait: 1s } ]
         |                                                             ^
    (standard input): 2 errors
    --- exit code 1
    "#);
    let without = FLEET.replace("fleet:\n  cluster: loudou-relay\n  token: geheim\n", "");
    assert_snapshot!(check(&without, "").seen(), @r#"
    (standard input):4:12: error: rules[0].scope: "fleet": `scope: fleet` needs the field `fleet` in the file; allowed: envoy, or fleet with `fleet: { cluster: NAME }` beside `rules`: the cluster of the relay
      4 |     scope: fleet
        |            ^
    (standard input):10:12: error: rules[1].scope: "fleet": `scope: fleet` needs the field `fleet` in the file; allowed: envoy, or fleet with `fleet: { cluster: NAME }` beside `rules`: the cluster of the relay
      10 |     scope: fleet
         |            ^
    (standard input): 2 errors
    --- exit code 1
    "#);
}

/// Neither a problem nor its source line shows the token, in any form in which it may be written.
#[test]
fn the_token_of_a_fleet_is_hidden() {
    for token in [
        "geheim geheim",
        "\"geheim geheim\"",
        "'geheim ü'",
        "[ geheim ]",
        "{ geheim: 1 }",
        "|\n    geheim geheim",
        "geheim\n  tokn: geheim",
        "\"geheim",
        "geheim: geheim",
        "geheim\n  token: geheim",
    ] {
        let text = FLEET.replace("token: geheim", &format!("token: {token}"));
        for options in ["", "-o json", "-o csv"] {
            let ran = check(&text, options);
            assert_eq!(ran.code, 1, "{token}: {}", ran.seen());
            let lines = ran.seen();
            let mut lines = lines.lines();
            let shown =
                lines.find(|line| line.contains("geheim") && !line.contains("tokn: geheim"));
            assert_eq!(shown, None, "{token}");
        }
    }
    let json = r#"{"version": 1, "fleet": {"cluster": "", "token": "geheim"}, "rules": []}"#;
    let ran = check(json, "");
    assert!(
        ran.out.contains("\"token\": \"******\"") && !ran.seen().contains("geheim"),
        "{}",
        ran.out
    );
}
