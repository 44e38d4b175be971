//! Judges the history of a test run.

fn main() {
    eprintln!("check-history: the checks are not here yet");
    std::process::exit(2);
}
