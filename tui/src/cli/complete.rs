//! Shell completion, including the rules and keys of the live Envoy.
//!
//! The script of `loudou completions` runs this program with [`VARIABLE`] set and the typed line
//! after `--`. Clap completes commands and options itself, and calls the functions in this module
//! to complete values. If Envoy does not answer quickly, no values are offered, so that Tab neither
//! waits nor prints an error.

use std::ffi::OsStr;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Command;
use clap_complete::env::Shells;
use clap_complete::{
    ArgValueCandidates, ArgValueCompleter, CompleteEnv, CompletionCandidate, Shell,
};
use loudou_api::{MAX_TOP, TopBy};

use super::config_file;
use super::options::{ConnectArgs, URL};
use super::target;
use super::targets;
use super::world::Env;
use crate::config::Config;
use loudou_client::{Client, TopQuery};

/// Environment variable that the scripts set to the name of the shell.
const VARIABLE: &str = "LOUDOU_COMPLETE";
/// Time limit of each call to Envoy.
const TIMEOUT: Duration = Duration::from_millis(300);
/// When zsh autoloads the completion function, the first call executes the script instead of the
/// function, so the script must call the function.
const ZSH_FIRST_USE: &str = r#"if [ "$funcstack[1]" = "_loudou" ]; then
    _clap_dynamic_completer_loudou "$@"
fi"#;

/// Bash function that joins the words that bash split at `:` or `=`, and calls the completion
/// function that clap generates.
const BASH: &str = include_str!("complete.bash");

/// Completes the typed line if a completion script has started this process.
pub(super) fn answered(loudou: fn() -> Command) -> Option<ExitCode> {
    let with_values = move || with_values(loudou());
    let complete = CompleteEnv::with_factory(with_values).var(VARIABLE);
    // Without a current directory, file names are not completed.
    let here = std::env::current_dir().ok();
    match complete.try_complete(std::env::args_os(), here.as_deref()) {
        Ok(false) => None,
        Ok(true) => Some(ExitCode::SUCCESS),
        Err(_nothing_to_complete) => Some(ExitCode::FAILURE),
    }
}

/// Adds the completions for `--url`, `man` and `help`, which need the config file or the list of
/// subcommands.
fn with_values(loudou: Command) -> Command {
    let names = loudou
        .get_subcommands()
        .map(|command| command.get_name().to_owned());
    let names: Vec<String> = names.collect();
    let pages =
        ArgValueCandidates::new(move || names.iter().map(CompletionCandidate::new).collect());
    let topics = pages.clone();
    loudou
        .mut_arg("url", |url| url.add(named()))
        .mut_subcommand("man", |man| man.mut_arg("command", |page| page.add(pages)))
        .mut_subcommand("help", |help| {
            help.mut_arg("topic", |topic| topic.add(topics))
        })
}

/// Prints the completion script for a shell.
pub(super) fn script(shell: Shell, out: &mut dyn Write) -> io::Result<()> {
    let name = shell.to_string();
    let shells = Shells::builtins();
    let known = shells.completer(&name);
    let known = known.ok_or_else(|| io::Error::other(format!("no script for {name}")))?;
    let mut script = Vec::new();
    known.write_registration(VARIABLE, "loudou", "loudou", "loudou", &mut script)?;
    let script = String::from_utf8_lossy(&script);
    match shell {
        Shell::Zsh => writeln!(out, "{script}{ZSH_FIRST_USE}"),
        Shell::Bash => {
            let script = script.replace("-F _clap_complete_loudou", "-F _loudou");
            write!(out, "{script}{BASH}")
        }
        _ => write!(out, "{script}"),
    }
}

/// Completes `@NAME` with the targets in the config file. Target names need no quotes.
fn named() -> ArgValueCompleter {
    ArgValueCompleter::new(|begun: &OsStr| {
        let config = Line::read().config();
        let named = config.targets.iter().map(|(name, target)| {
            let about = Some(target.url.join(", ").into());
            CompletionCandidate::new(format!("@{name}")).help(about)
        });
        let begun = begun.to_string_lossy();
        let fits = |it: &CompletionCandidate| it.get_value().to_string_lossy().starts_with(&*begun);
        named.filter(fits).collect()
    })
}

/// Completes the rules of the live Envoy.
pub(super) fn rules() -> ArgValueCompleter {
    ArgValueCompleter::new(|begun: &OsStr| begin_with(begun, Line::read().rules()))
}

/// Completes a key of the rule that the line names. Offers the keys with the most recent refusals
/// or admissions.
pub(super) fn keys_of_rule() -> ArgValueCompleter {
    ArgValueCompleter::new(|begun: &OsStr| begin_with(begun, Line::read().keys(true)))
}

/// Completes a key of the rule in `--rule` or, without that option, a key of any rule.
pub(super) fn keys() -> ArgValueCompleter {
    ArgValueCompleter::new(|begun: &OsStr| {
        let line = Line::read();
        begin_with(begun, line.keys(line.option("--rule").is_some()))
    })
}

