//! Describes an Envoy's leases, and the state of the fleet as known to that Envoy.

use loudou_api::{BucketView, EventKind, FleetStatus, LeaseView, LimitView, OutageView, Spread};

use crate::text::humanise;

/// Describes a shared bucket's remaining units: `3 here, 12 left for all Envoys 40ms ago`. If the bucket has several
/// limits, the number of units left is the minimum across all limits. Returns `None` if the bucket has no lease.
pub fn lease(bucket: &BucketView, ago: impl Fn(&LeaseView) -> String) -> Option<String> {
    let lease = bucket.lease.as_ref()?;
    let tokens = lease.tokens;
    let left = lease.left.iter().min().copied().unwrap_or(0);
    let out = bucket.outage.map_or("", |_| ", not in effect");
    let ago = ago(lease);
    Some(format!(
        "{tokens} here, {left} left for all Envoys {ago}{out}"
    ))
}

/// Describes how an Envoy makes decisions without the relay.
pub fn outage(outage: OutageView) -> String {
    let decides = match outage {
        OutageView::Local { envoys: 1 } => {
            "this Envoy limits alone, with the full limits, because it knows no other Envoy"
                .to_owned()
        }
        OutageView::Local { envoys } => {
            format!("this Envoy limits alone, with the limits divided by {envoys} Envoys")
        }
        OutageView::Admit => "every request passes".to_owned(),
        OutageView::Refuse => "every request is refused".to_owned(),
    };
    format!("the relay does not answer: {decides}")
}

/// Describes the units left for all Envoys under each limit: `12`, or `3 of burst and 970 of daily`.
pub fn left(lease: &LeaseView, limits: &[LimitView]) -> String {
    if let [units] = lease.left.as_slice() {
        return units.to_string();
    }
    let limits = lease.left.iter().zip(limits);
    let limits = limits.map(|(units, limit)| format!("{units} of {}", limit.name));
    limits.collect::<Vec<_>>().join(" and ")
}

/// Describes the age of a lease's numbers. `now_ns` is `None` if the response does not contain a clock reading.
pub fn heard(lease: &LeaseView, now_ns: Option<u64>) -> String {
    now_ns.map_or_else(
        || "when the relay last answered".to_owned(),
        |now| ago(now, lease.heard_ns),
    )
}

/// Describes a lease's debt, and any outage or lease denial, in one line each.
pub fn owed_and_denied(bucket: &BucketView, now_ns: Option<u64>) -> Vec<String> {
    let lease = bucket.lease.as_ref();
    let debt = lease.map_or(0, |lease| lease.debt);
    let debt = (debt > 0).then(|| format!("{debt} passed on credit, not charged yet"));
    let decides = match bucket.outage {
        Some(out) => Some(outage(out)),
        None => lease.and_then(|lease| denied(lease, now_ns)),
    };
    debt.into_iter().chain(decides).collect()
}

/// Describes a lease denial. Returns `None` if no denial is in effect.
pub fn denied(lease: &LeaseView, now_ns: Option<u64>) -> Option<String> {
    let until = lease.denied_until_ns?;
    let span = match now_ns.map(|now| until.saturating_sub(now)) {
        None => "for some time".to_owned(),
        Some(0) => return None,
        Some(left) => format!("for {} more", humanise(left)),
    };
    Some(format!("{span}, refused locally"))
}

/// Formats the number of Envoys: `4 Envoys`, or `1 Envoy`.
pub fn envoys(fleet: &FleetStatus) -> String {
    counted(fleet.envoys, "Envoy")
}

/// Formats the number of workers that are making decisions without the relay: `2 workers down`. Returns `None` if there
/// are none.
pub fn down(fleet: &FleetStatus) -> Option<String> {
    let down = fleet.workers_down;
    (down > 0).then(|| format!("{} down", counted(down, "worker")))
}

/// Describes how far a change has propagated: `on its way to the other Envoys of the fleet`. Returns `None` if there is
/// no fleet.
pub const fn spread(spread: Option<Spread>) -> Option<&'static str> {
    match spread {
        None | Some(Spread::Unknown) => None,
        Some(Spread::Sending) => Some("on its way to the other Envoys of the fleet"),
        Some(Spread::HereOnly) => {
            Some("at this Envoy only, because the fleet's record of changes is full")
        }
    }
}

