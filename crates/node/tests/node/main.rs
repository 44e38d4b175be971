//! Nodes with a real openraft inside, on the stores in memory: of one voter, and of several.

mod cluster;
mod commits;
mod forwarding;
mod hours;
mod members;
mod poll;
mod polls;
mod queues;
mod refusals;
mod restarts;
mod rig;
mod time;
