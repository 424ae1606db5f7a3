//! Wraps rules in the configuration of a proxy. The rules keep their text.

use loudou_check::form::Form;
use serde::Deserialize;

/// Rules, and the form that they get.
#[derive(Debug, Deserialize)]
pub(crate) struct Question {
    rules: String,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Envoy,
    WasmPlugin,
    ExtensionPolicy,
}

pub(crate) fn answer(question: &Question) -> String {
    let form = match question.kind {
        Kind::Envoy => Form::Envoy,
        Kind::WasmPlugin => Form::WasmPlugin,
        Kind::ExtensionPolicy => Form::EnvoyExtensionPolicy,
    };
    let rules: String = undivided(&question.rules)
        .flat_map(|line| [line, "\n"])
        .collect();
    form.around(&rules)
}

/// Returns the lines of a YAML text without a byte order mark, directives and the markers of documents. A manifest
/// contains the lines in its own document, which these markers would end.
fn undivided(text: &str) -> impl Iterator<Item = &str> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let is_marker = |line: &str| starts_with_marker(line).is_some();
    let directives = text.lines().take_while(|line| !is_marker(line));
    let has_directives = text.starts_with('%') && text.lines().any(is_marker);
    let skipped = if has_directives {
        directives.count()
    } else {
        0
    };
    text.lines()
        .skip(skipped)
        .filter_map(|line| match starts_with_marker(line) {
            Some("") => None,
            Some(rest) => Some(rest),
            None => Some(line),
        })
}

/// Returns the rest of a line that begins with the marker of a document, as in `--- # comment`.
fn starts_with_marker(line: &str) -> Option<&str> {
    let rest = line
        .strip_prefix("---")
        .or_else(|| line.strip_prefix("..."))?;
    let is_marker = rest.is_empty() || rest.starts_with([' ', '\t']);
    is_marker.then(|| rest.trim())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::rules_of;

    const RULES: &str = "version: 1\r\nstore: { buckets: 1024, namespace: shop }\nrules:\n# Each user.\n- name: a\n  key: [{ header: x-user-id }]\n\n  limits: [{ name: l, algorithm: funnel, capacity: 2, rate: 1/s }]\n";

    #[test]
    fn manifests_have_the_rules() {
        let expected = rules_of("rules.yaml", RULES).expect("valid");
        let heads = [
            "",
            "\u{feff}",
            "--- # rules\n",
            "%YAML 1.2\n# tenants\n--- \n",
            "\u{feff}---\n",
        ];
        for head in heads {
            for kind in [Kind::Envoy, Kind::WasmPlugin, Kind::ExtensionPolicy] {
                let rules = format!("{head}{RULES}... # end\n");
                let mut manifest = answer(&Question { rules, kind });
                if matches!(kind, Kind::Envoy) {
                    let lines = manifest.lines().map(|line| format!("  {line}\n"));
                    manifest = format!("http_filters:\n{}", lines.collect::<String>());
                }
                let found = rules_of("manifest.yaml", &manifest);
                let found =
                    found.unwrap_or_else(|problems| panic!("{head:?}: {problems:?} {manifest}"));
                assert_eq!(found, expected, "{manifest}");
                assert!(manifest.contains("# Each user."), "{manifest}");
            }
        }
    }
}
