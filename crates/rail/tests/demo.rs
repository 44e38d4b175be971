//! `rail demo`, small: its faults take effect, its audit is clean, and it cleans up.

use std::process::Command;

use serde_json::Value;

#[test]
fn a_small_demo_loses_nothing_and_leaves_nothing() {
    let temp = tempfile::tempdir().expect("a directory");
    let output = Command::new(env!("CARGO_BIN_EXE_rail"))
        .args(["demo", "--orders", "500", "--rate", "25", "--retention", "3s", "-o", "json"])
        .env("TMPDIR", temp.path())
        .output()
        .expect("ran");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}\n{}", String::from_utf8_lossy(&output.stdout));
    let report: Value = serde_json::from_slice(&output.stdout).expect("json");
    for none in ["lost", "finished_twice", "findings", "invalid"] {
        assert_eq!(report[none].as_array().map(Vec::len), Some(0), "{none}: {report}");
    }
    let ends = [(500, 498, 2), (498, 497, 1), (497, 495, 2), (495, 493, 2)];
    let stages = report["stages"].as_array().expect("the stages");
    assert_eq!(stages.len(), ends.len(), "{report}");
    for (stage, (acknowledged, finished, dead_lettered)) in stages.iter().zip(ends) {
        assert_eq!(stage["acknowledged"], acknowledged, "{report}");
        assert_eq!(stage["finished"], finished, "{report}");
        assert_eq!(stage["dead_lettered"], dead_lettered, "{report}");
        for none in ["acked_without_child", "child_without_ack"] {
            assert_eq!(stage[none].as_array().map(Vec::len), Some(0), "{none}: {report}");
        }
    }
    assert!(stages[0]["duplicates_absorbed"].as_u64() >= Some(5), "{report}");
    assert!(report["charges_absorbed"].as_u64() >= Some(2), "{report}");

    let faults = &report["faults"];
    let kills = faults["leader_kills"].as_array().expect("kills");
    assert_eq!((kills.len(), faults["worker_kills"].as_u64()), (4, Some(3)), "{report}");
    for kill in kills {
        assert!(kill["new_term"].as_u64() > kill["old_term"].as_u64(), "{report}");
        assert!(kill["outage_ms"].as_u64() <= faults["longest_write_outage_ms"].as_u64(), "{report}");
        assert_ne!(kill["node"], kill["next"], "{report}");
    }
    assert_eq!(faults["connections_cut"], 5, "{report}");
    let absence = &faults["absence"];
    assert!(absence["snapshots_installed"].as_u64() >= Some(1), "{report}");
    assert!(absence["purged"].as_u64() > absence["log_end"].as_u64(), "{report}");

    let left: Vec<_> = temp.path().read_dir().expect("read").collect();
    assert!(left.is_empty(), "{left:?}");
}
