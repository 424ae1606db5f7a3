//! What a soak says: a line now and then, and a table in the end.

use std::collections::BTreeMap;

use super::book::{Book, SECOND, Violation};
use super::memory::Samples;
use super::timeline::At;

/// A line about how it goes.
pub fn progress(book: &Book, now: At) -> String {
    let counted = |what| book.counted(what);
    let updates = counted("updates by listener")
        + counted("updates by listener and extension")
        + counted("updates by extension");
    format!(
        "{:>5} s  {:>8} requests  {:>5} edits  {updates:>4} updates  {:>3} crashes  {:>6} keys checked  {} violations",
        now / SECOND,
        counted("admitted") + counted("refused"),
        counted("edits") + counted("edits with reset"),
        counted("sandboxes asked to die"),
        counted("keys checked"),
        book.violations().len(),
    )
}

/// What was done, the first violation of each kind in full, and how many there are of each.
pub fn table(book: &Book, samples: &Samples, seed: u64, say: &mut dyn FnMut(&str)) {
    for (what, count) in book.counts() {
        say(&format!("{count:>9}  {what}"));
    }
    say(&format!("   memory  {}", samples.told()));
    let violations = book.violations();
    let mut kinds = BTreeMap::<_, Vec<&Violation>>::new();
    for violation in &violations {
        let kind = (&violation.rule, violation.breach.promise);
        kinds.entry(kind).or_default().push(violation);
    }
    for alike in kinds.values() {
        if let Some(first) = alike.iter().min_by_key(|violation| violation.breach.at) {
            tell(first, seed, say);
        }
    }
    for ((rule, promise), alike) in kinds {
        let count = alike.len();
        say(&format!("{count:>9}  violations of {promise:?} in {rule}"));
    }
    say(&format!(
        "seed {seed}: {} violations; `cargo xtask soak --seed {seed}` repeats the actions",
        violations.len()
    ));
}

fn tell(violation: &Violation, seed: u64, say: &mut dyn FnMut(&str)) {
    let Violation {
        rule,
        key,
        breach,
        actions,
    } = violation;
    say(&format!(
        "VIOLATION of {:?}: seed {seed}, at {}, rule {rule}, key {key}: {}",
        breach.promise,
        told(breach.at),
        breach.what
    ));
    for (at, action) in actions {
        say(&format!("    {}  {action}", told(*at)));
    }
}

fn told(at: At) -> String {
    format!("{}.{:03} s", at / SECOND, at % SECOND / 1_000_000)
}
