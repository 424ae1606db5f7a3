//! Implements `loudou replay --suggest`, which prints the limits that the keys of a log would have
//! needed, as a table, and a suggested limit to paste.

use std::io;
use std::io::Write;

use anyhow::{Result, bail};
use clap::Args;
use loudou_limiter::algorithm::Funnel;
use loudou_limiter::{RATE_FORM, Rate};
use loudou_replay::suggest::{
    CAPACITIES, Candidates, MOST_CAPACITIES, MOST_RATES, Needs, RATES, RuleNeeds, Share, Subject,
    Suggestion, knee,
};
use loudou_rules::rule::RuleFile;
use serde_json::{Value, json};
use shares::Refusals;

use super::html::page::RuleText;
use super::words::{print_note, share};
use crate::cli::check::rules_of_text;
use crate::cli::context::Context;
use crate::cli::options::Format;
use crate::cli::table::{Cell, Paint, Set, TextTable, csv};
use crate::cli::world::{Style, Usage, json as print_json};
use loudou_check::document;
use loudou_words::num::{count, typed};
use loudou_words::text::{counted, escape};

mod page;
mod shares;

/// Needs of the keys of a rule, with a line for each rate.
struct Rule<'a> {
    needs: &'a RuleNeeds,
    rates: Vec<Line>,
    knee: Option<usize>,
}

/// Needs of the keys at one rate.
struct Line {
    rate: Rate,
    /// Capacities that are sufficient for 50 %, 90 % … of the keys.
    per_mille: [u32; 4],
    most: u32,
    /// Smallest capacity within the bound. `refused` is the number of keys that it refuses.
    capacity: u32,
    refused: u64,
    /// Refusals, sorted by capacity.
    refusals: Vec<Refusals>,
}

/// Message if no limit can be suggested.
const NO_LIMIT: &str = "No limit has so large a capacity at these rates; try higher --rates.";
/// Percentiles of the table.
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

/// Returns the smallest tried capacity that refuses at most this share of the requests, or else the
/// capacity that refuses nothing.
fn of_requests(rule: &RuleNeeds, needs: &Needs, refusals: &[Refusals], bound: Share) -> u32 {
    let most = bound.of(rule.requests);
    let is_within = |it: &&Refusals| rule.uncounted() == 0 && it.requests <= most;
    let all = needs.capacity(0);
    let tried = refusals.iter().find(is_within);
    tried.map_or(all, |it| it.capacity.min(all))
}

/// Returns the knee among the rates at which a limit with the line's capacity is valid.
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

pub(super) fn print(
    context: &mut Context<'_, '_>,
    (name, text): (String, RuleText),
    found: &Suggestion,
    bound: Share,
) -> Result<()> {
    let rules = rules(found, bound);
    if context.is_html() {
        let page = page::page(&name, found, &rules, bound, &[text]);
        return Ok(context.io.out.write_all(page.as_bytes())?);
    }
    let (format, style) = (context.format(), context.style);
    match format {
        Format::Table => {
            for warning in &found.warnings {
                print_note("warning", warning, context.io.out, style)?;
            }
            if !found.warnings.is_empty() {
                writeln!(context.io.out)?;
            }
            for (number, rule) in rules.iter().enumerate() {
                if number > 0 {
                    writeln!(context.io.out)?;
                }
                table(rule, bound, context.io.out, style)?;
            }
        }
        Format::Json | Format::Jsonl => {
            let document: Vec<Value> = rules.iter().map(document).collect();
            let (first_ns, last_ns) = found.span_ns.unzip();
            let document = json!({
                "version": 1, "at_most": bound.to_string(), "first_ns": first_ns, "last_ns": last_ns,
                "warnings": found.warnings, "rules": document,
            });
            print_json(context.io.out, format, &document)?;
        }
        Format::Csv => lines(&rules, context.io.out)?,
    }
    if format == Format::Csv {
        for warning in &found.warnings {
            context.note(&format!("warning: {}", escape(warning)))?;
        }
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

/// Returns the message that replaces the table if the rule has no keys.
fn without_keys(needs: &RuleNeeds) -> &'static str {
    match (needs.has_matched(), needs.excepted) {
        (false, _) => "It applies to no request of this log.",
        (true, 0) => "No request that it applies to has a key.",
        (true, _) => "No request that it applies to has a key without an override.",
    }
}

/// Returns a table of the needs at each rate, with a mark at the knee.
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

/// Returns a capacity, or `None` if it exceeds the range of numbers.
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

// The options of `loudou replay --suggest`.

/// Maximum capacity that can be tried.
const LARGEST: u32 = 1_000_000_000;

#[derive(Debug, Args)]
pub(crate) struct SuggestArgs {
    /// Suggest a limit for each rule
    ///
    /// The capacity that its keys would have needed at some rates, and the shares that smaller
    /// capacities would refuse
    #[arg(long, conflicts_with = "compare")]
    pub(crate) suggest: bool,
    /// With --suggest: refused share
    ///
    /// Maximum share of the keys (0.1%users) or of the requests (1%requests)
    #[arg(long, value_name = "SHARE", requires = "suggest", value_parser = Share::parse, default_value = "0.1%users")]
    pub(crate) at_most: Share,
    /// With --suggest: rates [default: 1/m to 100/s]
    ///
    /// The rates to try, at most 10
    #[arg(long, value_name = "RATE,…", requires = "suggest", value_delimiter = ',', value_parser = rate)]
    rates: Vec<Rate>,
    /// With --suggest: capacities [default: 1 to 1000]
    ///
    /// The capacities to count shares for, at most 10
    #[arg(long, value_name = "N,…", requires = "suggest", value_delimiter = ',', value_parser = capacity, allow_hyphen_values = true)]
    capacities: Vec<u32>,
    /// With --suggest, without --config: a part of the key
    ///
    /// As in a rule file: source, path, '{ header: x-api-key }' …; repeat it for several
    #[arg(
        long = "key",
        id = "key_part",
        value_name = "PART",
        conflicts_with = "config"
    )]
    pub(crate) parts: Vec<String>,
    /// With --key: match of the rule [default: all requests]
    ///
    /// As in a rule file: '{ path: { prefix: /api } }'
    #[arg(long = "match", id = "match_part", value_name = "MATCH")]
    matches: Option<String>,
}

