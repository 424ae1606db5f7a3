//! Rule edits and their removal.

use loudou_api::{EditAnswer, EditView, OverrideView, RuleView};
use loudou_limiter::{Carry, Nanos};
use loudou_rules::config::spoken_value;
use loudou_rules::rule::tried;
use serde_json::{Map, Value, json};

use super::verb::{Answer, OutcomeText, Question, Verb, difference, undo_reason};
use crate::command_line::{self, CommandLine};
use crate::{Client, ClientError, DropRequest, EditRequest};
use loudou_words::limit_edit::{self, text};
use loudou_words::num::whole_seconds;
use loudou_words::text::escape;

/// An edit of a rule, or its removal.
#[derive(Clone, Debug, PartialEq)]
pub struct Edit {
    /// The name of the rule.
    pub rule: String,
    /// State of the rule after the change.
    pub to: EditTo,
    /// The rule as the operator saw it when making the decision. If the edit starts a trial, this
    /// is the rule on which the trial is based. The request is conditional on this rule's
    /// generation.
    pub seen: Box<RuleView>,
    /// How to convert the levels of live buckets.
    pub carry: Carry,
    /// Reason for the change, as recorded in its events. May be empty.
    pub reason: String,
}

/// State of the rule after the change.
#[derive(Clone, Debug, PartialEq)]
pub enum EditTo {
    /// Replaces the limits, the mode, or both.
    Put {
        /// The parts of the rule to replace, in rule file syntax.
        body: Value,
        /// Lifetime of the edit. `None` if the edit does not expire.
        expires_after: Option<Nanos>,
        /// True to preserve the expiry of the rule's current edit. When the edit is repeated on
        /// another Envoy, it preserves the expiry of that Envoy's current edit.
        keeps_end: bool,
    },
    /// Restores the configured rule.
    Drop,
}

impl Verb for Edit {
    fn rule(&self) -> &str {
        &self.rule
    }

    fn key(&self) -> Option<&str> {
        None
    }

    fn question(&self) -> Question {
        let rule = tried(&self.rule).unwrap_or(&self.rule);
        let (verb, rest) = match (&self.to, tried(&self.rule)) {
            (EditTo::Put { .. }, None) => ("Change", ""),
            (EditTo::Put { .. }, Some(_)) => ("Try these limits beside", " in shadow mode"),
            (EditTo::Drop, None) => ("Drop the edit of", ""),
            (EditTo::Drop, Some(_)) => ("End the trial of", ""),
        };
        Question {
            line: format!("{verb} {}{rest}?", escape(rule)),
            title: format!("{verb} {rule}{rest}?"),
            detail: Vec::new(),
        }
    }

    fn command(&self, url: Option<&str>) -> Option<String> {
        let EditTo::Put {
            body,
            expires_after,
            ..
        } = &self.to
        else {
            let line = self.line("unset").carrying(self.carry);
            return Some(line.because(&self.reason).at(url).text());
        };
        let mode = body.get("mode").and_then(Value::as_str);
        let mode =
            mode.filter(|mode| self.seen.rule.get("mode").and_then(Value::as_str) != Some(mode));
        let limits = match body.get("limits") {
            Some(_) => command_line::fields(&self.seen.rule, body)?,
            None => Vec::new(),
        };
        let several = self.seen.rule.get("limits").and_then(Value::as_array);
        let several = several.is_some_and(|limits| limits.len() > 1);
        // A single command can change only one limit.
        let first = limits.first().cloned().unwrap_or_default();
        let rest = limits.into_iter().skip(1);
        let calls = std::iter::once((first, mode)).chain(rest.map(|limit| (limit, None)));
        let lines = calls.map(|((limit, fields), mode)| {
            let line = self.line("set");
            let line = line.option("--limit", if several { &limit } else { "" });
            let line = fields.iter().fold(line, |line, field| line.word(field));
            let line = line.option("--mode", mode.unwrap_or_default());
            let line = line.carrying(self.carry).lasting(*expires_after);
            line.because(&self.reason).at(url).text()
        });
        Some(lines.collect::<Vec<_>>().join(" && "))
    }

    fn preview(&self, client: &Client) -> Result<Option<EditAnswer>, ClientError> {
        match &self.to {
            EditTo::Put { .. } => self.answer(client, true).map(Some),
            EditTo::Drop => Ok(Some(EditAnswer {
                dry_run: true,
                before: self.seen.rule.clone(),
                after: RuleView {
                    rule: self.without(),
                    ..(*self.seen).clone()
                },
                change: String::new(),
                changed: true,
                fleet: None,
            })),
        }
    }

    fn send(&self, client: &Client, dry_run: bool) -> Result<Answer, ClientError> {
        let answer = self.answer(client, dry_run)?;
        Ok(Answer::Edit(Box::new(answer)))
    }

