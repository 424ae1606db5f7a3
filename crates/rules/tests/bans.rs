//! Penalties, and the bans they lead to.

use loudou_limiter::ban::{BanHistory, ENDLESS_MS};
use loudou_limiter::{Ban, Decimal, Nanos, Penalty};
use proptest::prelude::*;

const fn ms(ms: u64) -> Nanos {
    Nanos::from_millis(ms)
}

fn penalty(after: u16, factor: u32) -> Penalty {
    Penalty {
        after,
        within: ms(1_000),
        ban: ms(300),
        factor: Decimal::from_thousandths(factor),
        max: ms(1_500),
    }
}

/// Adds strikes at these instants. Returns the resulting bans with their start and end.
fn bans(penalty: &Penalty, strikes_ms: &[u64]) -> Vec<(u64, u64)> {
    let mut ban_history = BanHistory::default();
    let mut bans = Vec::new();
    for at in strikes_ms {
        let now = ms(*at);
        ban_history.settle(now);
        if ban_history.ban(now).is_some() {
            continue;
        }
        ban_history.strike(penalty, now);
        if let Some(Ban { until: Some(until) }) = ban_history.ban(now) {
            bans.push((*at, until.as_millis()));
        }
    }
    bans
}

#[test]
fn each_ban_is_longer_until_it_is_the_longest() {
    let penalty = penalty(2, 2_000);
    let strikes: Vec<u64> = (1..10_000).collect();
    let bans = bans(&penalty, &strikes);
    let spans: Vec<u64> = bans.iter().map(|(at, until)| until - at).collect();
    assert_eq!(
        spans.get(..5),
        Some([300, 600, 1_200, 1_500, 1_500].as_slice())
    );
    assert_eq!(bans[0].0, 2);
    // The end of a ban is not in it, and the strikes before it are gone.
    assert_eq!(bans[1].0, 303);
}

#[test]
fn a_ban_is_forgotten_after_the_longest() {
    let penalty = penalty(1, 2_000);
    assert_eq!(bans(&penalty, &[0, 300]), [(0, 300), (300, 900)]);
    assert_eq!(bans(&penalty, &[0, 1_799]), [(0, 300), (1_799, 2_399)]);
    assert_eq!(bans(&penalty, &[0, 1_800]), [(0, 300), (1_800, 2_100)]);
}

#[test]
fn windows_begin_with_a_refusal() {
    let penalty = penalty(3, 1_000);
    assert_eq!(bans(&penalty, &[0, 500, 1_000, 1_500]), []);
    assert_eq!(bans(&penalty, &[0, 500, 999]), [(999, 1_299)]);
    assert_eq!(
        bans(&penalty, &[0, 500, 1_000, 1_500, 1_999]),
        [(1_999, 2_299)]
    );
}

#[test]
fn factors_need_not_be_whole() {
    let penalty = penalty(1, 1_500);
    let spans: Vec<Nanos> = (0..6).map(|bans| penalty.span(bans)).collect();
    let mut expected = Vec::from([300, 450, 675].map(ms));
    expected.extend([Nanos::new(1_012_500_000), ms(1_500), ms(1_500)]);
    assert_eq!(spans, expected);
}

#[test]
fn an_imposed_ban_ends_when_it_should_or_never() {
    let mut ban_history = BanHistory::default();
    ban_history.impose(Nanos::new(1), Some(ms(10)));
    let until = Some(Nanos::new(10_000_001));
    assert_eq!(ban_history.ban(ms(10)), Some(Ban { until }));
    assert_eq!(ban_history.ban(Nanos::new(10_000_001)), None);
    ban_history.settle(ms(10));
    assert!(ban_history.ban(ms(10)).is_some());
    ban_history.settle(ms(11));
    assert_eq!(ban_history, BanHistory::default());
    ban_history.impose(ms(5), None);
    assert_eq!(ban_history.ban(ms(1 << 39)), Some(Ban::ENDLESS));
    ban_history.impose(ms(5), Some(Nanos::MAX));
    assert!(
        ban_history
            .ban(ms(6))
            .is_some_and(|ban| ban.lasts(ms(6)).is_some())
    );
}

proptest! {
    /// A ban lasts exactly as long as configured, for any cause and any beginning within a millisecond.
    #[test]
    fn a_ban_lasts_as_long_as_configured(now in 0..1_u64 << 50, span in 1..1_u64 << 50) {
        let (now, span) = (Nanos::new(now), Nanos::new(span));
        let penalty = Penalty { ban: span, max: span, ..penalty(1, 1_000) };
        let (mut struck, mut imposed) = (BanHistory::default(), BanHistory::default());
        struck.strike(&penalty, now);
        imposed.impose(now, Some(span));
        let until = now.saturating_add(span);
        let just_before = Nanos::new(until.get() - 1);
        for ban_history in [struck, imposed] {
            prop_assert_eq!(ban_history.ban(now), Some(Ban { until: Some(until) }));
            prop_assert_eq!(ban_history.ban(just_before), Some(Ban { until: Some(until) }));
            prop_assert_eq!(ban_history.ban(until), None);
            prop_assert!(ban_history.clean_at_ms >= until.millis_ceil());
            // One more refusal, in the millisecond of the end, does not count for the next ban.
            let mut next = ban_history;
            next.strike(&Penalty { after: 2, ..penalty.clone() }, until);
            prop_assert_eq!((next.ban(until), next.strikes), (None, 1));
        }
    }

    /// Fewer than `after` refusals in any `within` never cause a ban, and twice as many always do.
    #[test]
    fn only_who_is_refused_too_often_is_banned(
        after in 1_u16..6,
        gaps in prop::collection::vec(0_u64..700, 0..40),
    ) {
        let penalty = penalty(after, 1_000);
        let mut at = 0;
        let strikes: Vec<u64> = gaps.iter().map(|gap| { at += gap; at }).collect();
        let most = |from: u64| {
            strikes.iter().filter(|at| (from..from + 1_000).contains(*at)).count()
        };
        let most = strikes.iter().map(|at| most(*at)).max().unwrap_or(0);
        let bans = bans(&penalty, &strikes);
        if most < usize::from(after) {
            prop_assert_eq!(bans.len(), 0);
        }
        if most >= 2 * usize::from(after) - 1 {
            prop_assert!(!bans.is_empty());
        }
    }

    #[test]
    fn no_numbers_panic(
        after in 1_u16.., within: u64, ban: u64, factor in 1_000_u32.., max: u64,
        times: Vec<u64>,
    ) {
        let penalty = Penalty {
            after,
            within: Nanos::new(within),
            ban: Nanos::new(ban),
            factor: Decimal::from_thousandths(factor),
            max: Nanos::new(max),
        };
        let mut ban_history = BanHistory::default();
        for now in times.into_iter().map(Nanos::new) {
            ban_history.settle(now);
            ban_history.strike(&penalty, now);
            prop_assert!(ban_history.clean_at_ms <= ENDLESS_MS);
            prop_assert!(ban_history.banned_until_ms <= ENDLESS_MS);
        }
        prop_assert!(penalty.span(u8::MAX) <= penalty.max);
    }
}
