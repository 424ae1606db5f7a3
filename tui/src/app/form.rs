//! The edit form: the fields of a rule's limits, its mode, and the options of the edit.
//!
//! The form validates its values while the user types, with the same parser as the Envoy filter,
//! and always lists the pending changes. Before the form is sent, a question shows the values
//! before and after the change. If another user changed the rule in the meantime, the form shows
//! both users' values side by side.

use loudou_api::RuleView;
use loudou_client::change::edit::{Edit, EditTo};
use loudou_client::change::form::{Prompt, other_end, time_left};
use loudou_client::change::verb::Verb;
use loudou_limiter::{Carry, Nanos};
use loudou_rules::config;
use loudou_rules::config::{MODE_NAMES, Problem, limit_fields, parse_edit, spoken_value};
use loudou_rules::rule::{Mode, TRIAL, tried};
use loudou_words::limit_edit;
use serde_json::{Map, Value, json};

use super::press::{Code, Press};
use super::text_field::TextField;

/// Stage of the form.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Stage {
    Editing,
    /// The user is asked to confirm the edit.
    Confirm,
    Sending,
    /// Another user changed the rule in the meantime. Contains the current rule.
    Conflict(Box<RuleView>),
}

/// The edit form.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Form {
    /// The rule as last read.
    pub(crate) base: RuleView,
    /// If `base` is a trial, the rule that the trial belongs to.
    pub(crate) tried: Option<Box<RuleView>>,
    /// The running trial of `base`, which another trial would replace.
    pub(crate) running: Option<Box<RuleView>>,
    pub(crate) fields: Vec<Field>,
    pub(crate) focus: usize,
    pub(crate) stage: Stage,
    /// Problems that do not belong to any field.
    pub(crate) problems: Vec<String>,
    /// Effect of the edit on the known keys, shown in the question.
    pub(crate) effect: Vec<String>,
    /// Demand of the selected key, if it exceeds the limit.
    pub(crate) demand: Option<String>,
    /// Index of the question's first visible line.
    pub(crate) top: usize,
}

impl Form {
    /// Creates a form with the rule's current values and the remaining time of its edit. `now_ns`
    /// is the server's clock.
    pub(crate) fn new(base: RuleView, now_ns: u64) -> Self {
        let mut fields = rule_fields(&base);
        let carry = "carry".to_owned();
        fields.push(Field::choice(
            Kind::Carry,
            carry,
            &CARRIES,
            Carry::default().name(),
        ));
        fields.push(end_of(&base, now_ns));
        fields.push(Field::text(
            Kind::Asked(Prompt::Reason),
            "reason".to_owned(),
            "",
        ));
        let mut form = Self {
            base,
            tried: None,
            running: None,
            fields,
            focus: 0,
            stage: Stage::Editing,
            problems: Vec::new(),
            effect: Vec::new(),
            demand: None,
            top: 0,
        };
        form.focus_on(0);
        form
    }

    /// Moves to field `index` and selects its text, so that typing replaces it.
    pub(crate) fn focus_on(&mut self, index: usize) {
        self.focus = index.min(self.fields.len().saturating_sub(1));
        if let Some(Field {
            input: Input::Text(line),
            ..
        }) = self.fields.get_mut(self.focus)
        {
            line.select_all();
        }
    }

    /// Moves the focus by `step` fields, and wraps around.
    pub(crate) fn step(&mut self, step: isize) {
        let last = self.fields.len().saturating_sub(1);
        let next = match self.focus.checked_add_signed(step) {
            Some(next) if next <= last => next,
            Some(_) => 0,
            None => last,
        };
        self.focus_on(next);
    }

    /// Passes a key press to the focused field. Returns false if the field does not use it.
    pub(crate) fn press(&mut self, press: Press) -> bool {
        let Some(field) = self.fields.get_mut(self.focus) else {
            return false;
        };
        let taken = match &mut field.input {
            Input::Text(line) => line.press(press),
            Input::Choice(options, at) => choose(options, at, press),
        };
        if taken {
            self.check();
        }
        taken
    }

