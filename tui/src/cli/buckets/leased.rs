//! `loudou get --fleet`: a bucket that a fleet shares, as far as one Envoy knows it.

use std::io::{self, Write};

use anyhow::{Result, anyhow, bail};
use loudou_api::{BucketView, FleetStatus, LeaseView, LimitView, OutageView, Status};
use serde::Serialize;

use crate::cli::context::Context;
use crate::cli::options::Format;
use crate::cli::table::{Cell, Paint, csv, named};
use crate::cli::world::{Style, json};
use loudou_client::{Client, ClientError};
use loudou_words::meaning::leased::{answered, denied, down, envoys, heard, left, outage};
use loudou_words::text::escape;

/// A shared bucket as one Envoy knows it.
#[derive(Serialize)]
struct Leased<'a> {
    rule: &'a str,
    key: &'a str,
    /// The server's clock.
    now_ns: u64,
    lease: LeaseView,
    #[serde(skip_serializing_if = "Option::is_none")]
    outage: Option<OutageView>,
    fleet: FleetStatus,
    #[serde(skip)]
    limits: Vec<LimitView>,
}

/// Prints what this Envoy leased of a bucket, and what is left for all.
pub(super) fn get(context: &mut Context<'_, '_>, rule: &str, key: &str) -> Result<()> {
    let client = context.client()?;
    let (lease, limits, outage) = match client.bucket(rule, key) {
        Ok(BucketView {
            lease: Some(lease),
            limits,
            outage,
            ..
        }) => (lease, limits, outage),
        Ok(BucketView {
            outage: Some(out), ..
        }) => {
            let (rule, key, out) = (escape(rule), escape(key), outage(out));
            bail!("{key} of {rule} has no lease here; {out}; leave out --fleet to see its bucket");
        }
        Ok(_) => return Err(unknown(&client, (rule, key), None)?),
        Err(error) if error.status() == Some(404) => {
            return Err(unknown(&client, (rule, key), Some(&error))?);
        }
        Err(error) => return Err(error.into()),
    };
    let Status { now_ns, fleet, .. } = client.status()?;
    let leased = Leased {
        rule,
        key,
        now_ns,
        lease,
        outage,
        fleet: fleet.unwrap_or_default(),
        limits,
    };
    let format = context.format();
    match format {
        Format::Table => leased.lines(context.style, context.io.out)?,
        Format::Json | Format::Jsonl => json(context.io.out, format, &leased)?,
        Format::Csv => leased.records(context.io.out)?,
    }
    Ok(())
}

impl Leased<'_> {
    fn lines(&self, style: Style, out: &mut dyn Write) -> io::Result<()> {
        let (now, lease) = (self.now_ns, &self.lease);
        let left = left(lease, &self.limits);
        let left = format!("{left} for all Envoys, {}", heard(lease, Some(now)));
        let mut lines = vec![
            ("rule", Cell::new(self.rule)),
            ("key", Cell::new(self.key)),
            ("leased here", lease.tokens.into()),
            ("left centrally", left.into()),
        ];
        if lease.debt > 0 {
            let debt = format!("{}, which passed on credit", lease.debt);
            lines.push(("not charged yet", debt.into()));
        }
        let warning = match self.outage {
            Some(out) => Some(("outage", outage(out))),
            None => denied(lease, Some(now)).map(|text| ("denied", text)),
        };
        lines.extend(warning.map(|(name, text)| (name, Cell::from(text).paint(Paint::Warn))));
        lines.push(("fleet", fleet(&self.fleet, now)));
        named(&lines, style, out)
    }

    /// One record per limit.
    fn records(&self, out: &mut dyn Write) -> io::Result<()> {
        let heading =
            "rule,key,now_ns,tokens,limit,left,heard_ns,debt,denied_until_ns,envoys,outage";
        csv(out, heading.split(','))?;
        let lease = &self.lease;
        let until = lease.denied_until_ns.map(|until| until.to_string());
        for (limit, left) in self.limits.iter().zip(&lease.left) {
            let record = [
                self.rule.to_owned(),
                self.key.to_owned(),
                self.now_ns.to_string(),
                lease.tokens.to_string(),
                limit.name.clone(),
                left.to_string(),
                lease.heard_ns.to_string(),
                lease.debt.to_string(),
                until.clone().unwrap_or_default(),
                self.fleet.envoys.to_string(),
                self.outage.map_or("", OutageView::name).to_owned(),
            ];
            csv(out, record.iter().map(String::as_str))?;
        }
        Ok(())
    }
}

/// How many Envoys there are, when the relay answered, and the workers that decide alone.
pub(in crate::cli) fn fleet(fleet: &FleetStatus, now_ns: u64) -> Cell {
    let answer = answered(fleet, now_ns).map_or_else(
        || "the relay has not answered yet".to_owned(),
        |ago| format!("{}; last answer {ago}", envoys(fleet)),
    );
    match down(fleet) {
        None => answer.into(),
        Some(down) => {
            Cell::from(format!("{answer}; {down}, decided by fleet.on_outage")).paint(Paint::Warn)
        }
    }
}

/// The reason why a key has no lease here, and what to do.
fn unknown(
    client: &Client,
    (rule, key): (&str, &str),
    none: Option<&ClientError>,
) -> Result<anyhow::Error> {
    let view = client.rule(rule)?;
    let (rule, key) = (escape(rule), escape(key));
    if view.rule.get("scope").and_then(serde_json::Value::as_str) != Some("fleet") {
        return Ok(anyhow!(
            "no fleet shares the buckets of {rule}: each Envoy has its own; leave out --fleet to see the one here, \
             or set `scope: fleet` in the rule file"
        ));
    }
    Ok(match none {
        Some(error) => anyhow!(
            "{error}; send a request with this key through this Envoy, or ask another one with --url"
        ),
        None => anyhow!(
            "{key} of {rule} has no lease here: the relay has not answered for it; its next request asks, and \
             `loudou status` shows whether the relay answers"
        ),
    })
}
