//! Rules for Rust files: lengths, leftovers, sleeps.

use crate::rust_text::has_word;
use crate::tree::{File, Tree};

/// From here on a file is named as a warning: what is it really about?
const LONG: usize = 700;

/// From here on it is a breach.
const TOO_LONG: usize = 1_000;

/// What work in progress leaves behind.
const LEFTOVERS: [&str; 3] = ["todo!", "unimplemented!", "dbg!"];

/// The one kind of file whose code may pause in tests: it polls a condition with a deadline.
const POLL_FILE: &str = "poll.rs";

/// Files that are getting long.
pub(super) fn long_files(tree: &Tree) -> Vec<String> {
    let lengths = tree.files().map(|(path, file)| (path, length(file)));
    lengths
        .filter(|(_, length)| (LONG + 1..=TOO_LONG).contains(length))
        .map(|(path, length)| {
            format!("{path} has {length} lines without its tests, more than {LONG}: what is it really about?")
        })
        .collect()
}

/// One line for each breach.
pub(super) fn breaches(tree: &Tree) -> Vec<String> {
    let mut breaches = Vec::new();
    for (path, file) in tree.files() {
        let length = length(file);
        if length > TOO_LONG {
            breaches.push(format!(
                "{path}: expected at most {TOO_LONG} lines without tests, but it has {length}; split it"
            ));
        }
        for (number, code, test) in file.code() {
            for word in LEFTOVERS.iter().filter(|word| has_word(code, word)) {
                breaches.push(format!("{path}:{number}: expected finished code, but it has `{word}`"));
            }
            if code.contains("#[ignore") {
                breaches.push(format!(
                    "{path}:{number}: expected every test to run, but one is ignored; mend or delete it"
                ));
            }
            if test && sleeps(code) && !path.ends_with(POLL_FILE) {
                breaches.push(format!(
                    "{path}:{number}: expected a test to poll a condition with a deadline (the pause stands in {POLL_FILE}), but it sleeps"
                ));
            }
        }
    }
    breaches
}

/// Lines that are not a test's.
fn length(file: &File) -> usize {
    file.code().filter(|(_, _, test)| !test).count()
}

/// Whether `code` calls a library's `sleep`: not a method, nor a function with a longer name.
fn sleeps(code: &str) -> bool {
    let is_a_part = |char: char| char.is_alphanumeric() || matches!(char, '_' | '.');
    code.match_indices("sleep(").any(|(start, _)| !code[..start].ends_with(is_a_part))
        || code.contains("time::sleep_until(")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, text: &str) -> Vec<String> {
        breaches(&Tree::of([(path.to_owned(), text.to_owned())]))
    }

    #[test]
    fn leftovers_are_found_in_code_alone() {
        for text in
            ["fn f() { todo!() }", "fn f() { unimplemented!(\"x\") }", "dbg!(x);", "#[ignore]", "#[ignore = \"slow\"]"]
        {
            assert_eq!(check("crates/a/src/lib.rs", text).len(), 1, "{text}");
        }
        assert!(check("crates/a/src/lib.rs", "// todo!\nlet x = \"dbg!\";").is_empty());
    }

    #[test]
    fn tests_do_not_sleep() {
        let sleep = "fn f() { std::thread::sleep(d); }";
        assert_eq!(check("crates/a/tests/b.rs", sleep).len(), 1);
        assert_eq!(check("cluster-tests/src/faults.rs", "tokio::time::sleep(d).await;").len(), 1);
        assert_eq!(check("crates/a/src/lib.rs", &format!("#[cfg(test)]\nmod tests {{ {sleep} }}")).len(), 1);
        assert!(check("crates/a/src/lib.rs", sleep).is_empty());
        assert!(check("cluster-tests/src/poll.rs", sleep).is_empty());
        assert!(
            check("crates/a/tests/b.rs", "fn no_sleep() { oversleep(d); x.sleep(); x.sleep_until(d); }").is_empty()
        );
        assert_eq!(check("crates/a/tests/b.rs", "x.sleep(d); sleep(d);").len(), 1);
        assert_eq!(check("crates/a/tests/b.rs", "tokio::time::sleep_until(d).await;").len(), 1);
    }

    #[test]
    fn lengths_leave_tests_out() {
        let lines = |count: usize| "fn f() {}\n".repeat(count);
        assert!(check("crates/a/src/lib.rs", &lines(1_000)).is_empty());
        assert_eq!(check("crates/a/src/lib.rs", &lines(1_001)).len(), 1);
        let tested = format!("{}#[cfg(test)]\nmod tests {{\n{}}}\n", lines(500), lines(900));
        assert!(check("crates/a/src/lib.rs", &tested).is_empty());
        let tree = |count| Tree::of([("crates/a/src/lib.rs".to_owned(), lines(count))]);
        assert!(long_files(&tree(700)).is_empty());
        assert_eq!(long_files(&tree(701)).len(), 1);
    }
}
