//! Measures requests per second, calls, and the processor time of Envoys, relay and Valkey, with
//! few and with many keys.
//!
//! Floods of four kinds run in random order: without a limit, under a rule local to each Envoy,
//! under a fleet rule, and with Envoy's own filter, which calls a service once per request.

use std::thread;

use anyhow::{Context as _, Result, anyhow, ensure};
use loudou_tests::clock::now;
use loudou_tests::cpu::{process_time, worker_time};
use loudou_tests::flood::flood;
use loudou_tests::soak::random::Random;
use loudou_tests::{Envoy, Request};
use serde_json::{Value, json};

use super::rig::{ASKED_PATH, Central, Programs, SERVICE, TIMEOUT, limited, plain, start_all};
use super::{Size, float, median, of_thousand, rule, user};
use crate::bench::parts::NOWHERE;

/// Keys of the requests in a flood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Keys {
    pub(super) count: u64,
    /// True if keys with smaller numbers occur more often, as in Zipf's law. False if all keys take
    /// turns.
    pub(super) is_skewed: bool,
}

impl Keys {
    pub(super) const fn even(count: u64) -> Self {
        Self {
            count,
            is_skewed: false,
        }
    }

    pub(super) const fn skewed(count: u64) -> Self {
        Self {
            count,
            is_skewed: true,
        }
    }

    fn name(self) -> String {
        let how = if self.is_skewed { ", skewed" } else { "" };
        format!("{}{how}", self.count)
    }

    /// Returns the number of the key that the n-th request has.
    fn nth(self, n: u64) -> u64 {
        if !self.is_skewed {
            return n % self.count;
        }
        // Keys 2 and 3 together get as many requests as key 1, as do keys 4 to 7 together, keys 8
        // to 15 together, and so on.
        let mut random = Random::new(n, 1);
        let octave = 1 << random.between(0, self.count.ilog2().into());
        (octave + random.between(0, octave - 1)) % self.count
    }
}

/// Limits that are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Nothing,
    Alone,
    Fleet,
    /// Envoy's own rate limit filter, which calls the service.
    Service,
}

const KINDS: [Kind; 4] = [Kind::Nothing, Kind::Alone, Kind::Fleet, Kind::Service];

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Alone => "alone",
            Self::Fleet => "fleet",
            Self::Service => "service",
        }
    }

    const fn path(self) -> &'static str {
        match self {
            Self::Nothing => "/nothing",
            Self::Alone => "/alone",
            Self::Fleet => "/fleet",
            Self::Service => ASKED_PATH,
        }
    }

    const fn is_plain(self) -> bool {
        matches!(self, Self::Nothing | Self::Service)
    }

    /// Returns the names of three counters: calls, requests that waited, and requests decided
    /// without the engine.
    fn counters(self) -> [String; 3] {
        if self.is_plain() {
            let calls = format!("cluster.{SERVICE}.upstream_rq_total");
            let failed = format!("cluster.{NOWHERE}.ratelimit.error");
            return [calls.clone(), calls, failed];
        }
        ["calls", "held", "local"].map(|name| format!("wasmcustom.loudou.fleet.{name}"))
    }
}

/// All processes of the measurement.
struct Rig {
    limited: Vec<Envoy>,
    plain: Vec<Envoy>,
    central: Central,
}

/// Measurements of one flood.
#[derive(Debug, Clone, Copy)]
struct Flood {
    per_second: f64,
    /// Processor time per request in microseconds: of all Envoys' workers, of the relay or service,
    /// and of Valkey.
    processor: [f64; 3],
    counts: [u64; 3],
}

/// Measurements for one kind of limit and one set of keys.
#[derive(Debug)]
struct Row {
    envoys: usize,
    keys: Keys,
    kind: Kind,
    floods: Vec<Flood>,
}

impl Row {
    fn median(&self, of: impl Fn(&Flood) -> f64) -> f64 {
        median(self.floods.iter().map(of).collect())
    }

    fn per_second(&self) -> f64 {
        self.median(|flood| flood.per_second)
    }

    fn processor(&self) -> [f64; 3] {
        [0, 1, 2].map(|part| {
            self.median(|flood| flood.processor.into_iter().nth(part).unwrap_or_default())
        })
    }

    /// Returns three counts per thousand requests: calls, requests that waited, and requests
    /// decided locally.
    fn counts(&self, size: Size) -> [f64; 3] {
        let floods = u64::try_from(self.floods.len()).unwrap_or(u64::MAX);
        [0, 1, 2].map(|part| {
            let counts = self.floods.iter();
            let sum = counts.filter_map(|flood| flood.counts.get(part)).sum();
            of_thousand(sum, floods.saturating_mul(size.flood))
        })
    }
}

/// Runs the measurement and prints its results.
pub(super) fn measure(size: Size, programs: &Programs) -> Result<Value> {
    let mut rows = Vec::new();
    for &envoys in size.envoys {
        let found = behind(envoys, size, programs);
        rows.extend(found.with_context(|| format!("{envoys} Envoys"))?);
    }
    Ok(print(&rows, size))
}

