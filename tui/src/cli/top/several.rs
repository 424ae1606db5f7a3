//! `loudou top` as a list over several Envoys: their counts in one list, with the sum and a column for each Envoy.

use std::io::{self, Write};

use anyhow::Error;
use loudou_api::{MAX_TOP, Top, TopBy};
use serde::{Serialize, Serializer};

use super::column;
use crate::cli::at_each::{Failures, named};
use crate::cli::context::{Context, TIMEOUT};
use crate::cli::failed;
use crate::cli::options::Format;
use crate::cli::outcome::Outcome;
use crate::cli::table::{Cell, Paint, Set, TextTable, csv};
use crate::cli::target::Address;
use crate::cli::targets;
use crate::cli::world::json_list;
use crate::short_names::short_names;
use loudou_client::merged_top::{MergedRow, MergedTop, merged};
use loudou_client::{Client, TopQuery};
use loudou_words::meaning::refusals;
use loudou_words::num::count;
use loudou_words::text::{counted, escape, humanise};

/// The answers of several Envoys, and their list.
struct Several<'a> {
    by: TopBy,
    urls: Vec<&'a str>,
    /// In the order of the addresses; `None` for an Envoy that did not answer.
    tops: Vec<Option<Top>>,
    list: MergedTop,
}

/// Lists what all Envoys counted. Those that do not answer are reported; if none does, that is an error.
pub(super) fn list(
    context: &mut Context<'_, '_>,
    query: &TopQuery,
    addresses: &[Address],
) -> anyhow::Result<Outcome> {
    let clients = targets::clients(context, addresses, TIMEOUT)?;
    // What is far down at each Envoy may be the first of all: the limit is for the sums.
    let all = TopQuery {
        limit: Some(MAX_TOP),
        ..query.clone()
    };
    let (mut tops, mut errors) = (Vec::new(), Vec::new());
    for client in &clients {
        let answer = client.top(&all);
        let url = escape(client.url()).into_owned();
        tops.push(match answer {
            Ok(top) => Some(top),
            Err(error) => {
                errors.push((named(error.into(), &url), url));
                None
            }
        });
    }
    if errors.len() == clients.len() {
        return Err(first(errors, context));
    }
    let mut list = merged(&tops.iter().map(Option::as_ref).collect::<Vec<_>>());
    list.rows
        .truncate(query.limit.unwrap_or(loudou_api::DEFAULT_TOP));
    let several = Several {
        by: query.by.unwrap_or_default(),
        urls: clients.iter().map(Client::url).collect(),
        tops,
        list,
    };
    several.print(context)?;
    several.note(context)?;
    let mut failures = Failures::default();
    for (error, url) in errors {
        failures.add(url, failed(&error, context.io));
    }
    failures.end(context, clients.len())
}

/// The first of several errors, after a report of the others.
fn first(errors: Vec<(Error, String)>, context: &mut Context<'_, '_>) -> Error {
    let mut errors = errors.into_iter().map(|(error, _)| error);
    let first = errors.next();
    for error in errors {
        failed(&error, context.io);
    }
    first.unwrap_or_else(|| Error::msg("no Envoy answered"))
}

