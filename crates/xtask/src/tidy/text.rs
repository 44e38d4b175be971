//! Rules for all texts: paths of one machine, whitespace, places of files.

use crate::tree::Tree;

/// Paths that exist on one machine alone. Put together here, so that this file holds none itself.
const MACHINE_PATHS: [&str; 4] =
    [concat!("/ho", "me/"), concat!("/ro", "ot/"), concat!("/wo", "rk/"), concat!("/Us", "ers/")];

/// The endings of files that are written by hand.
const BY_HAND: [&str; 8] = [".rs", ".md", ".toml", ".proto", ".sh", ".yml", ".yaml", "/run"];

/// What may stand at the top, beside folders: what tools expect there.
const TOP_FILES: [&str; 10] = [
    "Cargo.toml",
    "Cargo.lock",
    "README.md",
    "LICENSE",
    "CHANGELOG.md",
    "rust-toolchain.toml",
    "rustfmt.toml",
    "clippy.toml",
    "deny.toml",
    ".gitignore",
];

/// The folders at the top.
const TOP_FOLDERS: [&str; 7] = ["proto", "docs", "crates", "cluster-tests", "deploy", ".cargo", ".ci"];

/// One line for each breach.
pub(super) fn breaches(tree: &Tree) -> Vec<String> {
    let mut breaches = Vec::new();
    for (path, file) in tree.files() {
        if path.ends_with(".proto") && !path.starts_with("proto/") {
            breaches.push(format!("{path}: expected .proto files below proto/, but this one is not"));
        }
        let known = match path.split_once('/') {
            Some((folder, _)) => TOP_FOLDERS.contains(&folder),
            None => TOP_FILES.contains(&path),
        };
        if !known {
            breaches.push(format!(
                "{path}: expected nothing new at the top of the tree, but this is; see docs/ARCHITECTURE.md"
            ));
        }
        for (index, line) in file.text.lines().enumerate() {
            let number = index + 1;
            for machine in MACHINE_PATHS.iter().filter(|machine| names_path(line, machine)) {
                breaches.push(format!("{path}:{number}: expected no path of one machine, but it has `{machine}`"));
            }
            if is_by_hand(path) && line.ends_with([' ', '\t']) {
                breaches.push(format!("{path}:{number}: expected no whitespace at the end of the line, but there is"));
            }
        }
        if is_by_hand(path) && !file.text.is_empty() && !file.text.ends_with('\n') {
            breaches.push(format!("{path}: expected a line end at the end of the file, but there is none"));
        }
    }
    breaches
}

fn is_by_hand(path: &str) -> bool {
    BY_HAND.iter().any(|ending| path.ends_with(ending))
}

/// Whether `line` has `path` as the beginning of an absolute path, not as a part of a longer one.
fn names_path(line: &str, path: &str) -> bool {
    line.match_indices(path).any(|(start, _)| {
        let before = line[..start].chars().next_back();
        !before.is_some_and(|char| char.is_alphanumeric() || matches!(char, '_' | '-' | '.' | '/' | '}' | '>' | ')'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, text: &str) -> Vec<String> {
        breaches(&Tree::of([(path.to_owned(), text.to_owned())]))
    }

    #[test]
    fn paths_of_one_machine_are_found() {
        for machine in MACHINE_PATHS {
            assert_eq!(check("docs/a.md", &format!("see {machine}me/x\n")).len(), 1, "{machine}");
            assert!(check("docs/a.md", &format!("see docs{machine}x and $HOME/x\n")).is_empty(), "{machine}");
        }
    }

    #[test]
    fn whitespace_at_line_ends_is_found() {
        assert_eq!(check("crates/a/src/lib.rs", "fn f() {} \n").len(), 1);
        assert_eq!(check("docs/a.md", "text\t\n").len(), 1);
        assert_eq!(check("docs/a.md", "text").len(), 1);
        assert!(check("crates/core/tests/scripts/ack", "> ack \n").is_empty());
    }

    #[test]
    fn files_stand_in_their_place() {
        assert_eq!(check("crates/proto/a.proto", "syntax = \"proto3\";\n").len(), 1);
        assert!(check("proto/ticketrail/v1/a.proto", "syntax = \"proto3\";\n").is_empty());
        assert_eq!(check("notes.md", "").len(), 1);
        assert_eq!(check("scratch/a.txt", "").len(), 1);
    }
}
