//! Carries out the plan, and records the interval in which each change came into force.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::book::Book;
use super::model::Promise;
use super::plan::{Action, Plan, Way};
use super::rules::{Numbers, Rule, flood};
use super::timeline::{At, MARGIN, OPEN};
use crate::clock::eventually;
use crate::config::Config;
use crate::envoy::{Envoy, Update};
use crate::http::{Request, Response};
use crate::one_rule::user;
use crate::operator::Operator;

mod keys;

/// Time limit for a change. A sandbox is reloaded within a second or two, and a configuration is in
/// force at the next tick of a worker. The rest is a margin for a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);
const MS: u64 = 1_000_000;
/// Header that makes a filter built for tests panic.
const TRAP: &str = "x-loudou-trap";
/// Subject of a violation that concerns no rule under test.
const ALL: &str = "all rules";

/// The operator who carries out the plan, with the state of the actions so far.
#[derive(Debug)]
pub struct Driver<'a> {
    book: &'a Book,
    envoy: &'a Envoy,
    ops: Operator,
    variants: &'a [Vec<Numbers>],
    base: &'a Config,
    /// Last configuration that was pushed.
    current: usize,
    /// True for rules of which it is unknown if the last configuration is in force.
    doubtful: Vec<bool>,
    /// Number of edits so far, including dropped edits.
    edits: u64,
    floods: Sender<u64>,
}

/// Returns the plugin configuration with these numbers.
pub fn configuration(rules: &[Rule], numbers: &[Numbers]) -> Value {
    let documents = rules.iter().zip(numbers);
    let documents = documents.map(|(rule, &numbers)| rule.document(numbers));
    let all: Vec<Value> = documents.chain([flood()]).collect();
    json!({ "version": 1, "store": { "buckets": 65_536, "namespace": "loudou" }, "rules": all })
}

impl<'a> Driver<'a> {
    /// Creates a driver of this Envoy, which runs the first variant on top of `base`. The receiver
    /// of `floods` sends the floods.
    pub fn new(
        book: &'a Book,
        envoy: &'a Envoy,
        variants: &'a [Vec<Numbers>],
        base: &'a Config,
        floods: Sender<u64>,
    ) -> Self {
        Self {
            book,
            envoy,
            ops: Operator::editor(envoy),
            variants,
            base,
            current: 0,
            doubtful: vec![false; book.rules.len()],
            edits: 0,
            floods,
        }
    }

    /// Carries out the plan until `stop` is closed.
    pub fn run(&mut self, plan: Plan, stop: &Receiver<()>) -> Result<()> {
        for (wait, action) in plan {
            let wait = Duration::from_millis(wait);
            if !matches!(stop.recv_timeout(wait), Err(RecvTimeoutError::Timeout)) {
                break;
            }
            self.act(action).with_context(|| format!("{action:?}"))?;
        }
        // If no action is left, wait for the end. No message is ever sent, so this returns when the
        // sender is dropped.
        while stop.recv().is_ok() {}
        Ok(())
    }

    fn act(&mut self, action: Action) -> Result<()> {
        match action {
            Action::Update {
                variant,
                way,
                rollback,
            } => self.update(variant, way, rollback),
            Action::BadUpdate { way } => self.bad_update(way),
            Action::Edit {
                rule,
                numbers,
                reset,
                lasts,
            } => self.edit(rule, numbers, reset, lasts),
            Action::DropEdit { rule } => self.drop_edit(rule),
            Action::Override {
                rule,
                slot,
                special,
                lasts,
            } => keys::set_override(self, rule, slot, special, lasts),
            Action::DropOverride { rule, slot } => keys::drop_override(self, rule, slot),
            Action::Ban { rule, slot, lasts } => keys::ban(self, rule, slot, lasts),
            Action::Unban { rule, slot } => keys::unban(self, rule, slot),
            Action::Reset { rule, slot } => keys::reset(self, rule, slot),
            Action::Crash { requests } => self.crash(requests),
            Action::Flood { keys } => {
                self.book.note_all(self.book.now(), "a flood");
                self.book.count("floods", 1);
                self.floods
                    .send(keys)
                    .context("nothing receives the floods")
            }
        }
    }

    /// Returns the answer of the admin API. Repeats the call while its sandbox is dead.
    fn call(&mut self, request: &Request) -> Result<Response> {
        eventually(PATIENCE, "the admin API to answer", || {
            let answer = self.ops.send(request.clone())?;
            Ok((answer.status != 503).then_some(answer))
        })
    }

    /// Returns true if a change was adopted. The API may decline a change for a valid reason. Any
    /// other failure is an error.
    fn taken(&self, rule: usize, answer: &Response) -> bool {
        match answer.status {
            200 => return true,
            409 => self.book.count("changes declined (409)", 1),
            status => {
                let name = self.book.rules.get(rule).map_or(ALL, |rule| &rule.name);
                let what = format!("a change was answered {status}: {}", answer.text());
                self.book.broke(name, Promise::Change, what);
            }
        }
        false
    }

