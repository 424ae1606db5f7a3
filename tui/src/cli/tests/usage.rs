//! Help, usage errors, tokens, and closed pipes.

use std::io::{self, Write};

use super::canned::ok;
use super::*;
use crate::cli::command_line;

#[test]
fn every_help() {
    let mut command = command_line().term_width(100);
    command.build();
    assert_snapshot!("help_loudou", command.render_long_help().to_string());
    for sub in command.get_subcommands_mut() {
        let name = format!("help_{}", sub.get_name());
        assert_snapshot!(name, sub.render_long_help().to_string());
    }
}

/// A short help fits on a small terminal: a line for each argument, and none for the connection
/// options.
#[test]
fn a_short_help_has_one_line_for_each_option() {
    let mut command = command_line().term_width(80);
    command.build();
    let mut all = vec![command.render_help().to_string()];
    let subs = command.get_subcommands_mut();
    all.extend(subs.map(|sub| sub.render_help().to_string()));
    let lines = all.iter().flat_map(|help| help.lines());
    let wrapped: Vec<_> = lines
        .filter(|line| line.starts_with("          "))
        .collect();
    assert!(wrapped.is_empty(), "{wrapped:#?}");
    for help in &all {
        for long in ["--tls-ca", "--theme", "Examples:\n"] {
            assert!(!help.contains(long), "{long}: {help}");
        }
        let rows = help.lines().count();
        assert!(rows <= 45, "{rows} rows: {help}");
    }
    let ban = &Loudou::default().run("ban -h").out;
    assert_snapshot!(ban, @r"
    Refuse all requests of a key, for a time or until unbanned
    
    Usage: loudou ban [OPTIONS] <RULE> <KEY>
           loudou ban [OPTIONS] --all-rules <KEY>
    
    Arguments:
      [RULE]  The rule
      [KEY]   The key, as `loudou buckets` prints it
    
    Options:
          --all-rules <KEY>  A key, in every rule that can have it
          --for <TIME>       Lift the ban automatically after this time, such as 10m
          --replace          Replace an earlier ban even if it ends later
          --reason <TEXT>    Reason, recorded with the event
      -y, --yes              Do not ask for confirmation
      -h, --help             Print help (see more with '--help')
    
    Output:
      -o, --output <FORM>  table, json, jsonl or csv [default: table]
    
    Connection: --url, --token-file, TLS and more: see `loudou help connection`
    Examples, colours and theme: see --help
    ");
}

/// Only commands that call an Envoy list the connection options.
#[test]
fn a_command_without_a_connection_lists_no_options_of_one() {
    for name in [
        "check",
        "convert",
        "replay",
        "schema",
        "completions",
        "man",
        "help",
    ] {
        for flag in ["-h", "--help"] {
            let help = Loudou::default().run(&format!("{name} {flag}")).out;
            for option in ["--url", "--timeout", "--theme", "help connection"] {
                assert!(!help.contains(option), "{name} {flag}: {option}: {help}");
            }
        }
    }
    // Options from a shell variable or an alias are accepted.
    assert_eq!(
        Loudou::default()
            .run("--url http://x schema --markdown")
            .code,
        0
    );
    assert_eq!(
        Loudou::default()
            .run("schema --markdown --url http://x")
            .code,
        0
    );
}

#[test]
fn help_has_topics() {
    let help = |line: &str| Loudou::default().run(line);
    let connection = help("help connection");
    assert_snapshot!("help_connection_topic", connection.seen());
    assert_eq!(help("help ban").out, help("ban --help").out);
    assert_eq!(help("help").out, help("--help").out);
    let none = help("help nothing");
    assert_eq!(none.code, 2);
    assert!(
        none.err.contains("allowed: connection, top, check"),
        "{}",
        none.err
    );
}

#[test]
fn help_and_version_are_output() {
    for line in ["--help", "-h", "--version", "check --help"] {
        let ran = Loudou::default().run(line);
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{line}");
        assert!(!ran.out.is_empty());
    }
}

#[test]
fn wrong_uses_exit_with_2() {
    for line in [
        "frobnicate",
        "check",
        "convert",
        "convert - -o json",
        "set per-user",
        "set per-user --capacity 60x",
        "set per-user --capacity 5 --rate 0/s",
        "set per-user --capacity 5 --for soon",
        "set per-user --capacity 5 --file x",
        "set per-user --mode of",
        "set per-user window",
        "set per-user =2m",
        "set per-user window=2m --file x",
        "buckets --state resting",
        "top --interval 0s",
        "top --by passed",
        "top --limit 0",
        "top --limit 257",
        "unset per-user --carry over",
        "unset per-user -o csv",
        "export -o csv",
        "export --live -o csv",
        "man -o json",
        "completions bash -o jsonl",
        "--token hunter2 status",
        "replay",
        "replay --config - --trace -",
        "replay --config a --trace b --compare c --output jsonl",
        "replay --config a --format squid",
    ] {
        let ran = Loudou::default().run(line);
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{line}: {}", ran.err);
    }
    assert_snapshot!(Loudou::default().run("set r --rate 0/s").seen(), @r"
    --- standard error
    error: invalid value '0/s' for '--rate <RATE>': invalid rate; write an amount per period: 30/60s, 10/s, 5/m, 1000/d, 1/250ms

    For more information, try '--help'.
    --- exit code 2
    ");
}

#[test]
fn completions_for_every_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let ran = Loudou::default().run(&format!("completions {shell}"));
        assert_eq!(ran.code, 0);
        for word in ["loudou", "LOUDOU_COMPLETE", shell] {
            assert!(ran.out.contains(word), "{shell}: {word}");
        }
    }
}

