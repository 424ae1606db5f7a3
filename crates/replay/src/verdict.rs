//! Reads the filter's verdict on a request from a log line: either from Envoy's response code
//! details or from the decisions that the filter provides for access logs.
//!
//! ```text
//! %RESPONSE_CODE_DETAILS%              loudou_over_limit{<rule>.<limit>}
//! %FILTER_STATE(wasm.loudou:PLAIN)%    <rule>;<limit>;<verdict>;<wait>;<key>[, …]
//! ```

/// Prefix of the response code details that the filter sets.
const OURS: &[u8] = b"loudou_";
/// Response code details of a response from the upstream service.
const VIA_UPSTREAM: &[u8] = b"via_upstream";
/// Separator between decisions.
const AND: &[u8] = b", ";
/// Number of digits in a key's fingerprint.
const KEY_DIGITS: usize = 16;

/// What a column of the filter shows about a request. If several columns disagree, the greatest
/// value applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LogVerdict {
    /// The column does not mention the filter. Because the filter marks every request that it
    /// refuses, it did not refuse this request.
    Unknown,
    /// The filter admitted the request.
    Passed,
    /// The filter refused the request.
    Refused,
}

impl LogVerdict {
    /// Returns the verdict in the response code details.
    pub(crate) fn of_cause(cause: &[u8]) -> Self {
        // Responses of the admin API are not refusals. Their details contain no `{`.
        if cause.starts_with(OURS) && cause.contains(&b'{') {
            Self::Refused
        } else if cause == VIA_UPSTREAM {
            Self::Passed
        } else {
            Self::Unknown
        }
    }

    /// Returns the combined verdict of a list of decisions.
    pub(crate) fn of_decisions(decisions: &[u8]) -> Self {
        decisions_at(decisions).map_or(Self::Unknown, |(verdict, _)| verdict)
    }

    /// Encodes the verdict as a number for [`Self::from_number`].
    pub(crate) const fn number(self) -> u64 {
        match self {
            Self::Unknown => 0,
            Self::Passed => 1,
            Self::Refused => 2,
        }
    }

    pub(crate) const fn from_number(number: u64) -> Self {
        match number {
            0 => Self::Unknown,
            1 => Self::Passed,
            _ => Self::Refused,
        }
    }
}

/// Returns the length of the decision list at the start of `text`, or `None` if there is none.
pub(crate) fn decisions_length(text: &[u8]) -> Option<usize> {
    decisions_at(text).map(|(_, length)| length)
}

/// Parses the decision list at the start of `text`. Returns the combined verdict and the length of
/// the list.
fn decisions_at(text: &[u8]) -> Option<(LogVerdict, usize)> {
    let (mut verdict, mut rest) = decision(text)?;
    while let Some((next, tail)) = rest.strip_prefix(AND).and_then(decision) {
        verdict = verdict.max(next);
        rest = tail;
    }
    Some((verdict, text.len() - rest.len()))
}

/// Parses the decision at the start of `text`. Returns the verdict and the remaining text.
fn decision(text: &[u8]) -> Option<(LogVerdict, &[u8])> {
    let (_rule, rest) = part(text)?;
    let (_limit, rest) = part(rest)?;
    let (verdict, rest) = part(rest)?;
    let (wait, rest) = part(rest)?;
    // A rule in shadow mode never refuses a request.
    let verdict = match verdict {
        b"refuse" | b"ban" => LogVerdict::Refused,
        b"admit" | b"hold" | b"skip" | b"shadow_admit" | b"shadow_hold" | b"shadow_refuse"
        | b"shadow_ban" | b"shadow_skip" => LogVerdict::Passed,
        _ => return None,
    };
    if wait != b"-" && !wait.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let rest = match rest.split_at_checked(KEY_DIGITS) {
        Some((key, rest)) if key.iter().all(u8::is_ascii_hexdigit) => rest,
        _ => rest.strip_prefix(b"-")?,
    };
    Some((verdict, rest))
}

/// Splits off a part that ends with `;` and contains no spaces or commas.
fn part(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = memchr::memchr3(b';', b' ', b',', text)?;
    let (part, rest) = text
        .split_at_checked(end)
        .filter(|(part, _)| !part.is_empty())?;
    Some((part, rest.strip_prefix(b";")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "0123456789abcdef";

    #[test]
    fn causes() {
        for (cause, verdict) in [
            ("loudou_over_limit{r.l}", LogVerdict::Refused),
            ("loudou_banned{r}", LogVerdict::Refused),
            ("loudou_admin", LogVerdict::Unknown),
            ("via_upstream", LogVerdict::Passed),
            ("request_rate_limited", LogVerdict::Unknown),
            ("-", LogVerdict::Unknown),
        ] {
            assert_eq!(LogVerdict::of_cause(cause.as_bytes()), verdict, "{cause}");
        }
    }

    #[test]
    fn decisions() {
        for (text, verdict) in [
            (format!("r;l;admit;0;{KEY}"), LogVerdict::Passed),
            (format!("r;l;hold;20;{KEY}"), LogVerdict::Passed),
            (format!("r;l;refuse;1000;{KEY}"), LogVerdict::Refused),
            ("r;-;refuse;-;-".to_owned(), LogVerdict::Refused),
            (format!("r;-;ban;60000;{KEY}"), LogVerdict::Refused),
            ("r;-;skip;-;-".to_owned(), LogVerdict::Passed),
            (format!("r;l;shadow_refuse;5;{KEY}"), LogVerdict::Passed),
            (
                format!("a;l;admit;0;{KEY}, r;l;refuse;1;{KEY}"),
                LogVerdict::Refused,
            ),
            (
                format!("r;l;refuse;1;{KEY}, a;l;admit;0;-"),
                LogVerdict::Refused,
            ),
        ] {
            assert_eq!(LogVerdict::of_decisions(text.as_bytes()), verdict, "{text}");
            assert_eq!(decisions_length(text.as_bytes()), Some(text.len()));
            // The text after the decision list belongs to another column.
            let followed = format!("{text}, 12;refuse");
            assert_eq!(LogVerdict::of_decisions(followed.as_bytes()), verdict);
            assert_eq!(decisions_length(followed.as_bytes()), Some(text.len()));
        }
        for text in [
            "",
            "-",
            "refuse",
            "r;l;refuse",
            "r;l;refuse;x;-",
            "r;l;refuse;1;xyz",
            ";l;ban;-;-",
            "r;l;forbid;-;-",
        ] {
            assert_eq!(
                LogVerdict::of_decisions(text.as_bytes()),
                LogVerdict::Unknown,
                "{text}"
            );
        }
    }
}
