//! Completion with Tab in a real bash, which offers rules and keys of a real Envoy.

use std::env;
use std::ffi::OsString;
use std::net::TcpListener;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use loudou_tests::{
    Config, Envoy, Operator, Request, TempDir, Terminal, VIEW_TOKEN, eventually, loudou_bin,
    without_config_file,
};
use serde_json::{Value, json};

/// Calls the function that the script registers, as bash does on Tab.
const TAB: &str = r#"
source <(loudou completions bash)
COMP_LINE="$*"
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_loudou loudou "${COMP_WORDS[COMP_CWORD]}" "" 2>&1
printf '%s\n' "${COMPREPLY[@]}"
"#;

/// Starts an Envoy that has refused mallory more often than bob, and has admitted a key of another
/// rule.
fn envoy() -> Result<Envoy> {
    let rule = |name: &str, header: &str, capacity: u32| {
        json!({
            "name": name,
            "key": [{ "header": header }],
            "limits": [{ "algorithm": "funnel", "capacity": capacity, "rate": "1/d" }],
        })
    };
    let rules = json!([
        rule("per-user", "x-user-id", 1),
        rule("per-tenant", "x-tenant", 100),
    ]);
    let envoy = Envoy::start(&Config::new(rules))?;
    let mut data = envoy.data();
    for (header, key, times) in [
        ("x-user-id", "mallory", 5),
        ("x-user-id", "bob", 3),
        ("x-user-id", "alice", 1),
        ("x-tenant", "acme", 2),
    ] {
        for _ in 0..times {
            data.send(&Request::get("/").header(header, key))?;
        }
    }
    // Workers flush their counts periodically.
    let mut ops = Operator::viewer(&envoy);
    for (by, counts) in [("refused", [4, 2].as_slice()), ("admitted", &[2, 1, 1, 1])] {
        eventually(Duration::from_secs(20), "the counts", || {
            let top = ops.get(&format!("/v1/top?by={by}"))?;
            let top = top.get("top").and_then(Value::as_array);
            let top = top.into_iter().flatten();
            let found: Vec<u64> = top
                .filter_map(|entry| entry.get("count")?.as_u64())
                .collect();
            Ok((found == counts).then_some(()))
        })?;
    }
    Ok(envoy)
}

/// Returns `PATH` with the directory of `loudou` in front.
fn path() -> Result<OsString> {
    let loudou = loudou_bin()?;
    let own = loudou.parent().context("a directory")?.to_owned();
    let others = env::var_os("PATH").unwrap_or_default();
    Ok(env::join_paths(
        [own].into_iter().chain(env::split_paths(&others)),
    )?)
}

/// Returns the words that bash offers for the last word of a line.
fn offered(url: &str, line: &str) -> Result<Vec<String>> {
    let mut shell = Command::new("bash");
    let output = without_config_file(&mut shell)
        .args(["--norc", "--noprofile", "-c", TAB, "bash"])
        .args(line.split(' '))
        .env("PATH", path()?)
        .env("LOUDOU_URL", url)
        .env("LOUDOU_TOKEN", VIEW_TOKEN)
        .output()
        .context("cannot run bash")?;
    let (printed, errors) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    ensure!(output.status.success(), "{printed}{errors}");
    let words = printed.lines().map(str::trim);
    let words = words.filter(|word| !word.is_empty());
    Ok(words.map(str::to_owned).collect())
}

#[test]
fn rules_keys_and_words_are_offered() -> Result<()> {
    let envoy = envoy()?;
    let url = envoy.admin_url();
    for (line, words) in [
        ("loudou rules ", &["per-user", "per-tenant"][..]),
        ("loudou set per-t", &["per-tenant"]),
        ("loudou buckets --rule per-u", &["per-user"]),
        // Keys with the most refusals come first.
        ("loudou ban per-user ", &["mallory", "bob", "alice"]),
        ("loudou ban --for 10m per-user m", &["mallory"]),
        ("loudou ban --all-rules a", &["acme", "alice"]),
        ("loudou get per-tenant ", &["acme"]),
        ("loudou buckets --key a", &["acme", "alice"]),
        ("loudou override per-user alice u", &["unlimited"]),
        ("loudou buckets --state b", &["busy", "banned"]),
        ("loudou set per-user --mode s", &["shadow"]),
        ("loudou top --by a", &["admitted"]),
        ("loudou unb", &["unban"]),
    ] {
        let found = offered(&url, line)?;
        let found: Vec<&str> = found
            .iter()
            .map(String::as_str)
            .filter(|word| !word.starts_with("--"))
            .collect();
        ensure!(found == words, "{line}: {found:?} instead of {words:?}");
    }
    // `--url` in the command line takes precedence over `LOUDOU_URL`.
    let nowhere = free_address()?;
    let line = format!("loudou --url {url} rules per-t");
    ensure!(offered(&nowhere, &line)? == ["per-tenant"], "{line}");
    envoy.stop()
}

