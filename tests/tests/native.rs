//! Properties of the native module. The tests of other subjects also run with it in place of the Wasm filter
//! (`xtask/src/checks/native.rs`).

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use loudou_tests::config::module;
use loudou_tests::one_rule::{admitted, config, limits, user};
use loudou_tests::{
    Config, Envoy, Operator, Request, Update, Upstream, eventually, native_path, trap_native_path,
};
use serde_json::json;

/// Header that makes a module built for tests panic, in the hook that its value names.
const TRAP: &str = "x-loudou-trap";
const PANICS: &str = "wasmcustom.loudou.panics";
const SOON: Duration = Duration::from_secs(20);

/// A panic in a callback is caught: the request passes or keeps its verdict, and the worker, its buckets and its other
/// requests are as before.
#[test]
fn a_panic_loses_only_its_request() -> Result<()> {
    let upstream = Upstream::start()?;
    let config = config(3)
        .wasm(trap_native_path()?)
        .upstream(upstream.address());
    let envoy = Envoy::start(&config)?;
    let mut http = envoy.data();
    ensure!(admitted(&mut http, "alice")? == 3);
    for hook in ["headers", "body", "response", "end"] {
        let before = envoy.counter(PANICS)?;
        let key = format!("mallory-{hook}");
        let request = Request::new("POST", "/").header("x-user-id", &key);
        let request = request.header(TRAP, hook).body("a body");
        let answer = http.send(&request)?;
        ensure!(answer.status == 200, "{hook}: {answer:?}");
        eventually(SOON, "the panic to be counted", || {
            // A body may come in several parts.
            Ok((envoy.counter(PANICS)? > before).then_some(()))
        })
        .context(hook)?;
        // A request whose headers were not seen took nothing.
        let left = if hook == "headers" { 3 } else { 2 };
        ensure!(admitted(&mut http, &key)? == left, "{hook}");
        ensure!(admitted(&mut envoy.data(), "alice")? == 0, "{hook}");
    }
    ensure!(envoy.log()?.contains("a test requested it"));
    envoy.stop()
}

/// The module that is shipped ignores the header.
#[test]
fn the_real_module_ignores_the_trap() -> Result<()> {
    let envoy = Envoy::start(&config(3).wasm(native_path()?))?;
    ensure!(
        envoy
            .data()
            .send(&user("alice").header(TRAP, "headers"))?
            .status
            == 200
    );
    ensure!(envoy.counter(PANICS)? == 0);
    envoy.stop()
}

/// If a rule needs a value that Envoy hides from modules, the configuration must be refused with
/// the rule and the field. The rule must not silently limit something else.
#[test]
fn rules_that_need_more_are_refused() -> Result<()> {
    let limits = limits(5);
    let key = json!([{ "header": "x-user-id" }]);
    let claim = json!([{ "metadata": ["envoy.filters.http.jwt_authn", "payload", "sub"] }]);
    let cost = json!({ "reserve": 1, "settle": ["token_usage"], "max": 5 });
    for (field, rule) in [
        (
            "cost.settle[0]",
            json!({ "name": "r", "key": key, "limits": limits, "cost": cost }),
        ),
        (
            "key[0].metadata",
            json!({ "name": "r", "key": claim, "limits": limits }),
        ),
    ] {
        let output = Envoy::validate(&Config::new(json!([rule])).wasm(native_path()?))?;
        let log = String::from_utf8_lossy(&output.stderr);
        ensure!(!output.status.success(), "{field} is accepted");
        let place = format!("configuration: rules[0].{field}: ");
        ensure!(
            log.contains(&place) && log.contains("the native module "),
            "{field}: {log}"
        );
    }
    Ok(())
}

/// A role under the other role's name, and a configuration for a route, must be refused with an
/// explanation.
#[test]
fn the_filter_is_configured_as_envoy_names_it() -> Result<()> {
    let path = native_path()?;
    let limiter = |name: &str| {
        let rules = json!([{ "name": "r", "key": [], "limits": limits(5) }]);
        let store = json!({ "namespace": "second" });
        module(
            "v",
            name,
            &path,
            &json!({ "version": 1, "store": store, "rules": rules }),
        )
    };
    let second = |name: &str| Envoy::validate(&config(3).wasm(&path).filter_before(limiter(name)));
    ensure!(second("loudou")?.status.success());
    let output = second("loudou-admin")?;
    let log = String::from_utf8_lossy(&output.stderr);
    ensure!(
        !output.status.success() && log.contains("filter_name: \"loudou-admin\""),
        "{log}"
    );

    let per_route = json!({
        "@type": "type.googleapis.com/envoy.extensions.filters.http.dynamic_modules.v3.DynamicModuleFilterPerRoute",
        "dynamic_module_config": { "module": { "local": { "filename": path } }, "do_not_close": true },
        "per_route_config_name": "loudou",
    });
    let routes = json!([{
        "match": { "prefix": "/" }, "direct_response": { "status": 200 },
        "typed_per_filter_config": { "loudou": per_route },
    }]);
    let output = Envoy::validate(&config(3).wasm(&path).routes(routes))?;
    let log = String::from_utf8_lossy(&output.stderr);
    ensure!(
        !output.status.success() && log.contains("select requests by `match`"),
        "{log}"
    );
    Ok(())
}

