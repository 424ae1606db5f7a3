//! The plugin configuration: which role this plugin has, and its settings.
//!
//! The data role's configuration is a rule file; the admin role's is `admin` with its tokens, and the
//! same `store.share`.

use loudou_api::Access;
use loudou_limiter::config::{self, Problem, Severity};
use loudou_limiter::rule::{RuleFile, StoreSettings};
use serde_json::Value;

mod structure;

/// A valid plugin configuration.
#[derive(Clone, Debug)]
pub enum Plugin {
    /// Limits requests.
    Data(RuleFile),
    /// Answers the admin API.
    Admin(AdminSettings),
}

/// The admin role's settings.
#[derive(Clone, Debug, Default)]
pub struct AdminSettings {
    /// Which share it looks at.
    pub store: StoreSettings,
    /// Who may do what; with none, loopback peers may do everything.
    pub tokens: Vec<Token>,
}

/// A token, known by its hash.
#[derive(Clone, Debug)]
pub struct Token {
    /// What events call whoever has it.
    pub name: String,
    /// SHA-256 of the token.
    pub sha256: [u8; 32],
    /// What it may do.
    pub may: Access,
}

/// Reads a plugin configuration; all problems as log lines, warnings in the first list.
pub fn read(bytes: &[u8]) -> Result<(Plugin, Vec<String>), Vec<String>> {
    if bytes.len() > config::MAX_FILE_BYTES {
        let most = config::MAX_FILE_BYTES;
        return Err(vec![format!(
            "the configuration has {} bytes; at most {most}",
            bytes.len()
        )]);
    }
    let document = document(bytes)?;
    if document.get("admin").is_some() {
        return admin(&document).map(|settings| (Plugin::Admin(settings), Vec::new()));
    }
    let parsed = config::parse(&document);
    let lines = |severity| -> Vec<String> {
        let chosen = parsed
            .problems
            .iter()
            .filter(|problem| problem.severity == severity);
        chosen.map(ToString::to_string).collect()
    };
    let warnings = lines(Severity::Warning);
    match parsed.file {
        Some(file) => Ok((Plugin::Data(file), warnings)),
        None => Err(lines(Severity::Error)),
    }
}

/// JSON text, as a `StringValue` carries it, or a `Struct`, as YAML in envoy.yaml becomes.
fn document(bytes: &[u8]) -> Result<Value, Vec<String>> {
    let as_json = serde_json::from_slice(bytes);
    as_json.or_else(|error| {
        structure::read_struct(bytes).ok_or_else(|| {
            let hint =
                "give the rule file as a google.protobuf.Struct, or as JSON in a StringValue";
            vec![format!("neither a Struct nor JSON ({error}); {hint}")]
        })
    })
}

fn admin(document: &Value) -> Result<AdminSettings, Vec<String>> {
    let mut problems = Vec::new();
    let mut settings = AdminSettings::default();
    let top: &[&str] = &["version", "store", "admin"];
    unknown_fields(document, "", top, &mut problems);
    if document
        .get("version")
        .and_then(Value::as_u64)
        .is_some_and(|version| version != 1)
    {
        problems.push("version: unknown; allowed: 1".to_owned());
    }
    if let Some(store) = document.get("store") {
        match config::parse_store(store) {
            Ok(store) => settings.store = store,
            Err(found) => problems.extend(
                found
                    .iter()
                    .map(|problem: &Problem| format!("store.{problem}")),
            ),
        }
    }
    let admin = document.get("admin").unwrap_or(&Value::Null);
    unknown_fields(admin, "admin.", &["role", "tokens"], &mut problems);
    if admin.get("role").and_then(Value::as_str) != Some("admin") {
        problems.push("admin.role: missing or unknown; allowed: admin".to_owned());
    }
    let tokens = admin.get("tokens").filter(|tokens| !tokens.is_null());
    match tokens.map(|tokens| tokens.as_array().ok_or(())) {
        None => {}
        Some(Err(())) => problems.push("admin.tokens: not a list".to_owned()),
        Some(Ok(list)) => read_tokens(list, &mut settings.tokens, &mut problems),
    }
    if problems.is_empty() {
        Ok(settings)
    } else {
        Err(problems)
    }
}

fn read_tokens(list: &[Value], tokens: &mut Vec<Token>, problems: &mut Vec<String>) {
    for (i, value) in list.iter().enumerate() {
        let at = format!("admin.tokens[{i}]");
        unknown_fields(
            value,
            &format!("{at}."),
            &["name", "sha256", "may"],
            problems,
        );
        let text = |field| value.get(field).and_then(Value::as_str);
        let name = text("name").filter(|name| {
            (1..=63).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_graphic())
        });
        let sha256 = text("sha256").and_then(hex32);
        let may = match text("may") {
            Some("view") => Some(Access::View),
            Some("edit") => Some(Access::Edit),
            _ => None,
        };
        if name.is_none() {
            problems.push(format!(
                "{at}.name: missing or not a name; allowed: 1 to 63 printable characters"
            ));
        }
        if sha256.is_none() {
            problems.push(format!("{at}.sha256: missing or not a hash; allowed: 64 hexadecimal digits, as `printf %s TOKEN | sha256sum` prints"));
        }
        if may.is_none() {
            problems.push(format!("{at}.may: missing or unknown; allowed: view, edit"));
        }
        if let (Some(name), Some(sha256), Some(may)) = (name, sha256, may) {
            tokens.push(Token {
                name: name.to_owned(),
                sha256,
                may,
            });
        }
    }
}

fn unknown_fields(value: &Value, at: &str, allowed: &[&str], problems: &mut Vec<String>) {
    let Some(map) = value.as_object() else {
        problems.push(format!(
            "{}: not an object",
            if at.is_empty() {
                "(the whole file)"
            } else {
                at.trim_end_matches('.')
            }
        ));
        return;
    };
    for name in map.keys().filter(|name| !allowed.contains(&name.as_str())) {
        let name = name.escape_default();
        problems.push(format!(
            "{at}{name}: unknown field; allowed: {}",
            allowed.join(", ")
        ));
    }
}

fn hex32(text: &str) -> Option<[u8; 32]> {
    let digits: Vec<u8> = text
        .chars()
        .map(|c| c.to_digit(16)?.try_into().ok())
        .collect::<Option<_>>()?;
    let pairs: Vec<u8> = digits
        .chunks_exact(2)
        .map(|pair| pair.iter().fold(0, |acc, d| acc << 4 | d))
        .collect();
    if digits.len() == 64 {
        pairs.try_into().ok()
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles() {
        let data = br#"{"version":1,"rules":[]}"#;
        assert!(matches!(read(data), Ok((Plugin::Data(_), _))));
        let hash = "ab".repeat(32);
        let admin = format!(
            r#"{{"version":1,"admin":{{"role":"admin","tokens":[{{"name":"ops","sha256":"{hash}","may":"edit"}}]}}}}"#
        );
        let Ok((Plugin::Admin(settings), _)) = read(admin.as_bytes()) else {
            panic!("admin")
        };
        assert_eq!(settings.tokens[0].sha256, [0xab; 32]);
    }

    #[test]
    fn every_problem_is_told() {
        let wrong = br#"{"version":2,"admin":{"rule":"admin","tokens":[{"name":"","sha256":"xyz","may":"all"}]}}"#;
        let problems = read(wrong).expect_err("wrong");
        assert_eq!(problems.len(), 6, "{problems:#?}");
        assert!(read(b"{").is_err());
        assert!(read(b"[]").is_err());
        assert!(read(br#"{"version":1,"rules":[{}]}"#).is_err());
    }
}
