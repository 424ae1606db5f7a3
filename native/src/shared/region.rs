//! Memory that can outlive the process: a mapped file, or an anonymous file that ends with the
//! process.
//!
//! The address range is reserved once, at its maximum size. The file grows as needed, and its disk blocks are allocated
//! before they are accessed: if the disk were full, a write to an unallocated block would kill Envoy.
#![expect(
    unsafe_code,
    reason = "this file maps memory and gives access to it by offset"
)]

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};

use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::process::{Resource, getrlimit};

/// Sizes of the address range to try, in bytes. If the system refuses a size, the next one is
/// tried.
const RESERVED: [u64; 4] = [1 << 36, 1 << 34, 1 << 32, 1 << 30];
/// Offset of the first lock byte, far beyond the contents of any file.
const LOCKS: i64 = 1 << 40;

/// Mapped memory.
#[derive(Debug)]
pub(super) struct Region {
    base: NonNull<u8>,
    /// Size of the address range, in bytes.
    mapped: usize,
    /// Maximum size of the file, in bytes.
    reserved: u64,
    /// Number of bytes that may currently be accessed.
    length: AtomicU64,
    file: File,
    is_kept: bool,
}

// SAFETY: the memory stays mapped, and is accessed only through atomics or by functions whose callers hold the lock of
// the bytes.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Creates memory that is freed when the process ends.
    pub(super) fn anonymous() -> io::Result<Self> {
        // Some systems allow only memory files that can never be executed, and old kernels do not support this flag.
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::NOEXEC_SEAL;
        let memory = memfd_create("loudou", flags);
        let memory: OwnedFd = memory.or_else(|_| memfd_create("loudou", MemfdFlags::CLOEXEC))?;
        Self::map(File::from(memory), false)
    }

    /// Opens a file, or creates an empty one that only its owner can read and write. No byte is
    /// accessible before a call of [`Self::grow`] or [`Self::see`].
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).mode(0o600);
        let file = options.open(path)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::other("not a regular file"));
        }
        Self::map(file, true)
    }

    fn map(file: File, is_kept: bool) -> io::Result<Self> {
        let mut refused = io::Error::from(io::ErrorKind::OutOfMemory);
        for reserved in RESERVED {
            let Ok(size) = usize::try_from(reserved) else {
                continue;
            };
            let access = ProtFlags::READ | ProtFlags::WRITE;
            let flags = MapFlags::SHARED | MapFlags::NORESERVE;
            // SAFETY: the system chooses a free range, so no other memory is replaced.
            match unsafe { mmap(null_mut(), size, access, flags, &file, 0) } {
                Ok(base) => {
                    let Some(base) = NonNull::new(base.cast()) else {
                        continue;
                    };
                    return Ok(Self {
                        base,
                        mapped: size,
                        reserved,
                        length: AtomicU64::new(0),
                        file,
                        is_kept,
                    });
                }
                Err(error) => refused = error.into(),
            }
        }
        Err(refused)
    }

    /// Prevents the file from growing, as a full disk would.
    #[cfg(test)]
    pub(super) fn fill_disk(&mut self) {
        self.reserved = self.length.load(Ordering::Acquire);
    }

    /// Returns the file size in bytes.
    pub(super) fn size(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    /// Makes the first `length` bytes accessible; the file must be at least this long.
    pub(super) fn see(&self, length: u64) {
        self.length
            .fetch_max(length.min(self.reserved), Ordering::AcqRel);
    }

    /// Grows the file to at least `length` bytes. New bytes are zero.
    pub(super) fn grow(&self, length: u64) -> io::Result<()> {
        // The system would kill a process that grows a file beyond its file size limit.
        let limit = getrlimit(Resource::Fsize).current.unwrap_or(u64::MAX);
        if length > self.reserved || (self.is_kept && length > limit) {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let size = self.size()?;
        if size < length {
            if self.is_kept {
                self.allocate(size, length)?;
            } else {
                self.file.set_len(length)?;
            }
        }
        self.see(length);
        Ok(())
    }

    fn allocate(&self, from: u64, to: u64) -> io::Result<()> {
        let more = to.saturating_sub(from);
        match fallocate(&self.file, FallocateFlags::empty(), from, more) {
            Ok(()) => return Ok(()),
            Err(rustix::io::Errno::OPNOTSUPP) => {}
            Err(error) => return Err(error.into()),
        }
        // The file system does not support `fallocate`, so allocate the blocks by writing zeros.
        let zeros = [0; 1 << 12];
        let mut at = from;
        while at < to {
            let size = usize::try_from(to.saturating_sub(at)).unwrap_or(zeros.len());
            let part = zeros.get(..size.min(zeros.len())).unwrap_or_default();
            self.file.write_all_at(part, at)?;
            at = at.saturating_add(u64::try_from(part.len()).unwrap_or(1));
        }
        (&self.file).flush()
    }

    /// Allocates missing disk blocks: a copy of a file may contain holes.
    pub(super) fn fill(&self) -> io::Result<()> {
        let size = self.size()?;
        match fallocate(&self.file, FallocateFlags::KEEP_SIZE, 0, size) {
            Err(error) if error != rustix::io::Errno::OPNOTSUPP => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Truncates the file, which no other process may be using, and writes its first bytes.
    pub(super) fn clear(&self, first: &[u8]) -> io::Result<()> {
        self.length.store(0, Ordering::Release);
        self.file.set_len(0)?;
        self.file.write_all_at(first, 0)
    }

    /// Locks a number for this process until the process ends. Returns false if another process has
    /// locked it.
    pub(super) fn claim(&self, number: u32) -> bool {
        self.lock(libc::F_OFD_SETLK, libc::F_WRLCK, number)
            .is_some()
    }

    /// Unlocks a number.
    pub(super) fn release(&self, number: u32) {
        let _released = self.lock(libc::F_OFD_SETLK, libc::F_UNLCK, number);
    }

    /// Returns true if another process has locked the number.
    pub(super) fn is_claimed(&self, number: u32) -> bool {
        let found = self.lock(libc::F_OFD_GETLK, libc::F_WRLCK, number);
        found.is_none_or(|found| found.l_type != kind(libc::F_UNLCK))
    }

    /// Calls `fcntl` for an open file description lock. The system releases such a lock when the process ends, and the
    /// lock also works between containers.
    fn lock(&self, command: libc::c_int, of: libc::c_int, number: u32) -> Option<libc::flock> {
        let whence = kind(libc::SEEK_SET);
        let mut lock = libc::flock {
            l_type: kind(of),
            l_whence: whence,
            l_start: LOCKS.saturating_add(number.into()),
            l_len: 1,
            l_pid: 0,
        };
        // SAFETY: the descriptor is open, and the system writes only to `lock`.
        let result = unsafe { libc::fcntl(self.file.as_raw_fd(), command, &raw mut lock) };
        (result == 0).then_some(lock)
    }

    /// Returns the address of `size` bytes at offset `at`.
    fn place(&self, at: u64, size: u64) -> Option<NonNull<u8>> {
        let end = at.checked_add(size)?;
        if end > self.length.load(Ordering::Acquire) {
            // Another process may have grown the file.
            let is_there = self.is_kept && self.size().ok()? >= end && end <= self.reserved;
            if !is_there {
                return None;
            }
            self.see(end);
        }
        // SAFETY: the offset is within the mapped range.
        Some(unsafe { self.base.add(usize::try_from(at).ok()?) })
    }

    /// Returns the 32-bit number at offset `at`.
    pub(super) fn u32(&self, at: u64) -> Option<&AtomicU32> {
        let place = self.place(at, 4).filter(|_| at.is_multiple_of(4))?;
        // SAFETY: the address is mapped and aligned, and these bytes are accessed only as an
        // atomic.
        Some(unsafe { place.cast().as_ref() })
    }

    /// Returns the 64-bit number at offset `at`.
    pub(super) fn u64(&self, at: u64) -> Option<&AtomicU64> {
        let place = self.place(at, 8).filter(|_| at.is_multiple_of(8))?;
        // SAFETY: as above.
        Some(unsafe { place.cast().as_ref() })
    }

    /// Returns the signed 64-bit number at offset `at`.
    pub(super) fn i64(&self, at: u64) -> Option<&AtomicI64> {
        let place = self.place(at, 8).filter(|_| at.is_multiple_of(8))?;
        // SAFETY: as above.
        Some(unsafe { place.cast().as_ref() })
    }

    /// Returns bytes.
    ///
    /// # Safety
    ///
    /// No thread may write these bytes during the lifetime of the slice.
    pub(super) unsafe fn bytes(&self, at: u64, size: usize) -> Option<&[u8]> {
        let place = self.place(at, u64::try_from(size).ok()?)?;
        // SAFETY: the bytes are mapped, and the caller prevents concurrent writes.
        Some(unsafe { std::slice::from_raw_parts(place.as_ptr(), size) })
    }

    /// Writes bytes.
    ///
    /// # Safety
    ///
    /// No other thread may read or write these bytes during the call.
    pub(super) unsafe fn write(&self, at: u64, bytes: &[u8]) -> Option<()> {
        let place = self.place(at, u64::try_from(bytes.len()).ok()?)?;
        // SAFETY: the bytes are mapped, and the caller prevents concurrent access. `bytes` does not overlap them,
        // because no slice of the region may exist during a write.
        unsafe { place.as_ptr().copy_from(bytes.as_ptr(), bytes.len()) };
        Some(())
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: this region has mapped the range, and no reference into the range outlives the
        // region.
        let _unmapped = unsafe { munmap(self.base.as_ptr().cast(), self.mapped) };
    }
}

/// Converts a constant of the C library to the type of the fields in `flock`.
fn kind(constant: libc::c_int) -> libc::c_short {
    libc::c_short::try_from(constant).unwrap_or(0)
}
