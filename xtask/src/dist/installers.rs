//! Generates files that install the `loudou` command from a release: a shell script, a formula for
//! Homebrew, and a manifest for krew, the plugin manager of kubectl.

use super::{Target, VERSION};

/// File name of the Homebrew formula in a release.
pub(super) const FORMULA: &str = "loudou.rb";
const MANIFEST: &str = "loudou.krew.yaml";
const SCRIPT: &str = "install.sh";

/// Returns the names and contents of all installers; `releases` is the URL below which the archives
/// are published.
pub(super) fn all(releases: &str, archives: &[(&Target, String)]) -> [(&'static str, String); 3] {
    [
        (FORMULA, formula(releases, archives)),
        (MANIFEST, manifest(releases, archives)),
        (SCRIPT, script(releases)),
    ]
}

fn script(releases: &str) -> String {
    let script = include_str!("install.sh").replace("@VERSION@", VERSION);
    script.replace("@RELEASES@", releases)
}

/// Returns the URL of a target's archive.
fn address(releases: &str, target: &Target) -> String {
    let triple = target.triple;
    format!("{releases}/v{VERSION}/loudou-{VERSION}-{triple}.tar.gz")
}

/// Returns the krew manifest, with which `kubectl krew install --manifest` installs `kubectl
/// loudou`.
fn manifest(releases: &str, archives: &[(&Target, String)]) -> String {
    let mut text = format!(
        "apiVersion: krew.googlecontainertools.github.com/v1alpha2\n\
         kind: Plugin\n\
         metadata:\n  \
           name: loudou\n\
         spec:\n  \
           version: v{VERSION}\n  \
           homepage: https://example.com/loudou\n  \
           shortDescription: Watch and edit the limits inside Envoy\n  \
           description: |\n    \
             Shows the live buckets of the rate limiter Loudou, which runs inside Envoy, and\n    \
             changes its limits. It needs a connection to the admin API, such as one by\n    \
             `kubectl port-forward`, in LOUDOU_URL, and a token in LOUDOU_TOKEN.\n  \
           platforms:\n"
    );
    for (target, digest) in archives {
        let (address, digest) = (address(releases, target), digest.replace("sha256:", ""));
        let architecture = target.oci;
        text.extend([format!(
            "    - selector: {{ matchLabels: {{ os: linux, arch: {architecture} }} }}\n      \
               uri: {address}\n      \
               sha256: {digest}\n      \
               files:\n        \
                 - {{ from: \"*/bin/loudou\", to: . }}\n        \
                 - {{ from: \"*/LICENSE\", to: . }}\n      \
               bin: loudou\n"
        )]);
    }
    text
}
/// Returns the Homebrew formula for archives with these digests.
fn formula(releases: &str, archives: &[(&Target, String)]) -> String {
    let mut text = format!(
        "class Loudou < Formula\n  \
           desc \"Watch and edit the limits that Loudou enforces inside Envoy\"\n  \
           homepage \"https://example.com/loudou\"\n  \
           version \"{VERSION}\"\n  \
           license \"Apache-2.0\"\n\n  \
           depends_on :linux\n"
    );
    for (target, digest) in archives {
        let on = if target.oci == "amd64" {
            "on_intel"
        } else {
            "on_arm"
        };
        let (address, digest) = (address(releases, target), digest.replace("sha256:", ""));
        text.extend([format!(
            "\n  {on} do\n    \
               url \"{address}\"\n    \
               sha256 \"{digest}\"\n  \
             end\n"
        )]);
    }
    text.push_str(
        "\n  def install\n    bin.install Dir[\"bin/*\"]\n    man1.install Dir[\"share/man/man1/*\"]\n    \
           pkgshare.install Dir[\"share/loudou/*\"]\n    \
           bash_completion.install \"share/bash-completion/completions/loudou\"\n    \
           fish_completion.install \"share/fish/vendor_completions.d/loudou.fish\"\n    \
           zsh_completion.install \"share/zsh/site-functions/_loudou\"\n  end\n\n  \
           test do\n    assert_match version.to_s, shell_output(\"#{bin}/loudou --version\")\n  end\nend\n",
    );
    text
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;
    use std::process::{Command, Output};

    use loudou_tests::temp::TempDir;

    use super::super::programs::TARGETS;
    use super::*;
    use crate::oci;

    const RELEASES: &str = "https://example.com/releases";

    fn archives() -> Vec<(&'static Target, String)> {
        let digest = |target: &Target| oci::digest(target.triple.as_bytes());
        TARGETS.iter().map(|it| (it, digest(it))).collect()
    }

    #[test]
    fn the_manifest_for_krew_has_an_archive_per_processor() {
        let text = manifest(RELEASES, &archives());
        let read = loudou_check::document::read(text.as_bytes()).expect("YAML");
        let platforms = &read.value[0]["spec"]["platforms"];
        for (index, (target, digest)) in archives().iter().enumerate() {
            let platform = &platforms[index];
            assert_eq!(platform["selector"]["matchLabels"]["arch"], target.oci);
            assert_eq!(platform["uri"], address(RELEASES, target));
            assert_eq!(
                format!("sha256:{}", platform["sha256"].as_str().expect("a text")),
                *digest
            );
        }
    }

    /// Writes a release whose archive contains `program`; its checksum is computed for an archive
    /// that contains `summed`.
    fn release(folder: &Path, program: &[u8], summed: &[u8]) {
        let target = TARGETS.iter().find(|target| target.is_here());
        let name = format!("loudou-{VERSION}-{}", target.expect("Linux").triple);
        let archive = |bytes: &[u8]| {
            let file = |path: &str| oci::File {
                path: format!("{name}/{path}"),
                bytes: bytes.to_vec(),
                is_program: true,
            };
            let files = [file("bin/loudou"), file("share/man/man1/loudou.1")];
            oci::gzip(&oci::tar_of(&files).expect("an archive")).expect("compressed")
        };
        let digest = oci::digest(&archive(summed)).replace("sha256:", "");
        let folder = folder.join(format!("v{VERSION}"));
        fs::create_dir_all(&folder).expect("a folder");
        fs::write(folder.join(format!("{name}.tar.gz")), archive(program)).expect("written");
        fs::write(
            folder.join("SHA256SUMS"),
            format!("{digest}  {name}.tar.gz\n"),
        )
        .expect("written");
    }

    fn install(folder: &Path) -> Output {
        let path = folder.join("install.sh");
        fs::write(&path, script(RELEASES)).expect("written");
        let mut sh = Command::new("sh");
        sh.arg(path).env("LOUDOU_PREFIX", folder.join("prefix"));
        sh.env("LOUDOU_RELEASES", format!("file://{}", folder.display()));
        sh.output().expect("sh runs")
    }

    #[test]
    fn the_script_installs_the_program() {
        let dir = TempDir::new("install").expect("a folder");
        release(
            dir.path(),
            b"#!/bin/sh\necho it runs\n",
            b"#!/bin/sh\necho it runs\n",
        );
        let output = install(dir.path());
        assert!(output.status.success(), "{output:?}");
        let program = dir.path().join("prefix/bin/loudou");
        let ran = Command::new(program).output().expect("it runs");
        assert_eq!(ran.stdout, b"it runs\n");
    }

    #[test]
    fn the_script_refuses_another_checksum() {
        let dir = TempDir::new("install").expect("a folder");
        release(dir.path(), b"changed", b"as built");
        let output = install(dir.path());
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && error.contains("another checksum"),
            "{error}"
        );
        assert!(!dir.path().join("prefix").exists());
    }

    #[test]
    fn the_script_names_a_release_that_is_missing() {
        let dir = TempDir::new("install").expect("a folder");
        let output = install(dir.path());
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(error.contains("cannot download file://"), "{error}");
    }
}
