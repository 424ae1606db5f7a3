//! Builds the serializable result from the state of a run.

use loudou_limiter::{Nanos, Verdict};
use loudou_rules::rule::Rule;

use super::{
    BesideLog, ChangedKey, ChangesSummary, Compare, KeysSummary, OtherLines, RefusedKey,
    RefusedKeys, Requests, RuleSummary, RunSummary, SideSummary, StoreSummary, TimelineSummary,
    Trace, VerdictCounts, WaitStep, WaitsSummary,
};
use crate::calibration::Calibration;
use crate::changes::Changes;
use crate::input::Intake;
use crate::keys::KeyCounts;
use crate::notes::{notes, warnings};
use crate::run::{Run, Side};
use crate::tally::{RuleCounts, SideTally};

/// Maximum number of timeline slots in the result.
const SLOTS: usize = 64;

impl From<VerdictCounts> for Requests {
    fn from(counts: VerdictCounts) -> Self {
        Self {
            total: counts.total(),
            admitted: counts.admitted,
            held: counts.held,
            refused: counts.refused,
        }
    }
}

impl RunSummary {
    /// Creates the result of a run over the trace `name`. Each list of keys contains at most `keys`
    /// keys.
    pub fn new(name: &str, input: &Intake, run: &Run, keys: usize) -> Self {
        let compare = run.others.iter().map(|(side, changes)| Compare {
            side: SideSummary::new(side, keys),
            changes: ChangesSummary::new(changes, keys),
        });
        Self {
            version: 1,
            trace: Trace::new(name, input, run),
            side: SideSummary::new(&run.side, keys),
            beside_log: BesideLog::new(&run.calibration),
            compare: compare.collect(),
            warnings: warnings(input, run),
            notes: notes(input),
        }
    }
}

impl BesideLog {
    fn new(calibration: &Calibration) -> Option<Self> {
        let agreement = calibration.agreement();
        agreement.has_refusals().then(|| Self {
            statuses: calibration.statuses().to_vec(),
            has_verdicts: calibration.has_verdicts,
            both_refused: agreement.both_refused,
            only_log_refused: agreement.only_log,
            only_replay_refused: agreement.only_replay,
            neither_refused: agreement.neither,
        })
    }
}

impl Trace {
    fn new(name: &str, input: &Intake, run: &Run) -> Self {
        let [tcp_connections, without_request, messages] = input.others;
        Self {
            name: name.to_owned(),
            format: input.format_name(),
            files: match input.inputs.as_slice() {
                [_] => Vec::new(),
                files => files.to_vec(),
            },
            bytes: input.bytes,
            lines: input.lines,
            requests: run.requests(),
            edits: run.edits,
            first_ns: run.time.first.map(Nanos::get),
            last_ns: run.time.first.map(|_| run.time.last.get()),
            steps_back: input.steps_back,
            longest_step_back_ns: input.longest_step_back_ns,
            outside: input.outside,
            other_lines: OtherLines {
                tcp_connections,
                without_request,
                messages,
            },
            bad_lines: input.bad,
            untimed_lines: input.untimed,
            first_bad_lines: input.first_bad.clone(),
        }
    }
}

impl SideSummary {
    fn new(side: &Side, most_keys: usize) -> Self {
        let Side {
            config,
            engine,
            tally,
        } = side;
        let counts = tally.rules.iter().zip(&tally.keys);
        let rules = engine.rules().iter().zip(counts);
        let stats = engine.stats();
        Self {
            config: config.clone(),
            requests: tally.requests.into(),
            rules: rules
                .map(|(active, counts)| RuleSummary::new(active.rule(), counts))
                .collect(),
            refused_keys: refused_keys(side, most_keys),
            timeline: timeline(tally),
            waits: waits(tally),
            store: StoreSummary {
                buckets: engine.buckets(),
                created: stats.created,
                evicted_lossless: stats.evicted_lossless,
                evicted_lossy: stats.evicted_lossy,
            },
        }
    }
}

impl RuleSummary {
    fn new(rule: &Rule, (counts, keys): (&RuleCounts, &KeyCounts)) -> Self {
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
            keys: KeysSummary {
                seen: keys.keys(),
                refused: keys.refused(),
                requests: keys.requests_of_key(),
                refused_per_mille: keys.refused_per_mille(),
                left_out: keys.left_out,
            },
        }
    }
}

fn refused_keys(side: &Side, most_keys: usize) -> RefusedKeys {
    let rules = side.engine.rules();
    let top = &side.tally.refused_keys;
    let most = top.most(most_keys).into_iter().map(|counted| {
        let [_, shadow_refused] = counted.kinds;
        let rule = rules.get(counted.group);
        RefusedKey {
            rule: rule.map_or_else(String::new, |active| active.rule().name.clone()),
            key: counted.key.to_string(),
            refused: counted.total,
            surplus: counted.surplus,
            shadow_refused,
            first_ns: counted.times.map(|(first, _)| first.get()),
            last_ns: counted.times.map(|(_, last)| last.get()),
        }
    });
    RefusedKeys {
        exact: top.is_exact(),
        keys: top.keys(),
        most: most.collect(),
    }
}

fn timeline(tally: &SideTally) -> TimelineSummary {
    let (slot_ns, slots) = tally.timeline.slots(SLOTS);
    TimelineSummary {
        start_ns: tally.timeline.start().get(),
        slot_ns,
        slots,
    }
}

fn waits(tally: &SideTally) -> WaitsSummary {
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
    fn new(changes: &Changes, most_keys: usize) -> Self {
        use Verdict::{Admit, Hold, Refuse};
        let of = |from, to| changes.count_of(from, to);
        let (admit_hold, admit_refuse) = (of(Admit, Hold), of(Admit, Refuse));
        let (hold_admit, hold_refuse) = (of(Hold, Admit), of(Hold, Refuse));
        let (refuse_admit, refuse_hold) = (of(Refuse, Admit), of(Refuse, Hold));
        let keys = changes.keys.most(most_keys).into_iter().map(|counted| {
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
