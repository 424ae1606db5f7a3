//! `cargo xtask dist`: builds a release in `target/dist`. A release consists of static programs
//! with their man pages, the wasm module, the native modules, images, packages, checksums and a
//! bill of materials. If a key is given, it also contains a signature.
//!
//! Builds are reproducible: a commit produces identical bytes on any machine and in any folder,
//! because no file contains a timestamp, an owner or a local path. `--check` builds a second time,
//! in a clone in another folder, and compares the results.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

use anyhow::{Context as _, Result, bail, ensure};
use loudou_tests::paths::{target_dir, workspace_root};
use loudou_tests::temp::TempDir;
use programs::{Program, TARGETS, Target};

use crate::command::run as run_command;
use crate::image::VERSION;
use crate::oci::{File, Image};
use crate::{filter, image, native, oci};

mod deb;
mod installers;
mod pages;
mod programs;
mod sbom;
mod signature;

/// Options of the command.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Build again in a clone in another folder, and compare all files byte by byte
    #[arg(long)]
    check: bool,
    /// Sign the checksums with this key: ECDSA P-256 in PEM, without a passphrase
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// URL of the releases, for the installers
    #[arg(
        long,
        value_name = "URL",
        default_value = "https://example.com/loudou/releases"
    )]
    releases: String,
    /// Write the release to this folder instead of target/dist
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Builds the release.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let out = arguments.out.clone();
    let out = out.unwrap_or_else(|| target_dir().join("dist"));
    // Check for mistakes before the build, because the build takes minutes.
    replaceable(&out)?;
    if let Some(key) = &arguments.key {
        signature::check(key)?;
    }
    if arguments.check {
        committed()?;
    }
    programs::targets()?;
    let made = make(&workspace_root(), &out, &arguments.releases)?;
    if let Some(key) = &arguments.key {
        signature::sign(&out.join(SUMS), key)?;
    }
    for (name, digest) in &made {
        println!("{digest}  {name}");
    }
    in_an_empty_root(&out)?;
    if arguments.check {
        again(&made, &arguments.releases)?;
    }
    println!("{}: {} files", out.display(), made.len());
    Ok(())
}

const SUMS: &str = "SHA256SUMS";

/// Fails if the folder contains anything other than a release, because `make` deletes the folder.
fn replaceable(out: &Path) -> Result<()> {
    let is_empty = match fs::read_dir(out) {
        Ok(mut files) => files.next().is_none(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => true,
        Err(error) => return Err(error).context(out.display().to_string()),
    };
    let is_release = out.join(SUMS).is_file() && out.join(installers::FORMULA).is_file();
    ensure!(
        is_empty || is_release,
        "{}: has files that are no release; name an empty folder, or remove it",
        out.display()
    );
    Ok(())
}

/// Fails if there are uncommitted changes, because a clone would lack them.
fn committed() -> Result<()> {
    let mut git = Command::new("git");
    git.args(["status", "--porcelain"]);
    let output = git.current_dir(workspace_root()).output();
    let output = output.context("--check needs git")?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "git status: {errors}");
    let changed = String::from_utf8_lossy(&output.stdout);
    ensure!(
        changed.is_empty(),
        "--check builds what is committed; commit or remove:\n{changed}"
    );
    Ok(())
}

/// Digests of the release files, by file name.
type Made = BTreeMap<String, String>;

