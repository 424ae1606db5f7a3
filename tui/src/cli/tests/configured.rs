//! The config file of the command line.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use super::{Env, Loudou, canned};
use loudou_client::fake::{Answer, Fake};

/// A folder with files of these modes. It is removed at the end.
pub(super) struct Folder(pub(super) PathBuf);

impl Folder {
    pub(super) fn new(name: &str, files: &[(&str, u32, &str)]) -> Self {
        let folder = std::env::temp_dir().join(format!("loudou-{name}-{}", std::process::id()));
        for (file, mode, text) in files {
            let file = folder.join(file);
            fs::create_dir_all(file.parent().expect("a folder")).expect("created");
            fs::write(&file, text).expect("written");
            fs::set_permissions(&file, Permissions::from_mode(*mode)).expect("set");
        }
        Self(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

fn status() -> Answer {
    Answer::json("200 OK", &canned::status())
}

fn env(config_home: &Path, token: Option<&str>) -> Env {
    Env {
        config_home: Some(config_home.into()),
        token: token.map(Into::into),
        ..Env::default()
    }
}

/// Returns the token that `loudou LINE` sends to a target of the file, and the printed text.
fn sent(name: &str, mode: u32, token: Option<&str>, line: &str) -> (u8, Vec<String>, String) {
    let fake = Fake::new(vec![status()]);
    let text = format!(
        "[targets.here]\nurl = {:?}\ntoken = \"of-the-file\"\n",
        fake.url
    );
    let folder = Folder::new(name, &[("loudou/config.toml", mode, &text)]);
    let loudou = Loudou {
        env: env(&folder.0, token),
        ..Loudou::default()
    };
    let ran = loudou.run(line);
    let requests: Vec<String> = fake.try_request().into_iter().collect();
    let heads = requests.iter().flat_map(|request| request.lines());
    let tokens = heads.filter_map(|line| line.strip_prefix("authorization: Bearer "));
    (ran.code, tokens.map(str::to_owned).collect(), ran.err)
}

#[test]
fn a_target_has_its_token_and_the_environment_goes_first() {
    let line = "--url @here status";
    let (code, tokens, err) = sent("target", 0o600, None, line);
    assert_eq!((code, tokens), (0, vec!["of-the-file".to_owned()]), "{err}");
    let (_, tokens, _) = sent("env", 0o600, Some("of-the-env"), line);
    assert_eq!(tokens, ["of-the-env"]);
}

#[test]
fn a_file_with_a_token_that_others_may_use_is_reported() {
    let (code, _, err) = sent("writable", 0o622, None, "--url @here status");
    assert_eq!(code, 2);
    assert!(err.contains("others may write"), "{err}");
    let (code, _, err) = sent("readable", 0o644, None, "--url @here status");
    assert_eq!(code, 0);
    assert!(err.contains("warning: others may read"), "{err}");
}

#[test]
fn mistakes_are_wrong_usage() {
    let (code, _, err) = sent("unknown", 0o600, None, "--url @there status");
    assert_eq!(code, 2);
    assert!(err.contains("no target @there; allowed: @here"), "{err}");
    let folder = Folder::new(
        "wrong",
        &[("loudou/config.toml", 0o600, "[screen]\ntheme = \"ligth\"\n")],
    );
    let loudou = Loudou {
        env: env(&folder.0, None),
        ..Loudou::default()
    };
    let ran = loudou.run("--url http://127.0.0.1:1 status");
    assert_eq!(ran.code, 2);
    let wanted = "config.toml:2:9: screen.theme: \"ligth\": no such theme; allowed: dark, light; did you mean `light`?";
    assert!(ran.err.contains(wanted), "{}", ran.err);
    // These commands call no Envoy.
    let loudou = Loudou {
        env: env(&folder.0, None),
        ..Loudou::default()
    };
    assert_eq!(loudou.run("--url http://127.0.0.1:1 schema").code, 0);
}

#[test]
fn a_config_file_that_is_not_there_is_wrong_usage() {
    for file in ["/none/of/these.toml", "/"] {
        let ran = Loudou::default().run(&format!("--config-file {file} status"));
        assert_eq!(ran.code, 2, "{}", ran.err);
        let wanted = format!("cannot read {file}: ");
        assert!(ran.err.contains(&wanted), "{}", ran.err);
        assert!(ran.err.contains("/dev/null for none"), "{}", ran.err);
    }
}

/// No option allows a change that the config file forbids.
#[test]
fn a_file_can_forbid_changes() {
    let folder = Folder::new(
        "read-only",
        &[(
            "loudou/config.toml",
            0o600,
            "read_only = true\ntimeout = \"9s\"\n",
        )],
    );
    let loudou = Loudou {
        env: env(&folder.0, None),
        ..Loudou::default()
    };
    let ran = loudou.run("--url http://127.0.0.1:1 --timeout 1s ban per-user mallory --for 1m");
    assert_eq!(ran.code, 2, "{}", ran.err);
    assert!(
        ran.err.contains("`read_only` in the config file"),
        "{}",
        ran.err
    );
}
