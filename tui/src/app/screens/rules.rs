//! The Rules screen: each rule with its limits and totals.

use loudou_api::{RuleTotals, RuleView};
use loudou_rules::rule::Mode;
use loudou_words::meaning;
use loudou_words::meaning::{refusals, short};
use loudou_words::num::{cells, fraction};
use ratatui::style::Style;
use serde_json::Value;

use super::view::{About, View};
use super::{chart, copied};
use crate::app::command::{Binding, Command as C, bind, c, k, tab};
use crate::app::history::{Rates, Track};
use crate::app::ingest;
use crate::app::layout::table_height;
use crate::app::press::Code::Enter;
use crate::app::press::Spot;
use crate::app::screen::{Places, Screen};
use crate::app::state::{Data, State};
use crate::draw::pen::Pen;
use crate::draw::words::{amount, percent, rate};

static ABOUT: About = About {
    screen: Screen::Rules,
    title: "Rules",
    tab: tab(Screen::Rules, &[c('3')], 12, "rules", "show the rules"),
    keys: KEYS,
    takes_turns: true,
    moves: false,
};

#[rustfmt::skip]
const KEYS: &[Binding] = &[
    bind((C::Drill, &[k(Enter)], HERE, 1, "buckets", "show the buckets of the rule")),
];

const HERE: Places = Screen::Rules.place();

/// All rules.
pub(super) struct Rules;

impl View for Rules {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn draw(&self, pen: &mut Pen<'_>, state: &State) {
        draw(pen, state);
    }

    fn lines(&self, state: &State) -> usize {
        state.data.as_ref().map_or(0, |data| data.rules.rules.len())
    }

    fn rule(&self, state: &State) -> Option<String> {
        let rule = state.rule_view(state.selected(Screen::Rules));
        rule.map(|rule| rule.name.clone())
    }

    fn copied(&self, state: &State) -> Option<String> {
        self.rule(state)
    }

    fn copied_row(&self, state: &State) -> Option<String> {
        let rule = state.rule_view(state.selected(Screen::Rules))?;
        let totals = totals_of(state.data.as_ref()?, rule);
        let rates = state.history.rules.get(&rule.name).and_then(Track::rates);
        Some(in_a_line(rule, totals, rates))
    }

    fn obstacle(&self, state: &State, command: C) -> Option<String> {
        let is_none = command == C::Drill && self.rule(state).is_none();
        is_none.then(|| "no rule is selected".to_owned())
    }

    /// The buckets of the selected rule.
    fn run(&self, state: &mut State, command: C) {
        if let (C::Drill, Some(rule)) = (command, self.rule(state)) {
            ingest::buckets_of(state, &rule);
        }
    }
}

/// The most overrides listed.
const OVERRIDES: usize = 6;
/// The most upstreams listed for the selected rule.
const MAX_UPSTREAMS: usize = 3;

/// Draws the rules, and the selected one in words.
fn draw(pen: &mut Pen<'_>, state: &State) {
    let Some(data) = &state.data else { return };
    let theme = pen.theme;
    let wide = pen.width() >= 100;
    let name = data
        .rules
        .rules
        .iter()
        .map(|rule| rule.name.len())
        .max()
        .unwrap_or(0);
    let name = cells(name).clamp(8, if wide { 32 } else { 16 });
    let columns = Columns::new(pen.width(), name);
    pen.style_line(0, theme.head);
    columns.header(pen);
    let now = state.server_ns().saturating_add(state.age().get());
    let selected = state.selected(Screen::Rules);
    let detail = state.rule_view(selected);
    let detail = detail.map(|rule| about(rule, totals_of(data, rule), now));
    let mut detail = detail.unwrap_or_default();
    // The rules come first where there is no room for both.
    let all = table_height(state.size);
    let least = data.rules.rules.len().min(all.div_ceil(2));
    detail.truncate(all.saturating_sub(least));
    let height = all.saturating_sub(detail.len()).max(1);
    let first = selected.saturating_add(1).saturating_sub(height);
    for (index, rule) in data.rules.rules.iter().enumerate().skip(first).take(height) {
        let y = cells(index.saturating_sub(first)).saturating_add(1);
        let totals = totals_of(data, rule);
        let beside = compared(rule, totals, data);
        columns.row(
            pen,
            y,
            rule,
            totals,
            state.history.rules.get(&rule.name),
            &beside,
        );
        pen.spot(0, y, pen.width(), Spot::Line(index));
        if index == selected {
            pen.select_line(y);
        }
    }
    let shown = cells(data.rules.rules.len().saturating_sub(first).min(height));
    let y = pen.height().saturating_sub(cells(detail.len()));
    let top = shown.saturating_add(2);
    let room = y.saturating_sub(top).saturating_sub(1);
    let width = pen.width().saturating_sub(2);
    if let Some(rule) = state.rule_view(selected) {
        let in_shadow = is_shadow(totals_of(data, rule));
        let pen = &mut pen.part(1, top, width, room);
        chart::rule_and_total(pen, state, &rule.name, in_shadow);
    }
    for (line, y) in detail.iter().zip(y..pen.height()) {
        pen.text(1, y, line, theme.dim);
    }
}

