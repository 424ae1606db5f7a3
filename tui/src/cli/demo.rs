//! Implements `loudou demo`, which starts an Envoy with the module, sends it requests of a dozen simulated users, and
//! opens the screen.

use std::env;
use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::Args;
use loudou_client::clock::Clock;
use loudou_client::{Client, Target};
use loudou_limiter::Nanos;
use loudou_words::text::escape;
use serde_json::{Value, json};

use self::traffic::Traffic;
use super::buckets::{self, BucketsArgs};
use super::context::Context;
use super::init::{self, MODULE, Proxy};
use super::options::Global;
use super::outcome::Outcome;
use super::top;
use super::world::{Io, Usage};

mod traffic;

const EXAMPLES: &str = "\
Examples:
  loudou demo                                     with the envoy in PATH
  loudou demo --envoy ./envoy --module ./loudou_filter.wasm
  loudou demo | head                              one table instead of the screen";

const RULES: &str = include_str!("demo/rules.json");
/// Time within which Envoy must answer. It compiles the module first.
const READY: Nanos = Nanos::from_secs(60);
/// Pause between two checks whether Envoy is ready, and whether users were refused.
const PAUSE: Duration = Duration::from_millis(50);
/// Number of refusals after which every user, except users who start late, has sent a request.
const ENOUGH_REFUSALS: u64 = 50;
/// Time within which these refusals must happen.
const REFUSED: Nanos = Nanos::from_secs(60);
/// Maximum length of the end of Envoy's log that an error shows, in bytes.
const MAX_LOG: u64 = 2_000;

/// Runs a command until it ends or standard input is closed, which happens when this process ends for any reason. So no
/// Envoy remains even if this process is killed. The subshell needs its own descriptor, because a shell gives
/// background commands an empty standard input.
const GUARD: &str = r#"exec 3<&0
"$@" < /dev/null 3<&- & pid=$!
{ read -r _ <&3; kill "$pid" 2> /dev/null; } > /dev/null 2>&1 &
wait "$pid""#;

#[derive(Debug, Args)]
#[command(before_long_help = EXAMPLES)]
pub(crate) struct DemoArgs {
    /// Envoy's program [default: envoy in PATH]
    #[arg(long, value_name = "FILE")]
    pub(crate) envoy: Option<PathBuf>,
    /// The Wasm module
    ///
    /// The default is `loudou_filter.wasm` in the current folder, or else in the release that contains this program.
    #[arg(long, value_name = "FILE")]
    pub(crate) module: Option<PathBuf>,
    /// Address of a running Envoy that gets the requests, in place of a new one. `--url` names the Envoy to show
    #[arg(long, value_name = "HOST:PORT", hide = true)]
    pub(crate) to: Vec<SocketAddr>,
}

/// Sends the requests and shows an Envoy that runs.
pub(super) fn run(context: &mut Context<'_, '_>, args: &DemoArgs) -> Result<Outcome> {
    context.only_text()?;
    let traffic = Traffic::start(&args.to);
    let outcome = if context.io.has_screen() {
        top::run(context, None)
    } else {
        table(context).map(|()| Outcome::Done)
    };
    drop(traffic);
    outcome
}

/// Prints a table of the buckets after some requests were refused.
fn table(context: &mut Context<'_, '_>) -> Result<()> {
    let client = context.client()?;
    let clock = Clock::start();
    loop {
        let refused: u64 = client.status()?.rules.iter().map(|rule| rule.refused).sum();
        if refused >= ENOUGH_REFUSALS {
            break;
        }
        if clock.now() > REFUSED {
            bail!("only {refused} requests were refused");
        }
        (context.io.pause)(PAUSE)?;
    }
    buckets::run(context, &BucketsArgs::default())
}

/// Starts an Envoy, unless the options name running Envoys. Changes the options so that the command uses it.
pub(super) fn prepare(
    args: &mut DemoArgs,
    global: &mut Global,
    io: &mut Io<'_>,
) -> Result<Option<Envoy>> {
    if !args.to.is_empty() {
        return Ok(None);
    }
    let program = args.envoy.clone().or_else(in_path).ok_or_else(|| {
        Usage(
            "no envoy in PATH: install Envoy 1.37 or later, or name its program with --envoy; without an Envoy, the \
             playground runs rules in a browser"
                .to_owned(),
        )
    })?;
    let module = args.module.clone().or_else(released).ok_or_else(|| {
        Usage(format!(
            "no {MODULE} here or in the release of this program: name the module with --module"
        ))
    })?;
    for (option, file) in [("--envoy", &program), ("--module", &module)] {
        if !file.is_file() {
            bail!(Usage(format!("{option}: {} is not a file", shown(file))));
        }
    }
    writeln!(io.err, "starting Envoy …")?;
    let token = init::token()?;
    let mut envoy = Envoy::start(&program, &module, &token)?;
    let url = format!("http://{}/.loudou", envoy.address);
    envoy.wait(&url, &token, io.pause)?;
    writeln!(
        io.err,
        "a dozen users send requests to http://{}\nadmin API: LOUDOU_URL={url} LOUDOU_TOKEN={token}",
        envoy.address
    )?;
    args.to = vec![envoy.address];
    global.connect.url = vec![url];
    global.connect.token_file = None;
    io.env.token = Some(token.into());
    Ok(Some(envoy))
}

fn in_path() -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    let mut programs = env::split_paths(&path).map(|folder| folder.join("envoy"));
    // A shell skips files that cannot be executed, too.
    let is_program = |program: &PathBuf| {
        fs::metadata(program)
            .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    programs.find(is_program)
}

