//! `fixed_window`: a number of units per window, counted from zero in each window.
//!
//! This is how people state quotas ("a thousand a day"). With `first`, a window begins with the
//! first request that is admitted after the previous window has ended. With `clock`, a window ends
//! at the next multiple of its length on the wall clock, for instance at midnight UTC for a day. A
//! calendar window is the day, week, month or year of a time zone that contains its first request.
//! At the end of a window, the whole capacity is available again at once. This simplicity has a
//! price: in any time of length w, up to `capacity·(⌈w/window⌉ + 1)` is admitted, which is twice
//! the capacity around the end of a window.
//!
//! Source: the counter with an expiry that the documentation of Redis' INCR calls a rate limiter.
//!
//! The end of a running window is an instant on the monotonic clock, so a jump of the wall clock
//! never moves it. Only the next window is longer or shorter, but never longer than `window` or its
//! period of the calendar.
//!
//! An edit keeps the running window with its count. If the edit changes the length of the window,
//! the end of the running window changes with it, because a count must not last longer than the new
//! window.

use alloc::boxed::Box;

use serde::ser::SerializeStruct as _;
use serde::{Serialize, Serializer};

use super::window::{left_after, rate, units};
use crate::bounds::{BadNumbers, check_window, part};
use crate::calendar::{Calendar, Period};
use crate::convert::Carry;
use crate::decision::BucketRequest;
use crate::decision::Decision;
use crate::lease::{Shared, Unfit};
use crate::meter::{Meter, same};
use crate::meter::{Refund, Used};
use crate::time::Rate;
use crate::time::{Clock, Nanos};

/// Time at which a window ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Align {
    /// One window length after the first admitted request of the window.
    #[default]
    First,
    /// The next multiple of the window length on the wall clock, counted from the Unix epoch.
    Clock,
}

impl Align {
    /// Names in rule files.
    pub const NAMES: [&'static str; 2] = ["first", "clock"];
}

/// Numbers of a fixed window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FixedWindow {
    capacity: u64,
    window: Window,
}

/// Length and end of a window.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Window {
    /// This length, with this end.
    Fixed(Nanos, Align),
    /// The window of a calendar. The box keeps algorithms small.
    Calendar(Box<Calendar>),
}

impl Window {
    /// Returns the length of the window that contains a time of the wall clock.
    fn whole(&self, wall: Nanos) -> Nanos {
        match self {
            Self::Fixed(length, _) => *length,
            Self::Calendar(calendar) => calendar.span(wall).length(),
        }
    }

    /// Returns a length that no window exceeds.
    fn longest(&self) -> Nanos {
        match self {
            Self::Fixed(length, _) => *length,
            Self::Calendar(calendar) => calendar.longest(),
        }
    }

    /// Returns the length of a window that begins at a time of the wall clock.
    fn rest(&self, wall: Nanos) -> Nanos {
        match self {
            Self::Fixed(length, Align::First) => *length,
            Self::Fixed(length, Align::Clock) => {
                let past = wall.get().checked_rem(length.get()).unwrap_or(0);
                length.since(Nanos::new(past))
            }
            Self::Calendar(calendar) => calendar.span(wall).end().since(wall),
        }
    }
}

/// The running window: a count that is reset as a whole `left` from now. There is no running window
/// if `left` is zero.
#[derive(Clone, Copy, Debug, Default)]
struct Running {
    count: u64,
    left: Nanos,
}

impl Running {
    fn new(count: u64, left: Nanos) -> Self {
        if count == 0 || left == Nanos::ZERO {
            return Self::default();
        }
        Self { count, left }
    }

    fn write(self, words: &mut [u64], now: Nanos) {
        if let [end, count] = words {
            *count = self.count;
            *end = if self.count == 0 {
                0
            } else {
                now.saturating_add(self.left).get()
            };
        }
    }
}