    fn outcome(&self, answer: &Answer) -> OutcomeText {
        let Answer::Edit(answer) = answer else {
            return OutcomeText::default();
        };
        let (name, change) = (escape(&answer.after.name), difference(&answer.change));
        if let (EditTo::Drop, Some(rule)) = (&self.to, tried(&self.rule)) {
            let ended = if answer.dry_run {
                "would end"
            } else {
                "has ended"
            };
            return OutcomeText {
                line: format!("{}: the trial {ended}", escape(rule)),
                toast: format!("the trial of {rule} has ended"),
            };
        }
        let toast = match answer.change.as_str() {
            "" => "nothing changed",
            change => change,
        };
        OutcomeText {
            line: format!("{name}: {}", escape(change)),
            toast: format!("{toast} (generation {})", answer.after.generation),
        }
    }
}

impl Edit {
    /// Returns the first part of the command, up to and including the rule name. Includes `--trial`
    /// if the edit affects a trial.
    fn line(&self, verb: &'static str) -> CommandLine {
        match tried(&self.rule) {
            Some(rule) => CommandLine::new(verb).word(rule).flag("--trial"),
            None => CommandLine::new(verb).word(&self.rule),
        }
    }

    fn answer(&self, client: &Client, dry_run: bool) -> Result<EditAnswer, ClientError> {
        let (if_match, carry, reason) = (self.seen.etag(), self.carry, self.reason.clone());
        match &self.to {
            EditTo::Put {
                body,
                expires_after,
                ..
            } => {
                let request = EditRequest {
                    body: body.clone(),
                    if_match,
                    carry,
                    expires_after: *expires_after,
                    reason,
                    dry_run,
                };
                client.put_rule(&self.rule, &request)
            }
            EditTo::Drop => {
                let request = DropRequest {
                    if_match,
                    carry,
                    reason,
                    dry_run,
                };
                client.delete_rule(&self.rule, &request)
            }
        }
    }
}

impl Edit {
    /// Creates a change that removes the edit of a rule.
    pub fn dropping(rule: RuleView) -> Self {
        Self {
            rule: rule.name.clone(),
            to: EditTo::Drop,
            seen: Box::new(rule),
            carry: Carry::default(),
            reason: String::new(),
        }
    }

    /// Returns the rule as it will be without its edit: the configured rule plus any individually
    /// edited overrides.
    pub fn without(&self) -> Value {
        let mut rule = self.seen.base.clone();
        let now = self.seen.rule.get("overrides");
        for OverrideView { key, .. } in &self.seen.overrides {
            let gives = now.and_then(|all| all.get(key));
            if let (Some(gives), Some(fields)) = (gives, rule.as_object_mut()) {
                let all = fields.entry("overrides").or_insert_with(|| json!({}));
                if let Some(all) = all.as_object_mut() {
                    all.insert(key.clone(), gives.clone());
                }
            }
        }
        rule
    }

    /// Adapts this change to the rule on another Envoy. Returns an error if the rule there lacks a
    /// limit modified by the change. Parts of the rule that the change does not modify retain the
    /// other Envoy's values.
    pub fn at_another(&self, rule: RuleView, now_ns: u64) -> Result<Self, String> {
        let mut edit = self.clone();
        edit.keep_end(&rule, now_ns);
        if let EditTo::Put { body, .. } = &mut edit.to {
            let mut parts = Map::new();
            let limits = changed_limits(&self.seen.rule, body, &rule.rule)?;
            parts.extend(limits.map(|limits| ("limits".to_owned(), limits)));
            // If the change modifies only the expiry, the body contains the mode, because an empty
            // body is not allowed.
            let mode = body
                .get("mode")
                .filter(|mode| self.seen.rule.get("mode") != Some(mode));
            let own = rule.rule.get("mode").filter(|_| parts.is_empty());
            parts.extend(mode.or(own).map(|mode| ("mode".to_owned(), mode.clone())));
            *body = Value::Object(parts);
        }
        *edit.seen = rule;
        Ok(edit)
    }

    /// Copies the expiry of the current edit of `rule`, unless the user has entered a different
    /// one. The form's value is not used, because it is rounded.
    pub fn keep_end(&mut self, rule: &RuleView, now_ns: u64) {
        let EditTo::Put {
            expires_after,
            keeps_end: true,
            ..
        } = &mut self.to
        else {
            return;
        };
        let until_ns = rule.edit.as_ref().and_then(|edit| edit.expires_at_ns);
        // An edit that has just expired is given a lifetime of one second.
        let left = |until_ns: u64| until_ns.saturating_sub(now_ns).max(1_000_000_000);
        *expires_after = until_ns.map(|until_ns| whole_seconds(left(until_ns)));
    }
}