/// Completes a value from a fixed list.
pub(super) fn words(names: &'static [&'static str]) -> ArgValueCandidates {
    ArgValueCandidates::new(|| names.iter().map(CompletionCandidate::new).collect())
}

/// A value and its description.
type Value = (String, String);

fn begin_with(begun: &OsStr, values: Vec<Value>) -> Vec<CompletionCandidate> {
    let Some(begun) = begun.to_str() else {
        return Vec::new();
    };
    let values = values.into_iter();
    let fits = values.filter(|(value, _)| value.starts_with(begun) && is_plain(value));
    fits.map(|(value, about)| CompletionCandidate::new(value).help(Some(about.into())))
        .collect()
}

/// Returns true if every shell accepts the value without quotes. Other values are not offered,
/// because clients choose the keys, and no form of quoting works in all shells.
fn is_plain(value: &str) -> bool {
    let mut characters = value.chars();
    let is_plain = |c: char| c.is_alphanumeric() || "-_./:@+,%=".contains(c);
    characters.next().is_some_and(char::is_alphanumeric) && characters.all(is_plain)
}

/// The line to complete, and the address of the Envoy that it calls.
struct Line {
    words: Vec<String>,
    url: String,
    env: Env,
}

impl Line {
    fn read() -> Self {
        let words = std::env::args_os().skip_while(|word| word != "--").skip(1);
        let words: Vec<String> = words
            .map(|word| word.to_string_lossy().into_owned())
            .collect();
        let url = std::env::var("LOUDOU_URL").ok();
        let url = url.filter(|url| !url.is_empty());
        let is_set = url.is_some();
        let mut line = Self {
            words,
            // Only the first address in `LOUDOU_URL` is used.
            url: url
                .and_then(|urls| urls.split(',').next().map(str::to_owned))
                .unwrap_or_else(|| URL.to_owned()),
            env: Env::read(),
        };
        if !is_set && let Some(url) = line.config().url.first() {
            line.url.clone_from(url);
        }
        line
    }

    /// Returns the config file's settings, or empty settings if the file is invalid.
    fn config(&self) -> Config {
        let typed = self.option("--config-file").map(PathBuf::from);
        let named = typed.or_else(|| std::env::var_os("LOUDOU_CONFIG_FILE").map(PathBuf::from));
        let read = config_file::read(named.as_deref(), &self.env, &mut Vec::new());
        read.unwrap_or_default()
    }

    /// Returns the last value of an option.
    fn option(&self, name: &str) -> Option<&str> {
        let next = self.words.iter().skip(1);
        let pairs = self.words.iter().zip(next);
        let values = pairs.filter_map(|(word, next)| (word == name).then_some(next.as_str()));
        let joined = self.words.iter();
        let joined = joined.filter_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        values.chain(joined).last()
    }

    /// Returns the URL of the Envoy that the line names, or of the first Envoy if it names several.
    /// Returns `None` if the addresses come from a `--targets-from` command, because completion
    /// does not run commands.
    fn url(&self) -> Option<String> {
        if let Some(url) = self.option("--url") {
            return Some(url.to_owned());
        }
        match (self.option("--targets"), self.option("--targets-from")) {
            (None, None) => Some(self.url.clone()),
            (file, _) => {
                let named = self.config().targets;
                targets::listed(Path::new(file?), &named)
                    .ok()?
                    .into_iter()
                    .next()
            }
        }
    }

    fn client(&self) -> Option<Client> {
        let file = self.option("--token-file").map(PathBuf::from);
        let path = |option: &str, name: &str| {
            let typed = self.option(option).map(PathBuf::from);
            typed.or_else(|| std::env::var_os(name).map(PathBuf::from))
        };
        let named = std::env::var("LOUDOU_TLS_NAME").ok();
        let config = self.config();
        let connect = ConnectArgs {
            url: Vec::new(),
            targets: None,
            targets_from: None,
            is_default: false,
            named: config.targets,
            token_file: file,
            tls_ca: path("--tls-ca", "LOUDOU_TLS_CA"),
            tls_cert: path("--tls-cert", "LOUDOU_TLS_CERT"),
            tls_key: path("--tls-key", "LOUDOU_TLS_KEY"),
            tls_name: self.option("--tls-name").map(str::to_owned).or(named),
        };
        let url = self.url()?;
        let address = target::resolved(&url, &connect.named)
            .ok()?
            .into_iter()
            .next()?;
        let (target, _) = target::read(&address, &connect, &self.env).ok()?;
        Client::new(&target, TIMEOUT).ok()
    }

    /// Returns true if a word of the line, or the value of an option, is the name of this rule.
    fn is_named(&self, rule: &str) -> bool {
        let mut words = self.words.iter();
        words.any(|word| {
            word == rule || word.split_once('=').is_some_and(|(_, value)| value == rule)
        })
    }

    fn rules(&self) -> Vec<Value> {
        let rules = self.client().and_then(|client| client.rules().ok());
        let rules = rules.into_iter().flat_map(|rules| rules.rules);
        rules.map(|rule| (rule.name, rule.totals.mode)).collect()
    }