    fn numbers(&self, variant: usize, rule: usize) -> Option<Numbers> {
        self.variants.get(variant)?.get(rule).copied()
    }

    fn config(&self, plugin: Value, way: Way) -> Config {
        let config = self.base.clone().data_plugin(plugin);
        match way {
            Way::Listener => config,
            Way::Both | Way::Extension => config.extension(),
        }
    }

    fn push(&self, plugin: Value, way: Way) -> Result<Update> {
        let config = self.config(plugin, way);
        match way {
            Way::Listener | Way::Both => self.envoy.push(&config),
            Way::Extension => self.envoy.push_extension(&config),
        }
    }

    fn update(&mut self, variant: usize, way: Way, rollback: bool) -> Result<()> {
        let book = self.book;
        let all = 0..book.rules.len();
        let is_touched = |rule: &usize| {
            self.doubtful.get(*rule) == Some(&true)
                || self.numbers(self.current, *rule) != self.numbers(variant, *rule)
        };
        let touched: Vec<usize> = all.filter(is_touched).collect();
        let sent = book.now();
        let word = if rollback { "rollback" } else { "update" };
        for &rule in &touched {
            let (Some(mut timeline), Some(numbers)) =
                (book.timeline(rule), self.numbers(variant, rule))
            else {
                continue;
            };
            timeline.propose(sent, OPEN, numbers);
            let what = format!("{word} to configuration {variant} by {way:?}: {numbers:?}");
            drop(timeline);
            book.note(rule, sent, &what);
        }
        let numbers = self.variants.get(variant).context("a variant")?;
        let update = self.push(configuration(&book.rules, numbers), way)?;
        ensure!(update == Update::Accepted, "Envoy rejects an update");
        self.current = variant;
        let shown = self.in_force(variant)?;
        let answered = book.now();
        for rule in touched {
            if let Ok(shown) = &shown {
                self.settle(rule, shown, (sent, answered));
            }
            if let Some(doubtful) = self.doubtful.get_mut(rule) {
                *doubtful = shown.is_err();
            }
        }
        if let Err(other) = shown {
            let what = format!("{word} to configuration {variant} by {way:?}: {other}");
            book.broke(ALL, Promise::Change, what);
        }
        let by = match way {
            Way::Listener => "updates by listener",
            Way::Both => "updates by listener and extension",
            Way::Extension => "updates by extension",
        };
        book.count(by, 1);
        if rollback {
            book.count("of these, rollbacks", 1);
        }
        Ok(())
    }

    /// Records that a configuration which changed a rule is in force. A load of the configuration
    /// ends the edits, and a rollback to it keeps them. Envoy decides which of the two it does, so
    /// this function uses the state that the API shows.
    fn settle(&self, rule: usize, shown: &Value, (sent, answered): (At, At)) {
        let (Some(own), Some(mut timeline)) = (self.book.rules.get(rule), self.book.timeline(rule))
        else {
            return;
        };
        let view = view(shown, &own.name);
        let edit = view.and_then(|view| view.get("edit"));
        match edit.map(|edit| edit.get("expires_at_ns")) {
            None => timeline.settle(sent, answered),
            Some(None) => timeline.withdraw(sent, answered),
            // The edit may end at any time. Then this configuration's numbers are in force.
            Some(Some(_)) => {}
        }
        drop(timeline);
        let patterns = view.and_then(|view| view.get("overrides")?.as_array());
        let is_kept = |key: &str| {
            let mut patterns = patterns.into_iter().flatten();
            patterns.any(|own| own.get("key").is_some_and(|pattern| pattern == key))
        };
        let keys = self.book.keys(rule).into_iter();
        for key in keys.filter(|key| !is_kept(&key.name)) {
            keys::end(&key, sent, answered, false);
        }
    }

    /// Waits until the admin API shows a configuration. Returns its answer, or a description of the
    /// configuration that it shows instead.
    fn in_force(&mut self, variant: usize) -> Result<Result<Value, String>> {
        let mut other = String::new();
        let shown = eventually(PATIENCE, "the configuration to be in force", || {
            let Some(shown) = self.ops.rules()? else {
                return Ok(None);
            };
            other = self.other(variant, &shown).unwrap_or_default();
            Ok(other.is_empty().then_some(shown))
        });
        if shown.is_err() {
            // Fail here if Envoy does not answer at all.
            self.call(&Request::get("/v1/status"))?;
        }
        Ok(shown.map_err(|error| format!("{error}: {other}")))
    }

    /// Returns the first rule whose numbers in the answer differ from the configuration.
    fn other(&self, variant: usize, answer: &Value) -> Option<String> {
        let shown = |name: &str| capacity(view(answer, name)?.pointer("/base/limits/0")?);
        let mut rules = self.book.rules.iter().enumerate();
        rules.find_map(|(n, rule)| {
            let wanted = self.numbers(variant, n).map(|numbers| numbers.capacity);
            let shown = shown(&rule.name);
            let text = || format!("{} has {shown:?}, not {wanted:?}", rule.name);
            (shown != wanted).then(text)
        })
    }

