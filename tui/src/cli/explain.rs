//! `loudou explain`: how a request would be decided, rule by rule, in Envoy or by a rule file.

use std::path::PathBuf;

use anyhow::{Result, anyhow, bail};
use clap::Args;
use loudou_api::{ExplainAnswer, RuleProblem};
use loudou_limiter::{Clock, Nanos};
use loudou_rules::active_rule::ActiveRule;
use loudou_rules::config::{Problem, parse_sample};
use loudou_rules::explain::explain;
use loudou_rules::rule::{RuleFile, Scope};
use loudou_rules::rule_set::RuleSet;
use loudou_rules::versions::History;
use loudou_store::Table;
use loudou_store::memory::MemoryStore;
use serde_json::Value;

use super::check::rules_of;
use super::context::Context;
use super::options::Format;
use super::outcome::Outcome;
use super::world::{Usage, json as print_json, json_list};
use crate::typed_request::TypedRequest;
use loudou_client::problem_line;

mod view;

/// The seed of an empty store; its value does not matter.
const SEED: [u8; 16] = *b"loudou explain 1";
/// The note below an explanation by a rule file.
const FRESH: &str =
    "evaluated against the rule file only: every bucket is new, whatever Envoy has counted";
/// The note below an explanation by a rule file with rules of a fleet.
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
#[command(before_help = EXAMPLES)]
pub(crate) struct ExplainArgs {
    #[command(flatten)]
    request: TypedRequest,
    /// Evaluate this rule file or Envoy configuration, JSON or YAML, instead of asking Envoy; - for
    /// standard input
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl ExplainArgs {
    /// Whether Envoy decides, and not a file.
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
        Format::Table => view::print(&answer, &args.request.title(), context.io.out, style)?,
        Format::Json => print_json(context.io.out, format, &answer)?,
        Format::Jsonl => json_list(context.io.out, format, &answer, &answer.rules)?,
        Format::Csv => view::lines(&answer, context.io.out)?,
    }
    if args.config.is_some() {
        context.note(FRESH)?;
    }
    if has_fleet {
        context.note(CENTRAL)?;
    }
    Ok(Outcome::Done)
}

/// A problem of the sample, named after the option that it came from.
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

/// The explanation of a request that is the first of all, by the rules of a file.
fn by_file(file: &RuleFile, sample: &Value) -> Result<ExplainAnswer> {
    let rules = file.rules.iter().cloned();
    let rules: RuleSet = rules
        .map(|rule| ActiveRule::new(rule, History::default()))
        .collect();
    // The clock does not matter to new buckets, so that the same input gives the same output.
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
