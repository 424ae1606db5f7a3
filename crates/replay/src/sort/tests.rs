use std::cell::Cell;
use std::io::Cursor;
use std::rc::Rc;

use proptest::prelude::*;

use super::*;

/// Records, by their instant and their number, after they were sorted in so much memory; and the bytes that
/// were written.
fn sorted(records: &[(u64, Vec<u8>)], memory: usize) -> (Vec<(u64, Vec<u8>)>, u64) {
    let mut sorter = Sorter::new(memory, &|| Ok(Box::new(Cursor::new(Vec::new()))));
    for (at, bytes) in records {
        let write = |out: &mut Vec<u8>| out.extend_from_slice(bytes);
        sorter.push(*at, write).expect("pushes");
    }
    let spilled = sorter.spilled();
    let mut all = sorter.finish().expect("sorts");
    let mut out = Vec::new();
    while let Some(at) = all.advance().expect("reads") {
        out.push((at, all.record().to_vec()));
    }
    assert_eq!(all.advance().expect("reads"), None);
    (out, spilled)
}

proptest! {
    #[test]
    fn like_a_stable_sort_in_memory(
        records in prop::collection::vec((0_u64..50, prop::collection::vec(any::<u8>(), 0..40)), 0..300),
        memory in 1_usize..4_000,
    ) {
        let mut expected = records.clone();
        expected.sort_by_key(|(at, _)| *at);
        let (found, _) = sorted(&records, memory);
        prop_assert_eq!(&found, &expected);
        let (found, spilled) = sorted(&records, usize::MAX);
        prop_assert_eq!(found, expected);
        prop_assert_eq!(spilled, 0);
    }
}

/// More runs than are merged at once, twice.
#[test]
fn many_runs_are_merged_in_levels() {
    let count = u64::try_from(spill::RUNS * spill::RUNS + 3 * spill::RUNS + 7).expect("fits");
    let records: Vec<(u64, Vec<u8>)> = (0..count)
        .map(|n| (n * 7_919 % 1_000, n.to_le_bytes().to_vec()))
        .collect();
    let mut expected = records.clone();
    expected.sort_by_key(|(at, _)| *at);
    let (found, spilled) = sorted(&records, 1);
    assert!(found == expected);
    assert!(spilled > 2 * count * 8);
}

#[test]
fn long_records_among_short_ones() {
    let long = vec![7; 3 << 20];
    let records = [(3, long.clone()), (1, vec![]), (2, long), (0, vec![1])];
    let (found, _) = sorted(&records, 1 << 20);
    let order: Vec<(u64, usize)> = found.iter().map(|(at, bytes)| (*at, bytes.len())).collect();
    assert_eq!(order, [(0, 1), (1, 0), (2, 3 << 20), (3, 3 << 20)]);
}

/// A file on a disk with room for this many bytes.
struct Full(Cursor<Vec<u8>>, usize);

impl Read for Full {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.read(into)
    }
}

impl Write for Full {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.get_ref().len() + bytes.len() > self.1 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for Full {
    fn seek(&mut self, to: io::SeekFrom) -> io::Result<u64> {
        self.0.seek(to)
    }
}

#[test]
fn a_full_disk_is_an_error() {
    let opened = Rc::new(Cell::new(0));
    let count = Rc::clone(&opened);
    let full = move || -> io::Result<Box<dyn Scratch>> {
        count.set(count.get() + 1);
        Ok(Box::new(Full(Cursor::default(), 100)))
    };
    let mut sorter = Sorter::new(1, &full);
    let mut pushed = Vec::new();
    for at in 0..20 {
        pushed.push(sorter.push(at, |out| out.extend_from_slice(b"12345678")));
    }
    assert_eq!(pushed.iter().filter(|pushed| pushed.is_ok()).count(), 5);
    let error = pushed.pop().and_then(Result::err).expect("an error");
    assert_eq!(
        (error.kind(), opened.get()),
        (io::ErrorKind::StorageFull, 1)
    );
}
