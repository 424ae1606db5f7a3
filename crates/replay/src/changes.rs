//! Counts requests on which two rule files decide differently.

use loudou_limiter::Verdict;
use loudou_rules::rule::Rule;

use super::engine::{Reported, ReportedRule};
use super::top::TopKeys;

/// Kinds of changes that [`Changes::keys`] counts.
pub(crate) const NEWLY_REFUSED: usize = 0;
pub(crate) const NO_LONGER_REFUSED: usize = 1;

/// Requests whose verdicts differ between the two rule files.
#[derive(Debug)]
pub(crate) struct Changes {
    /// Names of the rules in either file. A name that occurs in both files is listed once.
    pub(crate) names: Vec<String>,
    /// For each rule of the second file, its index in `names`.
    others: Vec<usize>,
    /// Number of requests for each pair of verdicts: row for the first file, column for the second.
    verdicts: [[u64; 3]; 3],
    /// Keys of requests that exactly one file refuses.
    pub(crate) keys: TopKeys,
}

const fn place(verdict: Verdict) -> usize {
    match verdict {
        Verdict::Admit => 0,
        Verdict::Hold => 1,
        Verdict::Refuse => 2,
    }
}

impl Changes {
    pub(crate) fn new(first: &[Rule], second: &[Rule]) -> Self {
        let mut names: Vec<String> = first.iter().map(|rule| rule.name.clone()).collect();
        let mut others = Vec::with_capacity(second.len());
        for rule in second {
            let known = names.iter().position(|name| *name == rule.name);
            others.push(known.unwrap_or(names.len()));
            if known.is_none() {
                names.push(rule.name.clone());
            }
        }
        Self {
            keys: TopKeys::new(),
            names,
            others,
            verdicts: [[0; 3]; 3],
        }
    }

    pub(crate) fn add(&mut self, first: &Reported<'_>, second: &Reported<'_>) {
        let row = self.verdicts.get_mut(place(first.verdict));
        if let Some(count) = row.and_then(|row| row.get_mut(place(second.verdict))) {
            *count += 1;
        }
        let refuses = |reported: &Reported<'_>| reported.verdict == Verdict::Refuse;
        match (refuses(first), refuses(second)) {
            (false, true) => self.count(second.rule.as_ref(), NEWLY_REFUSED),
            (true, false) => self.count(first.rule.as_ref(), NO_LONGER_REFUSED),
            _ => {}
        }
    }

    fn count(&mut self, rule: Option<&ReportedRule<'_>>, kind: usize) {
        let Some(rule) = rule else { return };
        let group = if kind == NO_LONGER_REFUSED {
            Some(rule.index)
        } else {
            self.others.get(rule.index).copied()
        };
        if let (Some(group), Some(key)) = (group, rule.key) {
            self.keys.add(group, key, kind);
        }
    }

    /// Returns the number of requests with verdict `from` under the first file and `to` under the
    /// second.
    pub(crate) fn count_of(&self, from: Verdict, to: Verdict) -> u64 {
        let row = self.verdicts.get(place(from));
        row.and_then(|row| row.get(place(to))).copied().unwrap_or(0)
    }
}
