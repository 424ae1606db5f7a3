//! Describes a valid file, in words for people and as JSON for programs.

use std::collections::BTreeMap;
use std::io::{self, Write};

use loudou_api::RuleProblem;
use loudou_limiter::Limits;
use loudou_rules::config::{self, Access, AdminSettings, EmbeddedAdmin};
use loudou_rules::rule::{FleetSettings, OnOutage, Override, Rule, RuleFile};
use loudou_rules::size::{self, Memory};
use serde::Serialize;

use crate::Report;
use loudou_words::meaning::{self, Sharing};
use loudou_words::text::{bytes, escape};

/// Contents of a valid file.
#[derive(Debug)]
pub enum Content {
    /// Rules, with the admin API that the plugin embeds, if any.
    Rules(RuleFile, Option<EmbeddedAdmin>),
    /// Settings of a plugin that only serves the admin API.
    Admin(AdminSettings),
}

/// Report on one file, printed as JSON.
#[derive(Debug, Serialize)]
pub struct FileReport {
    file: String,
    /// Object, listener, filter and role, if the file is for Envoy or Kubernetes.
    #[serde(skip_serializing_if = "Option::is_none")]
    filter: Option<String>,
    valid: bool,
    problems: Vec<RuleProblem>,
    #[serde(skip_serializing_if = "Option::is_none")]
    store: Option<StoreReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fleet: Option<FleetReport>,
    /// Upper bound on the time that the regular expressions of all rules take for one request.
    #[serde(skip_serializing_if = "Option::is_none")]
    regex_worst_ns: Option<usize>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    rules: Vec<RuleReport>,
}

#[derive(Debug, Serialize)]
struct StoreReport {
    buckets: u32,
    /// Memory shared by all workers when every bucket is in use and keys have a typical length.
    memory_bytes: u64,
    /// Memory shared by all workers when every bucket is in use, keys have the maximum length, and
    /// all keys are banned.
    memory_bytes_at_most: u64,
    /// Additional memory for each worker.
    memory_bytes_per_worker: u64,
    /// Additional memory for each worker that holds the maximum number of requests.
    memory_bytes_held_per_worker: u64,
}

/// Fleet settings, without the token.
#[derive(Debug, Serialize)]
struct FleetReport {
    cluster: String,
    lease_ns: u64,
    timeout_ns: u64,
    credit: u32,
    on_outage: OnOutage,
    has_token: bool,
}

#[derive(Debug, Serialize)]
struct RuleReport {
    name: String,
    mode: &'static str,
    /// Description of the requests that the rule matches.
    requests: String,
    /// Description of the effect of the rule's limits.
    meaning: String,
    notes: Vec<String>,
    /// Description of how the fleet shares the rule's buckets, if the rule is shared.
    #[serde(skip_serializing_if = "Option::is_none")]
    fleet: Option<Sharing>,
    /// Scaled limits for each override that scales the limits, by key pattern.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    scaled: BTreeMap<String, Limits>,
    /// Memory for one bucket, including its state.
    bucket_bytes: usize,
    state_bytes: usize,
}

impl FileReport {
    /// Creates the JSON report. `content` is `None` if the file is invalid.
    pub fn new(report: &Report, content: Option<&Content>) -> Self {
        let file = match content {
            Some(Content::Rules(file, _)) => Some(file),
            _ => None,
        };
        let rules = file.map(|file| {
            let fleet = file.fleet.as_ref();
            let rules = file.rules.iter();
            rules.map(|rule| RuleReport::new(rule, fleet)).collect()
        });
        Self {
            file: report.file().to_owned(),
            filter: report.filter().map(str::to_owned),
            valid: content.is_some(),
            problems: report.problems().map(|problem| problem.problem).collect(),
            store: file.map(StoreReport::new),
            fleet: file
                .and_then(|file| file.fleet.as_ref())
                .map(FleetReport::new),
            regex_worst_ns: file
                .map(|file| config::worst_ns(&file.rules))
                .filter(|worst| *worst > 0),
            rules: rules.unwrap_or_default(),
        }
    }
}

impl StoreReport {
    fn new(file: &RuleFile) -> Self {
        let Memory {
            full,
            most,
            worker,
            held,
        } = size::memory(file);
        Self {
            buckets: file.store.buckets,
            memory_bytes: full,
            memory_bytes_at_most: most,
            memory_bytes_per_worker: worker,
            memory_bytes_held_per_worker: held,
        }
    }
}

impl FleetReport {
    fn new(fleet: &FleetSettings) -> Self {
        Self {
            cluster: fleet.cluster.clone(),
            lease_ns: fleet.lease.get(),
            timeout_ns: fleet.timeout.get(),
            credit: fleet.credit,
            on_outage: fleet.on_outage,
            has_token: fleet.token.is_some(),
        }
    }
}

