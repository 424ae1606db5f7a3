//! The numbers of limits before and after a change: `burst: 40 → 400 at once, 10/s → 100/s`.

use loudou_limiter::Limits;

/// A line for each limit after the change.
pub(super) fn compared(before: &Limits, after: &Limits) -> Vec<String> {
    let lines = after.iter().map(|after| {
        let new = after.algorithm();
        let mut earlier = before.iter();
        let Some(old) = earlier.find(|before| before.name() == after.name()) else {
            let (name, capacity) = (after.name(), new.capacity());
            return format!("{name}: {capacity} at once, comes into force as well");
        };
        let old = old.algorithm();
        let capacity = format!("{} at once", step(&old.capacity(), &new.capacity()));
        let rate = old.rate().zip(new.rate());
        let rate = rate.map(|(old, new)| format!(", {}", step(&old, &new)));
        format!("{}: {capacity}{}", after.name(), rate.unwrap_or_default())
    });
    lines.collect()
}

fn step<T: PartialEq + ToString>(old: &T, new: &T) -> String {
    if old == new {
        return format!("{} as before", new.to_string());
    }
    format!("{} → {}", old.to_string(), new.to_string())
}
