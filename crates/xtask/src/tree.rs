//! The files of the tree, as text.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::rust_text::{RustText, take_apart};

/// Folders that hold no text of ours.
const SKIPPED_FOLDERS: [&str; 4] = [".git", "target", "node_modules", "ticketrail-data"];

/// All files below the root. Paths are relative to it and joined with `/`.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    files: BTreeMap<String, File>,
}

/// One file.
#[derive(Debug)]
pub(crate) struct File {
    /// Its text; empty where it is none.
    pub(crate) text: String,
    /// Its parts, for a Rust file.
    pub(crate) rust: Option<RustText>,
    /// Whether all of it is compiled for tests only.
    pub(crate) test: bool,
}

impl File {
    /// Its lines of code with their numbers from 1, and whether each is a test's.
    pub(crate) fn code(&self) -> impl Iterator<Item = (usize, &str, bool)> {
        let lines = self.rust.iter().flat_map(|rust| rust.lines.iter().enumerate());
        lines.map(|(index, line)| (index + 1, line.code.as_str(), self.test || line.test))
    }
}

impl Tree {
    /// Reads what is below `root`.
    pub(crate) fn read(root: &Path) -> Result<Tree, String> {
        let mut texts = Vec::new();
        let mut folders = vec![(root.to_path_buf(), String::new())];
        while let Some((folder, prefix)) = folders.pop() {
            let failed = |error| format!("expected to read {}, but {error}", folder.display());
            for entry in std::fs::read_dir(&folder).map_err(failed)? {
                let entry = entry.map_err(failed)?;
                let name = entry.file_name().to_string_lossy().into_owned();
                let path = format!("{prefix}{name}");
                let kind = entry.file_type().map_err(failed)?;
                if kind.is_dir() {
                    if !SKIPPED_FOLDERS.contains(&name.as_str()) {
                        folders.push((entry.path(), format!("{path}/")));
                    }
                } else if kind.is_file() && name != ".git" {
                    let bytes = std::fs::read(entry.path()).map_err(failed)?;
                    texts.push((path, String::from_utf8(bytes).unwrap_or_default()));
                }
            }
        }
        Ok(Tree::of(texts))
    }

    /// A tree of these paths and texts.
    pub(crate) fn of(texts: impl IntoIterator<Item = (String, String)>) -> Tree {
        let mut files: BTreeMap<String, File> = texts
            .into_iter()
            .map(|(path, text)| {
                let rust = path.ends_with(".rs").then(|| take_apart(&text));
                let test = is_test_path(&path);
                (path, File { text, rust, test })
            })
            .collect();
        let test_modules: BTreeSet<String> = files
            .iter()
            .flat_map(|(path, file)| {
                let modules = file.rust.iter().flat_map(|rust| &rust.test_modules);
                modules.map(|module| format!("{}{module}", modules_folder(path)))
            })
            .collect();
        for (path, file) in &mut files {
            let of_a_test_module = |module: &String| {
                path.strip_prefix(module.as_str()).is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
            };
            file.test |= test_modules.iter().any(of_a_test_module);
        }
        Tree { files }
    }

    /// The files in the order of their paths.
    pub(crate) fn files(&self) -> impl Iterator<Item = (&str, &File)> {
        self.files.iter().map(|(path, file)| (path.as_str(), file))
    }

    /// The file at `path`.
    pub(crate) fn file(&self, path: &str) -> Option<&File> {
        self.files.get(path)
    }

    /// Whether there is a file or folder at `path`.
    pub(crate) fn has(&self, path: &str) -> bool {
        let folder = format!("{}/", path.trim_end_matches('/'));
        path.is_empty() || self.files.contains_key(path) || self.files.keys().any(|file| file.starts_with(&folder))
    }
}

/// Whether a file is a test's by its place: `tests/`, `benches/`, `tests.rs`, and the whole of `cluster-tests`.
fn is_test_path(path: &str) -> bool {
    path.starts_with("cluster-tests/")
        || path.split('/').any(|part| part == "tests" || part == "benches")
        || path.ends_with("/tests.rs")
}

/// The folder, with its slash, of the modules that the file at `path` declares.
fn modules_folder(path: &str) -> String {
    let (folder, name) = path.rsplit_once('/').map_or(("", path), |(folder, name)| (folder, name));
    let folder = if folder.is_empty() { String::new() } else { format!("{folder}/") };
    match name {
        "lib.rs" | "main.rs" | "mod.rs" => folder,
        _ => format!("{folder}{}/", name.trim_end_matches(".rs")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> Tree {
        Tree::of(files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())))
    }

    #[test]
    fn a_file_of_a_test_module_is_a_test() {
        let tree = tree(&[
            ("crates/core/src/lib.rs", "#[cfg(test)]\nmod model;\nmod queue;\n"),
            ("crates/core/src/model.rs", ""),
            ("crates/core/src/model/deep.rs", ""),
            ("crates/core/src/model_of.rs", ""),
            ("crates/core/src/queue.rs", "#[cfg(test)]\nmod laws;\n"),
            ("crates/core/src/queue/laws.rs", ""),
            ("crates/core/src/queue/ack.rs", ""),
            ("crates/core/tests/scripts.rs", ""),
        ]);
        let tests: Vec<&str> = tree.files().filter(|(_, file)| file.test).map(|(path, _)| path).collect();
        assert_eq!(
            tests,
            [
                "crates/core/src/model.rs",
                "crates/core/src/model/deep.rs",
                "crates/core/src/queue/laws.rs",
                "crates/core/tests/scripts.rs"
            ]
        );
    }

    #[test]
    fn folders_exist_through_their_files() {
        let tree = tree(&[("docs/adr/README.md", "")]);
        assert!(tree.has("docs") && tree.has("docs/adr/") && tree.has("docs/adr/README.md"));
        assert!(!tree.has("doc") && !tree.has("docs/adr/README"));
    }
}