#[test]
fn targets_of_the_config_file_are_offered() -> Result<()> {
    let folder = TempDir::new("targets")?;
    let file = folder.path().join("config.toml");
    let text = ["edge", "east", "west"]
        .map(|name| format!("[targets.{name}]\nurl = \"http://127.0.0.1:1\"\n"));
    std::fs::write(&file, text.concat())?;
    let nowhere = free_address()?;
    let line = format!("loudou --config-file {} --url @e", file.display());
    let found = offered(&nowhere, &line)?;
    ensure!(found == ["@east", "@edge"], "{found:?}");
    let line = format!("loudou rules --config-file {} --url @w", file.display());
    ensure!(offered(&nowhere, &line)? == ["@west"], "{line}");
    Ok(())
}

/// File names, manual pages and themes are offered without an Envoy.
#[test]
fn values_that_no_envoy_knows_are_offered() -> Result<()> {
    let folder = TempDir::new("files")?;
    std::fs::create_dir(folder.path().join("rules"))?;
    std::fs::write(folder.path().join("rules.yaml"), "")?;
    let nowhere = free_address()?;
    let begun = folder.path().join("ru").display().to_string();
    for option in ["check", "import", "--targets", "--tls-ca"] {
        let found = offered(&nowhere, &format!("loudou {option} {begun}"))?;
        ensure!(
            found == [format!("{begun}les.yaml"), format!("{begun}les/")],
            "{option}: {found:?}"
        );
    }
    // This test runs in the directory of its package.
    let found = offered(&nowhere, "loudou check Carg")?;
    ensure!(found == ["Cargo.toml"], "{found:?}");
    let found = offered(&nowhere, "loudou man un")?;
    ensure!(found == ["unset", "unban"], "{found:?}");
    let found = offered(&nowhere, "loudou --theme ")?;
    ensure!(found == ["dark", "light"], "{found:?}");
    Ok(())
}

/// Returns a URL of an address without a listener.
fn free_address() -> Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    Ok(format!("http://{}", listener.local_addr()?))
}

#[test]
fn without_an_envoy_nothing_is_offered_and_nothing_printed() -> Result<()> {
    let silent = TcpListener::bind("127.0.0.1:0")?;
    let silent_url = format!("http://{}", silent.local_addr()?);
    for url in [free_address()?, silent_url, "nonsense".to_owned()] {
        for line in ["loudou set p", "loudou ban per-user m"] {
            let found = offered(&url, line)?;
            ensure!(found.is_empty(), "{url}, {line}: {found:?}");
        }
        ensure!(offered(&url, "loudou unb")? == ["unban"], "{url}");
    }
    Ok(())
}

#[test]
fn tab_completes_in_a_terminal() -> Result<()> {
    let envoy = envoy()?;
    let mut terminal = Terminal::shell(&envoy, VIEW_TOKEN)?;
    terminal.shows("ready>")?;
    terminal.press("PATH=${LOUDOU%/*}:$PATH; source <(loudou completions bash); clear\r")?;
    terminal.until("the prompt alone", |screen| screen.trim() == "ready>")?;
    terminal.press("loudou get per-u\tmal\t")?;
    terminal.shows("loudou get per-user mallory")?;
    terminal.press("\r")?;
    terminal.shows("refusing")?;
    let folder = TempDir::new("targets")?;
    let file = folder.path().join("config.toml");
    std::fs::write(&file, "[targets.edge]\nurl = \"http://127.0.0.1:1\"\n")?;
    let file = file.display();
    terminal.press(&format!("clear; export LOUDOU_CONFIG_FILE={file}\r"))?;
    terminal.press("clear\r")?;
    terminal.press("loudou --url @e\t")?;
    terminal.shows("loudou --url @edge")?;
    // Bash splits words at the colons of a URL and at the `=` of an option.
    let url = envoy.admin_url();
    terminal.press(&format!(
        "\u{15}clear; export LOUDOU_URL={}\r",
        free_address()?
    ))?;
    terminal.press("clear\r")?;
    terminal.press(&format!("loudou --url {url} get per-u\tmal\t"))?;
    terminal.shows(&format!("loudou --url {url} get per-user mallory"))?;
    terminal.press(&format!("\u{15}loudou buckets --url={url} --rule=per-t\t"))?;
    terminal.shows("--rule=per-tenant")?;
    std::fs::write(folder.path().join("my rules.yaml"), "")?;
    let begun = folder.path().join("my").display().to_string();
    terminal.press(&format!("\u{15}clear\rloudou check {begun}\t"))?;
    terminal.shows("my\\ rules.yaml")?;
    terminal.press("\u{15}exit\r")?;
    terminal.ended()?;
    envoy.stop()
}