/// Describes changes that are not yet in effect on all Envoys: `2 changes not sent yet`. Returns `None` if all changes
/// are in effect.
pub fn changes(fleet: &FleetStatus) -> Option<String> {
    let changes = &fleet.changes;
    let parts = [
        (changes.unsent, "not sent yet"),
        (
            changes.refused,
            "refused by the engine, so at this Envoy only",
        ),
        (changes.waiting, "waiting for the rule that it was made for"),
    ];
    let parts = parts.into_iter().filter(|(count, _)| *count > 0);
    let parts: Vec<String> = parts
        .map(|(count, words)| format!("{} {words}", counted(count, "change")))
        .collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// Formats the time since the relay's last response: `40ms ago`. Returns `None` if the relay has not responded yet.
pub fn answered(fleet: &FleetStatus, now_ns: u64) -> Option<String> {
    (fleet.answered_ns > 0).then(|| ago(now_ns, fleet.answered_ns))
}

/// Returns true for events indicating that rules may not be limiting requests as configured.
pub const fn is_alarm(kind: EventKind) -> bool {
    matches!(
        kind,
        EventKind::Warning | EventKind::UpstreamFails | EventKind::FleetDown
    )
}

fn ago(now_ns: u64, then_ns: u64) -> String {
    format!("{} ago", humanise(now_ns.saturating_sub(then_ns)))
}

/// Formats a number with its noun: `1 request`, or `2 requests`.
pub fn counted(count: u64, one: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {one}{plural}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn view() -> LeaseView {
        LeaseView {
            tokens: 3,
            left: vec![12],
            heard_ns: 960 * MS,
            debt: 2,
            denied_until_ns: Some(1_350 * MS),
        }
    }

    fn bucket(lease: LeaseView, outage: Option<OutageView>) -> BucketView {
        BucketView {
            lease: Some(lease),
            outage,
            ..BucketView::default()
        }
    }

    /// A lease denial is not shown during an outage, because it has no effect then.
    #[test]
    fn an_outage_in_words() {
        let told = |outage| {
            let bucket = bucket(view(), Some(outage));
            owed_and_denied(&bucket, Some(1_000 * MS))
        };
        for (outage, end) in [
            (
                OutageView::Local { envoys: 4 },
                "this Envoy limits alone, with the limits divided by 4 Envoys",
            ),
            (
                OutageView::Local { envoys: 1 },
                "this Envoy limits alone, with the full limits, because it knows no other Envoy",
            ),
            (OutageView::Admit, "every request passes"),
            (OutageView::Refuse, "every request is refused"),
        ] {
            let whole = format!("the relay does not answer: {end}");
            assert_eq!(
                told(outage),
                ["2 passed on credit, not charged yet", whole.as_str()]
            );
        }
    }

    #[test]
    fn a_lease_in_words() {
        let now = Some(1_000 * MS);
        let told = |outage, now| lease(&bucket(view(), outage), |lease| heard(lease, now));
        let text = "3 here, 12 left for all Envoys 40ms ago";
        assert_eq!(told(None, now).as_deref(), Some(text));
        let text = format!("{text}, not in effect");
        assert_eq!(told(Some(OutageView::Admit), now), Some(text));
        let text = "3 here, 12 left for all Envoys when the relay last answered";
        assert_eq!(told(None, None).as_deref(), Some(text));
        assert_eq!(
            owed_and_denied(&bucket(view(), None), now),
            [
                "2 passed on credit, not charged yet",
                "for 350ms more, refused locally"
            ]
        );
        let mut view = view();
        let unknown = denied(&view, None).expect("a denial");
        assert_eq!(unknown, "for some time, refused locally");
        view.left = vec![970, 2];
        let told = lease(&bucket(view, None), |_| "just now".to_owned());
        let text = "3 here, 2 left for all Envoys just now";
        assert_eq!(told.as_deref(), Some(text));
    }

    #[test]
    fn each_limit_has_its_own_units_left() {
        let limits = ["burst", "daily"].map(|name| LimitView {
            name: name.to_owned(),
            ..LimitView::default()
        });
        let of = |units: &[u64]| {
            let lease = LeaseView {
                left: units.to_vec(),
                ..view()
            };
            left(&lease, &limits)
        };
        assert_eq!(of(&[12]), "12");
        assert_eq!(of(&[3, 970]), "3 of burst and 970 of daily");
    }

    #[test]
    fn no_debt_and_no_denial_have_no_lines() {
        let over = Some(1_350 * MS);
        assert_eq!(denied(&view(), over), None);
        let lease = LeaseView {
            debt: 0,
            denied_until_ns: None,
            ..view()
        };
        assert_eq!(
            owed_and_denied(&bucket(lease, None), over),
            Vec::<String>::new()
        );
    }

    #[test]
    fn a_fleet_in_words() {
        let mut fleet = FleetStatus {
            envoys: 1,
            ..FleetStatus::default()
        };
        assert_eq!(envoys(&fleet), "1 Envoy");
        assert_eq!((down(&fleet), answered(&fleet, MS)), (None, None));
        (fleet.envoys, fleet.workers_down, fleet.answered_ns) = (4, 1, 960 * MS);
        assert_eq!(envoys(&fleet), "4 Envoys");
        assert_eq!(down(&fleet).as_deref(), Some("1 worker down"));
        let answer = answered(&fleet, 1_000 * MS);
        assert_eq!(answer.as_deref(), Some("40ms ago"));
        fleet.workers_down = 2;
        assert_eq!(down(&fleet).as_deref(), Some("2 workers down"));
    }
}