/// For a rule that shadows another: its share of refusals beside that of the other. One that is enforced meanwhile
/// refuses by itself.
fn compared(rule: &RuleView, totals: &RuleTotals, data: &Data) -> String {
    if !is_shadow(totals) {
        return String::new();
    }
    let other = rule.rule.get("shadows").and_then(Value::as_str);
    let mut rules = data.rules.rules.iter();
    let Some(other) = other.and_then(|other| rules.find(|rule| rule.name == other)) else {
        return String::new();
    };
    let would = percent(share_refused(totals));
    let does = percent(share_refused(totals_of(data, other)));
    format!("would refuse {would}, {} {does}  ", other.name)
}

/// The totals of a rule, from the status if that has them: it is newer.
fn totals_of<'a>(data: &'a Data, rule: &'a RuleView) -> &'a RuleTotals {
    let mut all = data.status.rules.iter();
    let found = all.find(|totals| totals.name == rule.name);
    found.unwrap_or(&rule.totals)
}

/// The selected rule in words, without the truncation of the table.
fn about(rule: &RuleView, totals: &RuleTotals, now_ns: u64) -> Vec<String> {
    let mut lines = vec![short::line(&rule.rule), in_words(&rule.rule)];
    if let Some(penalty) = rule.rule.get("penalty").and_then(short::penalty) {
        lines.push(format!("penalty: {penalty}"));
    }
    let overrides = rule.rule.get("overrides").and_then(Value::as_object);
    let overrides = overrides.into_iter().flatten().take(OVERRIDES);
    let overrides: Vec<String> = overrides
        .map(|(key, value)| format!("{key} {}", short::gives(value)))
        .collect();
    if !overrides.is_empty() {
        lines.push(format!("overrides: {}", overrides.join(", ")));
    }
    let upstreams = meaning::upstreams(totals, now_ns).into_iter();
    lines.extend(upstreams.take(MAX_UPSTREAMS));
    if let Some(edit) = &rule.edit {
        let why = if edit.reason.is_empty() {
            "no reason given"
        } else {
            &edit.reason
        };
        lines.push(format!("edited by {}: {why}", edit.by));
        lines.push(format!("configured: {}", short::line(&rule.base)));
    }
    lines
}

/// The columns; the limits take the remaining width.
struct Columns {
    mode: u16,
    numbers: u16,
    limits: u16,
}

impl Columns {
    const EACH: u16 = 10;

    fn new(width: u16, name: u16) -> Self {
        let mode = name.saturating_add(2);
        let numbers = mode.saturating_add(8);
        let shown = match width {
            76.. => 4,
            56.. => 2,
            _ => 1,
        };
        Self {
            mode,
            numbers,
            limits: numbers.saturating_add(Self::EACH * shown).saturating_add(1),
        }
    }

    fn slot(&self, index: u16) -> Option<u16> {
        let x = self
            .numbers
            .saturating_add(Self::EACH.saturating_mul(index));
        (x.saturating_add(Self::EACH) < self.limits).then_some(x)
    }

    fn numbers(&self, pen: &mut Pen<'_>, y: u16, texts: [(&str, Style); 4]) {
        for (index, (text, style)) in (0..).zip(texts) {
            if let Some(x) = self.slot(index) {
                pen.right(x, y, Self::EACH - 1, text, style);
            }
        }
    }

    fn header(&self, pen: &mut Pen<'_>) {
        let style = pen.theme.head;
        pen.text(1, 0, "rule", style);
        pen.text(self.mode, 0, "mode", style);
        let titles = ["refused/s", "refused", "admit/s", "admitted"];
        self.numbers(pen, 0, titles.map(|title| (title, style)));
        pen.text(self.limits, 0, "limits", style);
    }

