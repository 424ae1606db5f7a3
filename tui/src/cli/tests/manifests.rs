//! `loudou check` on manifests for Istio and Envoy Gateway, including the parts around the rules.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::checks::check;
use super::*;

const SIDECAR: &str = include_str!("manifests/right/sidecar.yaml");
const RULES: &str = include_str!("manifests/wrong/rules.yaml");
/// The rules of [`RULES`] without their mistakes.
const VALID_RULES: &str = "\
version: 1
rules:
  - name: per-client
    mode: 'off'
    key: [client_cert]
    limits: [{ algorithm: funnel, capacity: 15, rate: 30/60s }]
";

/// Returns the files of a folder, sorted.
fn files(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let entries = std::fs::read_dir(folder).expect("a folder");
    let mut files: Vec<PathBuf> = entries.map(|it| it.expect("a file").path()).collect();
    files.sort();
    files
}

/// Returns the lines about a file without the description of valid rules.
fn problems(file: &Path) -> String {
    let text = std::fs::read_to_string(file).expect("a text");
    let seen = check(&text, "").seen();
    let mut lines: Vec<&str> = Vec::new();
    let mut is_valid = false;
    for line in seen.lines() {
        is_valid =
            line.contains(": valid: ") || is_valid && line.starts_with("  ") | line.is_empty();
        if !is_valid || line.contains(": valid: ") {
            lines.push(line);
        }
    }
    lines.join("\n")
}

#[test]
fn wrong_manifests_are_reported_with_place_and_suggestion() {
    let files = files("src/cli/tests/manifests/wrong");
    assert!(files.len() >= 12, "{files:?}");
    for file in files {
        let name = file.file_stem().expect("a name").to_string_lossy();
        let name = format!("manifests_{}", name.replace('-', "_"));
        assert_snapshot!(name, problems(&file));
    }
}

/// Collects the manifests below a folder of this repository.
fn manifests(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            manifests(&path, found);
        } else if path
            .extension()
            .is_some_and(|extension| extension == "yaml")
        {
            let text = std::fs::read_to_string(&path).expect("a text");
            let kinds = loudou_check::document::manifest::KINDS.iter();
            let mut kinds = kinds.map(|(_, kind)| format!("kind: {kind}\n"));
            // A policy may add a cluster, and no filter.
            let has_filter = text.contains("version: 1");
            if has_filter && kinds.any(|kind| text.contains(&kind)) {
                found.push(path);
            }
        }
    }
}

/// Checks the valid manifests of the tests, and the shipped manifests.
#[test]
fn right_manifests_pass_without_a_word() {
    let mut right = files("src/cli/tests/manifests/right");
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../envoy");
    manifests(&shipped, &mut right);
    for file in right {
        let text = std::fs::read_to_string(&file).expect("a text");
        let ran = check(&text, "-o json");
        let printed: Value = serde_json::from_str(&ran.out).expect("JSON");
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{}", ran.out);
        for one in printed.as_array().expect("a list") {
            assert_eq!(one["problems"], json!([]), "{file:?}: {one:#}");
            assert_eq!(one["valid"], true, "{file:?}");
        }
    }
}

/// Other objects are skipped, and each configuration is named after its object.
#[test]
fn every_configuration_is_found() {
    let found = |text: &str| {
        let ran = check(text, "-o json");
        let printed: Value = serde_json::from_str(&ran.out).expect("JSON");
        let printed = printed.as_array().expect("a list").clone();
        let names = printed.iter().map(|one| one["filter"].as_str());
        let names: Vec<String> = names.map(|name| name.expect("a name").to_owned()).collect();
        names
    };
    let sidecar = [
        "WasmPlugin shop/loudou, data role",
        "EnvoyFilter shop/loudou-admin, filter loudou-admin, admin role",
    ];
    assert_eq!(found(SIDECAR), sidecar);
    assert_eq!(
        found(include_str!("manifests/right/gateway.yaml")),
        [
            "TrafficExtension edge/limits, data role",
            "WasmPlugin shop/limits, data role",
        ]
    );
    assert_eq!(
        found(include_str!("manifests/right/envoy-gateway.yaml")),
        [
            "EnvoyExtensionPolicy edge/limits, data role",
            "EnvoyPatchPolicy edge/admin, filter admin, admin role",
        ]
    );
    // `kubectl get -o json` prints a list of one JSON document.
    let gateway = loudou_check::document::read(include_bytes!("manifests/right/gateway.yaml"));
    let list = gateway.expect("readable").value[0].to_string();
    assert_eq!(found(&list).len(), 2);
    // Empty documents at both ends, comments, and Windows line ends.
    let framed = format!("# Source: x\n---\n---\n{SIDECAR}---\n").replace('\n', "\r\n");
    assert_eq!(found(&framed), sidecar);
}

