//! `fixed_window`: admits a number of units per window. Each window starts counting at zero.
//!
//! This is how people express quotas ("a thousand a day"). With `align: first`, a window begins
//! with the first request that is admitted after the previous window has ended. With `align:
//! clock`, a window ends at the next multiple of its length on the wall clock, for instance at
//! midnight UTC if its length is a day. A calendar window is the day, week, month or year, in a
//! given time zone, that contains the window's first request. When a window ends, the whole
//! capacity becomes available again at once. This simplicity has a price: in any interval of length
//! w, up to `capacity·(⌈w/window⌉ + 1)` units are admitted, that is, up to twice the capacity
//! around the end of a window.
//!
//! Source: the rate limiter pattern in the documentation of the Redis command INCR: a counter with
//! an expiry.
//!
//! The end of the current window is stored as an instant on the monotonic clock, so a wall clock
//! jump never moves it. A jump only makes the next window longer or shorter, but never longer than
//! `window` or the calendar period.
//!
//! Editing the rule keeps the current window and its count. If the edit changes the window length,
//! the current window also ends earlier or later, because a count must not outlast the new window
//! length.

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
    /// Names of the variants, as written in rule files.
    pub const NAMES: [&'static str; 2] = ["first", "clock"];
}

/// Parameters of a fixed-window limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FixedWindow {
    capacity: u64,
    window: Window,
}

/// How a window's length and end are determined.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Window {
    /// Windows of a fixed length and a given alignment.
    Fixed(Nanos, Align),
    /// Calendar windows. The calendar is boxed to keep [`Algorithm`](super::Algorithm) small.
    Calendar(Box<Calendar>),
}

impl Window {
    /// Returns the length of the window that contains the wall clock time `wall`.
    fn whole(&self, wall: Nanos) -> Nanos {
        match self {
            Self::Fixed(length, _) => *length,
            Self::Calendar(calendar) => calendar.span(wall).length(),
        }
    }

    /// Returns an upper bound on the window length.
    fn longest(&self) -> Nanos {
        match self {
            Self::Fixed(length, _) => *length,
            Self::Calendar(calendar) => calendar.longest(),
        }
    }

    /// Returns the time until the end of a window that begins with a request at the wall clock time
    /// `wall`.
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

/// The current window: its count, which is discarded once the time `left` has passed. If `left` is
/// zero, there is no current window.
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

    /// Creates a limit of `capacity` cost units per calendar window.
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

    /// Returns the calendar of a limit with calendar windows, or `None` if the windows have a fixed
    /// length.
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

    /// Returns the window length or, for a calendar, the length of its longest period.
    fn period(&self) -> Nanos {
        match &self.window {
            Window::Fixed(length, _) => *length,
            Window::Calendar(calendar) => calendar.period().longest(),
        }
    }

    /// Returns the length of the window that contains the wall clock time `wall`.
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

    /// Divides the capacity into `envoys` equal shares, and returns this limit with one share.
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

    /// Returns the time remaining in the current window, or in a window that begins with this
    /// request.
    fn left(&self, running: Running, request: &BucketRequest) -> Nanos {
        if running.count == 0 {
            self.window.rest(request.wall)
        } else {
            running.left
        }
    }

    /// Returns the decision for a request that leaves `running` as the current window.
    fn at(&self, running: Running) -> Decision {
        let remaining = self.capacity.saturating_sub(running.count);
        Decision::admit(self.capacity, remaining, running.left)
    }
}

impl Serialize for FixedWindow {
    /// Serialises the parameters as the fields of a rule file.
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

    /// The words contain the current window's end and count.
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

    /// Writes the level as the count of a window that begins now.
    fn resume(&self, words: &mut [u64], used: Used, clock: Clock) {
        Running::new(units(used), self.window.rest(clock.wall)).write(words, clock.now);
    }

    /// The current window continues, but for at most the new length. If the new windows are aligned
    /// to the wall clock or a calendar, the current window ends at the next boundary of the new
    /// windows.
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
