//! Draws the frame of every screen: tabs and connection, totals, the status line, the footer.

use loudou_api::Status;
use loudou_words::meaning::leased;
use loudou_words::num::{cells, count, fraction};
use loudou_words::text::{counted, humanise};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::form::typed;
use crate::app::again;
use crate::app::command::{ALWAYS, Binding};
use crate::app::findings::{Finding, Weight, apart, new_keys, of_filter, of_one};
use crate::app::form::Stage;
use crate::app::keys;
use crate::app::press::Spot;
use crate::app::screen::Screen;
use crate::app::screens::{self, About, SCREENS};
use crate::app::state::{Data, Mode, State};
use crate::app::targets;
use crate::draw::pen::Pen;
use crate::draw::theme::Theme;
use crate::draw::words::{amount, percent, rate, safe, text, whole_seconds, width, wrap};
use crate::short_names::without_scheme;

/// Minimum width of a truncated address, in cells.
const MIN_WIDTH: u16 = 12;

/// Draws the program's name, the tabs and the connection, then the totals.
pub(super) fn header(pen: &mut Pen<'_>, state: &State) {
    let theme = pen.theme;
    let [first, second] =
        Layout::vertical([Constraint::Length(1), Constraint::Length(1)]).areas(pen.area);
    let connection = connection(theme, state);
    let words = connection.least();
    let several = state.targets.len() > 1;
    let tabs = SCREENS.iter().map(|view| view.about());
    let tabs = tabs.filter(|about| several || !about.screen.is_of_several());
    let mut tabs: Vec<(String, Screen)> = tabs.map(|about| (tab(about), about.screen)).collect();
    // Each tab consists of its name, with one cell on both sides, and is preceded by one cell.
    let wide = |tabs: &[(String, Screen)]| {
        tabs.iter()
            .map(|(name, _)| width(name).saturating_add(3))
            .sum::<u16>()
    };
    let address = without_scheme(&state.settings.url);
    let name = theme.pick(" 漏斗 loudou ", " loudou ");
    let whole = [name, words, address]
        .map(width)
        .into_iter()
        .fold(wide(&tabs), u16::saturating_add);
    // If there is no room for both the address and the name of the program, the address takes
    // precedence.
    let name = if whole >= first.width {
        theme.pick(" 漏斗 ", " loudou ")
    } else {
        name
    };
    // The addresses of several Envoys may only differ at the end, so a longer part of each address
    // is kept.
    let most = if several {
        MIN_WIDTH * 2
    } else {
        MIN_WIDTH + 2
    };
    let address = connection.short.as_ref().map(|_| width(address).min(most));
    let address = address.map_or(0, |address| address.saturating_add(1));
    let least = width(words).saturating_add(address).saturating_add(2);
    let room = first
        .width
        .saturating_sub(width(name))
        .saturating_sub(least);
    if wide(&tabs) > room {
        // The connection is always shown. If there is no room for all tabs, only the current tab is
        // shown.
        tabs.retain(|(_, screen)| *screen == state.screen);
    }
    let [title, bar, end] = Layout::horizontal([
        Constraint::Length(width(name)),
        Constraint::Length(wide(&tabs)),
        Constraint::Fill(1),
    ])
    .areas(first);
    pen.line(title, Span::styled(name, theme.name));
    let tabs = tabs.into_iter().map(|(name, screen)| {
        let is_here = screen == state.screen;
        let style = if is_here { theme.selected } else { theme.dim };
        let name = Span::styled(format!(" {name} "), style);
        (name.into(), Some(Spot::Tab(screen)))
    });
    pen.buttons(bar, 1, tabs);
    let room = end.width.saturating_sub(2);
    let place = place(state, &connection, room, theme);
    let place = text(&place, connection.style);
    pen.line(
        end,
        theme
            .fit_line(vec![place, Span::raw(" ")].into(), end.width)
            .right_aligned(),
    );
    // After a restart, the banner replaces the totals, which begin at zero.
    if let Some(banner) = again::banner(state) {
        let mark = theme.pick('⚠', '!');
        pen.line(second, text(&format!(" {mark} {banner} "), theme.alarm));
        pen.style(second, theme.alarm);
    } else {
        totals(pen, second, state);
    }
}

