//! Writes a release's software bill of materials in the format `CycloneDX` 1.6. The list contains
//! every crate in the programs and in the wasm module.
//!
//! `cargo-cyclonedx` writes one list per package instead of one per release, and would have to be
//! compiled on every machine that tests a release.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::command::cargo;
use crate::image::VERSION;
use crate::setup::WASM_TARGET;

/// Shipped packages, and the targets for which each is listed.
const ROOTS: [(&str, &[&str]); 3] = [
    (
        "loudou",
        &["x86_64-unknown-linux-musl", "aarch64-unknown-linux-musl"],
    ),
    ("loudou-relay", &["x86_64-unknown-linux-musl"]),
    ("loudou-filter", &[WASM_TARGET]),
];

/// Name and version of a crate.
type Name = (String, String);

/// Returns the bill of materials as JSON. It contains neither a timestamp nor a serial number, so
/// the same crates always produce the same text.
pub(super) fn text(root: &Path) -> Result<String> {
    let metadata = printed(root, &["metadata", "--format-version", "1"])?;
    let metadata: Value = serde_json::from_slice(&metadata)?;
    let lock = fs::read_to_string(root.join("Cargo.lock")).context("Cargo.lock")?;
    let document = document(&metadata, &shipped(root)?, &checksums(&lock))?;
    Ok(format!("{document:#}\n"))
}

/// Returns the output of a Cargo command that reads the workspace in `root`.
fn printed(root: &Path, words: &[&str]) -> Result<Vec<u8>> {
    let mut cargo = cargo(words);
    let output = cargo.arg("--locked").current_dir(root).output();
    let output = output.context("cannot run cargo")?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "cargo {}: {errors}",
        words.join(" ")
    );
    Ok(output.stdout)
}

/// Returns the crates that are compiled into the programs and into the module. `cargo metadata`
/// would also list crates for other platforms, and crates for features that only tools of this
/// workspace enable.
fn shipped(root: &Path) -> Result<BTreeSet<Name>> {
    let mut shipped = BTreeSet::new();
    for (package, triples) in ROOTS {
        for triple in triples {
            let select = ["tree", "--package", package, "--target", triple];
            let form = ["--edges", "normal", "--prefix", "none", "--format", "{p}"];
            let listed = printed(root, &[select.as_slice(), form.as_slice()].concat())?;
            for line in String::from_utf8_lossy(&listed).lines() {
                let mut words = line.split(' ');
                if let (Some(name), Some(version)) = (words.next(), words.next()) {
                    let version = version.trim_start_matches('v');
                    shipped.insert((name.to_owned(), version.to_owned()));
                }
            }
        }
    }
    Ok(shipped)
}

/// Reads the checksums of crates from the lock file, by name and version.
fn checksums(lock: &str) -> BTreeMap<Name, String> {
    let mut found = BTreeMap::new();
    for package in lock.split("[[package]]").skip(1) {
        let field = |name: &str| {
            let begin = format!("\n{name} = \"");
            let (_, rest) = package.split_once(&begin)?;
            Some(rest.split_once('"')?.0.to_owned())
        };
        if let (Some(name), Some(version), Some(sum)) =
            (field("name"), field("version"), field("checksum"))
        {
            found.insert((name, version), sum);
        }
    }
    found
}

/// Packages of a workspace and their runtime dependencies, by package id.
struct Graph<'a> {
    packages: BTreeMap<&'a str, &'a Value>,
    needs: BTreeMap<&'a str, BTreeSet<&'a str>>,
}

impl<'a> Graph<'a> {
    fn read(metadata: &'a Value) -> Result<Self> {
        let packages = list(metadata, "/packages")?.iter();
        let mut needs = BTreeMap::new();
        for node in list(metadata, "/resolve/nodes")? {
            let mut own = BTreeSet::new();
            for dependency in list(node, "/deps")? {
                // `cargo metadata` reports the kind of a normal dependency as null. The kinds of
                // test and build dependencies are `dev` and `build`.
                let mut kinds = list(dependency, "/dep_kinds")?.iter();
                if kinds.any(|kind| kind.get("kind").is_some_and(Value::is_null)) {
                    own.insert(field(dependency, "pkg"));
                }
            }
            needs.insert(field(node, "id"), own);
        }
        Ok(Self {
            packages: packages
                .map(|package| (field(package, "id"), package))
                .collect(),
            needs,
        })
    }