    fn bad_update(&self, way: Way) -> Result<()> {
        self.book.count("configurations refused", 1);
        self.book
            .note_all(self.book.now(), "a configuration to be refused");
        // The text differs each time, because Envoy ignores a filter that it has just rejected.
        let wrong = json!({ "version": 1, "rulez": [self.book.now()] });
        let update = self.push(wrong, way)?;
        if update != Update::Rejected {
            let what = "a wrong configuration was accepted".to_owned();
            self.book.broke(ALL, Promise::Change, what);
        }
        Ok(())
    }

    fn edit(
        &mut self,
        rule: usize,
        numbers: Numbers,
        reset: bool,
        lasts: Option<u64>,
    ) -> Result<()> {
        let book = self.book;
        let (Some(own), Some(base)) = (book.rules.get(rule), self.numbers(self.current, rule))
        else {
            return Ok(());
        };
        self.edits += 1;
        let carry = own.family.carry(self.edits);
        let carry = if reset { "carry=reset" } else { carry };
        let ends = lasts.map_or_else(String::new, |ms| format!("&for={ms}ms"));
        let path = format!("/v1/rules/{}?{carry}{ends}", own.name);
        let body = json!({ "limits": own.limits(numbers) });
        let sent = book.now();
        if let Some(mut timeline) = book.timeline(rule) {
            timeline.propose(sent, OPEN, numbers);
            if reset {
                timeline.resets.push((sent, OPEN));
            }
        }
        let what = format!("edit {carry}{ends}: {numbers:?}");
        book.note(rule, sent, &what);
        let request = Request::new("PUT", &path).header("if-match", "*");
        let answer = self.call(&request.json(&body))?;
        let answered = book.now();
        let taken = self.taken(rule, &answer);
        let Some(mut timeline) = book.timeline(rule) else {
            return Ok(());
        };
        if let (true, Some((_, until))) = (reset, timeline.resets.last_mut()) {
            *until = answered;
        }
        if !taken {
            timeline.withdraw(sent, answered);
            return Ok(());
        }
        timeline.settle(sent, answered);
        if let Some(ms) = lasts {
            let (earliest, latest) = ends_between(sent, answered, ms);
            timeline.finish(sent, latest);
            timeline.propose(earliest, OPEN, base);
            if reset {
                timeline.resets.push((earliest, latest));
            }
        }
        drop(timeline);
        book.count(if reset { "edits with reset" } else { "edits" }, 1);
        Ok(())
    }

    fn drop_edit(&mut self, rule: usize) -> Result<()> {
        let book = self.book;
        let (Some(own), Some(base)) = (book.rules.get(rule), self.numbers(self.current, rule))
        else {
            return Ok(());
        };
        self.edits += 1;
        let carry = own.family.carry(self.edits);
        let path = format!("/v1/rules/{}?{carry}", own.name);
        let sent = book.now();
        if let Some(mut timeline) = book.timeline(rule) {
            timeline.propose(sent, OPEN, base);
        }
        book.note(rule, sent, &format!("edit dropped, {carry}: {base:?}"));
        let request = Request::new("DELETE", &path).header("if-match", "*");
        let answer = self.call(&request)?;
        let answered = book.now();
        // 404: there was no edit.
        let taken = answer.status == 404 || self.taken(rule, &answer);
        if let Some(mut timeline) = book.timeline(rule) {
            if taken {
                timeline.settle(sent, answered);
            } else {
                timeline.withdraw(sent, answered);
            }
        }
        book.count("edits dropped", 1);
        Ok(())
    }

    fn crash(&self, requests: u64) -> Result<()> {
        self.book.note_all(self.book.now(), "a crash");
        for _ in 0..requests {
            let answer = self.envoy.data().send(&user("mallory").header(TRAP, "1"));
            let died = answer.is_ok_and(|answer| answer.status == 503);
            self.book.count("sandboxes asked to die", 1);
            ensure!(died, "the filter does not die: is it the one for tests?");
        }
        Ok(())
    }
}

/// Returns the state of a rule in an answer.
fn view<'a>(answer: &'a Value, name: &str) -> Option<&'a Value> {
    let mut views = answer.pointer("/rules")?.as_array()?.iter();
    views.find(|view| view.get("name").is_some_and(|own| own == name))
}

/// Returns the capacity of a limit, or the amount of its rate if it has no capacity.
/// [`Rule::limits`] sets both alike.
fn capacity(limit: &Value) -> Option<u64> {
    let amount = || limit.get("rate")?.as_str()?.split('/').next()?.parse().ok();
    limit.get("capacity").map_or_else(amount, Value::as_u64)
}

/// Returns the earliest and the latest end of a change that lasts `lasts` milliseconds.
const fn ends_between(sent: At, answered: At, lasts: u64) -> (At, At) {
    let lasts = lasts.saturating_mul(MS);
    let latest = answered.saturating_add(lasts).saturating_add(MARGIN);
    (sent.saturating_add(lasts), latest)
}
