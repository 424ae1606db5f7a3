//! Bans and overrides of single keys: the small form that asks for how long and why, and what is sent.

use loudou_api::{BanAnswer, BanBy, BanView, EditAnswer, RuleView};
use loudou_limiter::{Decimal, Limits, Nanos};
use loudou_rules::config::{parse_limits, parse_override, scaled};
use serde_json::{Value, json};

use super::form::{Field, Input, Kind, choose, field_problem};
use super::press::Press;
use super::rows::BucketId;
use super::undo::{Action, Pending};
use crate::meaning::short;

/// What a key can get.
const GIVES: [&str; 4] = ["scale", "unlimited", "banned", "remove"];

/// A change for one key.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct KeyChange {
    pub(crate) id: BucketId,
    pub(crate) what: What,
    pub(crate) reason: String,
    /// Whether this takes an own change back.
    pub(crate) is_undo: bool,
    /// How often it was sent again because only the generation had moved.
    pub(crate) retries: u8,
}

impl KeyChange {
    /// The same, decided on the rule as it is now.
    pub(crate) fn again(mut self, current: RuleView) -> Self {
        if let What::Override { seen, .. } = &mut self.what {
            **seen = current;
        }
        self.retries = self.retries.saturating_add(1);
        self
    }
}

/// What is to change.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum What {
    /// A ban; without a time until somebody lifts it.
    Ban(Option<Nanos>),
    Unban,
    /// What the key gets, or back to what its rule says of it.
    Override {
        body: Option<Value>,
        expires_after: Option<Nanos>,
        /// The rule as it was when the change was decided on.
        seen: Box<RuleView>,
    },
}

/// What was answered.
#[derive(Clone, Debug)]
pub(crate) enum KeyAnswer {
    Ban(Box<BanAnswer>),
    Override(Box<EditAnswer>),
}

/// The form.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct KeyForm {
    pub(crate) id: BucketId,
    /// The rule that the override is in; `None` for a ban.
    rule: Option<Box<RuleView>>,
    pub(crate) fields: Vec<Field>,
    pub(crate) focus: usize,
}

impl KeyForm {
    /// Asks for a ban.
    pub(crate) fn ban(id: BucketId) -> Self {
        let fields = vec![
            Field::text(Kind::Lasts, "for".to_owned(), ""),
            Field::text(Kind::Reason, "reason".to_owned(), ""),
        ];
        let rule = None;
        Self {
            id,
            rule,
            fields,
            focus: 0,
        }
    }

    /// Asks for an override, beginning with the one in force.
    pub(crate) fn own(id: BucketId, rule: RuleView) -> Self {
        let own = rule.rule.get("overrides").and_then(|all| all.get(&id.key));
        let scale = own.and_then(|own| own.get("scale")).map(Value::to_string);
        let gives = own.and_then(Value::as_str).unwrap_or("scale");
        let scale = scale.unwrap_or_else(|| "10".to_owned());
        let fields = vec![
            Field::choice(Kind::Gives, "gives".to_owned(), &GIVES, gives),
            Field::text(Kind::Scale, "scale".to_owned(), &scale),
            Field::text(Kind::Expires, "expires after".to_owned(), ""),
            Field::text(Kind::Reason, "reason".to_owned(), ""),
        ];
        let rule = Some(Box::new(rule));
        let mut form = Self {
            id,
            rule,
            fields,
            focus: 0,
        };
        if let Some(Input::Text(line)) = form.fields.get_mut(1).map(|field| &mut field.input) {
            line.select_all();
        }
        form
    }

    /// Its title.
    pub(crate) fn title(&self) -> String {
        let what = if self.rule.is_some() {
            "override of"
        } else {
            "ban"
        };
        format!("{what} {}", self.id.key)
    }

    /// Moves `step` fields on, round at the ends.
    pub(crate) fn step(&mut self, step: isize) {
        let last = self.fields.len().saturating_sub(1);
        self.focus = match self.focus.checked_add_signed(step) {
            Some(next) if next <= last => next,
            Some(_) => 0,
            None => last,
        };
    }

    /// Gives a key to the focused field.
    pub(crate) fn press(&mut self, press: Press) {
        if let Some(field) = self.fields.get_mut(self.focus) {
            match &mut field.input {
                Input::Text(line) => line.press(press),
                Input::Choice(options, at) => choose(options, at, press),
            };
        }
        self.check();
    }