/// Builds all release files from the sources in `root`, and replaces the contents of `out` with
/// them.
fn make(root: &Path, out: &Path, releases: &str) -> Result<Made> {
    if out.exists() {
        fs::remove_dir_all(out).with_context(|| out.display().to_string())?;
    }
    fs::create_dir_all(out).with_context(|| out.display().to_string())?;
    let mut files: Vec<(String, Vec<u8>)> = Vec::new();
    let module = fs::read(filter::build_in(root)?).context("no module")?;
    files.push((format!("loudou-{VERSION}.wasm"), module.clone()));
    files.push((
        image_name("filter", "wasm"),
        layout(&image::image(&module))?,
    ));
    let built = TARGETS
        .iter()
        .map(|target| Ok((target, programs::build(root, target)?)));
    let built = built.collect::<Result<Vec<_>>>()?;
    let here = programs::here(root).context("no program of a release runs here; use Linux")?;
    let pages = pages::of(&here)?;
    let mut archives = Vec::new();
    for (target, programs) in &built {
        let library = programs::module(root, target)?;
        files.push((
            image_name("native", target.oci),
            layout(&image::native_image(&library, target.oci))?,
        ));
        let modules = [("loudou_filter.wasm", &module), (native::FILE, &library)];
        let modules = modules.map(|(name, bytes)| File {
            path: name.to_owned(),
            bytes: bytes.clone(),
            is_program: false,
        });
        // `loudou demo` and users of the archive find the modules here.
        let below = |file: &File| File {
            path: format!("share/loudou/{}", file.path),
            ..file.clone()
        };
        let shared: Vec<File> = pages
            .iter()
            .cloned()
            .chain(modules.iter().map(below))
            .collect();
        let name = format!("loudou-{VERSION}-{}.tar.gz", target.triple);
        let archive = oci::gzip(&oci::tar_of(&archived(root, &name, programs, &shared)?)?)?;
        archives.push((*target, oci::digest(&archive)));
        files.push((name, archive));
        let package = deb::package(root, target, programs, &shared)?;
        files.push((format!("loudou_{VERSION}_{}.deb", target.debian), package));
        for program in programs {
            let image = image_of(target, program, &modules);
            files.push((image_name(program.name, target.oci), layout(&image)?));
        }
        files.push((format!("libloudou-{VERSION}-{}.so", target.oci), library));
    }
    for (name, text) in installers::all(releases, &archives) {
        files.push((name.to_owned(), text.into_bytes()));
    }
    files.push((
        format!("loudou-{VERSION}.cdx.json"),
        sbom::text(root)?.into_bytes(),
    ));
    let mut made = Made::new();
    for (name, bytes) in files {
        fs::write(out.join(&name), &bytes).with_context(|| name.clone())?;
        made.insert(name, oci::digest(&bytes).replace("sha256:", ""));
    }
    let lines = made
        .iter()
        .map(|(name, digest)| format!("{digest}  {name}\n"));
    fs::write(out.join(SUMS), lines.collect::<String>()).context(SUMS)?;
    Ok(made)
}

fn image_name(program: &str, architecture: &str) -> String {
    format!("{program}-{VERSION}-{architecture}.oci.tar")
}

/// Returns the files of the archive `name`, all inside one folder of that name.
fn archived(root: &Path, name: &str, programs: &[Program], shared: &[File]) -> Result<Vec<File>> {
    let folder = name.trim_end_matches(".tar.gz");
    let below = |file: &File| File {
        path: format!("{folder}/{}", file.path),
        ..file.clone()
    };
    let mut files: Vec<File> = programs
        .iter()
        .map(|program| below(&program.file("bin")))
        .collect();
    files.extend(shared.iter().map(below));
    for name in ["LICENSE", "README.md", "CHANGELOG.md"] {
        let bytes = fs::read(root.join(name)).context(name)?;
        files.push(below(&File {
            path: name.to_owned(),
            bytes,
            is_program: false,
        }));
    }
    Ok(files)
}

/// Returns the image of a program. The image of `loudou` also contains the modules, so that a build
/// of a proxy image can copy them from there.
fn image_of(target: &Target, program: &Program, modules: &[File]) -> Image {
    let mut files = vec![program.file("")];
    if program.name == "loudou" {
        files.extend_from_slice(modules);
    }
    Image {
        tag: VERSION.to_owned(),
        architecture: target.oci,
        os: "linux",
        files,
        entrypoint: Some(format!("/{}", program.name)),
        annotations: vec![
            ("org.opencontainers.image.licenses", "Apache-2.0".to_owned()),
            ("org.opencontainers.image.title", program.name.to_owned()),
            ("org.opencontainers.image.version", VERSION.to_owned()),
        ],
    }
}

