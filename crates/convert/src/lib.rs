//! Converts the limits of other rate limiters to a Loudou rule file. The input and the output are
//! strings, and the conversion accesses neither files nor the network.
//!
//! Each source format has a module that parses its input and adds rules to [`out::Out`]. If a rule
//! file cannot express a setting, the converter reports it as a warning and a comment, so no
//! setting is lost silently.
//!
//! [`model`] reimplements the algorithms of the sources, and [`mod@prove`] compares these with the
//! converted rules.
#![forbid(unsafe_code)]

use std::rc::Rc;

use loudou_check::document::{Kind, MAX_MANIFEST_BYTES, Position, read_foreign};
use loudou_rules::config::{MAX_FILE_BYTES, Severity};

mod actions;
mod conditions;
mod envoy;
mod gateway;
mod ingress;
mod kong;
mod locations;
pub mod model;
mod nginx;
mod number;
mod out;
pub mod prove;
mod redis_cell;
mod routes;
mod service;
mod spring;
mod write;
mod yaml;

use out::Out;
pub use out::{Place, Problem};
use yaml::At;

/// An input text to convert.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// Name of the text in messages and comments.
    pub name: &'a str,
    /// Content of the text, which need not be valid UTF-8.
    pub bytes: &'a [u8],
}

/// A converted rule file, with the warnings about the conversion.
#[derive(Clone, Debug)]
pub struct Converted {
    /// The rule file as YAML.
    pub text: String,
    /// Warnings about differences between the sources and the rule file, and about settings without
    /// a counterpart.
    pub warnings: Vec<Problem>,
    /// For each rule, in rule order, the limits of the source from which the rule was converted.
    pub counted: Vec<prove::Counted>,
}

/// Names of all supported sources, for error messages.
const SOURCES: &str = "Ingress objects with limits of ingress-nginx, an nginx.conf, an Envoy configuration with \
                       local_ratelimit, a file of Envoy's rate limit service, a BackendTrafficPolicy of Envoy Gateway, \
                       routes of Spring Cloud Gateway, a declarative file of Kong, or lines with CL.THROTTLE";

/// The input texts, grouped by source and parsed into the form that each module expects.
#[derive(Default)]
struct Found<'a> {
    nginx: Vec<(Rc<str>, &'a str)>,
    objects: Vec<At>,
    envoys: Vec<At>,
    services: Vec<At>,
    springs: Vec<At>,
    properties: Vec<(Rc<str>, &'a str)>,
    redis: Vec<(Rc<str>, &'a str)>,
    kongs: Vec<At>,
}

/// Converts all sources to one rule file. If there is no rule file, the error contains all
/// problems.
pub fn convert(sources: &[Source<'_>]) -> Result<Converted, Vec<Problem>> {
    let mut out = Out::default();
    let mut found = Found::default();
    let mut errors = Vec::new();
    for source in sources {
        if let Err(problem) = recognise(source, &mut found, &mut out) {
            errors.push(problem);
        }
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    let read = ingress::convert(&found.objects, &mut out)
        .and_then(|()| nginx::convert(&found.nginx, &mut out));
    if let Err(problem) = read {
        return Err(vec![problem]);
    }
    let routes = routes::Routes::of(found.envoys.iter().chain(&found.objects), &mut out);
    service::convert(&found.services, &routes, &mut out);
    for (file, text) in &found.properties {
        spring::properties(file, text, &mut out);
    }
    for document in &found.springs {
        spring::document(document, &mut out);
    }
    for (file, text) in &found.redis {
        redis_cell::convert(file, text, &mut out);
    }
    // Some of these rules have `stop: true`, so they come after the rules of all other sources.
    kong::convert(&found.kongs, &found.objects, &mut out);
    gateway::convert(&found.objects, &mut out);
    envoy::convert(&routes, !found.services.is_empty(), &mut out);
    out.finish()
}

/// Detects the source format of a text and adds the text to the inputs of that format.
fn recognise<'a>(source: &Source<'a>, found: &mut Found<'a>, out: &mut Out) -> Result<(), Problem> {
    let file: Rc<str> = source.name.into();
    let whole = || Place::new(&file, Position::default());
    let Ok(text) = str::from_utf8(source.bytes) else {
        return Err(Problem::error(whole(), "not UTF-8"));
    };
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if nginx::looks_like(text) || redis_cell::looks_like(text) || spring::looks_like(text) {
        if text.len() > MAX_FILE_BYTES {
            return Err(too_large(whole(), MAX_FILE_BYTES));
        }
        let texts = if nginx::looks_like(text) {
            &mut found.nginx
        } else if redis_cell::looks_like(text) {
            &mut found.redis
        } else {
            &mut found.properties
        };
        texts.push((file, text));
        return Ok(());
    }
    if text.len() > MAX_MANIFEST_BYTES {
        return Err(too_large(whole(), MAX_MANIFEST_BYTES));
    }
    let document = read_foreign(source.bytes).map_err(|fault| {
        let place = Place::new(&file, fault.position);
        Problem::error(place, &fault.message)
    })?;
    for fault in &document.faults {
        // Warnings are about words that Loudou and other YAML readers interpret differently. Limits
        // do not contain such words, so only errors are reported.
        if fault.severity == Severity::Error {
            out.note(&Place::new(&file, fault.position), &fault.message);
        }
    }
    yaml::note_octal(&file, text, out);
    let kind = document.kind;
    let root = At::root(Rc::clone(&file), document);
    if kind == Kind::Envoy {
        found.envoys.push(root);
        return Ok(());
    }
    for document in root.items() {
        if document.is_null() {
        } else if kong::looks_like(&document) {
            found.kongs.push(document);
        } else if document.get("apiVersion").exists() {
            found.objects.push(document);
        } else if document.get("domain").exists() && document.get("descriptors").exists() {
            found.services.push(document);
        } else if spring::looks_like_document(&document) {
            found.springs.push(document);
        } else {
            let message = format!("no known source of limits; expected {SOURCES}");
            return Err(Problem::error(document.place(), &message));
        }
    }
    Ok(())
}

fn too_large(place: Place, most: usize) -> Problem {
    Problem::error(place, &format!("larger than {} MiB", most >> 20))
}
