//! `PUT` and `DELETE` for `/v1/rules/{rule}` and `/v1/overrides/{rule}/{key}`, which edit a rule or
//! the override for a key. `If-Match` protects against concurrent edits.

use std::sync::Arc;

use loudou_api::{EditAnswer, Event, EventKind};
use loudou_limiter::{Carry, Nanos};
use loudou_rules::config;
use loudou_rules::config::{MAX_OVERRIDES, Path, Problem};
use loudou_rules::humanise::humanise;
use loudou_rules::rule::{Rule, tried};
use loudou_rules::rule_set::ActiveRule;

use super::AdminPlane;
use super::answer::{Failure, ok_at};
use super::call::{Call, KEY};
use super::if_match::IfMatch;
use super::rules::find;
use crate::current;
use crate::escaped::shown;
use crate::events;
use crate::fleet::travel::{self, LocalChange};
use crate::host::{Host, Reply};
use crate::metrics::StoreMetrics;
use crate::record::{
    Author, MAX_EDITED, MAX_TRIALS, NotAllowed, Record, RecordError, RuleRecord, describe, untried,
};
use crate::sweep::{self, PAGES_OF_EDIT};

impl AdminPlane {
    pub(super) fn put_rule(&mut self, host: &dyn Host, call: &Call) -> Result<Reply, Failure> {
        let author = author(call, call.carry()?, call.duration("for")?)?;
        let edit = config::parse_edit(&call.json()?)
            .map_err(|problems| Failure::wrong_body("a valid edit", &problems))?;
        let untried = tried(call.rule())
            .map(|_| untried(&edit))
            .unwrap_or_default();
        if !untried.is_empty() {
            return Err(Failure::wrong_body("limits to try", &untried));
        }
        let edited = Edited::new(call, EventKind::Edit, &author)?;
        self.edit(host, &edited, &|rule, version| {
            rule.apply(&edit, &author, version);
            Ok(())
        })
    }

    pub(super) fn delete_rule(&mut self, host: &dyn Host, call: &Call) -> Result<Reply, Failure> {
        let author = author(call, call.carry()?, None)?;
        let edited = Edited::new(call, EventKind::EditDropped, &author)?;
        self.edit(host, &edited, &|rule, version| {
            rule.drop_edit(author.carry, author.at, version);
            Ok(())
        })
    }

    pub(super) fn put_override(&mut self, host: &dyn Host, call: &Call) -> Result<Reply, Failure> {
        let key = call.key();
        let author = author(call, Carry::default(), call.duration("for")?)?;
        let document = call.json()?;
        let edited = Edited::new(call, EventKind::Override, &author)?;
        self.edit(host, &edited, &|rule, version| {
            if let Some(rule) = tried(&rule.base.name) {
                let detail = format!(
                    "a trial starts with the overrides of its rule and keeps them: override the key of `{rule}`, then \
                     start the trial again"
                );
                return Err(Failure::new(409, "An override of a trial", detail));
            }
            // The override must also be valid for the base rule's limits, because these apply again
            // once an edit of the limits expires.
            let gives = config::parse_override(key, &document, Some(&rule.base.limits))
                .map_err(|problems| Failure::wrong_body("a valid edit", &problems))?;
            if let Some(problem) = config::impossible_key(&rule.base, key) {
                return Err(Failure::wrong_body("a valid edit", &[problem]));
            }
            rule.set_override(key, gives, &author, version);
            Ok(())
        })
    }

    pub(super) fn delete_override(
        &mut self,
        host: &dyn Host,
        call: &Call,
    ) -> Result<Reply, Failure> {
        let key = call.key();
        let author = author(call, Carry::default(), None)?;
        let edited = Edited::new(call, EventKind::OverrideDropped, &author)?;
        self.edit(host, &edited, &|rule, version| {
            if rule.drop_override(key, author.at, version) {
                Ok(())
            } else {
                Err(no_edited_override(rule, key))
            }
        })
    }

