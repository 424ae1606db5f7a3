//! Writes OCI images with a single layer each, as image layouts in a folder. The same files always
//! produce the same bytes, because the images contain no timestamps, owners or host names.
//!
//! The layout, manifest and configuration follow the OCI image specification 1.1.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

use anyhow::{Context as _, Result};
use flate2::{Compression, GzBuilder};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tar::{Builder, EntryType, Header};

const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";

/// A file in an image.
#[derive(Clone, Debug)]
pub(crate) struct File {
    /// Path in the image, without a leading slash.
    pub(crate) path: String,
    pub(crate) bytes: Vec<u8>,
    pub(crate) is_program: bool,
}

/// An image.
#[derive(Clone, Debug)]
pub(crate) struct Image {
    /// Tag of the image in the layout.
    pub(crate) tag: String,
    pub(crate) architecture: &'static str,
    pub(crate) os: &'static str,
    pub(crate) files: Vec<File>,
    /// Path of the program to run, if the image contains one.
    pub(crate) entrypoint: Option<String>,
    /// Annotations of the manifest.
    pub(crate) annotations: Vec<(&'static str, String)>,
}

/// A blob of an image layout: the configuration, the layer or the manifest.
struct Blob {
    digest: String,
    bytes: Vec<u8>,
}

impl Blob {
    fn new(bytes: Vec<u8>) -> Self {
        let digest = digest(&bytes);
        Self { digest, bytes }
    }

    fn of(value: &Value) -> Self {
        Self::new(value.to_string().into_bytes())
    }

    fn named_as(&self, media_type: &str) -> Value {
        json!({ "mediaType": media_type, "digest": self.digest, "size": self.bytes.len() })
    }

    fn write(&self, blobs: &Path) -> Result<()> {
        let name = self.digest.rsplit(':').next().unwrap_or_default();
        fs::write(blobs.join(name), &self.bytes).with_context(|| self.digest.clone())
    }
}

impl Image {
    /// Writes the image layout into an empty folder, and returns the digest of the manifest.
    pub(crate) fn write(&self, folder: &Path) -> Result<String> {
        let blobs = folder.join("blobs/sha256");
        fs::create_dir_all(&blobs).with_context(|| blobs.display().to_string())?;
        let tar = tar_of(&self.files)?;
        let mut config = json!({
            "architecture": self.architecture,
            "os": self.os,
            "config": {},
            "rootfs": { "type": "layers", "diff_ids": [digest(&tar)] },
        });
        if let (Some(program), Some(run)) = (&self.entrypoint, config.get_mut("config")) {
            // The user is numeric, because an image with a single file has no `/etc/passwd` to
            // resolve names.
            *run = json!({ "Entrypoint": [program], "User": "65532:65532" });
        }
        let (config, layer) = (Blob::of(&config), Blob::new(gzip(&tar)?));
        let annotations = self.annotations.iter();
        let annotations = annotations.map(|(name, text)| ((*name).to_owned(), json!(text)));
        let manifest = Blob::of(&json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": config.named_as(CONFIG),
            "layers": [layer.named_as(LAYER)],
            "annotations": Value::Object(annotations.collect()),
        }));
        let mut entry = manifest.named_as(MANIFEST);
        if let Some(entry) = entry.as_object_mut() {
            let tag = json!({ "org.opencontainers.image.ref.name": self.tag });
            entry.insert("annotations".to_owned(), tag);
        }
        let index = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": [entry] });
        for blob in [&config, &layer, &manifest] {
            blob.write(&blobs)?;
        }
        let layout = json!({ "imageLayoutVersion": "1.0.0" });
        fs::write(folder.join("oci-layout"), layout.to_string()).context("oci-layout")?;
        fs::write(folder.join("index.json"), index.to_string()).context("index.json")?;
        Ok(manifest.digest)
    }
}

/// Returns the SHA-256 digest in the form `sha256:` followed by hexadecimal digits.
pub(crate) fn digest(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    let digits = digest.iter().map(|byte| format!("{byte:02x}"));
    format!("sha256:{}", digits.collect::<String>())
}

/// Returns a tar archive that contains these files in order; the entries of a file's folders
/// precede the file. All entries have the time 0 and the owner root.
pub(crate) fn tar_of(files: &[File]) -> Result<Vec<u8>> {
    let mut archive = Builder::new(Vec::new());
    let mut folders = BTreeSet::new();
    for file in files {
        // Add entries for the folders, because dpkg does not create missing folders.
        for (end, _) in file.path.match_indices('/') {
            let Some(folder) = file.path.get(..=end) else {
                continue;
            };
            if folders.insert(folder) {
                let mut header = header(EntryType::Directory, 0o755, 0);
                let appended = archive.append_data(&mut header, folder, io::empty());
                appended.with_context(|| folder.to_owned())?;
            }
        }
        let mode = if file.is_program { 0o755 } else { 0o644 };
        let size = u64::try_from(file.bytes.len())?;
        archive
            .append_data(
                &mut header(EntryType::Regular, mode, size),
                &file.path,
                file.bytes.as_slice(),
            )
            .with_context(|| file.path.clone())?;
    }
    archive.into_inner().context("cannot end an archive")
}

