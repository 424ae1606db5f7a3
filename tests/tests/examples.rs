//! The examples in `envoy/`. The commands of each README run against its `envoy.yaml`.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use loudou_tests::example::{self, Example, RunningFleet};
use loudou_tests::paths::{loudou_command, workspace_root};
use loudou_tests::wasm::wasm_path;
use loudou_tests::{Envoy, Request, TempDir};

/// Runs the commands of an example's README. Fails if the README has fewer commands than
/// `commands`.
fn follow(name: &str, commands: usize) -> Result<()> {
    let example = Example::read(name)?;
    let steps = example.steps();
    ensure!(
        steps.len() >= commands,
        "the README of {name} has lost its commands: {steps:?}"
    );
    let mut running = example.start()?;
    running.follow_the_readme()?;
    running.envoy.stop()
}

#[test]
fn quickstart() -> Result<()> {
    follow("quickstart", 6)
}

/// The first lesson runs in the Envoy of the quickstart.
#[test]
fn first_lesson() -> Result<()> {
    let mut example = Example::read("quickstart")?;
    example.readme = fs::read_to_string(workspace_root().join("docs/start/first-limit.md"))?;
    let steps = example.steps();
    ensure!(
        steps.len() >= 9,
        "the lesson has lost its commands: {steps:?}"
    );
    let mut running = example.start()?;
    running.follow_the_readme()?;
    running.envoy.stop()
}

#[test]
fn api_keys() -> Result<()> {
    follow("api-keys", 6)
}

#[test]
fn jwt_plans() -> Result<()> {
    follow("jwt-plans", 9)
}

/// The script must create tokens that match the key it prints, and that no other key accepts.
#[test]
fn tokens_sh_makes_tokens_for_the_key_that_it_prints() -> Result<()> {
    let folder = workspace_root().join("envoy/jwt-plans");
    let dir = TempDir::new("tokens")?;
    let made = Command::new("sh")
        .args([&folder.join("tokens.sh"), dir.path()])
        .output()?;
    let errors = String::from_utf8_lossy(&made.stderr);
    ensure!(made.status.success(), "tokens.sh needs OpenSSL 3: {errors}");
    let key = String::from_utf8(made.stdout)?;

    let mut example = Example::read("jwt-plans")?;
    let old = example
        .yaml
        .lines()
        .find(|line| line.contains("{\"keys\":"));
    let old = old.context("no local_jwks")?.trim().to_owned();
    example.yaml = example.yaml.replace(&old, key.trim());
    let running = example.start()?;
    let mut http = running.envoy.data();
    for (folder, status) in [(dir.path(), 200), (&*folder, 401)] {
        for user in ["alice", "bob", "carol"] {
            let token = fs::read_to_string(folder.join(format!("{user}.jwt")))?;
            let answer = http.send(&Request::get("/").token(token.trim()))?;
            ensure!(answer.status == status, "{user}: {}", answer.text());
        }
    }
    running.envoy.stop()
}

#[test]
fn ipv6_64() -> Result<()> {
    follow("ipv6-64", 7)
}

#[test]
fn login() -> Result<()> {
    follow("login", 12)
}

#[test]
fn llm_tokens() -> Result<()> {
    follow("llm-tokens", 9)
}

#[test]
fn graphql_cost() -> Result<()> {
    follow("graphql-cost", 6)
}

/// The file that `loudou init` writes must limit requests, and open the screen's API with its token.
#[test]
fn a_first_configuration() -> Result<()> {
    let dir = TempDir::new("init")?;
    let wasm = wasm_path()?;
    let mut init = loudou_command()?;
    let init = init.arg("init").arg(dir.path()).arg("--module").arg(&wasm);
    let output = init.output().context("cannot run loudou")?;
    let printed = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "{output:?}");
    let token = printed.split("LOUDOU_TOKEN=").nth(1);
    let token = token.and_then(|rest| rest.split(' ').next());
    let token = token.context("no token")?;
    let yaml = fs::read_to_string(dir.path().join("envoy.yaml")).context("no envoy.yaml")?;
    ensure!(!yaml.contains(token), "the file has the token itself");
    // The harness waits for two listeners.
    let other = "    - { name: admin, address: { socket_address: { address: 127.0.0.1, port_value: 0 } }, \
                 filter_chains: [{}] }\n";
    let yaml = yaml.replace("port_value: 8080 ", "port_value: 0 ");
    let yaml = yaml.replace("port_value: 9901 ", "port_value: 0 ");
    let envoy = Envoy::start_yaml(&format!("{yaml}{other}"), &wasm)?;
    let mut statuses = Vec::new();
    for _ in 0..20 {
        statuses.push(envoy.data().send(&Request::get("/"))?.status);
    }
    ensure!(
        statuses[..15].iter().all(|status| *status == 200),
        "{statuses:?}"
    );
    ensure!(statuses[15..].contains(&429), "{statuses:?}");
    let rules = Request::get("/.loudou/v1/rules").token(token);
    let rules = envoy.data().send(&rules)?;
    ensure!(
        rules.status == 200 && rules.text().contains("per-address"),
        "{rules:?}"
    );
    envoy.stop()
}

#[test]
fn native() -> Result<()> {
    follow("native", 5)
}

#[test]
fn shaping() -> Result<()> {
    follow("shaping", 6)
}

#[test]
fn shadow() -> Result<()> {
    follow("shadow", 12)
}

#[test]
fn cors() -> Result<()> {
    follow("cors", 5)
}

#[test]
fn grpc() -> Result<()> {
    follow("grpc", 8)
}

#[test]
fn monitoring() -> Result<()> {
    follow("monitoring", 5)
}

#[test]
fn fleet() -> Result<()> {
    let mut running = RunningFleet::start()?;
    running.follow_the_readme("## With Valkey again")?;
    running.stop()
}

/// Every example must have unique ports, so that all examples can run on one machine, a link in the
/// index, and a test with its name.
#[test]
fn every_example_has_its_ports_a_line_and_a_test() -> Result<()> {
    let mut seen = BTreeSet::new();
    let index = fs::read_to_string(workspace_root().join("envoy/README.md"))?;
    for name in example::names()? {
        let example = Example::read(&name)?;
        let ports = example.ports()?;
        for port in [ports.envoy_admin, ports.data, ports.admin] {
            ensure!(seen.insert(port), "{name} has the port {port} of another");
        }
        for port in [ports.data, ports.admin] {
            let address = format!("http://127.0.0.1:{port}");
            let printed = example.readme.contains(&address);
            ensure!(printed, "the README of {name} does not name {address}");
        }
        let link = format!("({name}/README.md)");
        ensure!(
            index.contains(&link),
            "envoy/README.md does not lead to {link}"
        );
        let test = format!("fn {}() ", name.replace('-', "_"));
        ensure!(
            include_str!("examples.rs").contains(&test),
            "no test runs {name}"
        );
    }
    Ok(())
}