impl RuleReport {
    fn new(rule: &Rule, fleet: Option<&FleetSettings>) -> Self {
        let scaled = |(pattern, value): (_, &_)| match value {
            Override::Scale(scale) => Some((pattern, config::scaled(&rule.limits, *scale)?)),
            _ => None,
        };
        Self {
            name: rule.name.clone(),
            mode: rule.mode.name(),
            requests: meaning::requests(&rule.matches),
            meaning: meaning::limits(rule).join("; "),
            notes: meaning::notes(rule),
            fleet: meaning::sharing(rule, fleet),
            scaled: rule.overrides.iter().filter_map(scaled).collect(),
            bucket_bytes: size::bucket_bytes_of(rule),
            state_bytes: rule.limits.largest().state_bytes(),
        }
    }
}

/// Prints a description of a valid file, in words.
pub fn describe(name: &str, content: &Content, out: &mut dyn Write) -> io::Result<()> {
    match content {
        Content::Rules(file, admin) => {
            limits(name, file, out)?;
            if let Some(admin) = admin {
                let at = &admin.at;
                writeln!(out, "  admin API at {at}, on loopback:")?;
                tokens(&admin.settings, "    ", out)?;
            }
            rules(file, out)
        }
        Content::Admin(settings) => admin(name, settings, out),
    }
}

fn count(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// Prints the number of rules and limits, the memory needs and the fleet settings of a rule file.
fn limits(name: &str, file: &RuleFile, out: &mut dyn Write) -> io::Result<()> {
    let limits = file.rules.iter().map(|rule| rule.limits.iter().len()).sum();
    let (name, rules) = (escape(name), count(file.rules.len(), "rule"));
    writeln!(out, "{name}: valid: {rules}, {}", count(limits, "limit"))?;
    let Memory {
        full,
        most,
        worker,
        held,
    } = size::memory(file);
    let (full, most, worker) = (bytes(full), bytes(most), bytes(worker));
    writeln!(out, "  store: up to {} buckets", file.store.buckets)?;
    writeln!(
        out,
        "  memory: about {full} shared by all workers when full (at most {most}), and {worker} per worker"
    )?;
    let worst = config::worst_ns(&file.rules);
    if worst > 0 {
        let micros = worst.div_ceil(1_000);
        writeln!(
            out,
            "  regular expressions: at most {micros} µs of a worker for one request"
        )?;
    }
    if held > 0 {
        let (held, requests) = (bytes(held), file.store.waiting.requests);
        writeln!(
            out,
            "  held: up to {held} and {requests} requests per worker"
        )?;
    }
    if let Some(fleet) = &file.fleet {
        writeln!(out, "  fleet: {}", escape(&of_fleet(fleet)))?;
    }
    Ok(())
}

fn rules(file: &RuleFile, out: &mut dyn Write) -> io::Result<()> {
    for rule in &file.rules {
        let requests = meaning::requests(&rule.matches);
        writeln!(out, "\n  {}: {}", rule.name, escape(&requests))?;
        for (index, line) in meaning::limits(rule).iter().enumerate() {
            let indent = if index == 0 { "    " } else { "      " };
            writeln!(out, "{indent}{}", escape(line))?;
        }
        let sharing = meaning::sharing(rule, file.fleet.as_ref());
        for line in sharing.iter().flat_map(|sharing| &sharing.meaning) {
            let indent = if line.starts_with("and ") {
                "      "
            } else {
                "    "
            };
            writeln!(out, "{indent}{}", escape(line))?;
        }
        for note in meaning::notes(rule) {
            writeln!(out, "    {}", escape(&note))?;
        }
        let bytes = size::bucket_bytes_of(rule);
        writeln!(out, "    a bucket takes up to {bytes} bytes")?;
    }
    Ok(())
}

/// Returns a one-line description of the fleet settings.
fn of_fleet(fleet: &FleetSettings) -> String {
    let token = match fleet.token {
        Some(_) => "with a token",
        None => "without a token",
    };
    let FleetSettings {
        cluster,
        lease,
        timeout,
        credit,
        ..
    } = fleet;
    format!(
        "the relay is cluster {cluster}, {token}; leases of {lease}, calls of at most {timeout}, credit {credit}"
    )
}

fn admin(name: &str, settings: &AdminSettings, out: &mut dyn Write) -> io::Result<()> {
    let (name, share) = (escape(name), &settings.store.namespace);
    writeln!(
        out,
        "{name}: valid: an admin listener for namespace {share}"
    )?;
    if settings.tokens.is_empty() {
        writeln!(
            out,
            "  no tokens: clients on the loopback interface may view and edit, all others are refused"
        )?;
    }
    tokens(settings, "  ", out)
}

fn tokens(settings: &AdminSettings, indent: &str, out: &mut dyn Write) -> io::Result<()> {
    for token in &settings.tokens {
        let may = match token.may {
            Access::View => "view",
            Access::Edit => "view and edit",
        };
        writeln!(out, "{indent}{} may {may}", token.name)?;
    }
    Ok(())
}