    fn edit(
        &mut self,
        host: &dyn Host,
        edited: &Edited<'_>,
        change: &dyn Fn(&mut RuleRecord, u32) -> Result<(), Failure>,
    ) -> Result<Reply, Failure> {
        let call = edited.call;
        // Reading the record drops expired edits before this edit is applied.
        self.record(host, call)?;
        let share = self.share().to_owned();
        let mut outcome = Err(RecordError::Missing.into());
        let (mut made, mut ended) = (Vec::new(), None);
        let records = self.records.clone();
        let metrics = StoreMetrics::define(host, &mut self.registry, &share);
        let announced = metrics.changes(host);
        let record = records.edit(host, &mut |record| {
            let stored = record.clone();
            if edited.kind == EventKind::Edit && !record.start_trial(call.rule()) {
                outcome = Err(too_many_trials());
                return false;
            }
            // The precondition is checked on every attempt, because another worker may have edited
            // the rule since the previous attempt.
            let seen = self.precondition(host, call, record);
            outcome = seen.and_then(|before| {
                let version = record.next_version();
                let rule = record.rule_mut(call.rule()).ok_or(RecordError::Missing)?;
                if rule.is_full() {
                    return Err(RecordError::TooOften.into());
                }
                let (ends, old) = (rule.ends(), rule.clone());
                change(rule, version)?;
                rule.check().map_err(refused)?;
                if edited.kind == EventKind::Edit && rule.is_trial() && rule.edit.is_none() {
                    return Err(nothing_to_try());
                }
                made = LocalChange::of_rule(&old, rule);
                let described = describe(&before, rule.effective());
                // A reset changes the buckets' fill levels even if none of the rule's settings
                // change.
                let resets = edited.author.carry == Carry::Reset;
                let changed = resets || !described.is_empty() || ends != rule.ends();
                Ok((before, described, changed))
            });
            let changed = outcome.as_ref().is_ok_and(|(_, _, changed)| *changed);
            if !changed {
                // Undo the edit if it was refused or changes nothing.
                *record = stored;
            }
            ended = record.rule(call.rule()).cloned();
            record.end_trials();
            changed && !edited.dry_run
        })?;
        let changed = outcome.as_ref().is_ok_and(|(_, _, changed)| *changed);
        let is_new = changed && !edited.dry_run;
        let fleet = is_new.then(|| {
            let fleet = travel::note(host, &share, &made, call.clock.now);
            let change = (&record, announced);
            current::announce(host, &records, &metrics, change, call.clock.now);
            fleet
        });
        // A rule with too many recent edits accepts new ones only after a sweep has converted its
        // buckets. Each edit therefore performs part of the sweep. A dry run does not, because
        // buckets must not be converted to a rule version that will never be stored.
        if !edited.dry_run {
            self.sweep(host, call, &record);
        }
        let (before, change, changed) = outcome?;
        if is_new {
            events::add(host, &share, &edited.event(record.generation, &change));
        }
        let rule = match &ended {
            Some(rule) => rule,
            None => find(&record, call.rule())?,
        };
        let after = self.view(host, call, &record, rule);
        let answer = EditAnswer {
            dry_run: edited.dry_run,
            before,
            after,
            change,
            changed,
            fleet: fleet.flatten(),
        };
        Ok(ok_at(&record, &answer))
    }

    /// Converts some of the buckets of frequently edited rules to the current rule version. If the
    /// conversion fails, the next edit retries it.
    fn sweep(&mut self, host: &dyn Host, call: &Call, record: &Record) {
        let rules: Vec<Arc<ActiveRule>> = record.to_sweep().map(|rule| rule.activate()).collect();
        if rules.is_empty() {
            return;
        }
        let Ok(table) = self.table(host) else {
            return;
        };
        let share = self.share().to_owned();
        let rules: Vec<&ActiveRule> = rules.iter().map(|rule| &**rule).collect();
        let records = &self.records;
        if sweep::step(host, records, (&table, &rules), PAGES_OF_EDIT, call.clock) {
            StoreMetrics::define(host, &mut self.registry, &share).announce_change(host);
        }
    }

