//! Implements `loudou explain`, which shows how a request would be decided, rule by rule, by Envoy
//! or according to a rule file.

use std::io;
use std::io::Write;
use std::path::PathBuf;

use anyhow::{Result, anyhow, bail};
use clap::Args;
use loudou_api::{ExplainAnswer, ExplainedLimit, ExplainedRule, RuleProblem, Says, UnmetPart};
use loudou_client::problem_line;
use loudou_limiter::{Clock, Nanos};
use loudou_rules::config::{Problem, parse_sample};
use loudou_rules::explain::explain;
use loudou_rules::rule::{RuleFile, Scope};
use loudou_rules::rule_set::ActiveRule;
use loudou_rules::rule_set::RuleSet;
use loudou_rules::versions::History;
use loudou_store::Table;
use loudou_store::memory::MemoryStore;
use loudou_words::meaning::explained::{self as words, Tone};
use loudou_words::text::escape;
use serde_json::Value;

use super::check::rules_of;
use super::context::Context;
use super::options::Format;
use super::outcome::Outcome;
use super::table::{Paint, Set, TextTable, bar, csv};
use super::world::{Style, Usage, json as print_json, json_list};
use crate::typed_request::TypedRequest;

/// Seed of an empty store. Its value does not matter.
const SEED: [u8; 16] = *b"loudou explain 1";
/// Note below an explanation from a rule file.
const FRESH: &str =
    "evaluated against the rule file only: every bucket is new, whatever Envoy has counted";
/// Note below an explanation from a rule file whose rules are shared by a fleet.
const CENTRAL: &str =
    "buckets that a fleet shares are decided as one central bucket, without its waits and leases";

const EXAMPLES: &str = "\
Examples:
  loudou explain -X POST --path /reply -H 'x-user-id: alice'
  loudou explain --path '/search?q=x' --source 203.0.113.7 --host api.example.com
  loudou explain --metadata envoy.filters.http.jwt_authn.payload.plan=free --cost 5
  loudou explain --config rules.yaml -H 'x-user-id: alice'    against a file, before Envoy has it
  loudou explain -H 'x-user-id: alice' -o json | jq .verdict";

