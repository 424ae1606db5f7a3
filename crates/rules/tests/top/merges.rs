//! A stream that is split among workers, whose summaries are merged in any order and shape.

use super::*;

#[derive(Clone, Debug)]
enum Step {
    /// A worker counts.
    Count { worker: usize, key: u64, times: u64 },
    /// The counts of one worker are merged into another's, which continues.
    Merge { from: usize, to: usize },
}

const WORKERS: usize = 4;

fn step() -> impl Strategy<Value = Step> {
    let key = (0_u32..6).prop_flat_map(|bits| 0_u64..1 << bits);
    let count = (0..WORKERS, key, 1_u64..5);
    let count = count.prop_map(|(worker, key, times)| Step::Count { worker, key, times });
    let merge = (0..WORKERS, 1..WORKERS);
    let merge = merge.prop_map(|(from, by)| Step::Merge {
        from,
        to: (from + by) % WORKERS,
    });
    prop_oneof![20 => count, 1 => merge]
}

/// The summary as read from the store.
fn stored(mut summary: Summary, places: usize) -> Summary {
    let mut bytes = Vec::new();
    summary.encode(&mut bytes);
    Summary::decode(&bytes, places).expect("what was written")
}

proptest! {
    #![proptest_config(config(150))]

    #[test]
    fn merges_in_any_order_promise_the_same(
        places in 1_usize..10,
        steps in prop::collection::vec(step(), 0..400),
        is_stored in any::<bool>(),
    ) {
        let mut workers = vec![(Summary::new(places), Exact::new()); WORKERS];
        for step in steps {
            match step {
                Step::Count { worker, key, times } => {
                    let (summary, exact) = &mut workers[worker];
                    add(summary, exact, key, times);
                }
                Step::Merge { from, to } => {
                    let empty = (Summary::new(places), Exact::new());
                    let (mut summary, truth) = std::mem::replace(&mut workers[from], empty);
                    if is_stored {
                        summary = stored(summary, places);
                    }
                    let (target, exact) = &mut workers[to];
                    target.merge(&summary);
                    for (key, count) in truth {
                        *exact.entry(key).or_default() += count;
                    }
                    prop_assert!(target.entries().len() <= places);
                }
            }
            for (summary, exact) in &workers {
                holds(summary, exact, places);
            }
        }
    }

    /// A summary of another size is merged as well as its size allows.
    #[test]
    fn a_larger_one_fits(keys in prop::collection::vec(0_u64..200, 0..300)) {
        let (mut small, mut exact) = (Summary::new(3), Exact::new());
        let mut large = Summary::new(100);
        for key in keys {
            add(&mut small, &mut exact, key, 1);
            add(&mut large, &mut exact, key / 2, 2);
        }
        small.merge(&large);
        holds(&small, &exact, 3);
    }
}

#[test]
fn what_fits_is_merged_exactly() {
    let (mut all, mut exact) = (Summary::new(16), Exact::new());
    for part in 0..50 {
        let mut one = Summary::new(16);
        for n in 0..40 {
            add(&mut one, &mut exact, (n * part) % 16, 1);
        }
        all.merge(&one);
    }
    assert_eq!(all.floor(), 0);
    holds(&all, &exact, 16);
}