/// Returns the connection state and Envoy's address, in the longest form that fits. If there is
/// little room, the word "connected" is left out, because the colour of the address also shows the
/// state.
fn place(state: &State, connection: &Connection, room: u16, theme: &Theme) -> String {
    let url = &state.settings.url;
    let address = without_scheme(url);
    let Connection { long, short, .. } = connection;
    let mut forms = vec![format!("{long} {url}"), format!("{long} {address}")];
    forms.extend(short.iter().map(|short| format!("{short} {address}")));
    let mut fitting = forms.into_iter().filter(|form| width(form) <= room);
    if let Some(form) = fitting.next() {
        return form;
    }
    // The end of the address is truncated, because host names in the same domain differ at the
    // beginning.
    let least = connection.least();
    let left = room.saturating_sub(width(least)).saturating_sub(1);
    if short.is_some() && left >= MIN_WIDTH {
        return format!("{least} {}", theme.fit(address, left));
    }
    least.to_owned()
}

/// Returns the key and the name of a screen.
fn tab(about: &About) -> String {
    let key = about.tab.shown();
    format!("{key} {}", about.title).trim_start().to_owned()
}

/// Text that describes the state of the connection.
struct Connection {
    long: String,
    /// Short form of the text, if the connection to the shown Envoy is good.
    short: Option<String>,
    style: Style,
}

impl Connection {
    /// Returns the shortest form of the text.
    fn least(&self) -> &str {
        self.short.as_ref().unwrap_or(&self.long)
    }
}

/// Describes the connection. If the connection is good, the text covers all watched Envoys, so that
/// it does not contradict a message about another Envoy.
fn connection(theme: &Theme, state: &State) -> Connection {
    let up = theme.pick('●', '*');
    let down = theme.pick('○', 'o');
    let age = humanise(whole_seconds(state.age().get()));
    let (long, style) = match state.link.up {
        None => (format!("{down} connecting"), theme.warn),
        Some(true) if state.is_stale() => (format!("{up} connected, stale {age}"), theme.warn),
        Some(true) => return connected(theme, state),
        Some(false) => {
            let wait = whole_seconds(state.link.due.since(state.now).get());
            let next = if state.link.in_flight.is_some() {
                "connecting".to_owned()
            } else {
                format!("retry in {}", humanise(wait))
            };
            let old = if state.data.is_some() {
                format!(", stale {age}")
            } else {
                String::new()
            };
            (format!("{down} {next}{old}"), theme.bad)
        }
    };
    Connection {
        long,
        short: None,
        style,
    }
}

/// Describes the connections if the shown Envoy is connected.
fn connected(theme: &Theme, state: &State) -> Connection {
    let all = state.targets.len().max(1);
    let others = state.targets.iter().enumerate();
    let away = others.filter(|(number, other)| *number != state.number && other.up != Some(true));
    let here = all.saturating_sub(away.count());
    let (mark, style) = if here == all {
        (theme.pick('●', '*'), theme.good)
    } else {
        (theme.pick('◐', '+'), theme.warn)
    };
    let (long, short) = match all {
        0..2 => (format!("{mark} connected"), mark.to_string()),
        2.. => (
            format!("{mark} {here} of {all} Envoys connected, here"),
            format!("{mark} {here}/{all} up"),
        ),
    };
    Connection {
        long,
        short: Some(short),
        style,
    }
}

/// Draws the body before the first poll.
pub(super) fn waiting(pen: &mut Pen<'_>, state: &State) {
    let theme = pen.theme;
    let mut area = pen.area;
    area.y = area.y.saturating_add(area.height / 3);
    area.height = area.height.saturating_sub(area.height / 3);
    match &state.link.error {
        None => pen.line(
            area,
            Line::from(text("waiting for the first poll", theme.dim)).centered(),
        ),
        Some(error) => {
            let lines = wrap(error, area.width.saturating_sub(4)).into_iter();
            let lines = lines.map(|line| text(&format!("  {line}"), theme.bad).into());
            pen.part(area).lines(lines);
        }
    }
}

