//! Order of changes with the same name: changes made at several Envoys, and changes sent again to an engine that has
//! lost them.

use anyhow::Result;
use loudou_api::Change;
use loudou_tests::Valkey;
use serde_json::{Value, json};

use crate::changes::{Envoy, change, generations};
use crate::support::{ONE, TWO, start};

const HOUR_MS: u64 = 3_600_000;

#[test]
fn changes_of_both_sides_meet_in_one_order() -> Result<()> {
    let valkey = Valkey::start()?;
    let relay = start(&valkey)?;
    let (mut one, mut two) = (Envoy::new(&relay, ONE), Envoy::new(&relay, TWO));
    for round in 0..50 {
        let name = format!("override/r/{}", round % 7);
        one.call(vec![change(&name, json!([1, round]))])?;
        two.call(vec![
            change(&name, json!([2, round])),
            change("edit/r", json!(round)),
        ])?;
    }
    one.catch_up()?;
    two.catch_up()?;
    assert_eq!(one.known, two.known);
    assert_eq!(one.known.len(), 8);
    assert_eq!(one.generation, 150);
    Ok(())
}

/// A late call with an earlier change does not replace a later change, unless the caller has seen the later change.
#[test]
fn the_change_made_last_holds() -> Result<()> {
    let valkey = Valkey::start()?;
    let relay = start(&valkey)?;
    let (mut one, mut two) = (Envoy::new(&relay, ONE), Envoy::new(&relay, TWO));
    let made = |value: u64, age_ms| Change {
        age_ms,
        ..change("edit/r", json!(value))
    };
    one.call(vec![made(1, 5_000)])?;
    // The second Envoy has not seen the first change and its own is older, so it gets the first change.
    let answer = two.call(vec![made(2, 60_000)])?;
    assert_eq!(
        (answer.rejected.len(), &two.known["edit/r"]),
        (0, &json!(1))
    );
    assert!((5_000..60_000).contains(&answer.changes[0].age_ms));
    assert_eq!(generations(&one.call(Vec::new())?), Vec::<u64>::new());
    // Now the second Envoy has seen the first change, so its change is a deliberate replacement.
    two.call(vec![made(2, 60_000)])?;
    one.call(Vec::new())?;
    assert_eq!((&one.known["edit/r"], one.generation), (&json!(2), 2));
    // A later change replaces a change that its Envoy has not seen.
    let mut three = Envoy::new(&relay, "0000000000000003");
    three.call(vec![made(3, 0)])?;
    one.call(Vec::new())?;
    assert_eq!((&one.known["edit/r"], one.generation), (&json!(3), 3));
    Ok(())
}

/// All Envoys send their changes again to an engine that has lost them. Each change is written once, with its original
/// time.
#[test]
fn what_is_told_again_is_written_once() -> Result<()> {
    let valkey = Valkey::start()?;
    let relay = start(&valkey)?;
    let told = || {
        let edit = Change {
            instance: "00000000000000ab".to_owned(),
            age_ms: HOUR_MS / 2,
            ..change("edit/r", json!(1))
        };
        let end = Change {
            name: "ban/r/a".to_owned(),
            value: Value::Null,
            ..edit.clone()
        };
        vec![edit, end]
    };
    let (mut one, mut two) = (Envoy::new(&relay, ONE), Envoy::new(&relay, TWO));
    one.call(told())?;
    let answer = two.call(told())?;
    assert_eq!(answer.generation, 2);
    let change = &answer.changes[0];
    assert_eq!(change.instance, "00000000000000ab");
    assert!((HOUR_MS / 2..HOUR_MS).contains(&change.age_ms));
    // A tombstone is kept for an hour after it was sent.
    let now = valkey.run(&["TIME"])?.numbers()?[0] * 1_000;
    let ends = "loudou:fleet:{test}:ends";
    let kept = valkey.run(&["ZSCORE", ends, "ban/r/a"])?.number()? - now;
    assert!((3_500_000..3_601_000).contains(&kept), "{kept}");
    Ok(())
}
