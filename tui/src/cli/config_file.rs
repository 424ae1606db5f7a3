//! Finds the config file, checks whether it can be trusted, and applies its settings, including the
//! appearance of the screen.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::options::{Global, URL};
use super::target;
use super::world::{Env, Usage};
use crate::config::{Config, NamedTarget};
use crate::draw::theme::Appearance;
use crate::draw::theme::Depth;
use loudou_print::style::Style;
use loudou_words::text::escape;

/// Maximum number of problems that are printed.
const MAX_PROBLEMS: usize = 64;

/// Reads the config file that an option or the environment names. If neither names a file, reads
/// the default config file, if it exists.
pub(super) fn read(named: Option<&Path>, env: &Env, warnings: &mut Vec<String>) -> Result<Config> {
    let usual = usual(env).filter(|file| file.exists());
    let Some(file) = named.map(Path::to_path_buf).or(usual) else {
        return Ok(Config::default());
    };
    let name = escape(&file.display().to_string()).into_owned();
    let (bytes, metadata) = target::read_file(&file).map_err(|error| {
        Usage(format!(
            "{error:#}; --config-file and LOUDOU_CONFIG_FILE name another config file, or /dev/null for none"
        ))
    })?;
    let mut config = parse(&name, &bytes)?;
    if config.directs_tokens() {
        let mut readable = Vec::new();
        target::check_mode(&name, &metadata, &mut readable)?;
        if config.has_token() {
            warnings.append(&mut readable);
        }
    }
    let folder = file.parent().unwrap_or_else(|| Path::new(""));
    for target in config.targets.values_mut() {
        locate(target, folder, env);
    }
    Ok(config)
}

/// Parses the contents of a config file. `name` is the file's name in error messages.
pub(super) fn parse(name: &str, bytes: &[u8]) -> Result<Config> {
    let text = String::from_utf8_lossy(bytes);
    Config::read(&text).map_err(|problems| {
        let lines = problems
            .iter()
            .take(MAX_PROBLEMS)
            .map(|problem| format!("\n  {name}:{problem}"));
        let more = match problems.len().saturating_sub(MAX_PROBLEMS) {
            0 => String::new(),
            more => format!("\n  and {more} more"),
        };
        let plural = if problems.len() == 1 { "" } else { "s" };
        let text = format!(
            "{} problem{plural} in the config file:{}{more}",
            problems.len(),
            lines.collect::<String>()
        );
        Usage(text).into()
    })
}

/// Applies the settings of the config file. Its `url` is used only if neither the options nor the
/// environment name an Envoy.
pub(super) fn apply(global: &mut Global, env: &Env) -> Result<Vec<String>> {
    let mut warnings = Vec::new();
    let config = read(global.config_file.as_deref(), env, &mut warnings)?;
    let connect = &mut global.connect;
    if connect.url.is_empty() {
        connect.is_default = true;
        connect.url.clone_from(&config.url);
    }
    if connect.url.is_empty() {
        connect.url.push(URL.to_owned());
    }
    connect.named.clone_from(&config.targets);
    global.timeout = global.timeout.or(config.timeout);
    global.read_only |= config.read_only;
    global.config = config;
    Ok(warnings)
}

/// Returns the default path of the config file: `$XDG_CONFIG_HOME/loudou/config.toml`, or
/// `~/.config/loudou/config.toml`.
fn usual(env: &Env) -> Option<PathBuf> {
    let xdg = env.config_home.as_ref().map(PathBuf::from);
    // The XDG specification requires relative paths to be ignored.
    let folder = xdg.filter(|folder| folder.is_absolute());
    let below_home = || Some(Path::new(env.home.as_ref()?).join(".config"));
    Some(folder.or_else(below_home)?.join("loudou/config.toml"))
}

/// Resolves the paths of a target. `~/` stands for the home directory, and other paths are relative
/// to the config file's folder.
fn locate(target: &mut NamedTarget, folder: &Path, env: &Env) {
    let paths = [
        &mut target.token_file,
        &mut target.tls_ca,
        &mut target.tls_cert,
        &mut target.tls_key,
    ];
    for path in paths.into_iter().flatten() {
        *path = match (path.strip_prefix("~"), &env.home) {
            (Ok(rest), Some(home)) => Path::new(home).join(rest),
            _ => folder.join(&*path),
        };
    }
}

/// Returns the appearance of the screen. Options and environment variables take precedence over the
/// config file.
pub(super) fn look(config: &Config, global: &Global, env: &Env, style: Style) -> Appearance {
    Appearance {
        depth: if style.color {
            Depth::of_terminal(env.term.as_deref(), env.color_term.as_deref())
        } else {
            Depth::Plain
        },
        ascii: style.ascii,
        base: global.theme.or(config.theme),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problems_have_a_bound() {
        let lines: Vec<String> = (0..2_000).map(|n| format!("k{n} = \"é\"\n")).collect();
        let text = lines.concat();
        let error = parse("FILE", text.as_bytes())
            .expect_err("unknown")
            .to_string();
        let lines: Vec<&str> = error.lines().collect();
        assert_eq!(lines.len(), MAX_PROBLEMS + 2);
        assert_eq!(lines[0], "2000 problems in the config file:");
        assert!(
            lines[MAX_PROBLEMS].starts_with("  FILE:64:1: k63: unknown field"),
            "{}",
            lines[MAX_PROBLEMS]
        );
        assert_eq!(lines[MAX_PROBLEMS + 1], "  and 1936 more");
    }
}
