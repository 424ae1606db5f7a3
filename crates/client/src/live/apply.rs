//! Applies one Envoy process's live changes to another. The API calls are repeated, with the
//! remaining lifetime of each change.

use std::collections::BTreeMap;

use loudou_api::{BanBy, EditAnswer, EditView, MAX_REASON, RuleView};
use loudou_limiter::{Carry, Nanos};
use loudou_rules::config::nearest;
use loudou_rules::rule::tried;

use super::{Clocks, Item, Kind, TimeLeft, What, same_end};
use crate::change::Change;
use crate::change::ban::{Ban, BanTo};
use crate::change::edit::{Edit, EditTo};
use crate::change::key_override::Override;
use crate::change::verb::Answer;
use crate::clock::Clock;
use crate::{Client, ClientError};
use loudou_words::num::whole_seconds;

/// Maximum number of times to preview a change while other operators keep changing the same rule.
const MAX_TRIES: usize = 5;
/// Suffix appended to the reason of every imported change.
const MARK: &str = "(imported)";

/// The Envoy to which changes are applied.
#[derive(Debug)]
pub struct Target<'a> {
    client: &'a Client,
    clock: Clock,
    /// Readings of the Envoy's clocks at the local time `read_at`.
    clocks: Clocks,
    read_at: Nanos,
    instance: String,
    rules: Vec<RuleView>,
    /// True for a dry run, which changes nothing.
    pub dry_run: bool,
    /// Set if no further calls are to be made, for example because Envoy has restarted. Contains
    /// the reason.
    gone: Option<String>,
}

/// Outcome of applying an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Done {
    /// The change was applied, or would have been applied if this were not a dry run. The string
    /// describes the difference.
    Applied(String),
    /// Skipped, because the change is already in effect.
    SoAlready,
    /// Skipped, because the change has expired.
    Ended,
    /// Failed, because the rule does not exist on this Envoy.
    UnknownRule {
        /// Comma-separated names of this Envoy's rules.
        known: String,
        /// Suggestion: this Envoy's rule with the most similar name.
        meant: Option<String>,
    },
    /// Failed. The string contains the reason.
    Failed(String),
}

impl Done {
    /// Returns true if the change could not be applied.
    pub const fn is_failure(&self) -> bool {
        matches!(self, Self::UnknownRule { .. } | Self::Failed(_))
    }

    /// Describes the outcome, for use in tables and messages.
    pub fn words(&self, dry_run: bool) -> String {
        match self {
            Self::Applied(change) if dry_run => format!("would apply: {change}"),
            Self::Applied(change) => format!("applied: {change}"),
            Self::SoAlready => "skipped: already in effect".to_owned(),
            Self::Ended => "skipped: has ended".to_owned(),
            Self::UnknownRule { .. } => "failed: unknown rule".to_owned(),
            Self::Failed(why) => format!("failed: {why}"),
        }
    }
}

impl<'a> Target<'a> {
    /// Reads an Envoy's rules and clocks.
    pub fn read(client: &'a Client, dry_run: bool) -> Result<Self, ClientError> {
        let clock = Clock::start();
        let status = client.status()?;
        let read_at = clock.now();
        let rules = client.rules()?;
        Ok(Self {
            client,
            clock,
            clocks: Clocks::of(&status),
            read_at,
            instance: rules.instance,
            rules: rules.rules,
            dry_run,
            gone: None,
        })
    }

    /// Returns the current time on the server's wall clock.
    pub fn unix_ms(&self) -> u64 {
        let age = self.clock.now().since(self.read_at);
        self.clocks.unix_ms.saturating_add(age.as_millis())
    }

