//! Runs the examples in `envoy/`. Each must start from its `envoy.yaml` and behave as its README
//! shows.
//!
//! Ports come from the operating system, and the filter is the one under test. Everything else is
//! as users get it.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};

use crate::config::is_native;
use crate::console::{self, Shell, Step};
use crate::envoy::Envoy;
use crate::paths::workspace_root;
use crate::wasm::{native_path, wasm_path};

mod fleet;

pub use fleet::RunningFleet;

/// Folder with the examples.
const FOLDER: &str = "envoy";
/// Path of the filter in the files, from the root of the workspace.
const WASM: &str = "target/wasm32-unknown-unknown/wasm/loudou_filter.wasm";
/// Path of the native module in the files.
const NATIVE: &str = "target/native/libloudou.so";
const PORT: &str = "port_value: ";
/// Begin of the clusters in a file. Their ports are not listener ports, although they follow the
/// listeners.
const CLUSTERS: &str = "\n  clusters:\n";
const LISTENERS: &str = "\n  listeners:\n";

/// An address in a README, and the address that replaces it in this run.
type Address = (String, SocketAddr);

/// An example in the repository.
#[derive(Debug, Clone)]
pub struct Example {
    /// Name of its folder.
    pub name: String,
    /// Its README.
    pub readme: String,
    /// Its `envoy.yaml`.
    pub yaml: String,
}

/// Ports of an example, in the order of its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ports {
    /// Port of Envoy's own admin interface.
    pub envoy_admin: u16,
    /// Port of the listener for users.
    pub data: u16,
    /// Port of the listener with Loudou's admin API.
    pub admin: u16,
}

impl Ports {
    /// Returns each address in the README with its replacement in this run.
    fn of(self, envoy: &Envoy) -> [Address; 3] {
        [
            (self.envoy_admin, envoy.envoy_admin_address()),
            (self.data, envoy.data_address()),
            (self.admin, envoy.admin_address()),
        ]
        .map(|(port, address)| (format!("127.0.0.1:{port}"), address))
    }
}

/// Returns the names of all examples, sorted.
pub fn names() -> Result<Vec<String>> {
    let folder = workspace_root().join(FOLDER);
    let entries = fs::read_dir(&folder).with_context(|| folder.display().to_string())?;
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry?;
        // Skip other folders, which have manifests for Kubernetes.
        if entry.path().join("envoy.yaml").is_file() {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    names.sort();
    Ok(names)
}

impl Example {
    /// Reads an example.
    pub fn read(name: &str) -> Result<Self> {
        let folder = workspace_root().join(FOLDER).join(name);
        let text = |file: &str| {
            let path = folder.join(file);
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
        };
        Ok(Self {
            name: name.to_owned(),
            readme: text("README.md")?,
            yaml: text("envoy.yaml")?,
        })
    }

    /// Returns the commands of the README.
    pub fn steps(&self) -> Vec<Step> {
        console::steps(&self.readme)
    }

    /// Returns the ports of the file's listeners. There must be three.
    pub fn ports(&self) -> Result<Ports> {
        let mut found = Vec::new();
        let (before, clusters) = self.yaml.split_once(CLUSTERS).unwrap_or((&self.yaml, ""));
        let behind = clusters.split_once(LISTENERS).map_or("", |(_, rest)| rest);
        for rest in before.split(PORT).skip(1).chain(behind.split(PORT).skip(1)) {
            let end = rest.find(|c: char| !c.is_ascii_digit());
            let digits = rest.split_at(end.unwrap_or(rest.len())).0;
            found.push(digits.parse().context("a port is no number")?);
        }
        let [envoy_admin, data, admin] = found[..] else {
            anyhow::bail!(
                "{}: envoy.yaml has the ports {found:?}, not three",
                self.name
            );
        };
        Ok(Ports {
            envoy_admin,
            data,
            admin,
        })
    }

    /// Returns the configuration with free ports and this filter. Fails if the file does not name
    /// the usual filter, because the test would then not use the file as it is.
    pub fn render(&self, wasm: &Path) -> Result<String> {
        let Ports {
            envoy_admin,
            data,
            admin,
        } = self.ports()?;
        let name = if is_native(wasm) { NATIVE } else { WASM };
        ensure!(self.yaml.contains(name), "envoy.yaml does not name {name}");
        let text = self.yaml.replace(name, &wasm.display().to_string());
        Ok([envoy_admin, data, admin]
            .into_iter()
            .fold(text, |text, port| {
                text.replace(&format!("{PORT}{port} "), &format!("{PORT}0 "))
            }))
    }

    /// Starts Envoy with the example.
    pub fn start(self) -> Result<Running> {
        let shell = Shell::new()?;
        let wasm = if self.yaml.contains(NATIVE) {
            native_path()?
        } else {
            wasm_path()?
        };
        let envoy = Envoy::start_yaml(&self.render(&wasm)?, &wasm)?;
        let ports = self.ports()?;
        Ok(Running {
            addresses: ports.of(&envoy),
            envoy,
            shell,
            example: self,
        })
    }
}

/// A running example.
#[derive(Debug)]
pub struct Running {
    /// Its Envoy.
    pub envoy: Envoy,
    example: Example,
    shell: Shell,
    addresses: [Address; 3],
}

impl Running {
    /// Runs the commands of the README in order and compares their output.
    pub fn follow_the_readme(&mut self) -> Result<()> {
        let steps = self.example.steps();
        follow(&self.example.name, &steps, &mut self.shell, &self.addresses)
    }
}

/// Runs commands of an example's README in order, and compares their output.
fn follow(name: &str, steps: &[Step], shell: &mut Shell, addresses: &[Address]) -> Result<()> {
    // Replace ports in the commands and in the output that curl prints.
    let here = |text: &str| {
        let put_in =
            |text: String, (port, address): &Address| text.replace(port, &address.to_string());
        addresses.iter().fold(text.to_owned(), put_in)
    };
    for step in steps {
        shell
            .run(step, here)
            .with_context(|| format!("envoy/{name}/README.md"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example(yaml: &str) -> Example {
        Example {
            name: "test".to_owned(),
            readme: String::new(),
            yaml: yaml.to_owned(),
        }
    }

    #[test]
    fn replaces_ports_and_filter() -> Result<()> {
        let example = Example::read("quickstart")?;
        let text = example.render(Path::new("/the/filter.wasm"))?;
        assert_eq!(text.matches("port_value: 0 }").count(), 3);
        assert!(text.contains("/the/filter.wasm") && !text.contains(WASM));
        Ok(())
    }

    #[test]
    fn another_number_of_ports_is_an_error() {
        let example = example("port_value: 8080 }");
        let message = example.render(Path::new("f")).expect_err("two are missing");
        assert!(
            message.to_string().contains("[8080], not three"),
            "{message}"
        );
    }

    #[test]
    fn another_filter_is_an_error() {
        let example = example("port_value: 1 }, port_value: 2 }, port_value: 3 }");
        let message = example.render(Path::new("f")).expect_err("no filter");
        assert!(message.to_string().contains("does not name"), "{message}");
    }
}
