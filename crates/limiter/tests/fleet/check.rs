//! Properties of every run, with any faults of the fleet.

use loudou_limiter::lease::Shared;
use loudou_limiter::{Limits, Nanos, Rate};

use crate::bound::{Pass, most_in_a_window};
use crate::setup::{Fault, Setup};
use crate::sim::{MS, Run, START, run};

/// Runs a fleet, and checks the bound of each limit over every window, and the bound of the local
/// buckets.
pub(crate) fn checked(setup: &Setup) -> Run {
    let run = run(setup);
    for (most, allowed) in excess(setup, &run) {
        assert!(most <= allowed, "{most} above {allowed}: {setup:?}");
    }
    run
}

/// Returns for each limit the maximum excess over the refill in a window, and the allowed excess.
pub(crate) fn excess(setup: &Setup, run: &Run) -> Vec<(i128, i128)> {
    let envoys = i128::from(setup.envoys);
    let mut editions = vec![&setup.limits];
    editions.extend(setup.faults.iter().filter_map(|(_, fault)| match fault {
        Fault::Edit(limits) => Some(limits),
        _ => None,
    }));
    let central = editions.iter().map(|limits| shared(limits));
    let central = widest(central.collect());
    let on_credit = envoys * i128::from(setup.settings.credit);
    let mut bounds = Vec::new();
    for limit in central {
        let faults = setup.faults.iter();
        let more: i128 = faults.map(|(_, fault)| gift(setup, limit, fault)).sum();
        let allowed = i128::from(limit.capacity()) + 2 * on_credit + more;
        // A token is used within a lease. The engine's time has whole microseconds.
        let lead = setup.settings.lease.saturating_add(Nanos::new(1_000));
        bounds.push((most_in_a_window(&run.passes, limit, lead), allowed));
    }
    let divided = editions.iter().map(|limits| {
        let local = limits.divided(setup.envoys).expect("divisible");
        shared(&local)
            .into_iter()
            .map(|part| times(part, setup.envoys))
            .collect()
    });
    for limit in widest(divided.collect()) {
        let most = most_in_a_window(&run.local, limit, Nanos::ZERO);
        let faults = setup.faults.iter();
        let more: i128 = faults
            .map(|(_, fault)| local_gift(setup, limit, fault))
            .sum();
        // A local bucket starts with the balance that the engine last reported. The parts of the
        // Envoys were reported at different times.
        let portion = match limit {
            Shared::Interval { .. } => back_in(limit, 0),
            _ => 0,
        };
        bounds.push((most, i128::from(limit.capacity()) + more + portion));
    }
    bounds
}

/// Returns two numbers for each limit. The first is the maximum of the units that passed in a
/// window, by leases and alone together, minus the units that refill in the window, in a lease and
/// in `alone`. The second is the allowed maximum: `2·B` and the credit, with parts of at least one
/// unit each.
pub(crate) fn joint_excess(setup: &Setup, run: &Run, alone: Nanos) -> Vec<(i128, i128)> {
    let all = run.all();
    let on_credit = 2 * u64::from(setup.envoys) * setup.settings.credit;
    let limits = shared(&setup.limits).into_iter().map(|limit| {
        let parts = limit.capacity().max(setup.envoys.into());
        let allowed = limit.capacity() + parts + on_credit;
        let lead = setup.settings.lease.saturating_add(Nanos::new(1_000));
        let lead = lead.saturating_add(alone);
        (most_in_a_window(&all, limit, lead), allowed.into())
    });
    limits.collect()
}

/// Returns how many units beyond the bound a fault may cause.
fn gift(setup: &Setup, limit: Shared, fault: &Fault) -> i128 {
    let on_credit = i128::from(setup.envoys) * i128::from(setup.settings.credit);
    let capacity = i128::from(limit.capacity());
    match fault {
        Fault::UpEmpty => capacity + on_credit,
        Fault::Failover { lost } => capacity + on_credit + back_in(limit, lost.get()),
        Fault::Jump(by) => match limit {
            Shared::Leak { .. } if *by < 0 => 0,
            // Two windows may have the same number.
            Shared::Window { .. } => capacity + 2 * on_credit,
            _ => back_in(limit, by.unsigned_abs()),
        },
        Fault::Restart => setup.settings.credit.into(),
        // Denials are dropped, and with them the fact that the credit is used up.
        Fault::Edit(_) => on_credit,
        Fault::Down { .. } | Fault::KeyLost | Fault::Full | Fault::Up => 0,
    }
}

