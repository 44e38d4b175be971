//! A node of one voter, with a real openraft inside, on the stores in memory.

mod hours;
mod poll;
mod polls;
mod queues;
mod refusals;
mod restarts;
mod rig;
mod time;
