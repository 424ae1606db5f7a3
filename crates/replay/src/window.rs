//! The time window of a log that is replayed, selected with `--from` and `--to`.

use loudou_limiter::Nanos;

use super::instant;

/// Start or end of the replayed window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// An absolute time.
    At(Nanos),
    /// A time span after the first request.
    AfterFirst(Nanos),
    /// A time span before the last request.
    BeforeLast(Nanos),
}

impl Bound {
    /// Parses a timestamp as in logs, or a time span after the first request (`+10m`) or before the
    /// last request (`-10m`).
    pub fn parse(text: &str) -> Result<Self, String> {
        let relative = |span: &str, bound: fn(Nanos) -> Self| {
            Nanos::parse(span).map(bound).ok_or_else(|| {
                format!("expected a span like 90s, 10m, 2h or 1d after the sign, not `{span}`")
            })
        };
        if let Some(span) = text.strip_prefix('+') {
            return relative(span, Self::AfterFirst);
        }
        if let Some(span) = text.strip_prefix('-') {
            return relative(span, Self::BeforeLast);
        }
        let bytes = text.trim_matches(['[', ']']).as_bytes();
        let time = instant::rfc3339(bytes).or_else(|| instant::common_log(bytes));
        let time = time.or_else(|| instant::epoch(bytes));
        time.map(Self::At).ok_or_else(|| {
            if Nanos::parse(text).is_some() {
                return format!(
                    "write +{text} for {text} after the first request, -{text} for {text} before the last"
                );
            }
            "expected a time like 2016-04-15T20:17:00Z or 10/Oct/2000:13:55:36 -0700, or a span like \
             +10m (after the first request) or -10m (before the last)"
                .to_owned()
        })
    }

    /// Returns the absolute time of the bound, given the times of the first and the last request.
    fn resolve(self, first: Nanos, last: Nanos) -> Nanos {
        match self {
            Self::At(at) => at,
            Self::AfterFirst(span) => first.saturating_add(span),
            Self::BeforeLast(span) => Nanos::new(last.get().saturating_sub(span.get())),
        }
    }

    const fn known(self) -> Option<Nanos> {
        match self {
            Self::At(at) => Some(at),
            Self::AfterFirst(_) | Self::BeforeLast(_) => None,
        }
    }
}

/// The replayed window, from `from` (inclusive) to `to` (exclusive).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// First instant of the window.
    pub from: Option<Bound>,
    /// First instant after the window.
    pub to: Option<Bound>,
}

/// A window whose bounds have been converted to absolute times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) from: Nanos,
    pub(crate) to: Option<Nanos>,
}

impl Part {
    pub(crate) fn has(&self, at: Nanos) -> bool {
        at >= self.from && self.is_before_end(at)
    }

    pub(crate) fn is_before_end(&self, at: Nanos) -> bool {
        self.to.is_none_or(|to| at < to)
    }
}

impl Window {
    /// Returns true if the window cannot contain any request, because its end is not after its
    /// start.
    pub fn is_empty(&self) -> bool {
        match (self.from, self.to) {
            (Some(Bound::At(from)), Some(Bound::At(to)))
            | (Some(Bound::AfterFirst(from)), Some(Bound::AfterFirst(to)))
            | (Some(Bound::BeforeLast(to)), Some(Bound::BeforeLast(from))) => from >= to,
            _ => false,
        }
    }

    /// Returns a window with the bounds that are known before all lines have been read.
    pub(crate) fn known(&self) -> Part {
        Part {
            from: self.from.and_then(Bound::known).unwrap_or_default(),
            to: self.to.and_then(Bound::known),
        }
    }

    /// Returns the window with absolute bounds, given the times of the first and the last request.
    pub(crate) fn resolve(&self, first: Nanos, last: Nanos) -> Part {
        let resolve = |bound: Bound| bound.resolve(first, last);
        Part {
            from: self.from.map(resolve).unwrap_or_default(),
            to: self.to.map(resolve),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds() {
        let at = |seconds| Ok(Bound::At(Nanos::from_secs(seconds)));
        assert_eq!(Bound::parse("2016-04-15T20:17:00Z"), at(1_460_751_420));
        assert_eq!(
            Bound::parse("[10/Oct/2000:13:55:36 -0700]"),
            at(971_211_336)
        );
        assert_eq!(Bound::parse("1460751420"), at(1_460_751_420));
        let minutes = |minutes: u64| Nanos::from_secs(minutes * 60);
        assert_eq!(Bound::parse("+10m"), Ok(Bound::AfterFirst(minutes(10))));
        assert_eq!(Bound::parse("-2h"), Ok(Bound::BeforeLast(minutes(120))));
        for (wrong, expected) in [
            ("10m", "+10m"),
            ("noon", "2016-04-15T20:17:00Z"),
            ("+noon", "90s"),
            ("", "2016"),
            ("9999-12-31T23:59:59Z", "2016"),
        ] {
            let error = Bound::parse(wrong).expect_err(wrong);
            assert!(error.contains(expected), "{wrong}: {error}");
        }
    }

    #[test]
    fn windows_that_are_empty_whatever_the_log() {
        let bound = |text: &str| Bound::parse(text).expect(text);
        for (from, to, is_empty) in [
            ("2016-04-15T20:17:00Z", "2016-04-15T20:17:01Z", false),
            ("2016-04-15T20:17:01Z", "2016-04-15T20:17:00Z", true),
            ("+10m", "+10m", true),
            ("+10m", "+11m", false),
            ("-10m", "-11m", true),
            ("-11m", "-10m", false),
            ("-1m", "+1m", false),
        ] {
            let window = Window {
                from: Some(bound(from)),
                to: Some(bound(to)),
            };
            assert_eq!(window.is_empty(), is_empty, "{from} {to}");
        }
        assert!(!Window::default().is_empty());
    }

    #[test]
    fn windows_are_half_open() {
        let window = Window {
            from: Some(Bound::AfterFirst(Nanos::new(5))),
            to: Some(Bound::BeforeLast(Nanos::new(5))),
        };
        let known = window.known();
        assert!(known.has(Nanos::ZERO) && known.has(Nanos::MAX));
        let part = window.resolve(Nanos::new(100), Nanos::new(200));
        let inside = [104, 105, 194, 195].map(|at| part.has(Nanos::new(at)));
        assert_eq!(inside, [false, true, true, false]);
        let all = Window::default().resolve(Nanos::new(1), Nanos::new(2));
        assert!(all.has(Nanos::new(2)));
    }
}
