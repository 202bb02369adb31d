//! `tidegate serve`: the gateway, until a signal ends it.

use std::path::PathBuf;

use clap::Args;

use super::Failure;
use crate::app;
use crate::config::load_file;

/// Flags of `tidegate serve`.
#[derive(Debug, Args)]
pub(super) struct Flags {
    /// The configuration file; config/tidegate.toml explains every key.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
}

/// Serves a configuration. SIGTERM or ctrl-c drains and ends with exit code 0.
pub(super) fn serve(flags: &Flags) -> Result<(), Failure> {
    let config = load_file(&flags.config).map_err(|problems| {
        let file = flags.config.display();
        Failure::Configuration(format!("{file} cannot be served:\n{problems}"))
    })?;
    app::serve(config, &flags.config).map_err(|error| Failure::Run(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_configuration_is_told_before_anything_starts() {
        let flags = Flags {
            config: "/nowhere/tidegate.toml".into(),
        };
        let failure = serve(&flags).expect_err("no such file");
        let expected = "/nowhere/tidegate.toml cannot be served:\n\
            /nowhere/tidegate.toml cannot be read: No such file or directory (os error 2)";
        assert_eq!(failure.to_string(), expected);
        assert!(matches!(failure, Failure::Configuration(_)), "{failure:?}");
    }
}