fn header(kind: EntryType, mode: u32, size: u64) -> Header {
    let mut header = Header::new_ustar();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header
}

/// Compresses `bytes` reproducibly: the gzip header contains no name, no time and no operating
/// system.
pub(crate) fn gzip(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut gzip = GzBuilder::new()
        .mtime(0)
        .operating_system(255)
        .write(Vec::new(), Compression::best());
    gzip.write_all(bytes)?;
    gzip.finish().context("cannot compress")
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use flate2::read::GzDecoder;
    use loudou_tests::temp::TempDir;

    use super::*;

    fn image() -> Image {
        Image {
            tag: "1.2.3".to_owned(),
            architecture: "wasm",
            os: "wasip1",
            files: vec![File {
                path: "plugin.wasm".to_owned(),
                bytes: b"\0asm".to_vec(),
                is_program: false,
            }],
            entrypoint: None,
            annotations: vec![("org.opencontainers.image.version", "1.2.3".to_owned())],
        }
    }

    fn json_of(folder: &Path, digest: &Value) -> Value {
        let name = digest.as_str().expect("a digest").replace(':', "/");
        let bytes = fs::read(folder.join("blobs").join(name)).expect("a blob");
        serde_json::from_slice(&bytes).expect("JSON")
    }

    #[test]
    fn every_digest_and_size_is_that_of_a_blob() {
        let dir = TempDir::new("oci").expect("a folder");
        let digest = image().write(dir.path()).expect("written");
        let index = fs::read(dir.path().join("index.json")).expect("an index");
        let index: Value = serde_json::from_slice(&index).expect("JSON");
        let entry = &index["manifests"][0];
        assert_eq!(entry["digest"], digest.as_str());
        assert_eq!(
            entry["annotations"]["org.opencontainers.image.ref.name"],
            "1.2.3"
        );
        let manifest = json_of(dir.path(), &entry["digest"]);
        for named in [entry, &manifest["config"], &manifest["layers"][0]] {
            let name = named["digest"].as_str().expect("a digest");
            let bytes = fs::read(dir.path().join("blobs").join(name.replace(':', "/")));
            let bytes = bytes.expect("a blob");
            assert_eq!(super::digest(&bytes), name);
            assert_eq!(named["size"], bytes.len());
        }
        let layer = manifest["layers"][0]["digest"].as_str().expect("a digest");
        let layer = fs::read(dir.path().join("blobs").join(layer.replace(':', "/")));
        let mut tar = Vec::new();
        let layer = layer.expect("a layer");
        GzDecoder::new(layer.as_slice())
            .read_to_end(&mut tar)
            .expect("gzip");
        let config = json_of(dir.path(), &manifest["config"]["digest"]);
        assert_eq!(config["rootfs"]["diff_ids"][0], super::digest(&tar));
        let mut archive = tar::Archive::new(tar.as_slice());
        let entries = archive.entries().expect("an archive");
        let names: Vec<_> = entries
            .map(|entry| entry.expect("a file").path_bytes().into_owned())
            .collect();
        assert_eq!(names, [b"plugin.wasm"]);
    }

    #[test]
    fn folders_are_before_their_files_and_once() {
        let file = |path: &str| File {
            path: path.to_owned(),
            bytes: Vec::new(),
            is_program: false,
        };
        let tar = tar_of(&["a/b/c", "a/d", "e"].map(file)).expect("an archive");
        let mut archive = tar::Archive::new(tar.as_slice());
        let entries = archive.entries().expect("an archive");
        let entries = entries.map(|entry| {
            let entry = entry.expect("an entry");
            assert_eq!(entry.header().uid().expect("a number"), 0);
            let path = String::from_utf8(entry.path_bytes().into_owned()).expect("text");
            (path, entry.header().entry_type().is_dir())
        });
        let expected = [
            ("a/", true),
            ("a/b/", true),
            ("a/b/c", false),
            ("a/d", false),
            ("e", false),
        ];
        assert_eq!(
            entries.collect::<Vec<_>>(),
            expected.map(|(path, is_folder)| (path.to_owned(), is_folder))
        );
    }

    #[test]
    fn the_same_files_are_the_same_bytes() {
        let dirs = [(); 2].map(|()| TempDir::new("oci").expect("a folder"));
        let [one, other] = dirs
            .each_ref()
            .map(|dir| image().write(dir.path()).expect("written"));
        assert_eq!(one, other);
        let mut changed = image();
        changed.files[0].bytes.push(0);
        let dir = TempDir::new("oci").expect("a folder");
        assert_ne!(changed.write(dir.path()).expect("written"), one);
        // RFC 1952, section 2.3: the header contains no time and an unknown operating system.
        let gzip = gzip(b"x").expect("compressed");
        assert_eq!(gzip[4..8], [0; 4]);
        assert_eq!(gzip[9], 255);
    }
}
