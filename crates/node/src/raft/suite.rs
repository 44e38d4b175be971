//! openraft's own storage tests, on the stores in memory and on RocksDB.

use std::sync::Arc;

use openraft::StorageError;
use openraft::testing::log::{StoreBuilder, Suite};
use ticketrail_core::GroupId;
use ticketrail_storage::log::RaftLog;
use ticketrail_storage::mem::{MemLog, MemState};
use ticketrail_storage::state::StateStore;

use super::log::GroupLog;
use super::machine::Machine;
use super::runtime::Production;
use super::types::Types;
use crate::work::Work;

type Config = Types<Production>;
type Stores<L, S> = (GroupLog<L>, Machine<Production, S>);

fn adapters<L: RaftLog, S: StateStore>(log: Arc<L>, state: Arc<S>, work: Work) -> Stores<L, S> {
    let machine = Machine::new(state, Arc::default(), Arc::default(), work).expect("a thread");
    (GroupLog::new(log, GroupId::QUEUES), machine)
}

struct InMemory(Work);

impl StoreBuilder<Config, GroupLog<MemLog>, Machine<Production, MemState>> for InMemory {
    async fn build(&self) -> Result<((), GroupLog<MemLog>, Machine<Production, MemState>), StorageError<Config>> {
        let (log, machine) = adapters(Arc::new(MemLog::new()), Arc::new(MemState::new()), self.0);
        Ok(((), log, machine))
    }
}

#[tokio::test]
async fn openrafts_suite_passes_in_memory() {
    for work in [Work::Inline, Work::Threads] {
        let passed = Suite::test_all(InMemory(work)).await;
        assert!(passed.is_ok(), "{passed:?}");
    }
}

#[cfg(feature = "rocksdb")]
mod rocksdb {
    use tempfile::TempDir;
    use ticketrail_storage::rocks::{LogOptions, RocksLog, RocksState, StateOptions};

    use super::*;

    struct OnRocksDb;

    impl StoreBuilder<Config, GroupLog<RocksLog>, Machine<Production, RocksState>, TempDir> for OnRocksDb {
        async fn build(
            &self,
        ) -> Result<(TempDir, GroupLog<RocksLog>, Machine<Production, RocksState>), StorageError<Config>> {
            let dir = TempDir::new().expect("a temporary directory");
            let options = LogOptions::new(dir.path().join("raft"), dir.path().join("WATERMARK"));
            let log = RocksLog::open(options).expect("a new log");
            let options = StateOptions::new(dir.path().join("sm"), GroupId::QUEUES);
            let state = RocksState::open(options).expect("a new state");
            let (log, machine) = adapters(Arc::new(log), Arc::new(state), Work::Threads);
            Ok((dir, log, machine))
        }
    }

    #[tokio::test]
    async fn openrafts_suite_passes_on_rocksdb() {
        let passed = Suite::test_all(OnRocksDb).await;
        assert!(passed.is_ok(), "{passed:?}");
    }
}