    /// Returns the ids of the packages with these names and versions.
    fn named(&self, names: &BTreeSet<Name>) -> BTreeSet<&'a str> {
        let packages = self.packages.iter();
        let shipped = packages.filter(|(_, package)| {
            let name = field(package, "name").to_owned();
            names.contains(&(name, field(package, "version").to_owned()))
        });
        shipped.map(|(id, _)| *id).collect()
    }

    fn text(&self, id: &str, name: &str) -> &'a str {
        self.packages
            .get(id)
            .map_or("", |package| field(package, name))
    }

    /// Returns the package URL that identifies a crate in the list.
    fn reference(&self, id: &str) -> String {
        format!(
            "pkg:cargo/{}@{}",
            self.text(id, "name"),
            self.text(id, "version")
        )
    }

    fn component(&self, id: &str, sums: &BTreeMap<Name, String>) -> Value {
        let (name, version) = (self.text(id, "name"), self.text(id, "version"));
        let license = self.text(id, "license").replace('/', " OR ");
        let mut component = json!({
            "type": "library", "bom-ref": self.reference(id), "name": name, "version": version,
            "purl": self.reference(id), "licenses": [{ "expression": license }],
        });
        let sum = sums.get(&(name.to_owned(), version.to_owned()));
        if let (Some(sum), Some(fields)) = (sum, component.as_object_mut()) {
            let hash = json!([{ "alg": "SHA-256", "content": sum }]);
            fields.insert("hashes".to_owned(), hash);
        }
        component
    }
}

fn list<'a>(value: &'a Value, pointer: &str) -> Result<&'a Vec<Value>> {
    let list = value.pointer(pointer).and_then(Value::as_array);
    list.with_context(|| format!("cargo metadata has no {pointer}"))
}

fn field<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn document(
    metadata: &Value,
    names: &BTreeSet<Name>,
    sums: &BTreeMap<Name, String>,
) -> Result<Value> {
    let graph = Graph::read(metadata)?;
    let shipped = graph.named(names);
    let mut components = BTreeMap::new();
    let mut dependencies = BTreeMap::new();
    for id in &shipped {
        let name = graph.reference(id);
        let own = graph.needs.get(id).into_iter().flatten();
        let own = own
            .filter(|id| shipped.contains(*id))
            .map(|id| graph.reference(id));
        let own = json!({ "ref": name, "dependsOn": own.collect::<BTreeSet<_>>() });
        components.insert(name.clone(), graph.component(id, sums));
        dependencies.insert(name, own);
    }
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": { "component": { "type": "application", "name": "loudou", "version": VERSION } },
        "components": components.into_values().collect::<Vec<_>>(),
        "dependencies": dependencies.into_values().collect::<Vec<_>>(),
    }))
}

#[cfg(test)]
mod tests {
    use loudou_tests::paths::workspace_root;

    use super::*;

    #[test]
    fn the_list_has_what_is_shipped_and_no_tools_of_tests() {
        let root = workspace_root();
        let list = text(&root).expect("a list");
        assert_eq!(list, text(&root).expect("a list"));
        let list: Value = serde_json::from_str(&list).expect("JSON");
        let components = list["components"].as_array().expect("components");
        let has = |name: &str| components.iter().any(|one| one["name"] == name);
        for name in ["loudou", "loudou-filter", "serde_json", "ratatui", "rustls"] {
            assert!(has(name), "{name}");
        }
        for name in [
            "proptest",
            "insta",
            "criterion",
            "loudou-tests",
            "xtask",
            // These crates are for other platforms, or for a feature that only xtask enables.
            "windows-sys",
            "security-framework",
            "schemars",
        ] {
            assert!(!has(name), "{name}");
        }
        let serde = components.iter().find(|one| one["name"] == "serde_json");
        let sum = serde.and_then(|one| one["hashes"][0]["content"].as_str());
        assert_eq!(sum.map(str::len), Some(64));
        assert!(
            !list.to_string().contains(&root.display().to_string()),
            "a path"
        );
    }
}
