//! Surplus words: state of a limit that does not fit in the limit's regular words, because an edit
//! reduced the capacity below the used amount.

use alloc::vec::Vec;

use super::{Bucket, Each, Limits, MAX_BUCKET_WORDS};

/// [`MAX_BUCKET_WORDS`] as a `u64`.
const MAX_SURPLUS: u64 = 1024;

impl Limits {
    /// Like [`Limits::each`], but gives each limit the maximum number of words that it can ever
    /// need.
    pub(crate) fn each_with_surplus(&self, bucket: &mut Bucket, f: &mut Each<'_>) {
        self.each_of_long(bucket, true, f);
    }

    /// Like [`Limits::each`], but for a bucket that may contain surplus words.
    #[inline(never)]
    pub(super) fn each_of_long(&self, bucket: &mut Bucket, with_room: bool, f: &mut Each<'_>) {
        let own = self.words();
        let mut surplus: Vec<u64> = bucket.words.iter().skip(own).copied().collect();
        surplus.reverse();
        bucket.words.resize(own, 0);
        let mut behind: Vec<u64> = Vec::new();
        let mut room = MAX_BUCKET_WORDS.saturating_sub(own);
        let mut rest = self.own_words(&mut bucket.words);
        for (index, limit) in self.list.iter().enumerate() {
            let meter = limit.algorithm.meter();
            let Some((words, tail)) = rest.split_at_mut_checked(meter.words()) else {
                return;
            };
            rest = tail;
            let most = meter.max_surplus();
            if most == 0 {
                f(index, meter, words);
                continue;
            }
            let count = surplus.pop().unwrap_or(0);
            let mut long = words.to_vec();
            for _ in 0..count.min(MAX_SURPLUS) {
                long.extend(surplus.pop());
            }
            room = room.saturating_sub(1);
            if with_room {
                long.resize(words.len().saturating_add(most.min(room)), 0);
            }
            f(index, meter, &mut long);
            let zeros = long.iter().rev().take_while(|word| **word == 0).count();
            let (head, over) = long.split_at(words.len().min(long.len()));
            words.copy_from_slice(head);
            let count = over.len().saturating_sub(zeros);
            let over = over.get(..count).unwrap_or(&[]);
            behind.push(u64::try_from(count).unwrap_or(0));
            behind.extend_from_slice(over);
            room = room.saturating_sub(count);
        }
        // The words after the surplus words are the notes and the promise count.
        surplus.reverse();
        if !surplus.is_empty() || behind.iter().any(|word| *word > 0) {
            bucket.words.extend(behind);
            bucket.words.extend(surplus);
        }
    }
}
