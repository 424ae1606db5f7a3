//! `loudou export` reports the changes that a rule file leaves out.

use serde_json::{Value, json};

use super::canned::ok;
use super::live::live;
use super::*;

/// A rule file is permanent, so changes that end are left out and reported.
#[test]
fn a_rule_file_has_nothing_that_ends() {
    let file = json!({ "version": 1, "rules": [] });
    let export = |line: &str| {
        let mut answers = vec![ok(&file)];
        answers.extend(live());
        Loudou::answers(answers).run(line)
    };
    let ran = export("export");
    assert_eq!(
        serde_json::from_str::<Value>(&ran.out).ok(),
        Some(file.clone())
    );
    assert_snapshot!(ran.seen(), @r#"
    {
      "version": 1,
      "rules": []
    }
    --- standard error
    warning: 2 temporary changes left out (--with-temporary includes them, without their ends):
      per-user: edit to burst 30 at 30/m, steady: token_bucket 1000 at 1000/d, refill interval, by ops, ends in 18m
      per-user: override of alice: scale 10, by ops, ends in 18m
    warning: 3 bans left out: a rule file has no bans; `loudou export --live` has them, with their ends:
      per-user: ban of eve, no end
      per-user: ban of mallory, by ops, ends in 1m
    --- exit code 0
    "#);
    assert_eq!(ran.lines()[0], "GET /v1/export HTTP/1.1");
    let ran = export("export --with-temporary");
    assert_snapshot!(ran.seen(), @r#"
    {
      "version": 1,
      "rules": []
    }
    --- standard error
    warning: the file includes 2 temporary changes, and would make them last:
      per-user: edit to burst 30 at 30/m, steady: token_bucket 1000 at 1000/d, refill interval, by ops, ends in 18m
      per-user: override of alice: scale 10, by ops, ends in 18m
    warning: 3 bans left out: a rule file has no bans; `loudou export --live` has them, with their ends:
      per-user: ban of eve, no end
      per-user: ban of mallory, by ops, ends in 1m
    --- exit code 0
    "#);
    assert_eq!(
        ran.lines()[0],
        "GET /v1/export?with_temporary=true HTTP/1.1"
    );
    // Unknown changes are reported, too.
    let ran = Loudou::answers(vec![ok(&file)]).run("export");
    assert_eq!(ran.code, 0);
    assert!(
        ran.err.contains("whether there are temporary edits"),
        "{}",
        ran.err
    );
}

/// Rules keep their scope. The fleet's settings, which the admin API does not have, must be added
/// by the user.
#[test]
fn a_file_of_a_fleet_lacks_its_settings() {
    let export = |file: &Value| {
        let mut answers = vec![ok(file)];
        answers.extend(live());
        Loudou::answers(answers).run("export")
    };
    let note = "`fleet` left out";
    let shared =
        json!({ "version": 1, "rules": [{ "name": "own" }, { "name": "r", "scope": "fleet" }] });
    let ran = export(&shared);
    assert_eq!(
        serde_json::from_str::<Value>(&ran.out).ok(),
        Some(shared.clone())
    );
    assert!(ran.err.contains(note), "{}", ran.err);
    let mut whole = shared;
    whole["fleet"] = json!({ "cluster": "relay" });
    assert!(!export(&whole).err.contains(note));
    let own = json!({ "version": 1, "rules": [{ "name": "own" }] });
    assert!(!export(&own).err.contains(note));
}
