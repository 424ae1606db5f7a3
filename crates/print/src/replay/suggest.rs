//! Prints tables of the limits that the keys in a log would have needed, and a suggested limit to paste into a rule
//! file.

use std::fmt;
use std::io::{self, Write};

use loudou_limiter::Rate;
use loudou_limiter::algorithm::Funnel;
use loudou_replay::suggest::{Candidates, Needs, RuleNeeds, Share, Subject, Suggestion, knee};
use loudou_words::num::count;
use loudou_words::text::{counted, escape};
use serde_json::{Value, json};
use shares::Refusals;

use super::RuleText;
use super::words::{print_note, share};
use crate::style::Style;
use crate::table::{Cell, Paint, Set, TextTable, csv};

mod page;
mod shares;

/// The capacities that a rule's keys need, with a line for each rate.
struct Rule<'a> {
    needs: &'a RuleNeeds,
    rates: Vec<Line>,
    knee: Option<usize>,
}

/// The capacities that a rule's keys need at one rate.
struct Line {
    rate: Rate,
    /// Capacities that are sufficient for the percentiles of keys in [`PER_MILLE`].
    per_mille: [u32; 4],
    most: u32,
    /// Smallest capacity that satisfies the bound. `refused` is the number of keys that this
    /// capacity refuses.
    capacity: u32,
    refused: u64,
    /// Refusals at each tried capacity, sorted by capacity.
    refusals: Vec<Refusals>,
}

/// Message that is printed if no limit can be suggested.
const NO_LIMIT: &str = "No limit has so large a capacity at these rates; try higher --rates.";
/// Percentiles shown in the table.
const PER_MILLE: [(usize, &str); 4] = [(500, "p50"), (900, "p90"), (990, "p99"), (999, "p99.9")];

fn rules(suggestion: &Suggestion, bound: Share) -> Vec<Rule<'_>> {
    let tried = &suggestion.tried;
    let rules = suggestion.rules.iter().map(|needs| {
        let rates = tried.rates.iter().enumerate();
        let rates: Vec<Line> = rates
            .map(|(number, rate)| line(*rate, needs, (number, tried), bound))
            .collect();
        Rule {
            needs,
            knee: knee_of(&rates),
            rates,
        }
    });
    rules.collect()
}

fn line(rate: Rate, rule: &RuleNeeds, (number, tried): (usize, &Candidates), bound: Share) -> Line {
    let needs = rule.at(number, tried.rates.len());
    let refused = rule.refused().iter().skip(number * tried.capacities.len());
    let cells = tried.capacities.iter().zip(refused);
    let refusals: Vec<Refusals> = cells
        .map(|(capacity, requests)| Refusals {
            capacity: *capacity,
            keys: count(needs.refused(*capacity)),
            requests: *requests,
        })
        .collect();
    let capacity = match bound.subject {
        Subject::Users => {
            let most = bound.of(count(rule.keys()));
            needs.capacity(usize::try_from(most).unwrap_or(usize::MAX))
        }
        Subject::Requests => of_requests(rule, &needs, &refusals, bound),
    };
    Line {
        rate,
        per_mille: PER_MILLE.map(|(per_mille, _)| needs.per_mille(per_mille)),
        most: needs.capacity(0),
        capacity,
        refused: count(needs.refused(capacity)),
        refusals,
    }
}

/// Returns the smallest tried capacity at which at most the share `bound` of the requests is
/// refused. If there is none, returns the capacity at which no request is refused.
fn of_requests(rule: &RuleNeeds, needs: &Needs, refusals: &[Refusals], bound: Share) -> u32 {
    let most = bound.of(rule.requests);
    let is_within = |it: &&Refusals| rule.uncounted() == 0 && it.requests <= most;
    let all = needs.capacity(0);
    let tried = refusals.iter().find(is_within);
    tried.map_or(all, |it| it.capacity.min(all))
}

/// Returns the index of the knee. Considers only lines whose rate and capacity form a valid limit.
fn knee_of(lines: &[Line]) -> Option<usize> {
    let is_valid = |line: &Line| Funnel::new(line.capacity.into(), line.rate).is_ok();
    let valid: Vec<(usize, &Line)> = lines
        .iter()
        .enumerate()
        .filter(|(_, line)| is_valid(line))
        .collect();
    let rates: Vec<Rate> = valid.iter().map(|(_, line)| line.rate).collect();
    let capacities: Vec<u32> = valid.iter().map(|(_, line)| line.capacity).collect();
    let (number, _) = valid.get(knee(&rates, &capacities)?)?;
    Some(*number)
}

impl Rule<'_> {
    /// Returns the limit at the knee, in rule file syntax.
    fn limit(&self) -> Option<String> {
        let line = self.rates.get(self.knee?)?;
        Some(format!(
            "{{ name: suggested, algorithm: funnel, capacity: {}, rate: {} }}",
            line.capacity, line.rate
        ))
    }
}

/// The capacities that the keys in a log need, with the limits that satisfy a bound on refusals.
pub struct Suggested<'a> {
    found: &'a Suggestion,
    bound: Share,
    rules: Vec<Rule<'a>>,
}

