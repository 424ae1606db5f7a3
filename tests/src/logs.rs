//! Creates access logs with the defects of real logs: a line is written when its request ends but
//! shows the start, several replicas write logs, files are rotated and compressed, containers add
//! their prefixes, and some lines are no requests. Equal seeds give equal logs.

use std::io::Write as _;

use anyhow::Result;
use flate2::Compression;
use flate2::write::GzEncoder;

mod lines;

pub use lines::Style;

/// Start of all traffic: one second before midnight UTC, on a Sunday in March on which clocks
/// change.
const EPOCH_MS: u64 = 1_711_843_199_000;
/// Number of requests between two lines that are no requests.
const BETWEEN_JUNK: usize = 97;

/// A request with all its data, of which a log may show only a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Start of the request, in milliseconds since 1970.
    pub start_ms: u64,
    /// Time until the request ends, in milliseconds.
    pub duration_ms: u64,
    /// Number of the client.
    pub client: u32,
    /// Number of the path.
    pub path: u32,
    /// Number of the request among all requests.
    pub number: usize,
}

/// Text that a container runtime or tool adds to the lines of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogWrapper {
    /// Nothing.
    Nothing,
    /// The prefix of `kubectl logs --prefix`.
    Kubectl,
    /// The prefix of CRI's files, which split long lines.
    Cri,
    /// The JSON of Docker's `json-file`.
    Docker,
}

/// Knuth's generator, whose high bits are the most random.
#[derive(Clone, Copy, Debug)]
pub struct Random(u64);

impl Random {
    /// Creates a generator from a seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns a number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33).checked_rem(bound).unwrap_or(0)
    }
}

impl Sent {
    /// Returns the end of the request, in milliseconds since 1970.
    pub const fn end_ms(&self) -> u64 {
        self.start_ms + self.duration_ms
    }

    /// Returns the client's address.
    pub fn address(&self) -> String {
        let [_, high, middle, low] = self.client.to_be_bytes();
        format!("10.{high}.{middle}.{low}")
    }
}

/// Creates requests in the order of their starts. A few clients send most requests, and a few
/// requests take long.
pub fn traffic(seed: u64, requests: usize, clients: u32, mean_gap_ms: u64) -> Vec<Sent> {
    let mut random = Random::new(seed);
    let mut start_ms = EPOCH_MS;
    let mut sent = Vec::with_capacity(requests);
    for number in 0..requests {
        start_ms += random.below(2 * mean_gap_ms + 1);
        let most = match random.below(4) {
            0 => u64::from(clients),
            _ => u64::from(clients).div_ceil(10),
        };
        let is_long = random.below(20) == 0;
        sent.push(Sent {
            start_ms,
            duration_ms: random.below(if is_long { 5_000 } else { 50 }),
            client: u32::try_from(random.below(most)).unwrap_or(0),
            path: u32::try_from(random.below(97)).unwrap_or(0),
            number,
        });
    }
    sent
}

/// Returns the files in which `replicas` servers log these requests. See [`replica`].
pub fn files(
    sent: &[Sent],
    style: Style,
    wrapper: LogWrapper,
    replicas: usize,
    parts: usize,
) -> Result<Vec<(String, Vec<u8>)>> {
    let mut files = Vec::new();
    for index in 0..replicas {
        files.extend(replica(sent, style, wrapper, (index, replicas), parts)?);
    }
    Ok(files)
}

/// Returns the log of one of several servers that share the requests. It is rotated into `parts`
/// files, of which the oldest is compressed. The server writes a line when a request ends.
pub fn replica(
    sent: &[Sent],
    style: Style,
    wrapper: LogWrapper,
    (index, replicas): (usize, usize),
    parts: usize,
) -> Result<Vec<(String, Vec<u8>)>> {
    let own = sent.iter().skip(index).step_by(replicas);
    let mut own: Vec<Sent> = own.copied().collect();
    own.sort_by_key(Sent::end_ms);
    let length = own.len().div_ceil(parts).max(1);
    let mut files = Vec::new();
    for (part, sent) in own.chunks(length).enumerate() {
        let bytes = file(sent, style, wrapper, index);
        let age = parts - 1 - part;
        let name = format!("access-{index}.log");
        files.push(match age {
            0 => (name, bytes),
            _ if part == 0 => (format!("{name}.{age}.gz"), gzip(&bytes)?),
            _ => (format!("{name}.{age}"), bytes),
        });
    }
    Ok(files)
}

/// Returns the lines of one file of a replica.
fn file(sent: &[Sent], style: Style, wrapper: LogWrapper, replica: usize) -> Vec<u8> {
    let mut out = Vec::new();
    for (index, request) in sent.iter().enumerate() {
        if index % BETWEEN_JUNK == BETWEEN_JUNK / 2
            && let Some(junk) = style.junk(request)
        {
            wrapper.write(&mut out, &junk, replica);
        }
        wrapper.write(&mut out, &style.line(request, replica), replica);
    }
    out
}

/// Compresses bytes as `gzip` does.
pub fn gzip(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes)?;
    Ok(encoder.finish()?)
}

impl LogWrapper {
    /// Appends a line of a replica.
    fn write(self, out: &mut Vec<u8>, line: &str, replica: usize) {
        let time = "2024-03-31T00:00:00.123456789Z";
        let text = match self {
            Self::Nothing => line.to_owned(),
            Self::Kubectl => format!("[pod/envoy-{replica}/envoy] {line}"),
            Self::Cri => match line.split_at_checked(40) {
                Some((first, last)) => {
                    format!("{time} stdout P {first}\n{time} stdout F {last}")
                }
                None => format!("{time} stdout F {line}"),
            },
            Self::Docker => {
                let log = serde_json::Value::from(format!("{line}\n"));
                format!(r#"{{"log":{log},"stream":"stdout","time":"{time}"}}"#)
            }
        };
        out.extend_from_slice(text.as_bytes());
        out.push(b'\n');
    }
}
