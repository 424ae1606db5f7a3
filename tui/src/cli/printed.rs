//! Runs the shell command that prints the addresses of Envoys, and limits its run time and the size
//! of its output. If the command exceeds a limit, it is killed together with its children.

use std::io::{self, ErrorKind, Read};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::ioctl_fionbio;
use rustix::process::{Pid, Signal, kill_process_group};

use loudou_client::clock::Clock;
use loudou_words::text::{bytes, escape, humanise, shortened};

/// Maximum number of bytes of standard error that are kept.
const MAX_ERRORS: usize = 64 << 10;
/// Maximum number of characters that a message shows of the command or of its error output.
const MAX_SHOWN: usize = 80;
/// Interval between checks whether the command has exited. The end of its output is not a reliable
/// sign, because the command's children may keep the pipe open.
const TICK: Duration = Duration::from_millis(20);

/// Limits on the run time and the output of a command.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) time: Duration,
    /// Maximum size of standard output.
    pub(super) bytes: usize,
    /// Time after which the user is informed that the command still runs.
    pub(super) told_after: Duration,
}

pub(super) const BOUNDS: Bounds = Bounds {
    time: Duration::from_secs(10),
    bytes: 1 << 20,
    told_after: Duration::from_secs(1),
};

/// Output of a command.
#[derive(Debug, Default)]
pub(super) struct Printed {
    pub(super) out: Vec<u8>,
    pub(super) err: Vec<u8>,
}

/// Returns the name of the option and its command, for messages.
pub(super) fn name_of(command: &str) -> String {
    format!("--targets-from {:?}", shortened(command, MAX_SHOWN))
}

/// Runs a command in `sh` until it ends. Does not wait for processes that the command leaves in the
/// background. If the command is slow, `tell` is called with a line for the user.
pub(super) fn printed(
    command: &str,
    bounds: Bounds,
    tell: &mut dyn FnMut(&str) -> io::Result<()>,
) -> Result<Printed> {
    let name = name_of(command);
    let child = Command::new("sh")
        .args(["-c", command])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // The command gets a separate process group, so that its children can be killed with it.
        .process_group(0)
        .spawn();
    let mut child = child.context("cannot run sh for --targets-from")?;
    let mut printed = Printed::default();
    let status = ended(&mut child, &mut printed, bounds, &mut || {
        tell(&format!("waiting for {name}"))
    });
    let status = match status {
        Ok(Ok(status)) => status,
        other => {
            kill(&mut child);
            let why = other.with_context(|| format!("cannot read the output of {name}"))?;
            bail!("{name} {}", why.err().unwrap_or_default());
        }
    };
    if status.success() {
        return Ok(printed);
    }
    let error = String::from_utf8_lossy(&printed.err);
    let first = shortened(error.lines().next().unwrap_or_default(), MAX_SHOWN);
    bail!("{name} failed ({status}): {}", escape(&first));
}

