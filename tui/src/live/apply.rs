//! Applying what was live in one process to another: by the calls that made it, for what is left of its
//! time.

use loudou_api::{BanBy, EditAnswer, EditView, MAX_REASON, RuleView};
use loudou_limiter::{Carry, Nanos};
use loudou_rules::config::nearest;

use super::{Clocks, Item, Left, What, same_end};
use crate::client::{Client, ClientError, EditRequest, OverrideRequest};
use crate::clock::Clock;

/// How often a change is tried again when others change rules at the same time.
const MAX_TRIES: usize = 5;
/// What the reason of everything that was applied again ends with.
const MARK: &str = "(imported)";

/// The Envoy that it is applied to.
pub(crate) struct Target<'a> {
    client: &'a Client,
    clock: Clock,
    /// Its clocks when `read_at` was on ours.
    clocks: Clocks,
    read_at: Nanos,
    instance: String,
    rules: Vec<RuleView>,
    /// Whether nothing is to be changed.
    pub(crate) dry_run: bool,
    /// Why no further call makes sense.
    gone: Option<String>,
}

/// What became of one item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Done {
    /// It is in force again, or would be; what that changed.
    Applied(String),
    /// It is in force anyway.
    SoAlready,
    /// Its time is over.
    Ended,
    /// There is no such rule; those there are, and the one that was probably meant.
    UnknownRule {
        known: String,
        meant: Option<String>,
    },
    /// It was not possible.
    Failed(String),
}

impl Done {
    pub(crate) const fn is_failure(&self) -> bool {
        matches!(self, Self::UnknownRule { .. } | Self::Failed(_))
    }

    /// In words, for a table and a message.
    pub(crate) fn words(&self, dry_run: bool) -> String {
        match self {
            Self::Applied(change) if dry_run => format!("would apply: {change}"),
            Self::Applied(change) => format!("applied: {change}"),
            Self::SoAlready => "skipped: it is so already".to_owned(),
            Self::Ended => "skipped: it has ended".to_owned(),
            Self::UnknownRule { .. } => "failed: there is no such rule".to_owned(),
            Self::Failed(why) => format!("failed: {why}"),
        }
    }
}

impl<'a> Target<'a> {
    /// Reads the rules and the clocks.
    pub(crate) fn read(client: &'a Client, dry_run: bool) -> Result<Self, ClientError> {
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

    /// The server's wall clock now.
    pub(crate) fn unix_ms(&self) -> u64 {
        let age = self.clock.now().since(self.read_at);
        self.clocks.unix_ms.saturating_add(age.as_millis())
    }

    /// Applies one.
    pub(crate) fn apply(&mut self, item: &Item) -> Done {
        let left = item.left(self.unix_ms());
        if left == Left::Nothing {
            return Done::Ended;
        }
        if let Some(why) = &self.gone {
            return Done::Failed(format!("not tried: {why}"));
        }
        if self.rules.iter().all(|rule| rule.name != item.rule) {
            let names: Vec<&str> = self.rules.iter().map(|rule| rule.name.as_str()).collect();
            return Done::UnknownRule {
                meant: nearest(&item.rule, &names).map(ToOwned::to_owned),
                known: names.join(", "),
            };
        }
        let span = match left {
            Left::For(span) => Some(span),
            Left::Endless | Left::Nothing => None,
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
        // The clocks are of another instant, but they go alike.
        let end = ours.map(|ban| ban.until_ns.map(|at| self.clocks.unix_ms(at)));
        // A ban that lasts longer is somebody's newer decision.
        let lasts = end.is_some_and(|end| match (end, item.ends_unix_ms) {
            (None, _) => true,
            (Some(end), Some(wanted)) if end > wanted => true,
            (end, wanted) => same_end(end, wanted),
        });
        if lasts {
            return Ok(Done::SoAlready);
        }
        if !self.dry_run {
            let reason = imported(&item.reason);
            self.client.ban(&item.rule, key, span, &reason)?;
        }
        Ok(Done::Applied(match span {
            None => "banned until somebody lifts it".to_owned(),
            Some(span) => format!("banned for {}", crate::text::humanise(span.get())),
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
            // What the configuration says needs no edit.
            let stays = ends.is_none_or(|ends| same_end(ends, item.ends_unix_ms));
            if preview.change.is_empty() && stays {
                return Ok(Done::SoAlready);
            }
            let change = match preview.change.as_str() {
                "" => "another end".to_owned(),
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
            "others change the rules all the time; try again".to_owned(),
        ))
    }

    fn rule(&self, name: &str) -> Option<&RuleView> {
        self.rules.iter().find(|rule| rule.name == name)
    }

    /// The edit in force in the place of an item.
    fn current(&self, item: &Item) -> Option<&EditView> {
        let rule = self.rule(&item.rule)?;
        match item.key() {
            None => rule.edit.as_ref(),
            Some(key) => {
                let own = rule.overrides.iter().find(|own| own.key == key);
                own.map(|own| &own.edit)
            }
        }
    }

    fn send(
        &self,
        item: &Item,
        span: Option<Nanos>,
        dry_run: bool,
    ) -> Result<EditAnswer, ClientError> {
        let if_match = self
            .rule(&item.rule)
            .map(RuleView::etag)
            .unwrap_or_default();
        let reason = imported(&item.reason);
        match &item.what {
            What::Override { key, gives } => {
                let request = OverrideRequest {
                    body: Some(gives.clone()),
                    if_match,
                    expires_after: span,
                    reason,
                    dry_run,
                };
                self.client.set_override(&item.rule, key, &request)
            }
            What::Edit(body) => {
                let request = EditRequest {
                    body: body.clone(),
                    if_match,
                    carry: Carry::default(),
                    expires_after: span,
                    reason,
                    dry_run,
                };
                self.client.put_rule(&item.rule, &request)
            }
            What::Ban { .. } => Ok(EditAnswer::default()),
        }
    }

    /// An edit was made: nobody has changed anything since all rules were as they were read.
    fn made(&mut self, after: &RuleView) {
        for rule in &mut self.rules {
            if rule.name == after.name {
                rule.clone_from(after);
            }
            rule.generation = after.generation;
        }
    }

    /// Whether others were faster, in the same process: the rule is as it is now.
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

/// A reason with a mark that it is not of whoever sends it.
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
