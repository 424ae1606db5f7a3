//! The Rules screen: each rule with its limits and totals.

use loudou_api::{RuleTotals, RuleView};
use loudou_rules::rule::{Mode, tried};
use loudou_words::meaning;
use loudou_words::meaning::{refusals, short};
use loudou_words::num::{cells, fraction};
use ratatui::layout::{Constraint, Layout, Margin, Rect};
use ratatui::text::{Line, Span};
use serde_json::Value;

use super::view::{About, View};
use super::{chart, copied};
use crate::app::command::{Binding, Command as C, bind, c, k, tab};
use crate::app::history::{Rates, Track};
use crate::app::ingest;
use crate::app::layout::table_height;
use crate::app::press::Code::Enter;
use crate::app::screen::{Places, Screen};
use crate::app::state::{Data, State};
use crate::draw::pen::Pen;
use crate::draw::theme::Theme;
use crate::draw::widgets::{self, ColumnWidth, all};
use crate::draw::words::{amount, percent, rate, text, width, wrap};

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

/// The Rules screen.
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

    /// Shows the buckets of the selected rule.
    fn run(&self, state: &mut State, command: C) {
        if let (C::Drill, Some(rule)) = (command, self.rule(state)) {
            ingest::buckets_of(state, &rule);
        }
    }
}

/// Maximum number of overrides listed.
const OVERRIDES: usize = 6;
/// Maximum number of upstreams listed for the selected rule.
const MAX_UPSTREAMS: usize = 3;

/// Draws the rules, the charts of the selected rule, and its description.
fn draw(pen: &mut Pen<'_>, state: &State) {
    let Some(data) = &state.data else { return };
    let rules = &data.rules.rules;
    let selected = state.selected(Screen::Rules);
    let now = state.server_ns().saturating_add(state.age().get());
    let rule = state.rule_view(selected);
    let detail = rule.map(|rule| {
        let compared = compared(rule, (state, data)).trim_end().to_owned();
        let compared = (!compared.is_empty()).then_some(compared);
        let about = about(rule, data, now);
        compared.into_iter().chain(about).collect()
    });
    let inside = pen.area.width.saturating_sub(2);
    let detail: Vec<String> = detail.unwrap_or_default();
    let mut detail: Vec<String> = detail.iter().flat_map(|line| wrap(line, inside)).collect();
    // If there is no room for both, the list of rules takes precedence over the description.
    let room = table_height(state.size);
    detail.truncate(room.saturating_sub(rules.len().min(room.div_ceil(2))));
    let shown = room.saturating_sub(detail.len()).max(1);
    let first = selected.saturating_add(1).saturating_sub(shown);
    let shown = shown.min(rules.len().saturating_sub(first));
    let [list, _, charts, words] = Layout::vertical([
        Constraint::Length(cells(shown).saturating_add(1)),
        Constraint::Length(1),
        Constraint::Fill(1),
        Constraint::Length(cells(detail.len())),
    ])
    .areas(pen.area);
    let rows = rules.iter().enumerate().skip(first).take(shown);
    table(&mut pen.part(list), state, data, rows.collect());
    if let Some(rule) = rule {
        let is_shadow = is_shadow(totals_of(data, rule));
        let part = &mut pen.part(charts.inner(Margin::new(1, 0)));
        chart::rule_and_total(part, state, &rule.name, is_shadow);
    }
    let dim = pen.theme.dim;
    pen.part(words.inner(Margin::new(1, 0)))
        .lines(all(&detail, dim));
}

