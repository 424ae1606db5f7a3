//! Writes the suggestions as an HTML page.

use super::{NO_LIMIT, PER_MILLE, Rule, needs_table, shares, without_keys};
use crate::replay::RuleText;
use crate::replay::html::capacity::{Plot, Rate, Series, per_second};
use crate::replay::html::markup::{Html, grouped};
use crate::replay::html::page::{Page, code, section, table, times};
use loudou_replay::input::{InputIntake, Intake};
use loudou_replay::suggest::{Share, Suggestion};
use loudou_words::num::count;

/// CSS classes of the plot's lines, in the order of the percentiles.
const CLASSES: [&str; PER_MILLE.len()] = ["p50", "p90", "p99", "p999"];

/// Returns a page with the suggestions for the trace `name`.
pub(super) fn page(
    name: &str,
    found: &Suggestion,
    rules: &[Rule<'_>],
    bound: Share,
    files: &[RuleText],
) -> String {
    let intake = &found.intake;
    let mut facts = vec![("Requests", grouped(intake.records))];
    facts.extend(times(found.span_ns));
    let format = intake.format_name();
    facts.extend(format.map(|format| ("Format", format.to_owned())));
    facts.push(("May refuse at most", bound.to_string()));
    let page = Page {
        kind: "Suggested limits",
        name,
        facts: &facts,
        inputs: inputs(intake),
        warnings: &found.warnings,
        notes: &[],
        bad_lines: (intake.bad, &intake.first_bad),
        files,
    };
    page.write(|html| {
        for rule in rules {
            section(html, &format!("Rule {}", rule.needs.name), |html| {
                one(html, rule, bound);
            });
        }
    })
}

/// Returns the input files, or nothing if there is only one.
fn inputs(intake: &Intake) -> &[InputIntake] {
    match intake.inputs.as_slice() {
        [_] => &[],
        inputs => inputs,
    }
}

fn one(html: &mut Html, rule: &Rule<'_>, bound: Share) {
    let (requests, keys) = (rule.needs.requests, count(rule.needs.keys()));
    if keys == 0 {
        html.element("p", &[], without_keys(rule.needs));
        return;
    }
    let text = format!("{} requests of {} keys.", grouped(requests), grouped(keys));
    html.element("p", &[], &text);
    match rule.limit() {
        None => html.element("p", &[("class", "suggested")], NO_LIMIT),
        Some(limit) => html.within("div", &[("class", "suggested")], |html| {
            html.element("h3", &[], "To paste into the rule");
            code(html, &format!("limits: [{limit}]"));
            let text = format!("It refuses at most {bound}.");
            html.element("p", &[], &text);
        }),
    }
    plot(html, rule);
    html.element("h3", &[], "Capacity by rate");
    let text = format!(
        "The capacity with which a funnel refuses no request of a key, over the keys. Capacity refuses at most {bound}."
    );
    html.element("p", &[], &text);
    table(html, "Capacity by rate", &needs_table(rule));
    for (title, shares) in shares::tables(&rule.rates, (keys, requests)) {
        html.element("h3", &[], &title);
        table(html, &title, &shares);
    }
}

fn plot(html: &mut Html, rule: &Rule<'_>) {
    let rates = rule.rates.iter().map(|line| Rate {
        per_second: per_second(line.rate.amount().into(), line.rate.period().get()),
        label: line.rate.to_string(),
    });
    let rates: Vec<Rate> = rates.collect();
    let mut series = Vec::new();
    for (number, ((_, name), class)) in PER_MILLE.into_iter().zip(CLASSES).enumerate() {
        let needs = rule.rates.iter();
        let needs = needs.filter_map(|line| line.per_mille.get(number).copied());
        series.push(Series {
            name,
            class,
            capacities: needs.collect(),
        });
    }
    series.push(Series {
        name: "most",
        class: "most",
        capacities: rule.rates.iter().map(|line| line.most).collect(),
    });
    series.push(Series {
        name: "capacity",
        class: "capacity",
        capacities: rule.rates.iter().map(|line| line.capacity).collect(),
    });
    let name = format!(
        "Capacity that the keys of rule {} need, over the rate; the table below has the numbers",
        rule.needs.name
    );
    let plot = Plot {
        name: &name,
        rates: &rates,
        series: &series,
        knee: rule.knee,
    };
    plot.write(html);
}
