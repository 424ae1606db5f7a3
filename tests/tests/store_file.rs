//! Buckets in a file (`store.file`), which the native module keeps over restarts, hot restarts and kills.

use std::net::SocketAddr;
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use loudou_tests::one_rule::{admitted, config, edit, limits, user};
use loudou_tests::{
    Config, Counts, Envoy, Http, Operator, TempDir, Update, eventually, native_path, wasm_path,
};
use serde_json::{Value, json};

const SOON: Duration = Duration::from_secs(20);

/// Returns a configuration with a file in a folder of its own.
fn kept(capacity: u32) -> Result<(TempDir, PathBuf, Config)> {
    let folder = TempDir::new("store-file")?;
    let path = folder.path().join("buckets");
    let config = config(capacity).wasm(native_path()?).file(&path);
    Ok((folder, path, config))
}

fn status(ops: &mut Operator) -> Result<Value> {
    ops.get("/v1/status")
}

fn warnings(ops: &mut Operator) -> Result<String> {
    Ok(status(ops)?
        .get("warnings")
        .map(ToString::to_string)
        .unwrap_or_default())
}

/// Envoy is killed and started again: buckets, bans, edits, overrides, events and the numbers about them are as before,
/// and the next process numbers its changes on.
#[test]
fn buckets_bans_and_edits_survive_a_kill() -> Result<()> {
    let (_folder, _path, config) = kept(5)?;
    let envoy = Envoy::start(&config)?;
    let mut ops = Operator::editor(&envoy);
    ensure!(admitted(&mut envoy.data(), "alice")? == 5);
    ops.ban("r", "bob", "for=1h")?;
    ops.set_override("r", "carol", "", &json!({ "scale": 2 }))?;
    ops.edit("r", "", &edit(7))?;
    ensure!(admitted(&mut envoy.data(), "alice")? == 2, "the edit");
    let before = (ops.generation()?, ops.events(0)?, status(&mut ops)?);

    let envoy = envoy.restart(&config)?;
    let mut ops = Operator::editor(&envoy);
    let after = (ops.generation()?, ops.events(0)?, status(&mut ops)?);
    ensure!(
        after.0 == before.0 && after.1 == before.1,
        "{before:?} and {after:?}"
    );
    let used = |status: &Value| status.pointer("/store/used").cloned();
    ensure!(
        used(&after.2) == Some(json!(2)) && used(&before.2) == used(&after.2),
        "{after:?}"
    );
    ensure!(envoy.counter("wasmcustom.loudou.store.used")? == 2);
    ensure!(envoy.counter("wasmcustom.loudou.bans")? == 1);
    ensure!(admitted(&mut envoy.data(), "alice")? == 0, "a fresh bucket");
    ensure!(
        envoy.data().send(&user("bob"))?.status == 429,
        "the ban is lost"
    );
    ensure!(
        admitted(&mut envoy.data(), "carol")? == 14,
        "the edit and the override"
    );
    ensure!(warnings(&mut ops)? == "[]", "{}", warnings(&mut ops)?);
    // All workers follow the next change at once, as before.
    ops.edit("r", "", &edit(9))?;
    ensure!(ops.generation()? == before.0 + 1);
    ensure!(admitted(&mut envoy.data(), "alice")? == 2);
    ops.unban("r", "bob")?;
    ensure!(envoy.counter("wasmcustom.loudou.bans")? == 0);
    envoy.stop()
}

/// The configuration changed while Envoy was down. It is adopted as by an update: the bucket is carried, and the edit of
/// a rule that the configuration changes ends.
#[test]
fn another_configuration_after_a_restart_is_an_update() -> Result<()> {
    let (_folder, path, first) = kept(5)?;
    let envoy = Envoy::start(&first)?;
    ensure!(admitted(&mut envoy.data(), "alice")? == 5);
    Operator::editor(&envoy).edit("r", "", &edit(50))?;
    let second = config(8).wasm(native_path()?).file(&path);
    envoy.stop()?;
    let envoy = Envoy::start(&second)?;
    ensure!(admitted(&mut envoy.data(), "alice")? == 3);
    let events = Operator::editor(&envoy).events(0)?;
    let retired = |event: &Value| event.get("kind") == Some(&json!("edit_retired"));
    ensure!(events.iter().any(retired), "{events:?}");
    // The numbers of connections begin again, and a rollback is still noticed.
    ensure!(envoy.push(&first)? == Update::Accepted);
    eventually(SOON, "the first configuration to be in force", || {
        ensure!(envoy.data().send(&user("alice"))?.status == 429);
        let rule = Operator::editor(&envoy).get("/v1/rules/r")?;
        let capacity = rule.pointer("/rule/limits/0/capacity").cloned();
        Ok((capacity == Some(json!(5))).then_some(()))
    })?;
    envoy.stop()
}

/// Sends requests until told to stop, whatever becomes of the connections. Returns the numbers of answers.
fn insist(address: SocketAddr, stop: &AtomicBool) -> Counts {
    let mut counts = Counts::default();
    let mut http = Http::new(address);
    while !stop.load(Ordering::Relaxed) {
        match http.send(&user("alice")) {
            Ok(answer) => counts.add(answer.status),
            Err(_ended) => http = Http::new(address),
        }
    }
    counts
}

/// Waits until the bucket has admitted this many requests.
fn await_admitted(envoy: &Envoy, number: u64) -> Result<()> {
    eventually(SOON, "requests", || {
        let bucket = Operator::viewer(envoy).bucket("r", "alice")?;
        let admitted = bucket.and_then(|bucket| bucket.get("admitted")?.as_u64());
        Ok(admitted.filter(|admitted| *admitted >= number).map(drop))
    })
}

