//! Wire to domain and back. Every limit is checked here, at the edge: a field that passes one is refused with its
//! name, the limit and the value. Nothing is cut.
//!
//! - [`field`]: names, texts, times, counts;
//! - [`message`]: messages in, messages out;
//! - [`receive`], [`settle`]: what workers say; [`cancel`]: what is changed before anybody receives it;
//!   [`commit`]: what stands or falls together;
//! - [`settings`]: queues; [`node`]: a node.

pub(crate) mod cancel;
pub(crate) mod commit;
pub(crate) mod field;
pub(crate) mod message;
pub(crate) mod node;
pub(crate) mod receive;
pub(crate) mod settings;
pub(crate) mod settle;

pub(crate) use field::duration;
