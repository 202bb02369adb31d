//! `tidegate serve`: the gateway, until a signal ends it.

use clap::Args;

use super::{ConfigFile, Failure};
use crate::app;
use crate::config::load_file;

/// Flags of `tidegate serve`.
#[derive(Debug, Args)]
pub(super) struct Flags {
    #[command(flatten)]
    pub(super) config: ConfigFile,
}

/// Serves a configuration. SIGTERM or ctrl-c drains and ends with exit code 0.
pub(super) fn serve(flags: &Flags) -> Result<(), Failure> {
    let file = flags.config.path();
    let config = load_file(file).map_err(|problems| {
        let file = file.display();
        Failure::Configuration(format!("{file} cannot be served:\n{problems}"))
    })?;
    app::serve(config, file).map_err(|error| Failure::Run(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_configuration_is_told_before_anything_starts() {
        let flags = Flags {
            config: ConfigFile {
                file: Some("/nowhere/tidegate.toml".into()),
                config: None,
            },
        };
        let failure = serve(&flags).expect_err("no such file");
        let expected = "/nowhere/tidegate.toml cannot be served:\n\
            /nowhere/tidegate.toml cannot be read: No such file or directory (os error 2); \
            config/tidegate.toml explains what to put there";
        assert_eq!(failure.to_string(), expected);
        assert!(matches!(failure, Failure::Configuration(_)), "{failure:?}");
    }
}
