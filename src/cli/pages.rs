//! `tidegate completions` and `tidegate man`: what a shell and `man` know of the
//! command line.
//!
//! Both are made from the flags themselves, so they name every command there is.
//! Decides nothing; prints.

use std::io::Write;

use clap::{Args, Command};
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use super::Failure;

/// Flags of `tidegate completions`.
#[derive(Debug, Args)]
pub(super) struct CompletionsFlags {
    /// The shell that is to complete.
    #[arg(value_enum)]
    shell: Shell,
}

/// Flags of `tidegate man`.
#[derive(Debug, Args)]
pub(super) struct ManFlags {
    /// The command the page is about; without one, all of tidegate.
    #[arg(value_name = "COMMAND")]
    command: Option<String>,
}

/// What ends the gateway's life, and what tells of it.
const SIGNALS: [(&str, &str); 3] = [
    (
        "SIGTERM, SIGINT",
        "Drain: take nothing new, finish what runs, end with exit code 0. A second one cuts at once.",
    ),
    (
        "SIGHUP",
        "Read the configuration, the tokenizers and the templates anew.",
    ),
    ("SIGKILL", "End at once; clients see their connections cut."),
];

const EXITS: [(&str, &str); 3] = [
    ("0", "It went well."),
    ("1", "The run failed."),
    ("2", "The command line or the configuration is wrong."),
];

/// What serve looks at besides its configuration.
const ENVIRONMENT: [(&str, &str); 3] = [
    (
        "NOTIFY_SOCKET, WATCHDOG_USEC",
        "Set by systemd: serve tells it when it is ready, reloads, stops and is alive.",
    ),
    (
        "LISTEN_FDS, LISTEN_FDNAMES",
        "Set by systemd: the sockets named public and admin are served in place of server.listen and admin.listen.",
    ),
    (
        "the names after token_env, api_key_env and secret_env",
        "Secrets that the configuration names.",
    ),
];

/// Prints the completions of `command` for a shell.
///
/// # Errors
/// They cannot be written.
pub(super) fn completions(
    flags: &CompletionsFlags,
    mut command: Command,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let mut script = Vec::new();
    let name = command.get_name().to_owned();
    clap_complete::generate(flags.shell, &mut command, name, &mut script);
    Ok(out.write_all(&script)?)
}

/// Prints the manual page of `command` or of one of its own commands.
///
/// # Errors
/// There is no such command, or the page cannot be written.
pub(super) fn man(
    flags: &ManFlags,
    mut command: Command,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    // Gives each command its full name.
    command.build();
    let Some(wanted) = &flags.command else {
        Man::new(command).render(out)?;
        return Ok(rest().to_writer(out)?);
    };
    let names: Vec<String> = names(&command).collect();
    let Some(found) = command.find_subcommand(wanted) else {
        let known = names.join(", ");
        let problem = format!("there is no command {wanted:?}; there are {known}");
        return Err(Failure::Configuration(problem));
    };
    Ok(Man::new(found.clone()).render(out)?)
}

/// The commands of `command`, the built-in help left out.
fn names(command: &Command) -> impl Iterator<Item = String> + '_ {
    let names = command.get_subcommands().map(|c| c.get_name().to_owned());
    names.filter(|name| name != "help")
}

/// What is true of all commands.
fn rest() -> Roff {
    let mut page = Roff::new();
    let sections: [(&str, &[(&str, &str)]); 3] = [
        ("SIGNALS", &SIGNALS),
        ("ENVIRONMENT", &ENVIRONMENT),
        ("EXIT STATUS", &EXITS),
    ];
    for (title, entries) in sections {
        page.control("SH", [title]);
        for (term, meaning) in entries {
            page.control("TP", []);
            page.text([bold(*term)]);
            page.text([roman(*meaning)]);
        }
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::command;

    fn completions_of(shell: Shell) -> String {
        let mut out = Vec::new();
        completions(&CompletionsFlags { shell }, command(), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn page_of(wanted: Option<&str>) -> Result<String, Failure> {
        let flags = ManFlags {
            command: wanted.map(str::to_owned),
        };
        let mut out = Vec::new();
        man(&flags, command(), &mut out)?;
        Ok(String::from_utf8(out).unwrap())
    }

    #[test]
    fn every_shell_completes_every_command() {
        let command = command();
        let shells = [
            Shell::Bash,
            Shell::Elvish,
            Shell::Fish,
            Shell::PowerShell,
            Shell::Zsh,
        ];
        assert!(names(&command).count() >= 7, "{command:?}");
        for shell in shells {
            let script = completions_of(shell);
            for name in names(&command) {
                assert!(script.contains(&name), "{shell}: {name}");
            }
            assert!(script.contains("config"), "{shell}");
        }
    }

    #[test]
    fn the_page_names_every_command_and_each_has_a_page_of_its_own() {
        let all = page_of(None).unwrap();
        for name in names(&command()) {
            assert!(all.contains(&format!("tidegate\\-{name}(1)")), "{name}");
            let own = page_of(Some(&name)).unwrap();
            assert!(own.contains(&format!("\\fBtidegate {name}\\fR")), "{own}");
        }
        for section in ["SIGNALS", "ENVIRONMENT", "\"EXIT STATUS\""] {
            assert!(all.contains(&format!(".SH {section}\n")), "{section}");
        }
    }

    #[test]
    fn a_page_of_an_unknown_command_tells_the_known_ones() {
        let failure = page_of(Some("sevre")).unwrap_err();
        assert!(matches!(failure, Failure::Configuration(_)), "{failure:?}");
        let told = failure.to_string();
        assert!(
            told.starts_with("there is no command \"sevre\"; there are "),
            "{told}"
        );
        assert!(told.contains("serve, check"), "{told}");
    }
}
