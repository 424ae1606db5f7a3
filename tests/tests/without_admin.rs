//! A module that is built without the admin API.

use anyhow::{Result, ensure};
use loudou_tests::one_rule::{admitted, config, edit};
use loudou_tests::{Envoy, Operator, data_wasm_path};

/// A module without the admin API must apply edits made through the full module, because both
/// modules share the data of one sandbox id.
#[test]
fn it_limits_and_the_whole_module_edits() -> Result<()> {
    let envoy = Envoy::start(&config(2).data_wasm(data_wasm_path()?))?;
    ensure!(admitted(&mut envoy.data(), "alice")? == 2);
    let mut ops = Operator::editor(&envoy);
    ops.edit("r", "", &edit(5))?;
    ensure!(admitted(&mut envoy.data(), "bob")? == 5);
    let bucket = ops.get("/v1/buckets/r/bob")?;
    ensure!(bucket["admitted"] == 5, "{bucket}");
    envoy.stop()
}

/// A module without the admin API must reject a configuration that enables the API, and not ignore
/// it.
#[test]
fn it_refuses_to_answer_the_api() -> Result<()> {
    let wasm = data_wasm_path()?;
    let admin = config(2).wasm(&wasm);
    let embedded = config(2).data_wasm(&wasm).admin_at("/.loudou");
    for (config, place) in [
        (admin, "admin.role: \"admin\""),
        (embedded, "admin.at: \"/.loudou\""),
    ] {
        let output = Envoy::validate(&config)?;
        let log = String::from_utf8_lossy(&output.stderr);
        ensure!(!output.status.success(), "{log}");
        let line = log.lines().find(|line| line.contains(place));
        let line = line.unwrap_or_default();
        ensure!(
            line.contains("built without the admin API") && line.contains("feature `admin`"),
            "{log}"
        );
    }
    Ok(())
}
