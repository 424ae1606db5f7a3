//! Shows counts of verdicts and waits, with bars.

use loudou_replay::summary::{Requests, WaitsSummary};

use super::markup::{Html, grouped, percent};
use crate::replay::words::share;
use crate::table::TextTable;
use loudou_words::text::humanise;

/// Explanations of columns whose names are not self-explanatory.
const LEGEND: [(&str, &str); 6] = [
    ("OVERRULED", "passed this rule, and a later one refused it"),
    ("SHADOW", "would be refused if the rule were enforced"),
    ("SHADOW HELD", "would be held if the rule were enforced"),
    ("SKIPPED", "lacks a part of the key"),
    ("GAVE UP", "fell back to on_error"),
    (
        "REFUSES",
        "its refused share of the requests that it decides, shadow mode included",
    ),
];

/// Adds the share of each verdict as a number, and a stacked bar of all verdicts.
pub(super) fn shares(html: &mut Html, requests: Requests) {
    let total = requests.total;
    let verdicts = [
        ("admitted", "Admitted", requests.admitted),
        ("held", "Held", requests.held),
        ("refused", "Refused", requests.refused),
    ];
    html.within("dl", &[("class", "verdicts")], |html| {
        for (class, name, count) in verdicts {
            html.within("div", &[("class", class)], |html| {
                html.within("dt", &[], |html| {
                    html.element("i", &[("class", &format!("fill {class}"))], "");
                    html.text(name);
                });
                html.within("dd", &[], |html| {
                    html.element("b", &[], &share(count, total));
                    html.element("span", &[], &requests_of(count, total));
                });
            });
        }
    });
    html.within(
        "div",
        &[("class", "stack"), ("aria-hidden", "true")],
        |html| {
            for (class, _, count) in verdicts.into_iter().filter(|(_, _, count)| *count > 0) {
                let width = format!("width:{}", percent(count, total));
                let class = format!("fill {class}");
                html.element("i", &[("class", &class), ("style", &width)], "");
            }
        },
    );
}

fn requests_of(count: u64, total: u64) -> String {
    format!("{} of {} requests", grouped(count), grouped(total))
}

/// Adds explanations of the columns of a rule table.
pub(super) fn legend(html: &mut Html, table: &TextTable) {
    let shown = LEGEND.iter().filter(|(name, _)| {
        let mut columns = table.columns().iter();
        columns.any(|(column, _)| column == name)
    });
    html.within("dl", &[("class", "legend")], |html| {
        for (name, meaning) in shown {
            html.within("div", &[], |html| {
                html.element("dt", &[], &super::page::capital(&name.to_lowercase()));
                html.element("dd", &[], meaning);
            });
        }
    });
}

/// Adds a histogram of the waits of held requests.
pub(super) fn waits(html: &mut Html, waits: &WaitsSummary) {
    let held = grouped(waits.held);
    let (mean, longest) = (humanise(waits.mean_ns), humanise(waits.longest_ns));
    let text = format!("{held} held; average {mean}, longest {longest}.");
    html.element("p", &[], &text);
    let steps = waits.steps.iter().map(|step| {
        let up_to = step.up_to_ns.map(|ns| format!("to {}", humanise(ns)));
        (up_to.unwrap_or_else(|| "longer".to_owned()), step.held)
    });
    bars(html, ["Wait", "Requests"], &steps.collect::<Vec<_>>());
}

/// Adds a table of counts, each with a bar.
pub(super) fn bars(html: &mut Html, columns: [&str; 2], rows: &[(String, u64)]) {
    let most = rows.iter().map(|(_, count)| *count).max().unwrap_or(0);
    html.within("table", &[("class", "bars")], |html| {
        html.within("thead", &[], |html| {
            html.within("tr", &[], |html| {
                let [name, count] = columns;
                html.element("th", &[("scope", "col"), ("class", "name")], name);
                html.element("th", &[("scope", "col"), ("class", "right")], count);
                html.element("td", &[], "");
            });
        });
        html.within("tbody", &[], |html| {
            for (name, count) in rows {
                html.within("tr", &[], |html| {
                    html.element("th", &[("scope", "row"), ("class", "name")], name);
                    html.element("td", &[("class", "right")], &grouped(*count));
                    html.within("td", &[("class", "bar"), ("aria-hidden", "true")], |html| {
                        let width = format!("width:{}", percent(*count, most));
                        html.element("i", &[("style", &width)], "");
                    });
                });
            }
        });
    });
}
