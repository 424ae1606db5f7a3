//! `loudou replay --suggest`: the limits that the keys of a log would have needed, as a table, and one to paste.

use std::io::{self, Write};

use anyhow::Result;
use loudou_limiter::Rate;
use loudou_replay::suggest::{MOST_KEYS, Needs, RuleNeeds, Share, Suggestion, knee};
use serde_json::{Value, json};

use crate::cli::context::Context;
use crate::cli::options::Format;
use crate::cli::table::{Cell, Paint, Set, TextTable, csv};
use crate::cli::world::{Style, json as print_json};
use crate::num::{count, fraction};
use crate::text::{counted, escape};

/// The needs of one rule, a line for each rate.
struct Rule<'a> {
    needs: &'a RuleNeeds,
    rates: Vec<Line>,
    knee: Option<usize>,
}

/// The needs at one rate.
struct Line {
    rate: Rate,
    /// The capacity that half, nine tenths … of the keys are content with.
    per_mille: [u32; 4],
    most: u32,
    /// The least capacity within the bound, and how many keys it refuses.
    capacity: u32,
    refused: usize,
}

/// The percentiles of the table.
const PER_MILLE: [(usize, &str); 4] = [(500, "p50"), (900, "p90"), (990, "p99"), (999, "p99.9")];

fn rules(suggestion: &Suggestion, bound: Share) -> Vec<Rule<'_>> {
    let count = suggestion.rates.len();
    let rules = suggestion.rules.iter().map(|needs| {
        let rates: Vec<Line> = suggestion
            .rates
            .iter()
            .enumerate()
            .map(|(number, rate)| line(*rate, &needs.at(number, count), bound.of(needs.keys())))
            .collect();
        let capacities: Vec<u32> = rates.iter().map(|line| line.capacity).collect();
        Rule {
            needs,
            knee: knee(&suggestion.rates, &capacities),
            rates,
        }
    });
    rules.collect()
}

fn line(rate: Rate, needs: &Needs, most_refused: usize) -> Line {
    let capacity = needs.capacity(most_refused);
    Line {
        rate,
        per_mille: PER_MILLE.map(|(per_mille, _)| needs.per_mille(per_mille)),
        most: needs.capacity(0),
        capacity,
        refused: needs.refused(capacity),
    }
}

impl Rule<'_> {
    /// The limit at the knee, as in a rule file.
    fn limit(&self) -> Option<String> {
        let line = self.rates.get(self.knee?)?;
        Some(format!(
            "{{ name: suggested, algorithm: funnel, capacity: {}, rate: {} }}",
            line.capacity, line.rate
        ))
    }
}

pub(super) fn print(context: &mut Context<'_, '_>, found: &Suggestion, bound: Share) -> Result<()> {
    let rules = rules(found, bound);
    let (format, style) = (context.format(), context.style);
    match format {
        Format::Table => {
            for (number, rule) in rules.iter().enumerate() {
                if number > 0 {
                    writeln!(context.io.out)?;
                }
                table(rule, bound, context.io.out, style)?;
            }
        }
        Format::Json | Format::Jsonl => {
            let document: Vec<Value> = rules.iter().map(document).collect();
            let document =
                json!({ "version": 1, "at_most_users": bound.to_string(), "rules": document });
            print_json(context.io.out, format, &document)?;
        }
        Format::Csv => lines(&rules, context.io.out)?,
    }
    for rule in &rules {
        if rule.needs.is_cost_unknown {
            let name = escape(&rule.needs.name);
            context.note(&format!(
                "warning: {name}: the log has no cost, so each request counts as 1"
            ))?;
        }
    }
    if found.beyond > 0 {
        let requests = counted(found.beyond, "request");
        context.note(&format!(
            "warning: {requests} of keys beyond the first {MOST_KEYS} are left out; a part of the log (--from, --to) has fewer"
        ))?;
    }
    Ok(())
}

fn table(rule: &Rule<'_>, bound: Share, out: &mut dyn Write, style: Style) -> io::Result<()> {
    let needs = rule.needs;
    let keys = count(needs.keys());
    let heading = format!(
        "{}: {} of {}",
        escape(&needs.name),
        counted(needs.requests, "request"),
        counted(keys, "key"),
    );
    writeln!(out, "{}", Paint::Heading.on(&heading, style))?;
    if keys == 0 {
        return writeln!(out, "  no request of this log has a key for it");
    }
    writeln!(
        out,
        "the capacity of a funnel that refuses nothing of a key, over the keys; CAPACITY: for at most {bound} of them\n"
    )?;
    let mut columns = vec![("RATE", Set::Right)];
    columns.extend(PER_MILLE.map(|(_, name)| (name, Set::Right)));
    columns.extend([
        ("most", Set::Right),
        ("CAPACITY", Set::Right),
        ("KEYS REFUSED", Set::Right),
        (" ", Set::Left),
    ]);
    let mut table = TextTable::new(&columns);
    for (number, line) in rule.rates.iter().enumerate() {
        let mut row: Vec<Cell> = vec![line.rate.to_string().into()];
        row.extend(line.per_mille.map(|need| need.to_string().into()));
        row.push(line.most.to_string().into());
        row.push(line.capacity.to_string().into());
        let share = 100.0 * fraction(count(line.refused), keys);
        row.push(format!("{} ({share:.2} %)", line.refused).into());
        row.extend((rule.knee == Some(number)).then(|| "knee".into()));
        table.row(row);
    }
    table.print(out, style)?;
    if let Some(limit) = rule.limit() {
        writeln!(
            out,
            "\nat most {bound} of the keys are refused by, in the rule {}:",
            escape(&needs.name)
        )?;
        writeln!(out, "    limits: [{limit}]")?;
    }
    Ok(())
}

fn document(rule: &Rule<'_>) -> Value {
    let rates = rule.rates.iter().map(|line| {
        let mut fields = json!({
            "rate": line.rate.to_string(), "most": line.most,
            "capacity": line.capacity, "keys_refused": line.refused,
        });
        if let Some(fields) = fields.as_object_mut() {
            for ((_, name), need) in PER_MILLE.iter().zip(line.per_mille) {
                fields.insert((*name).to_owned(), need.into());
            }
        }
        fields
    });
    let knee = rule.knee.and_then(|knee| rule.rates.get(knee));
    json!({
        "rule": rule.needs.name, "requests": rule.needs.requests, "keys": rule.needs.keys(),
        "rates": rates.collect::<Vec<_>>(),
        "suggested": knee.map(|line| json!({
            "name": "suggested", "algorithm": "funnel",
            "capacity": line.capacity, "rate": line.rate.to_string(),
        })),
    })
}

fn lines(rules: &[Rule<'_>], out: &mut dyn Write) -> io::Result<()> {
    let names = PER_MILLE.map(|(_, name)| name);
    let heading = ["rule", "keys", "rate"].into_iter().chain(names);
    csv(
        out,
        heading.chain(["most", "capacity", "keys_refused", "knee"]),
    )?;
    for rule in rules {
        for (number, line) in rule.rates.iter().enumerate() {
            let mut record = vec![
                rule.needs.name.clone(),
                rule.needs.keys().to_string(),
                line.rate.to_string(),
            ];
            record.extend(line.per_mille.map(|need| need.to_string()));
            record.extend([
                line.most.to_string(),
                line.capacity.to_string(),
                line.refused.to_string(),
            ]);
            record.push((rule.knee == Some(number)).to_string());
            csv(out, record.iter().map(String::as_str))?;
        }
    }
    Ok(())
}