#[test]
fn manifests_without_loudou_are_an_error() {
    let other = "apiVersion: v1\nkind: ConfigMap\nmetadata: { name: a }\n";
    assert_snapshot!(check(other, "").seen(), @r"
    (standard input): error: no Loudou filter in these manifests: expected WasmPlugin, TrafficExtension, EnvoyFilter, EnvoyExtensionPolicy or EnvoyPatchPolicy with `loudou` in the name or the address of the module, or with rules in its configuration
    (standard input): 1 error
    --- exit code 1
    ");
    let plugin = "apiVersion: extensions.istio.io/v1alpha1\nkind: WasmPlugin\nmetadata: { name: a }\n\
        spec: { url: \"oci://x/headers:1\", pluginConfig: { a: 1 } }\n";
    assert_snapshot!(check(plugin, "").seen(), @r"
    (standard input): error: no Loudou filter in these manifests: expected WasmPlugin, TrafficExtension, EnvoyFilter, EnvoyExtensionPolicy or EnvoyPatchPolicy with `loudou` in the name or the address of the module, or with rules in its configuration; there is 1 other filter
    (standard input): 1 error
    --- exit code 1
    ");
}

#[test]
fn problems_in_manifests_are_printed_for_programs() {
    assert_snapshot!(check(RULES, "-o csv").seen(), @r#"
    file,line,column,severity,path,value,message,allowed,suggestion,filter
    (standard input),13,15,warning,,,"`on` without quotes is true or false to Kubernetes; write ""on""",,,"WasmPlugin shop/loudou, data role"
    (standard input),13,15,error,spec.pluginConfig.rules[0].mode,true,unknown value,"enforce, shadow, off",,"WasmPlugin shop/loudou, data role"
    (standard input),15,31,error,spec.pluginConfig.rules[0].limits[0].algorithm,"""funel""",unknown algorithm,"funnel, token_bucket, fixed_window, sliding_window, sliding_log, sliding_counter, leaky_queue, smooth_bursty, smooth_warmup, concurrency",funnel,"WasmPlugin shop/loudou, data role"
    --- exit code 1
    "#);
    assert_snapshot!("manifests_rules_json", check(RULES, "-o json").seen());
}

/// Manifests in several files can belong to one Envoy.
#[test]
fn roles_in_several_files_are_compared() {
    let (data, admin) = SIDECAR
        .split_once("---\napiVersion: networking")
        .expect("two roles");
    let admin = format!("apiVersion: networking{admin}");
    let admin = admin.replace(
        "vm_config:\n",
        "vm_config:\n                vm_id: loudou\n",
    );
    let write = |name: &str, text: &str| -> String {
        let name = format!("loudou-check-{name}-{}.yaml", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, text).expect("written");
        path.display().to_string()
    };
    let (data, admin) = (write("data", data), write("admin", &admin));
    let run = |files: &str| Loudou::default().run(&format!("check {files}"));
    let both = run(&format!("{data} {admin}"));
    assert_eq!(both.code, 1, "{}", both.out);
    assert!(
        both.out
            .contains("vm_id: \"loudou\": the data role has another one")
    );
    // The admin role alone could belong to a data role in an EnvoyFilter.
    let alone = run(&admin);
    assert_eq!(alone.code, 0, "{}", alone.out);
    assert!(
        alone
            .out
            .contains("warning: EnvoyFilter shop/loudou-admin: ")
    );
    assert_eq!(run(&data).code, 0);
    // A file without Loudou is skipped if another file has it.
    let other = write(
        "other",
        "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n",
    );
    assert_eq!(run(&other).code, 1);
    assert_eq!(run(&format!("{other} {data}")).out, run(&data).out);
    assert_eq!(run(&format!("{other} {admin}")).out, run(&admin).out);
    for file in [data, admin, other] {
        std::fs::remove_file(file).expect("removed");
    }
}

/// The parts around the rules do not matter to a command that only needs the rules.
#[test]
fn other_commands_read_rules_from_manifests() {
    let explain = |text: &str| {
        let loudou = Loudou {
            input: text,
            ..Loudou::default()
        };
        loudou.run("explain --config - --path /a -o json")
    };
    let text = RULES
        .replace("funel", "funnel")
        .replace("mode: on", "mode: \"off\"")
        .replace("SERVER", "SRVER");
    let ran = explain(&text);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(!ran.err.contains("SRVER"), "{}", ran.err);
    assert_eq!(ran.out, explain(VALID_RULES).out);
    // The admin role next to them has no rules.
    assert_eq!(explain(SIDECAR).code, 0);
    // Rules of several objects are not one rule file.
    let several = explain(include_str!("manifests/right/gateway.yaml"));
    assert_eq!(several.code, 1, "{}", several.out);
    assert!(
        several.err.contains("WasmPlugin shop/limits, data role"),
        "{}",
        several.err
    );
}

/// The output of kustomize has objects that are larger than a rule file may be.
#[test]
fn large_manifests_are_read() {
    let filler = "x".repeat(2 << 20);
    let large = format!(
        "{SIDECAR}---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{ name: a }}\ndata: {{ a: {filler} }}\n"
    );
    assert_eq!(check(&large, "").code, 0);
    let rules = format!("version: 1\nrules: []\nx: {filler}\n");
    assert!(check(&rules, "").out.contains("larger than 1 MiB"));
}
