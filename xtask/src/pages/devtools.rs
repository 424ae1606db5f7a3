//! A small client of Chromium's `DevTools` protocol, for pages that need user input.
//!
//! Chromium reads commands from file descriptor 3, and writes responses and events to file descriptor 4. The client
//! therefore needs no port and no websocket, and Chromium ends when this program ends.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use loudou_tests::paths::target_dir;
use serde_json::{Value, json};

use crate::setup::chromium::Chromium;

/// Timeout for the response to a command. It is only a safeguard against a run that hangs.
const PATIENCE: Duration = Duration::from_mins(2);

/// A Chromium with one open page.
pub(super) struct Page {
    chromium: Child,
    commands: ChildStdin,
    messages: Receiver<Value>,
    last: u64,
    session: Option<String>,
    /// Console messages, exceptions and blocked requests, in order.
    pub(super) console: Vec<String>,
    /// URLs that the page has requested.
    pub(super) requests: Vec<String>,
}

impl Page {
    /// Starts Chromium, and opens a page in it.
    pub(super) fn open(chromium: &Chromium, file: &Path, fragment: &str) -> Result<Self> {
        let program = chromium.command();
        let mut shell = Command::new("sh");
        shell.args(["-c", "exec \"$0\" \"$@\" 3<&0 4>&1 </dev/null >&2"]);
        for (name, value) in program.get_envs() {
            shell.env(name, value.unwrap_or_default());
        }
        let profile = target_dir().join("pages/devtools-profile");
        shell
            .arg(program.get_program())
            .args(["--headless", "--no-sandbox", "--disable-gpu"])
            .args(["--remote-debugging-pipe", "--disable-dev-shm-usage"])
            .arg(format!("--user-data-dir={}", profile.display()))
            .arg("about:blank")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut chromium = shell.spawn().context("cannot run Chromium")?;
        let commands = chromium.stdin.take().context("no input")?;
        let answers = BufReader::new(chromium.stdout.take().context("no output")?);
        let (send, messages) = channel();
        thread::spawn(move || {
            for message in answers.split(0).map_while(Result::ok) {
                let Ok(message) = serde_json::from_slice(&message) else {
                    return;
                };
                if send.send(message).is_err() {
                    return;
                }
            }
        });
        let mut page = Self {
            chromium,
            commands,
            messages,
            last: 0,
            session: None,
            console: Vec::new(),
            requests: Vec::new(),
        };
        let target = page.call("Target.createTarget", &json!({ "url": "about:blank" }))?;
        let attach = json!({ "targetId": text(&target, "/targetId"), "flatten": true });
        let attached = page.call("Target.attachToTarget", &attach)?;
        page.session = text(&attached, "/sessionId").map(str::to_owned);
        for domain in ["Runtime", "Log", "Network", "Page"] {
            page.call(&format!("{domain}.enable"), &json!({}))?;
        }
        let url = format!("file://{}#{fragment}", file.display());
        page.call("Page.navigate", &json!({ "url": url }))?;
        // When the page has loaded, its scripts have run.
        page.run("new Promise(done => document.readyState === 'complete' ? done() : addEventListener('load', done))")?;
        Ok(page)
    }

    /// Evaluates a JavaScript expression in the page, and returns its value. If the value is a
    /// promise, waits for the result of the promise.
    pub(super) fn run(&mut self, expression: &str) -> Result<Value> {
        let options =
            json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        let answer = self.call("Runtime.evaluate", &options)?;
        if let Some(thrown) = answer.get("exceptionDetails") {
            bail!("{expression}: {thrown}");
        }
        Ok(answer.pointer("/result/value").cloned().unwrap_or_default())
    }

    /// Waits until a JavaScript expression is true; evaluates the expression again after each
    /// change of the page.
    pub(super) fn wait(&mut self, expression: &str) -> Result<()> {
        self.run(&format!(
            "new Promise(done => {{
                const watch = new MutationObserver(() => check());
                const check = () => {{ if ({expression}) {{ watch.disconnect(); done(); }} }};
                watch.observe(document, {{ subtree: true, childList: true, characterData: true, attributes: true }});
                check();
            }})"
        ))
        .map(drop)
    }

    /// Sends a command, and waits for its response. Records the events that arrive before the
    /// response.
    fn call(&mut self, method: &str, params: &Value) -> Result<Value> {
        self.last += 1;
        let mut command = json!({ "id": self.last, "method": method, "params": params });
        if let (Some(command), Some(session)) = (command.as_object_mut(), &self.session) {
            command.insert("sessionId".to_owned(), json!(session));
        }
        let mut command = serde_json::to_vec(&command)?;
        command.push(0);
        self.commands.write_all(&command)?;
        self.commands.flush()?;
        loop {
            let message = self.messages.recv_timeout(PATIENCE);
            let mut message = message.with_context(|| format!("no answer to {method}"))?;
            if message.get("id") == Some(&json!(self.last)) {
                let error = message.get("error");
                ensure!(error.is_none(), "{method}: {error:?}");
                let result = message.get_mut("result").map(Value::take);
                return Ok(result.unwrap_or_default());
            }
            self.event(&message);
        }
    }

    fn event(&mut self, message: &Value) {
        let shown = match text(message, "/method").unwrap_or_default() {
            "Runtime.consoleAPICalled" => "/params/args",
            "Runtime.exceptionThrown" => "/params/exceptionDetails",
            "Log.entryAdded" => "/params/entry",
            "Network.requestWillBeSent" => {
                let url = text(message, "/params/request/url");
                return self.requests.extend(url.map(str::to_owned));
            }
            _ => return,
        };
        let shown = message.pointer(shown).map(ToString::to_string);
        self.console.extend(shown);
    }
}

/// Returns the string at a JSON pointer in a message.
fn text<'a>(message: &'a Value, place: &str) -> Option<&'a str> {
    message.pointer(place)?.as_str()
}

impl Drop for Page {
    fn drop(&mut self) {
        drop(self.chromium.kill());
        drop(self.chromium.wait());
    }
}
