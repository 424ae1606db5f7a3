//! A client that is spread over two Envoys has one row with its sums, and one change applies to
//! both Envoys.

use std::time::Duration;

use anyhow::{Result, ensure};
use loudou_tests::traffic::{Pace, Traffic};
use loudou_tests::{Envoy, Request};

use super::several::{config, is_banned, watch};

/// Number of users other than mallory, who sends half of all requests.
const USERS: u64 = 200;

/// Two requests in turn are mallory's: the clients of the two Envoys take numbers alternately, and
/// mallory must be seen at both.
fn request(number: u64) -> Request {
    let user = if number % 4 < 2 {
        "mallory".to_owned()
    } else {
        format!("user-{}", number % USERS)
    };
    Request::get("/").header("x-user-id", user)
}

/// Returns four rates from the first row of the screen Keys: admitted in total, refused in total,
/// and refused at each of the two Envoys.
fn rates(screen: &str) -> Option<[f64; 4]> {
    // The head of the screen names the rule, too, while it shows a warning about it.
    let mut rows = screen.lines().filter(|line| line.contains("per-user"));
    let (_, rates) = rows.find_map(|row| row.split_once("mallory"))?;
    let rates: Option<Vec<f64>> = rates
        .split_whitespace()
        .filter(|word| word.chars().any(|c| c.is_ascii_digit()))
        .map(|word| word.parse().ok())
        .collect();
    rates?.try_into().ok()
}

#[test]
fn a_client_of_two_envoys_is_one_row_and_one_ban() -> Result<()> {
    let (first, second) = (Envoy::start(&config())?, Envoy::start(&config())?);
    let mut terminal = watch(&first, &second)?;
    let pace = Pace {
        clients: 1,
        interval: Duration::from_millis(20),
        requests: None,
    };
    let addresses = [first.data_address(), second.data_address()];
    let traffic = Traffic::start(addresses, pace, request);
    terminal.press("8")?;
    let screen = terminal.until("the sums of both", |screen| {
        rates(screen).is_some_and(|[_, _, one, other]| one > 1.0 && other > 1.0)
    })?;
    let [_, refused, one, other] = rates(&screen).unwrap_or_default();
    // Each rate is shown with two digits, so the sum can differ by rounding.
    ensure!((refused - one - other).abs() <= 1.5, "{screen}");
    // Enter shows this key at the Envoy with the most refusals. The ban applies to both Envoys.
    terminal.press("gj\u{1b}[A\r")?;
    // The row appears with the first poll of the screen.
    terminal.until("Buckets", |screen| {
        screen.contains("since") && screen.contains("mallory")
    })?;
    terminal.press("b")?;
    terminal.shows("ban mallory")?;
    terminal.press("\r")?;
    terminal.shows("yes, at all 2")?;
    terminal.press("a8")?;
    terminal.until("banned at both", |screen| {
        let mut rows = screen.lines().filter(|line| line.contains("mallory"));
        rows.any(|row| row.matches("banned").count() == 3)
    })?;
    ensure!(is_banned(&first)? && is_banned(&second)?, "both ban");
    drop(traffic);
    terminal.quit()?;
    first.stop()?;
    second.stop()
}
