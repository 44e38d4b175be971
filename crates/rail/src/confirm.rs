//! Asks a person before something is done that cannot be undone.

use std::io::{self, BufRead as _, IsTerminal as _};

use clap::Args;

use crate::exit::{Exit, Failure};
use crate::output;

#[derive(Debug, Args)]
pub(crate) struct Sure {
    /// Do not ask
    #[arg(long, short = 'y')]
    pub(crate) yes: bool,
}

/// Asks, unless told not to; without a person to ask it is refused.
pub(crate) fn confirm(sure: &Sure, question: &str) -> Result<(), Failure> {
    if sure.yes {
        return Ok(());
    }
    if !io::stdin().is_terminal() {
        return Err(Failure::usage(
            format!("expected somebody to ask, but stdin is no terminal: {question}"),
            "say --yes if you mean it",
        ));
    }
    output::say(format!("{question} [y/N]"));
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(Failure { exit: Exit::Failed, what: "not done".to_owned(), next: None }),
    }
}
