//! `loudou relay` runs the program `loudou-relay`.

use std::process::Command;

use anyhow::Result;
use loudou_tests::{TempDir, loudou_bin, relay_bin, without_config_file};

#[test]
fn loudou_starts_the_relay() -> Result<()> {
    let dir = TempDir::new("loudou-relay")?;
    let loudou = dir.path().join("loudou");
    std::fs::copy(loudou_bin()?, &loudou)?;
    let run = |arguments: &[&str]| {
        let mut command = Command::new(&loudou);
        without_config_file(&mut command);
        command.arg("relay").args(arguments).env("PATH", "");
        command.output()
    };
    let alone = run(&["--version"])?;
    let error = String::from_utf8_lossy(&alone.stderr).into_owned();
    assert!(!alone.status.success());
    assert!(error.contains("cannot start loudou-relay: "), "{error}");
    // `loudou` must print help even if the relay's program is missing.
    let about = run(&["-h"])?;
    let text = String::from_utf8(about.stdout)?;
    assert!(about.status.success(), "{text}");
    assert!(text.contains("through which Envoys share limits"), "{text}");
    assert!(
        text.contains("cargo build --release -p loudou-relay"),
        "{text}"
    );
    std::fs::copy(relay_bin()?, dir.path().join("loudou-relay"))?;
    let version = run(&["--version"])?;
    assert_eq!(
        String::from_utf8(version.stdout)?,
        concat!("loudou-relay ", env!("CARGO_PKG_VERSION"), "\n")
    );
    let help = String::from_utf8(run(&["--help"])?.stdout)?;
    assert!(help.contains("--sentinel-master"), "{help}");
    // The relay also gets options that `loudou` itself has.
    let wrong = run(&["--token-file", "/no/such/file"])?;
    let error = String::from_utf8_lossy(&wrong.stderr).into_owned();
    assert!(
        error.starts_with("error: --token-file /no/such/file: "),
        "{error}"
    );
    let wrong = run(&["--timeout-ms", "0"])?;
    assert_eq!(wrong.status.code(), Some(2));
    // The usage names the command that the user typed.
    let wrong = run(&["--listn", "1"])?;
    let error = String::from_utf8_lossy(&wrong.stderr).into_owned();
    assert!(
        error.contains("a similar argument exists: '--listen'"),
        "{error}"
    );
    assert!(error.contains("Usage: loudou relay "), "{error}");
    assert!(help.contains("Usage: loudou relay [OPTIONS]"), "{help}");
    Ok(())
}
