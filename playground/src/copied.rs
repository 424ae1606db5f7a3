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
    // A manifest is one document, in which these markers would begin and end another one.
    let is_marker = |line: &&str| matches!(line.trim_end(), "---" | "...");
    let lines = question.rules.lines().filter(|line| !is_marker(line));
    let rules: String = lines.flat_map(|line| [line, "\n"]).collect();
    form.around(&rules)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::rules_of;

    const RULES: &str = "---\r\nversion: 1\r\nstore: { buckets: 1024, namespace: shop }\nrules:\n# Each user.\n- name: a\n  key: [{ header: x-user-id }]\n\n  limits: [{ name: l, algorithm: funnel, capacity: 2, rate: 1/s }]\n";

    #[test]
    fn manifests_have_the_rules() {
        let expected = rules_of("rules.yaml", RULES).expect("valid");
        for kind in [Kind::Envoy, Kind::WasmPlugin, Kind::ExtensionPolicy] {
            let rules = RULES.to_owned();
            let mut manifest = answer(&Question { rules, kind });
            if matches!(kind, Kind::Envoy) {
                let lines = manifest.lines().map(|line| format!("  {line}\n"));
                manifest = format!("http_filters:\n{}", lines.collect::<String>());
            }
            let found = rules_of("manifest.yaml", &manifest).expect("valid");
            assert_eq!(found, expected, "{manifest}");
            assert!(manifest.contains("# Each user."), "{manifest}");
        }
    }
}