    /// Passes pasted text to the focused field.
    pub(crate) fn paste(&mut self, text: &str) {
        if let Some(Field {
            input: Input::Text(line),
            ..
        }) = self.fields.get_mut(self.focus)
        {
            line.paste(text);
            self.check();
        }
    }

    /// Chooses the mode `enforce` or, if the rule is already enforced, `shadow`.
    pub(crate) fn turn_mode(&mut self) {
        let modes = self
            .fields
            .iter()
            .position(|field| field.kind == Kind::Mode);
        let Some(index) = modes else { return };
        self.focus_on(index);
        if let Some(field) = self.fields.get_mut(index)
            && let Input::Choice(options, at) = &mut field.input
        {
            let enforce = Mode::Enforce.name();
            let turned = if field.before == enforce {
                Mode::Shadow.name()
            } else {
                enforce
            };
            *at = options
                .iter()
                .position(|option| *option == turned)
                .unwrap_or(*at);
        }
    }

    fn value(&self, kind: Kind) -> String {
        let field = self.fields.iter().find(|field| field.kind == kind);
        field.map(Field::value).unwrap_or_default()
    }

    /// Returns how the levels of existing buckets are converted to the new limits.
    pub(crate) fn carry(&self) -> Carry {
        Carry::parse(&self.value(Kind::Carry)).unwrap_or_default()
    }

    /// Returns the reason for the edit.
    pub(crate) fn reason(&self) -> String {
        self.value(Kind::Asked(Prompt::Reason))
    }

    /// Returns the lifetime of the edit, or `None` if it does not expire.
    pub(crate) fn expires_after(&self) -> Option<Nanos> {
        Nanos::parse(&self.value(Kind::Asked(Prompt::Expires)))
    }

    /// Returns the name and the algorithm of limit number `index`, and true if this program knows
    /// the algorithm.
    pub(crate) fn limit(&self, index: usize) -> Option<(&str, &str, bool)> {
        let limit = limits_of(&self.base.rule).nth(index)?;
        let (name, algorithm) = names_of(limit);
        Some((name, algorithm, !table_of(limit).is_empty()))
    }

    /// Returns the body of the edit: the mode, and the limits in the syntax of rule files, with the
    /// values as typed. If this program does not know one of the algorithms, the body has no
    /// limits.
    pub(crate) fn body(&self) -> Value {
        let mut limits: Vec<Map<String, Value>> =
            limits_of(&self.base.rule).map(spoken_value).collect();
        for field in &self.fields {
            if let Kind::Limit(index, about) = field.kind
                && let Some(limit) = limits.get_mut(index)
            {
                let value = field.value();
                let absent = field.before == value && !limit.contains_key(about.name);
                limit_edit::put(limit, about, if absent { "" } else { &value });
            }
            if let Kind::Sourced(index, about, pointer) = field.kind
                && let Some(limit) = limits.get_mut(index)
                && let Some(number) = limit.get_mut(about.name)
                && let Some(place) = number.pointer_mut(pointer)
            {
                let form = match pointer {
                    "/per" => config::Form::Rate,
                    _ => config::Form::Integer(1, u32::MAX),
                };
                *place = limit_edit::value(form, &field.value());
            }
        }
        let mut body = Map::new();
        if limits.iter().all(|limit| !table_of(limit).is_empty()) {
            body.insert("limits".to_owned(), json!(limits));
        }
        if !self.is_trial() {
            body.insert("mode".to_owned(), Value::from(self.value(Kind::Mode)));
        }
        Value::Object(body)
    }

    /// Returns true if the edit tries the limits in a trial, instead of changing the rule.
    pub(crate) fn is_trial(&self) -> bool {
        self.value(Kind::Mode) == TRY
    }

