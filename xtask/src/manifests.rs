//! Validates the Kubernetes manifests against the schemas of their kinds, as an API server would.
//!
//! The schemas and the checker are not in this repository. The check runs only if a folder contains
//! both: the program `crdcheck.py`, which takes manifests as arguments, and the schemas.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use loudou_tests::paths::{target_dir, workspace_root};

use crate::command::run;

/// Environment variable that contains the path of this folder.
const FOLDER: &str = "LOUDOU_CRDS";
/// Default folder, relative to the repository.
const BESIDE: &str = "../shared/kubernetes";
const CHECKER: &str = "crdcheck.py";
/// Name of the folders whose manifests have built-in kinds of Kubernetes, for example `fleet/kubernetes`.
const CORE: &str = "kubernetes";
/// End of the line that the checker prints for the only kind without a schema.
const UNKNOWN: &str = " EnvoyProxy NO CRD";
/// Python module that validates the built-in kinds, and the packages that both checkers import.
const CORE_CHECKER: &str = "kubernetes_validate";
const PACKAGES: [&str; 5] = [
    "kubernetes-validate==1.37.0",
    "pyyaml==6.0.3",
    "jsonschema==4.26.0",
    "cel-expr-python==0.1.3",
    "common-expression-language==0.10.0",
];

/// Validates all manifests below `envoy/`. Returns the reason if this machine cannot run the check.
pub(crate) fn check() -> Result<Option<String>> {
    let named = env::var_os(FOLDER).map(PathBuf::from);
    let folder = named.unwrap_or_else(|| workspace_root().join(BESIDE));
    let checker = folder.join(CHECKER);
    if !checker.is_file() {
        let reason = format!("no {CHECKER} in {BESIDE}, nor in the folder that {FOLDER} names");
        return Ok(Some(reason));
    }
    let libraries = match libraries() {
        Ok(libraries) => libraries,
        Err(error) => {
            return Ok(Some(format!(
                "cannot install what {CHECKER} needs ({error:#})"
            )));
        }
    };
    let manifests = manifests(&workspace_root().join("envoy"))?;
    let (core, manifests): (Vec<_>, Vec<_>) = manifests.into_iter().partition(|path| is_core(path));
    let mut python = Command::new("python3");
    python
        .args(["-m", CORE_CHECKER, "--strict"])
        .args(&core)
        .env("PYTHONPATH", &libraries);
    run(&mut python)?;
    let mut python = Command::new("python3");
    python.arg(checker).args(&manifests);
    let output = python.env("PYTHONPATH", libraries).output();
    let output = output.context("cannot run python3")?;
    let text = String::from_utf8_lossy(&output.stdout);
    print!("{text}");
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{CHECKER} failed: {errors}");
    ensure!(
        are_right(&text, manifests.len()),
        "not all of {} manifests are right",
        manifests.len()
    );
    Ok(None)
}

/// Returns true if the manifest has a built-in kind of Kubernetes.
fn is_core(path: &Path) -> bool {
    path.parent().is_some_and(|folder| folder.ends_with(CORE))
}

/// Returns true if the checker reports every manifest as valid, or as the kind without a schema. The checker's exit
/// code does not show this. Each manifest contains exactly one document.
fn are_right(output: &str, manifests: usize) -> bool {
    let is_right = |line: &&str| line.ends_with(" OK") || line.ends_with(UNKNOWN);
    output.lines().filter(is_right).count() == manifests
}

/// Returns the YAML files two folders below `root`, such as `istio/sidecar/wasm-plugin.yaml`.
/// `kustomization.yaml` files are left out, because only Kustomize reads them.
fn manifests(root: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for example in folders(root)? {
        for base in folders(&example)? {
            for file in entries(&base)? {
                let is_yaml = file.extension().is_some_and(|kind| kind == "yaml");
                if is_yaml && file.file_stem().is_some_and(|name| name != "kustomization") {
                    found.push(file);
                }
            }
        }
    }
    found.sort();
    Ok(found)
}

fn folders(root: &Path) -> Result<Vec<PathBuf>> {
    let mut entries = entries(root)?;
    entries.retain(|entry| entry.is_dir());
    Ok(entries)
}

fn entries(root: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(root).with_context(|| root.display().to_string())?;
    entries.map(|entry| Ok(entry?.path())).collect()
}

/// Returns the folder with the Python packages that the checkers import. Installs the packages in
/// the build directory if necessary.
fn libraries() -> Result<PathBuf> {
    let place = target_dir().join("crd-python");
    let marker = place.join("installed");
    let wanted = PACKAGES.join(" ");
    if fs::read_to_string(&marker).is_ok_and(|found| found == wanted) {
        return Ok(place);
    }
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "install", "--quiet", "--upgrade"])
        .args(["--disable-pip-version-check", "--target"])
        .arg(&place)
        .args(PACKAGES)
        .env("PIP_USER", "0")
        .env("PIP_REQUIRE_VIRTUALENV", "0")
        .env("PIP_ROOT_USER_ACTION", "ignore");
    run(&mut pip)?;
    fs::write(marker, wanted).context("cannot write a file")?;
    Ok(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_manifest_has_to_be_right() {
        let right = "a.yaml WasmPlugin OK\nb.yaml EnvoyFilter OK\nCEL rules evaluated {}\n";
        assert!(are_right(right, 2));
        assert!(!are_right(right, 3));
        let wrong = "a.yaml WasmPlugin OK\nb.yaml WasmPlugin WRONG\n     spec: OK is not one of\n";
        assert!(!are_right(wrong, 2));
        assert!(!are_right("a.yaml Gadget NO CRD\n", 1));
    }

    #[test]
    fn the_shipped_manifests_are_found() {
        let found = manifests(&workspace_root().join("envoy")).expect("readable");
        let names = found.iter().filter_map(|path| path.file_name()?.to_str());
        assert_eq!(
            names.filter(|name| *name == "wasm-plugin.yaml").count(),
            3,
            "{found:?}"
        );
        let core = found.iter().filter(|path| is_core(path));
        assert_eq!(core.count(), 5, "{found:?}");
    }
}
