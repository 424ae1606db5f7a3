//! Output into a pipe whose reader exits first, as in `loudou events --follow | head -2`.

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::ExitStatusExt as _;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use loudou_tests::one_rule::config;
use loudou_tests::{EDIT_TOKEN, Envoy, Operator, eventually, loudou_command};

const PATIENCE: Duration = Duration::from_secs(20);
const SIGPIPE: i32 = 13;

/// A follower must end when its reader closes the pipe, even if no further event arrives. Without a
/// further event, no write could detect the closed pipe.
#[test]
fn a_follower_ends_when_its_reader_ends() -> Result<()> {
    let envoy = Envoy::start(&config(5))?;
    Operator::editor(&envoy).ban("r", "eve", "")?;
    let mut follow = loudou_command()?
        .args(["events", "--follow"])
        .env("LOUDOU_URL", envoy.admin_url())
        .env("LOUDOU_TOKEN", EDIT_TOKEN)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut output = BufReader::new(follow.stdout.take().context("no output")?);
    let mut line = String::new();
    output.read_line(&mut line)?;
    drop(output);
    let ended = eventually(PATIENCE, "the follower to end", || Ok(follow.try_wait()?));
    if ended.is_err() {
        follow.kill()?;
    }
    let done = follow.wait_with_output()?;
    ended?;
    ensure!(
        done.status.signal() == Some(SIGPIPE),
        "{done:?} after {line:?}"
    );
    ensure!(done.stderr.is_empty(), "{done:?}");
    envoy.stop()
}
