//! Which of several changes of one name holds: made at several Envoys, and told again to an engine that has
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

/// A caller that is late with an earlier change does not undo a later one. A caller that knew the later one does.
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
    // It did not know the other one, and is older: it gets the other one.
    let answer = two.call(vec![made(2, 60_000)])?;
    assert_eq!(
        (answer.rejected.len(), &two.known["edit/r"]),
        (0, &json!(1))
    );
    assert!((5_000..60_000).contains(&answer.changes[0].age_ms));
    assert_eq!(generations(&one.call(Vec::new())?), Vec::<u64>::new());
    // Now it knows it, so it means to replace it.
    two.call(vec![made(2, 60_000)])?;
    one.call(Vec::new())?;
    assert_eq!((&one.known["edit/r"], one.generation), (&json!(2), 2));
    // One that is younger replaces one that it does not know.
    let mut three = Envoy::new(&relay, "0000000000000003");
    three.call(vec![made(3, 0)])?;
    one.call(Vec::new())?;
    assert_eq!((&one.known["edit/r"], one.generation), (&json!(3), 3));
    Ok(())
}

/// All Envoys tell what they know to an engine that has lost it: it is written once, as of when it was made.
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
    // An end is kept for an hour since it was told.
    let now = valkey.run(&["TIME"])?.numbers()?[0] * 1_000;
    let ends = "loudou:fleet:{test}:ends";
    let kept = valkey.run(&["ZSCORE", ends, "ban/r/a"])?.number()? - now;
    assert!((3_500_000..3_601_000).contains(&kept), "{kept}");
    Ok(())
}
