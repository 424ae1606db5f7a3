//! `PUT` and `DELETE` of `/v1/rules/{rule}` and `/v1/overrides/{rule}/{key}`: editing a rule or what one of
//! its keys gets, with an eye on others who do.

use loudou_api::{EditAnswer, EventKind};
use loudou_limiter::Nanos;
use loudou_rules::active_rule::ActiveRule;
use loudou_rules::config::{self, MAX_OVERRIDES};
use loudou_rules::rule::Rule;

use super::call::{json, wrong_body};
use super::change::describe;
use super::rules::find;
use super::{AdminPlane, Call, Failure, Query, ok_at};
use crate::escaped::shown;
use crate::events;
use crate::host::{Host, Reply};
use crate::metrics::StoreMetrics;
use crate::record::{self, Author, MAX_EDITED, Record, RecordError, RuleRecord};
use crate::sweep::{self, PAGES_OF_EDIT};

impl AdminPlane {
    pub(super) fn put_rule(
        &mut self,
        host: &dyn Host,
        call: &Call,
        name: &str,
        body: &[u8],
    ) -> Result<Reply, Failure> {
        let query = call.query(&["carry", "for", "reason", "dry_run"])?;
        let author = author(host, call, &query, query.duration("for")?)?;
        let edit = config::parse_edit(&json(body)?)
            .map_err(|problems| wrong_body("a valid edit", &problems))?;
        let edit_rule = |rule: &mut RuleRecord, version: u32| {
            rule.apply(&edit, &author, version);
            Ok(())
        };
        let edited = Edited {
            name,
            key: None,
            kind: EventKind::Edit,
            author: &author,
            dry_run: query.flag("dry_run")?,
        };
        self.edit(host, call, &edited, &edit_rule)
    }

    pub(super) fn delete_rule(
        &mut self,
        host: &dyn Host,
        call: &Call,
        name: &str,
    ) -> Result<Reply, Failure> {
        let query = call.query(&["carry", "reason", "dry_run"])?;
        let author = author(host, call, &query, None)?;
        let drop = |rule: &mut RuleRecord, version: u32| {
            rule.drop_edit(author.carry, author.at, version);
            Ok(())
        };
        let edited = Edited {
            name,
            key: None,
            kind: EventKind::EditDropped,
            author: &author,
            dry_run: query.flag("dry_run")?,
        };
        self.edit(host, call, &edited, &drop)
    }

    pub(super) fn put_override(
        &mut self,
        host: &dyn Host,
        call: &Call,
        (name, key): (&str, &str),
        body: &[u8],
    ) -> Result<Reply, Failure> {
        let query = call.query(&["for", "reason", "dry_run"])?;
        let author = author(host, call, &query, query.duration("for")?)?;
        let document = json(body)?;
        let set = |rule: &mut RuleRecord, version: u32| {
            // The base's limits are in force again when an edit of them ends.
            let gives = config::parse_override(key, &document, Some(&rule.base.limits))
                .map_err(|problems| wrong_body("a valid edit", &problems))?;
            if let Some(problem) = config::impossible_key(&rule.base, key) {
                return Err(wrong_body("a valid edit", &[problem]));
            }
            rule.set_own(key, gives, &author, version);
            Ok(())
        };
        let edited = Edited {
            name,
            key: Some(key),
            kind: EventKind::Override,
            author: &author,
            dry_run: query.flag("dry_run")?,
        };
        self.edit(host, call, &edited, &set)
    }

    pub(super) fn delete_override(
        &mut self,
        host: &dyn Host,
        call: &Call,
        (name, key): (&str, &str),
    ) -> Result<Reply, Failure> {
        let query = call.query(&["reason", "dry_run"])?;
        let author = author(host, call, &query, None)?;
        let drop = |rule: &mut RuleRecord, version: u32| {
            if rule.drop_own(key, author.at, version) {
                Ok(())
            } else {
                Err(no_edited_override(rule, key))
            }
        };
        let edited = Edited {
            name,
            key: Some(key),
            kind: EventKind::OverrideDropped,
            author: &author,
            dry_run: query.flag("dry_run")?,
        };
        self.edit(host, call, &edited, &drop)
    }

    fn edit(
        &mut self,
        host: &dyn Host,
        call: &Call,
        edited: &Edited<'_>,
        change: &dyn Fn(&mut RuleRecord, u32) -> Result<(), Failure>,
    ) -> Result<Reply, Failure> {
        // An edit that has run out is history by the time this one is made.
        self.record(host)?;
        let share = self.share().to_owned();
        let mut outcome = Err(RecordError::Missing.into());
        let record = record::edit(host, &share, &mut |record| {
            // Looked at anew in every try: another edit may have come in between.
            let seen = self.precondition(host, call, record, edited.name);
            outcome = seen.and_then(|before| {
                let version = record.next_version();
                let rule = record.rule_mut(edited.name).ok_or(RecordError::Missing)?;
                if rule.is_full() {
                    return Err(RecordError::TooOften.into());
                }
                change(rule, version)?;
                check(rule)?;
                Ok(before)
            });
            outcome.is_ok() && !edited.dry_run
        })?;
        // Also where an edit had to wait for it.
        self.sweep(host, &record);
        let before = outcome?;
        if !edited.dry_run {
            StoreMetrics::define(host, &mut self.registry, &share).announce_change(host);
        }
        let rule = find(&record, edited.name)?;
        let change = describe(&before, &rule.effective());
        if !edited.dry_run {
            events::add(host, &share, edited.event(host, record.generation, &change));
        }
        let after = self.view(host, &record, rule);
        let answer = EditAnswer {
            dry_run: edited.dry_run,
            before,
            after,
            change,
        };
        Ok(ok_at(&record, &answer))
    }