/// Measures all kinds of limits with this many Envoys.
fn behind(envoys: usize, size: Size, programs: &Programs) -> Result<Vec<Row>> {
    let rig = Rig::start(envoys, size, programs)?;
    let keys = size.flood_keys.iter();
    let kinds = keys.flat_map(|&keys| KINDS.map(|kind| (keys, kind)));
    let row = |(keys, kind)| Row {
        envoys,
        keys,
        kind,
        floods: Vec::new(),
    };
    let mut rows: Vec<Row> = kinds.map(row).collect();
    let mut random = Random::new(1, 1);
    let mut order: Vec<usize> = (0..rows.len()).collect();
    for _ in 0..size.floods {
        random.shuffle(&mut order);
        for &place in &order {
            let row = rows.get_mut(place).context("a row")?;
            let flood = rig.flood(row, size, random.next() >> 1);
            let flood = flood.with_context(|| row.kind.name())?;
            row.floods.push(flood);
        }
    }
    for envoy in rig.limited.into_iter().chain(rig.plain) {
        let failed = envoy.stats(r"^http\.data\.downstream_rq_[45]xx$")?;
        ensure!(failed.values().sum::<u64>() == 0, "{failed:?}");
        envoy.stop()?;
    }
    Ok(rows)
}

impl Rig {
    fn start(envoys: usize, size: Size, programs: &Programs) -> Result<Self> {
        let central = Central::start(programs)?;
        let rules = json!([rule("alone", "envoy"), rule("fleet", "fleet"),]);
        let most = size.flood_keys.iter().map(|keys| keys.count).max();
        let most = most.unwrap_or(0);
        let settings = json!({ "timeout": TIMEOUT });
        let config = limited((rules, &settings), most * 2, &central, programs);
        let each = vec![(); envoys];
        let rig = Self {
            limited: start_all(&each, |()| Envoy::start(&config))?,
            plain: start_all(&each, |()| plain(&central, programs))?,
            central,
        };
        // Warm up, so that every key has a bucket in every Envoy.
        for kind in [Kind::Alone, Kind::Fleet] {
            rig.send(kind, Keys::even(most), (0, most))?;
        }
        Ok(rig)
    }

    const fn envoys(&self, kind: Kind) -> &Vec<Envoy> {
        if kind.is_plain() {
            &self.plain
        } else {
            &self.limited
        }
    }

    fn counts(&self, kind: Kind) -> Result<[u64; 3]> {
        let mut counts = [0; 3];
        for (count, name) in counts.iter_mut().zip(kind.counters()) {
            for envoy in self.envoys(kind) {
                *count += envoy.counter(&name)?;
            }
        }
        Ok(counts)
    }

    /// Returns the processor time in seconds of all Envoys' workers, of the relay or service, and
    /// of Valkey.
    fn processor(&self, kind: Kind) -> Result<[f64; 3]> {
        let mut of_envoys = 0.0;
        for envoy in self.envoys(kind) {
            of_envoys += worker_time(envoy.pid())?.as_secs_f64();
        }
        let asked = match kind {
            Kind::Service => &self.central.service,
            _ => &self.central.relay,
        };
        let time = |pid: Option<u32>| process_time(pid.context("it runs")?);
        let asked = time(asked.pid())?.as_secs_f64();
        let valkey = time(self.central.valkey.pid())?.as_secs_f64();
        Ok([of_envoys, asked, valkey])
    }

    /// Measures a flood, whose requests are numbered from `n`.
    fn flood(&self, row: &Row, size: Size, n: u64) -> Result<Flood> {
        let (kind, envoys) = (row.kind, u64::try_from(row.envoys)?);
        // Warm up with unmeasured requests: the size of leases depends on the preceding demand.
        self.send(kind, row.keys, (n, size.flood_before / envoys))?;
        let counted = self.counts(kind)?;
        let spent = self.processor(kind)?;
        let begun = now();
        let n = n.saturating_add(size.flood_before);
        self.send(kind, row.keys, (n, size.flood / envoys))?;
        let seconds = begun.elapsed().as_secs_f64();
        let mut processor = self.processor(kind)?;
        for (after, before) in processor.iter_mut().zip(spent) {
            *after = (*after - before) * 1e6 / float(size.flood);
        }
        let mut counts = self.counts(kind)?;
        for (after, before) in counts.iter_mut().zip(counted) {
            *after = after.saturating_sub(before);
        }
        Ok(Flood {
            per_second: float(size.flood) / seconds,
            processor,
            counts,
        })
    }

    /// Sends `each` requests to every Envoy in parallel; the requests are numbered from `first`.
    fn send(&self, kind: Kind, keys: Keys, (first, each): (u64, u64)) -> Result<()> {
        thread::scope(|scope| {
            let send = |(envoy, begin): (&Envoy, u64)| {
                flood(envoy.data_address(), each, |n| {
                    let key = keys.nth(begin.saturating_add(n));
                    Request::get(kind.path()).header("x-user-id", user(key))
                })
            };
            let begins = (0..).map(|n: u64| first.saturating_add(n * each));
            let threads: Vec<_> = self
                .envoys(kind)
                .iter()
                .zip(begins)
                .map(|of| scope.spawn(move || send(of)))
                .collect();
            let mut ended = threads.into_iter().map(thread::ScopedJoinHandle::join);
            ended.try_for_each(|end| end.unwrap_or_else(|_| Err(anyhow!("a client panicked"))))
        })
    }
}

