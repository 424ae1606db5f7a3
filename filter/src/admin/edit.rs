//! `PUT` and `DELETE /v1/rules/{rule}`: editing a rule, with an eye on others who do.

use loudou_api::{EditAnswer, EventKind, RuleProblem};
use loudou_limiter::config::{self, Problem};
use loudou_limiter::rule::Rule;
use serde_json::Value;

use super::call::bad;
use super::change::describe;
use super::rules::find;
use super::{AdminPlane, Call, Failure, Query, ok_at};
use crate::events;
use crate::host::{Host, Reply};
use crate::metrics::StoreMetrics;
use crate::record::{self, Author, Record, RuleRecord};

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
        let document: Value = serde_json::from_slice(body)
            .map_err(|error| bad(format!("the body is not JSON: {error}")))?;
        let edit = config::parse_edit(&document).map_err(|problems| not_an_edit(&problems))?;
        let edit_rule = |rule: &mut RuleRecord| rule.apply(edit.clone(), &author);
        let edited = Edited {
            name,
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
        let drop = |rule: &mut RuleRecord| rule.drop_edit(author.carry, author.at);
        let edited = Edited {
            name,
            kind: EventKind::EditDropped,
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
        change: &dyn Fn(&mut RuleRecord),
    ) -> Result<Reply, Failure> {
        // An edit that has run out is history by the time this one is made.
        self.record(host)?;
        let share = self.share().to_owned();
        let mut failure = None;
        let mut before = None;
        let (mut record, _) = record::change(host, &share, |record| {
            // Looked at anew in every try: another edit may have come in between.
            let looked_at = self.precondition(host, call, record, edited.name);
            match looked_at {
                Err(refused) => failure = Some(refused),
                Ok(rule) => before = Some(rule),
            }
            if edited.dry_run || failure.is_some() {
                return None;
            }
            record.rule_mut(edited.name).map(change)
        })?;
        if let Some(failure) = failure {
            return Err(failure);
        }
        let before = before.ok_or(record::RecordError::Missing)?;
        if edited.dry_run {
            record.rule_mut(edited.name).map(change);
        } else {
            StoreMetrics::define(host, &mut self.registry, &share).announce_change(host);
        }
        let rule = find(&record, edited.name)?;
        let change = describe(&before, &rule.effective());
        if !edited.dry_run {
            events::add(host, &share, edited.event(host, record.generation, &change));
        }
        let after = self.view(host, record.generation, rule);
        let answer = EditAnswer {
            dry_run: edited.dry_run,
            before,
            after,
            change,
        };
        Ok(ok_at(record.generation, &answer))
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
        let generation = record.generation;
        let seen = call.if_match.as_deref().map(str::trim);
        let (status, title, detail) = match seen {
            Some("*") => return Ok(rule.effective()),
            Some(seen) if seen == format!("\"{generation}\"") => return Ok(rule.effective()),
            Some(_) => {
                let detail =
                    format!("the rules have changed; they are at generation {generation} now");
                (412, "Precondition failed", detail)
            }
            None => {
                let detail =
                    format!("say which generation you have seen: `If-Match: \"{generation}\"`");
                (428, "Precondition required", detail)
            }
        };
        let mut failure = Failure::new(status, title, detail);
        failure.problem.current = Some(self.view(host, generation, rule));
        Err(failure)
    }
}

/// An edit under way.
struct Edited<'a> {
    name: &'a str,
    kind: EventKind,
    author: &'a Author,
    dry_run: bool,
}

impl Edited<'_> {
    fn event(&self, host: &dyn Host, generation: u64, change: &str) -> loudou_api::Event {
        let mut event = events::event(host, self.kind, &self.author.by, generation);
        event.rule = Some(self.name.to_owned());
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
    expires_after: Option<loudou_limiter::Nanos>,
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

fn not_an_edit(problems: &[Problem]) -> Failure {
    let mut failure = bad("the body is not a valid edit; see `problems`");
    failure.problem.problems = problems.iter().map(RuleProblem::from).collect();
    failure
}
