//! A whole run as a document: `--output json`, and what the tables are made from.

use loudou_limiter::{Nanos, Verdict};
use loudou_rules::rule::Rule;
use serde::Serialize;

use super::changes::Changes;
use super::format::Form;
use super::input::Input;
use super::notes::notes;
use super::run::{Run, Side};
use super::tally::{RuleCounts, Tally};
use super::timeline::Counts;

/// How many keys are named.
pub(crate) const KEYS: usize = 10;
/// How many slots of time the document has.
const SLOTS: usize = 64;

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Summary {
    /// The form of this document; always 1.
    version: u8,
    pub(crate) trace: Trace,
    #[serde(flatten)]
    pub(crate) side: SideSummary,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) compare: Option<Compare>,
    /// What to know before these numbers are believed.
    pub(crate) notes: Vec<String>,
}

/// What was read.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Trace {
    pub(crate) name: String,
    pub(crate) format: Option<&'static str>,
    pub(crate) bytes: u64,
    pub(crate) lines: u64,
    pub(crate) requests: u64,
    pub(crate) edits: u64,
    pub(crate) first_ns: Option<u64>,
    pub(crate) last_ns: Option<u64>,
    pub(crate) steps_back: u64,
    pub(crate) longest_step_back_ns: u64,
    pub(crate) bad_lines: u64,
    pub(crate) first_bad_lines: Vec<BadLine>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct BadLine {
    pub(crate) line: u64,
    pub(crate) message: String,
    pub(crate) text: String,
}

/// What one rule file made of it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct SideSummary {
    pub(crate) config: String,
    pub(crate) requests: Requests,
    pub(crate) rules: Vec<RuleSummary>,
    pub(crate) refused_keys: RefusedKeys,
    pub(crate) timeline: TimelineSummary,
    pub(crate) waits: WaitsSummary,
    pub(crate) store: Store,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Requests {
    pub(crate) total: u64,
    pub(crate) admitted: u64,
    pub(crate) held: u64,
    pub(crate) refused: u64,
}

impl From<Counts> for Requests {
    fn from(counts: Counts) -> Self {
        Self {
            total: counts.total(),
            admitted: counts.admitted,
            held: counts.held,
            refused: counts.refused,
        }
    }
}

