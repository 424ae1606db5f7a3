//! The Explain overlay: a form in which the user types a request, then the decision on the request,
//! rule by rule.

use loudou_api::{ExplainAnswer, RuleProblem, RuleView, Says};
use loudou_client::problem_text;
use loudou_rules::config::{parse_rule, parse_sample};
use loudou_rules::rule::{KeyPart, Match, Mode as RuleMode, NamedTest, PathMatch, Rule, Test};
use loudou_words::meaning::explained;
use loudou_words::meaning::explained::Tone;
use serde_json::Value;

use super::command::Command;
use super::effects::Effect;
use super::layout::body_height;
use super::motion::moved;
use super::msg::Failure;
use super::press::Press;
use super::rows::BucketName;
use super::screens;
use super::state::{Mode, State};
use super::text_field::TextField;
use crate::draw::words::{ago, wrap};
use crate::typed_request::{TypedRequest, header, metadata};

/// Indentation of the lines below a rule's outcome, in cells.
const INDENT: u16 = 4;
/// Width of the bar that shows a limit's level, in cells.
pub(crate) const LEVEL: u16 = 10;
/// Maximum number of lines for a repeatable part of the request, such as headers.
const MAX_OF_ONE: usize = 20;

/// The Explain overlay.
#[derive(Clone, Debug, Default)]
pub(crate) struct Explain {
    pub(crate) fields: Vec<Field>,
    pub(crate) focus: usize,
    pub(crate) stage: Stage,
    /// The bucket that was selected when the overlay was opened.
    pub(crate) about: Option<BucketName>,
}

/// Stage of the overlay.
#[derive(Clone, Debug, Default)]
pub(crate) enum Stage {
    /// The user types the request.
    #[default]
    Editing,
    /// Envoy has not answered yet.
    Asking,
    /// Envoy's answer, and the index of its first visible line.
    Answered(Box<ExplainAnswer>, usize),
}

/// A line of the displayed answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ShownLine {
    pub(crate) tone: Tone,
    pub(crate) indent: u16,
    /// Character that marks the outcome, so that outcomes can be distinguished without colour.
    pub(crate) mark: Option<char>,
    pub(crate) text: String,
    /// Level of a limit, as numerator and denominator of a fraction. The level is drawn as a bar
    /// before the text.
    pub(crate) level: Option<(u64, u64)>,
}

impl Explain {
    /// Creates the form, filled with `request`.
    pub(super) fn new(
        request: &TypedRequest,
        rules: &[RuleView],
        about: Option<BucketName>,
    ) -> Self {
        let fields = fields(request, rules);
        let focus = fields.iter().position(Field::is_open).unwrap_or(0);
        Self {
            fields,
            focus,
            stage: Stage::Editing,
            about,
        }
    }

    /// Returns a request that matches this rule and has this key, or `None` if this version of the
    /// app cannot read the rule.
    pub(super) fn guess(rule: &Value, key: Option<&str>) -> Option<TypedRequest> {
        request(rule, key)
    }

    /// Returns the typed request, or `None` if a field is invalid. Each invalid field then shows
    /// its error.
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

    /// Shows a problem under the field that it belongs to, or under the first field if it belongs
    /// to none.
    pub(super) fn place(&mut self, problem: &RuleProblem) {
        let at = self
            .fields
            .iter()
            .position(|field| field.is_of(&problem.path));
        if let Some(field) = self.fields.get_mut(at.unwrap_or(0)) {
            field.problem = Some(problem_text(problem));
        }
    }

    /// Returns the equivalent command line.
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

