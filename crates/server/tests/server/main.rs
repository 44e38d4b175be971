//! One server in this process, spoken to over gRPC as any client would.

mod admin;
mod commits;
mod consume;
mod exposition;
mod harness;
mod http;
mod lifecycle;
mod namespaces;
mod poll;
mod produce;
mod queue;
mod refusals;
mod sessions;
mod tokens;
mod whole;