    /// Returns the current rule if the request's `If-Match` contains the current `ETag`.
    fn precondition(
        &mut self,
        host: &dyn Host,
        call: &Call,
        record: &Record,
    ) -> Result<Rule, Failure> {
        let rule = find(record, call.rule())?;
        let right = record.instance.etag(record.generation);
        let is_absent = call.if_match == IfMatch::Absent;
        if !is_absent && call.if_match.allows(&right) {
            return Ok(rule.effective().clone());
        }
        let (status, title, detail) = if is_absent {
            let detail = format!("name the version that you have read: `If-Match: {right}`");
            (428, "Precondition required", detail)
        } else {
            let mut tags = call.if_match.tags();
            let detail = if tags.any(|tag| record.instance.is_other(tag)) {
                let age = record.instance.age(call.clock);
                format!(
                    "Envoy restarted {age} ago, and edits in the previous process are lost; the rules are \
                     now at {right}"
                )
            } else if call.if_match.tags().next().is_none() {
                format!("a weak tag never matches; the rules are now at {right}")
            } else if call.if_match.tags().all(|tag| !tag.contains('-')) {
                format!(
                    "a generation alone does not identify the process; the rules are now at {right}"
                )
            } else {
                format!("the rules have changed; they are now at {right}")
            };
            (412, "Precondition failed", detail)
        };
        let current = self.view(host, call, record, rule);
        Err(Failure::new(status, title, detail).with_current(current))
    }
}

/// An edit in progress.
struct Edited<'a> {
    call: &'a Call,
    kind: EventKind,
    author: &'a Author,
    dry_run: bool,
}

impl<'a> Edited<'a> {
    fn new(call: &'a Call, kind: EventKind, author: &'a Author) -> Result<Self, Failure> {
        Ok(Self {
            call,
            kind,
            author,
            dry_run: call.flag("dry_run")?,
        })
    }

    fn event(&self, generation: u64, change: &str) -> Event {
        let mut event = self.call.event(self.kind, generation);
        event.rule = Some(self.call.rule().to_owned());
        event.key = self.call.step(KEY).map(ToOwned::to_owned);
        event.until_ns = self.author.until().map(Nanos::get);
        event.reason.clone_from(&self.author.reason);
        event.detail = if change.is_empty() {
            "nothing changed".to_owned()
        } else {
            change.to_owned()
        };
        if let Some(span) = self.author.expires_after {
            event.detail = format!("{}, for {}", event.detail, humanise(span.get()));
        }
        event
    }
}

fn author(call: &Call, carry: Carry, expires_after: Option<Nanos>) -> Result<Author, Failure> {
    Ok(Author {
        by: call.caller.name.clone(),
        reason: call.reason()?,
        carry,
        at: call.clock.now,
        at_unix_ms: call.clock.wall.as_millis(),
        expires_after,
    })
}

/// Creates the response to an edit rejected by [`RuleRecord::check`].
fn refused(why: NotAllowed) -> Failure {
    match why {
        NotAllowed::Wrong(problems) => Failure::wrong_body("a valid edit", &problems),
        NotAllowed::TooManyOverrides => {
            let detail = format!(
                "a rule may have {MAX_EDITED} edited overrides, and {MAX_OVERRIDES} overrides in all: drop some, \
                 or move them into the configuration"
            );
            Failure::new(409, "Too many overrides", detail)
        }
    }
}

/// Creates a response that explains why there is no edited override to drop.
fn no_edited_override(rule: &RuleRecord, key: &str) -> Failure {
    let key_shown = shown(key);
    if rule.effective().overrides.of_pattern(key).is_none() {
        let detail = format!("`{key_shown}` has no override");
        return Failure::new(404, "Not found", detail);
    }
    let detail = format!(
        "the override of `{key_shown}` is part of the rule, not edited: set another value instead"
    );
    Failure::new(409, "Not edited", detail)
}

fn too_many_trials() -> Failure {
    let detail = format!(
        "{MAX_TRIALS} trials run already, and each costs its requests one more evaluation: end one first"
    );
    Failure::new(409, "Too many trials", detail)
}

fn nothing_to_try() -> Failure {
    let at = Path::root().field("limits");
    let problem = Problem::error(at, &"the limits of the rule".into(), "nothing to try");
    let problem = problem.allowed("limits that differ from those of the rule");
    Failure::wrong_body("limits to try", &[problem])
}