/// Envoy is killed under load, several times. All processes together admit what the bucket holds, and each kill loses
/// at most the answers that were under way.
#[test]
fn kills_under_load_admit_nothing_twice() -> Result<()> {
    const CAPACITY: u32 = 3_600;
    const CLIENTS: u64 = 8;
    const KILLS: u64 = 8;
    let (_folder, _path, config) = kept(CAPACITY)?;
    let config = config.concurrency(4);
    let envoy = Envoy::start(&config)?;
    let (stop, address) = (AtomicBool::new(false), envoy.data_address());
    let (envoy, counts) = thread::scope(|scope| -> Result<(Envoy, Vec<Counts>)> {
        let client = || scope.spawn(|| insist(address, &stop));
        let clients: Vec<_> = (0..CLIENTS).map(|_| client()).collect();
        let rounds = move || -> Result<Envoy> {
            let mut envoy = envoy;
            for round in 1..=KILLS {
                await_admitted(&envoy, round * 400)?;
                envoy = envoy.restart(&config)?;
            }
            await_admitted(&envoy, CAPACITY.into())?;
            Ok(envoy)
        };
        let envoy = rounds();
        stop.store(true, Ordering::Relaxed);
        let counts = clients.into_iter().map(ScopedJoinHandle::join);
        let counts = counts.map(|counts| counts.unwrap_or_else(|panic| resume_unwind(panic)));
        let counts = counts.collect();
        Ok((envoy?, counts))
    })?;
    let admitted: u64 = counts.iter().map(|counts| counts.of(200)).sum();
    let lost = u64::from(CAPACITY).checked_sub(admitted);
    let lost = lost.with_context(|| format!("{admitted} of {CAPACITY} were admitted"))?;
    ensure!(
        lost <= KILLS * CLIENTS,
        "{lost} of {CAPACITY} were not answered"
    );
    let log = envoy.log()?;
    ensure!(!log.contains("store.file"), "{log}");
    envoy.stop()
}

/// Both processes of a hot restart decide by the same buckets while the first one drains, and follow each other's edits.
#[test]
fn both_processes_of_a_hot_restart_share_the_buckets() -> Result<()> {
    let (_folder, _path, config) = kept(10)?;
    let config = config.hot_restarts().drain_s(60);
    let first = Envoy::start(&config)?;
    let (mut old, mut old_ops) = (first.data(), Operator::editor(&first));
    ensure!(old.send(&user("alice"))?.status == 200);
    old_ops.get("/v1/rules/r")?;
    let second = first.hot_restart(&config)?;
    let (mut new, mut new_ops) = (second.data(), Operator::editor(&second));
    let mut passed = 1;
    for turn in 0..20 {
        let http = if turn % 2 == 0 { &mut old } else { &mut new };
        passed += u32::from(http.send(&user("alice"))?.status == 200);
    }
    ensure!(passed == 10, "{passed} passed");
    // The connection of the old process is open, so it still decides.
    new_ops.edit("r", "", &edit(12))?;
    let statuses = [
        old.send(&user("alice"))?.status,
        new.send(&user("alice"))?.status,
    ];
    ensure!(statuses == [200, 200], "{statuses:?}");
    ensure!(old.send(&user("alice"))?.status == 429);
    ensure!(new_ops.generation()? == 2);
    first.stop()?;
    ensure!(admitted(&mut second.data(), "bob")? == 12);
    second.stop()
}

/// A file that cannot be used is a sentence in the log and a warning in the status, and Envoy limits from memory.
#[test]
fn an_unusable_file_is_reported_and_the_limits_hold() -> Result<()> {
    let (folder, path, config) = kept(3)?;
    std::fs::write(&path, "# notes\n")?;
    let envoy = Envoy::start(&config)?;
    ensure!(admitted(&mut envoy.data(), "alice")? == 3);
    let problem = "cannot be used, so buckets, bans and edits end with this process: the file has other contents";
    ensure!(envoy.log()?.contains(problem));
    ensure!(warnings(&mut Operator::viewer(&envoy))?.contains(problem));
    envoy.stop()?;
    ensure!(std::fs::read(&path)? == b"# notes\n");

    // Another Envoy has it.
    let path = folder.path().join("others");
    let config = self::config(3).wasm(native_path()?).file(&path);
    let first = Envoy::start(&config)?;
    ensure!(admitted(&mut first.data(), "alice")? == 3);
    let second = Envoy::start(&config)?;
    ensure!(admitted(&mut second.data(), "alice")? == 3);
    let problem = format!("process {} uses it", first.pid());
    ensure!(warnings(&mut Operator::viewer(&second))?.contains(&problem));
    second.stop()?;
    first.stop()
}

/// A Wasm filter has no files, and says so instead of forgetting the buckets.
#[test]
fn a_wasm_filter_refuses_a_file() -> Result<()> {
    let rules = json!([{ "name": "r", "key": [], "limits": limits(5) }]);
    let config = Config::new(rules).wasm(wasm_path()?);
    let output = Envoy::validate(&config.file("/var/lib/loudou/buckets".as_ref()))?;
    let log = String::from_utf8_lossy(&output.stderr);
    ensure!(
        !output.status.success() && log.contains("store.file: a Wasm filter cannot write a file"),
        "{log}"
    );
    Ok(())
}