// Tables of the measurements, and of the savings that leases bring.

/// Rows with the same number of Envoys and the same keys, one for each kind of limit.
#[derive(Clone, Copy)]
struct Four<'a> {
    nothing: &'a Row,
    alone: &'a Row,
    fleet: &'a Row,
    service: &'a Row,
}

/// Prints both tables, and returns all rows as JSON.
fn print(rows: &[Row], size: Size) -> Value {
    // Rows are created in the order of `KINDS`, so each chunk contains one row per kind.
    let all: Vec<Four<'_>> = rows
        .chunks_exact(KINDS.len())
        .filter_map(|rows| match rows {
            [nothing, alone, fleet, service] => Some(Four {
                nothing,
                alone,
                fleet,
                service,
            }),
            _ => None,
        })
        .collect();
    println!(
        "\nno limit / each Envoy alone / fleet / a service that is asked once per request:\n\n\
         | Envoys | keys | requests/s | Envoy µs | relay or service µs | Valkey µs | all µs \
         | fleet: calls per 1000 | waited per 1000 |\n\
         | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    );
    for four in &all {
        four.print(size);
    }
    println!(
        "\nthe service's numbers as multiples of the fleet's:\n\n\
         | Envoys | keys | requests/s | calls | Envoy µs | relay or service µs | Valkey µs | all µs \
         | all µs above no limit |\n\
         | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    );
    for four in &all {
        four.print_ratios(size);
    }
    rows.iter().map(|row| as_json(row, size)).collect()
}

fn sum(row: &Row) -> f64 {
    row.processor().iter().sum()
}

impl Four<'_> {
    fn cell(self, digits: usize, of: impl Fn(&Row) -> f64) -> String {
        let rows = [self.nothing, self.alone, self.fleet, self.service];
        let numbers = rows.map(|row| format!("{:.digits$}", of(row)));
        numbers.join(" / ")
    }

    fn print(self, size: Size) {
        let Row { envoys, keys, .. } = self.fleet;
        let [calls, waited, _] = self.fleet.counts(size);
        let [_, asked, valkey] = self.fleet.processor();
        let [_, service, service_valkey] = self.service.processor();
        println!(
            "| {envoys} | {} | {} | {} | {asked:.1} / {service:.1} | {valkey:.1} / {service_valkey:.1} | {} \
             | {calls:.1} | {waited:.1} |",
            keys.name(),
            self.cell(0, Row::per_second),
            self.cell(1, |row| {
                let [envoy, ..] = row.processor();
                envoy
            }),
            self.cell(1, sum),
        );
    }

    fn print_ratios(self, size: Size) {
        let numbers = |row: &Row| {
            let [envoy, asked, valkey] = row.processor();
            let [calls, ..] = row.counts(size);
            let above = sum(row) - sum(self.nothing);
            let all = sum(row);
            [row.per_second(), calls, envoy, asked, valkey, all, above]
        };
        let ratios = numbers(self.service).into_iter().zip(numbers(self.fleet));
        let cells: Vec<String> = ratios
            .map(|(service, fleet)| format!("{:.2}", service / fleet))
            .collect();
        let Row { envoys, keys, .. } = self.fleet;
        println!("| {envoys} | {} | {} |", keys.name(), cells.join(" | "));
    }
}

fn as_json(row: &Row, size: Size) -> Value {
    let [envoy, asked, valkey] = row.processor();
    let [calls, waited, alone] = row.counts(size);
    let failed = match row.kind {
        Kind::Service => "errors_per_1000",
        _ => "decided_alone_per_1000",
    };
    json!({
        "envoys": row.envoys, "keys": row.keys.count, "is_skewed": row.keys.is_skewed,
        "limits": row.kind.name(), "floods": row.floods.len(), "requests_per_flood": size.flood,
        "requests_per_second": row.per_second(), "calls_per_1000": calls, "waited_per_1000": waited,
        failed: alone,
        "envoy_us": envoy, "relay_or_service_us": asked, "valkey_us": valkey,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_numbers_are_frequent_in_skewed_keys() {
        let keys = Keys::skewed(1_000);
        let all: Vec<u64> = (0..10_000).map(|n| keys.nth(n)).collect();
        assert!(all.iter().all(|key| *key < 1_000));
        let share = |most| all.iter().filter(|key| **key <= most).count();
        // Each of the ten octaves gets a tenth of the requests.
        assert!((800..1_200).contains(&share(1)), "{}", share(1));
        assert!((4_700..5_300).contains(&share(31)), "{}", share(31));
        assert_eq!(Keys::even(10).nth(25), 5);
    }
}