impl FixedWindow {
    /// Creates a limit of `capacity` cost units per `window`.
    ///
    /// ```
    /// use loudou_limiter::{Limit, Limits, Nanos, algorithm::{Align, FixedWindow}};
    ///
    /// let minute = Nanos::from_secs(60);
    /// let window = FixedWindow::new(3, minute, Align::First).unwrap();
    /// let limits = Limits::new(vec![Limit::new("window", window)]).unwrap();
    /// let mut bucket = limits.start(Nanos::ZERO);
    /// limits.decide(&mut bucket, 3, Nanos::from_secs(10));
    /// let answer = limits.decide(&mut bucket, 1, Nanos::from_secs(30));
    /// assert_eq!(answer.reported().unwrap().retry_after, Some(Nanos::from_secs(40)));
    /// assert!(!limits.decide(&mut bucket, 3, Nanos::from_secs(70)).is_refused());
    /// ```
    pub fn new(capacity: u64, window: Nanos, align: Align) -> Result<Self, BadNumbers> {
        check_window(capacity, window)?;
        let window = Window::Fixed(window, align);
        Ok(Self { capacity, window })
    }

    /// Creates a limit of `capacity` cost units per window of a calendar.
    ///
    /// ```
    /// use loudou_limiter::algorithm::FixedWindow;
    /// use loudou_limiter::calendar::{Calendar, Period, Zone};
    /// use loudou_limiter::{BucketRequest, Limit, Limits, Nanos};
    ///
    /// let months = Calendar::new(Period::Month { day: 15 }, Zone::utc());
    /// let window = FixedWindow::of_calendar(3, months).unwrap();
    /// let limits = Limits::new(vec![Limit::new("monthly", window)]).unwrap();
    /// let mut bucket = limits.start(Nanos::ZERO);
    /// // Noon of 1970-01-14: the window ends at midnight.
    /// let noon = Nanos::from_secs(13 * 86_400 + 12 * 3_600);
    /// let answer = limits.answer(&mut bucket, &BucketRequest::new(3, Nanos::ZERO).at_wall(noon));
    /// assert_eq!(answer.reported().unwrap().reset_after, Nanos::from_secs(12 * 3_600));
    /// ```
    pub fn of_calendar(capacity: u64, calendar: Calendar) -> Result<Self, BadNumbers> {
        let window = Window::Calendar(Box::new(calendar));
        Self { capacity, window }.with(None)
    }

    /// Returns the calendar whose windows it has; `None` for windows of a fixed length.
    pub fn calendar(&self) -> Option<&Calendar> {
        match &self.window {
            Window::Fixed(..) => None,
            Window::Calendar(calendar) => Some(calendar),
        }
    }

    /// Returns a copy of this limit with the given capacity.
    pub(super) fn with(&self, capacity: Option<u64>) -> Result<Self, BadNumbers> {
        let capacity = capacity.unwrap_or(self.capacity);
        check_window(capacity, self.period())?;
        let window = self.window.clone();
        Ok(Self { capacity, window })
    }

    /// Returns the length of a window, or of the longest period of the calendar.
    fn period(&self) -> Nanos {
        match &self.window {
            Window::Fixed(length, _) => *length,
            Window::Calendar(calendar) => calendar.period().longest(),
        }
    }

    /// Returns the length of the window that contains a time of the wall clock.
    pub(super) fn window_at(&self, wall: Nanos) -> Nanos {
        self.window.whole(wall)
    }

    pub(super) const fn shared(&self) -> Result<Shared, Unfit> {
        let capacity = self.capacity;
        match self.window {
            Window::Fixed(_, Align::First) => Err(Unfit::Align),
            Window::Fixed(window, Align::Clock) => Ok(Shared::Window { capacity, window }),
            Window::Calendar(_) => Err(Unfit::Calendar),
        }
    }

    /// Returns one of `envoys` equal parts.
    pub(super) fn divided(&self, envoys: u32) -> Self {
        Self {
            capacity: part(self.capacity, envoys),
            window: self.window.clone(),
        }
    }

    fn read(&self, words: &[u64], now: Nanos) -> Running {
        let [end, count] = words else {
            return Running::default();
        };
        Running::new(
            *count,
            Nanos::new(*end).since(now).min(self.window.longest()),
        )
    }

