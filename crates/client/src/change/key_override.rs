//! Setting and removing overrides, which replace a rule's limits for a single key.

use loudou_api::{EditAnswer, RuleView};
use loudou_limiter::{Decimal, Limits, Nanos};
use loudou_rules::config::{parse_limits, parse_override, scaled};
use loudou_words::num::whole_seconds;
use loudou_words::text::escape;
use serde_json::{Value, json};

use super::form;
use super::form::{Asked, KeyPlace, Prompt, Typed, Wrong, time_left};
use super::verb::{Answer, OutcomeText, Question, Verb, details, difference, undo_reason};
use crate::command_line::CommandLine;
use crate::{Client, ClientError, OverrideRequest};

/// Kinds of override offered by the form.
const GIVES: [&str; 4] = ["scale", "unlimited", "banned", REMOVE];
/// Form option that removes the edited override.
const REMOVE: &str = "remove";

/// A new override for a key, or the removal of its edited override.
#[derive(Clone, Debug, PartialEq)]
pub struct Override {
    /// The name of the rule.
    pub rule: String,
    /// The key, formatted as in the bucket list.
    pub key: String,
    /// The override. `None` removes the edited override and restores the configured override, if
    /// any.
    pub gives: Option<Value>,
    /// Lifetime of the override. `None` if the override does not expire.
    pub expires_after: Option<Nanos>,
    /// The rule as the operator saw it when making the decision.
    pub seen: Box<RuleView>,
    /// Reason for the change, as recorded in its events. May be empty.
    pub reason: String,
}

impl Verb for Override {
    fn rule(&self) -> &str {
        &self.rule
    }

    fn key(&self) -> Option<&str> {
        Some(&self.key)
    }

    fn question(&self) -> Question {
        let key = &self.key;
        let span = self.expires_after.map(|span| format!(" for {span}"));
        let span = span.unwrap_or_default();
        let scale = self.gives.as_ref().and_then(|gives| gives.get("scale"));
        let mut detail = details(&self.rule, &self.reason);
        let title = match (&self.gives, scale.map(scale_text)) {
            (None, _) => format!("Remove the edited override of {key}?"),
            (_, Some(scale)) => {
                detail.extend(self.scaled(&scale));
                format!("Give {key} {scale} times the limits{span}?")
            }
            (Some(Value::String(word)), None) => {
                if word == "unlimited" {
                    detail
                        .push("a ban in force stays, also by a penalty; unban lifts it".to_owned());
                }
                format!("Make {key} {word}{span}?")
            }
            (Some(_), None) => format!("Give {key} other limits{span}?"),
        };
        let (rule, key) = (escape(&self.rule), escape(&self.key));
        Question {
            line: format!("Change the override of {key} in {rule}?"),
            title,
            detail,
        }
    }

    fn command(&self, url: Option<&str>) -> Option<String> {
        let line = CommandLine::new("override")
            .word(&self.rule)
            .word(&self.key);
        let line = match &self.gives {
            None => line.flag("--remove"),
            Some(Value::String(word)) => line.word(word),
            Some(gives) => line.word(&format!("scale={}", scale_text(gives.get("scale")?))),
        };
        Some(
            line.lasting(self.expires_after)
                .because(&self.reason)
                .at(url)
                .text(),
        )
    }

    fn preview(&self, client: &Client) -> Result<Option<EditAnswer>, ClientError> {
        self.answer(client, true).map(Some)
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
        let is_unlimited = self
            .gives
            .as_ref()
            .is_some_and(|gives| gives == "unlimited");
        let stays = if is_unlimited {
            "; a ban in force stays"
        } else {
            ""
        };
        OutcomeText {
            line: format!("{name}: {}{stays}", escape(change)),
            toast: match answer.change.as_str() {
                "" => format!("{}: nothing changed", self.key),
                change => change.to_owned(),
            },
        }
    }
}

impl Override {
    fn answer(&self, client: &Client, dry_run: bool) -> Result<EditAnswer, ClientError> {
        let request = OverrideRequest {
            body: self.gives.clone(),
            if_match: self.seen.etag(),
            expires_after: self.expires_after,
            reason: self.reason.clone(),
            dry_run,
        };
        client.set_override(&self.rule, &self.key, &request)
    }

    /// Describes the key's limits before and after scaling.
    fn scaled(&self, scale: &str) -> Vec<String> {
        let numbers = || {
            let limits = limits(&self.seen)?;
            let after = scaled(&limits, Decimal::parse(scale)?)?;
            Some(compared(&self.limits_now(limits), &after))
        };
        numbers().unwrap_or_default()
    }