impl Several<'_> {
    fn print(&self, context: &mut Context<'_, '_>) -> io::Result<()> {
        let (format, style) = (context.format(), context.style);
        let out = &mut *context.io.out;
        match format {
            Format::Table => {
                writeln!(out, "{}", self.heading())?;
                self.table().print(out, style)
            }
            Format::Json | Format::Jsonl => {
                let document = self.document();
                json_list(out, format, &document, &document.top)
            }
            Format::Csv => self.lines(out),
        }
    }

    /// Reports the bound of keys without a row.
    fn note(&self, context: &mut Context<'_, '_>) -> io::Result<()> {
        let (by, most) = (self.by.name(), self.list.missing_at_most);
        if most == 0 {
            return Ok(());
        }
        context.note(&format!(
            "more keys than the answers have: a key in none of them was {by} at most {most} times"
        ))
    }

    fn answers(&self) -> impl Iterator<Item = (&str, &Top)> {
        let answers = self.urls.iter().zip(&self.tops);
        answers.filter_map(|(url, top)| Some((*url, top.as_ref()?)))
    }

    /// The kind of count, the time span, and the numbers of Envoys and of keys.
    fn heading(&self) -> String {
        let windows = || self.answers().map(|(_, top)| top.window_ns);
        let [shortest, longest] =
            [windows().min(), windows().max()].map(|window| humanise(window.unwrap_or(0)));
        let window = if shortest == longest {
            longest
        } else {
            format!("{shortest} to {longest}")
        };
        let envoys = counted(count(self.tops.len()), "Envoy");
        let answered = self.answers().count();
        let of = if answered == self.tops.len() {
            String::new()
        } else {
            format!("{answered} of ")
        };
        let least = if self.list.has_more { "at least " } else { "" };
        let keys = counted(self.list.keys, "key");
        let by = self.by.name();
        format!("most {by} in the last {window} at {of}{envoys}, of {least}{keys}")
    }

    fn table(&self) -> TextTable {
        let rows = &self.list.rows;
        let (sum, paint) = column(self.by);
        let mut columns = vec![
            ("RULE", Set::Shrink),
            ("KEY", Set::Shrink),
            (sum, Set::Right),
        ];
        let is_exact = rows.iter().all(|row| row.error == 0);
        if !is_exact {
            columns.push(("AT LEAST", Set::Right));
        }
        let any_shadow = rows.iter().any(|row| row.shadow);
        if any_shadow {
            columns.push(("MODE", Set::Left));
        }
        let names = short_names(&self.urls).into_iter();
        let names: Vec<String> = names.map(|name| escape(&name).into_owned()).collect();
        columns.extend(names.iter().map(|name| (name.as_str(), Set::Right)));
        let mut table = TextTable::new(&columns);
        for row in rows {
            let would = row.shadow && self.by == TopBy::Refused;
            let paint = if would { Paint::Warn } else { paint };
            let mut cells = vec![
                row.rule.as_str().into(),
                row.key.as_str().into(),
                Cell::from(refusals(row.sum, would)).paint(paint),
            ];
            if !is_exact {
                cells.push(row.sum.saturating_sub(row.error).into());
            }
            if any_shadow {
                cells.push(if row.shadow { "shadow" } else { "" }.into());
            }
            let counts = row.counts.iter().zip(&self.tops);
            cells.extend(counts.map(|(count, top)| match (count, top) {
                (Some(count), _) => Cell::from(refusals(*count, would)),
                (None, Some(_)) => Cell::from(""),
                // Unknown, and not none.
                (None, None) => Cell::from("?"),
            }));
            table.row(cells);
        }
        table
    }

    fn document(&self) -> Document<'_> {
        Document {
            by: self.by,
            envoys: self
                .answers()
                .map(|(url, top)| Answered {
                    url,
                    generation: top.generation,
                    window_ns: top.window_ns,
                    keys: top.keys,
                    missing_at_most: top.missing_at_most,
                })
                .collect(),
            failed: self
                .urls
                .iter()
                .zip(&self.tops)
                .filter_map(|(url, top)| top.is_none().then_some(*url))
                .collect(),
            top: self.list.rows.iter().map(|row| self.row(row)).collect(),
            keys: self.list.keys,
            has_more: self.list.has_more,
            missing_at_most: self.list.missing_at_most,
        }
    }

    fn row<'a>(&'a self, row: &'a MergedRow) -> Row<'a> {
        let counts = self.urls.iter().zip(&self.tops).zip(&row.counts);
        Row {
            rule: &row.rule,
            key: &row.key,
            count: row.sum,
            error: row.error,
            shadow: row.shadow,
            counts: counts
                .filter_map(|((url, top), count)| top.is_some().then_some((*url, *count)))
                .collect(),
        }
    }

    fn lines(&self, out: &mut dyn Write) -> io::Result<()> {
        let columns = ["rule", "key", "count", "error", "shadow"];
        csv(out, columns.into_iter().chain(self.urls.iter().copied()))?;
        for row in &self.list.rows {
            let mut record = vec![
                row.rule.clone(),
                row.key.clone(),
                row.sum.to_string(),
                row.error.to_string(),
                row.shadow.to_string(),
            ];
            let counts = row.counts.iter();
            record.extend(counts.map(|count| count.map(|n| n.to_string()).unwrap_or_default()));
            csv(out, record.iter().map(String::as_str))?;
        }
        Ok(())
    }
}

/// The list as JSON.
#[derive(Serialize)]
struct Document<'a> {
    by: TopBy,
    envoys: Vec<Answered<'a>>,
    /// The addresses of the Envoys that did not answer.
    failed: Vec<&'a str>,
    top: Vec<Row<'a>>,
    keys: u64,
    has_more: bool,
    missing_at_most: u64,
}

/// An Envoy that answered, with the fields of its answer.
#[derive(Serialize)]
struct Answered<'a> {
    url: &'a str,
    generation: u64,
    window_ns: u64,
    keys: u64,
    missing_at_most: u64,
}

/// A row, with the fields of a key of one Envoy.
#[derive(Serialize)]
struct Row<'a> {
    rule: &'a str,
    key: &'a str,
    count: u64,
    error: u64,
    shadow: bool,
    /// The counts by address, of the Envoys that answered.
    #[serde(serialize_with = "by_address")]
    counts: Vec<(&'a str, Option<u64>)>,
}

/// A map in the order of the addresses.
fn by_address<S: Serializer>(counts: &[(&str, Option<u64>)], out: S) -> Result<S::Ok, S::Error> {
    out.collect_map(counts.iter().copied())
}
