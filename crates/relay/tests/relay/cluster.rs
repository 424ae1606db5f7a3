//! A cluster as the engine: keys in all slots, and a lost node.

use std::time::Duration;

use anyhow::{Context as _, Result};
use loudou_api::{KeyAnswer, LeaseAnswer, LeaseKey};
use loudou_tests::{Relay, ValkeyCluster, eventually, now};

use crate::support::{SOON, call, daily, post, send, wants, with_keys};

fn keys() -> Vec<LeaseKey> {
    (0..300)
        .map(|at| wants(&at.to_string(), 3, daily(5)))
        .collect()
}

/// Returns the grants of all keys, or `None` if a key has an error.
fn grants(relay: &Relay) -> Result<Option<Vec<u64>>> {
    let answer = call(relay, &with_keys(keys()))?;
    let granted = |key: &KeyAnswer| match key {
        KeyAnswer::Lease(lease) => Some(lease.granted),
        KeyAnswer::Failed(_) => None,
    };
    Ok(answer.keys.iter().map(granted).collect())
}

#[test]
fn keys_of_all_slots_and_a_lost_node() -> Result<()> {
    let mut cluster = ValkeyCluster::start()?;
    let relay = Relay::start_on_cluster(&cluster, &["--timeout-ms", "5000"])?;
    assert_eq!(grants(&relay)?, Some(vec![3; 300]));
    assert_eq!(grants(&relay)?, Some(vec![2; 300]));
    let held = |node| cluster.run(node, &["DBSIZE"])?.number();
    for node in 0..3 {
        assert!(held(node)? > 50, "node {node} has {} keys", held(node)?);
    }
    cluster.kill(1)?;
    cluster.await_primary(4)?;
    let after = eventually(SOON, "all keys to be decided again", || grants(&relay))?;
    // The replica had all states, so nothing is granted twice.
    assert_eq!(after, vec![0; 300]);
    Ok(())
}

#[test]
fn a_cluster_that_is_taken_for_one_server() -> Result<()> {
    let cluster = ValkeyCluster::start()?;
    let url = cluster.urls().into_iter().next().context("no node")?;
    let relay = Relay::launch(&["--engine", &url, "--timeout-ms", "5000"])?;
    relay.await_engine()?;
    assert_eq!(grants(&relay)?, None);
    let warning = relay.logged("the engine refused a script")?;
    let warning = warning.context("no warning")?;
    assert_eq!(warning["advice"], "the engine is a cluster; add --cluster");
    Ok(())
}

/// A node on a lost host neither refuses connections nor answers.
#[test]
fn a_node_that_hangs() -> Result<()> {
    let cluster = ValkeyCluster::start()?;
    let options = ["--timeout-ms", "5000"];
    let relay = Relay::start_on_cluster(&cluster, &options)?;
    assert_eq!(grants(&relay)?, Some(vec![3; 300]));
    cluster.pause(1)?;
    cluster.await_primary(4)?;
    // In the meantime the keys of other nodes have got their last units.
    let after = eventually(SOON, "all keys to be decided again", || grants(&relay))?;
    assert!(after.iter().all(|granted| *granted <= 2), "{after:?}");
    // The node still hangs. `--engine` of this relay includes it.
    let later = Relay::start_on_cluster(&cluster, &options)?;
    assert_eq!(grants(&later)?, Some(vec![0; 300]));
    Ok(())
}

/// A hung node delays one call. Later calls get an error for its keys at once. The keys of other nodes are not
/// affected.
#[test]
fn a_node_that_hangs_is_remembered() -> Result<()> {
    let mut cluster = lone_primaries()?;
    let relay = Relay::start_on_cluster(&cluster, &["--timeout-ms", "10000"])?;
    assert_eq!(grants(&relay)?, Some(vec![3; 300]));
    cluster.pause(1)?;
    let first = patient_call(&relay)?;
    let mut later = Duration::ZERO;
    for _ in 0..20 {
        let next = patient_call(&relay)?;
        assert_eq!(next.failed, first.failed);
        later += next.took;
    }
    // Without that, each call would take as long as the first.
    assert!(later < first.took * 10, "{first:?}, then {later:?}");
    assert!((50..250).contains(&first.failed.len()), "{first:?}");
    cluster.resume(1)?;
    eventually(SOON, "the node to be asked again", || grants(&relay))?;
    cluster.kill(2)?;
    let first = eventually(SOON, "the node to be lost", || {
        let call = patient_call(&relay)?;
        Ok((!call.failed.is_empty()).then_some(call))
    })?;
    let again = patient_call(&relay)?;
    assert_eq!(again.failed, first.failed);
    Ok(())
}

/// Starts a cluster without replicas. Nodes that are up serve their keys even if other nodes are down.
fn lone_primaries() -> Result<ValkeyCluster> {
    let mut cluster = ValkeyCluster::start()?;
    for node in 0..3 {
        let set = ["CONFIG", "SET", "cluster-require-full-coverage", "no"];
        cluster.run(node, &set)?;
    }
    for replica in 3..6 {
        cluster.kill(replica)?;
    }
    Ok(cluster)
}

/// A call with all keys and a timeout of eight seconds. The relay waits for the engine for half of it.
#[derive(Debug)]
struct Patient {
    took: Duration,
    /// Indexes of the keys without a lease.
    failed: Vec<usize>,
}

fn patient_call(relay: &Relay) -> Result<Patient> {
    let request = with_keys(keys());
    let sent = post(&request)?.header("x-envoy-expected-rq-timeout-ms", "8000");
    let begun = now();
    let answer = LeaseAnswer::read(&send(relay, &sent)?.body, &request.keys)?;
    let took = begun.elapsed();
    let failed = (0..).zip(&answer.keys).filter_map(|(at, key)| match key {
        KeyAnswer::Failed(_) => Some(at),
        KeyAnswer::Lease(_) => None,
    });
    Ok(Patient {
        took,
        failed: failed.collect(),
    })
}
