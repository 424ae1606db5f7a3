//! `loudou init`: the file, and the commands that run it.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::checks::check;
use super::*;

/// Runs `loudou init` in a folder. The token in its output, which is random, becomes `TOKEN`.
fn init(folder: &Path, options: &str) -> (String, String) {
    let ran = Loudou::default().run(&format!("init {} {options}", folder.display()));
    let token = ran.out.split("LOUDOU_TOKEN=").nth(1);
    let token = token.and_then(|rest| rest.split(' ').next());
    let token = token.unwrap_or("none").to_owned();
    let seen = ran.seen().replace(&token, "TOKEN");
    (seen.replace(&folder.display().to_string(), "DIR"), token)
}

#[test]
fn a_file_per_proxy_and_its_commands() {
    let folder = tempfile::tempdir().expect("a folder");
    assert_snapshot!("init_envoy", init(folder.path(), "").0);
    assert_snapshot!("init_istio", init(folder.path(), "--for istio").0);
    let options = "--for envoy-gateway --force --image ghcr.io/me/filter:1";
    assert_snapshot!("init_envoy_gateway", init(folder.path(), options).0);
}

/// Each file must pass `loudou check` without a warning, and have the hash of its token only.
#[test]
fn files_are_valid() {
    for (proxy, file) in [
        ("envoy", "envoy.yaml"),
        ("istio", "loudou.yaml"),
        ("envoy-gateway", "loudou.yaml"),
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        let (seen, token) = init(folder.path(), &format!("--for {proxy}"));
        assert_eq!(token.len(), 32, "{seen}");
        let text = fs::read_to_string(folder.path().join(file)).expect("a file");
        let gaps = ["@HASH@", "@IMAGE@", "@MODULE@", "@RULES@"];
        let has_gap = gaps.iter().any(|gap| text.contains(gap));
        assert!(!text.contains(&token) && !has_gap, "{text}");
        let ran = check(&text, "-o json");
        assert_eq!(ran.code, 0, "{proxy}: {}", ran.out);
        let printed: Value = serde_json::from_str(&ran.out).expect("JSON");
        assert_eq!(printed[0]["problems"], json!([]), "{proxy}: {}", ran.out);
    }
}

#[test]
fn tokens_differ() {
    let folder = tempfile::tempdir().expect("a folder");
    let first = init(folder.path(), "").1;
    assert_ne!(first, init(folder.path(), "--force").1);
}

#[test]
fn an_existing_file_is_kept() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("envoy.yaml");
    fs::write(&path, "mine").expect("written");
    assert_snapshot!(init(folder.path(), "").0, @r"
    --- standard error
    loudou: DIR/envoy.yaml exists: name another folder, or replace it with --force
    --- exit code 1
    ");
    assert_eq!(fs::read_to_string(path).expect("a file"), "mine");
}

#[test]
fn a_name_that_would_change_the_file_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    assert_snapshot!(init(folder.path(), "--module a#b'c\\d").0, @r#"
    --- standard error
    loudou: --module: "a#b'c\\d" has a character that YAML would need to escape
    --- exit code 2
    "#);
    let seen = init(folder.path(), "--for istio --image=oci://x/y:1").0;
    assert!(
        seen.contains("allowed: an image without a scheme"),
        "{seen}"
    );
    let seen = init(folder.path(), "--for istio --image=").0;
    assert!(seen.contains("--image is empty"), "{seen}");
    assert!(!folder.path().join("envoy.yaml").exists());
}

#[test]
fn an_option_of_another_proxy_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    for (options, problem) in [
        ("--image a/b:1", "--image is for Istio and Envoy Gateway"),
        ("--for istio --module a.wasm", "--module is for Envoy"),
    ] {
        let seen = init(folder.path(), options).0;
        assert!(seen.contains(problem), "{seen}");
        assert!(seen.contains("exit code 2"), "{seen}");
    }
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 0);
}