/// Returns the limits of `rule`, updated with the fields in which `body` differs from `before`.
/// `None` if `body` does not change any limits.
fn changed_limits(before: &Value, body: &Value, rule: &Value) -> Result<Option<Value>, String> {
    let (before, after) = (limits_of(before), limits_of(body));
    if after.is_empty() || before == after {
        return Ok(None);
    }
    let names = |limits: &[Map<String, Value>]| -> Vec<_> {
        let names = limits
            .iter()
            .map(|limit| ["name", "algorithm"].map(|name| limit.get(name).cloned()));
        names.collect()
    };
    if names(&before) != names(&after) {
        return Ok(Some(json!(after)));
    }
    let mut limits = limits_of(rule);
    for (before, after) in before.iter().zip(&after) {
        if before == after {
            continue;
        }
        let same = |other: &&mut Map<String, Value>| {
            ["name", "algorithm"]
                .iter()
                .all(|name| other.get(*name) == after.get(*name))
        };
        let Some(limit) = limits.iter_mut().find(same) else {
            let [name, algorithm] =
                ["name", "algorithm"].map(|name| after.get(name).map(text).unwrap_or_default());
            return Err(format!(
                "the rule has no limit {name} that is a {algorithm}"
            ));
        };
        let fields = before.keys().chain(after.keys());
        let set: Vec<&str> = fields
            .filter(|name| before.get(*name) != after.get(*name))
            .map(String::as_str)
            .collect();
        for name in &set {
            match after.get(*name) {
                Some(value) => limit.insert((*name).to_owned(), value.clone()),
                None => limit.shift_remove(*name),
            };
        }
        limit_edit::settle(limit, &set);
    }
    Ok(Some(json!(limits)))
}

/// Returns a rule's limits, omitting fields that have their default value.
fn limits_of(rule: &Value) -> Vec<Map<String, Value>> {
    let limits = rule
        .get("limits")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    limits
        .filter_map(Value::as_object)
        .map(spoken_value)
        .collect()
}

/// An undo for an edit sent by this program.
#[derive(Clone, Debug, PartialEq)]
pub struct EditUndo {
    /// The rule after the edit.
    pub(super) after: RuleView,
    /// Limits and mode of the rule before the edit.
    before: Value,
    /// The earlier edit that was replaced, if any.
    earlier: Option<EditView>,
    carry: Carry,
    /// One-line outcome of the edit.
    pub(super) change: String,
}

impl EditUndo {
    /// Returns an undo for `edit`, or `None` if the edit had no effect.
    pub(super) fn new(edit: &Edit, answer: &Answer) -> Option<Self> {
        let Answer::Edit(answer) = answer else {
            return None;
        };
        (!answer.change.is_empty()).then(|| Self {
            after: answer.after.clone(),
            before: body_of(&edit.rule, &answer.before),
            // A new trial has no earlier edit, although the rule it is based on may have one.
            earlier: edit
                .seen
                .edit
                .clone()
                .filter(|_| edit.seen.name == edit.rule),
            // The undo cannot restore levels that the edit has reset, so it avoids resetting them a
            // second time.
            carry: match edit.carry {
                Carry::Reset => Carry::default(),
                carry => carry,
            },
            change: answer.change.clone(),
        })
    }

    /// Returns the edit that performs the undo, and the confirmation question to ask before sending
    /// it. `server_ns` is the server's clock. An earlier edit is restored for its remaining time.
    /// Without an earlier edit, the configured rule is restored.
    pub(super) fn ask(&self, server_ns: u64) -> (Question, Edit) {
        let left = self
            .earlier
            .as_ref()
            .map(|earlier| earlier.expires_at_ns.map(|at| at.saturating_sub(server_ns)));
        let to = match left {
            None | Some(Some(0)) => EditTo::Drop,
            Some(left) => EditTo::Put {
                body: self.before.clone(),
                expires_after: left.map(whole_seconds),
                keeps_end: false,
            },
        };
        let title = match tried(&self.after.name).filter(|_| to == EditTo::Drop) {
            Some(rule) => format!("End the trial of {rule}?"),
            None => format!("Undo the last edit of {}?", self.after.name),
        };
        let question = Question {
            title,
            detail: vec![format!("change: {}", self.change)],
            ..Question::default()
        };
        let edit = Edit {
            rule: self.after.name.clone(),
            to,
            seen: Box::new(self.after.clone()),
            carry: self.carry,
            reason: undo_reason(&self.change),
        };
        (question, edit)
    }
}

/// Returns the parts of a rule that an edit can replace. An edit of a trial has no mode.
fn body_of(name: &str, rule: &Value) -> Value {
    let mut body = Map::new();
    let parts: &[&str] = match tried(name) {
        None => &["limits", "mode"],
        Some(_) => &["limits"],
    };
    for name in parts {
        if let Some(value) = rule.get(*name) {
            body.insert((*name).to_owned(), value.clone());
        }
    }
    Value::Object(body)
}
