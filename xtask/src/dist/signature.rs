//! Signs the checksums of a release with ECDSA over P-256 and SHA-256; the signature is
//! base64-encoded, as `cosign verify-blob --key` expects.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

/// Fails if the key has another type than the documented verification expects.
pub(super) fn check(key: &Path) -> Result<()> {
    let text = openssl(
        &["pkey", "-noout", "-text_pub", "-passin", "pass:", "-in"],
        &[key],
    )?;
    ensure!(
        text.contains("prime256v1"),
        "{}: not a key for ECDSA over P-256: make one with `openssl genpkey -algorithm EC -pkeyopt \
         ec_paramgen_curve:P-256 -out key.pem`",
        key.display()
    );
    Ok(())
}

/// Signs a file with this key. Writes the signature and the public key next to the file, and
/// verifies the signature.
pub(super) fn sign(file: &Path, key: &Path) -> Result<()> {
    check(key)?;
    let binary = file.with_extension("sig.der");
    openssl(
        &["dgst", "-sha256", "-sign"],
        &[key, Path::new("-out"), &binary, file],
    )?;
    let public = file.with_extension("pub");
    openssl(
        &["pkey", "-pubout", "-in"],
        &[key, Path::new("-out"), &public],
    )?;
    let verified = openssl(
        &["dgst", "-sha256", "-verify"],
        &[&public, Path::new("-signature"), &binary, file],
    )?;
    ensure!(verified.contains("Verified OK"), "{verified}");
    let text = openssl(&["base64", "-A", "-in"], &[&binary])?;
    let signature = file.with_extension("sig");
    fs::write(&signature, text).with_context(|| signature.display().to_string())?;
    fs::remove_file(&binary).with_context(|| binary.display().to_string())?;
    println!("signed: {}", signature.display());
    Ok(())
}

/// Runs openssl and returns its output.
fn openssl(words: &[&str], paths: &[&Path]) -> Result<String> {
    let output = Command::new("openssl").args(words).args(paths).output();
    let output = output.context("openssl is needed to sign")?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "openssl {}: {errors}",
        words.join(" ")
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use loudou_tests::paths::find_on_path;
    use loudou_tests::temp::TempDir;

    use super::*;

    #[test]
    fn a_signature_is_checked_as_documented() {
        if find_on_path("openssl").is_none() {
            println!("not tried: there is no openssl here");
            return;
        }
        let dir = TempDir::new("signature").expect("a folder");
        let sums = dir.path().join("SHA256SUMS");
        fs::write(&sums, "0  file\n").expect("written");
        let key = |kind: &str, name: &str| {
            let path = dir.path().join(name);
            let curve = format!("ec_paramgen_curve:{kind}");
            let words = ["genpkey", "-algorithm", "EC", "-pkeyopt", &curve, "-out"];
            openssl(&words, &[&path]).expect("a key");
            path
        };
        sign(&sums, &key("P-256", "key.pem")).expect("signed");
        let check = format!(
            "cd {} && base64 -d SHA256SUMS.sig > sig.der && \
             openssl dgst -sha256 -verify SHA256SUMS.pub -signature sig.der SHA256SUMS",
            dir.path().display()
        );
        let run = |text: &str| {
            Command::new("sh")
                .args(["-c", text])
                .output()
                .expect("runs")
        };
        assert!(run(&check).status.success());
        fs::write(&sums, "1  file\n").expect("written");
        assert!(!run(&check).status.success());
        let wrong = sign(&sums, &key("P-384", "other.pem")).expect_err("another curve");
        assert!(wrong.to_string().contains("P-256"), "{wrong}");
    }
}