    /// Returns the name of the rule or the trial that the edit changes.
    pub(crate) fn target(&self) -> String {
        let rule = tried(&self.base.name).unwrap_or(&self.base.name);
        let end = if self.is_trial() { TRIAL } else { "" };
        [rule, end].concat()
    }

    /// Validates all fields and shows the problems under them.
    pub(crate) fn check(&mut self) {
        let problems = parse_edit(&self.body()).err().unwrap_or_default();
        self.problems.clear();
        for field in &mut self.fields {
            field.problem = field_problem(field);
        }
        for problem in problems {
            self.place(&problem.path.to_string(), describe(&problem));
        }
        let is_limit = |field: &Field| matches!(field.kind, Kind::Limit(..) | Kind::Sourced(..));
        let begins = self.is_trial() && tried(&self.base.name).is_none();
        if begins && !self.changes().any(is_limit) {
            self.place("mode", "change a limit to try".to_owned());
        }
    }

    /// Shows a problem under its field, or below all fields if it belongs to none.
    pub(crate) fn place(&mut self, path: &str, text: String) {
        let field = self
            .fields
            .iter_mut()
            .find(|f| f.kind.path().as_deref() == Some(path));
        match field {
            Some(field) if field.problem.is_none() => field.problem = Some(text),
            Some(_) => {}
            None => self.problems.push(format!("{path}: {text}")),
        }
    }

    /// Returns the number of problems.
    pub(crate) fn problem_count(&self) -> usize {
        let in_fields = self
            .fields
            .iter()
            .filter(|field| field.problem.is_some())
            .count();
        in_fields.saturating_add(self.problems.len())
    }

    /// Returns the changed fields.
    pub(crate) fn changes(&self) -> impl Iterator<Item = &Field> {
        self.fields.iter().filter(|field| field.is_changed())
    }

    /// Returns true if the edit would have an effect, because it changes a value or the end of the
    /// current edit.
    pub(crate) fn does_something(&self) -> bool {
        let mut fields = self.fields.iter();
        let ends = fields.find(|field| is_end(field));
        let ends = ends.and_then(|field| other_end(&field.before, &field.value()));
        self.changes().next().is_some() || ends.is_some()
    }

    /// Returns true if the edit keeps the end of the current edit.
    fn keeps_end(&self) -> bool {
        let mut fields = self.fields.iter();
        let end = fields.find(|field| is_end(field));
        end.is_some_and(|field| other_end(&field.before, &field.value()).is_none())
    }

    /// Describes how the edit changes the end of the rule's current edit, if it does.
    pub(crate) fn other_end(&self) -> Option<String> {
        self.base.edit.as_ref()?;
        let field = self.fields.iter().find(|field| is_end(field))?;
        other_end(&field.before, &field.value())
    }

    /// Returns the edit that the form describes.
    pub(crate) fn edit(&self) -> Edit {
        let of_tried = self.tried.as_ref().filter(|_| !self.is_trial());
        let running = self.running.as_ref().filter(|_| self.is_trial());
        Edit {
            rule: self.target(),
            to: EditTo::Put {
                body: self.body(),
                expires_after: self.expires_after(),
                keeps_end: self.keeps_end(),
            },
            seen: of_tried
                .or(running)
                .map_or_else(|| Box::new(self.base.clone()), Clone::clone),
            carry: self.carry(),
            reason: self.reason(),
        }
    }

    /// Returns the equivalent command line.
    pub(crate) fn command(&self, url: Option<&str>) -> Option<String> {
        self.edit().command(url)
    }

