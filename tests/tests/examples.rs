//! The quickstart does what its README prints: every command is run against its `envoy.yaml`.

use anyhow::{Result, ensure};
use loudou_tests::{Envoy, console, quickstart, wasm_path};

#[test]
fn the_readme_tells_the_truth() -> Result<()> {
    let steps = console::steps(&quickstart::read("README.md")?);
    ensure!(
        steps.len() >= 6,
        "the README has lost its commands: {steps:?}"
    );
    let wasm = wasm_path()?;
    let yaml = quickstart::render(&quickstart::read("envoy.yaml")?, &wasm)?;
    let envoy = Envoy::start_yaml(&yaml, &wasm)?;
    // The same port may stand in a command and in the output that curl prints.
    let addresses = [
        ("127.0.0.1:8080", envoy.data_address()),
        ("127.0.0.1:9911", envoy.admin_address()),
        ("127.0.0.1:9901", envoy.envoy_admin_address()),
    ];
    let here = |text: &str| {
        let put_in = |text: String, (port, address): &(&str, std::net::SocketAddr)| {
            text.replace(port, &address.to_string())
        };
        addresses.iter().fold(text.to_owned(), put_in)
    };
    for step in &steps {
        console::run(step, here)?;
    }
    envoy.stop()
}
