//! Values in formats that this build does not read. Another build may be using them, so they stay,
//! and the status names them.

use super::*;
use crate::bytes::put_number;
use crate::data::DataPlane;
use crate::fleet::travel;

const RULES: &[u8] = b"loudou:rules";

impl Bench {
    fn value(&self, key: &[u8]) -> Vec<u8> {
        let mut value = Vec::new();
        let found = self.host.shared_get(key, &mut value);
        assert!(found.is_ok_and(|found| found.is_some()), "{key:?}");
        value
    }

    fn put(&self, key: &[u8], value: &[u8]) {
        let mut found = Vec::new();
        let cas = self.host.shared_get(key, &mut found).expect("a host");
        let cas = cas.unwrap_or(loudou_store::CAS_ABSENT);
        let written = self.host.shared_set(key, value, cas);
        assert_eq!(written, Ok(loudou_store::Written::Done));
    }

    /// Another worker of this build, with the same configuration.
    fn another_worker(&mut self) {
        let rules = json!([{
            "name": "per-user",
            "key": [{ "header": "x-user-id" }],
            "limits": [{ "name": "burst", "algorithm": "funnel", "capacity": 2, "rate": "1/d" }],
        }]);
        let file = json!({ "version": 1, "store": { "buckets": 65_536 }, "rules": rules });
        self.data = DataPlane::new(config::parse(&file).file.expect("valid"), self.host.now());
        assert!(self.data.start(&self.host));
    }

    /// The warnings of the status about formats.
    fn about_formats(&mut self) -> Vec<String> {
        let status = self.get("/v1/status");
        let warnings = status["warnings"].as_array().expect("a list").iter();
        let texts = warnings.filter_map(|text| text.as_str());
        let about = texts.filter(|text| text.contains("in format"));
        about.map(ToOwned::to_owned).collect()
    }

    fn admitted(&mut self, user: &str) -> usize {
        (0..20).filter(|_| self.passes(user)).count()
    }
}

/// The record as a build of the next format writes it: another version, and a field less in the head.
fn in_next_format(record: &[u8]) -> Vec<u8> {
    let mut next = record.to_vec();
    next[7] += 1;
    next.drain(next.len() - 1..);
    next
}

/// The earlier build while its connections drain. It limits by its own configuration, refuses
/// edits, and reports that.
#[test]
fn a_record_of_another_format_stays_while_its_build_writes_it() {
    let mut bench = Bench::new();
    let (status, _) = bench.edit("PUT", "/v1/rules/per-user", "*", Some(&capacity(12)));
    assert_eq!(status, 200);
    let (readable, next) = {
        let record = bench.value(RULES);
        (record.clone(), in_next_format(&record))
    };
    for round in 0_u8..3 {
        // The build with that format continues to write.
        let written = [next.as_slice(), &[round]].concat();
        bench.put(RULES, &written);
        bench.host.pass(Nanos::from_secs(60));
        bench.another_worker();
        let admitted = bench.admitted(&format!("alice-{round}"));
        assert_eq!(admitted, 2, "the configuration applies alone");
        drop(bench.data.tick(&bench.host));
        let (status, answer) = bench.edit("PUT", "/v1/rules/per-user", "*", Some(&capacity(5)));
        assert_eq!(status, 503, "{answer}");
        let warnings = bench.about_formats();
        let [warning] = warnings.as_slice() else {
            panic!("{warnings:?}")
        };
        assert!(
            warning.contains("the rules in format 5; this one reads format 4"),
            "{warning}"
        );
        assert_eq!(bench.value(RULES), written, "it is left as it is");
    }
    // After the upgrade was rolled back, operators' changes are there again.
    bench.put(RULES, &readable);
    bench.host.pass(Nanos::from_secs(60));
    bench.another_worker();
    assert_eq!(bench.admitted("bob"), 12);
    assert_eq!(bench.about_formats(), [""; 0]);
}

#[test]
fn a_damaged_record_is_no_other_format() {
    let mut bench = Bench::new();
    let mut record = bench.value(RULES);
    record.pop();
    bench.put(RULES, &record);
    bench.host.pass(Nanos::from_secs(60));
    let token = format!("Bearer {VIEW}");
    let headers: [(&str, &[u8]); 1] = [("authorization", token.as_bytes())];
    assert_eq!(bench.call("GET", "/v1/status", &headers, None).0, 503);
}

#[test]
fn lists_of_another_format_stay_and_are_named() {
    for (key, named) in [
        (&b"loudou:tail"[..], "the events in format 2"),
        (b"loudou:banends", "the ends of bans in format 2"),
        (b"loudou:changes", "the changes of the fleet in format 2"),
    ] {
        let mut bench = Bench::new();
        let mut other = Vec::new();
        put_number(&mut other, 2);
        other.extend_from_slice(b"as another build has it");
        bench.put(key, &other);
        let (status, _) = bench.edit("PUT", "/v1/rules/per-user", "*", Some(&capacity(5)));
        assert_eq!(status, 200);
        let ban = "/v1/buckets/per-user/mallory/ban?for=1h";
        assert_eq!(bench.edit("POST", ban, "", None).0, 200);
        bench.host.pass(Nanos::from_secs(60));
        drop(bench.data.tick(&bench.host));
        bench.admin.tick(&bench.host);
        // Like the worker that makes heartbeat calls.
        let now = bench.host.now();
        let wrote = travel::change(&bench.host, "loudou", now, &mut |_| true);
        assert_eq!(wrote, key != b"loudou:changes");
        // An operator's action is in force all the same.
        assert_eq!(bench.admitted("alice"), 5, "{named}");
        assert!(!bench.passes("mallory"), "{named}");
        let warnings = bench.about_formats();
        assert!(
            matches!(warnings.as_slice(), [one] if one.contains(named)),
            "{named}: {warnings:?}"
        );
        assert_eq!(bench.value(key), other, "{named}: it is left as it is");
    }
}
