//! What a node's Raft runs on.

use openraft::AsyncRuntime;
use openraft_rt::deterministic_rng::DeterministicRng;
use openraft_rt_tokio::TokioRuntime;

/// What a node's Raft runs on: tokio in production, and in a simulation tokio with random numbers that follow from a
/// seed.
pub trait Runtime: AsyncRuntime {
    /// Runs `future` where Raft may draw random numbers, which follow from `seed`; production needs none and does not
    /// ask for it.
    fn enter<F>(seed: impl FnOnce() -> u64, future: F) -> impl Future<Output = F::Output> + Send
    where
        F: Future + Send;
}

/// The runtime of production.
pub type Production = TokioRuntime;

/// The runtime of a simulation: the random numbers of a task follow from the seed of the task that began it.
pub type Simulated = DeterministicRng<TokioRuntime>;

impl Runtime for Production {
    fn enter<F>(_seed: impl FnOnce() -> u64, future: F) -> impl Future<Output = F::Output> + Send
    where
        F: Future + Send,
    {
        future
    }
}

impl Runtime for Simulated {
    fn enter<F>(seed: impl FnOnce() -> u64, future: F) -> impl Future<Output = F::Output> + Send
    where
        F: Future + Send,
    {
        Simulated::scope(seed(), future)
    }
}