/// Returns how many units beyond the bound of all local buckets together a fault may cause.
fn local_gift(setup: &Setup, limit: Shared, fault: &Fault) -> i128 {
    match (fault, limit) {
        // A restarted Envoy has a full bucket.
        (Fault::Restart, _) => i128::from(limit.capacity()) / i128::from(setup.envoys),
        // The multiples of another period begin earlier.
        (Fault::Edit(_), Shared::Interval { .. }) => back_in(limit, 0),
        _ => 0,
    }
}

/// Returns the maximum number of units that refill in a span.
fn back_in(limit: Shared, span: u64) -> i128 {
    match limit {
        Shared::Leak { rate, .. } => {
            let drops = i128::from(span) * i128::from(rate.amount());
            drops / i128::from(rate.period().get()) + 1
        }
        Shared::Interval { rate, .. } => {
            i128::from(span / rate.period().get() + 1) * i128::from(rate.amount())
        }
        Shared::Window { capacity, .. } => capacity.into(),
    }
}

fn shared(limits: &Limits) -> Vec<Shared> {
    let numbers = limits.iter().map(|limit| limit.algorithm().shared());
    numbers.collect::<Result<_, _>>().expect("of a fleet")
}

/// Returns each limit with the largest capacity and the fastest rate of all editions, which have
/// the same kinds.
fn widest(editions: Vec<Vec<Shared>>) -> Vec<Shared> {
    let wider = |one: Vec<Shared>, other: Vec<Shared>| {
        let both = one.into_iter().zip(other);
        both.map(|(one, other)| wider(one, other)).collect()
    };
    editions.into_iter().reduce(wider).expect("at least one")
}

fn wider(one: Shared, other: Shared) -> Shared {
    let capacity = one.capacity().max(other.capacity());
    let faster = |one: Rate, other: Rate| {
        let speed =
            |rate: Rate, other: Rate| u128::from(rate.amount()) * u128::from(other.period().get());
        if speed(one, other) < speed(other, one) {
            other
        } else {
            one
        }
    };
    match (one, other) {
        (Shared::Leak { rate, .. }, Shared::Leak { rate: other, .. }) => Shared::Leak {
            capacity,
            rate: faster(rate, other),
        },
        (Shared::Interval { rate, .. }, Shared::Interval { rate: other, .. }) => Shared::Interval {
            capacity,
            rate: faster(rate, other),
        },
        (Shared::Window { window, .. }, _) => Shared::Window { capacity, window },
        _ => panic!("an edit that changes the kind"),
    }
}

/// Returns the units that this many limits admit together.
fn times(limit: Shared, envoys: u32) -> Shared {
    let capacity = limit.capacity() * u64::from(envoys);
    let all = |rate: Rate| Rate::new(rate.amount() * envoys, rate.period()).expect("few");
    match limit {
        Shared::Leak { rate, .. } => Shared::Leak {
            capacity,
            rate: all(rate),
        },
        Shared::Interval { rate, .. } => Shared::Interval {
            capacity,
            rate: all(rate),
        },
        Shared::Window { window, .. } => Shared::Window { capacity, window },
    }
}

/// Returns the admitted share of what a central bucket admits, in per mille.
pub(crate) fn yield_of(run: &Run) -> u64 {
    run.passed() * 1_000 / run.ideal
}

/// Returns the units that passed in a range of milliseconds since the start.
pub(crate) fn units_between(passes: &[Pass], from: u64, until: u64) -> u64 {
    let range = START + from * MS..START + until * MS;
    let inside = passes.iter().filter(|pass| range.contains(&pass.at));
    inside.map(|pass| pass.cost).sum()
}
