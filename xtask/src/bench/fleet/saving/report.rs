//! The tables: what was measured, and what leasing saves.

use serde_json::{Value, json};

use super::{KINDS, Kind, Row, Size};

/// The rows of the same Envoys and keys, by kind.
#[derive(Clone, Copy)]
struct Four<'a> {
    nothing: &'a Row,
    alone: &'a Row,
    fleet: &'a Row,
    service: &'a Row,
}

/// Prints both tables; returns all rows as JSON.
pub(super) fn print(rows: &[Row], size: Size) -> Value {
    // A kind after the other, as they were made.
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