    /// Updates the form to the version `now` of the rule. Values that the user has changed are
    /// kept, and all others are replaced. If the form edits a trial and `now` is the rule that the
    /// trial belongs to, all values are kept, because they come from the trial.
    pub(crate) fn rebase(&mut self, now: RuleView, now_ns: u64) {
        if let Some(tried) = self.tried.as_mut().filter(|tried| tried.name == now.name) {
            **tried = now;
            self.check();
            return;
        }
        if tried(&now.name) == Some(&self.base.name) {
            self.running = Some(Box::new(now));
            self.check();
            return;
        }
        let mut fresh = rule_fields(&now);
        for field in &mut fresh {
            let same = |old: &&Field| old.kind == field.kind && old.label == field.label;
            if let Some(old) = self.fields.iter().find(same).filter(|old| old.is_changed()) {
                field.input = old.input.clone();
            } else if let Some(old) = self.fields.iter().find(same) {
                // If the value is still the same, the field keeps its cursor and selection.
                if old.value() == field.value() {
                    field.input = old.input.clone();
                } else if let (Input::Text(line), Input::Text(old)) = (&mut field.input, &old.input)
                    && old.is_selected()
                {
                    // The old value was selected, so the new value is selected too, and typing
                    // still replaces it.
                    line.select_all();
                }
            }
        }
        let ends = |rule: &RuleView| rule.edit.as_ref().map(|edit| edit.expires_at_ns);
        let moved = ends(&self.base) != ends(&now);
        let beside = self
            .fields
            .iter()
            .filter(|field| field.kind.path().is_none());
        fresh.extend(beside.map(|field| match end_of(&now, now_ns) {
            end if moved && is_end(field) && field.value() == field.before => end,
            end if moved && is_end(field) => Field {
                before: end.before,
                ..field.clone()
            },
            _ => field.clone(),
        }));
        self.fields = fresh;
        self.base = now;
        self.focus = self.focus.min(self.fields.len().saturating_sub(1));
        self.check();
    }

    /// Describes each change on one line.
    pub(crate) fn change_lines(&self) -> Vec<String> {
        let tried = self.tried.as_ref().filter(|_| !self.is_trial());
        if let Some(tried) = tried {
            let lines = self.versus(tried).into_iter();
            let lines = lines.filter(|[_, _, now, then]| now != then);
            return lines
                .map(|[label, _, now, then]| format!("{label} {now} → {then}"))
                .collect();
        }
        if let Some(running) = self.running.as_ref().filter(|_| self.is_trial()) {
            let by = running.edit.as_ref().map_or("", |edit| edit.by.as_str());
            let lines = self.versus(running).into_iter();
            let lines = lines.filter(|[_, _, now, then]| now != then);
            let lines = lines.map(|[label, _, now, then]| format!("{label} {now} → {then}"));
            let head = std::iter::once(format!("replaces the running trial by {by}:"));
            return head.chain(lines).collect();
        }
        let is_trial = self.is_trial();
        let lines = self
            .changes()
            .filter(|field| !(is_trial && field.kind == Kind::Mode));
        let lines = lines.map(|field| {
            let [before, after] = [field.before.clone(), field.value()].map(|v| field.shown(v));
            format!("{} {before} → {after}", field.label)
        });
        lines.chain(self.other_end()).collect()
    }

    /// Returns a line for each field that this user or the other user has changed: label, original
    /// value, the other user's value, and this user's value.
    pub(crate) fn versus(&self, theirs: &RuleView) -> Vec<[String; 4]> {
        let other = rule_fields(theirs);
        let mut lines = Vec::new();
        for field in self
            .fields
            .iter()
            .filter(|field| field.kind.path().is_some())
        {
            let same = |o: &&Field| o.kind == field.kind && o.label == field.label;
            let their = other.iter().find(same).map(Field::value);
            if field.is_changed() || their.as_ref() != Some(&field.before) {
                let line = [
                    field.label.clone(),
                    field.shown(field.before.clone()),
                    their.map_or_else(|| "gone".to_owned(), |their| field.shown(their)),
                    field.shown(field.value()),
                ];
                lines.push(line);
            }
        }
        lines
    }
}

