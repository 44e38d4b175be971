//! `rail demo`, small: its faults take effect, its audit is clean, and it cleans up.

use std::process::Command;

use serde_json::Value;

#[test]
fn a_small_demo_loses_nothing_and_leaves_nothing() {
    let temp = tempfile::tempdir().expect("a directory");
    let output = Command::new(env!("CARGO_BIN_EXE_rail"))
        .args(["demo", "--orders", "500", "--rate", "100", "-o", "json"])
        .env("TMPDIR", temp.path())
        .output()
        .expect("ran");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    let report: Value = serde_json::from_slice(&output.stdout).expect("json");
    assert_eq!(report["acknowledged"].as_u64(), Some(500), "{report}");
    let finished = report["finished"].as_u64().zip(report["dead_lettered"].as_u64());
    assert_eq!(finished.map(|(finished, dead)| finished + dead), Some(500), "{report}");
    for none in ["lost", "finished_twice", "findings", "invalid"] {
        assert_eq!(report[none].as_array().map(Vec::len), Some(0), "{none}: {report}");
    }
    let faults = &report["faults"];
    assert_eq!((faults["server_kills"].as_u64(), faults["worker_kills"].as_u64()), (Some(4), Some(2)), "{report}");
    assert_eq!(faults["connections_cut"].as_u64(), Some(5), "{report}");
    assert!(report["duplicates_absorbed"].as_u64() >= Some(5), "{report}");
    assert!(report["charges_absorbed"].as_u64() >= Some(2), "{report}");
    let left: Vec<_> = temp.path().read_dir().expect("read").collect();
    assert!(left.is_empty(), "{left:?}");
}