    /// Returns the keys of all rules or, if `are_of_line`, only the keys of the rules that the line
    /// names.
    fn keys(&self, are_of_line: bool) -> Vec<Value> {
        let Some(client) = self.client() else {
            return Vec::new();
        };
        let mut found: Vec<Value> = Vec::new();
        for by in [TopBy::Refused, TopBy::Admitted] {
            let query = TopQuery {
                by: Some(by),
                limit: Some(MAX_TOP),
                rule: None,
            };
            let Ok(top) = client.top(&query) else {
                break;
            };
            for entry in top.top {
                let is_new = found.iter().all(|(key, _)| *key != entry.key);
                let fits = !are_of_line || self.is_named(&entry.rule);
                if is_new && fits {
                    found.push((entry.key, format!("{} {}", entry.count, by.name())));
                }
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use loudou_api::{Top, TopEntry};

    use super::*;
    use loudou_client::fake::{Answer, Fake};

    fn line(fake: &Fake, words: &str) -> Line {
        Line {
            words: words.split(' ').map(str::to_owned).collect(),
            url: fake.url.clone(),
            env: Env::default(),
        }
    }

    fn entry(rule: &str, key: &str) -> TopEntry {
        TopEntry {
            rule: rule.to_owned(),
            key: key.to_owned(),
            count: 7,
            ..TopEntry::default()
        }
    }

    fn top(entries: &[(&str, &str)]) -> Answer {
        let top = Top {
            top: entries.iter().map(|(rule, key)| entry(rule, key)).collect(),
            ..Top::default()
        };
        Answer::json("200 OK", &top)
    }

    fn names(values: Vec<Value>) -> Vec<String> {
        values.into_iter().map(|(value, _)| value).collect()
    }

    #[test]
    fn keys_are_those_of_the_rule_in_the_line() {
        let round = || {
            let refused = top(&[("per-user", "mallory"), ("per-ip", "192.0.2.7")]);
            [
                refused,
                top(&[("per-user", "alice"), ("per-user", "mallory")]),
            ]
        };
        let fake = Fake::new((0..4).flat_map(|_| round()).collect());
        let of = |words: &str, are_of_line| names(line(&fake, words).keys(are_of_line));
        assert_eq!(
            of("loudou ban --for 10m per-user ", true),
            ["mallory", "alice"]
        );
        assert_eq!(
            of("loudou buckets --rule=per-ip --key ", true),
            ["192.0.2.7"]
        );
        assert_eq!(of("loudou get per-tenant ", true), [""; 0]);
        let all = ["mallory", "192.0.2.7", "alice"];
        assert_eq!(of("loudou buckets --key ", false), all);
        assert!(fake.request().contains("by=refused&limit=256"));
        assert!(fake.request().contains("by=admitted&limit=256"));
    }

    #[test]
    fn the_line_says_where_envoy_is() {
        let at = |words: &str| {
            let line = line(&Fake::new(Vec::new()), words);
            line.client().map(|client| client.url().to_owned())
        };
        let url = "http://192.0.2.1:9911";
        assert_eq!(at(&format!("loudou --url {url} ban ")), Some(url.into()));
        assert_eq!(at(&format!("loudou ban --url={url} ")), Some(url.into()));
        assert_eq!(at("loudou --token-file no/such/file ban "), None);
        assert_eq!(at("loudou --url nonsense ban "), None);
        let file = std::env::temp_dir().join(format!("loudou-{}-tab", std::process::id()));
        std::fs::write(&file, format!("# edge\n{url} # a\nhttp://192.0.2.2:9911\n"))
            .expect("writes");
        let name = file.display();
        assert_eq!(
            at(&format!("loudou --targets {name} ban ")),
            Some(url.into())
        );
        assert_eq!(at(&format!("loudou --targets-from cat<{name} ban ")), None);
        std::fs::remove_file(&file).expect("removes");
    }

    #[test]
    fn without_an_answer_there_is_nothing() {
        let silent = Fake::new(vec![Answer::Hang(Vec::new()), Answer::Hang(Vec::new())]);
        assert!(line(&silent, "loudou rules ").rules().is_empty());
        assert!(line(&silent, "loudou get per-user ").keys(true).is_empty());
        let gone = Fake::new(Vec::new());
        assert!(line(&gone, "loudou rules ").rules().is_empty());
    }

    #[test]
    fn nothing_that_a_shell_would_act_on_is_offered() {
        let offered = |keys: &[&str]| {
            let values = keys.iter().map(|key| ((*key).to_owned(), String::new()));
            begin_with(OsStr::new(""), values.collect()).len()
        };
        assert_eq!(offered(&["alice", "2001:db8::/64", "a@b.example", "é1"]), 4);
        let bad = [
            "a b", "$(id)", "a;b", "`id`", "-rf", "", "a\nb", "a'b", "~", "a*", "#a",
        ];
        assert_eq!(offered(&bad), 0);
    }
}
