//! The table of compared calls.

use core::fmt;

use serde_json::Value;

use crate::explained::{CASES, Case};
use crate::replay::{Difference, Explained};

/// Unexplained differences that are shown in full.
const SHOWN: usize = 40;
/// Maximum line length of an explanation.
const WIDTH: usize = 100;

/// The counts of one file.
#[derive(Debug, Default)]
struct File {
    name: &'static str,
    traces: usize,
    calls: usize,
    equal: usize,
    explained: usize,
    unexplained: usize,
}

/// A case, a file, and how many calls of the file it covered.
type Covered = (&'static str, &'static str, usize);

#[derive(Debug, Default)]
pub(crate) struct Report {
    files: Vec<File>,
    covered: Vec<Covered>,
    failures: Vec<String>,
}

impl Report {
    pub(crate) fn file(&mut self, name: &'static str, traces: usize) {
        self.files.push(File {
            name,
            traces,
            ..File::default()
        });
    }

    /// Counts a call with its differences.
    pub(crate) fn call(
        &mut self,
        trace: &Value,
        call: &Value,
        index: usize,
        differences: &[Explained],
    ) {
        let Some(file) = self.files.last_mut() else {
            return;
        };
        file.calls += 1;
        let unexplained = differences.iter().filter(|(_, case)| case.is_none());
        let unexplained: Vec<String> = unexplained.map(|(what, _)| what.to_string()).collect();
        if differences.is_empty() {
            file.equal += 1;
        } else if unexplained.is_empty() {
            file.explained += 1;
        } else {
            file.unexplained += 1;
            self.failures.push(format!(
                "{}, trace {}, call {index}: {}\n    {call}",
                file.name,
                trace["name"],
                unexplained.join("; "),
            ));
        }
        let mut cases: Vec<&'static str> = Vec::new();
        cases.extend(
            differences
                .iter()
                .filter_map(|(_, case)| Some(case.as_ref()?.name)),
        );
        cases.sort_unstable();
        cases.dedup();
        for case in cases {
            let same = |(name, of, _): &&mut Covered| *name == case && *of == file.name;
            match self.covered.iter_mut().find(same) {
                Some((_, _, calls)) => *calls += 1,
                None => self.covered.push((case, file.name, 1)),
            }
        }
    }

    /// Cases that no longer explain anything have to be removed.
    pub(crate) fn look_for_stale_cases(&mut self) {
        for case in &CASES {
            if self.covered.iter().all(|(name, ..)| *name != case.name) {
                let failure = format!("the case {} covers no call: it is stale", case.name);
                self.failures.push(failure);
            }
        }
    }

    pub(crate) fn passed(&self) -> bool {
        self.failures.is_empty()
    }

    fn case(&self, case: &Case, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = self.covered.iter().filter(|(name, ..)| *name == case.name);
        let of: Vec<String> = of
            .map(|(_, file, calls)| format!("{calls} of {file}"))
            .collect();
        if of.is_empty() {
            return Ok(());
        }
        writeln!(f, "- {}: {}", case.name, of.join(", "))?;
        let mut line = String::from(" ");
        for word in case.why.split(' ') {
            if line.len() + word.len() >= WIDTH {
                writeln!(f, "{line}")?;
                line = String::from(" ");
            }
            line.push(' ');
            line.push_str(word);
        }
        writeln!(f, "{line}")
    }

    fn total(&self) -> File {
        let sum = |count: fn(&File) -> usize| self.files.iter().map(count).sum();
        File {
            name: "all",
            traces: sum(|file| file.traces),
            calls: sum(|file| file.calls),
            equal: sum(|file| file.equal),
            explained: sum(|file| file.explained),
            unexplained: sum(|file| file.unexplained),
        }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = |value: Option<i128>| match (value, self.what) {
            (None, _) => "none".to_string(),
            (Some(0), "verdict") => "admitted".to_string(),
            (Some(1), "verdict") => "held".to_string(),
            (Some(2), "verdict") => "refused".to_string(),
            (Some(number), _) => number.to_string(),
        };
        let (theirs, ours) = (value(self.theirs), value(self.ours));
        write!(f, "{} is {theirs} there, {ours} here", self.what)
    }
}

impl fmt::Display for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<22} {:>6} {:>6} {:>6} {:>9} {:>11}",
            self.name, self.traces, self.calls, self.equal, self.explained, self.unexplained
        )
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\nanswers of other rate limiters, replayed")?;
        writeln!(
            f,
            "{:<22} {:>6} {:>6} {:>6} {:>9} {:>11}",
            "vectors", "traces", "calls", "equal", "explained", "unexplained"
        )?;
        for file in &self.files {
            file.fmt(f)?;
        }
        self.total().fmt(f)?;
        if !self.covered.is_empty() {
            writeln!(f, "\ndifferent on purpose")?;
        }
        for case in &CASES {
            self.case(case, f)?;
        }
        writeln!(f)?;
        for failure in self.failures.iter().take(SHOWN) {
            writeln!(f, "{failure}")?;
        }
        let more = self.failures.len().saturating_sub(SHOWN);
        if more > 0 {
            writeln!(f, "and {more} more")?;
        }
        let verdict = if self.passed() { "ok" } else { "FAILED" };
        writeln!(f, "conformance: {verdict}\n")
    }
}
