//! The fields of the edit form: what is typed or chosen, and what is wrong with it by itself.

use loudou_api::MAX_REASON;
use loudou_limiter::{DURATION_FORM, Nanos, Rate};
use serde_json::Value;

use crate::app::line::Line;
use crate::app::press::{Code, Press};

const MODES: [&str; 3] = ["enforce", "shadow", "off"];
/// The carry that edits have when nobody says otherwise comes first.
pub(super) const CARRIES: [&str; 3] = ["proportional", "keep", "reset"];

/// What a field is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The capacity of limit number so.
    Capacity(usize),
    /// The rate of limit number so.
    Rate(usize),
    Mode,
    Carry,
    Expires,
    Reason,
}

impl Kind {
    /// Where its value stands in the body of the edit; `None` for what goes beside the body.
    pub(super) fn path(self) -> Option<String> {
        match self {
            Self::Capacity(index) => Some(format!("limits[{index}].capacity")),
            Self::Rate(index) => Some(format!("limits[{index}].rate")),
            Self::Mode => Some("mode".to_owned()),
            Self::Carry | Self::Expires | Self::Reason => None,
        }
    }
}

/// What is typed or chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    Text(Line),
    Choice(&'static [&'static str], usize),
}

/// One field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Field {
    pub(crate) kind: Kind,
    pub(crate) label: String,
    pub(crate) input: Input,
    /// The value in force.
    pub(crate) before: String,
    pub(crate) problem: Option<String>,
}

impl Field {
    pub(super) fn text(kind: Kind, label: String, value: &str) -> Self {
        Self {
            kind,
            label,
            input: Input::Text(Line::new(value)),
            before: value.to_owned(),
            problem: None,
        }
    }

    pub(super) fn choice(kind: Kind, options: &'static [&'static str], value: &str) -> Self {
        let at = options.iter().position(|option| *option == value);
        Self {
            kind,
            label: if kind == Kind::Mode { "mode" } else { "carry" }.to_owned(),
            input: Input::Choice(options, at.unwrap_or(0)),
            before: value.to_owned(),
            problem: None,
        }
    }

    /// The value as it stands.
    pub(crate) fn value(&self) -> String {
        match &self.input {
            Input::Text(line) => line.text().trim().to_owned(),
            Input::Choice(options, at) => (*options.get(*at).unwrap_or(&"")).to_owned(),
        }
    }

    /// Whether it is part of the rule and differs from what is in force.
    pub(crate) fn is_changed(&self) -> bool {
        let (value, before) = (self.value(), &self.before);
        match self.kind {
            Kind::Carry | Kind::Expires | Kind::Reason => false,
            Kind::Rate(_) => value != *before && Rate::parse(&value) != Rate::parse(before),
            _ => value != *before,
        }
    }
}

/// The fields of a rule: two for each limit, and the mode.
pub(super) fn rule_fields(rule: &Value) -> Vec<Field> {
    let limits = rule.get("limits").and_then(Value::as_array);
    let mut fields = Vec::new();
    for (index, limit) in limits.into_iter().flatten().enumerate() {
        let text = |name: &str| limit.get(name).and_then(Value::as_str).unwrap_or("");
        let name = Some(text("name")).filter(|name| !name.is_empty());
        let name = name.unwrap_or_else(|| text("algorithm"));
        let capacity = limit
            .get("capacity")
            .map(Value::to_string)
            .unwrap_or_default();
        fields.push(Field::text(
            Kind::Capacity(index),
            format!("{name} capacity"),
            &capacity,
        ));
        fields.push(Field::text(
            Kind::Rate(index),
            format!("{name} rate"),
            text("rate"),
        ));
    }
    let mode = rule
        .get("mode")
        .and_then(Value::as_str)
        .unwrap_or("enforce");
    fields.push(Field::choice(Kind::Mode, &MODES, mode));
    fields
}

pub(super) fn choose(options: &[&str], at: &mut usize, press: Press) -> bool {
    let last = options.len().saturating_sub(1);
    *at = match press.code {
        Code::Right | Code::Char(' ' | 'l') if *at < last => at.saturating_add(1),
        Code::Right | Code::Char(' ' | 'l') => 0,
        Code::Left | Code::Char('h') => at.checked_sub(1).unwrap_or(last),
        Code::Char(c) => match options.iter().position(|option| option.starts_with(c)) {
            Some(found) => found,
            None => return false,
        },
        _ => return false,
    };
    true
}

/// What is wrong with a field that does not go into the body.
pub(super) fn field_problem(field: &Field) -> Option<String> {
    let value = field.value();
    match field.kind {
        Kind::Expires if value.is_empty() => None,
        Kind::Expires => match Nanos::parse(&value) {
            Some(span) if span > Nanos::ZERO => None,
            Some(_) => Some("it would run out at once".to_owned()),
            None => Some(format!("not a duration; write {DURATION_FORM}")),
        },
        Kind::Reason if value.len() > MAX_REASON => {
            Some(format!("{} bytes; at most {MAX_REASON}", value.len()))
        }
        _ => None,
    }
}