/// Creates the field for the time after which the edit expires.
fn end_of(rule: &RuleView, now_ns: u64) -> Field {
    let left = rule.edit.as_ref().map(|edit| time_left(edit, now_ns));
    let label = Prompt::Expires.label().to_owned();
    let kind = Kind::Asked(Prompt::Expires);
    Field::text(kind, label, &left.unwrap_or_default())
}

fn is_end(field: &Field) -> bool {
    field.kind == Kind::Asked(Prompt::Expires)
}

fn describe(problem: &Problem) -> String {
    let mut text = problem.message.clone();
    if let Some(allowed) = &problem.allowed {
        text.push_str("; allowed: ");
        text.push_str(allowed);
    }
    if let Some(suggestion) = &problem.suggestion {
        text.push_str("; did you mean `");
        text.push_str(suggestion);
        text.push_str("`?");
    }
    text
}

// The fields of the edit form, their inputs, and the validation of a single field.

/// The mode option that starts a trial, which runs the new limits in shadow mode next to the rule.
const TRY: &str = "try in shadow";
/// Mode options for a rule.
const MODES: [&str; 4] = {
    let [enforce, shadow, off] = MODE_NAMES;
    [enforce, shadow, off, TRY]
};
/// Mode options for a trial: continue it, or enforce its limits in its rule.
const MODES_OF_TRIAL: [&str; 2] = [TRY, Mode::Enforce.name()];

/// Ways to convert bucket levels to the new limits, default first.
const CARRIES: [&str; 3] = ["keep", "proportional", "reset"];

/// The value that a field edits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A field of the limit with this index.
    Limit(usize, &'static config::Field),
    /// A part of a limit field whose number is taken from each request. The string is a JSON
    /// pointer into the field's object.
    Sourced(usize, &'static config::Field, &'static str),
    Mode,
    Carry,
    /// A prompt for a value outside the body of the edit, or for a change of a single key.
    Asked(Prompt),
}

impl Kind {
    /// Returns the path of the value in the body of the edit, or `None` for values outside the
    /// body.
    fn path(self) -> Option<String> {
        match self {
            Self::Limit(index, field) => Some(format!("limits[{index}].{}", field.name)),
            Self::Sourced(index, field, pointer) => {
                let parts = pointer.replace('/', ".");
                Some(format!("limits[{index}].{}{parts}", field.name))
            }
            Self::Mode => Some("mode".to_owned()),
            Self::Carry | Self::Asked(_) => None,
        }
    }
}

/// Input of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    Text(TextField),
    Choice(&'static [&'static str], usize),
}

/// A field of the form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Field {
    pub(crate) kind: Kind,
    /// Label, including the name of the limit.
    pub(crate) label: String,
    pub(crate) input: Input,
    /// Value before the change. Empty for the default.
    pub(crate) before: String,
    pub(crate) problem: Option<String>,
}

impl Field {
    pub(crate) fn text(kind: Kind, label: String, value: &str) -> Self {
        Self {
            kind,
            label,
            input: Input::Text(TextField::new(value)),
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

    /// Creates the form field for `field` of limit number `index`, which has the name `name` and
    /// the values `limit`.
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
            config::Form::Word(words) => Self::choice(kind, label, words, &or_default(value)),
            config::Form::Boolean => {
                Self::choice(kind, label, &limit_edit::BOOLEANS, &or_default(value))
            }
            _ => Self::text(kind, label, &value.unwrap_or_default()),
        }
    }

