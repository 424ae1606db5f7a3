//! A hash table keyed by context ID. No hash function is needed, because Envoy assigns consecutive
//! IDs, so their low bits are evenly distributed.

/// A hash table with open addressing. The table grows with the number of live contexts, which Envoy
/// bounds.
#[derive(Debug)]
pub struct ByContext<T> {
    /// The number of slots is zero or a power of two, and at least a quarter of them are free. A
    /// value is stored in its home slot or in a later one, with no free slot in between.
    slots: Vec<Option<(u32, T)>>,
    live: usize,
}

impl<T> Default for ByContext<T> {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            live: 0,
        }
    }
}

impl<T> ByContext<T> {
    /// Returns a context's value.
    pub fn get_mut(&mut self, context: u32) -> Option<&mut T> {
        let at = self.find(context)?;
        let (_, value) = self.slots.get_mut(at)?.as_mut()?;
        Some(value)
    }

    /// Inserts a value, replacing the context's previous value, if any.
    pub fn insert(&mut self, context: u32, value: T) {
        if let Some(place) = self.get_mut(context) {
            *place = value;
            return;
        }
        if self.live >= self.slots.len() / 4 * 3 {
            self.grow();
        }
        self.place(context, value);
        self.live = self.live.saturating_add(1);
    }

    /// Removes and returns a context's value.
    pub fn remove(&mut self, context: u32) -> Option<T> {
        let mut hole = self.find(context)?;
        let (_, removed) = self.slots.get_mut(hole)?.take()?;
        self.live = self.live.saturating_sub(1);
        // A lookup stops at the first free slot, so the hole must be filled. A later value is moved
        // into the hole unless its home slot is after the hole.
        let mut at = self.after(hole);
        while let Some(Some((moved, _))) = self.slots.get(at) {
            let own = self.own(*moved);
            if self.distance(own, at) >= self.distance(hole, at) {
                self.slots.swap(hole, at);
                hole = at;
            }
            at = self.after(at);
        }
        Some(removed)
    }

    fn find(&self, context: u32) -> Option<usize> {
        let mut at = self.own(context);
        loop {
            match self.slots.get(at)? {
                Some((found, _)) if *found == context => return Some(at),
                Some(_) => at = self.after(at),
                None => return None,
            }
        }
    }

    /// Inserts a new value into a free slot.
    fn place(&mut self, context: u32, value: T) {
        let mut at = self.own(context);
        while let Some(Some(_)) = self.slots.get(at) {
            at = self.after(at);
        }
        if let Some(slot) = self.slots.get_mut(at) {
            *slot = Some((context, value));
        }
    }

    fn grow(&mut self) {
        let more = self.slots.len().saturating_mul(2).max(8);
        let mut slots = Vec::new();
        slots.resize_with(more, || None);
        let old = std::mem::replace(&mut self.slots, slots);
        for (context, value) in old.into_iter().flatten() {
            self.place(context, value);
        }
    }

    /// Returns a context's home slot, where lookups start.
    fn own(&self, context: u32) -> usize {
        usize::try_from(context).unwrap_or_default() & self.mask()
    }

    fn after(&self, at: usize) -> usize {
        at.wrapping_add(1) & self.mask()
    }

    /// Returns the number of slots from `from` to `to`, wrapping around at the end of the table.
    fn distance(&self, from: usize, to: usize) -> usize {
        to.wrapping_sub(from) & self.mask()
    }

    fn mask(&self) -> usize {
        self.slots.len().saturating_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Returns a reproducible sequence of pseudo-random numbers below `below`.
    fn numbers(seed: u64, below: u64) -> impl Iterator<Item = u32> {
        let mut state = seed;
        std::iter::repeat_with(move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            u32::try_from((state >> 8) % below).expect("it is small")
        })
    }

    #[test]
    fn an_empty_table_has_nothing() {
        let mut table = ByContext::<u8>::default();
        assert_eq!(table.get_mut(0), None);
        assert_eq!(table.remove(7), None);
    }

    #[test]
    fn a_context_has_one_value() {
        let mut table = ByContext::default();
        table.insert(3, 'a');
        table.insert(3, 'b');
        assert_eq!(table.remove(3), Some('b'));
        assert_eq!(table.remove(3), None);
    }

    #[test]
    fn contexts_of_one_slot_are_told_apart() {
        let mut table = ByContext::default();
        let contexts = [8, 16, 24, 7, 15, u32::MAX];
        for context in contexts {
            table.insert(context, context);
        }
        assert_eq!(table.slots.len(), 8, "all of them are in one small table");
        assert_eq!(table.remove(8), Some(8));
        assert_eq!(table.remove(15), Some(15));
        for context in [16, 24, 7, u32::MAX] {
            assert_eq!(table.get_mut(context), Some(&mut { context }));
        }
        assert_eq!(table.get_mut(8), None);
    }

    #[test]
    fn it_does_not_grow_by_what_has_left() {
        let mut table = ByContext::default();
        for context in 0..100_000 {
            table.insert(context, ());
            assert_eq!(
                table.remove(context.wrapping_sub(5)).is_some(),
                context >= 5
            );
        }
        assert_eq!((table.live, table.slots.len()), (5, 8));
    }

    #[test]
    fn it_does_what_a_map_does() {
        for (seed, below) in [(1, 12), (2, 40), (3, 300), (4, 5_000)] {
            let (mut table, mut map) = (ByContext::default(), BTreeMap::new());
            let mut contexts = numbers(seed, below);
            for (value, action) in (0_u32..20_000).zip(numbers(seed + 100, 3)) {
                // Multiples of a large power of two all share the same home slot.
                let context = contexts.next().expect("it never ends") << (8 * (seed % 3));
                if action == 0 {
                    assert_eq!(table.remove(context), map.remove(&context));
                } else if action == 1 || map.len() < 8 {
                    table.insert(context, value);
                    map.insert(context, value);
                }
                assert_eq!(table.get_mut(context), map.get_mut(&context));
                assert_eq!(table.live, map.len());
            }
            for (context, value) in &mut map {
                assert_eq!(table.get_mut(*context), Some(value));
            }
        }
    }
}