    /// Returns the rest of the running window, or the length of a window that begins now.
    fn left(&self, running: Running, request: &BucketRequest) -> Nanos {
        if running.count == 0 {
            self.window.rest(request.wall)
        } else {
            running.left
        }
    }

    /// Returns the answer after a decision that leaves `running`.
    fn at(&self, running: Running) -> Decision {
        let remaining = self.capacity.saturating_sub(running.count);
        Decision::admit(self.capacity, remaining, running.left)
    }
}

impl Serialize for FixedWindow {
    /// Writes the fields of a rule file.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("FixedWindow", 5)?;
        fields.serialize_field("capacity", &self.capacity)?;
        match &self.window {
            Window::Fixed(length, align) => {
                fields.serialize_field("window", length)?;
                fields.serialize_field("align", align)?;
            }
            Window::Calendar(calendar) => {
                fields.serialize_field("window", calendar.period().name())?;
                fields.serialize_field("align", &Align::Clock)?;
                fields.serialize_field("zone", calendar.zone())?;
                if calendar.period() != Period::Day {
                    fields.serialize_field("starts", &calendar.period())?;
                }
            }
        }
        fields.end()
    }
}

impl Meter for FixedWindow {
    fn capacity(&self) -> u64 {
        self.capacity
    }

    fn rate(&self) -> Option<Rate> {
        rate(self.capacity, self.period())
    }

    fn drain_time(&self) -> Nanos {
        self.window.longest()
    }

    fn reads_wall(&self) -> bool {
        !matches!(self.window, Window::Fixed(_, Align::First))
    }

    /// The words are the end and the count of the window.
    fn words(&self) -> usize {
        2
    }

    fn decide(&self, words: &mut [u64], request: &BucketRequest) -> Decision {
        let running = self.read(words, request.now);
        let count = running.count.saturating_add(request.cost);
        if request.cost == 0 {
            return self.at(running);
        }
        if count > self.capacity {
            let fits = request.cost <= self.capacity;
            return self.at(running).refused(fits.then_some(running.left));
        }
        let running = Running::new(count, self.left(running, request));
        running.write(words, request.now);
        self.at(running)
    }

    /// Gives units back only to the window from which they were taken.
    fn give_back(&self, words: &mut [u64], refund: &Refund<'_>) -> bool {
        let BucketRequest { cost, now: at, .. } = refund.request;
        let end = at.saturating_add(self.left(self.read(refund.before, at), &refund.request));
        let Running { count, left } = self.read(words, refund.last);
        if count == 0 || refund.last.saturating_add(left) != end {
            return false;
        }
        Running::new(count.saturating_sub(cost), left).write(words, refund.last);
        true
    }

    fn counted(&self, words: &[u64], now: Nanos) -> Option<u64> {
        Some(self.read(words, now).count)
    }

    fn recount(&self, words: &mut [u64], count: u64, now: Nanos) {
        let left = self.read(words, now).left;
        Running::new(count, left).write(words, now);
    }

    /// Writes the level into a window that begins now.
    fn resume(&self, words: &mut [u64], used: Used, clock: Clock) {
        Running::new(units(used), self.window.rest(clock.wall)).write(words, clock.now);
    }

    /// The window continues for at most the new length. A window on the wall clock ends there with
    /// the window of the new length or calendar.
    fn adopt(
        &self,
        words: &mut [u64],
        from: &dyn Meter,
        old: &[u64],
        _carry: Carry,
        clock: Clock,
    ) -> bool {
        let Some(before) = same::<Self>(from) else {
            return false;
        };
        let Running { count, left } = before.read(old, clock.now);
        let left = match self.window {
            _ if before.window == self.window => left,
            Window::Fixed(length, Align::First) => {
                left_after(left, before.window.whole(clock.wall), length)
            }
            _ => self.window.rest(clock.wall),
        };
        Running::new(count, left).write(words, clock.now);
        true
    }
}
