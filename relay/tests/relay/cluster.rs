//! A cluster as the engine: keys in all of its slots, and a node that is lost.

use anyhow::{Context as _, Result};
use loudou_api::{KeyAnswer, LeaseKey};
use loudou_tests::{Relay, ValkeyCluster, eventually};

use crate::support::{SOON, call, daily, wants, with_keys};

fn keys() -> Vec<LeaseKey> {
    (0..300)
        .map(|at| wants(&at.to_string(), 3, daily(5)))
        .collect()
}

/// The grants of all keys; `None` if a key has none.
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
    // The replica had them all: none is granted anew.
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
    assert_eq!(warning["advice"], "the engine is a cluster: add --cluster");
    Ok(())
}

/// A node on a lost host: nothing is refused there, and nothing answers.
#[test]
fn a_node_that_hangs() -> Result<()> {
    let cluster = ValkeyCluster::start()?;
    let options = ["--timeout-ms", "5000"];
    let relay = Relay::start_on_cluster(&cluster, &options)?;
    assert_eq!(grants(&relay)?, Some(vec![3; 300]));
    cluster.pause(1)?;
    cluster.await_primary(4)?;
    // Those of other nodes get their last units meanwhile.
    let after = eventually(SOON, "all keys to be decided again", || grants(&relay))?;
    assert!(after.iter().all(|granted| *granted <= 2), "{after:?}");
    // It hangs all the same, and this one is told to ask it.
    let later = Relay::start_on_cluster(&cluster, &options)?;
    assert_eq!(grants(&later)?, Some(vec![0; 300]));
    Ok(())
}
