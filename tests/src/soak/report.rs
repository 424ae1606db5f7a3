//! Prints the output of a soak: progress lines, and a table at the end.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context as _, Result};

use super::Options;
use super::book::{Book, SECOND, Violation};
use super::memory::Samples;
use super::model::{Event, Outcome};
use super::timeline::At;

/// Formats a progress line.
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

/// Removes the file of an earlier soak with the same options.
pub fn begin(options: &Options) -> Result<()> {
    let file = &options.violations;
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder)?;
    }
    if file.exists() {
        fs::remove_file(file)?;
    }
    Ok(())
}

/// Writes all violations so far into their file, if there are any.
pub fn write(book: &Book, options: &Options) -> Result<()> {
    let violations = book.violations();
    if violations.is_empty() {
        return Ok(());
    }
    let mut text = format!("{}\n", repeat(options));
    for violation in &violations {
        tell(violation, options.seed, &mut |line| {
            text.push_str(line);
            text.push('\n');
        });
    }
    let file = &options.violations;
    fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}

/// Returns the command that repeats the actions of a soak.
fn repeat(options: &Options) -> String {
    let Options { seed, lasts, .. } = options;
    let minutes = lasts.as_secs() / 60;
    let mut line = format!("cargo xtask soak --minutes {minutes} --seed {seed}");
    if !options.without.is_empty() {
        line.push_str(" --without ");
        line.push_str(&options.without.join(","));
    }
    line
}

/// Prints the actions, the first violation of each kind in full, and the number of violations of
/// each kind.
pub fn table(book: &Book, samples: &Samples, options: &Options, say: &mut dyn FnMut(&str)) {
    let seed = options.seed;
    for (what, count) in book.counts() {
        say(&format!("{count:>9}  {what}"));
    }
    let heartbeat = book.heartbeats.longest() / 1_000_000;
    say(&format!(
        "{heartbeat:>6} ms  at most between two turns of a worker"
    ));
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
        "seed {seed}: {} violations; `{}` repeats the actions",
        violations.len(),
        repeat(options)
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

/// Formats a request: when it was sent and answered, its outcome, and when its connection was
/// opened.
fn request(event: &Event) -> String {
    let outcome = match event.outcome {
        Outcome::Admitted => "admitted",
        Outcome::Refused => "refused",
        Outcome::Unknown => "unknown",
    };
    let (sent, answered) = (seconds(event.sent), seconds(event.answered));
    let opened = seconds(event.opened);
    let passed = event.pass.map(|pass| {
        let due = pass.due_from.abs_diff(pass.arrived) / 1_000;
        let (came, arrived) = (seconds(pass.came), seconds(pass.arrived));
        format!("; came {came}, passed {arrived}, {due} us late at most")
    });
    let passed = passed.unwrap_or_default();
    format!("{sent} to {answered} {outcome} (connection of {opened}{passed})")
}

fn seconds(at: At) -> String {
    format!("{}.{:03} s", at / SECOND, at % SECOND / 1_000_000)
}
