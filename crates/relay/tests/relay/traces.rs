//! Compares `lease.lua` with the model over random traces. Another test uses the engine's clock and compares granted
//! with returned units.

use anyhow::Result;
use loudou_api::{LeaseKey, LeaseLimit};
use loudou_relay::script;
use loudou_tests::Valkey;
use loudou_tests::valkey::{Reply, Resp};

use crate::model::Model;
use crate::timed::{lease_at, read};

/// Pseudo-random numbers with a fixed seed (`SplitMix64`, Steele et al. 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, most: u64) -> u64 {
        self.next() % most
    }

    fn one<const N: usize>(&mut self, of: [u64; N]) -> u64 {
        let at = usize::try_from(self.next()).unwrap_or(0);
        of.into_iter().cycle().nth(at % N).unwrap_or(1)
    }
}

const SECOND: u64 = 1_000_000_000;
const CAPACITIES: [u64; 6] = [1, 2, 7, 20, 1_000, 1_000_000_000];
const AMOUNTS: [u64; 8] = [1, 2, 3, 7, 30, 999, 999_999_937, 1_000_000_000];
const TIMES: [u64; 8] = [
    SECOND,
    60 * SECOND,
    SECOND / 3,
    1_001_003,
    3_599_999_999_989,
    86_400 * SECOND,
    31_622_400 * SECOND,
    31_622_399_999_997_000,
];

fn limit(random: &mut Random) -> LeaseLimit {
    let capacity = random.one(CAPACITIES);
    let (amount, time) = (random.one(AMOUNTS), random.one(TIMES));
    match random.below(3) {
        0 => LeaseLimit::Leak {
            capacity,
            amount,
            period_ns: time,
        },
        1 => LeaseLimit::Interval {
            capacity,
            amount,
            interval_ns: time,
        },
        _ => LeaseLimit::Window {
            capacity,
            window_ns: time,
        },
    }
}

/// Returns the time of the next call, in microseconds: unchanged, a little or much later, or earlier.
fn step(random: &mut Random, now: u64) -> u64 {
    match random.below(12) {
        0..=2 => now,
        3..=5 => now + random.below(1_000),
        6..=8 => now + random.below(2_000_000),
        9 => now + random.below(90_000_000_000),
        10 => now + random.below(100_000_000_000_000),
        _ => now - random.below(3_000_000),
    }
}

fn ask(random: &mut Random, limits: &[LeaseLimit]) -> LeaseKey {
    let most = limits
        .iter()
        .map(|limit| limit.capacity())
        .min()
        .unwrap_or(1);
    let want = match random.below(6) {
        0 => 0,
        1 => 1_000_000_000,
        _ => random.below(most + most / 2 + 2).min(1_000_000_000),
    };
    let debt = if random.below(4) == 0 {
        random.below(most + 2)
    } else {
        0
    };
    LeaseKey {
        want,
        need: random.below(want + 1),
        debt: debt.min(1_000_000_000),
        ..LeaseKey::new("rule", "key", limits.to_vec())
    }
}

/// Runs one trace, in which limits are added, removed and replaced now and then.
fn trace(resp: &mut Resp, seed: u64) -> Result<()> {
    let mut random = Random(seed);
    let mut model = Model::default();
    let mut now = 1_790_000_000_000_000 + random.below(1_000_000_000);
    let mut limits: Vec<LeaseLimit> = (0..=random.below(3)).map(|_| limit(&mut random)).collect();
    for call in 0..60 {
        now = step(&mut random, now);
        match random.below(20) {
            0 => limits.push(limit(&mut random)),
            1 if limits.len() > 1 => drop(limits.remove(0)),
            2 => limits.splice(..1, [limit(&mut random)]).for_each(drop),
            _ => {}
        }
        limits.truncate(8);
        let key = LeaseKey {
            key: format!("trace-{seed}"),
            ..ask(&mut random, &limits)
        };
        let (ours, theirs) = (model.lease(&key, now), lease_at(resp, &key, now)?);
        assert_eq!(theirs, ours, "seed {seed}, call {call} at {now}: {key:?}");
    }
    Ok(())
}

#[test]
fn the_script_computes_as_the_model() -> Result<()> {
    let valkey = Valkey::start()?;
    let mut resp = Resp::unix(&valkey.socket())?;
    for seed in 0..200 {
        trace(&mut resp, seed)?;
    }
    Ok(())
}

