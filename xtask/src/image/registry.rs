//! Checks the filter's image with a real registry. The image is pushed and pulled back, and then
//! its module runs in a real Envoy.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use flate2::read::GzDecoder;
use loudou_tests::one_rule::{admitted, config};
use loudou_tests::paths::target_dir;
use loudou_tests::process::{Group, Guarded};
use loudou_tests::temp::TempDir;
use loudou_tests::wasm::built_wasm;
use loudou_tests::{Envoy, eventually};
use serde_json::Value;

use super::VERSION;
use crate::setup::debian::Packages;

/// Debian packages: a registry, skopeo, which pushes and pulls images, and the libraries that
/// skopeo needs.
const NAMES: [&str; 4] = ["docker-registry", "skopeo", "libgpgme11", "libassuan0"];
const FILES: [&str; 2] = ["usr/bin/docker-registry", "usr/bin/skopeo"];
const START: Duration = Duration::from_mins(1);

/// Checks the image of the filter module that was built last. Returns the reason if this machine
/// cannot run the check.
pub(crate) fn check() -> Result<Option<String>> {
    let place = target_dir().join("registry-tools");
    let packages = Packages {
        names: &NAMES,
        files: &FILES,
        with_dependencies: false,
        place: &place,
    };
    if let Err(error) = packages.install() {
        let names = NAMES.join(", ");
        return Ok(Some(format!(
            "cannot install Debian's packages {names} ({error:#})"
        )));
    }
    let tools = Tools { root: place };
    let (pushed, digest) = super::build(&built_wasm())?;
    let dir = TempDir::new("registry")?;
    let mut registry = tools.serve(&dir)?;
    let address = eventually(START, "the registry", || {
        ensure!(
            registry.ended()?.is_none(),
            "the registry ended: {}",
            log(&dir)
        );
        Ok(address_in(&log(&dir)))
    })?;
    let name = format!("docker://{address}/loudou/filter:{VERSION}");
    let source = format!("oci:{}:{VERSION}", pushed.display());
    tools.skopeo(&["copy", "--dest-tls-verify=false", &source, &name])?;
    let there = tools.skopeo(&[
        "inspect",
        "--tls-verify=false",
        "--format={{.Digest}}",
        &name,
    ])?;
    ensure!(there == digest, "the registry has {there}, not {digest}");
    let pulled = dir.path().join("pulled");
    let target = format!("oci:{}:{VERSION}", pulled.display());
    let by_digest = format!("docker://{address}/loudou/filter@{digest}");
    tools.skopeo(&["copy", "--src-tls-verify=false", &by_digest, &target])?;
    println!("pushed and pulled {digest}");
    let module = dir.path().join("plugin.wasm");
    fs::write(&module, module_in(&pulled)?).context("no room for the module")?;
    runs(&module)?;
    Ok(None)
}

/// Starts Envoy with this module, and checks that the module limits requests.
fn runs(module: &Path) -> Result<()> {
    let envoy = Envoy::start(&config(3).wasm(module))?;
    let passed = admitted(&mut envoy.data(), "alice")?;
    ensure!(passed == 3, "{passed} of 3 passed");
    envoy.stop()
}

struct Tools {
    root: PathBuf,
}

impl Tools {
    fn serve(&self, dir: &TempDir) -> Result<Guarded> {
        let storage = dir.path().join("storage");
        let config = format!(
            "version: 0.1\nstorage: {{ filesystem: {{ rootdirectory: {:?} }} }}\nhttp: {{ addr: '127.0.0.1:0' }}\n",
            storage.display().to_string()
        );
        let config = dir.write("registry.yml", &config)?;
        let output = fs::File::create(dir.path().join(LOG)).context("no log")?;
        let mut serve = Command::new(self.root.join("usr/bin/docker-registry"));
        serve.arg("serve").arg(config).stdin(Stdio::null());
        serve.stdout(output.try_clone()?).stderr(output);
        Guarded::spawn("registry", &mut serve, Group::Own)
    }

    /// Runs skopeo, and returns its output.
    fn skopeo(&self, arguments: &[&str]) -> Result<String> {
        let mut skopeo = Command::new(self.root.join("usr/bin/skopeo"));
        skopeo.arg("--insecure-policy").args(arguments);
        let libraries = fs::read_dir(self.root.join("usr/lib"))?;
        let libraries = libraries.filter_map(|entry| Some(entry.ok()?.path()));
        let libraries = std::env::join_paths(libraries.filter(|path| path.is_dir()))?;
        let output = skopeo.env("LD_LIBRARY_PATH", libraries).output();
        let Output {
            status,
            stdout,
            stderr,
        } = output.context("cannot run skopeo")?;
        let stderr = String::from_utf8_lossy(&stderr);
        ensure!(status.success(), "skopeo {}: {stderr}", arguments.join(" "));
        Ok(String::from_utf8_lossy(&stdout).trim().to_owned())
    }
}

const LOG: &str = "registry.log";

fn log(dir: &TempDir) -> String {
    fs::read_to_string(dir.path().join(LOG)).unwrap_or_default()
}

/// Reads the registry's address from its log.
fn address_in(log: &str) -> Option<String> {
    let (_, rest) = log.split_once("listening on ")?;
    let end = rest.find(|c: char| !(c.is_ascii_digit() || ".:".contains(c)))?;
    rest.get(..end).map(str::to_owned)
}

/// Returns the file `plugin.wasm` from the first layer of an image layout.
fn module_in(layout: &Path) -> Result<Vec<u8>> {
    let blob = |digest: &Value| -> Result<Vec<u8>> {
        let digest = digest.as_str().context("no digest")?.replace(':', "/");
        fs::read(layout.join("blobs").join(digest)).context("no blob")
    };
    let json = |bytes: Vec<u8>| -> Result<Value> { Ok(serde_json::from_slice(&bytes)?) };
    let field = |value: &Value, pointer: &str| -> Result<Value> {
        let field = value.pointer(pointer).cloned();
        field.with_context(|| format!("no {pointer}"))
    };
    let index = json(fs::read(layout.join("index.json")).context("no index")?)?;
    let manifest = json(blob(&field(&index, "/manifests/0/digest")?)?)?;
    let layer = blob(&field(&manifest, "/layers/0/digest")?)?;
    let mut archive = tar::Archive::new(GzDecoder::new(layer.as_slice()));
    for entry in archive.entries()? {
        let mut entry = entry?;
        if entry.path_bytes().as_ref() == b"plugin.wasm" {
            let mut module = Vec::new();
            entry.read_to_end(&mut module)?;
            return Ok(module);
        }
    }
    anyhow::bail!("no plugin.wasm in the layer")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_of_a_registry_is_in_its_log() {
        let log = "level=info msg=\"listening on 127.0.0.1:41337\" go.version=go1.19\n";
        assert_eq!(address_in(log).as_deref(), Some("127.0.0.1:41337"));
        assert_eq!(address_in("level=info msg=\"starting\""), None);
    }
}
