//! The rows of the table.

use anyhow::{Result, ensure};

use super::turn::{Screen, Turn};
use crate::bench::median;

/// The turns of one program, or those without a screen.
#[derive(Debug)]
pub(super) struct Found {
    buckets: u64,
    /// 0 without a screen, 1 with that of this tree, 2 with another build.
    place: usize,
    turns: Vec<Turn>,
}

impl Found {
    pub(super) const fn new(buckets: u64, place: usize) -> Self {
        Self {
            buckets,
            place,
            turns: Vec::new(),
        }
    }

    pub(super) const fn place(&self) -> usize {
        self.place
    }

    pub(super) fn add(&mut self, turn: Turn) {
        self.turns.push(turn);
    }

    /// The median of a number.
    fn of(&self, number: fn(&Turn) -> f64) -> f64 {
        median(self.turns.iter().map(number).collect())
    }

    /// The median of a number of the screen; none without a screen.
    fn of_screen(&self, number: fn(&Screen) -> f64) -> Option<f64> {
        let screens = self.turns.iter().filter_map(|turn| turn.screen.as_ref());
        let numbers: Vec<f64> = screens.map(number).collect();
        (!numbers.is_empty()).then(|| median(numbers))
    }

    pub(super) fn print(&self) {
        let name = match self.place {
            0 => "none",
            1 => "this tree's",
            _ => "the one beside",
        };
        let cell = |number: Option<f64>, digits: usize| {
            number.map_or_else(String::new, |number| format!("{number:.digits$}"))
        };
        println!(
            "| {} | {name} | {:.2} | {:.2} | {:.0} | {:.0} | {} | {} | {} | {} |",
            self.buckets,
            self.of(|turn| turn.envoy_alone),
            self.of(|turn| turn.envoy),
            self.of(|turn| turn.p50),
            self.of(|turn| turn.p99),
            cell(self.of_screen(|screen| screen.share_alone), 2),
            cell(self.of_screen(|screen| screen.share), 2),
            cell(self.of_screen(|screen| screen.share_scrolling), 2),
            cell(self.of_screen(|screen| screen.first_ms), 0),
        );
    }

    /// An error if something was not measured.
    pub(super) fn check(&self) -> Result<()> {
        let all = [
            self.of(|turn| turn.envoy),
            self.of(|turn| turn.p50),
            self.of(|turn| turn.p99),
        ];
        ensure!(all.iter().all(|number| *number > 0.0), "{self:?}");
        let screen = [
            self.of_screen(|screen| screen.first_ms),
            self.of_screen(|screen| screen.share),
            self.of_screen(|screen| screen.share_scrolling),
        ];
        let is_right = |number: &Option<f64>| number.is_some_and(|number| number > 0.0);
        ensure!(self.place == 0 || screen.iter().all(is_right), "{self:?}");
        Ok(())
    }
}

pub(super) fn print_head() {
    println!(
        "| buckets | screen | Envoy %, no requests | Envoy %, 1 000 requests/s | data p50 µs | data p99 µs \
         | screen %, no requests | screen %, requests | screen %, scrolling | first data ms |\n\
         | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    );
}