    /// Returns the key's current limits: those set by the override that applies to it, or else the
    /// rule's limits.
    fn limits_now(&self, limits: Limits) -> Limits {
        let own = in_force(&self.seen, &self.key);
        let own = own.and_then(|gives| match gives.get("scale") {
            Some(scale) => scaled(&limits, Decimal::parse(&scale_text(scale))?),
            None => parse_limits(gives.get("limits")?).ok(),
        });
        own.unwrap_or(limits)
    }
}

fn scale_text(scale: &Value) -> String {
    let text = scale.as_str().map(ToOwned::to_owned);
    text.unwrap_or_else(|| scale.to_string())
}

/// Returns the rule's limits, if this version can parse them.
fn limits(rule: &RuleView) -> Option<Limits> {
    parse_limits(rule.rule.get("limits")?).ok()
}

/// Returns the rule's override for exactly this key.
fn current<'a>(rule: &'a RuleView, key: &str) -> Option<&'a Value> {
    rule.rule.get("overrides")?.get(key)
}

/// Returns the override that applies to a key. An override for exactly this key takes precedence
/// over the override with the longest matching prefix.
fn in_force<'a>(rule: &'a RuleView, key: &str) -> Option<&'a Value> {
    let all = rule.rule.get("overrides")?.as_object()?;
    let prefix = |pattern: &str| {
        pattern
            .strip_suffix('*')
            .is_some_and(|start| key.starts_with(start))
    };
    let longest = || {
        let found = all.iter().filter(|(pattern, _)| prefix(pattern));
        found
            .max_by_key(|(pattern, _)| pattern.len())
            .map(|(_, gives)| gives)
    };
    all.get(key).or_else(longest)
}

/// Returns the fields of the override form, filled in with the current values.
pub(super) fn fields(place: &KeyPlace) -> Vec<Asked> {
    let current = place
        .seen
        .as_ref()
        .and_then(|seen| current(seen, &place.key));
    let scale = current
        .and_then(|current| current.get("scale"))
        .map(Value::to_string);
    let gives = current.and_then(Value::as_str).unwrap_or("scale");
    vec![
        Asked {
            value: gives.to_owned(),
            words: &GIVES,
            ..Asked::text(Prompt::Gives)
        },
        Asked {
            value: scale
                .or_else(|| place.scale.clone())
                .unwrap_or_else(|| "10".to_owned()),
            selected: true,
            ..Asked::text(Prompt::Scale)
        },
        Asked::time(
            Prompt::Expires,
            &left(place).unwrap_or_else(|| "30m".to_owned()),
        ),
        Asked::text(Prompt::Reason),
    ]
}

/// Returns the time until a key's edited override expires.
fn left(place: &KeyPlace) -> Option<String> {
    let mut all = place.seen.as_ref()?.overrides.iter();
    let edited = all.find(|edited| edited.key == place.key)?;
    Some(time_left(&edited.edit, place.now_ns))
}

/// Describes how the expiry in the form differs from the expiry of the override being replaced.
/// `None` if they are equal or there is nothing to replace.
pub(super) fn other_end(place: &KeyPlace, typed: &Typed) -> Option<String> {
    let before = left(place).filter(|_| typed.get(Prompt::Gives) != REMOVE)?;
    form::other_end(&before, typed.get(Prompt::Expires))
}

/// Returns an error if the override in the form is invalid.
pub(super) fn wrong(place: &KeyPlace, typed: &Typed) -> Option<Wrong> {
    let rule = place.seen.as_ref()?;
    if typed.get(Prompt::Gives) == REMOVE {
        return no_edited(rule, &place.key);
    }
    let limits = limits(rule);
    let wrong = parse_override(&place.key, &gives(typed)?, limits.as_ref()).err()?;
    let problem = wrong.first()?;
    let allowed = problem.allowed.as_ref();
    let allowed = allowed.map(|allowed| format!("; allowed: {allowed}"));
    Some(Wrong {
        prompt: Prompt::Scale,
        text: format!("{}{}", problem.message, allowed.unwrap_or_default()),
    })
}

/// Returns an error if the key has no edited override to remove.
fn no_edited(rule: &RuleView, key: &str) -> Option<Wrong> {
    let text = match in_force(rule, key) {
        _ if rule.overrides.iter().any(|edited| edited.key == key) => return None,
        None => format!("{key} has no override"),
        Some(_) if current(rule, key).is_some() => {
            "the override is in the configuration; only an edited one can be removed".to_owned()
        }
        Some(_) => format!("{key} has no override of its own; it has that of a prefix"),
    };
    Some(Wrong {
        prompt: Prompt::Gives,
        text,
    })
}

