//! The arguments that `cargo test -- …` passes.

/// Arguments of a test binary that matter here. The standard harness has more.
pub(crate) struct Arguments {
    pub(crate) list: bool,
    exact: bool,
    ignored: bool,
    names: Vec<String>,
    skip: Vec<String>,
}

/// Options of the usual harness that take the argument after them as their value.
const WITH_VALUE: [&str; 6] = [
    "--test-threads",
    "--color",
    "--format",
    "--logfile",
    "--shuffle-seed",
    "-Z",
];

impl Arguments {
    pub(crate) fn new(mut given: impl Iterator<Item = String>) -> Self {
        let mut arguments = Self {
            list: false,
            exact: false,
            ignored: false,
            names: Vec::new(),
            skip: Vec::new(),
        };
        while let Some(argument) = given.next() {
            match argument.as_str() {
                "--list" => arguments.list = true,
                "--exact" => arguments.exact = true,
                "--ignored" => arguments.ignored = true,
                "--skip" => arguments.skip.extend(given.next()),
                option if WITH_VALUE.contains(&option) => drop(given.next()),
                option if option.starts_with('-') => {
                    let skip = option.strip_prefix("--skip=");
                    arguments.skip.extend(skip.map(String::from));
                }
                _ => arguments.names.push(argument),
            }
        }
        arguments
    }

    /// Returns true if the test with this name should run. No test is ignored.
    pub(crate) fn choose(&self, name: &str) -> bool {
        let matches = |pattern: &String| {
            if self.exact {
                name == pattern
            } else {
                name.contains(pattern.as_str())
            }
        };
        let named = self.names.is_empty() || self.names.iter().any(matches);
        named && !self.ignored && !self.skip.iter().any(matches)
    }
}