    /// Applies items and returns the outcome of each.
    ///
    /// The order of items matters only in four cases. An edit is applied before the overrides of
    /// its rule, because the edit may replace them. Bans are applied before edits. An edit may turn
    /// enforcement off, and a rule that is not enforced keeps its bans but does not accept new
    /// ones. Trials are applied last, because a trial starts with its rule's overrides. Conversely,
    /// an edit may turn enforcement on, making a ban possible. Failed items are therefore retried
    /// once at the end.
    pub fn apply_all<'i>(&mut self, items: impl Iterator<Item = &'i Item>) -> Vec<Done> {
        let (bans, rest): (Vec<_>, Vec<_>) = items
            .enumerate()
            .partition(|(_, item)| item.kind() == Kind::Ban);
        let (trials, rest): (Vec<_>, Vec<_>) = rest
            .into_iter()
            .partition(|(_, item)| tried(&item.rule).is_some());
        let ordered = [bans, rest, trials].concat();
        let mut results = BTreeMap::new();
        for (at, item) in &ordered {
            results.insert(*at, self.apply(item));
        }
        let is_applied = |done: &Done| matches!(done, Done::Applied(_));
        let has_changed = !self.dry_run && results.values().any(is_applied);
        for (at, item) in ordered.iter().filter(|_| has_changed) {
            let has_failed = matches!(results.get(at), Some(Done::Failed(_)));
            if has_failed && self.gone.is_none() {
                results.insert(*at, self.apply(item));
            }
        }
        results.into_values().collect()
    }

    /// Applies one item.
    fn apply(&mut self, item: &Item) -> Done {
        let left = item.left(self.unix_ms());
        if left == TimeLeft::Nothing {
            return Done::Ended;
        }
        if let Some(why) = &self.gone {
            return Done::Failed(format!("not tried: {why}"));
        }
        if self.rule(&item.rule).is_none() {
            let names: Vec<&str> = self.rules.iter().map(|rule| rule.name.as_str()).collect();
            return Done::UnknownRule {
                meant: nearest(&item.rule, &names).map(ToOwned::to_owned),
                known: names.join(", "),
            };
        }
        let span = match left {
            TimeLeft::For(span) => Some(whole_seconds(span.get())),
            TimeLeft::Endless | TimeLeft::Nothing => None,
        };
        let done = match &item.what {
            What::Ban { key } => self.ban(item, key, span),
            What::Edit(_) | What::Override { .. } => self.edit(item, span),
        };
        done.unwrap_or_else(|error| {
            let text = error.to_string();
            if error.problem().is_none() {
                self.gone = Some(text.clone());
            }
            Done::Failed(text)
        })
    }

    fn ban(&self, item: &Item, key: &str, span: Option<Nanos>) -> Result<Done, ClientError> {
        let bucket = match self.client.bucket(&item.rule, key) {
            Ok(bucket) => Some(bucket),
            Err(error) if error.status() == Some(404) => None,
            Err(error) => return Err(error),
        };
        let bans = bucket
            .iter()
            .flat_map(|bucket| [bucket.ban, bucket.hidden_ban]);
        let ours = bans.flatten().find(|ban| ban.by == BanBy::Operator);
        // The clocks were read earlier, but the offset between them is constant.
        let end = ours.map(|ban| ban.until_ns.map(|at| self.clocks.unix_ms(at)));
        // Keep a ban that expires later, because an operator must have imposed it more recently.
        let lasts = end.is_some_and(|end| match (end, item.ends_unix_ms) {
            (None, _) => true,
            (Some(end), Some(wanted)) if end > wanted => true,
            (end, wanted) => same_end(end, wanted),
        });
        if lasts {
            return Ok(Done::SoAlready);
        }
        if let (false, Some(mut change)) = (self.dry_run, self.change(item, span)) {
            change.send(self.client, false)?;
        }
        Ok(Done::Applied(match span {
            None => "banned until unbanned".to_owned(),
            Some(span) => format!("banned for {}", loudou_words::text::humanise(span.get())),
        }))
    }

    fn edit(&mut self, item: &Item, span: Option<Nanos>) -> Result<Done, ClientError> {
        for _ in 0..MAX_TRIES {
            let preview = match self.send(item, span, true) {
                Err(error) if self.overtaken(&error) => continue,
                answer => answer?,
            };
            let current = self.current(item);
            let ends = current.map(|edit| edit.expires_at_ns.map(|at| self.clocks.unix_ms(at)));
            // If there is no edit and the preview shows no difference, the configured rule already
            // matches the request.
            let stays = ends.is_none_or(|ends| same_end(ends, item.ends_unix_ms));
            if preview.change.is_empty() && stays {
                return Ok(Done::SoAlready);
            }
            let change = match preview.change.as_str() {
                "" => "a different end".to_owned(),
                change => change.to_owned(),
            };
            let replaced = current.map(|edit| format!("; replaces the edit by {}", edit.by));
            let change = format!("{change}{}", replaced.unwrap_or_default());
            if self.dry_run {
                return Ok(Done::Applied(change));
            }
            match self.send(item, span, false) {
                Err(error) if self.overtaken(&error) => {}
                answer => {
                    self.made(&answer?.after);
                    return Ok(Done::Applied(change));
                }
            }
        }
        Ok(Done::Failed(
            "other operators keep changing the rules; try again".to_owned(),
        ))
    }

    /// Returns the rule with the given name. For a trial that is not running, returns the rule the trial is based on,
    /// because editing the trial starts it.
    fn rule(&self, name: &str) -> Option<&RuleView> {
        let named = |name: &str| self.rules.iter().find(|rule| rule.name == name);
        named(name).or_else(|| named(tried(name)?))
    }

    /// Returns the current edit of the rule or override affected by `item`.
    fn current(&self, item: &Item) -> Option<&EditView> {
        let rule = self.rule(&item.rule);
        let rule = rule.filter(|rule| rule.name == item.rule)?;
        match item.key() {
            None => rule.edit.as_ref(),
            Some(key) => {
                let entry = rule.overrides.iter().find(|entry| entry.key == key);
                entry.map(|entry| &entry.edit)
            }
        }
    }

    fn send(
        &self,
        item: &Item,
        span: Option<Nanos>,
        dry_run: bool,
    ) -> Result<EditAnswer, ClientError> {
        let Some(mut change) = self.change(item, span) else {
            return Ok(EditAnswer::default());
        };
        match change.send(self.client, dry_run)? {
            Answer::Edit(answer) => Ok(*answer),
            Answer::Ban(_) | Answer::BanAll(_) | Answer::Reset(_) => Ok(EditAnswer::default()),
        }
    }

    /// Creates the change for an item, based on the rule's current state.
    fn change(&self, item: &Item, span: Option<Nanos>) -> Option<Change> {
        let (rule, reason) = (item.rule.clone(), imported(&item.reason));
        let seen = self.rule(&item.rule).cloned();
        Some(match &item.what {
            What::Override { key, gives } => Change::Override(Override {
                rule,
                key: key.clone(),
                gives: Some(gives.clone()),
                expires_after: span,
                seen: Box::new(seen?),
                reason,
            }),
            What::Edit(body) => Change::Edit(Edit {
                rule,
                to: EditTo::Put {
                    body: body.clone(),
                    expires_after: span,
                    keeps_end: false,
                },
                seen: Box::new(seen?),
                carry: Carry::default(),
                reason,
            }),
            What::Ban { key } => Change::Ban(Ban {
                rule,
                key: key.clone(),
                to: BanTo::Banned(span),
                replaces: false,
                if_match: None,
                reason,
            }),
        })
    }

    /// Updates the stored rules after an edit made by this program. The edit does not change other
    /// rules, but the new generation applies to all of them.
    fn made(&mut self, after: &RuleView) {
        for rule in &mut self.rules {
            if rule.name == after.name {
                rule.clone_from(after);
            }
            rule.generation = after.generation;
        }
    }

    /// Returns true if the call failed because another operator had changed the rule. If so, stores
    /// the changed rule.
    fn overtaken(&mut self, error: &ClientError) -> bool {
        let Some(current) = error.current().filter(|_| error.status() == Some(412)) else {
            return false;
        };
        if current.instance != self.instance {
            self.gone = Some("Envoy restarted in the meantime".to_owned());
            return false;
        }
        for rule in &mut self.rules {
            if rule.name == current.name {
                rule.clone_from(current);
            }
        }
        true
    }
}

/// Marks a reason as imported, to show that it was not written by the sender of the request.
fn imported(reason: &str) -> String {
    if reason.is_empty() || reason == MARK {
        return MARK.to_owned();
    }
    let reason = reason.strip_suffix(MARK).unwrap_or(reason).trim_end();
    let most = MAX_REASON.saturating_sub(MARK.len()).saturating_sub(1);
    let mut kept = String::new();
    for c in reason.chars().filter(|c| !c.is_control()) {
        if kept.len().saturating_add(c.len_utf8()) > most {
            break;
        }
        kept.push(c);
    }
    format!("{kept} {MARK}")
}
