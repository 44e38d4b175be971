//! The seeds of the gate.

use std::process::Command;

/// The seeds that once found something and two hundred more: nothing is broken, a sample is told twice alike, and every
/// fault had its effect.
#[test]
fn two_hundred_seeds_break_nothing() {
    let output = Command::new(env!("CARGO_BIN_EXE_sim")).args(["--seeds", "200"]).output().expect("the simulation");
    let told = String::from_utf8_lossy(&output.stdout);
    println!("{told}");
    assert!(output.status.success(), "{}\n{told}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
    assert!(told.trim_end().ends_with(" passed, 0 failed"), "{told}");
    assert!(told.contains("control: without the seed's random numbers"), "{told}");
}