    /// Creates the form fields for a limit field whose number is taken from each request: the
    /// default for requests without a number, the maximum, and the period. The source of the number
    /// cannot be edited.
    fn of_source(
        index: usize,
        name: &str,
        field: &'static config::Field,
        source: &Value,
    ) -> Vec<Self> {
        let pointers: &[&str] = match source.get("amount") {
            Some(_) => &["/amount/default", "/amount/max", "/per"],
            None => &["/default", "/max"],
        };
        let part = |pointer: &&'static str| {
            let value = source.pointer(pointer).map(limit_edit::text)?;
            let word = pointer.rsplit('/').next().unwrap_or_default();
            let label = format!("{name} {} {word}", field.name);
            let kind = Kind::Sourced(index, field, pointer);
            Some(Self::text(kind, label, &value))
        };
        pointers.iter().filter_map(part).collect()
    }

    /// Returns the label without the name of the limit.
    pub(crate) fn name(&self) -> &str {
        match self.kind {
            Kind::Limit(_, field) => field.name,
            Kind::Sourced(..) => self
                .label
                .split_once(' ')
                .map_or(&self.label, |(_, name)| name),
            _ => &self.label,
        }
    }

    /// Returns the typed value. Empty for the default.
    pub(crate) fn value(&self) -> String {
        match &self.input {
            Input::Text(line) => line.text().trim().to_owned(),
            Input::Choice(options, at) => (*options.get(*at).unwrap_or(&"")).to_owned(),
        }
    }

    /// Returns the displayed text of a value. An empty value is displayed as the default.
    pub(crate) fn shown(&self, value: String) -> String {
        match self.kind {
            Kind::Limit(_, field) if value.is_empty() => {
                field.default.unwrap_or_default().to_owned()
            }
            _ => value,
        }
    }

    /// Returns true if the field is part of the rule and its value was changed.
    pub(crate) fn is_changed(&self) -> bool {
        match self.kind {
            Kind::Carry | Kind::Asked(_) => false,
            Kind::Limit(_, field) => !limit_edit::same(field, &self.value(), &self.before),
            Kind::Sourced(..) | Kind::Mode => self.value() != self.before,
        }
    }
}

/// Returns the limits of a rule in JSON form.
fn limits_of(rule: &Value) -> impl Iterator<Item = &Map<String, Value>> {
    let limits = rule.get("limits").and_then(Value::as_array);
    limits.into_iter().flatten().filter_map(Value::as_object)
}

fn text<'a>(limit: &'a Map<String, Value>, name: &str) -> &'a str {
    limit.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// Returns the known fields of a limit. Empty if this program does not know the algorithm.
fn table_of(limit: &Map<String, Value>) -> &'static [config::Field] {
    limit_fields(text(limit, "algorithm"))
}

/// Returns the name of a limit, which defaults to its algorithm, and the algorithm.
fn names_of(limit: &Map<String, Value>) -> (&str, &str) {
    let algorithm = text(limit, "algorithm");
    let name = Some(text(limit, "name")).filter(|name| !name.is_empty());
    (name.unwrap_or(algorithm), algorithm)
}

/// Creates the form fields of a rule: the fields of each limit, and the mode.
fn rule_fields(view: &RuleView) -> Vec<Field> {
    let rule = &view.rule;
    let mut fields = Vec::new();
    for (index, limit) in limits_of(rule).enumerate() {
        let (name, _) = names_of(limit);
        let values = spoken_value(limit);
        let table = table_of(limit).iter();
        for field in table {
            match values.get(field.name).filter(|value| value.is_object()) {
                Some(source) => fields.extend(Field::of_source(index, name, field, source)),
                None => fields.push(Field::of_limit(index, name, field, &values)),
            }
        }
    }
    let mode = rule
        .get("mode")
        .and_then(Value::as_str)
        .unwrap_or("enforce");
    let (modes, mode): (&[&str], &str) = match tried(&view.name) {
        Some(_) => (&MODES_OF_TRIAL, TRY),
        None => (&MODES, mode),
    };
    fields.push(Field::choice(Kind::Mode, "mode".to_owned(), modes, mode));
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

/// Returns the problem of a field whose value is outside the body of the edit, if any.
pub(crate) fn field_problem(field: &Field) -> Option<String> {
    match field.kind {
        Kind::Asked(prompt) => prompt.problem(&field.value()),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
