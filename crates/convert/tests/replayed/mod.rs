//! Verdicts of a rule file over a trace, for tests with random configurations.

use std::io;

use loudou_check::{Content, check};
use loudou_limiter::{Nanos, Verdict};
use loudou_replay::decisions::Decided;
use loudou_replay::{Input, Observer, Progress, Reading, Run, replay};

/// Collects the verdicts.
struct Verdicts(Vec<Verdict>);

impl Observer for Verdicts {
    fn decided(&mut self, decided: &Decided<'_>) -> io::Result<()> {
        let wait = decided
            .reported
            .rule
            .as_ref()
            .map_or(Nanos::ZERO, |rule| rule.wait);
        self.0.push(match decided.reported.verdict {
            // nginx does not delay a request by less than a millisecond.
            Verdict::Hold if wait.get() < 1_000_000 => Verdict::Admit,
            verdict => verdict,
        });
        Ok(())
    }

    fn progress(&mut self, _: Progress) -> io::Result<()> {
        Ok(())
    }
}

/// Answers all requests of a trace by a rule file.
pub(crate) fn verdicts(rules: &str, trace: &str) -> Vec<Verdict> {
    let mut checked = check("rules.yaml", rules.as_bytes(), |_| Vec::new());
    let Some(Content::Rules(file, _)) = checked.remove(0).1 else {
        panic!("{rules}");
    };
    let mut run = Run::new(("rules.yaml", &file), &[]).expect("room for the buckets");
    let mut verdicts = Verdicts(Vec::new());
    let inputs = vec![Input::new("trace", trace.as_bytes())];
    let intake = replay(inputs, &Reading::default(), &mut run, &mut verdicts).expect("a trace");
    assert_eq!(intake.bad, 0, "{:?}", intake.first_bad);
    verdicts.0
}
