//! Embeds a rule file in an Envoy filter configuration or a Kubernetes manifest.
//!
//! The example files in the repository serve as templates, so the output always matches the
//! examples.

/// Kind of configuration in which a rule file is embedded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// An entry of `http_filters` in an Envoy configuration.
    Envoy,
    /// An Istio `WasmPlugin`.
    WasmPlugin,
    /// A `TrafficExtension` for Istio 1.30 and newer.
    TrafficExtension,
    /// An Envoy Gateway `EnvoyExtensionPolicy`.
    EnvoyExtensionPolicy,
}

impl Form {
    /// Returns the example file that serves as the template.
    const fn example(self) -> &'static str {
        match self {
            Self::Envoy => include_str!("../../../envoy/quickstart/envoy.yaml"),
            Self::WasmPlugin => include_str!("../../../envoy/istio/gateway/wasm-plugin.yaml"),
            Self::TrafficExtension => {
                include_str!("../../../envoy/istio/traffic-extension/traffic-extension.yaml")
            }
            Self::EnvoyExtensionPolicy => {
                include_str!("../../../envoy/envoy-gateway/policy/extension-policy.yaml")
            }
        }
    }

    /// Returns a configuration that contains `rules`, a rule file as YAML in block style. The
    /// example's own rules and its admin role are omitted.
    pub fn around(self, rules: &str) -> String {
        // Skip the comment at the start, because it describes the example.
        let lines = self.example().lines();
        let mut lines: Vec<&str> = lines.skip_while(|line| line.starts_with('#')).collect();
        if self == Self::Envoy {
            lines = filter(&lines);
        }
        let mut out = String::new();
        let mut lines = lines.into_iter().peekable();
        while let Some(line) = lines.next() {
            if line.trim() != "version: 1" {
                push(&mut out, line);
                continue;
            }
            let indent = line.len().saturating_sub(line.trim_start().len());
            let margin = " ".repeat(indent);
            for rule in rules.lines() {
                if rule.is_empty() {
                    push(&mut out, "");
                } else {
                    push(&mut out, &format!("{margin}{rule}"));
                }
            }
            while lines.next_if(|line| is_inside(line, indent)).is_some() {}
        }
        out
    }
}

fn push(out: &mut String, line: &str) {
    out.push_str(line);
    out.push('\n');
}

/// Returns true if a line is blank or indented by at least `indent` characters.
fn is_inside(line: &str, indent: usize) -> bool {
    line.trim().is_empty() || line.len().saturating_sub(line.trim_start().len()) >= indent
}

/// Returns the lines of the first Loudou filter in the example, without their common indentation.
fn filter<'a>(lines: &[&'a str]) -> Vec<&'a str> {
    let is_start = |line: &&&str| line.trim_start() == "- name: loudou";
    let Some(start) = lines.iter().position(|line| is_start(&line)) else {
        return Vec::new();
    };
    let mut found: Vec<&str> = Vec::new();
    let mut margin = 0;
    for line in lines.iter().skip(start) {
        if found.is_empty() {
            margin = line.len().saturating_sub(line.trim_start().len());
        } else if !is_inside(line, margin.saturating_add(1)) {
            break;
        }
        let line = line.get(margin..).unwrap_or_default();
        // Skip comments about settings that the example's other listener repeats.
        if line.contains("Both listeners need") || line.contains("for both roles, and the vm_id") {
            continue;
        }
        found.push(line.trim_end_matches(" &vm"));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Content, check};

    const RULES: &str = "# Comment\nversion: 1\nrules:\n  - name: mine\n    key: []\n    limits:\n      - { algorithm: funnel, capacity: 1, rate: 1/s }\n";

    /// Each form embeds these rules in its example, and `loudou check` accepts the result.
    #[test]
    fn forms_have_the_rules_and_nothing_else_of_the_example() {
        let mut wrong = Vec::new();
        for form in [
            Form::Envoy,
            Form::WasmPlugin,
            Form::TrafficExtension,
            Form::EnvoyExtensionPolicy,
        ] {
            let mut text = form.around(RULES);
            if form == Form::Envoy {
                let filter: Vec<String> = text.lines().map(|line| format!("  {line}")).collect();
                text = format!("http_filters:\n{}\n", filter.join("\n"));
            }
            let checked = check("form.yaml", text.as_bytes(), |_| Vec::new());
            let names: Vec<&str> = checked
                .iter()
                .filter_map(|(_, content)| match content {
                    Some(Content::Rules(file, None)) => Some(&file.rules),
                    _ => None,
                })
                .flatten()
                .map(|rule| rule.name.as_str())
                .collect();
            let is_described = text.starts_with('#');
            // An anchor would be useless without the rest of the example file.
            let is_cut = text.contains('&') || text.contains("Both listeners");
            if names != ["mine"] || checked.len() != 1 || is_described || is_cut {
                wrong.push(format!("{form:?}: {names:?}\n{text}"));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}
