//! One replica of Ticketrail as a library. A map of the house:
//!
//! - [`call`]: what callers hand in and get back.

pub mod call;
