//! `cargo xtask image`: writes the filter as an OCI image, which Istio and Envoy Gateway fetch.
//!
//! The image has the variant that they call `compat`, which is one layer with the file
//! `plugin.wasm`. They cannot read the images that `wkg` pushes, in which the layer itself is the
//! module.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use loudou_tests::paths::target_dir;

use crate::filter;
use crate::oci::{File, Image};

pub(crate) mod registry;

/// Version of all crates.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Builds the module and writes its image. Prints the digest, and how to push the image.
pub(crate) fn run(check: bool) -> Result<()> {
    let (folder, digest) = build(&filter::build()?)?;
    let at = folder.display();
    println!("{at}: {digest}");
    println!(
        "push it: skopeo copy oci:{at}:{VERSION} docker://registry.example.com/loudou/filter:{VERSION}"
    );
    println!("name it: oci://registry.example.com/loudou/filter@{digest}");
    if check && let Some(reason) = registry::check()? {
        bail!(reason);
    }
    Ok(())
}

/// Writes the image of a module in place of an earlier image. Returns its folder and digest.
fn build(module: &Path) -> Result<(PathBuf, String)> {
    let folder = target_dir().join("image/filter");
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| folder.display().to_string())?;
    }
    let module = fs::read(module).with_context(|| module.display().to_string())?;
    let digest = image(&module).write(&folder)?;
    Ok((folder, digest))
}

/// Returns the image of a module.
pub(crate) fn image(module: &[u8]) -> Image {
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
