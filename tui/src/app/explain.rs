//! Explaining a request on the screen: a form for the request, then the decision on it, rule by rule.

use loudou_api::{ExplainAnswer, RuleProblem, RuleView, Says};
use loudou_rules::config::parse_sample;
use loudou_rules::rule::Mode as RuleMode;
use serde_json::Value;

use super::line::Line;
use super::press::Press;
use super::rows::BucketName;
use crate::draw::words::wrap;
use crate::typed_request::{TypedRequest, header, metadata};
use loudou_client::problem_text;
use loudou_words::meaning::explained::{self, Tone};

pub(crate) use field::{Field, Part};

mod field;
mod guess;

/// The cells before the lines of a rule.
const INDENT: u16 = 4;
/// The cells of the level of a limit.
pub(crate) const LEVEL: u16 = 10;
/// The most lines of one part, such as headers.
const MOST_OF_ONE: usize = 20;

/// The overlay.
#[derive(Clone, Debug, Default)]
pub(crate) struct Explain {
    pub(crate) fields: Vec<Field>,
    pub(crate) focus: usize,
    pub(crate) stage: Stage,
    /// The bucket that it is about.
    pub(crate) about: Option<BucketName>,
}

/// How far it is.
#[derive(Clone, Debug, Default)]
pub(crate) enum Stage {
    /// The request is typed.
    #[default]
    Editing,
    /// Envoy has not answered yet.
    Asking,
    /// The answer, and the first line shown.
    Answered(Box<ExplainAnswer>, usize),
}

/// A line of the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ShownLine {
    pub(crate) tone: Tone,
    pub(crate) indent: u16,
    /// The mark of an outcome: its tone without colour.
    pub(crate) mark: Option<char>,
    pub(crate) text: String,
    /// The part of a limit that is used, and the whole: drawn before the text.
    pub(crate) level: Option<(u64, u64)>,
}

impl Explain {
    /// The form with this request.
    pub(super) fn new(
        request: &TypedRequest,
        rules: &[RuleView],
        about: Option<BucketName>,
    ) -> Self {
        let fields = field::fields(request, rules);
        let focus = fields.iter().position(Field::is_open).unwrap_or(0);
        Self {
            fields,
            focus,
            stage: Stage::Editing,
            about,
        }
    }

    /// A request that this rule applies to, with this key; `None` if this version cannot read the rule.
    pub(super) fn guess(rule: &Value, key: Option<&str>) -> Option<TypedRequest> {
        guess::request(rule, key)
    }

    /// The request as typed; an error is in its field.
    pub(crate) fn request(&mut self) -> Option<TypedRequest> {
        let mut request = TypedRequest::default();
        let mut is_right = true;
        for field in &mut self.fields {
            field.problem = field.put_into(&mut request).err();
            is_right &= field.problem.is_none();
        }
        let json = request.json();
        if let (true, Err(problems)) = (is_right, parse_sample(&json)) {
            is_right = false;
            for problem in problems.iter().map(RuleProblem::from) {
                self.place(&problem);
            }
        }
        is_right.then_some(request)
    }

    /// Puts a problem under its field; under the first one if it has none.
    pub(super) fn place(&mut self, problem: &RuleProblem) {
        let at = self
            .fields
            .iter()
            .position(|field| field.is_of(&problem.path));
        if let Some(field) = self.fields.get_mut(at.unwrap_or(0)) {
            field.problem = Some(problem_text(problem));
        }
    }

    /// The command line that does the same.
    pub(crate) fn command(&mut self, url: Option<&str>) -> Option<String> {
        self.request().map(|request| request.command(url))
    }

    pub(super) fn step(&mut self, by: isize) {
        let last = self.fields.len().saturating_sub(1);
        self.focus = match self.focus.checked_add_signed(by) {
            Some(next) if next <= last => next,
            Some(_) => 0,
            None => last,
        };
    }

    pub(super) fn press(&mut self, press: Press) {
        if let Some(field) = self.fields.get_mut(self.focus) {
            field.line.press(press);
            field.problem = None;
        }
        self.grow();
    }