/// Draws the table of rules, with the name, mode, request counts, last minute and limits of each
/// rule.
fn table(pen: &mut Pen<'_>, state: &State, data: &Data, rules: Vec<(usize, &RuleView)>) {
    const TITLES: [(&str, bool); 8] = [
        ("rule", false),
        ("mode", false),
        ("refused/s", true),
        ("refused", true),
        ("admit/s", true),
        ("admitted", true),
        ("last 60s", false),
        ("limits", false),
    ];
    let theme = pen.theme;
    let longest =
        |of: &dyn Fn(&RuleView) -> u16| data.rules.rules.iter().map(of).max().unwrap_or(0);
    let name = longest(&|rule| width(&rule.name).saturating_add(2)).clamp(8, 34);
    let limits = longest(&|rule| cells(limits(theme, (state, data), rule).width()));
    let refused = longest(&|rule| cells(refused(theme, data, rule).width())).max(7);
    // A narrow screen has no history, because a few columns would show nothing useful.
    let history = if pen.area.width < 100 { 0 } else { 20 };
    let widths = widgets::fit(
        pen.area.width.saturating_sub(1),
        &[
            ColumnWidth::growing(0, name.min(14), name.min(20), name),
            ColumnWidth::fixed(2, 7),
            ColumnWidth::fixed(1, 9),
            ColumnWidth::fixed(4, refused),
            ColumnWidth::fixed(6, 8),
            ColumnWidth::fixed(5, 8),
            ColumnWidth::growing(7, history, history, history.saturating_mul(3)),
            ColumnWidth::growing(3, 12, limits.clamp(12, 60), limits.max(12)),
        ],
    );
    let rows = rules.into_iter().map(|(number, rule)| {
        let cells = row(theme, (state, data), rule, &widths);
        (number, cells.to_vec())
    });
    let rows = rows.collect();
    let mut heads = widgets::heads(TITLES, &widths);
    heads
        .iter_mut()
        .skip(6)
        .take(1)
        .for_each(|head| head.is_picture = true);
    let inner = Rect {
        x: pen.area.x.saturating_add(1),
        width: pen.area.width.saturating_sub(1),
        ..pen.area
    };
    pen.style(pen.row(0), theme.head);
    widgets::table(
        &mut pen.part(inner),
        &heads,
        rows,
        Some(state.selected(Screen::Rules)),
    );
}

/// Returns the cells of a rule.
fn row(
    theme: &Theme,
    (state, data): (&State, &Data),
    rule: &RuleView,
    widths: &[u16],
) -> [Line<'static>; 8] {
    let totals = totals_of(data, rule);
    let track = state.history.rules.get(&rule.name);
    let (is_shadow, rates) = (is_shadow(totals), track.and_then(Track::rates));
    let branch = if compared(rule, (state, data)).is_empty() {
        ""
    } else {
        theme.pick("└ ", "` ")
    };
    let per_second = rates.map(|rates| refused_rate(totals, rates));
    let mode = if totals.mode == Mode::Enforce.name() {
        theme.plain
    } else {
        theme.warn
    };
    let columns = widths.get(6).copied().unwrap_or(0);
    // A rule has no rate of its own, so its history is compared with its peak.
    let history = track.map(|track| {
        let series = track.series(columns);
        chart::requests(theme, &series, chart::peak(&series), 7.0)
    });
    [
        Line::from(vec![
            text(branch, theme.dim),
            text(&rule.name, theme.strong),
        ]),
        text(&totals.mode, mode).into(),
        text(
            &refusals(rate(per_second), is_shadow),
            refused(theme, data, rule).style,
        )
        .into(),
        refused(theme, data, rule).into(),
        text(&rate(rates.map(|rates| rates.admitted)), theme.good).into(),
        text(&amount(totals.passed()), theme.plain).into(),
        history.unwrap_or_default(),
        limits(theme, (state, data), rule),
    ]
}

/// Formats the number of refused requests and their share.
fn refused(theme: &Theme, data: &Data, rule: &RuleView) -> Span<'static> {
    let totals = totals_of(data, rule);
    let (refused, is_shadow) = (refused_in_mode(totals), is_shadow(totals));
    let style = match (refused, is_shadow) {
        (0, _) => theme.dim,
        (_, true) => theme.shadow,
        (_, false) => theme.bad,
    };
    let share = percent(share_refused(totals));
    text(
        &refusals(format!("{} {share}", amount(refused)), is_shadow),
        style,
    )
}

/// Returns a short description of a rule's limits. Special properties come first: the comparison
/// with a shadowed rule, upstreams, and an edit.
fn limits(theme: &Theme, (state, data): (&State, &Data), rule: &RuleView) -> Line<'static> {
    let totals = totals_of(data, rule);
    let mut parts = vec![text(&compared(rule, (state, data)), theme.warn)];
    let upstreams = totals.upstreams.as_deref();
    parts.extend(upstreams.map(|all| {
        let applies = all.iter().any(|upstream| upstream.applies);
        text(if applies { "active  " } else { "inactive  " }, theme.dim)
    }));
    let mark = theme.pick('✎', '*');
    let edit = rule.edit.as_ref();
    parts.extend(edit.map(|edit| text(&format!("{mark} edited by {}  ", edit.by), theme.warn)));
    parts.push(text(&short::line(&rule.rule), theme.plain));
    parts.into()
}