/// Draws the status line, which contains the filter, a banner, an error, or the screen's text.
pub(super) fn status(pen: &mut Pen<'_>, state: &State) {
    let (theme, area) = (pen.theme, pen.area);
    let screen = screens::shown(state);
    let status = text(&format!(" {}", screen.status(state)), theme.dim);
    let line: Line<'_> = if let Mode::Filter(field, _) = &state.mode {
        let mut line = Line::from(Span::styled(" / ", theme.key));
        line.extend(typed(
            theme,
            field,
            theme.plain,
            area.width.saturating_sub(4),
        ));
        line.push_span(Span::raw(" "));
        line.push_span(match screen.filter_error(state) {
            Some(error) => text(&format!(" {error}"), theme.bad),
            None => status,
        });
        line
    } else if let Some(frozen) = &state.frozen {
        let age = humanise(whole_seconds(state.now.since(frozen.since).get()));
        let words = format!(" FROZEN for {age} - space resumes ");
        pen.style(area, theme.banner);
        text(&words, theme.banner).into()
    } else if let Some(error) = state.link.error.as_ref().filter(|_| state.data.is_some()) {
        let first = error.lines().next().unwrap_or("");
        text(&format!(" {first}"), theme.bad).into()
    } else if let Some(words) = new_keys(state).filter(|_| state.screen == Screen::HOME) {
        let mark = theme.pick('⚠', '!');
        let words = theme.fit(&words, area.width.saturating_sub(4)).into_owned();
        vec![text(&format!(" {mark} {words} "), theme.banner), status].into()
    } else if let Some(warning) = first_warning(state) {
        let mark = theme.pick('⚠', '!');
        vec![status, text(&format!("  {mark} {warning}"), theme.warn)].into()
    } else {
        status.into()
    };
    pen.line(area, line);
}

/// Returns the filter's first warning, if the home screen is shown. The Events screen shows all
/// warnings.
fn first_warning(state: &State) -> Option<&String> {
    let data = state.data.as_ref().filter(|_| state.screen == Screen::HOME);
    of_filter(&data?.status).next()
}

/// Number of cells between two hints.
const GAP: u16 = 2;

/// Draws the keys that are available here. A key whose command cannot run now is dimmed. Pressing
/// the key shows the reason.
pub(super) fn footer(pen: &mut Pen<'_>, state: &State) {
    let (theme, area) = (pen.theme, pen.area);
    let place = keys::place(state);
    let here =
        keys::all().filter(|b| b.places & place != 0 && b.rank > 0 && keys::is_listed(state, b));
    let mut here: Vec<&Binding> = here.filter(|b| !b.keys.is_empty()).collect();
    here.sort_by_key(|binding| binding.rank);
    let (always, here): (Vec<_>, Vec<_>) = here.into_iter().partition(|b| b.rank == ALWAYS);
    let mut hints: Vec<_> = here.into_iter().map(|it| hint(theme, state, it)).collect();
    if matches!(&state.mode, Mode::Edit(form) if form.stage == Stage::Sending) {
        hints.insert(0, (text("sending", theme.warn).into(), None));
    }
    let always = always.into_iter().map(|it| hint(theme, state, it));
    let always: Vec<_> = always.collect();
    let wide = |(line, _): &(Line<'_>, _)| cells(line.width()).saturating_add(GAP);
    let ends = always.iter().map(wide).sum();
    let [left, right] =
        Layout::horizontal([Constraint::Fill(1), Constraint::Length(ends)]).areas(area);
    let mut room = left.width;
    hints.retain(|hint| {
        let rest = room.checked_sub(wide(hint));
        // If a hint does not fit, no later hint is shown in its place.
        room = rest.unwrap_or(0);
        rest.is_some()
    });
    pen.buttons(left, GAP, hints);
    pen.buttons(right, GAP, always);
}

/// Returns the hint for a key, and the action of a click on the hint.
fn hint(theme: &Theme, state: &State, binding: &Binding) -> (Line<'static>, Option<Spot>) {
    let (key_style, style) = match keys::obstacle(state, binding.command) {
        None => (theme.key, theme.plain),
        Some(_) => (theme.dim, theme.dim),
    };
    let key = text(&binding.shown(), key_style);
    let word = text(&format!(" {}", binding.short), style);
    let spot = binding.keys.first().map(|press| Spot::Key(*press));
    (vec![key, word].into(), spot)
}

// The second line of the header, which shows requests per second and warnings in the longest form
// that fits, and then other totals.

/// Labels and values, each with its colour.
type Part = Vec<Span<'static>>;

/// Number of cells between two parts, in the long and the short form.
const GAPS: [u16; 2] = [3, 2];

/// Minimum width of the totals next to the long text about other Envoys.
const MIN_SIDE_BY_SIDE: u16 = 44;

/// Draws the totals. Refusals, refusals in shadow mode, and the number of warnings are never left
/// out. Other Envoys that lost changes or do not answer come first, because the user may not notice
/// them otherwise.
fn totals(pen: &mut Pen<'_>, row: Rect, state: &State) {
    let theme = pen.theme;
    let Some(data) = &state.data else { return };
    let elsewhere = elsewhere(theme, row.width, state);
    let [away, row] = Layout::horizontal([
        Constraint::Length(
            elsewhere
                .as_ref()
                .map_or(0, |words| cells(words.width()).saturating_add(1)),
        ),
        Constraint::Fill(1),
    ])
    .areas(row);
    pen.line(away, elsewhere.unwrap_or_default());
    let (room, [wide, narrow]) = (row.width, GAPS);
    let down = data.status.fleet.as_ref().and_then(leased::down);
    let down = down.map(|down| part(theme, "fleet: ", &down, theme.warn));
    let full = full_words(state, down.clone(), theme);
    let few = few_words(state, theme);
    let (mut parts, gap) = if end(&full, wide) <= room {
        let mut full = full;
        let beside = room.saturating_sub(end(&full, wide));
        if let (Some(words), Some(last)) = (warning_beside(state, theme, beside), full.last_mut()) {
            last.push(text(&words, theme.warn));
        }
        (full, wide)
    } else {
        // If necessary, the admitted requests are left out.
        let left_out = usize::from(end(&few, narrow) > room);
        (few.into_iter().skip(left_out).chain(down).collect(), narrow)
    };
    parts.extend(rest(state, data, theme));
    // Outdated numbers are dimmed, like the body below them. Warnings are not dimmed.
    if state.is_stale() {
        let live = parts
            .iter_mut()
            .flatten()
            .filter(|span| span.style != theme.warn);
        live.for_each(|span| span.style = theme.stale);
    }
    let mut x = 1_u16;
    let fits = |part: &Part| {
        let end = x.saturating_add(span(part));
        x = end.saturating_add(gap);
        end <= room
    };
    let mark = theme.pick('⚠', '!');
    // A click on the warnings opens the Envoy screen.
    let parts = parts.into_iter().take_while(fits).map(|part| {
        let is_warning = part
            .first()
            .is_some_and(|first| first.content.starts_with(mark));
        let spot = is_warning.then_some(Spot::Tab(Screen::Envoy));
        (Line::from(part), spot)
    });
    pen.buttons(row, gap, parts);
}

/// Describes the other Envoys that need attention.
fn elsewhere(theme: &Theme, room: u16, state: &State) -> Option<Span<'static>> {
    let (full, short) = targets::troubles(&state.targets, state.number)?;
    let mark = theme.pick('⚠', '!');
    let [full, short] = [full, short].map(|text| format!(" {mark} {} ", safe(&text)));
    let has_room = width(&full).saturating_add(MIN_SIDE_BY_SIDE) <= room;
    Some(text(if has_room { &full } else { &short }, theme.alarm))
}

