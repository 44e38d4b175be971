//! The SDK's streams against a small server of these tests, and against connections that are cut.

mod consuming;
mod leader;
mod poll;
mod producing;
mod proxy;
mod server;
mod status;
mod working;
