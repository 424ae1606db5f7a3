//! Parses the plugin configuration, which contains a plugin's role and settings.
//!
//! The data role's configuration is a rule file, which may embed the admin API with the `admin`
//! field. The admin role's configuration contains the tokens in the `admin` field, and the data
//! role's `store.namespace`.

use loudou_rules::config::{self, JsonError, Parsed, Problem, Severity};
use loudou_rules::rule::RuleFile;
use serde_json::Value;

use crate::admin;
use crate::host::Host;
use crate::metrics;

mod structure;

/// A valid plugin configuration.
#[derive(Clone, Debug)]
pub enum Plugin {
    /// The data role, which limits requests and serves the admin API if it is embedded.
    Data(RuleFile, Option<admin::Embedded>),
    /// The admin role, which serves the admin API.
    Admin(admin::Settings),
}

impl Plugin {
    /// Returns the namespace of the shared data.
    pub fn namespace(&self) -> &str {
        match self {
            Self::Data(file, _) => &file.store.namespace,
            Self::Admin(settings) => admin::share(settings),
        }
    }

    /// Defines all metrics that the plugin may need, for hosts that only allow metric definitions
    /// while a plugin is being configured.
    pub fn define_metrics(&self, host: &dyn Host) {
        match self {
            Self::Data(file, _) => metrics::define_all(host, file),
            Self::Admin(settings) => metrics::define_admin(host, admin::share(settings)),
        }
    }
}

/// Parses a plugin configuration. Returns warnings or errors as log lines.
pub fn read(bytes: &[u8]) -> Result<(Plugin, Vec<String>), Vec<String>> {
    if bytes.len() > config::MAX_FILE_BYTES {
        let most = config::MAX_FILE_BYTES;
        return Err(vec![format!(
            "the configuration has {} bytes; allowed: {most}",
            bytes.len()
        )]);
    }
    let document = document(bytes)?;
    if config::is_admin(&document) {
        let settings = admin::role(&document);
        let settings = settings.map_err(|problems| lines(&problems))?;
        return Ok((Plugin::Admin(settings), Vec::new()));
    }
    let Parsed {
        file,
        admin,
        mut problems,
    } = config::parse(&document);
    let Some(file) = file else {
        problems.retain(|problem| problem.severity == Severity::Error);
        return Err(lines(&problems));
    };
    let admin = admin::embedded(admin).map_err(|problems| lines(&problems))?;
    Ok((Plugin::Data(file, admin), lines(&problems)))
}

/// Parses a plugin configuration that is either JSON (from a `StringValue` in Envoy's
/// configuration) or a protobuf `Struct` (from inline YAML).
fn document(bytes: &[u8]) -> Result<Value, Vec<String>> {
    config::parse_json(bytes).or_else(|error| match error {
        JsonError::Duplicates(problems) => Err(lines(&problems)),
        JsonError::Invalid(error) => structure::read_struct(bytes).ok_or_else(|| {
            let hint =
                "give the rule file as a google.protobuf.Struct, or as JSON in a StringValue";
            vec![format!("neither a Struct nor JSON ({error}); {hint}")]
        }),
    })
}

/// Formats problems as log lines.
fn lines(problems: &[Problem]) -> Vec<String> {
    problems.iter().map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(feature = "admin")]
    #[test]
    fn roles() {
        let data = br#"{"version":1,"rules":[]}"#;
        assert!(matches!(read(data), Ok((Plugin::Data(_, None), _))));
        let hash = "ab".repeat(32);
        let admin = format!(
            r#"{{"version":1,"admin":{{"role":"admin","tokens":[{{"name":"ops","sha256":"{hash}","may":"edit"}}]}}}}"#
        );
        let Ok((Plugin::Admin(settings), _)) = read(admin.as_bytes()) else {
            panic!("admin")
        };
        assert_eq!(settings.tokens[0].sha256, [0xab; 32]);
        let both = format!(
            r#"{{"version":1,"rules":[],"admin":{{"at":"/.loudou","tokens":[{{"name":"ops","sha256":"{hash}","may":"edit"}}]}}}}"#
        );
        let Ok((Plugin::Data(_, Some(admin)), _)) = read(both.as_bytes()) else {
            panic!("data with an admin API")
        };
        assert_eq!(admin.at, "/.loudou");
    }

    #[cfg(not(feature = "admin"))]
    #[test]
    fn the_api_is_refused_where_it_is_left_out() {
        let admin = br#"{"version":1,"admin":{"role":"admin","tokens":[]}}"#;
        let problems = read(admin).expect_err("no API");
        assert!(
            problems[0].starts_with("admin.role: \"admin\""),
            "{problems:?}"
        );
    }

    #[cfg(feature = "admin")]
    #[test]
    fn every_problem_is_reported() {
        let wrong = br#"{"version":2,"admin":{"rule":"admin","tokens":[{"name":"","sha256":"xyz","may":"all"}]}}"#;
        let problems = read(wrong).expect_err("wrong");
        assert_eq!(problems.len(), 6, "{problems:#?}");
        assert!(read(b"{").is_err());
        assert!(read(b"[]").is_err());
        assert!(read(br#"{"version":1,"rules":[{}]}"#).is_err());
    }

    #[test]
    fn duplicate_fields_are_refused() {
        let twice =
            br#"{"version":1,"rules":[{"name":"r","name":"s","key":[],"limits":[]}],"rules":[]}"#;
        assert_eq!(
            read(twice).expect_err("duplicates"),
            [
                "rules[0].name: duplicate field; allowed: each name once",
                "rules: duplicate field; allowed: each name once"
            ]
        );
    }
}
