//! Checks that HTTP clients from npm and `PyPI`, and curl, handle Loudou's response headers. The
//! check uses a real Envoy, and skips clients that cannot be installed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use loudou_tests::paths::{target_dir, workspace_root};
use loudou_tests::{Config, Envoy};
use serde_json::json;

use crate::command::run;
use crate::setup::node::Node;

mod grpcio;

const NPM: [&str; 5] = [
    "ratelimit-header-parser@0.1.0",
    "got@14.6.6",
    "ky@1.14.3",
    "axios@1.21.1",
    "axios-retry@4.5.0",
];
const PYPI: [&str; 2] = ["http-sf==1.5.0", "urllib3==2.8.0"];
/// grpcio is installed separately, because it has no wheels for some systems.
const GRPCIO: [&str; 2] = ["grpcio==1.85.1", "grpcio-status==1.85.1"];

/// Runs all clients. Returns the clients that could not run, with the reasons.
pub(crate) fn check() -> Result<Option<String>> {
    let mut skipped = Vec::new();
    let envoy = Envoy::start(&Config::new(json!([{
        "name": "r",
        "key": [{ "header": "x-user-id" }],
        "limits": [{ "name": "l", "algorithm": "funnel", "capacity": 2, "rate": "1/s" }],
        "respond": { "ratelimit_headers": "both" },
    }])))?;
    let url = format!("http://{}/", envoy.data_address());
    let scripts = workspace_root().join("tests/clients");
    let node = Node::find().context("no Node.js with npm");
    let npm = |node: Node| {
        let modules = installed("npm", &NPM, |place| install_npm(&node, &NPM, place))?;
        Ok((node.node(), modules))
    };
    match node.and_then(npm) {
        Ok((mut node, modules)) => {
            node.arg(scripts.join("clients.mjs"))
                .arg(&url)
                .arg(modules.join("node_modules"));
            run(&mut node)?;
        }
        Err(error) => skipped.push(format!("clients of npm ({error:#})")),
    }
    match installed("pip", &PYPI, |place| install(&PYPI, place)) {
        Ok(modules) => {
            let mut python = Command::new("python3");
            python.arg(scripts.join("clients.py")).arg(&url);
            run(python.env("PYTHONPATH", modules))?;
        }
        Err(error) => skipped.push(format!("clients of PyPI ({error:#})")),
    }
    match installed("grpcio", &GRPCIO, |place| install(&GRPCIO, place)) {
        Ok(modules) => grpcio::check(&modules)?,
        Err(error) => skipped.push(format!("grpcio ({error:#})")),
    }
    if is_there("curl") {
        curl(&url)?;
    } else {
        skipped.push("curl is not installed".to_owned());
    }
    envoy.stop()?;
    Ok((!skipped.is_empty()).then(|| skipped.join(", ")))
}

/// Checks that `curl --retry` waits as `Retry-After` demands. The third request is refused at
/// first, and admitted after one retry.
fn curl(url: &str) -> Result<()> {
    for status in ["200", "200", "200"] {
        let mut curl = Command::new("curl");
        // Write to standard output: curl would truncate an output file before each retry.
        curl.args(["--silent", "--retry", "1", "--write-out", "%{http_code}"])
            .args(["--header", "x-user-id: curl"])
            .arg(url);
        let output = curl.output().context("cannot run curl")?;
        let seen = String::from_utf8_lossy(&output.stdout);
        ensure!(
            output.status.success() && seen.ends_with(status),
            "curl ({}): {seen:?} instead of {status}",
            output.status
        );
    }
    println!("curl: ok");
    Ok(())
}

fn is_there(program: &str) -> bool {
    let mut version = Command::new(program);
    version.arg("--version");
    let version = version.stdout(Stdio::null()).stderr(Stdio::null()).status();
    version.is_ok_and(|status| status.success())
}

/// Returns the folder `name` in the build directory, which contains these packages. Installs the
/// packages if necessary.
pub(crate) fn installed(
    name: &str,
    packages: &[&str],
    install: impl FnOnce(&Path) -> Command,
) -> Result<PathBuf> {
    let place = target_dir().join(format!("clients-{name}"));
    let marker = place.join("installed");
    let wanted = packages.join(" ");
    if fs::read_to_string(&marker).is_ok_and(|found| found == wanted) {
        return Ok(place);
    }
    fs::create_dir_all(&place).context("cannot make a folder")?;
    run(&mut install(&place))?;
    fs::write(marker, wanted).context("cannot write a file")?;
    Ok(place)
}

/// Returns the command that installs these npm packages.
pub(crate) fn install_npm(node: &Node, packages: &[&str], place: &Path) -> Command {
    let mut npm = node.npm();
    npm.args([
        "install",
        "--silent",
        "--no-audit",
        "--no-fund",
        "--no-save",
    ])
    .arg("--prefix")
    .arg(place)
    .args(packages);
    npm
}

fn install(packages: &[&str], place: &Path) -> Command {
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "install", "--quiet", "--upgrade"])
        // Install only wheels, because compiling grpcio takes most of an hour.
        .args([
            "--disable-pip-version-check",
            "--only-binary",
            ":all:",
            "--target",
        ])
        .arg(place)
        .args(packages)
        .env("PIP_USER", "0")
        .env("PIP_REQUIRE_VIRTUALENV", "0")
        .env("PIP_ROOT_USER_ACTION", "ignore");
    pip
}
