//! Calls and answers from bytes: what is beyond a bound is an error with its place.

use core::fmt;

use super::{
    INSTANCE_DIGITS, KeyAnswer, LeaseAnswer, LeaseKey, LeaseRequest, MAX_LEASE_BODY, MAX_LEASE_KEY,
    MAX_LEASE_KEYS, MAX_LEASE_LIMITS, MAX_LEASE_NAME, MAX_LEASE_UNITS,
};

/// A call or an answer that is none: a sentence with the place, the value and the allowed values. Of
/// texts it names only the length: they may be secrets of a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadLease(String);

impl fmt::Display for BadLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl core::error::Error for BadLease {}

impl BadLease {
    fn new(place: &str, value: impl fmt::Display, allowed: impl fmt::Display) -> Self {
        Self(format!("{place}: {value}; allowed: {allowed}"))
    }

    /// The message of the reader quotes values of a wrong kind; only its place is kept.
    fn json(error: &serde_json::Error) -> Self {
        let (line, column) = (error.line(), error.column());
        let kind = match error.classify() {
            serde_json::error::Category::Data => {
                "a field is missing, or its value has another form"
            }
            serde_json::error::Category::Eof => "the text ends too early",
            _ => "no JSON",
        };
        Self(format!("line {line}, column {column}: {kind}"))
    }
}

/// A text of `least` to `most` bytes.
fn length(place: &str, text: &str, least: usize, most: usize) -> Result<(), BadLease> {
    if text.len() < least || text.len() > most {
        let value = format!("{} bytes", text.len());
        return Err(BadLease::new(place, value, format!("{least} to {most}")));
    }
    Ok(())
}

/// At most so many of something.
fn count(place: &str, found: usize, least: usize, most: usize) -> Result<(), BadLease> {
    if found < least || found > most {
        return Err(BadLease::new(place, found, format!("{least} to {most}")));
    }
    Ok(())
}

impl LeaseRequest {
    /// Reads the body of a call.
    pub fn read(body: &[u8]) -> Result<Self, BadLease> {
        count("body bytes", body.len(), 0, MAX_LEASE_BODY)?;
        let request: Self = serde_json::from_slice(body).map_err(|error| BadLease::json(&error))?;
        request.check()?;
        Ok(request)
    }

    fn check(&self) -> Result<(), BadLease> {
        length("namespace", &self.namespace, 1, MAX_LEASE_NAME)?;
        length("epoch", &self.epoch, 0, MAX_LEASE_NAME)?;
        let digits = self.instance.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !matches!(self.instance.len(), 0 | INSTANCE_DIGITS) || !digits {
            let allowed = format!("{INSTANCE_DIGITS} hexadecimal digits, or none");
            let value = format!("{} bytes", self.instance.len());
            return Err(BadLease::new("instance", value, allowed));
        }
        count("keys", self.keys.len(), 0, MAX_LEASE_KEYS)?;
        for (at, key) in self.keys.iter().enumerate() {
            key.check(&format!("keys[{at}]"))?;
        }
        Ok(())
    }
}

impl LeaseKey {
    fn check(&self, place: &str) -> Result<(), BadLease> {
        let at = |field: &str| format!("{place}.{field}");
        length(&at("rule"), &self.rule, 1, MAX_LEASE_NAME)?;
        length(&at("key"), &self.key, 0, MAX_LEASE_KEY)?;
        count(&at("limits"), self.limits.len(), 1, MAX_LEASE_LIMITS)?;
        for (index, limit) in self.limits.iter().enumerate() {
            if let Some((field, value, allowed)) = limit.beyond() {
                let place = format!("{place}.limits[{index}].{field}");
                return Err(BadLease::new(&place, value, allowed));
            }
        }
        let numbers = [
            ("want", self.want, MAX_LEASE_UNITS),
            ("need", self.need, self.want),
            ("debt", self.debt, MAX_LEASE_UNITS),
        ];
        for (field, value, most) in numbers {
            if value > most {
                return Err(BadLease::new(&at(field), value, format!("0 to {most}")));
            }
        }
        Ok(())
    }
}

impl LeaseAnswer {
    /// Reads the body of the answer to a call with these keys.
    ///
    /// ```
    /// use loudou_api::{LeaseAnswer, LeaseKey, LeaseLimit};
    ///
    /// let limit = LeaseLimit::Window { capacity: 3, window_ns: 60_000_000_000 };
    /// let asked = [LeaseKey { want: 2, ..LeaseKey::new("per-user", "nina", vec![limit]) }];
    /// let read = |granted| {
    ///     let key = format!(r#"{{"granted":{granted},"charged":0,"wait_us":0,"left":[1],"ends_us":0}}"#);
    ///     LeaseAnswer::read(format!(r#"{{"envoys":1,"keys":[{key}]}}"#).as_bytes(), &asked)
    /// };
    /// assert!(read(2).is_ok());
    /// assert_eq!(read(3).unwrap_err().to_string(), "keys[0].granted: 3; allowed: 0 to 2");
    /// ```
    pub fn read(body: &[u8], asked: &[LeaseKey]) -> Result<Self, BadLease> {
        let answer: Self = serde_json::from_slice(body).map_err(|error| BadLease::json(&error))?;
        answer.check(asked)?;
        Ok(answer)
    }

    fn check(&self, asked: &[LeaseKey]) -> Result<(), BadLease> {
        count("keys", self.keys.len(), asked.len(), asked.len())?;
        for (at, (key, asked)) in self.keys.iter().zip(asked).enumerate() {
            let KeyAnswer::Lease(lease) = key else {
                continue;
            };
            let numbers = [
                ("granted", lease.granted, asked.want),
                ("charged", lease.charged, asked.debt),
            ];
            for (field, value, most) in numbers {
                if value > most {
                    let place = format!("keys[{at}].{field}");
                    return Err(BadLease::new(&place, value, format!("0 to {most}")));
                }
            }
            let (left, limits) = (lease.left.len(), asked.limits.len());
            count(&format!("keys[{at}].left"), left, limits, limits)?;
        }
        Ok(())
    }
}