fn capacity(text: &str) -> Result<u32, String> {
    let number = typed(text.trim())?;
    if !(1..=LARGEST).contains(&number) {
        return Err(format!("write a number from 1 to {LARGEST}"));
    }
    Ok(number)
}

fn rate(text: &str) -> Result<Rate, String> {
    Rate::parse(text.trim()).ok_or_else(|| format!("invalid rate; write {RATE_FORM}"))
}

impl SuggestArgs {
    /// Checks the options that describe a rule without a file. Clap cannot check them, because it
    /// suggests combinations that it then rejects, and drops a requirement that conflicts with
    /// another option.
    pub(crate) fn check_use(&self, has_config: bool) -> Result<()> {
        let wrong = if self.matches.is_some() && has_config {
            "--match belongs to --key; with --config, write the match into the rules"
        } else if self.matches.is_some() && self.parts.is_empty() {
            "--match needs --key PART: the key of the requests that it matches"
        } else if !self.parts.is_empty() && !self.suggest {
            "--key needs --suggest; write --config FILE to replay rules"
        } else if self.suggest && self.parts.is_empty() && !has_config {
            "--suggest needs --config FILE, or --key PART without a rule file"
        } else {
            return Ok(());
        };
        bail!(Usage(wrong.to_owned()))
    }

    /// Returns the rates and capacities to try.
    pub(crate) fn tried(&self) -> Result<Candidates> {
        let mut rates = self.rates.clone();
        if rates.is_empty() {
            rates.extend(RATES.iter().filter_map(|text| Rate::parse(text)));
        }
        let mut capacities = self.capacities.clone();
        if capacities.is_empty() {
            capacities.extend(CAPACITIES);
        }
        let longer = |rate: &Rate, other: &Rate| {
            u128::from(rate.amount()) * u128::from(other.period().get())
        };
        rates.sort_by(|one, other| longer(one, other).cmp(&longer(other, one)));
        rates.dedup_by(|one, other| longer(one, other) == longer(other, one));
        capacities.sort_unstable();
        capacities.dedup();
        for (option, count, most) in [
            ("--rates", rates.len(), MOST_RATES),
            ("--capacities", capacities.len(), MOST_CAPACITIES),
        ] {
            if count > most {
                bail!(Usage(format!("{option} takes at most {most}, not {count}")));
            }
        }
        Ok(Candidates { rates, capacities })
    }

    /// Returns the rule of `--key` and `--match`, or `None` if it has problems, which are printed.
    pub(crate) fn rules(
        &self,
        context: &mut Context<'_, '_>,
    ) -> Result<Option<(RuleText, RuleFile)>> {
        let line = |text: &str| text.replace(['\n', '\r'], " ");
        let matches = self.matches.iter().map(|text| ("--match", text));
        let parts = self.parts.iter().map(|part| ("--key", part));
        for (option, text) in matches.chain(parts) {
            // Each option is parsed separately, so that the error is in the option with the mistake
            // and not in a later line.
            if let Err(fault) = document::read(line(text).as_bytes()) {
                let (text, wrong) = (escape(text), fault.message);
                bail!(Usage(format!("{option} '{text}': {wrong}")));
            }
        }
        let mut lines = ["version: 1", "rules:", "- name: all"]
            .map(str::to_owned)
            .to_vec();
        let matches = self.matches.iter();
        lines.extend(matches.map(|text| format!("  match: {}", line(text))));
        lines.push("  key:".to_owned());
        lines.extend(self.parts.iter().map(|part| format!("  - {}", line(part))));
        let limit = "{ name: any, algorithm: funnel, capacity: 1, rate: 1/s }";
        lines.push(format!("  limits: [{limit}]\n"));
        let text = lines.join("\n");
        let name = "--key, --match".to_owned();
        let file = rules_of_text(context, &name, text.as_bytes())?;
        Ok(file.map(|file| (RuleText { name, text }, file)))
    }
}
