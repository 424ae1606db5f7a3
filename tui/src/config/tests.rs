//! Valid and invalid config files.

use super::*;
use crate::draw::theme::Base;
use loudou_client::BAD_TOKEN;

const WHOLE: &str = r#"
url = "@edge"

[targets.edge]
url = ["https://edge-1:9911", "unix:/run/edge-2.sock"]
token_file = "edge.token"
tls_ca = "~/ca.pem"
tls_cert = "/etc/client.pem"
tls_key = "/etc/client.key"
tls_name = "edge"

[targets.here]
url = "http://127.0.0.1:9911"
token = "secret"

[screen]
interval = "500ms"
theme = "light"
ascii = true
"#;

fn problems(text: &str) -> Vec<String> {
    let problems = Config::read(text).expect_err(text);
    problems.iter().map(ToString::to_string).collect()
}

#[test]
fn a_whole_file_is_read() {
    let config = Config::read(WHOLE).expect("valid");
    assert_eq!(config.url, ["@edge"]);
    let edge = &config.targets["edge"];
    assert_eq!(edge.url, ["https://edge-1:9911", "unix:/run/edge-2.sock"]);
    assert_eq!(edge.token_file, Some(PathBuf::from("edge.token")));
    assert_eq!(edge.tls_name.as_deref(), Some("edge"));
    assert!(config.has_token() && config.directs_tokens());
    assert_eq!(config.ascii, Some(true));
    assert_eq!(config.interval, Some(Nanos::from_millis(500)));
    assert_eq!(config.theme, Some(Base::Light));
}

#[test]
fn an_empty_file_changes_nothing() {
    let config = Config::read("# nothing\n").expect("valid");
    assert!(config.url.is_empty() && config.targets.is_empty());
    assert!(!config.has_token() && !config.directs_tokens());
}

/// Every problem has its position, its value, the allowed values, and a suggestion if there is one.
#[test]
fn all_problems_are_found_at_once() {
    let text = r#"
url = ["@egde", "localhost:9911"]
colour = "red"

[targets.edge]
url = "@edge"
token = "a"
token_file = "b"
tls_cert = "c"
[targets."a,b"]

[screen]
theme = "ligth"
ascii = "yes"
colums = ["level"]
"#;
    insta::assert_snapshot!(problems(text).join("\n"));
}

#[test]
fn text_that_is_no_toml_has_its_place() {
    let [problem] = &problems("[screen]\ntheme = dark\n")[..] else {
        panic!("one problem");
    };
    assert!(problem.starts_with("2:9: "), "{problem}");
    let twice = problems("[screen]\nascii = true\nascii = true\n");
    assert_eq!(twice, ["3:1: (the whole file): ascii: duplicate key"]);
}

/// The example in the module's documentation and in the documents is valid.
#[test]
fn the_documented_example_is_valid() {
    let docs = include_str!("../../../docs/reference/config.md");
    let blocks = docs.split("```toml\n").skip(1);
    let mut checked = 0;
    for block in blocks {
        let text = block.split("```").next().expect("an end");
        if let Err(problems) = Config::read(text) {
            let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
            panic!("{text}\n{}", problems.join("\n"));
        }
        checked += 1;
    }
    assert!(checked > 0);
}

#[test]
fn all_addresses_of_a_name_can_be_named() {
    let text =
        "url = \"dns:http://envoys:9911\"\n[targets.all]\nurl = \"dns:https://envoys:9911\"\n";
    let config = Config::read(text).expect("valid");
    assert_eq!(config.url, ["dns:http://envoys:9911"]);
}

#[test]
fn a_list_of_addresses_is_not_empty() {
    let wanted = |place: &str| format!("{place}: []: it names no address");
    assert_eq!(problems("url = []\n"), [wanted("1:7: url")]);
    let of_target = problems("[targets.edge]\nurl = []\n");
    assert_eq!(of_target, [wanted("2:7: targets.edge.url")]);
}

/// A token must not be shown, not even an invalid one.
#[test]
fn a_bad_token_has_its_place_and_is_not_shown() {
    let place = "3:9: targets.edge.token";
    let of = |token: &str| {
        problems(&format!(
            "[targets.edge]\nurl = \"unix:/s\"\ntoken = {token}\n"
        ))
    };
    for token in ["\"\"", "\"hidden words\"", "\"schlüssel\""] {
        assert_eq!(of(token), [format!("{place}: {BAD_TOKEN}")], "{token}");
    }
    assert_eq!(of("12345"), [format!("{place}: expected a text in quotes")]);
}

#[test]
fn a_time_limit_and_no_changes() {
    let config = Config::read("timeout = \"10s\"\nread_only = true\n").expect("valid");
    assert_eq!(config.timeout, Some(Nanos::from_secs(10)));
    assert!(config.read_only);
    for wrong in ["0s", "soon", ""] {
        let found = problems(&format!("timeout = \"{wrong}\"\n"));
        let wanted = format!("1:11: timeout: \"{wrong}\": invalid duration; allowed: ");
        assert!(
            found.len() == 1 && found[0].starts_with(&wanted),
            "{found:?}"
        );
    }
    assert_eq!(problems("read_only = \"yes\"\n").len(), 1);
}
