//! Child processes that never outlive this process.
//!
//! A guard kills its child when it is dropped. Destructors do not run when this process is killed,
//! so each child also has a watchdog: a shell that reads from a pipe owned by this process. When
//! the process dies for any reason, the pipe closes and the shell kills the child. This needs no
//! unsafe code.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

use anyhow::{Context as _, Result, ensure};

/// Waits for the end of its input, then ends the process `$0`.
const WATCHDOG: &str = r#"trap '' INT TERM HUP; read -r _; kill -s "$1" "$0""#;

/// Process group of the child, which decides the terminal signals that it gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    /// The child has a separate process group. Ctrl-C ends this process, which then ends the child.
    Own,
    /// The child shares this process's group. It may use the terminal, and gets Ctrl-C itself.
    Foreground,
}

/// A child process that is killed when this is dropped, or when this process dies.
#[derive(Debug)]
pub struct Guarded {
    name: String,
    child: Child,
    watchdog: Child,
}

impl Guarded {
    /// Starts the command. Messages use `name`.
    pub fn spawn(name: &str, command: &mut Command, group: Group) -> Result<Self> {
        let signal = match group {
            Group::Own => {
                command.process_group(0);
                "KILL"
            }
            // A terminal program restores the screen on TERM.
            Group::Foreground => "TERM",
        };
        let mut child = command
            .spawn()
            .with_context(|| format!("cannot start {name}"))?;
        let watchdog = Command::new("sh")
            .args(["-c", WATCHDOG, &child.id().to_string(), signal])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn();
        match watchdog {
            Ok(watchdog) => Ok(Self {
                name: name.to_owned(),
                child,
                watchdog,
            }),
            Err(error) => {
                end(&mut child);
                Err(error).context("cannot start sh")
            }
        }
    }

    /// Returns the process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the exit status if the child has ended.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        self.child
            .try_wait()
            .with_context(|| format!("cannot query {}", self.name))
    }

    /// Waits until the child ends.
    pub fn wait(&mut self) -> Result<ExitStatus> {
        self.child
            .wait()
            .with_context(|| format!("cannot wait for {}", self.name))
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // The watchdog must end first. After the child has ended, another process may get its
        // process id.
        end(&mut self.watchdog);
        end(&mut self.child);
    }
}

/// Sends a signal, such as `STOP`, to a process.
pub fn signal(pid: u32, name: &str) -> Result<()> {
    let sent = Command::new("kill")
        .args(["-s", name, &pid.to_string()])
        .status()
        .context("cannot run kill")?;
    ensure!(sent.success(), "cannot send {name} to {pid}: {sent}");
    Ok(())
}

/// Returns the name, state and system call of each thread of a process, on Linux. This shows why a
/// process hangs.
pub fn threads(pid: u32) -> String {
    let of = |folder: &Path, name: &str| fs::read_to_string(folder.join(name)).unwrap_or_default();
    let tasks = fs::read_dir(format!("/proc/{pid}/task"));
    let lines = tasks.into_iter().flatten().flatten().map(|task| {
        let folder = task.path();
        let status = of(&folder, "status");
        let state = status.lines().find(|line| line.starts_with("State:"));
        let name = of(&folder, "comm");
        let (state, call) = (state.unwrap_or_default(), of(&folder, "syscall"));
        format!("  {}: {state}, {}\n", name.trim(), call.trim())
    });
    format!("threads of process {pid}:\n{}", lines.collect::<String>())
}

/// Kills a process and waits for its end. An error means that the process has already ended.
fn end(child: &mut Child) {
    drop(child.kill());
    drop(child.wait());
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::time::Duration;

    use super::*;
    use crate::clock::eventually;

    #[test]
    #[cfg(target_os = "linux")]
    fn threads_are_named_with_their_state() -> Result<()> {
        let thread = std::thread::current();
        let name: String = thread.name().unwrap_or_default().chars().take(15).collect();
        let seen = threads(std::process::id());
        ensure!(seen.contains(&format!("  {name}: State:\t")), "{seen}");
        Ok(())
    }

    fn gone(pid: &str) -> Result<()> {
        let status = PathBuf::from(format!("/proc/{pid}/stat"));
        eventually(Duration::from_secs(10), "the child to be gone", || {
            Ok((!status.exists()).then_some(()))
        })
    }

    #[test]
    fn dropping_ends_the_child() -> Result<()> {
        let child = Guarded::spawn("sleep", Command::new("sleep").arg("600"), Group::Own)?;
        let pid = child.pid().to_string();
        drop(child);
        gone(&pid)
    }

    #[test]
    fn the_watchdog_ends_the_child_when_the_pipe_closes() -> Result<()> {
        let mut child = Guarded::spawn("sleep", Command::new("sleep").arg("600"), Group::Own)?;
        // The owner's death closes the pipe in the same way.
        drop(child.watchdog.stdin.take());
        let status = child.wait()?;
        assert!(!status.success(), "{status}");
        Ok(())
    }
}