/// Compares the share of requests that a rule in shadow mode would refuse with the share that the
/// shadowed rule refuses. Empty if the rule is not in shadow mode or shadows no other rule. The
/// shares cover the time since Envoy started. For a trial, which is younger than its rule, the
/// shares cover the last minute, or the recorded time of the trial if that is shorter.
fn compared(rule: &RuleView, (state, data): (&State, &Data)) -> String {
    if !is_shadow(totals_of(data, rule)) {
        return String::new();
    }
    let other = rule.rule.get("shadows").and_then(Value::as_str);
    let mut rules = data.rules.rules.iter();
    let Some(other) = other.and_then(|other| rules.find(|rule| rule.name == other)) else {
        return String::new();
    };
    let track = |rule: &RuleView| state.history.rules.get(&rule.name);
    let since = track(rule).map(Track::known_since);
    let is_trial = tried(&rule.name).is_some();
    let [would, does] = [rule, other].map(|rule| {
        if !is_trial {
            return percent(share_refused(totals_of(data, rule)));
        }
        let counts = track(rule)
            .zip(since)
            .map(|(track, since)| track.counted_since(since));
        let counts = counts.unwrap_or_default();
        let refused = counts.refused.saturating_add(counts.shadow);
        match refused.saturating_add(counts.admitted) {
            0 => "-".to_owned(),
            all => percent(fraction(refused, all)),
        }
    });
    // A trial is drawn below its rule, so the rule's name is omitted. On a terminal with 120
    // columns, the name would be cut off.
    let of = if is_trial { "now" } else { &*other.name };
    format!("would refuse {would}, {of} {does}  ")
}

/// Returns the totals of a rule. Prefers the totals in the status, because they are newer.
fn totals_of<'a>(data: &'a Data, rule: &'a RuleView) -> &'a RuleTotals {
    let mut all = data.status.rules.iter();
    let found = all.find(|totals| totals.name == rule.name);
    found.unwrap_or(&rule.totals)
}

/// Describes the selected rule in full, because the table truncates its description.
fn about(rule: &RuleView, data: &Data, now_ns: u64) -> Vec<String> {
    let totals = totals_of(data, rule);
    let mut lines = vec![short::line(&rule.rule), in_words(data, rule)];
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

/// Describes the match and the key of a rule: `POST requests to /reply; key header x-user-id`. The
/// match is left out if this version of the app cannot read the rule.
pub(super) fn in_words(data: &Data, rule: &RuleView) -> String {
    let read = data
        .running
        .rule(&data.rules.rules, &data.status, &rule.name);
    let requests = read.map(|rule| format!("{}; ", meaning::requests(&rule.matches)));
    let key = match meaning::key_in_json(&rule.rule) {
        key if key.is_empty() => "none: one bucket for all".to_owned(),
        key => key,
    };
    format!("{}key {key}", requests.unwrap_or_default())
}

// Request counts of a rule. In shadow mode, its refusals are the requests that it would have
// refused.

/// Returns true if the rule is in shadow mode.
fn is_shadow(totals: &RuleTotals) -> bool {
    totals.mode == Mode::Shadow.name()
}

/// Returns the number of requests that a rule refused or, in shadow mode, would have refused.
fn refused_in_mode(totals: &RuleTotals) -> u64 {
    if is_shadow(totals) {
        totals.shadow_refused
    } else {
        totals.refused
    }
}

/// Like [`refused_in_mode`], but per second.
fn refused_rate(totals: &RuleTotals, rates: Rates) -> f64 {
    if is_shadow(totals) {
        rates.shadow
    } else {
        rates.refused
    }
}

/// Returns the share of the rule's requests that it refused or, in shadow mode, would have refused.
fn share_refused(totals: &RuleTotals) -> f64 {
    let refused = totals.refused.saturating_add(totals.shadow_refused);
    let all = totals.passed().saturating_add(refused);
    fraction(refused_in_mode(totals), all)
}

/// Formats the row of a rule as a line of text.
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
