//! Implements `loudou explain`, which shows rule by rule how a request would be decided, either by
//! a live Envoy or under a rule file.

use std::io;
use std::io::Write;
use std::path::PathBuf;

use anyhow::{Error, Result, bail};
use clap::Args;
use loudou_api::{ExplainAnswer, ExplainedLimit, ExplainedRule, RuleProblem, UnmetPart};
use loudou_client::problem_line;
use loudou_print::explain::{by_file, notes, print};
use loudou_print::table::csv;
use loudou_rules::config::{Problem, parse_sample};

use super::check::rules_of;
use super::context::Context;
use super::options::Format;
use super::outcome::Outcome;
use super::world::{Usage, json as print_json, json_list};
use crate::typed_request::TypedRequest;

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
    let file = match &args.config {
        None => None,
        Some(path) => match rules_of(context, path)? {
            None => return Ok(Outcome::Failed),
            file => file,
        },
    };
    let answer = match &file {
        None => context.client()?.explain(&sample)?,
        Some(file) => by_file(file, &sample).map_err(Error::msg)?,
    };
    let (format, style) = (context.format(), context.style);
    match format {
        Format::Table => print(&answer, &args.request.title(), context.io.out, style)?,
        Format::Json => print_json(context.io.out, format, &answer)?,
        Format::Jsonl => json_list(context.io.out, format, &answer, &answer.rules)?,
        Format::Csv => lines(&answer, context.io.out)?,
    }
    for note in file.iter().flat_map(notes) {
        context.note(note)?;
    }
    Ok(Outcome::Done)
}

/// Describes a problem with the sample request, and names the option that caused it.
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

// Prints an explanation as CSV.

/// Prints one record for each limit, and one record for a rule without limits.
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
