//! `cargo xtask image`: the filter as an OCI image, which Istio and Envoy Gateway fetch.
//!
//! It is the variant that they call `compat`: one layer with the file `plugin.wasm`. What `wkg` pushes, a layer that is
//! the module itself, they do not read.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use loudou_tests::paths::target_dir;

use crate::filter;
use crate::oci::{File, Image};

/// The version of all crates.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Builds the module and writes its image; prints its digest, and how to push it.
pub(crate) fn run() -> Result<()> {
    let folder = target_dir().join("image/filter");
    let digest = write(&fs::read(filter::build()?).context("no module")?, &folder)?;
    let at = folder.display();
    println!("{at}: {digest}");
    println!(
        "push it: skopeo copy oci:{at}:{VERSION} docker://registry.example.com/loudou/filter:{VERSION}"
    );
    println!("name it: oci://registry.example.com/loudou/filter@{digest}");
    Ok(())
}

/// Writes the image of a module in place of an earlier one, and returns its digest.
pub(crate) fn write(module: &[u8], folder: &PathBuf) -> Result<String> {
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    image(module).write(folder)
}

fn image(module: &[u8]) -> Image {
    Image {
        tag: VERSION.to_owned(),
        architecture: "wasm",
        os: "wasip1",
        files: vec![File {
            path: "plugin.wasm".to_owned(),
            bytes: module.to_vec(),
            is_program: false,
        }],
        entrypoint: None,
        annotations: vec![
            ("module.wasm.image/variant", "compat".to_owned()),
            ("org.opencontainers.image.licenses", "Apache-2.0".to_owned()),
            ("org.opencontainers.image.title", "loudou".to_owned()),
            ("org.opencontainers.image.version", VERSION.to_owned()),
        ],
    }
}
