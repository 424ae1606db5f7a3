//! Paths of the filters under test, and the check that they are up to date.
//!
//! A test of an old filter proves nothing. Cargo writes the list of a module's sources next to it
//! (`loudou_filter.d`). If a source is newer than the module, the test fails.

use std::env;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context as _, Result, bail, ensure};
use flate2::read::GzDecoder;

use crate::paths::{target_dir, workspace_root};
use crate::temp::TempDir;

/// Module of the previous release. `tests/modules/README.md` has the commands that made it.
const RELEASED: &str = "tests/modules/loudou_filter-0.1.0-f68ab9f94ee0.wasm.gz";

/// Commit from which the module of the previous release was built.
pub const RELEASED_GIT: &str = "f68ab9f94ee0";

/// Returns the filter: `LOUDOU_WASM`, or the output of `cargo xtask build`. Fails if it is older
/// than its sources.
pub fn wasm_path() -> Result<PathBuf> {
    let path = env::var_os("LOUDOU_WASM").map_or_else(built_wasm, PathBuf::from);
    check_fresh(&path)?;
    Ok(path)
}

/// Returns the filter that panics on request: `LOUDOU_TRAP_WASM`, or the output of `cargo xtask
/// build --trap`. Fails if it is older than its sources.
pub fn trap_wasm_path() -> Result<PathBuf> {
    let path = env::var_os("LOUDOU_TRAP_WASM").map_or_else(built_trap_wasm, PathBuf::from);
    check_fresh(&path).context("`cargo xtask build --trap` builds the filter that panics")?;
    Ok(path)
}

/// Returns the filter without the admin API: `LOUDOU_DATA_WASM`, or the output of `cargo xtask
/// build --without-admin`. Fails if it is older than its sources.
pub fn data_wasm_path() -> Result<PathBuf> {
    let path = env::var_os("LOUDOU_DATA_WASM").map_or_else(built_data_wasm, PathBuf::from);
    check_fresh(&path)
        .context("`cargo xtask build --without-admin` builds the filter without the admin API")?;
    Ok(path)
}

/// Returns the native module: `LOUDOU_NATIVE`, or the output of `cargo xtask build --native`. Fails
/// if it is older than its sources.
pub fn native_path() -> Result<PathBuf> {
    let path = env::var_os("LOUDOU_NATIVE").map_or_else(built_native, PathBuf::from);
    check_fresh(&path).context("`cargo xtask build --native` builds the native module")?;
    Ok(path)
}

/// Returns the native module that panics on request: `LOUDOU_TRAP_NATIVE`, or the output of `cargo
/// xtask build --native --trap`. Fails if it is older than its sources.
pub fn trap_native_path() -> Result<PathBuf> {
    let path = env::var_os("LOUDOU_TRAP_NATIVE").map_or_else(built_trap_native, PathBuf::from);
    check_fresh(&path)
        .context("`cargo xtask build --native --trap` builds the module that panics")?;
    Ok(path)
}

/// Returns the path at which `cargo xtask build --native` leaves the native module.
pub fn built_native() -> PathBuf {
    target_dir().join("native/libloudou.so")
}

/// Returns the path at which `cargo xtask build --native --trap` leaves the native module that
/// panics.
pub fn built_trap_native() -> PathBuf {
    trap_target_dir().join("debug/libloudou.so")
}

/// Unpacks the module of the previous release into this directory.
pub fn released_wasm(dir: &TempDir) -> Result<PathBuf> {
    let path = dir.path().join("released.wasm");
    let packed = File::open(workspace_root().join(RELEASED)).context(RELEASED)?;
    io::copy(&mut GzDecoder::new(packed), &mut File::create(&path)?)?;
    ensure!(
        fs::read(&path)? != fs::read(wasm_path()?)?,
        "both modules are the same"
    );
    Ok(path)
}

/// Returns the build directory of the filter that panics, which is separate from the real filter's.
pub fn trap_target_dir() -> PathBuf {
    target_dir().join("trap")
}

/// Returns the path at which `cargo xtask build --trap` leaves the filter that panics.
pub fn built_trap_wasm() -> PathBuf {
    trap_target_dir().join("wasm32-unknown-unknown/wasm/loudou_filter.wasm")
}

/// Returns the build directory of the filter without the admin API.
pub fn data_target_dir() -> PathBuf {
    target_dir().join("without-admin")
}

/// Returns the path at which `cargo xtask build --without-admin` leaves the filter without the
/// admin API.
pub fn built_data_wasm() -> PathBuf {
    data_target_dir().join("wasm32-unknown-unknown/wasm/loudou_filter.wasm")
}

/// Returns the path at which `cargo xtask build` leaves the filter.
pub fn built_wasm() -> PathBuf {
    target_dir().join("wasm32-unknown-unknown/wasm/loudou_filter.wasm")
}

/// Fails if a module is older than one of its sources.
pub fn check_fresh(wasm: &Path) -> Result<()> {
    let built = modified(wasm).context("there is no filter: run `cargo xtask build`")?;
    let list = wasm.with_extension("d");
    let text = fs::read_to_string(&list).with_context(|| {
        format!(
            "cannot read {}, Cargo's list of the filter's sources",
            list.display()
        )
    })?;
    for source in sources(&text) {
        let changed = modified(&source);
        if changed.as_ref().is_ok_and(|changed| *changed <= built) {
            continue;
        }
        let state = if changed.is_ok() {
            "is newer"
        } else {
            "is gone"
        };
        bail!(
            "{} is stale: its source {} {state}; run `cargo xtask build`",
            wasm.display(),
            source.display()
        );
    }
    Ok(())
}

fn modified(path: &Path) -> Result<SystemTime> {
    let time = fs::metadata(path).and_then(|data| data.modified());
    time.with_context(|| format!("cannot read {}", path.display()))
}

/// Returns the prerequisites of a make rule, `target: a b\ c`. A space within a name is escaped.
fn sources(rules: &str) -> Vec<PathBuf> {
    let lists = rules.lines().filter_map(|line| line.split_once(": "));
    let names = lists.flat_map(|(_, list)| {
        let list = list.replace("\\ ", "\0");
        list.split_whitespace()
            .map(|name| name.replace('\0', " "))
            .collect::<Vec<_>>()
    });
    names.map(PathBuf::from).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_filter_older_than_a_source_is_refused() -> Result<()> {
        let dir = TempDir::new("wasm-self-test")?;
        let source = dir.write("my lib.rs", "")?;
        let wasm = dir.write("filter.wasm", "")?;
        let escaped = source.display().to_string().replace(' ', "\\ ");
        dir.write("filter.d", &format!("{}: {escaped}\n", wasm.display()))?;
        check_fresh(&wasm)?;

        let later = modified(&wasm)? + Duration::from_secs(1);
        File::options()
            .write(true)
            .open(&source)?
            .set_modified(later)?;
        let message = check_fresh(&wasm)
            .expect_err("the source is newer")
            .to_string();
        assert!(
            message.contains("my lib.rs is newer; run `cargo xtask build`"),
            "{message}"
        );

        fs::remove_file(&source)?;
        let message = check_fresh(&wasm)
            .expect_err("the source is gone")
            .to_string();
        assert!(message.contains("my lib.rs is gone"), "{message}");
        Ok(())
    }

    #[test]
    fn a_missing_filter_says_what_to_run() {
        let message = check_fresh(Path::new("/nowhere.wasm")).expect_err("there is no such file");
        assert!(
            message.to_string().contains("cargo xtask build"),
            "{message}"
        );
    }
}
