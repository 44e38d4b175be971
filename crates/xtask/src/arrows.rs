//! `cargo xtask arrows`: which crate may use what.
//!
//! - [`table`]: the rules for crates; [`graph`]: who depends on whom, and what breaks those rules;
//! - [`places`]: the rules for code: where a library may be named, who may read the clock.

mod graph;
mod places;
mod table;

use std::process::ExitCode;

use crate::tree::Tree;
use crate::workspace::Workspace;

/// Prints what breaks a rule; exit code 1 if anything does.
pub(crate) fn run(workspace: &Workspace) -> Result<ExitCode, String> {
    Ok(match check(workspace) {
        Ok(()) => {
            println!("arrows: fine");
            ExitCode::SUCCESS
        }
        Err(problems) => {
            println!("{problems}");
            ExitCode::FAILURE
        }
    })
}

/// All rules; the error holds one line for each breach.
pub(crate) fn check(workspace: &Workspace) -> Result<(), String> {
    let graph = graph::Graph::of(&workspace.metadata()?);
    let tree = Tree::read(workspace.root())?;
    let mut breaches = graph.breaches();
    breaches.extend(places::breaches(&tree));
    if breaches.is_empty() { Ok(()) } else { Err(breaches.join("\n")) }
}
