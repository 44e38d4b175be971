//! `cargo xtask tidy`: house rules for the text of the tree.
//!
//! - [`rust`]: lengths, leftovers, sleeps; [`text`]: paths of one machine, whitespace, places of files;
//! - [`markdown`]: links, and the index of decision records.

mod markdown;
mod rust;
mod text;

use std::process::ExitCode;

use crate::tree::Tree;
use crate::workspace::Workspace;

/// Prints warnings and breaches; exit code 1 if there is a breach.
pub(crate) fn run(workspace: &Workspace) -> Result<ExitCode, String> {
    Ok(match check(workspace) {
        Ok(()) => {
            println!("tidy: fine");
            ExitCode::SUCCESS
        }
        Err(problems) => {
            println!("{problems}");
            ExitCode::FAILURE
        }
    })
}

/// All rules; the error holds one line for each breach. Warnings go to stderr.
pub(crate) fn check(workspace: &Workspace) -> Result<(), String> {
    let tree = Tree::read(workspace.root())?;
    for warning in rust::long_files(&tree) {
        eprintln!("warning: {warning}");
    }
    let breaches = [rust::breaches(&tree), text::breaches(&tree), markdown::breaches(&tree)].concat();
    if breaches.is_empty() { Ok(()) } else { Err(breaches.join("\n")) }
}