fn span(part: &Part) -> u16 {
    cells(part.iter().map(Span::width).sum())
}

/// Returns the column at which these parts end.
fn end(parts: &[Part], gap: u16) -> u16 {
    let widths = parts.iter().map(span);
    let sum = widths.fold(1_u16, |sum, width| {
        sum.saturating_add(width).saturating_add(gap)
    });
    sum.saturating_sub(gap)
}

fn part(theme: &Theme, label: &'static str, value: &str, style: Style) -> Part {
    vec![Span::styled(label, theme.dim), text(value, style)]
}

/// Returns the long form: requests per second, refusals in shadow mode, workers that are
/// disconnected from the fleet, and warnings.
fn full_words(state: &State, down: Option<Part>, theme: &Theme) -> Vec<Part> {
    let rates = Shown::of(state);
    let refused = part(theme, "refused ", &rates.refused, rates.style(theme));
    let mut parts = vec![
        part(theme, "admitted ", &rates.admitted, theme.good),
        refused,
    ];
    if let Some(would) = rates.would {
        let would = format!("{would}/s");
        parts.push(part(theme, "would refuse ", &would, theme.shadow));
    }
    parts.extend(down);
    let mark = theme.pick('⚠', '!');
    parts.extend(warnings(state).map(|(own, apart)| {
        let own = (own > 0).then(|| counted(count(own), "warning"));
        let apart = (apart > 0).then(|| format!("{apart} between Envoys"));
        let words: Vec<String> = own.into_iter().chain(apart).collect();
        vec![text(
            &format!("{mark} {} on 6", words.join(", ")),
            theme.warn,
        )]
    }));
    parts
}

