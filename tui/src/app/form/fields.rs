//! The fields of the edit form: their input, and the problems of a single field.

use loudou_rules::config::{self, Form, MODE_NAMES, limit_fields, spoken_value};
use serde_json::{Map, Value};

use crate::app::line::Line;
use crate::app::press::{Code, Press};
use loudou_client::change::form::Prompt;
use loudou_words::limit_edit;

/// The ways to carry levels over, the default first.
pub(super) const CARRIES: [&str; 3] = ["keep", "proportional", "reset"];

/// The subject of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A field of the limit with this index.
    Limit(usize, &'static config::Field),
    Mode,
    Carry,
    /// A prompt for a value outside the body, or of a change for one key.
    Asked(Prompt),
}

impl Kind {
    /// The path of its value in the body of the edit; `None` for values outside the body.
    pub(super) fn path(self) -> Option<String> {
        match self {
            Self::Limit(index, field) => Some(format!("limits[{index}].{}", field.name)),
            Self::Mode => Some("mode".to_owned()),
            Self::Carry | Self::Asked(_) => None,
        }
    }
}

/// The input of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    Text(Line),
    Choice(&'static [&'static str], usize),
}

/// One field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Field {
    pub(crate) kind: Kind,
    /// Its name, including that of its limit.
    pub(crate) label: String,
    pub(crate) input: Input,
    /// The current value; empty for the default.
    pub(crate) before: String,
    pub(crate) problem: Option<String>,
}

impl Field {
    pub(crate) fn text(kind: Kind, label: String, value: &str) -> Self {
        Self {
            kind,
            label,
            input: Input::Text(Line::new(value)),
            before: value.to_owned(),
            problem: None,
        }
    }

    pub(crate) fn choice(
        kind: Kind,
        label: String,
        options: &'static [&'static str],
        value: &str,
    ) -> Self {
        let at = options.iter().position(|option| *option == value);
        Self {
            kind,
            label,
            input: Input::Choice(options, at.unwrap_or(0)),
            before: value.to_owned(),
            problem: None,
        }
    }

    /// A field of limit number `index` with the name `name` and the values `limit`.
    fn of_limit(
        index: usize,
        name: &str,
        field: &'static config::Field,
        limit: &Map<String, Value>,
    ) -> Self {
        let kind = Kind::Limit(index, field);
        let label = format!("{name} {}", field.name);
        let value = limit.get(field.name).map(limit_edit::text);
        let or_default = |value: Option<String>| {
            let default = || field.default.unwrap_or_default().to_owned();
            value.unwrap_or_else(default)
        };
        match field.form {
            Form::Word(words) => Self::choice(kind, label, words, &or_default(value)),
            Form::Boolean => Self::choice(kind, label, &limit_edit::BOOLEANS, &or_default(value)),
            _ => Self::text(kind, label, &value.unwrap_or_default()),
        }
    }

    /// Its name without that of its limit.
    pub(crate) fn name(&self) -> &str {
        match self.kind {
            Kind::Limit(_, field) => field.name,
            _ => &self.label,
        }
    }

    /// The value in the field; empty for the default.
    pub(crate) fn value(&self) -> String {
        match &self.input {
            Input::Text(line) => line.text().trim().to_owned(),
            Input::Choice(options, at) => (*options.get(*at).unwrap_or(&"")).to_owned(),
        }
    }

    /// A value of it as shown: the default in place of an empty value.
    pub(crate) fn shown(&self, value: String) -> String {
        match self.kind {
            Kind::Limit(_, field) if value.is_empty() => {
                field.default.unwrap_or_default().to_owned()
            }
            _ => value,
        }
    }

    /// Whether it is part of the rule and differs from the current value.
    pub(crate) fn is_changed(&self) -> bool {
        match self.kind {
            Kind::Carry | Kind::Asked(_) => false,
            Kind::Limit(_, field) => !limit_edit::same(field, &self.value(), &self.before),
            Kind::Mode => self.value() != self.before,
        }
    }
}

/// The limits of a rule in its JSON form.
pub(super) fn limits_of(rule: &Value) -> impl Iterator<Item = &Map<String, Value>> {
    let limits = rule.get("limits").and_then(Value::as_array);
    limits.into_iter().flatten().filter_map(Value::as_object)
}

fn text<'a>(limit: &'a Map<String, Value>, name: &str) -> &'a str {
    limit.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// The known fields of a limit; none if the algorithm is newer than this program.
pub(super) fn table_of(limit: &Map<String, Value>) -> &'static [config::Field] {
    limit_fields(text(limit, "algorithm"))
}

/// The name of a limit, and its algorithm.
pub(super) fn names_of(limit: &Map<String, Value>) -> (&str, &str) {
    let algorithm = text(limit, "algorithm");
    let name = Some(text(limit, "name")).filter(|name| !name.is_empty());
    (name.unwrap_or(algorithm), algorithm)
}

/// The fields of a rule: those of each limit, and the mode.
pub(super) fn rule_fields(rule: &Value) -> Vec<Field> {
    let mut fields = Vec::new();
    for (index, limit) in limits_of(rule).enumerate() {
        let (name, _) = names_of(limit);
        let values = spoken_value(limit);
        let table = table_of(limit).iter();
        fields.extend(table.map(|field| Field::of_limit(index, name, field, &values)));
    }
    let mode = rule
        .get("mode")
        .and_then(Value::as_str)
        .unwrap_or("enforce");
    fields.push(Field::choice(
        Kind::Mode,
        "mode".to_owned(),
        &MODE_NAMES,
        mode,
    ));
    fields
}

pub(crate) fn choose(options: &[&str], at: &mut usize, press: Press) -> bool {
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

/// The problem of a field outside the body, if any.
pub(crate) fn field_problem(field: &Field) -> Option<String> {
    match field.kind {
        Kind::Asked(prompt) => prompt.problem(&field.value()),
        _ => None,
    }
}
