//! Makes the quickstart's `envoy.yaml` fit for a test: ports from the operating system and the
//! filter under test, everything else as a reader gets it.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};

use crate::paths::workspace_root;

/// The ports of the file: data, admin API, Envoy's own admin interface.
pub const PORTS: [u16; 3] = [8080, 9911, 9901];
/// The filter as the file names it, from the root of the workspace.
pub const WASM: &str = "target/wasm32-unknown-unknown/wasm/loudou_filter.wasm";

/// The text of a file of the quickstart.
pub fn read(name: &str) -> Result<String> {
    let path = workspace_root().join("envoy/quickstart").join(name);
    fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
}

/// The configuration with free ports and this filter. A name or port that the file does not hold
/// (any more) is an error, so that the test cannot drift away from the file.
pub fn render(yaml: &str, wasm: &Path) -> Result<String> {
    let mut text = yaml.to_owned();
    for port in PORTS {
        let setting = format!("port_value: {port}");
        let count = text.matches(&setting).count();
        ensure!(
            count == 1,
            "envoy.yaml has `{setting}` {count} times, not once"
        );
        text = text.replace(&setting, "port_value: 0");
    }
    ensure!(text.contains(WASM), "envoy.yaml does not name {WASM}");
    Ok(text.replace(WASM, &wasm.display().to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaces_ports_and_filter() -> Result<()> {
        let text = render(&read("envoy.yaml")?, Path::new("/the/filter.wasm"))?;
        assert_eq!(text.matches("port_value: 0").count(), PORTS.len());
        assert!(text.contains("/the/filter.wasm") && !text.contains(WASM));
        Ok(())
    }

    #[test]
    fn a_missing_port_is_an_error() {
        let message =
            render("port_value: 8080", Path::new("f")).expect_err("two ports are missing");
        assert!(
            message.to_string().contains("port_value: 9911"),
            "{message}"
        );
    }
}