/// Packs the OCI layout of an image into one file, which skopeo reads as `oci-archive:`.
fn layout(image: &Image) -> Result<Vec<u8>> {
    let dir = TempDir::new("layout")?;
    image.write(dir.path())?;
    let mut files = Vec::new();
    collect(dir.path(), "", &mut files)?;
    oci::tar_of(&files)
}

/// Adds the files in a folder and its subfolders, ordered by name.
fn collect(folder: &Path, within: &str, files: &mut Vec<File>) -> Result<()> {
    let entries = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let mut paths = entries
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<Vec<_>>>()?;
    paths.sort();
    for path in paths {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let name = format!("{within}{name}");
        if path.is_dir() {
            collect(&path, &format!("{name}/"), files)?;
        } else {
            let bytes = fs::read(&path).with_context(|| path.display().to_string())?;
            files.push(File {
                path: name,
                bytes,
                is_program: false,
            });
        }
    }
    Ok(())
}

/// Runs the `loudou` command that was built for this machine's processor, in a root directory that
/// contains no libraries or other system files.
fn in_an_empty_root(out: &Path) -> Result<()> {
    let dir = TempDir::new("empty-root")?;
    let target = TARGETS.iter().find(|target| target.is_here());
    let Some(target) = target else {
        println!("not run in an empty root: no program for this processor");
        return Ok(());
    };
    let name = format!("loudou-{VERSION}-{}", target.triple);
    let archive = fs::File::open(out.join(format!("{name}.tar.gz")))?;
    tar::Archive::new(flate2::read::GzDecoder::new(archive)).unpack(dir.path())?;
    let root = dir.path().join(&name).join("bin");
    let mut unshare = Command::new("unshare");
    unshare.args(["--user", "--map-root-user"]);
    let allowed = unshare.arg("true").output();
    if !allowed.is_ok_and(|output| output.status.success()) {
        println!("not run in an empty root: unshare may not make a user namespace here");
        return Ok(());
    }
    let mut unshare = Command::new("unshare");
    unshare.args(["--user", "--map-root-user", "--root"]);
    let output = unshare.arg(root).args(["/loudou", "--version"]).output();
    let output = output.context("cannot run unshare")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "in an empty root: {errors}");
    ensure!(
        text.trim() == format!("loudou {VERSION}"),
        "in an empty root: {text}"
    );
    println!("in an empty root: {}", text.trim());
    Ok(())
}

/// Builds the committed sources again, in a clone in another folder with its own build directories,
/// and compares the results.
fn again(made: &Made, releases: &str) -> Result<()> {
    let dir = TempDir::new("dist-again")?;
    let clone = dir.path().join("elsewhere");
    let mut git = Command::new("git");
    git.args(["clone", "--quiet", "--local"])
        .arg(workspace_root());
    run_command(git.arg(&clone))?;
    let other = make(&clone, &dir.path().join("out"), releases)?;
    for (name, digest) in made {
        if other.get(name) != Some(digest) {
            bail!(
                "{name} differs: {digest} here, {:?} in {}",
                other.get(name),
                clone.display()
            );
        }
    }
    ensure!(other.len() == made.len(), "other files: {other:?}");
    println!("built twice, in two folders: identical");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_release_is_replaced() {
        let dir = TempDir::new("out").expect("a folder");
        replaceable(dir.path()).expect("empty");
        replaceable(&dir.path().join("missing")).expect("not there");
        fs::write(dir.path().join("thesis.txt"), "").expect("written");
        let error = replaceable(dir.path()).expect_err("something else");
        assert!(error.to_string().contains("no release"), "{error}");
        for name in [SUMS, installers::FORMULA] {
            fs::write(dir.path().join(name), "").expect("written");
        }
        replaceable(dir.path()).expect("a release");
    }
}