/// Returns the short form, for narrow terminals. Refusals in shadow mode are in parentheses, as in
/// tables.
fn few_words(state: &State, theme: &Theme) -> Vec<Part> {
    let rates = Shown::of(state);
    let mut refused = part(theme, "refuse ", &rates.refused, rates.style(theme));
    let would = rates.would.map(|would| format!(" ({would})"));
    refused.extend(would.map(|would| text(&would, theme.shadow)));
    let mut parts = vec![part(theme, "admit ", &rates.admitted, theme.good), refused];
    let mark = theme.pick('⚠', '!');
    parts.extend(warnings(state).map(|(own, apart)| {
        let apart = Some(apart).filter(|apart| *apart > 0);
        let apart = apart.map_or_else(String::new, |apart| format!("+{apart}"));
        vec![text(&format!("{mark} {own}{apart}"), theme.warn)]
    }));
    parts
}

/// Formatted request rates.
struct Shown {
    admitted: String,
    refused: String,
    /// Refusals per second in shadow mode, if any.
    would: Option<String>,
    refuses: bool,
}

impl Shown {
    fn of(state: &State) -> Self {
        let rates = state.total_rates();
        let refused = rates.map(|rates| rates.refused);
        let would = rates.map(|rates| rates.shadow).filter(|would| *would > 0.0);
        Self {
            admitted: format!("{}/s", rate(rates.map(|rates| rates.admitted))),
            refused: format!("{}/s", rate(refused)),
            would: would.map(|would| rate(Some(would))),
            refuses: refused.unwrap_or(0.0) > 0.0,
        }
    }

    const fn style(&self, theme: &Theme) -> Style {
        if self.refuses { theme.bad } else { theme.plain }
    }
}

/// Returns the number of warnings about the shown Envoy, as on the Targets screen, and the number
/// of warnings about differences between Envoys. Returns `None` if both numbers are 0.
fn warnings(state: &State) -> Option<(usize, usize)> {
    let warnings = |found: Vec<Finding>| {
        let found = found.into_iter();
        found
            .filter(|finding| finding.weight == Weight::Warning)
            .count()
    };
    let (own, apart) = (warnings(of_one(state)), warnings(apart(state)));
    (own > 0 || apart > 0).then_some((own, apart))
}

/// Minimum width of a warning's text in the header, in cells. A narrower text would show only the beginning of the
/// warning.
const MIN_WARNING: u16 = 30;

/// Returns the text of a warning, truncated to `room` cells. Returns `None` if there is no warning or too little room.
/// A warning about the traffic takes precedence over the filter's own warnings, most of which are about its
/// configuration.
fn warning_beside(state: &State, theme: &Theme, room: u16) -> Option<String> {
    let found = of_one(state).into_iter().chain(apart(state));
    let warnings: Vec<Finding> = found
        .filter(|finding| finding.weight == Weight::Warning)
        .collect();
    let data = state.data.as_ref().filter(|_| room >= MIN_WARNING)?;
    let of_filter = of_filter(&data.status).count();
    let shown = warnings.get(of_filter).or_else(|| warnings.first())?;
    let words = theme.said(&format!(": {}", safe(&shown.text)));
    Some(theme.fit(&words, room.saturating_sub(1)).into_owned())
}

/// Returns the parts that are shown only if there is room.
fn rest(state: &State, data: &Data, theme: &Theme) -> Vec<Part> {
    let status = &data.status;
    let store = &status.store;
    let generation = status.generation.to_string();
    let mut parts = vec![part(theme, "generation ", &generation, theme.plain)];
    let used = fraction(store.used, store.buckets);
    let fill = format!(
        "{} of {} buckets {}",
        amount(store.used),
        amount(store.buckets),
        percent(used)
    );
    let style = if used >= 0.9 { theme.warn } else { theme.plain };
    parts.push(part(theme, "store ", &fill, style));
    parts.extend(calm_fleet(status, theme));
    if store.evicted_lossy > 0 {
        let evicted = amount(store.evicted_lossy);
        parts.push(part(theme, "evicted in use ", &evicted, theme.warn));
    }
    if state.locked().is_some() {
        parts.push(vec![text("read-only", theme.warn)]);
    }
    let up = humanise(whole_seconds(status.uptime_ns));
    parts.push(part(theme, "up ", &up, theme.dim));
    parts.push(part(theme, "version ", &status.version, theme.dim));
    parts
}

/// Returns the number of Envoys in the fleet, if no worker is disconnected from it.
fn calm_fleet(status: &Status, theme: &Theme) -> Option<Part> {
    let fleet = status.fleet.as_ref()?;
    let envoys = leased::envoys(fleet);
    (fleet.workers_down == 0).then(|| part(theme, "fleet ", &envoys, theme.plain))
}