    /// Passes pasted text to the focused field.
    pub(crate) fn paste(&mut self, text: &str) {
        if !matches!(self.stage, Stage::Editing) {
            return;
        }
        if let Some(field) = self.fields.get_mut(self.focus) {
            field.line.paste(text);
        }
        self.grow();
    }

    /// A part that may be there several times always has one empty line more.
    fn grow(&mut self) {
        for part in [Part::Header, Part::Metadata] {
            let of_part = |field: &&Field| field.part == part;
            let count = self.fields.iter().filter(of_part).count();
            let last = self.fields.iter().rposition(|field| field.part == part);
            let Some(last) = last.filter(|_| count < MOST_OF_ONE) else {
                continue;
            };
            let is_full = self.fields.get(last);
            if is_full.is_some_and(|field| !field.line.text().trim().is_empty()) {
                let at = last.saturating_add(1);
                self.fields.insert(at, Field::new(part, ""));
                if self.focus >= at {
                    self.focus = self.focus.saturating_add(1);
                }
            }
        }
    }

    /// The lines of the answer, `wide` cells wide, below what is known of the bucket that it is about.
    pub(crate) fn lines(
        &self,
        answer: &ExplainAnswer,
        about: Option<&str>,
        wide: u16,
    ) -> Vec<ShownLine> {
        let mut lines = Vec::new();
        if let Some(about) = about {
            say(&mut lines, wide, ShownLine::plain(Tone::Dim, 0, about));
        }
        let title = self.clone().request().unwrap_or_default().title();
        let verdict = explained::verdict(answer, &title);
        let verdict = ShownLine::outcome(answer.verdict, false, &verdict);
        say(&mut lines, wide, verdict);
        for rule in &answer.rules {
            lines.push(ShownLine::plain(Tone::Plain, 0, ""));
            let text = format!("{} {}", rule.rule, explained::outcome(rule, answer));
            let is_shadow = rule.mode == RuleMode::Shadow.name();
            say(
                &mut lines,
                wide,
                ShownLine::outcome(rule.says, is_shadow, &text),
            );
            for (name, value) in explained::rows(rule) {
                let text = format!("{name}: {value}");
                say(
                    &mut lines,
                    wide,
                    ShownLine::plain(Tone::Plain, INDENT, &text),
                );
            }
            for limit in &rule.limits {
                let now = &limit.now;
                let mut text = format!("{} {}/{} left", now.name, now.remaining, now.capacity);
                // The limits of a banned key do not decide.
                if rule.ban.is_none() {
                    text.push_str(", ");
                    text.push_str(&explained::limit(limit, rule.cost));
                }
                let line = ShownLine::plain(Tone::Plain, INDENT, &text);
                let level = Some(now.level(0));
                say(&mut lines, wide, ShownLine { level, ..line });
            }
        }
        lines
    }
}

impl ShownLine {
    fn plain(tone: Tone, indent: u16, text: &str) -> Self {
        Self {
            tone,
            indent,
            mark: None,
            text: text.to_owned(),
            level: None,
        }
    }

    fn outcome(says: Says, is_shadow: bool, text: &str) -> Self {
        let mark = Some(explained::mark(says));
        let line = Self::plain(explained::tone(says, is_shadow), 0, text);
        Self { mark, ..line }
    }

    /// The cells before the text.
    const fn before(&self) -> u16 {
        let mark = if self.mark.is_some() { 2 } else { 0 };
        let level = if self.level.is_some() { LEVEL + 1 } else { 0 };
        self.indent.saturating_add(mark).saturating_add(level)
    }
}

/// Adds a line, wrapped; its mark and its level are on the first line.
fn say(lines: &mut Vec<ShownLine>, wide: u16, mut line: ShownLine) {
    let before = line.before();
    let wrapped = wrap(&line.text, wide.saturating_sub(before));
    let mut rest = wrapped.into_iter();
    let tone = line.tone;
    line.text = rest.next().unwrap_or_default();
    lines.push(line);
    lines.extend(rest.map(|text| ShownLine::plain(tone, before, &text)));
}

/// The width of the lines of an answer on a terminal of this size.
pub(crate) fn inside((columns, _): (u16, u16)) -> u16 {
    columns.saturating_sub(6).min(90)
}
