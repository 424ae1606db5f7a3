//! The head at every width: what must never be left out is there.

use super::*;

/// What rules in shadow mode would refuse is beside what is refused, and so is the number of warnings.
#[test]
fn refusals_and_warnings_are_always_in_the_head() {
    for columns in 40..=130 {
        let size = (columns, 24);
        for busy in [1, 30_000] {
            let mut state = state(size, 0);
            for poll in 0..20 {
                let mut snapshot = crate::app::fixture::snapshot(poll);
                for rule in &mut snapshot.status.rules {
                    rule.admitted *= busy;
                    rule.refused *= busy;
                    rule.shadow_refused *= busy;
                }
                let msg = Msg::Polled(Ok(Box::new(snapshot)));
                update(&mut state, msg, Nanos::from_secs(poll));
            }
            let text = text(&state, size);
            let line = text.lines().nth(1).expect("the totals");
            let (refused, would) = if busy == 1 {
                ("12/s", "1.0")
            } else {
                ("360k/s", "30.0k")
            };
            let is_full = line.contains(&format!("would refuse {would}/s"));
            let is_short = line.contains(&format!("{refused} ({would})"));
            assert!(line.contains(refused) && (is_full || is_short), "{line}");
            assert!(line.contains("⚠ 2"), "{line}");
        }
    }
}