#[derive(Debug, Args)]
#[command(before_long_help = EXAMPLES)]
pub(crate) struct ExplainArgs {
    #[command(flatten)]
    request: TypedRequest,
    /// Rule file to evaluate, instead of asking Envoy
    ///
    /// A rule file or Envoy configuration, JSON or YAML; - for standard input
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl ExplainArgs {
    /// Returns true if the request is sent to Envoy, and false if a file is evaluated.
    pub(super) const fn asks_envoy(&self) -> bool {
        self.config.is_none()
    }
}

pub(super) fn run(context: &mut Context<'_, '_>, args: &ExplainArgs) -> Result<Outcome> {
    let sample = args.request.json();
    if let Err(problems) = parse_sample(&sample) {
        let lines: Vec<String> = problems.iter().map(wrong).collect();
        bail!(Usage(lines.join("\n  ")));
    }
    let mut has_fleet = false;
    let answer = match &args.config {
        None => context.client()?.explain(&sample)?,
        Some(path) => match rules_of(context, path)? {
            Some(file) => {
                has_fleet = file.rules.iter().any(|rule| rule.scope == Scope::Fleet);
                by_file(&file, &sample)?
            }
            None => return Ok(Outcome::Failed),
        },
    };
    let (format, style) = (context.format(), context.style);
    match format {
        Format::Table => print(&answer, &args.request.title(), context.io.out, style)?,
        Format::Json => print_json(context.io.out, format, &answer)?,
        Format::Jsonl => json_list(context.io.out, format, &answer, &answer.rules)?,
        Format::Csv => lines(&answer, context.io.out)?,
    }
    if args.config.is_some() {
        context.note(FRESH)?;
    }
    if has_fleet {
        context.note(CENTRAL)?;
    }
    Ok(Outcome::Done)
}

/// Describes a problem of the sample request, with the name of the option that it came from.
fn wrong(problem: &Problem) -> String {
    let problem = RuleProblem::from(problem);
    let path = problem.path.strip_prefix("headers.").map_or_else(
        || match problem.path.strip_prefix("metadata.") {
            Some(path) => format!("--metadata {path}"),
            None => format!("--{}", problem.path),
        },
        |name| format!("--header {}", name.strip_suffix("[0]").unwrap_or(name)),
    );
    problem_line(&RuleProblem { path, ..problem })
}

/// Explains a request as the first request ever, according to the rules of a file.
fn by_file(file: &RuleFile, sample: &Value) -> Result<ExplainAnswer> {
    let rules = file.rules.iter().cloned();
    let rules: RuleSet = rules
        .map(|rule| ActiveRule::new(rule, History::default()))
        .collect();
    // The time does not matter for new buckets. With a constant, equal input gives equal output.
    let now = Nanos::ZERO;
    let settings = &file.store;
    let mut store = MemoryStore::new();
    let table = Table::open(&mut store, &settings.namespace, settings.buckets, SEED, now)
        .map_err(|gave_up| anyhow!("no room for buckets: {gave_up:?}"))?;
    let mut sample = parse_sample(sample).map_err(|_problems| anyhow!("invalid request"))?;
    let clock = Clock::at(now);
    let explained = explain(&rules, &table, &mut store, &mut sample, clock);
    Ok(ExplainAnswer::new(&explained, &rules, now, 0))
}

// Prints an explanation as text with a block for each rule, or as CSV.

/// Indentation of a block.
const INDENT: &str = "    ";

/// Prints the verdict, then the outcome of each rule.
fn print(answer: &ExplainAnswer, title: &str, out: &mut dyn Write, style: Style) -> io::Result<()> {
    let verdict = words::verdict(answer, title);
    writeln!(out, "{}", headline(answer.verdict, false, &verdict, style))?;
    for rule in &answer.rules {
        writeln!(out)?;
        let line = format!("{} {}", rule.rule, words::outcome(rule, answer));
        let is_shadow = rule.mode == "shadow";
        writeln!(out, "{}", headline(rule.says, is_shadow, &line, style))?;
        block(rule).print_rows(out, style)?;
        limits(rule, style).print_rows(out, style)?;
    }
    Ok(())
}

/// Returns a sentence after its mark, in the colour of the outcome.
fn headline(says: Says, is_shadow: bool, text: &str, style: Style) -> String {
    let paint = match words::tone(says, is_shadow) {
        Tone::Good | Tone::Plain => Paint::Heading,
        Tone::Warn => Paint::Warn,
        Tone::Bad => Paint::Bad,
        Tone::Dim => Paint::Dim,
    };
    // On ASCII terminals the mark is left out, because the words have its meaning.
    let mark = if style.ascii {
        String::new()
    } else {
        format!("{} ", words::mark(says))
    };
    paint.on(&format!("{mark}{}", escape(text)), style)
}

/// Returns the rows of a rule.
fn block(rule: &ExplainedRule) -> TextTable {
    let mut table = TextTable::new(&[("", Set::Left), ("", Set::Left)]);
    for (name, value) in words::rows(rule) {
        table.row(vec![format!("{INDENT}{name}").into(), value.into()]);
    }
    table
}

fn limits(rule: &ExplainedRule, style: Style) -> TextTable {
    let mut table = TextTable::new(&[
        ("", Set::Left),
        ("", Set::Left),
        ("", Set::Right),
        ("", Set::Left),
    ]);
    for limit in &rule.limits {
        let now = &limit.now;
        let (part, whole) = now.level(0);
        table.row(vec![
            format!("{INDENT}{}", now.name).into(),
            bar(part, whole, style).into(),
            format!("{}/{} left", now.remaining, now.capacity).into(),
            // For a banned key, the ban decides and the limits do not.
            if rule.ban.is_some() {
                String::from(" ").into()
            } else {
                words::limit(limit, rule.cost.or(rule.reserved)).into()
            },
        ]);
    }
    table
}

/// Prints one record for each limit, and one for a rule without limits.
fn lines(answer: &ExplainAnswer, out: &mut dyn Write) -> io::Result<()> {
    let heading = "rule,mode,says,overruled,behind,error,place,asked,found,key,cost,unlimited,\
                   banned,ban_lasts_ns,limit,algorithm,capacity,rate,used,remaining,limit_says,remaining_after,wait_ns,retry_after_ns,\
                   reset_after_ns";
    csv(out, heading.split(','))?;
    for rule in &answer.rules {
        let mut limits = rule.limits.iter().map(Some).collect::<Vec<_>>();
        if limits.is_empty() {
            limits.push(None);
        }
        for limit in limits {
            let mut record = of_rule(rule);
            record.extend(limit.map_or_else(|| vec![String::new(); 11], of_limit));
            csv(out, record.iter().map(String::as_str))?;
        }
    }
    Ok(())
}

fn of_rule(rule: &ExplainedRule) -> Vec<String> {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let number = |number: Option<u64>| number.map(|number| number.to_string()).unwrap_or_default();
    let part = rule.failing.as_ref().or(rule.too_long.as_ref());
    let part = part.or(rule.missing.as_ref());
    let part = part.or(rule.repeated.as_ref());
    let of = |read: fn(&UnmetPart) -> String| part.map(read).unwrap_or_default();
    vec![
        rule.rule.clone(),
        rule.mode.clone(),
        rule.says.name().to_owned(),
        rule.overruled.to_string(),
        text(&rule.behind),
        text(&rule.error),
        of(|part| part.place.clone()),
        of(|part| part.asked.to_string()),
        of(|part| part.found.clone().unwrap_or_default()),
        text(&rule.key),
        number(rule.cost.or(rule.reserved)),
        rule.unlimited.to_string(),
        rule.ban.is_some().to_string(),
        number(rule.ban.as_ref().and_then(|ban| ban.lasts_ns)),
    ]
}

fn of_limit(limit: &ExplainedLimit) -> Vec<String> {
    let number = |number: u64| number.to_string();
    let now = &limit.now;
    vec![
        now.name.clone(),
        now.algorithm.clone(),
        number(now.capacity),
        now.rate.clone(),
        number(now.used),
        number(now.remaining),
        limit.says.name().to_owned(),
        number(limit.remaining),
        number(limit.wait_ns),
        now.retry_after_ns.map(number).unwrap_or_default(),
        number(now.reset_after_ns),
    ]
}
