//! The samples are what cargo 1.95 printed for a crate with such tests, without the stack of the panic.

use super::*;

/// A unit test that fails, one that skips, a test program that aborts, one that is fine, and a doc test.
const MIXED: &str = include_str!("samples/mixed.txt");

/// The same without what fails.
const GREEN: &str = include_str!("samples/green.txt");

/// The lines shown and the tally of `output`.
fn read(output: &str, strict: bool, fine: bool) -> (Vec<String>, Tally) {
    let mut reader = Reader::new(strict);
    let shown = output.lines().flat_map(|line| reader.line(line)).collect();
    (shown, reader.finish(fine))
}

#[test]
fn results_of_all_test_programs_are_summed() {
    let (_, tally) = read(GREEN, false, true);
    // 3 unit tests, 2 integration tests, 1 doc test; two of them skip.
    assert_eq!(tally, Tally { passed: 4, failed: 0, skipped: 2 });
}

#[test]
fn failures_and_programs_that_died_are_counted() {
    let (_, tally) = read(MIXED, false, false);
    // `fails` failed and the program `dies` gave no result.
    assert_eq!(tally, Tally { passed: 4, failed: 2, skipped: 2 });
}

#[test]
fn under_ci_a_skip_is_a_failure() {
    let (_, tally) = read(GREEN, true, true);
    assert_eq!(tally, Tally { passed: 4, failed: 2, skipped: 2 });
}

#[test]
fn what_passing_tests_print_is_shown_only_where_they_skip() {
    let (shown, _) = read(MIXED, false, false);
    let shown: Vec<&str> = shown.iter().map(String::as_str).collect();
    assert_eq!(shown.iter().filter(|line| **line == "skipped: needs root").count(), 2);
    assert!(shown.contains(&"---- netns stdout ----") && shown.contains(&"setting up"), "{shown:#?}");
    assert!(!shown.contains(&"seed = 7") && !shown.contains(&"successes:"), "{shown:#?}");
    assert!(shown.contains(&"---- tests::fails stdout ----"), "what a failing test prints is shown: {shown:#?}");
    assert!(shown.contains(&"test tests::talks ... ok"), "{shown:#?}");
}

#[test]
fn a_skip_printed_by_a_failing_test_is_none() {
    let (_, tally) = read(MIXED, true, false);
    assert_eq!(tally.skipped, 2);
}

#[test]
fn a_build_that_failed_is_one_failure() {
    assert_eq!(read("", false, false).1, Tally { passed: 0, failed: 1, skipped: 0 });
}

#[test]
fn a_run_without_tests_is_a_failure() {
    let empty = "running 0 tests\n\ntest result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out";
    assert_eq!(read(empty, false, true).1, Tally { passed: 0, failed: 1, skipped: 0 });
}

#[test]
fn a_program_that_dies_last_is_counted() {
    assert_eq!(read("running 2 tests", false, false).1, Tally { passed: 0, failed: 1, skipped: 0 });
}

#[test]
fn a_skip_outside_of_the_capture_is_counted() {
    let output = "running 1 test\nskipped: needs root\ntest a ... ok\n\
                  test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s";
    assert_eq!(read(output, true, true).1, Tally { passed: 0, failed: 1, skipped: 1 });
}

#[test]
fn colours_do_not_matter() {
    let coloured =
        "test result: \u{1b}[32mok\u{1b}(B\u{1b}[m. 5 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out";
    assert_eq!(result_counts(&without_colours(coloured)), Some((5, 1)));
}

#[test]
fn only_a_whole_result_is_a_result() {
    for line in [
        "test result: ok",
        "test result: ok. many passed; 0 failed; 0 ignored",
        "the test result: ok. 1 passed; 0 failed; 0 ignored",
    ] {
        assert_eq!(result_counts(line), None, "{line}");
    }
    assert!(is_start("running 1 test") && is_start("running 12 tests"));
    assert!(!is_start("running all tests") && !is_start("running  tests"));
}