/// A state expires when all units have been returned, and not earlier.
#[test]
fn a_state_expires_when_it_is_empty() -> Result<()> {
    let valkey = Valkey::start()?;
    let mut resp = Resp::unix(&valkey.socket())?;
    let now = 1_790_000_000_500_000;
    let leak = |capacity, amount| LeaseLimit::Leak {
        capacity,
        amount,
        period_ns: SECOND,
    };
    let window = LeaseLimit::Window {
        capacity: 9,
        window_ns: 60 * SECOND,
    };
    let interval = LeaseLimit::Interval {
        capacity: 9,
        amount: 2,
        interval_ns: 10 * SECOND,
    };
    // 1 790 000 000 s is second 20 of a minute, and the start of an interval of ten seconds.
    let cases = [
        (vec![leak(10, 1)], 5_000),
        (vec![leak(10, 3)], 1_667),
        (vec![window], 39_500),
        (vec![interval], 29_500),
        (vec![leak(10, 1), interval, window], 39_500),
    ];
    for (at, (limits, empty_ms)) in cases.into_iter().enumerate() {
        let key = LeaseKey {
            want: 5,
            ..LeaseKey::new("r", &at.to_string(), limits)
        };
        assert_eq!(lease_at(&mut resp, &key, now)?.granted, 5);
        let name = format!("loudou:lease:test:r:{at}");
        let left = resp.run(&["PTTL", &name])?.number()?;
        // The expiry is a second later than the state is empty. Some time has passed since the call.
        assert!(
            (empty_ms..=empty_ms + 1_000).contains(&left),
            "case {at}: {left}"
        );
        let peek = LeaseKey { want: 0, ..key };
        lease_at(&mut resp, &peek, now + 60_000_000)?;
        assert_eq!(resp.run(&["EXISTS", &name])?, Reply::Number(0), "case {at}");
    }
    Ok(())
}

/// A call that takes no units writes nothing, so it causes no work for replicas and the append-only file.
#[test]
fn what_takes_nothing_writes_nothing() -> Result<()> {
    let valkey = Valkey::start()?;
    let mut resp = Resp::unix(&valkey.socket())?;
    let limits = vec![LeaseLimit::Window {
        capacity: 2,
        window_ns: 60 * SECOND,
    }];
    let ask = |want| LeaseKey {
        want,
        ..LeaseKey::new("r", "k", limits.clone())
    };
    let now = 1_790_000_000_000_000;
    lease_at(&mut resp, &ask(2), now)?;
    let name = "loudou:lease:test:r:k";
    resp.run(&["PERSIST", name])?;
    for want in [0, 1, 5] {
        assert_eq!(lease_at(&mut resp, &ask(want), now + want)?.granted, 0);
        assert_eq!(
            resp.run(&["PTTL", name])?,
            Reply::Number(-1),
            "{want} was written"
        );
    }
    Ok(())
}

/// After the engine's clock was set back by an hour, units return by the new clock, even if all calls since then were
/// refused.
#[test]
fn a_clock_that_was_put_back_heals() -> Result<()> {
    let valkey = Valkey::start()?;
    let mut resp = Resp::unix(&valkey.socket())?;
    let limit = LeaseLimit::Leak {
        capacity: 2,
        amount: 1,
        period_ns: SECOND,
    };
    let key = LeaseKey {
        want: 2,
        ..LeaseKey::new("r", "k", vec![limit])
    };
    let hour_us = 3_600_000_000;
    let now = 1_790_000_000_000_000;
    assert_eq!(lease_at(&mut resp, &key, now)?.granted, 2);
    let back = now - hour_us;
    assert_eq!(lease_at(&mut resp, &key, back)?.granted, 0);
    assert_eq!(lease_at(&mut resp, &key, back + 1_000_000)?.granted, 1);
    assert_eq!(lease_at(&mut resp, &key, back + 1_000_001)?.granted, 0);
    Ok(())
}

/// With the engine's clock, the script grants exactly the units that return between the first and the last call.
#[test]
fn the_clock_is_the_engines() -> Result<()> {
    const CALLS: u64 = 2_000;
    const PER_SECOND: u64 = 10_000;
    const US_PER_UNIT: u64 = 1_000_000 / PER_SECOND;
    let valkey = Valkey::start()?;
    let mut resp = Resp::unix(&valkey.socket())?;
    let limit = LeaseLimit::Leak {
        capacity: 1_000_000_000,
        amount: PER_SECOND,
        period_ns: SECOND,
    };
    let key = LeaseKey {
        want: 1_000_000_000,
        ..LeaseKey::new("r", "k", vec![limit])
    };
    let call = script::lease("test", &key);
    let mut command = vec!["EVAL", script::LEASE, "1"];
    command.extend(call.keys.iter().chain(&call.arguments).map(String::as_str));
    let time = |resp: &mut Resp| -> Result<u64> {
        let time = resp.run(&["TIME"])?.numbers()?;
        Ok(u64::try_from(time[0] * 1_000_000 + time[1])?)
    };
    let before_first = time(&mut resp)?;
    assert_eq!(read(&resp.run(&command)?, &key)?.granted, key.want);
    let (after_first, mut before_last, mut granted) = (time(&mut resp)?, 0, 0);
    for _ in 0..CALLS {
        before_last = time(&mut resp)?;
        granted += read(&resp.run(&command)?, &key)?.granted;
    }
    let after_last = time(&mut resp)?;
    let least = (before_last - after_first) / US_PER_UNIT;
    let most = (after_last - before_first) / US_PER_UNIT;
    assert!(
        (least..=most).contains(&granted),
        "{granted}, not {least} to {most}"
    );
    assert!(most > 0, "no time has passed");
    Ok(())
}
