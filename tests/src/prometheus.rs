//! A running Prometheus, which a guard ends, and `promtool`.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use crate::clock::eventually;
use crate::http::{Http, Request};
use crate::operator::percent;
use crate::paths::prometheus_bin;
use crate::process::{Group, Guarded};
use crate::temp::TempDir;

/// Time limit for the start. Prometheus starts in a second. The rest is a margin for a busy
/// machine.
const START: Duration = Duration::from_mins(1);
const LOG: &str = "prometheus.log";

/// A running Prometheus.
#[derive(Debug)]
pub struct Prometheus {
    process: Guarded,
    dir: TempDir,
    address: SocketAddr,
}

/// An element of an instant vector.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// Labels of the element, including its name as `__name__`.
    pub labels: BTreeMap<String, String>,
    /// Value of the element.
    pub value: f64,
}

impl Sample {
    /// Returns the value of a label. If there is no such label, it is empty, as in Prometheus.
    pub fn label(&self, name: &str) -> &str {
        self.labels.get(name).map_or("", String::as_str)
    }
}

impl Prometheus {
    /// Starts Prometheus with files in one directory: the configuration `prometheus.yml`, and the
    /// files that it names.
    pub fn start(files: &[(&str, &str)]) -> Result<Self> {
        let dir = TempDir::new("prometheus")?;
        for (name, text) in files {
            dir.write(name, text)?;
        }
        let log = fs::File::create(dir.path().join(LOG)).context("cannot write a log")?;
        let mut command = Command::new(prometheus_bin()?);
        command
            .arg("--config.file=prometheus.yml")
            .arg("--storage.tsdb.path=data")
            .arg("--web.listen-address=127.0.0.1:0")
            .arg("--log.format=json")
            .current_dir(dir.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        let mut prometheus = Self {
            process: Guarded::spawn("prometheus", &mut command, Group::Own)?,
            dir,
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
        };
        prometheus.address = eventually(START, "Prometheus to listen", || {
            prometheus.check_alive()?;
            prometheus.listening()
        })?;
        eventually(START, "Prometheus to be ready", || {
            prometheus.check_alive()?;
            let ready = Http::new(prometheus.address).get("/-/ready");
            Ok(ready.is_ok_and(|answer| answer.status == 200).then_some(()))
        })?;
        Ok(prometheus)
    }

    /// Evaluates an expression, whose value must be an instant vector.
    pub fn query(&self, expression: &str) -> Result<Vec<Sample>> {
        let path = format!("/api/v1/query?query={}", percent(expression));
        let data = self.get(&path).context(expression.to_owned())?;
        let list = data.get("result").and_then(Value::as_array);
        let list = list.with_context(|| format!("{expression}: no vector: {data}"))?;
        let samples = list.iter().map(sample);
        samples
            .collect::<Option<_>>()
            .with_context(|| format!("{expression}: no vector: {data}"))
    }

    /// Returns the data of an API answer.
    pub fn get(&self, path: &str) -> Result<Value> {
        let answer = Http::new(self.address).send(&Request::get(path))?;
        ensure!(answer.status == 200, "{path}: {}", answer.text());
        let mut body: Value = serde_json::from_str(&answer.text())?;
        let data = body.get_mut("data").map(Value::take);
        data.with_context(|| format!("{path}: no data: {body}"))
    }

    /// Ends a test that passed.
    pub fn stop(mut self) -> Result<()> {
        self.check_alive()
    }

    /// Returns the address that Prometheus has logged.
    fn listening(&self) -> Result<Option<SocketAddr>> {
        let log = self.log()?;
        let mut lines = log.lines().filter_map(|line| {
            let line: Value = serde_json::from_str(line).ok()?;
            (line.get("msg")? == "Listening on").then(|| line.get("address").cloned())?
        });
        let address = lines.next();
        let address = address.as_ref().and_then(Value::as_str);
        Ok(address.and_then(|text| text.parse().ok()))
    }

    fn log(&self) -> Result<String> {
        fs::read_to_string(self.dir.path().join(LOG)).context("cannot read the log of Prometheus")
    }

    fn check_alive(&mut self) -> Result<()> {
        if let Some(status) = self.process.ended()? {
            bail!("Prometheus has ended by itself: {status}; {}", self.log()?);
        }
        Ok(())
    }
}

fn sample(value: &Value) -> Option<Sample> {
    let labels = value.get("metric")?.as_object()?.iter();
    let labels = labels.map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())));
    Some(Sample {
        labels: labels.collect::<Option<_>>()?,
        value: value.pointer("/value/1")?.as_str()?.parse().ok()?,
    })
}

/// Runs `promtool`, which is next to the server. If it fails, the error has its output.
pub fn promtool<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Result<()> {
    let output = Command::new(prometheus_bin()?.with_file_name("promtool"))
        .args(arguments)
        .output()
        .context("cannot run promtool")?;
    ensure!(
        output.status.success(),
        "promtool: {}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}