/// What one rule said; see [`RuleCounts`].
#[derive(Clone, Debug, Serialize)]
pub(crate) struct RuleSummary {
    pub(crate) rule: String,
    pub(crate) mode: &'static str,
    pub(crate) matched: u64,
    pub(crate) admitted: u64,
    pub(crate) held: u64,
    pub(crate) refused: u64,
    pub(crate) overruled: u64,
    pub(crate) shadow_refused: u64,
    pub(crate) shadow_held: u64,
    pub(crate) skipped: u64,
    pub(crate) gave_up: u64,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct RefusedKeys {
    /// Whether no count is too large.
    pub(crate) exact: bool,
    /// How many keys were refused; at least, when not exact.
    pub(crate) keys: u64,
    pub(crate) most: Vec<RefusedKey>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct RefusedKey {
    pub(crate) rule: String,
    pub(crate) key: String,
    /// Refusals, those in shadow mode included, and by how much this may be too many.
    pub(crate) refused: u64,
    pub(crate) surplus: u64,
    /// How many of them were in shadow mode; at least, when there is a surplus.
    pub(crate) shadow_refused: u64,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct TimelineSummary {
    pub(crate) start_ns: u64,
    pub(crate) slot_ns: u64,
    pub(crate) slots: Vec<Slot>,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Slot {
    pub(crate) admitted: u64,
    pub(crate) held: u64,
    pub(crate) refused: u64,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct WaitsSummary {
    pub(crate) held: u64,
    pub(crate) mean_ns: u64,
    pub(crate) longest_ns: u64,
    pub(crate) steps: Vec<WaitStep>,
}

/// Waits longer than the step before, and no longer than this one.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct WaitStep {
    pub(crate) up_to_ns: Option<u64>,
    pub(crate) held: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Store {
    pub(crate) buckets: u64,
    pub(crate) created: u64,
    pub(crate) evicted_lossless: u64,
    pub(crate) evicted_lossy: u64,
}

/// Another rule file, and what it does otherwise.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Compare {
    #[serde(flatten)]
    pub(crate) side: SideSummary,
    pub(crate) changes: ChangesSummary,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct ChangesSummary {
    /// Requests with another verdict.
    pub(crate) changed: u64,
    /// By what was and what would be: `admit_refuse` was admitted and would be refused.
    pub(crate) admit_hold: u64,
    pub(crate) admit_refuse: u64,
    pub(crate) hold_admit: u64,
    pub(crate) hold_refuse: u64,
    pub(crate) refuse_admit: u64,
    pub(crate) refuse_hold: u64,
    pub(crate) exact: bool,
    pub(crate) keys: Vec<ChangedKey>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct ChangedKey {
    pub(crate) rule: String,
    pub(crate) key: String,
    pub(crate) newly_refused: u64,
    pub(crate) no_longer_refused: u64,
    pub(crate) surplus: u64,
}

impl Summary {
    pub(crate) fn new(name: &str, input: &Input, run: &Run) -> Self {
        let compare = run.other.as_ref().map(|(side, changes)| Compare {
            side: SideSummary::new(side),
            changes: ChangesSummary::new(changes),
        });
        Self {
            version: 1,
            trace: Trace::new(name, input, run),
            side: SideSummary::new(&run.side),
            compare,
            notes: notes(input, run),
        }
    }
}

impl Trace {
    fn new(name: &str, input: &Input, run: &Run) -> Self {
        let bad = input.first_bad.iter().map(|bad| BadLine {
            line: bad.number,
            message: bad.message.clone(),
            text: bad.text.clone(),
        });
        Self {
            name: name.to_owned(),
            format: input.form.map(Form::name),
            bytes: input.bytes,
            lines: input.lines,
            requests: run.requests(),
            edits: run.edits,
            first_ns: run.time.first.map(Nanos::get),
            last_ns: run.time.first.map(|_| run.time.last.get()),
            steps_back: run.time.steps_back,
            longest_step_back_ns: run.time.longest_step_back.get(),
            bad_lines: input.bad,
            first_bad_lines: bad.collect(),
        }
    }
}

impl SideSummary {
    fn new(side: &Side) -> Self {
        let Side {
            config,
            engine,
            tally,
        } = side;
        let rules = engine.rules().iter().zip(&tally.rules);
        let stats = engine.stats();
        Self {
            config: config.clone(),
            requests: tally.requests.into(),
            rules: rules
                .map(|(active, counts)| RuleSummary::new(active.rule(), counts))
                .collect(),
            refused_keys: refused_keys(side),
            timeline: timeline(tally),
            waits: waits(tally),
            store: Store {
                buckets: engine.buckets(),
                created: stats.created,
                evicted_lossless: stats.evicted_lossless,
                evicted_lossy: stats.evicted_lossy,
            },
        }
    }
}

impl RuleSummary {
    fn new(rule: &Rule, counts: &RuleCounts) -> Self {
        Self {
            rule: rule.name.clone(),
            mode: rule.mode.name(),
            matched: counts.matched,
            admitted: counts.admitted,
            held: counts.held,
            refused: counts.refused,
            overruled: counts.overruled,
            shadow_refused: counts.shadow_refused,
            shadow_held: counts.shadow_held,
            skipped: counts.skipped,
            gave_up: counts.gave_up,
        }
    }
}

fn refused_keys(side: &Side) -> RefusedKeys {
    let rules = side.engine.rules();
    let top = &side.tally.refused_keys;
    let most = top.most(KEYS).into_iter().map(|counted| {
        let [_, shadow_refused] = counted.kinds;
        let rule = rules.get(counted.group);
        RefusedKey {
            rule: rule.map_or_else(String::new, |active| active.rule().name.clone()),
            key: counted.key.to_string(),
            refused: counted.total,
            surplus: counted.surplus,
            shadow_refused,
        }
    });
    RefusedKeys {
        exact: top.is_exact(),
        keys: top.keys(),
        most: most.collect(),
    }
}

fn timeline(tally: &Tally) -> TimelineSummary {
    let (slot_ns, slots) = tally.timeline.slots(SLOTS);
    let slots = slots.into_iter().map(|counts| Slot {
        admitted: counts.admitted,
        held: counts.held,
        refused: counts.refused,
    });
    TimelineSummary {
        start_ns: tally.timeline.start().get(),
        slot_ns,
        slots: slots.collect(),
    }
}

fn waits(tally: &Tally) -> WaitsSummary {
    let waits = &tally.waits;
    let steps = waits.steps().into_iter();
    WaitsSummary {
        held: waits.count,
        mean_ns: waits.mean().get(),
        longest_ns: waits.longest.get(),
        steps: steps
            .map(|(up_to_ns, held)| WaitStep { up_to_ns, held })
            .collect(),
    }
}

impl ChangesSummary {
    fn new(changes: &Changes) -> Self {
        use Verdict::{Admit, Hold, Refuse};
        let of = |from, to| changes.turned(from, to);
        let (admit_hold, admit_refuse) = (of(Admit, Hold), of(Admit, Refuse));
        let (hold_admit, hold_refuse) = (of(Hold, Admit), of(Hold, Refuse));
        let (refuse_admit, refuse_hold) = (of(Refuse, Admit), of(Refuse, Hold));
        let keys = changes.keys.most(KEYS).into_iter().map(|counted| {
            let [newly_refused, no_longer_refused] = counted.kinds;
            ChangedKey {
                rule: changes
                    .names
                    .get(counted.group)
                    .cloned()
                    .unwrap_or_default(),
                key: counted.key.to_string(),
                newly_refused,
                no_longer_refused,
                surplus: counted.surplus,
            }
        });
        Self {
            changed: admit_hold
                + admit_refuse
                + hold_admit
                + hold_refuse
                + refuse_admit
                + refuse_hold,
            admit_hold,
            admit_refuse,
            hold_admit,
            hold_refuse,
            refuse_admit,
            refuse_hold,
            exact: changes.keys.is_exact(),
            keys: keys.collect(),
        }
    }
}