/// Eight workers share each bucket from its first request on.
#[test]
fn twenty_fresh_keys_are_exact_on_eight_workers() -> Result<()> {
    let envoy = Envoy::start(&config(100).wasm(native_path()?).concurrency(8))?;
    for key in 0..20 {
        let key = format!("user-{key}");
        let counts = envoy.load(5_000, 64, |_| user(&key))?;
        ensure!(
            counts.of(200) == 100 && counts.of(429) == 4_900,
            "{key}: {counts:?}"
        );
    }
    envoy.stop()
}

/// Configurations that replace each other under load lose no bucket and no edit, and leave nothing in memory.
#[test]
fn two_hundred_reloads_lose_nothing() -> Result<()> {
    let base = || Ok::<_, anyhow::Error>(config(3).wasm(native_path()?).drain_s(1));
    let envoy = Envoy::start(&base()?)?;
    let mut ops = Operator::editor(&envoy);
    ensure!(admitted(&mut envoy.data(), "alice")? == 3);
    ops.set_override("r", "bob", "", &json!({ "scale": 2 }))?;
    let (is_done, mut allocated) = (AtomicBool::new(false), Vec::new());
    thread::scope(|scope| {
        let load = scope.spawn(|| -> Result<()> {
            while !is_done.load(Ordering::Relaxed) {
                let status = envoy.data().send(&user("alice"))?.status;
                ensure!(status == 429, "{status}");
            }
            Ok(())
        });
        let mut reload = || -> Result<()> {
            for number in 0..200 {
                // Another field of the listener changes, so Envoy creates the filter again.
                let log = format!("reload {number}\n");
                ensure!(envoy.push(&base()?.access_log(&log))? == Update::Accepted);
                if number % 50 == 49 {
                    allocated.push(settled_memory(&envoy)?);
                }
            }
            Ok(())
        };
        let reloaded = reload();
        is_done.store(true, Ordering::Relaxed);
        let loaded = load.join();
        loaded.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        reloaded
    })?;
    ensure!(
        admitted(&mut envoy.data(), "bob")? == 6,
        "the override is lost"
    );
    // Each configuration of a role has some hundred KiB.
    let (first, last) = (allocated.first(), allocated.last());
    let (first, last) = first.zip(last).context("no memory")?;
    ensure!(*last < first + (4 << 20), "it grows: {allocated:?}");
    envoy.stop()
}

/// Returns Envoy's memory when the listeners that were replaced have drained.
fn settled_memory(envoy: &Envoy) -> Result<u64> {
    eventually(SOON, "the old listeners to drain", || {
        let draining = envoy.stats(r"^listener_manager\.total_.*_draining$")?;
        Ok(draining.values().all(|count| *count == 0).then_some(()))
    })?;
    Ok(envoy.memory()?.allocated)
}

/// A rule reads the value that it names among many other values, and Envoy logs nothing about it.
#[test]
fn metadata_are_read_by_name_without_a_word_in_the_log() -> Result<()> {
    let mut claims = json!({ "tenant": 42, "admin": true, "roles": ["dev", "ops"] });
    for number in 0..400 {
        claims[format!("other-{number}")] = json!(number);
    }
    let set = json!({ "name": "set", "typed_config": {
        "@type": "type.googleapis.com/envoy.extensions.filters.http.set_metadata.v3.Config",
        "metadata": [{ "metadata_namespace": "claims", "value": claims }],
    } });
    let key = json!([
        { "metadata": ["claims", "tenant"] },
        { "metadata": ["claims", "admin"] },
        { "metadata": ["claims", "roles"] },
    ]);
    let rule = json!({ "name": "r", "key": key, "limits": limits(5), "on_missing_key": "refuse" });
    let missing = json!({
        "name": "missing", "key": [{ "metadata": ["claims", "nothing"] }], "limits": limits(5),
    });
    let config = Config::new(json!([missing, rule])).wasm(native_path()?);
    let envoy = Envoy::start(&config.filter_before(set))?;
    ensure!(admitted(&mut envoy.data(), "anybody")? == 5);
    let mut ops = Operator::viewer(&envoy);
    let bucket = ops.bucket("r", "42:true:dev")?.context("no bucket")?;
    ensure!(bucket.get("admitted") == Some(&json!(5)), "{bucket}");
    for _ in 0..200 {
        ensure!(envoy.data().send(&user("anybody"))?.status == 429);
    }
    let log = envoy.log()?;
    let errors = log.lines().filter(|line| line.contains("][error]")).count();
    // Each worker asks for the types of three values once, and for the type of the list's elements.
    ensure!(errors <= 2 * 6, "{errors} errors: {log}");
    envoy.stop()
}