impl fmt::Debug for Suggested<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Suggested")
            .field("bound", &self.bound)
            .finish_non_exhaustive()
    }
}

impl<'a> Suggested<'a> {
    /// Computes the limits that refuse at most the share `bound`.
    pub fn new(found: &'a Suggestion, bound: Share) -> Self {
        Self {
            found,
            bound,
            rules: rules(found, bound),
        }
    }

    /// Prints the warnings, followed by a table for each rule.
    pub fn print(&self, out: &mut dyn Write, style: Style) -> io::Result<()> {
        for warning in &self.found.warnings {
            print_note("warning", warning, out, style)?;
        }
        if !self.found.warnings.is_empty() {
            writeln!(out)?;
        }
        for (number, rule) in self.rules.iter().enumerate() {
            if number > 0 {
                writeln!(out)?;
            }
            table(rule, self.bound, out, style)?;
        }
        Ok(())
    }

    /// Returns the limits as a JSON document.
    pub fn document(&self) -> Value {
        let rules: Vec<Value> = self.rules.iter().map(document).collect();
        let (first_ns, last_ns) = self.found.span_ns.unzip();
        json!({
            "version": 1, "at_most": self.bound.to_string(), "first_ns": first_ns, "last_ns": last_ns,
            "warnings": self.found.warnings, "rules": rules,
        })
    }

    /// Prints a record for each rate of each rule.
    pub fn csv(&self, out: &mut dyn Write) -> io::Result<()> {
        lines(&self.rules, out)
    }

    /// Returns an HTML page with the suggestions for the trace `name`.
    pub fn page(&self, name: &str, files: &[RuleText]) -> String {
        page::page(name, self.found, &self.rules, self.bound, files)
    }
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
        return writeln!(out, "  {}", without_keys(needs));
    }
    writeln!(
        out,
        "The capacity with which a funnel refuses no request of a key, over the keys.\nCAPACITY refuses at most {bound}.\n"
    )?;
    needs_table(rule).print(out, style)?;
    shares::print(&rule.rates, (keys, needs.requests), out, style)?;
    match rule.limit() {
        Some(limit) => {
            let name = escape(&needs.name);
            writeln!(
                out,
                "\nTo paste into the rule {name}; it refuses at most {bound}:"
            )?;
            writeln!(out, "    limits: [{limit}]")
        }
        None => writeln!(out, "\n{NO_LIMIT}"),
    }
}

/// Returns the message that is shown instead of the table if the rule has no keys.
fn without_keys(needs: &RuleNeeds) -> &'static str {
    match (needs.has_matched(), needs.excepted) {
        (false, _) => "It applies to no request of this log.",
        (true, 0) => "No request that it applies to has a key.",
        (true, _) => "No request that it applies to has a key without an override.",
    }
}

/// Returns a table of the needed capacities at each rate, in which the knee is marked.
fn needs_table(rule: &Rule<'_>) -> TextTable {
    let keys = count(rule.needs.keys());
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
        row.extend(line.per_mille.map(|need| Cell::from(known(need))));
        row.push(known(line.most).into());
        row.push(known(line.capacity).into());
        row.push(format!("{} ({})", line.refused, share(line.refused, keys)).into());
        row.extend((rule.knee == Some(number)).then(|| Cell::from("knee").paint(Paint::Heading)));
        table.row(row);
    }
    table
}

/// Returns the capacity, or `None` if the needed capacity exceeds the range of `u32`.
fn number(capacity: u32) -> Option<u32> {
    (capacity < u32::MAX).then_some(capacity)
}

fn known(capacity: u32) -> Option<String> {
    number(capacity).map(|capacity| capacity.to_string())
}

fn document(rule: &Rule<'_>) -> Value {
    let rates = rule.rates.iter().map(|line| {
        let mut fields = json!({
            "rate": line.rate.to_string(), "most": number(line.most),
            "capacity": number(line.capacity), "keys_refused": line.refused,
            "refusals": line.refusals.iter().map(|it| json!({
                "capacity": it.capacity, "keys_refused": it.keys, "requests_refused": it.requests,
            })).collect::<Vec<_>>(),
        });
        if let Some(fields) = fields.as_object_mut() {
            for ((_, name), need) in PER_MILLE.iter().zip(line.per_mille) {
                fields.insert((*name).to_owned(), number(need).into());
            }
        }
        fields
    });
    let knee = rule.knee.and_then(|knee| rule.rates.get(knee));
    json!({
        "rule": rule.needs.name, "requests": rule.needs.requests, "keys": rule.needs.keys(),
        "excepted_requests": rule.needs.excepted,
        "requests_without_key": rule.needs.without_key, "uncounted_refusals": rule.needs.uncounted(),
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
            record.extend(line.per_mille.map(|need| known(need).unwrap_or_default()));
            record.extend([
                known(line.most).unwrap_or_default(),
                known(line.capacity).unwrap_or_default(),
                line.refused.to_string(),
            ]);
            record.push((rule.knee == Some(number)).to_string());
            csv(out, record.iter().map(String::as_str))?;
        }
    }
    Ok(())
}
