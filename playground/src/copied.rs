//! Wraps rules in the manifest of a proxy: Envoy's HTTP filter, Istio's `WasmPlugin`, or Envoy Gateway's
//! `EnvoyExtensionPolicy`. The rules keep their text.

use serde::Deserialize;

const ENVOY: &str = include_str!("copied/envoy.yaml");
const ISTIO: &str = include_str!("copied/wasm-plugin.yaml");
const GATEWAY: &str = include_str!("copied/extension-policy.yaml");

/// Line of a manifest that the rules replace.
const RULES: &str = "RULES";

/// Rules, and the kind of manifest.
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

pub(crate) fn answer(question: Question) -> Result<String, String> {
    let manifest = match question.kind {
        Kind::Envoy => ENVOY,
        Kind::WasmPlugin => ISTIO,
        Kind::ExtensionPolicy => GATEWAY,
    };
    let is_marker = |line: &&str| matches!(line.trim_end(), "---" | "...");
    let rules = question.rules.replace("\r\n", "\n");
    let rules: Vec<&str> = rules.lines().filter(|line| !is_marker(line)).collect();
    let mut lines = Vec::new();
    for line in manifest.lines() {
        let Some(indent) = line.strip_suffix(RULES) else {
            lines.push(line.to_owned());
            continue;
        };
        lines.extend(rules.iter().map(|rule| {
            if rule.is_empty() {
                String::new()
            } else {
                format!("{indent}{rule}")
            }
        }));
    }
    Ok(lines.join("\n") + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::rules_of;

    const RULES: &str = "---\nversion: 1\nstore: { buckets: 1024, namespace: shop }\nrules:\n# Each user.\n- name: a\n  key: [{ header: x-user-id }]\n\n  limits: [{ name: l, algorithm: funnel, capacity: 2, rate: 1/s }]\n";

    #[test]
    fn manifests_have_the_rules() {
        let rules = rules_of("rules.yaml", RULES).expect("valid");
        for kind in [Kind::Envoy, Kind::WasmPlugin, Kind::ExtensionPolicy] {
            let rules_text = RULES.to_owned();
            let manifest = answer(Question {
                rules: rules_text,
                kind,
            })
            .expect("a manifest");
            let found = rules_of("manifest.yaml", &manifest).expect("valid");
            assert_eq!(found, rules, "{manifest}");
            assert!(manifest.contains("# Each user."), "{manifest}");
        }
    }
}
