//! The form that changes a single rate-limit key.

use super::form::{Field, Input, Kind, choose, field_problem};
use super::press::Press;
use super::question::Pending;
use loudou_client::change::form::{Asked, KeyPlace, Typed};
use loudou_client::change::{Change, Start};

/// The form that changes a single rate-limit key.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct KeyForm {
    start: Start,
    pub(crate) place: KeyPlace,
    pub(crate) fields: Vec<Field>,
    pub(crate) focus: usize,
}

impl KeyForm {
    /// Creates a form with a field for each prompt.
    pub(crate) fn new(start: Start, place: KeyPlace, prompts: &[Asked]) -> Self {
        Self {
            start,
            place,
            fields: prompts.iter().map(field).collect(),
            focus: 0,
        }
    }

    /// Returns the title.
    pub(crate) fn title(&self) -> String {
        format!("{} {}", self.start.title(), self.place.key)
    }

    /// Moves the focus by `step` fields, and wraps around.
    pub(crate) fn step(&mut self, step: isize) {
        let last = self.fields.len().saturating_sub(1);
        self.focus = match self.focus.checked_add_signed(step) {
            Some(next) if next <= last => next,
            Some(_) => 0,
            None => last,
        };
    }

    /// Passes a key press to the focused field.
    pub(crate) fn press(&mut self, press: Press) {
        if let Some(field) = self.fields.get_mut(self.focus) {
            match &mut field.input {
                Input::Text(line) => line.press(press),
                Input::Choice(options, at) => choose(options, at, press),
            };
        }
        self.check();
    }

    /// Passes pasted text to the focused field.
    pub(crate) fn paste(&mut self, text: &str) {
        let field = self.fields.get_mut(self.focus);
        if let Some(Input::Text(line)) = field.map(|field| &mut field.input) {
            line.paste(text);
            self.check();
        }
    }

    fn typed(&self) -> Typed {
        let typed = self.fields.iter().filter_map(|field| match field.kind {
            Kind::Asked(prompt) => Some((prompt, field.value())),
            _ => None,
        });
        Typed(typed.collect())
    }

    /// Validates all fields and shows problems under them. Returns true if there are no problems.
    pub(crate) fn check(&mut self) -> bool {
        let wrong = self.start.wrong(&self.place, &self.typed());
        for field in &mut self.fields {
            field.problem = match &wrong {
                Some(wrong) if field.kind == Kind::Asked(wrong.prompt) => Some(wrong.text.clone()),
                _ => field_problem(field),
            };
        }
        self.fields.iter().all(|field| field.problem.is_none())
    }

    /// Returns the equivalent command line, unless a field has a problem.
    pub(crate) fn command(&self, url: Option<&str>) -> Option<String> {
        let is_right = self.fields.iter().all(|field| field.problem.is_none());
        let change = self.change().filter(|_| is_right)?;
        change.verb().command(url)
    }

    fn change(&self) -> Option<Change> {
        self.start.of_form(&self.place, &self.typed())
    }

    /// Returns the question that the user confirms, or `None` while the rule is unknown.
    pub(crate) fn question(&self) -> Option<Pending> {
        let mut pending = self.change().map(Pending::change)?;
        let end = self.start.other_end(&self.place, &self.typed());
        pending.detail.extend(end);
        Some(pending)
    }
}

fn field(asked: &Asked) -> Field {
    let kind = Kind::Asked(asked.prompt);
    let label = asked.prompt.label().to_owned();
    if !asked.words.is_empty() {
        return Field::choice(kind, label, asked.words, &asked.value);
    }
    let mut field = Field::text(kind, label, &asked.value);
    if let (Input::Text(line), true) = (&mut field.input, asked.selected) {
        line.select_all();
    }
    field
}