/// Returns the module in the current folder or in the release that contains this program.
fn released() -> Option<PathBuf> {
    let own = env::current_exe().ok();
    let folder = own.as_deref().and_then(Path::parent);
    let beside = folder.map(|folder| folder.join(MODULE));
    let share = folder.map(|folder| folder.join("../share/loudou").join(MODULE));
    let mut files = [Some(PathBuf::from(MODULE)), beside, share].into_iter();
    files.find_map(|file| file.filter(|file| file.is_file()))
}

fn shown(path: &Path) -> String {
    escape(&path.display().to_string()).into_owned()
}

/// See [`Io::pause`].
type Pause = fn(Duration) -> io::Result<()>;

/// A running Envoy, which is stopped when this is dropped.
#[derive(Debug)]
pub(super) struct Envoy {
    guard: Child,
    address: SocketAddr,
    log: PathBuf,
    _folder: tempfile::TempDir,
}

impl Envoy {
    fn start(program: &Path, module: &Path, token: &str) -> Result<Self> {
        let folder = tempfile::tempdir().context("cannot make a folder for Envoy")?;
        let module = fs::canonicalize(module).with_context(|| shown(module))?;
        // A shell would look for a name without a slash in PATH.
        let program = fs::canonicalize(program).with_context(|| shown(program))?;
        let address = free_address().context("no free port")?;
        let config = folder.path().join("envoy.yaml");
        fs::write(&config, configuration(&module, address, token)?)?;
        let log = folder.path().join("envoy.log");
        let output = File::create(&log)?;
        let guard = Command::new("/bin/sh")
            .args(["-c", GUARD, "sh"])
            .arg(program)
            .arg("--config-path")
            .arg(&config)
            .args(["--disable-hot-restart", "--log-level", "warn"])
            .stdin(Stdio::piped())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .context("cannot start /bin/sh")?;
        Ok(Self {
            guard,
            address,
            log,
            _folder: folder,
        })
    }

    /// Waits until the admin API answers.
    fn wait(&mut self, url: &str, token: &str, pause: Pause) -> Result<()> {
        let target = Target {
            url: url.to_owned(),
            token: Some(token.to_owned()),
            ..Target::default()
        };
        let client = Client::new(&target, Duration::from_secs(1))?;
        let clock = Clock::start();
        loop {
            self.check()?;
            match client.status() {
                Ok(_) => return Ok(()),
                Err(_) if clock.now() > READY => {
                    bail!("Envoy does not answer\n{}", self.end_of_log()?);
                }
                Err(_) => pause(PAUSE)?,
            }
        }
    }

    /// Fails if Envoy has stopped.
    pub(super) fn check(&mut self) -> Result<()> {
        if let Some(status) = self.guard.try_wait()? {
            bail!("Envoy stopped: {status}\n{}", self.end_of_log()?);
        }
        Ok(())
    }

    fn end_of_log(&self) -> io::Result<String> {
        let mut log = File::open(&self.log)?;
        let start = log.metadata()?.len().saturating_sub(MAX_LOG);
        log.seek(SeekFrom::Start(start))?;
        let mut end = Vec::new();
        log.take(MAX_LOG).read_to_end(&mut end)?;
        let end = String::from_utf8_lossy(&end);
        let lines: Vec<_> = end.lines().map(escape).collect();
        Ok(lines.join("\n"))
    }
}

impl Drop for Envoy {
    fn drop(&mut self) {
        // The guard stops Envoy when its standard input closes.
        drop(self.guard.stdin.take());
        drop(self.guard.wait());
    }
}

/// Returns an address that nobody uses now. Envoy reports if another process takes it first.
fn free_address() -> io::Result<SocketAddr> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()
}

/// Returns Envoy's configuration, with the listener at `address`.
fn configuration(module: &Path, address: SocketAddr, token: &str) -> Result<String> {
    let rules: Value = serde_json::from_str(RULES).context("demo/rules.json")?;
    let file = json!({
        "version": 1,
        "store": { "buckets": 65536, "namespace": "loudou" },
        "admin": {
            "at": "/.loudou",
            "tokens": [{ "name": "demo", "sha256": init::hash(token), "may": "edit" }],
        },
        "rules": rules,
    });
    let module = module.to_str().context("the module's path is not UTF-8")?;
    init::no_escape("--module", module)?;
    // The ports are replaced before anything else, because the token's hash and the module's path may contain their
    // digits.
    let template = Proxy::Envoy.template();
    let template = template.replace(
        "port_value: 8080",
        &format!("port_value: {}", address.port()),
    );
    let template = template.replace("port_value: 9901", "port_value: 0");
    Ok(Proxy::Envoy.filled(&template, &file.to_string(), module, ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_is_valid() {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 12345));
        let text = configuration(Path::new("/8080/9901/loudou_filter.wasm"), address, "token");
        let text = text.expect("a configuration");
        for part in [
            "port_value: 12345",
            "port_value: 0 ",
            "\"/8080/9901/loudou_filter.wasm\"",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let checked = loudou_check::check("envoy.yaml", text.as_bytes(), |_| Vec::new());
        let problems = loudou_check::only_rules(
            "envoy.yaml",
            &checked,
            &|_, text| text.to_owned(),
            &mut Vec::new(),
        );
        assert!(problems.is_ok_and(|rules| rules.is_some()), "{text}");
    }
}
