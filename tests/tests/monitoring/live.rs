//! Every alert fires where its condition holds and nowhere else, and every panel shows the
//! condition.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use loudou_tests::{Envoy, Operator, Prometheus, eventually};
use serde_json::Value;

use super::dashboard::{Target, targets};
use super::scene::{SOON, Scene};
use super::{alerts, field};

/// Panels and legends whose value is 0 in this test, because their condition never occurs.
const ZERO: [(&str, &str); 8] = [
    ("Held now", "{{instance}}"),
    ("Refused instead of held", "{{instance}} deadline"),
    ("Conflicts between workers", "{{instance}} retries"),
    ("Conflicts between workers", "{{instance}} given up"),
    ("Not counted", "{{instance}} counts"),
    ("Not counted", "{{instance}} returns"),
    ("Not counted", "{{instance}} responses"),
    ("Waits", "{{le}}"),
];

/// Name of an alert, its instance, and its rule if it has one.
type Firing = (String, String, String);

fn firing(prometheus: &Prometheus) -> Result<BTreeSet<Firing>> {
    let firing = prometheus.query(r#"ALERTS{alertstate="firing"}"#)?;
    let names = firing.iter().map(|sample| {
        ["alertname", "instance", "loudou_rule"].map(|name| sample.label(name).to_owned())
    });
    Ok(names
        .map(|[alert, instance, rule]| (alert, instance, rule))
        .collect())
}

/// Waits until exactly these alerts fire. `meanwhile` keeps their conditions true.
fn expect_alerts(
    scene: &Scene,
    expected: &BTreeSet<Firing>,
    mut meanwhile: impl FnMut(u64) -> Result<()>,
) -> Result<()> {
    let mut seen = BTreeSet::new();
    let mut round = 0;
    let fired = eventually(SOON, "the alerts", || {
        round += 1;
        meanwhile(round)?;
        seen = firing(&scene.prometheus)?;
        Ok((seen == *expected).then_some(()))
    });
    fired.with_context(|| format!("expected {expected:#?}, firing {seen:#?}"))
}

#[test]
fn alerts_fire_and_panels_show_what_happens() -> Result<()> {
    let mut scene = Scene::start()?;
    let alert = |name: &str, instance: &str, rule: &str| -> Firing {
        (name.to_owned(), instance.to_owned(), rule.to_owned())
    };
    let [example, faulty, other] =
        [&scene.example.envoy, &scene.faulty, &scene.other].map(Scene::instance);
    let silent = scene.silent_instance()?.to_string();
    let mut expected = BTreeSet::from([
        alert("LoudouNotScraped", &silent, ""),
        alert("LoudouMissing", &other, ""),
    ]);
    expect_alerts(&scene, &expected, |_| Ok(()))?;

    let refused = scene.load_example()?;
    scene.edit()?;
    scene.fill_the_queue()?;
    scene.lease()?;
    scene.fill_the_store()?;
    scene.kill_sandboxes()?;
    scene.kill_relay();
    expected.extend([
        alert("LoudouRefusesMany", &example, "per-user"),
        alert("LoudouHoldsLong", &example, ""),
        alert("LoudouAdminRefusesTokens", &example, ""),
        alert("LoudouCannotHold", &faulty, ""),
        alert("LoudouEvictsLiveBuckets", &faulty, ""),
        alert("LoudouStoreNearlyFull", &faulty, ""),
        alert("LoudouModuleDied", &faulty, ""),
        alert("LoudouFleetDown", &faulty, ""),
        alert("LoudouFleetCallsFail", &faulty, ""),
    ]);
    expect_alerts(&scene, &expected, |round| {
        scene.guess_tokens()?;
        scene.overstep()?;
        scene.ask_the_fleet(round)
    })?;
    scene.fill_with_bans()?;
    expected.insert(alert("LoudouDecidesByOnError", &faulty, "r"));
    expect_alerts(&scene, &expected, |_| Ok(()))?;
    check_numbers(&scene, refused)?;
    scene.damage_the_rules()?;
    expected.insert(alert("LoudouWorkersBehind", &faulty, ""));
    expect_alerts(&scene, &expected, |_| scene.pass_by())?;

    let fired: BTreeSet<String> = expected.into_iter().map(|(name, ..)| name).collect();
    ensure!(fired == alerts()?, "an alert is not tried: {fired:?}");
    check_rules(&scene.prometheus)?;
    check_panels(&scene.prometheus)?;
    scene.stop()
}

/// Fails unless Prometheus has evaluated every rule without an error and knows all names in the
/// expressions.
fn check_rules(prometheus: &Prometheus) -> Result<()> {
    let rules = prometheus.get("/api/v1/rules")?;
    let rules = field(&rules, "/groups/0/rules")?
        .as_array()
        .context("no rules")?;
    ensure!(rules.len() == alerts()?.len(), "{rules:?}");
    for rule in rules {
        ensure!(rule.get("health").is_some_and(|it| it == "ok"), "{rule}");
        let expression = rule.get("query").and_then(Value::as_str);
        check_names(prometheus, expression.context("no expression")?)?;
    }
    Ok(())
}

/// Fails unless each name in an expression that begins with `loudou_` is a known metric or label.
fn check_names(prometheus: &Prometheus, expression: &str) -> Result<()> {
    let mut known = BTreeSet::new();
    for path in ["/api/v1/label/__name__/values", "/api/v1/labels"] {
        let names = prometheus.get(path)?;
        let names = names.as_array().context("no names")?.iter();
        known.extend(names.filter_map(|name| name.as_str().map(str::to_owned)));
    }
    let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    for word in words.filter(|word| word.starts_with("loudou_")) {
        ensure!(
            known.contains(word),
            "nothing is called {word}: {expression}"
        );
    }
    Ok(())
}

/// Fails unless every panel has data. The value must exceed 0, except for the panels in [`ZERO`].
fn check_panels(prometheus: &Prometheus) -> Result<()> {
    let targets = targets()?;
    for Target {
        panel,
        legend,
        expression,
    } in &targets
    {
        check_names(prometheus, expression)?;
        let samples = prometheus.query(expression)?;
        ensure!(!samples.is_empty(), "{panel} is empty: {expression}");
        // A quantile without samples is NaN, which `f64::max` ignores.
        let most = samples
            .iter()
            .map(|sample| sample.value)
            .fold(0.0, f64::max);
        let is_zero = ZERO.contains(&(panel.as_str(), legend.as_str()));
        ensure!(
            is_zero || most > 0.0,
            "{panel} ({legend}) shows 0: {expression}"
        );
        for name in legend
            .split("{{")
            .skip(1)
            .filter_map(|rest| rest.split("}}").next())
        {
            let is_labelled = samples.iter().all(|sample| !sample.label(name).is_empty());
            ensure!(is_labelled, "{panel}: no label {name}: {samples:?}");
        }
    }
    for (panel, legend) in ZERO {
        let is_there = |target: &Target| target.panel == panel && target.legend == legend;
        ensure!(targets.iter().any(is_there), "no {panel} ({legend})");
    }
    Ok(())
}

/// Fails unless some metrics equal the numbers of the clients and of the admin API exactly.
fn check_numbers(scene: &Scene, refused: u64) -> Result<()> {
    let value = |expression: &str| -> Result<f64> {
        let samples = scene.prometheus.query(expression)?;
        let [one] = samples.as_slice() else {
            anyhow::bail!("{expression}: {samples:?}");
        };
        Ok(one.value)
    };
    let is = |expression: &str, expected: u64| {
        eventually(SOON, expression, || {
            let same = value(expression)?.to_string() == expected.to_string();
            Ok(same.then_some(()))
        })
    };
    let example = Scene::instance(&scene.example.envoy);
    let of_rule = |rule: &str, verdict: &str| {
        format!(
            r#"loudou_rule{{instance="{example}", loudou_rule="{rule}", loudou_verdict="{verdict}"}}"#
        )
    };
    is(&of_rule("per-user", "refused"), refused)?;
    is(&of_rule("reports", "held"), held(&scene.example.envoy)?)?;
    let faulty = Scene::instance(&scene.faulty);
    let status = Operator::viewer(&scene.faulty).get("/v1/status")?;
    for (metric, place) in [
        ("loudou_store_used", "/store/used"),
        ("loudou_store_buckets", "/store/buckets"),
        ("loudou_store_evicted_lossy", "/store/evicted_lossy"),
        ("loudou_fleet_down", "/fleet/workers_down"),
    ] {
        let expected = field(&status, place)?.as_u64().context("no number")?;
        ensure!(expected > 0, "{place}: {status}");
        is(&format!(r#"{metric}{{instance="{faulty}"}}"#), expected)?;
    }
    is(&format!(r#"loudou_edits{{instance="{faulty}"}}"#), 1)?;
    // The store contains only banned buckets.
    let buckets = field(&status, "/store/buckets")?.as_u64();
    let bans = format!(r#"loudou_bans{{instance="{faulty}"}}"#);
    is(&bans, buckets.context("no number")?)
}

/// Returns the number of requests that the example has held.
fn held(envoy: &Envoy) -> Result<u64> {
    let held = envoy.counter("wasmcustom.loudou.rule.reports.held")?;
    ensure!(held > 0, "none was held");
    Ok(held)
}
