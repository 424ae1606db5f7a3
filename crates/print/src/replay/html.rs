//! Implements `--output html`, which writes a page that users can send to colleagues. The page is a
//! single file without scripts and does not load external resources.
//!
//! Keys, paths and names come from clients, so strings are added only through [`markup::Html`],
//! which escapes them. Its methods accept markup only as `&'static str`.

use loudou_replay::summary::{BesideLog, Compare, RunSummary, SideSummary};

use self::page::Page;
use super::{beside_log, compared, of_keys, view};
use loudou_words::text::counted;

mod axis;
pub(super) mod capacity;
pub(super) mod markup;
pub(super) mod page;
mod timeline;
mod verdicts;

use super::RuleText;
use markup::Html;
use page::{section, table, texts};

/// Returns the page about a replay run.
pub fn page(summary: &RunSummary, files: &[RuleText]) -> String {
    let trace = &summary.trace;
    let mut facts = page::facts(trace);
    if summary.compare.is_empty() {
        facts.push(("Rule file", summary.side.config.clone()));
    }
    let page = Page {
        kind: "Replay",
        name: &trace.name,
        facts: &facts,
        inputs: &trace.files,
        warnings: &summary.warnings,
        notes: &summary.notes,
        bad_lines: (trace.bad_lines, &trace.first_bad_lines),
        files,
    };
    page.write(|html| {
        match summary.compare.as_slice() {
            [] => one(html, &summary.side),
            others => several(html, &summary.side, others),
        }
        if let Some(found) = &summary.beside_log {
            section(html, "Beside the log", |html| beside(html, found));
        }
    })
}

fn one(html: &mut Html, side: &SideSummary) {
    section(html, "Verdicts", |html| {
        verdicts::shares(html, side.requests);
    });
    timeline::section(html, &[("", &side.timeline)]);
    section(html, "Rules", |html| {
        let rules = view::rules_table(&side.rules, true);
        table(html, "Rules", &rules);
        verdicts::legend(html, &rules);
    });
    keys(html, "", side);
    refused_keys(html, "", side);
    waits(html, "", side);
    section(html, "Buckets", |html| {
        texts(html, "note", view::buckets(side).lines());
    });
}

fn several(html: &mut Html, first: &SideSummary, others: &[Compare]) {
    let rest = others.iter().map(|other| &other.side);
    let sides: Vec<&SideSummary> = std::iter::once(first).chain(rest).collect();
    let names: Vec<String> = ('A'..).take(sides.len()).map(String::from).collect();
    let titles: Vec<String> = names.iter().map(|name| format!(", {name}")).collect();
    section(html, "Verdicts", |html| {
        for (name, side) in names.iter().zip(&sides) {
            html.element("h3", &[], &format!("{name}: {}", side.config));
            verdicts::shares(html, side.requests);
        }
    });
    section(html, "Changes", |html| {
        for (letter, other) in ('B'..).zip(others) {
            changes(html, letter, other);
        }
    });
    let lines = titles.iter().zip(&sides);
    let lines = lines.map(|(title, side)| (title.as_str(), &side.timeline));
    timeline::section(html, &lines.collect::<Vec<_>>());
    section(html, "Rules", |html| {
        table(html, "Rules", &compared::counts(&sides));
    });
    for (title, side) in titles.iter().zip(&sides) {
        keys(html, title, side);
        refused_keys(html, title, side);
        waits(html, title, side);
    }
    section(html, "Buckets", |html| {
        for (name, side) in names.iter().zip(&sides) {
            html.element("h3", &[], name);
            texts(html, "note", view::buckets(side).lines());
        }
    });
}

/// Adds tables of the requests whose verdicts changed, by kind of change and by key.
fn changes(html: &mut Html, letter: char, other: &Compare) {
    let changes = &other.changes;
    html.element("h3", &[], &format!("From A to {letter}"));
    if changes.changed == 0 {
        html.element("p", &[], "Every request has the same verdict.");
        return;
    }
    let requests = counted(changes.changed, "request");
    let text = format!("The verdict changed for {requests}:");
    html.element("p", &[], &text);
    let kinds = compared::kinds(changes, letter);
    verdicts::bars(html, ["Change", "Requests"], &kinds);
    if !changes.keys.is_empty() {
        let title = page::capital(&compared::keys_title(changes, letter));
        html.element("h3", &[], &title);
        table(html, &title, &compared::keys_table(changes));
    }
}

/// Adds the comparison of the replay's verdicts with the log's responses.
fn beside(html: &mut Html, found: &BesideLog) {
    let title = beside_log::title(found).replace('\n', " ");
    html.element("p", &[], &format!("{}.", page::capital(&title)));
    table(html, "Beside the log", &beside_log::table(found));
    if beside_log::differs(found) {
        html.element("p", &[("class", "hint")], beside_log::WHY);
    }
}

/// Adds a table with statistics about the keys of each rule.
fn keys(html: &mut Html, name: &str, side: &SideSummary) {
    let Some((keys, left_out)) = of_keys::table(side) else {
        return;
    };
    section(html, &format!("Keys{name}"), |html| {
        table(html, "Keys", &keys);
        if let Some(note) = left_out {
            html.element("p", &[("class", "hint")], &page::capital(&note));
        }
    });
}

fn refused_keys(html: &mut Html, name: &str, side: &SideSummary) {
    let keys = &side.refused_keys;
    if keys.most.is_empty() {
        return;
    }
    section(html, &format!("Most refused keys{name}"), |html| {
        html.element("p", &[], &page::capital(&view::keys_title(keys)));
        table(html, "Most refused keys", &view::keys_table(keys, true));
    });
}

fn waits(html: &mut Html, name: &str, side: &SideSummary) {
    if side.waits.held > 0 {
        section(html, &format!("Waits of held requests{name}"), |html| {
            verdicts::waits(html, &side.waits);
        });
    }
}
