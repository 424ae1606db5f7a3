//! Options and output of `loudou replay --suggest`.

use anyhow::{Result, bail};
use clap::Args;
use loudou_check::document;
use loudou_limiter::{RATE_FORM, Rate};
use loudou_print::replay::RuleText;
use loudou_print::replay::suggest::Suggested;
use loudou_replay::suggest::{Candidates, MOST_CAPACITIES, MOST_RATES, Share, Suggestion};
use loudou_rules::rule::RuleFile;
use loudou_words::num::typed;
use loudou_words::text::escape;

use crate::cli::check::rules_of_text;
use crate::cli::context::Context;
use crate::cli::options::Format;
use crate::cli::world::{Usage, json as print_json};

/// Prints the suggested limits in the output format that the user chose.
pub(super) fn print(
    context: &mut Context<'_, '_>,
    (name, text): (String, RuleText),
    found: &Suggestion,
    bound: Share,
) -> Result<()> {
    let suggested = Suggested::new(found, bound);
    if context.is_html() {
        let page = suggested.page(&name, &[text]);
        return Ok(context.io.out.write_all(page.as_bytes())?);
    }
    let (format, style) = (context.format(), context.style);
    match format {
        Format::Table => suggested.print(context.io.out, style)?,
        Format::Json | Format::Jsonl => {
            print_json(context.io.out, format, &suggested.document())?;
        }
        Format::Csv => {
            suggested.csv(context.io.out)?;
            for warning in &found.warnings {
                context.note(&format!("warning: {}", escape(warning)))?;
            }
        }
    }
    Ok(())
}

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
    /// Checks the options that describe a rule without a rule file. These checks are not left to
    /// clap. Its error messages would suggest combinations of options that it then rejects, and it
    /// stops requiring an option once a conflicting option is given.
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
        let Candidates {
            mut rates,
            mut capacities,
        } = Candidates::default();
        if !self.rates.is_empty() {
            rates.clone_from(&self.rates);
        }
        if !self.capacities.is_empty() {
            capacities.clone_from(&self.capacities);
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

    /// Returns the rule that `--key` and `--match` describe. If the rule has problems, prints them
    /// and returns `None`.
    pub(crate) fn rules(
        &self,
        context: &mut Context<'_, '_>,
    ) -> Result<Option<(RuleText, RuleFile)>> {
        let line = |text: &str| text.replace(['\n', '\r'], " ");
        let matches = self.matches.iter().map(|text| ("--match", text));
        let parts = self.parts.iter().map(|part| ("--key", part));
        for (option, text) in matches.chain(parts) {
            // Each option is parsed separately, so that an error names the option with the mistake,
            // and not a later line of the generated rule file.
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
