//! `chaos`: drills with real processes. See the library for how they are built.

use std::process::ExitCode;

fn main() -> ExitCode {
    ticketrail_chaos::main(std::env::args().skip(1).collect())
}