#[test]
fn a_page_for_every_command() {
    let page = |line: &str| Loudou::default().run(line);
    let own = page("man");
    assert_eq!(own.code, 0);
    assert!(
        own.out.contains(".TH loudou 1") && own.out.contains("loudou\\-set(1)"),
        "{}",
        own.out
    );
    for text in [
        ".SH ENVIRONMENT\n.TP\n\\fBLOUDOU_URL\\fR\nThe value of \\-\\-url.\n",
        "\\fBLOUDOU_TOKEN\\fR\n",
        ".SH FILES\n.TP\n\\fB~/.config/loudou/config.toml\\fR\n",
    ] {
        assert!(own.out.contains(text), "{text}: {}", own.out);
    }
    let set = page("man set");
    assert!(set.out.contains(".TH loudou-set 1"), "{}", set.out);
    for text in [
        concat!("\"loudou ", env!("CARGO_PKG_VERSION"), "\" Loudou\n"),
        "Revert automatically",
        "Address of the admin listener",
        ".SH EXAMPLES\n.nf\n\\&  loudou set ",
    ] {
        assert!(set.out.contains(text), "{text}: {}", set.out);
    }
    assert!(!set.out.contains('\u{1b}'), "colours");
    let none = page("man nothing");
    assert_eq!(none.code, 2);
    assert!(none.err.contains("allowed: top, check"), "{}", none.err);
}

#[test]
fn the_nearest_token_wins() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/cli/tests");
    let file = format!("{folder}/token");
    let sent = |env: Env, line: &str| {
        let loudou = Loudou {
            env,
            ..Loudou::answers(vec![ok(&canned::status())])
        };
        let ran = loudou.run(line);
        assert_eq!(ran.code, 0, "{}", ran.seen());
        let head = ran.requests[0].lines();
        head.filter_map(|line| line.strip_prefix("authorization: Bearer "))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let env = |token: Option<&str>, file: Option<&str>| Env {
        token: token.map(OsString::from),
        token_file: file.map(OsString::from),
        ..Env::default()
    };
    assert_eq!(sent(env(None, None), "status"), Vec::<String>::new());
    assert_eq!(sent(env(Some("one"), Some(&file)), "status"), ["one"]);
    assert_eq!(sent(env(None, Some(&file)), "status"), ["from-a-file"]);
    let line = format!("status --token-file {file}");
    assert_eq!(sent(env(Some("one"), None), &line), ["from-a-file"]);

    let ran = Loudou::default().run("status --token-file no/such/file");
    assert_snapshot!(ran.seen(), @r"
    --- standard error
    loudou: cannot read no/such/file: No such file or directory (os error 2)
    --- exit code 2
    ");
}

#[test]
fn an_invalid_address() {
    assert_snapshot!(Loudou::default().run("--url https://x status").seen(), @r"
    --- standard error
    loudou: cannot reach https://x: failed to lookup address information: Name or service not known; is Envoy running, and is this its admin listener for Loudou? (--url or LOUDOU_URL)
    --- exit code 3
    ");
}

/// An output whose reader closed the pipe.
struct Gone;

impl Write for Gone {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::BrokenPipe.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_closed_pipe_ends_the_command_without_a_report() {
    let fake = Fake::new(vec![ok(&canned::buckets())]);
    let mut err = Vec::new();
    let mut io = Io {
        out: &mut Gone,
        err: &mut err,
        input: &mut io::empty(),
        out_terminal: false,
        width: None,
        err_terminal: false,
        input_terminal: false,
        env: Env::default(),
        patience: Nanos::ZERO,
        pause: |_| Ok(()),
        size: || None,
        wall: || Nanos::ZERO,
        succeed_on_interrupt: || Ok(()),
    };
    let args = ["loudou", "--url", &fake.url, "buckets"];
    let outcome = run(args.into_iter().map(OsString::from), &mut io);
    assert_eq!((outcome.code(), err.as_slice()), (141, &[][..]));
}