/// Waits for the command. Returns the exit status, or the reason why the command must be killed.
fn ended(
    child: &mut Child,
    printed: &mut Printed,
    bounds: Bounds,
    tell: &mut dyn FnMut() -> io::Result<()>,
) -> io::Result<Result<ExitStatus, String>> {
    let (mut out, mut err) = (child.stdout.take(), child.stderr.take());
    if let (Some(out), Some(err)) = (&out, &err) {
        ioctl_fionbio(out, true)?;
        ioctl_fionbio(err, true)?;
    }
    let clock = Clock::start();
    let mut is_told = false;
    loop {
        // The status is checked before the output is read. If the command has ended, all of its
        // output is then in the pipes.
        let status = child.try_wait()?;
        read(&mut out, &mut printed.out, bounds.bytes.saturating_add(1))?;
        if printed.out.len() > bounds.bytes {
            let most = bytes(u64::try_from(bounds.bytes).unwrap_or(u64::MAX));
            return Ok(Err(format!("printed more than {most}, and was killed")));
        }
        read(&mut err, &mut printed.err, MAX_ERRORS)?;
        if let Some(status) = status {
            return Ok(Ok(status));
        }
        let passed = Duration::from_nanos(clock.now().get());
        if passed >= bounds.time {
            let time = humanise(u64::try_from(bounds.time.as_nanos()).unwrap_or(u64::MAX));
            return Ok(Err(format!("took more than {time}, and was killed")));
        }
        if passed >= bounds.told_after && !is_told {
            is_told = true;
            tell()?;
        }
        let open = [out.as_ref().map(AsFd::as_fd), err.as_ref().map(AsFd::as_fd)];
        let mut open: Vec<PollFd<'_>> = open
            .iter()
            .flatten()
            .map(|pipe| PollFd::from_borrowed_fd(*pipe, PollFlags::IN))
            .collect();
        match poll(&mut open, Timespec::try_from(TICK).ok().as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Reads the available output, and keeps at most `most` bytes in total. Sets the pipe to `None`
/// once the end is reached.
fn read<R: Read>(pipe: &mut Option<R>, kept: &mut Vec<u8>, most: usize) -> io::Result<()> {
    let mut buffer = [0; 8192];
    // The number of reads is bounded, so that the time limit also ends a command that prints faster
    // than its output is read.
    for _ in 0..256 {
        let Some(reader) = pipe else {
            return Ok(());
        };
        match reader.read(&mut buffer) {
            Ok(0) => *pipe = None,
            Ok(count) => {
                let room = most.saturating_sub(kept.len()).min(count);
                kept.extend(buffer.iter().take(room));
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Kills a command with its children. Children that created their own process group survive until
/// they write to the closed pipe.
fn kill(child: &mut Child) {
    let group = Pid::from_child(child);
    if kill_process_group(group, Signal::KILL).is_err() {
        // The child has not become the leader of its process group yet.
        drop(child.kill());
    }
    drop(child.wait());
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread;

    use super::*;

    /// Runs a command. Returns its output or its error, and the lines that were passed to `tell`.
    fn run(command: &str, bounds: Bounds) -> (Result<Printed, String>, Vec<String>) {
        let mut told = Vec::new();
        let printed = printed(command, bounds, &mut |line| {
            told.push(line.to_owned());
            Ok(())
        });
        (printed.map_err(|error| format!("{error:#}")), told)
    }

    fn error(command: &str, bounds: Bounds) -> String {
        run(command, bounds).0.expect_err(command)
    }

    #[test]
    fn what_is_printed_is_read() {
        let (printed, told) = run("echo A; echo B; echo why >&2", BOUNDS);
        let printed = printed.expect("it succeeds");
        assert_eq!(
            (printed.out.as_slice(), printed.err.as_slice()),
            (&b"A\nB\n"[..], &b"why\n"[..])
        );
        assert_eq!(told, [""; 0]);
        let error = error("echo why >&2; exit 3", BOUNDS);
        assert_eq!(
            error,
            "--targets-from \"echo why >&2; exit 3\" failed (exit status: 3): why"
        );
    }

    /// A command that prints endlessly to standard output or standard error uses a bounded amount
    /// of memory and time.
    #[test]
    fn output_without_end_is_cut() {
        let told = "--targets-from \"yes\" printed more than 1.0 MiB, and was killed";
        assert_eq!(error("yes", BOUNDS), told);
        let (printed, _) = run("head -c 9000000 /dev/zero >&2", BOUNDS);
        assert_eq!(printed.expect("it succeeds").err.len(), MAX_ERRORS);
    }

    /// A command that hangs is killed together with its children, after the user has been told that
    /// it is still running.
    #[test]
    fn a_command_that_hangs_is_killed_with_its_children() {
        let short = Bounds {
            time: Duration::from_millis(300),
            told_after: Duration::ZERO,
            ..BOUNDS
        };
        let folder = tempfile::tempdir().expect("a folder");
        let pipe = folder.path().join("pipe");
        let made = Command::new("mkfifo").arg(&pipe).status();
        assert!(made.expect("mkfifo runs").success());
        let command = format!("sleep 60 > {} & wait", pipe.display());
        // The read from the pipe ends when the child that holds the pipe open has exited.
        let (sender, end) = channel();
        thread::spawn(move || sender.send(std::fs::read(&pipe).expect("the pipe")));
        let (printed, told) = run(&command, short);
        let error = printed.expect_err("it hangs");
        assert!(
            error.ends_with("took more than 300ms, and was killed"),
            "{error}"
        );
        assert!(
            told.len() == 1 && told[0].starts_with("waiting for --targets-from"),
            "{told:?}"
        );
        let end = end.recv_timeout(Duration::from_secs(20));
        assert_eq!(end.expect("the child is killed"), b"");
    }

    #[test]
    fn a_child_in_the_background_is_not_waited_for() {
        let (printed, _) = run("echo A; sleep 15 &", BOUNDS);
        assert_eq!(printed.expect("it does not take 10 s").out, b"A\n");
    }
}