    fn row(
        &self,
        pen: &mut Pen<'_>,
        y: u16,
        rule: &RuleView,
        totals: &RuleTotals,
        track: Option<&Track>,
        beside: &str,
    ) {
        let theme = pen.theme;
        let branch = if beside.is_empty() {
            ""
        } else {
            theme.pick_text("└ ", "` ")
        };
        let x = pen.text(1, y, branch, theme.dim);
        let room = self.mode.saturating_sub(x.saturating_add(1));
        pen.within(x, y, room, &rule.name, theme.strong);
        let mode = if totals.mode == "enforce" {
            theme.plain
        } else {
            theme.warn
        };
        pen.within(self.mode, y, 7, &totals.mode, mode);
        let rates = track.and_then(Track::rates);
        let is_shadow = is_shadow(totals);
        let refused = refused_in_mode(totals);
        let share = percent(share_refused(totals));
        let per_second = rates.map(|rates| refused_rate(totals, rates));
        let per_second = refusals(rate(per_second), is_shadow);
        let share = refusals(format!("{} {share}", amount(refused)), is_shadow);
        let bad = match (refused, is_shadow) {
            (0, _) => theme.dim,
            (_, true) => theme.shadow,
            (_, false) => theme.bad,
        };
        let texts = [
            (per_second.as_str(), bad),
            (share.as_str(), bad),
            (&rate(rates.map(|rates| rates.admitted)), theme.good),
            (&amount(totals.passed()), theme.plain),
        ];
        self.numbers(pen, y, texts);
        let limits = short::line(&rule.rule);
        let mark = rule.edit.as_ref().map_or(String::new(), |edit| {
            format!("{} edited by {}  ", theme.pick('✎', '*'), edit.by)
        });
        let upstreams = totals.upstreams.as_deref();
        let now = match upstreams.map(|all| all.iter().any(|upstream| upstream.applies)) {
            None => "",
            Some(true) => "active  ",
            Some(false) => "inactive  ",
        };
        pen.spans(
            self.limits,
            y,
            &[
                (beside, theme.warn),
                (now, theme.dim),
                (&mark, theme.warn),
                (&limits, theme.plain),
            ],
        );
    }
}

/// The match and the key of a rule: `POST /reply…; key header x-user-id`.
pub(super) fn in_words(rule: &Value) -> String {
    let mut parts = Vec::new();
    let matches = rule.get("match");
    let list = |name: &str| {
        let list = matches.and_then(|m| m.get(name)).and_then(Value::as_array);
        list.into_iter().flatten()
    };
    parts.extend(
        list("methods")
            .filter_map(Value::as_str)
            .map(ToOwned::to_owned),
    );
    let path = matches.and_then(|m| m.get("path"));
    if let Some(prefix) = path.and_then(|p| p.get("prefix")).and_then(Value::as_str) {
        parts.push(format!("{prefix}..."));
    } else if let Some(exact) = path.and_then(|p| p.get("exact")).and_then(Value::as_str) {
        parts.push(exact.to_owned());
    }
    for header in list("headers") {
        let name = header.get("name").and_then(Value::as_str).unwrap_or("");
        match header.get("exact").and_then(Value::as_str) {
            Some(value) => parts.push(format!("{name}={value}")),
            None => parts.push(format!("with {name}")),
        }
    }
    if parts.is_empty() {
        parts.push("every request".to_owned());
    }
    format!("{}; key {}", parts.join(" "), key_in_words(rule))
}

fn key_in_words(rule: &Value) -> String {
    let parts = rule.get("key").and_then(Value::as_array);
    let parts: Vec<String> = parts.into_iter().flatten().map(key_part).collect();
    if parts.is_empty() {
        return "none: one bucket for all".to_owned();
    }
    parts.join(" : ")
}

fn key_part(part: &Value) -> String {
    if let Some(word) = part.as_str() {
        return word.to_owned();
    }
    let fields = part.as_object().into_iter().flatten();
    let fields = fields.map(|(name, value)| match value.as_str() {
        Some(text) => format!("{name} {text}"),
        None => format!("{name} {value}"),
    });
    fields.collect::<Vec<_>>().join(" ")
}

// The numbers of a rule; in shadow mode, those of the requests that it would have refused.

/// Whether the rule only reports what it would refuse.
fn is_shadow(totals: &RuleTotals) -> bool {
    totals.mode == Mode::Shadow.name()
}

/// The requests that a rule refused or, in shadow mode, would have refused.
fn refused_in_mode(totals: &RuleTotals) -> u64 {
    if is_shadow(totals) {
        totals.shadow_refused
    } else {
        totals.refused
    }
}

/// The same per second.
fn refused_rate(totals: &RuleTotals, rates: Rates) -> f64 {
    if is_shadow(totals) {
        rates.shadow
    } else {
        rates.refused
    }
}

/// The share of its requests that this is.
fn share_refused(totals: &RuleTotals) -> f64 {
    let refused = totals.refused.saturating_add(totals.shadow_refused);
    let all = totals.passed().saturating_add(refused);
    fraction(refused_in_mode(totals), all)
}

/// The row of a rule as a line of text.
fn in_a_line(rule: &RuleView, totals: &RuleTotals, rates: Option<Rates>) -> String {
    let refused = if is_shadow(totals) {
        "would refuse"
    } else {
        "refused"
    };
    let mut parts = vec![totals.mode.clone()];
    parts.extend(rates.map(|rates| {
        let (bad, good) = (refused_rate(totals, rates), rates.admitted);
        format!(
            "{refused} {}/s, admitted {}/s",
            rate(Some(bad)),
            rate(Some(good))
        )
    }));
    let share = percent(share_refused(totals));
    parts.push(format!(
        "in total {refused} {} ({share}), admitted {}",
        amount(refused_in_mode(totals)),
        amount(totals.passed())
    ));
    parts.push(short::line(&rule.rule));
    copied::line(&rule.name, &parts)
}
