//! `cargo xtask image`: writes an OCI image of the filter, which Istio and Envoy Gateway pull, or
//! of the native module, which Kubernetes mounts as a volume.
//!
//! The filter's image follows the variant `compat` of the Wasm image specification: one layer that
//! contains the file `plugin.wasm`. Istio and Envoy Gateway cannot read images that `wkg` pushes,
//! because the layer of such an image is the module itself. The native module's image contains the
//! file `libloudou.so`.

use std::path::{Path, PathBuf};
use std::{env, fs};

use anyhow::{Context as _, Result, bail};
use loudou_tests::paths::target_dir;

use crate::oci::{File, Image};
use crate::{filter, native};

pub(crate) mod registry;

/// Version that all crates share.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Builds the filter or the native module, and writes its image. Prints the digest of the image and
/// the command that pushes it.
pub(crate) fn run(check: bool, is_native: bool) -> Result<()> {
    let (name, scheme, (folder, digest)) = if is_native {
        let module = native::build()?;
        let module = fs::read(&module).with_context(|| module.display().to_string())?;
        (
            "native",
            "",
            write("native", &native_image(&module, here()?))?,
        )
    } else {
        ("filter", "oci://", build(&filter::build()?)?)
    };
    let at = folder.display();
    println!("{at}: {digest}");
    println!(
        "push it: skopeo copy oci:{at}:{VERSION} docker://registry.example.com/loudou/{name}:{VERSION}"
    );
    println!("name it: {scheme}registry.example.com/loudou/{name}@{digest}");
    if check && let Some(reason) = registry::check()? {
        bail!(reason);
    }
    Ok(())
}

/// Writes the image of a filter module, and replaces an earlier image. Returns the image's folder
/// and digest.
fn build(module: &Path) -> Result<(PathBuf, String)> {
    let module = fs::read(module).with_context(|| module.display().to_string())?;
    write("filter", &image(&module))
}

/// Writes an image, and replaces an earlier image with this name. Returns the image's folder and
/// digest.
fn write(name: &str, image: &Image) -> Result<(PathBuf, String)> {
    let folder = target_dir().join("image").join(name);
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| folder.display().to_string())?;
    }
    let digest = image.write(&folder)?;
    Ok((folder, digest))
}

/// Returns this machine's architecture under its OCI name.
fn here() -> Result<&'static str> {
    match env::consts::ARCH {
        "x86_64" => Ok("amd64"),
        "aarch64" => Ok("arm64"),
        other => bail!("no Envoy runs on {other}"),
    }
}

/// Returns the image of a native module for an architecture; Kubernetes mounts the image as a
/// volume.
pub(crate) fn native_image(module: &[u8], architecture: &'static str) -> Image {
    Image {
        tag: VERSION.to_owned(),
        architecture,
        os: "linux",
        files: vec![File {
            path: native::FILE.to_owned(),
            bytes: module.to_vec(),
            is_program: true,
        }],
        entrypoint: None,
        annotations: vec![
            ("org.opencontainers.image.licenses", "Apache-2.0".to_owned()),
            ("org.opencontainers.image.title", "loudou-native".to_owned()),
            ("org.opencontainers.image.version", VERSION.to_owned()),
        ],
    }
}

/// Returns the image of a filter module.
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
