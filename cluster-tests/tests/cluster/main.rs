//! Clusters of `rail serve` processes: crashes, failover, restarts, members that come and go, disks that must not be used.
//!
//! How large each test is, variables say: see [`ticketrail_cluster_tests::size`].

mod commits;
mod crashes;
mod disks;
mod failover;
mod figures;
mod members;
mod pods;
mod power;
mod rolling;
mod snapshots;
mod turns;
