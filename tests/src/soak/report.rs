//! The output of a soak: a progress line at times, and a table at the end.

use std::collections::BTreeMap;

use super::book::{Book, SECOND, Violation};
use super::memory::Samples;
use super::model::{Event, Outcome};
use super::timeline::At;

/// A progress line.
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

/// The actions done, the first violation of each kind in full, and the number of each kind.
pub fn table(book: &Book, samples: &Samples, seed: u64, say: &mut dyn FnMut(&str)) {
    for (what, count) in book.counts() {
        say(&format!("{count:>9}  {what}"));
    }
    say(&format!("   memory  {}", samples.summary()));
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
        requests,
    } = violation;
    say(&format!(
        "VIOLATION of {:?}: seed {seed}, at {}, rule {rule}, key {key}: {}",
        breach.promise,
        seconds(breach.at),
        breach.what
    ));
    for deed in actions {
        say(&format!("    {}  {}", seconds(deed.at), deed.what));
    }
    let requests: Vec<String> = requests.iter().map(request).collect();
    if !requests.is_empty() {
        say(&format!("    its requests: {}", requests.join(", ")));
    }
}

/// The answer's time and outcome, and since when its connection is open.
fn request(event: &Event) -> String {
    let outcome = match event.outcome {
        Outcome::Admitted => "admitted",
        Outcome::Refused => "refused",
        Outcome::Unknown => "unknown",
    };
    let (answered, opened) = (seconds(event.answered), seconds(event.opened));
    format!("{answered} {outcome} (connection of {opened})")
}

fn seconds(at: At) -> String {
    format!("{}.{:03} s", at / SECOND, at % SECOND / 1_000_000)
}