    /// Gives pasted text to the focused field.
    pub(crate) fn paste(&mut self, text: &str) {
        let field = self.fields.get_mut(self.focus);
        if let Some(Input::Text(line)) = field.map(|field| &mut field.input) {
            line.paste(text);
            self.check();
        }
    }

    fn value(&self, kind: Kind) -> String {
        let field = self.fields.iter().find(|field| field.kind == kind);
        field.map(Field::value).unwrap_or_default()
    }

    /// Checks everything, and puts problems under their fields; whether there are none.
    pub(crate) fn check(&mut self) -> bool {
        let scale = self.scale_problem();
        for field in &mut self.fields {
            field.problem = match field.kind {
                Kind::Scale => scale.clone(),
                _ => field_problem(field),
            };
        }
        self.fields.iter().all(|field| field.problem.is_none())
    }

    fn scale_problem(&self) -> Option<String> {
        self.rule.as_ref()?;
        let body = self.body()?;
        let wrong = parse_override(&self.id.key, &body, self.limits().as_ref()).err()?;
        let problem = wrong.first()?;
        let allowed = problem.allowed.as_ref();
        let allowed = allowed.map(|allowed| format!("; allowed: {allowed}"));
        Some(format!(
            "{}{}",
            problem.message,
            allowed.unwrap_or_default()
        ))
    }

    /// The limits of the rule, if this version of the program can read them.
    fn limits(&self) -> Option<Limits> {
        parse_limits(self.rule.as_ref()?.rule.get("limits")?).ok()
    }

    /// The limits that the scale makes of them.
    fn scaled(&self) -> Option<String> {
        let scale = Decimal::parse(&self.value(Kind::Scale))?;
        Some(short::own(&scaled(&self.limits()?, scale)?))
    }

    /// What the key is to get; `None` to remove that.
    fn body(&self) -> Option<Value> {
        let gives = self.value(Kind::Gives);
        match gives.as_str() {
            "remove" => None,
            "scale" => {
                let text = self.value(Kind::Scale);
                let scale = serde_json::from_str(&text).unwrap_or(Value::String(text));
                Some(json!({ "scale": scale }))
            }
            _ => Some(Value::String(gives)),
        }
    }

    /// The question before it is sent.
    pub(crate) fn question(&self) -> Pending {
        let reason = self.value(Kind::Reason);
        let mut detail = vec![format!("rule {}", self.id.rule)];
        if !reason.is_empty() {
            detail.push(format!("reason: {reason}"));
        }
        let key = &self.id.key;
        let for_ = |span: Option<Nanos>, never: &str| {
            span.map_or_else(|| never.to_owned(), |span| format!(" for {span}"))
        };
        let (question, what) = match &self.rule {
            None => {
                let span = Nanos::parse(&self.value(Kind::Lasts));
                let question = format!("Ban {key}{}?", for_(span, " until somebody lifts it"));
                (question, What::Ban(span))
            }
            Some(seen) => {
                let span = Nanos::parse(&self.value(Kind::Expires));
                let question = match self.value(Kind::Gives).as_str() {
                    "remove" => format!("Remove the edited override of {key}?"),
                    "scale" => {
                        let scale = self.value(Kind::Scale);
                        detail.extend(self.scaled());
                        format!("Give {key} {scale} times as much{}?", for_(span, ""))
                    }
                    word => format!("Make {key} {word}{}?", for_(span, "")),
                };
                let body = self.body();
                let seen = seen.clone();
                let what = What::Override {
                    expires_after: span.filter(|_| body.is_some()),
                    body,
                    seen,
                };
                (question, what)
            }
        };
        let change = KeyChange {
            id: self.id.clone(),
            what,
            reason,
            is_undo: false,
            retries: 0,
        };
        Pending {
            question,
            detail,
            action: Action::OfKey(Box::new(change)),
        }
    }
}

/// The question before a banned key is let free.
pub(crate) fn ask_unban(id: BucketId, ban: &BanView) -> Pending {
    let by = match ban.by {
        BanBy::Penalty => "Its penalties are forgotten.",
        BanBy::Operator | BanBy::Override => "What led to it is forgotten.",
    };
    Pending {
        question: format!("Let {} free?", id.key),
        detail: vec![format!("rule {}", id.rule), by.to_owned()],
        action: Action::OfKey(Box::new(KeyChange {
            id,
            what: What::Unban,
            reason: String::new(),
            is_undo: false,
            retries: 0,
        })),
    }
}