    /// Keeps one empty line after the last header and after the last metadata entry, in which the
    /// user can type another one.
    fn grow(&mut self) {
        for part in [Part::Header, Part::Metadata] {
            let of_part = |field: &&Field| field.part == part;
            let count = self.fields.iter().filter(of_part).count();
            let last = self.fields.iter().rposition(|field| field.part == part);
            let Some(last) = last.filter(|_| count < MAX_OF_ONE) else {
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

    /// Returns the lines of the answer, wrapped to a width of `wide` cells. The description of the
    /// overlay's bucket, `about`, comes first.
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
                // If the key is banned, the outcomes of its limits are omitted, because the ban
                // decides.
                if rule.ban.is_none() {
                    text.push_str(", ");
                    text.push_str(&explained::limit(limit, rule.cost.or(rule.reserved)));
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

    /// Returns the width of the indentation, the mark and the level before the text, in cells.
    const fn before(&self) -> u16 {
        let mark = if self.mark.is_some() { 2 } else { 0 };
        let level = if self.level.is_some() { LEVEL + 1 } else { 0 };
        self.indent.saturating_add(mark).saturating_add(level)
    }
}

/// Wraps a line and appends it. Only the first wrapped line has the mark and the level.
fn say(lines: &mut Vec<ShownLine>, wide: u16, mut line: ShownLine) {
    let before = line.before();
    let wrapped = wrap(&line.text, wide.saturating_sub(before));
    let mut rest = wrapped.into_iter();
    let tone = line.tone;
    line.text = rest.next().unwrap_or_default();
    lines.push(line);
    lines.extend(rest.map(|text| ShownLine::plain(tone, before, &text)));
}

/// Returns the width of the displayed answer on a terminal of this size.
pub(crate) fn inside((columns, _): (u16, u16)) -> u16 {
    columns.saturating_sub(6).min(90)
}

// Constructs the request that the form shows when it is opened for a bucket. The request matches
// the bucket's rule and has the bucket's key. The user fills in the parts that cannot be derived
// from the rule or the key.

/// Returns the request, or `None` if this version of the app cannot read the rule.
fn request(rule: &Value, key: Option<&str>) -> Option<TypedRequest> {
    let rule = parse_rule(rule).ok()?;
    let mut request = TypedRequest::default();
    let (mut query, mut cookies) = of_key(&mut request, &rule, key);
    let matches = &rule.matches;
    if request.method.is_none() {
        request.method = matches.methods.first().cloned();
    }
    if request.path.is_none() {
        request.path = matches.path.as_ref().and_then(path);
    }
    if request.host.is_none() {
        request.host = matches.host.as_ref().and_then(passing);
    }
    if request.route.is_none() {
        request.route = matches.route.as_ref().and_then(passing);
    }
    if request.source.is_none() {
        let first = matches.source.first();
        request.source = first.map(|network| address(&network.to_string()));
    }
    named(&mut request, matches);
    let pairs = |tests: &[NamedTest]| -> Vec<String> {
        let known = tests
            .iter()
            .filter_map(|named| Some((named, passing(&named.test)?)));
        known
            .map(|(named, value)| format!("{}={value}", named.name))
            .collect()
    };
    query.extend(pairs(&matches.query));
    cookies.extend(pairs(&matches.cookies));
    if !query.is_empty() {
        let path = request.path.take().unwrap_or_else(|| "/".to_owned());
        request.path = Some(format!("{path}?{}", query.join("&")));
    }
    if !cookies.is_empty() {
        request
            .headers
            .push(("cookie".to_owned(), cookies.join("; ")));
    }
    Some(request)
}

/// Copies the parts of the key into the request, except query parameters and cookies, which are
/// returned instead.
fn of_key(
    request: &mut TypedRequest,
    rule: &Rule,
    key: Option<&str>,
) -> (Vec<String>, Vec<String>) {
    let (mut query, mut cookies) = (Vec::new(), Vec::new());
    let values = key.and_then(|key| values(rule, key));
    for (number, part) in rule.key.iter().enumerate() {
        let value = values.as_ref().and_then(|values| values.get(number));
        let known = value.filter(|value| !value.is_empty()).cloned();
        let value = value.cloned().unwrap_or_default();
        match part {
            KeyPart::Header(name) => request.headers.push((name.clone(), value)),
            KeyPart::Query(name) => query.push(format!("{name}={value}")),
            KeyPart::Cookie(name) => cookies.push(format!("{name}={value}")),
            KeyPart::Metadata(path) => request.metadata.push((path.join("."), value)),
            // Every address in the network has the same key, so the first address is used.
            KeyPart::Source(_) => request.source = known.as_deref().map(address),
            KeyPart::Path { .. } => request.path = known,
            KeyPart::Route => request.route = known,
            KeyPart::Method => request.method = known,
            KeyPart::Host => request.host = known,
            KeyPart::ClientCert => request.client_cert = known,
            KeyPart::Literal(_) => {}
        }
    }
    (query, cookies)
}

/// Adds the headers and metadata that the rule's match requires, unless the key has already
/// provided them.
fn named(request: &mut TypedRequest, matches: &Match) {
    for named in &matches.headers {
        let is_there = request.headers.iter().any(|(name, _)| *name == named.name);
        if let Some(value) = passing(&named.test).filter(|_| !is_there) {
            request.headers.push((named.name.clone(), value));
        }
    }
    for named in &matches.metadata {
        let path = named.path.join(".");
        let is_there = request.metadata.iter().any(|(name, _)| *name == path);
        if let Some(value) = passing(&named.test).filter(|_| !is_there) {
            request.metadata.push((path, value));
        }
    }
}

/// Returns a value that passes the test, or `None` if the test requires the value to be absent or
/// is a regular expression.
fn passing(test: &Test) -> Option<String> {
    match test {
        Test::Exact(value) | Test::Prefix(value) | Test::Suffix(value) => Some(value.clone()),
        Test::Present(true) => Some("x".to_owned()),
        Test::Present(false) | Test::Regex(_) => None,
    }
}

fn path(path: &PathMatch) -> Option<String> {
    match path {
        PathMatch::Prefix(text) | PathMatch::Exact(text) => Some(text.clone()),
        PathMatch::Suffix(text) if text.starts_with('/') => Some(text.clone()),
        PathMatch::Suffix(text) => Some(format!("/{text}")),
        PathMatch::Template(text) => Some(text.replace(['{', '}'], "")),
        PathMatch::Regex(_) => None,
    }
}

/// Returns the first address of a network.
fn address(network: &str) -> String {
    network.split('/').next().unwrap_or_default().to_owned()
}

/// Returns the values of a key's parts, or `None` if the key was truncated or its number of parts
/// differs from the rule's.
fn values(rule: &Rule, key: &str) -> Option<Vec<String>> {
    if key.contains('~') {
        return None;
    }
    let values: Vec<String> = key.split(':').map(decoded).collect();
    (values.len() == rule.key.len()).then_some(values)
}

/// Decodes a part of a key, in which special characters are encoded as `%XX`.
fn decoded(part: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = part;
    while let Some(c) = rest.chars().next() {
        let hex = rest.strip_prefix('%').and_then(|rest| rest.get(..2));
        let byte = hex.and_then(|hex| u8::from_str_radix(hex, 16).ok());
        let step = if let Some(byte) = byte {
            bytes.push(byte);
            3
        } else {
            bytes.extend(c.to_string().bytes());
            c.len_utf8()
        };
        rest = rest.get(step..).unwrap_or_default();
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

// The fields of the typed request. Each part of the request has one field, or several if the part
// is repeatable.

/// A part of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Method,
    Path,
    Host,
    Header,
    Source,
    Route,
    Cluster,
    Metadata,
    ClientCert,
    Cost,
}

/// All parts in form order. Each part has its name in the admin API and an optional word. A part
/// with a word is only shown if a rule contains the word or the request has the part. A part
/// without a word is always shown.
const PARTS: [(Part, &str, Option<&str>); 10] = [
    (Part::Method, "method", None),
    (Part::Path, "path", None),
    (Part::Host, "host", None),
    (Part::Header, "header", None),
    (Part::Source, "source", None),
    (Part::Route, "route", Some("route")),
    (Part::Cluster, "cluster", Some("when")),
    (Part::Metadata, "metadata", Some("metadata")),
    (Part::ClientCert, "client_cert", Some("client_cert")),
    (Part::Cost, "cost", None),
];

/// A line of the form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Field {
    pub(crate) part: Part,
    pub(crate) line: TextField,
    pub(crate) problem: Option<String>,
}

impl Field {
    fn new(part: Part, text: &str) -> Self {
        Self {
            part,
            line: TextField::new(text),
            problem: None,
        }
    }

    /// Returns the name of the field.
    pub(crate) fn name(&self) -> &'static str {
        let mut parts = PARTS.iter();
        let found = parts.find(|(part, ..)| *part == self.part);
        found.map_or("", |(_, name, _)| name)
    }

    /// Returns a hint for an empty field: its default, its meaning, or an example.
    pub(crate) const fn hint(&self) -> &'static str {
        match self.part {
            Part::Method => "default GET",
            Part::Path => "default /, with any query",
            Part::Host => "such as api.example.com",
            Part::Header => "such as x-user-id: alice",
            Part::Source => "such as 203.0.113.7",
            Part::Route => "the name of Envoy's route",
            Part::Cluster => "the upstream, by its Envoy cluster",
            Part::Metadata => "such as envoy.filters.http.jwt_authn.payload.sub=alice",
            Part::ClientCert => "the name in the client's certificate",
            Part::Cost => "default: the cost in the rules",
        }
    }

    /// Returns true if the field is a header whose value the user must still type.
    fn is_open(&self) -> bool {
        let text = self.line.text();
        self.part == Part::Header && text.ends_with(": ")
    }

    /// Returns true if `path`, the location of a problem in the admin API request, refers to this
    /// field.
    fn is_of(&self, path: &str) -> bool {
        match self.part {
            Part::Header => match (path.strip_prefix("headers."), header(self.line.text())) {
                (Some(rest), Ok((name, _))) => rest.split('[').next() == Some(name.as_str()),
                _ => false,
            },
            Part::Metadata => match (path.strip_prefix("metadata."), metadata(self.line.text())) {
                (Some(rest), Ok((name, _))) => rest == name,
                _ => false,
            },
            _ => self.name() == path,
        }
    }

    /// Adds the field's value to a request.
    fn put_into(&self, request: &mut TypedRequest) -> Result<(), String> {
        let text = self.line.text().trim().to_owned();
        if text.is_empty() {
            return Ok(());
        }
        match self.part {
            Part::Method => request.method = Some(text),
            Part::Path => request.path = Some(text),
            Part::Host => request.host = Some(text),
            Part::Header => request.headers.push(header(&text)?),
            Part::Source => request.source = Some(text),
            Part::Route => request.route = Some(text),
            Part::Cluster => request.cluster = Some(text),
            Part::Metadata => request.metadata.push(metadata(&text)?),
            Part::ClientCert => request.client_cert = Some(text),
            Part::Cost => {
                let cost = text.parse();
                let cost = cost.map_err(|_error| "invalid cost; write a whole number")?;
                request.cost = Some(cost);
            }
        }
        Ok(())
    }
}

/// Returns the form fields for this request: one for each part that a rule may read and each part
/// that the request has.
fn fields(request: &TypedRequest, rules: &[RuleView]) -> Vec<Field> {
    let mut fields = Vec::new();
    for (part, _, word) in PARTS {
        let texts = texts(part, request);
        let is_read = word.is_none_or(|word| rules.iter().any(|rule| says(&rule.rule, word)));
        if !is_read && texts.is_empty() {
            continue;
        }
        fields.extend(texts.iter().map(|text| Field::new(part, text)));
        let repeats = matches!(part, Part::Header | Part::Metadata);
        if repeats || texts.is_empty() {
            fields.push(Field::new(part, ""));
        }
    }
    fields
}

fn texts(part: Part, request: &TypedRequest) -> Vec<String> {
    let one = |text: &Option<String>| text.iter().cloned().collect();
    let pairs = |pairs: &[(String, String)], between: &str| {
        let pairs = pairs.iter();
        pairs
            .map(|(name, value)| format!("{name}{between}{value}"))
            .collect()
    };
    match part {
        Part::Method => one(&request.method),
        Part::Path => one(&request.path),
        Part::Host => one(&request.host),
        Part::Header => pairs(&request.headers, ": "),
        Part::Source => one(&request.source),
        Part::Route => one(&request.route),
        Part::Cluster => one(&request.cluster),
        Part::Metadata => pairs(&request.metadata, "="),
        Part::ClientCert => one(&request.client_cert),
        Part::Cost => one(&request.cost.map(|cost| cost.to_string())),
    }
}

/// Returns true if the rule contains a field named `word` or the string `word`, at any depth.
fn says(rule: &Value, word: &str) -> bool {
    match rule {
        Value::String(text) => text == word,
        Value::Array(items) => items.iter().any(|item| says(item, word)),
        Value::Object(fields) => fields
            .iter()
            .any(|(name, value)| name == word || says(value, word)),
        _ => false,
    }
}

// Behaviour of the overlay: opening the form, handling keys, and handling the answer.

/// Opens the form with a request for the selected bucket or rule or, if there is none, with the
/// last request.
pub(crate) fn open(state: &mut State) {
    let bucket = screens::target(state);
    let rule = screens::target_rule(state);
    let view = rule.and_then(|name| state.rule_named(&name));
    let key = bucket.as_ref().map(|id| id.key.as_str());
    let guessed = view.and_then(|view| Explain::guess(&view.rule, key));
    let request = guessed.unwrap_or_else(|| state.explained.clone().unwrap_or_default());
    let about = screens::target_row(state).map(|row| row.id.clone());
    let rules = state
        .data
        .as_ref()
        .map_or(&[][..], |data| &data.rules.rules);
    let explain = Explain::new(&request, rules, about);
    state.mode = Mode::Explain(Box::new(explain));
}

/// Describes the bucket that was selected when the overlay was opened, and when it last refused a
/// request, if known.
pub(crate) fn about(state: &State, explain: &Explain) -> Option<String> {
    let id = explain.about.as_ref()?;
    let rows = state.data.iter().flat_map(|data| &data.rows);
    let row = rows.into_iter().find(|row| row.id == *id);
    let refused = match row.and_then(|row| row.view.refused_at_ns) {
        Some(at_ns) => {
            let now_ns = state.server_ns().saturating_add(state.age().get());
            format!("last refused {}", ago(now_ns.saturating_sub(at_ns)))
        }
        None => "no refusal known".to_owned(),
    };
    Some(format!("{} of {}: {refused}", id.key, id.rule))
}

/// Handles a key press in the overlay.
pub(crate) fn pressed(
    state: &mut State,
    mut explain: Box<Explain>,
    (press, command): (Press, Option<Command>),
    effects: &mut Vec<Effect>,
) {
    match (&explain.stage, command) {
        (Stage::Editing | Stage::Asking, Some(Command::No)) => return,
        (Stage::Editing, Some(Command::NextField)) => explain.step(1),
        (Stage::Editing, Some(Command::PreviousField)) => explain.step(-1),
        (Stage::Editing, Some(Command::Send)) => ask(state, &mut explain, effects),
        (Stage::Editing, _) => explain.press(press),
        (Stage::Answered(..), Some(Command::No)) => explain.stage = Stage::Editing,
        (Stage::Answered(answer, top), Some(motion)) => {
            let page = usize::from(body_height(state.size)).saturating_sub(2);
            let about = about(state, &explain);
            let lines = explain.lines(answer, about.as_deref(), inside(state.size));
            let lines = lines.len();
            let most = lines.saturating_sub(page).saturating_add(1);
            let top = moved(*top, most, page, motion);
            explain.stage = Stage::Answered(answer.clone(), top);
        }
        _ => {}
    }
    state.mode = Mode::Explain(explain);
}

fn ask(state: &mut State, explain: &mut Explain, effects: &mut Vec<Effect>) {
    if let Some(request) = explain.request() {
        effects.push(Effect::Explain(Box::new(request.json())));
        state.explained = Some(request);
        explain.stage = Stage::Asking;
        return;
    }
    let mut fields = explain.fields.iter();
    let bad = fields.position(|field| field.problem.is_some());
    explain.focus = bad.unwrap_or(explain.focus);
    state.toast(true, "not sent: correct the marked fields");
}

/// Handles Envoy's answer.
pub(crate) fn answered(state: &mut State, result: Result<Box<ExplainAnswer>, Failure>) {
    let Mode::Explain(explain) = &mut state.mode else {
        return;
    };
    if !matches!(explain.stage, Stage::Asking) {
        return;
    }
    match result {
        Ok(answer) => explain.stage = Stage::Answered(answer, 0),
        Err(failure) => {
            explain.stage = Stage::Editing;
            let problems = failure.problem.iter().flat_map(|problem| &problem.problems);
            for problem in problems.cloned().collect::<Vec<_>>() {
                explain.place(&problem);
            }
            state.toast(true, format!("not explained: {}", failure.text));
        }
    }
}