/// Returns the override entered in the form, or `None` if the edited override is to be removed.
fn gives(typed: &Typed) -> Option<Value> {
    match typed.get(Prompt::Gives) {
        REMOVE => None,
        "scale" => {
            let text = typed.get(Prompt::Scale);
            let scale = serde_json::from_str(text).unwrap_or_else(|_| Value::from(text));
            Some(json!({ "scale": scale }))
        }
        word => Some(Value::from(word)),
    }
}

/// Creates the change from the values in the form. Returns `None` if the rule is not known.
pub(super) fn of_form(place: &KeyPlace, typed: &Typed) -> Option<Override> {
    let gives = gives(typed);
    let span = Nanos::parse(typed.get(Prompt::Expires));
    Some(Override {
        rule: place.rule.clone(),
        key: place.key.clone(),
        expires_after: span.filter(|_| gives.is_some()),
        gives,
        seen: place.seen.clone()?,
        reason: typed.get(Prompt::Reason).to_owned(),
    })
}

/// An undo for an override, or its removal, sent by this program.
#[derive(Clone, Debug, PartialEq)]
pub struct OverrideUndo {
    pub(super) rule: String,
    pub(super) key: String,
    /// The edited override before the change, including its expiry. `None` if there was none.
    earlier: Option<(Value, Option<u64>)>,
    /// The rule after the change.
    after: Box<RuleView>,
    /// One-line outcome of the change.
    pub(super) change: String,
}

impl OverrideUndo {
    /// Returns an undo for `change`, or `None` if the change had no effect.
    pub(super) fn new(change: &Override, answer: &Answer, outcome: &str) -> Option<Self> {
        let Answer::Edit(answer) = answer else {
            return None;
        };
        if answer.change.is_empty() {
            return None;
        }
        let Override { key, seen, .. } = change;
        let edited = seen.overrides.iter().find(|edited| edited.key == *key);
        let earlier = edited.zip(current(seen, key));
        let earlier = earlier.map(|(edited, current)| (current.clone(), edited.edit.expires_at_ns));
        Some(Self {
            rule: change.rule.clone(),
            key: key.clone(),
            earlier,
            after: Box::new(answer.after.clone()),
            change: outcome.to_owned(),
        })
    }

    /// Returns true if `change` was created by this undo.
    pub(super) fn sends(&self, change: &Override) -> bool {
        change.rule == self.rule
            && change.key == self.key
            && change.reason == undo_reason(&self.change)
    }

    /// Returns the change that performs the undo, and the confirmation question to ask before
    /// sending it. `server_ns` is the server's clock. A temporary override is restored for its
    /// remaining time.
    pub(super) fn ask(&self, server_ns: u64) -> (Question, Override) {
        let over = |(_, until): &&(Value, Option<u64>)| until.is_some_and(|at| at <= server_ns);
        let earlier = self.earlier.as_ref().filter(|earlier| !over(earlier));
        let left = |until: u64| {
            let left = whole_seconds(until.saturating_sub(server_ns));
            Some(left).filter(|left| *left > Nanos::ZERO)
        };
        let question = Question {
            title: format!("Undo the last change for {}?", self.key),
            detail: vec![format!("change: {}", self.change)],
            ..Question::default()
        };
        let change = Override {
            rule: self.rule.clone(),
            key: self.key.clone(),
            gives: earlier.map(|(current, _)| current.clone()),
            expires_after: earlier.and_then(|(_, until)| left((*until)?)),
            seen: self.after.clone(),
            reason: undo_reason(&self.change),
        };
        (question, change)
    }
}

// Compares limits before and after a change: `burst: 40 → 400 at once, 10/s → 100/s`.

/// Returns one line for each of the key's limits after the change.
pub(super) fn compared(before: &Limits, after: &Limits) -> Vec<String> {
    let lines = after.iter().map(|after| {
        let new = after.algorithm();
        let mut earlier = before.iter();
        let Some(old) = earlier.find(|before| before.name() == after.name()) else {
            let (name, capacity) = (after.name(), new.capacity());
            return format!("{name}: {capacity} at once, comes into force as well");
        };
        let old = old.algorithm();
        let capacity = format!("{} at once", step(&old.capacity(), &new.capacity()));
        let rate = old.rate().zip(new.rate());
        let rate = rate.map(|(old, new)| format!(", {}", step(&old, &new)));
        format!("{}: {capacity}{}", after.name(), rate.unwrap_or_default())
    });
    lines.collect()
}

fn step<T: PartialEq + ToString>(old: &T, new: &T) -> String {
    if old == new {
        return format!("{} as before", new.to_string());
    }
    format!("{} → {}", old.to_string(), new.to_string())
}