    /// Brings some buckets of rules forward that were edited often. What fails is tried with the next edit.
    fn sweep(&mut self, host: &dyn Host, record: &Record) {
        let rules: Vec<ActiveRule> = record.to_sweep().map(RuleRecord::activate).collect();
        let Some(table) = self.table(host).ok().filter(|_| !rules.is_empty()) else {
            return;
        };
        let share = self.share().to_owned();
        let rules: Vec<&ActiveRule> = rules.iter().collect();
        if sweep::step(host, &share, (&table, &rules), PAGES_OF_EDIT, host.clock()) {
            StoreMetrics::define(host, &mut self.registry, &share).announce_change(host);
        }
    }

    /// The rule as it is, if the caller has seen it so.
    fn precondition(
        &mut self,
        host: &dyn Host,
        call: &Call,
        record: &Record,
        name: &str,
    ) -> Result<Rule, Failure> {
        let rule = find(record, name)?;
        let right = record.instance.etag(record.generation);
        let seen = call.if_match.as_deref().map(str::trim);
        let (status, title, detail) = match seen {
            Some("*") => return Ok(rule.effective()),
            Some(seen) if seen == right => return Ok(rule.effective()),
            Some(seen) => {
                let detail = if record.instance.is_other(seen) {
                    let age = record.instance.age(host);
                    format!(
                        "Envoy restarted {age} ago, and edits of the process before are gone; the rules are \
                         at {right} now"
                    )
                } else if !seen.contains('-') {
                    format!(
                        "a generation alone does not say of which process it is; the rules are at {right} now"
                    )
                } else {
                    format!("the rules have changed; they are at {right} now")
                };
                (412, "Precondition failed", detail)
            }
            None => {
                let detail = format!("say which rules you have seen: `If-Match: {right}`");
                (428, "Precondition required", detail)
            }
        };
        let mut failure = Failure::new(status, title, detail);
        failure.problem.current = Some(self.view(host, record, rule));
        Err(failure)
    }
}

/// An edit under way.
struct Edited<'a> {
    name: &'a str,
    /// The key whose override is edited.
    key: Option<&'a str>,
    kind: EventKind,
    author: &'a Author,
    dry_run: bool,
}

impl Edited<'_> {
    fn event(&self, host: &dyn Host, generation: u64, change: &str) -> loudou_api::Event {
        let mut event = events::event(host, self.kind, &self.author.by, generation);
        event.rule = Some(self.name.to_owned());
        event.key = self.key.map(ToOwned::to_owned);
        event.until_ns = self.author.until().map(Nanos::get);
        event.reason.clone_from(&self.author.reason);
        event.detail = if change.is_empty() {
            "nothing changed".to_owned()
        } else {
            change.to_owned()
        };
        if let Some(span) = self.author.expires_after {
            event.detail = format!("{}, for {span}", event.detail);
        }
        event
    }
}

fn author(
    host: &dyn Host,
    call: &Call,
    query: &Query<'_>,
    expires_after: Option<Nanos>,
) -> Result<Author, Failure> {
    Ok(Author {
        by: call.caller.name.clone(),
        reason: query.reason()?,
        carry: query.carry()?,
        at: host.now(),
        at_unix_ms: host.unix_ms(),
        expires_after,
    })
}

/// Whether a rule may be as an edit has made it.
fn check(rule: &RuleRecord) -> Result<(), Failure> {
    let effective = rule.effective();
    let misfits = config::misfits(&effective);
    if !misfits.is_empty() {
        return Err(wrong_body("a valid edit", &misfits));
    }
    let (edited, all) = (rule.own.len(), effective.overrides.len());
    if edited <= MAX_EDITED && all <= MAX_OVERRIDES {
        return Ok(());
    }
    let detail = format!(
        "of overrides, {MAX_EDITED} of a rule may be edited, and there may be {MAX_OVERRIDES} in all: drop \
         some, or put them into the configuration"
    );
    Err(Failure::new(409, "Too many overrides", detail))
}

/// Why there is nothing to drop.
fn no_edited_override(rule: &RuleRecord, key: &str) -> Failure {
    let key_shown = shown(key);
    if rule.effective().overrides.of_pattern(key).is_none() {
        let detail = format!("`{key_shown}` has no override");
        return Failure::new(404, "Not found", detail);
    }
    let detail = format!(
        "the override of `{key_shown}` is the rule's own, not edited: set another value instead"
    );
    Failure::new(409, "Not edited", detail)
}
