//! The disk behind its lock: the kernel's requests on one side, commands on the other.

use std::sync::OnceLock;

use fuser::{INodeNo, Notifier};
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::command::{Command, Op};
use crate::disk::{Answer, Disk};

/// The disk, shared.
#[derive(Debug)]
pub(crate) struct Shared {
    disk: Mutex<Disk>,
    /// Told when faults are cleared, and when the power goes.
    cleared: Condvar,
    kernel: OnceLock<Notifier>,
    ended: Mutex<bool>,
    told: Condvar,
}

impl Shared {
    pub(crate) fn new(disk: Disk) -> Self {
        Self {
            disk: Mutex::new(disk),
            cleared: Condvar::new(),
            kernel: OnceLock::new(),
            ended: Mutex::new(false),
            told: Condvar::new(),
        }
    }

    pub(crate) fn mounted(&self, kernel: Notifier) {
        let _ = self.kernel.set(kernel);
    }

    pub(crate) fn disk(&self) -> MutexGuard<'_, Disk> {
        self.disk.lock()
    }

    /// The disk, after the delay that is set for `op`.
    pub(crate) fn enter(&self, op: Op) -> MutexGuard<'_, Disk> {
        let mut disk = self.disk.lock();
        if let Some(pause) = disk.faults.pause(op) {
            disk.note_delay();
            let cleared = disk.faults.cleared;
            self.cleared.wait_while_for(&mut disk, |disk| disk.faults.cleared == cleared && !disk.off, pause);
        }
        disk
    }

    /// The disk is not mounted any more.
    pub(crate) fn end(&self) {
        *self.ended.lock() = true;
        self.told.notify_all();
    }

    pub(crate) fn until_ended(&self) {
        self.told.wait_while(&mut self.ended.lock(), |ended| !*ended);
    }

    /// Does what a command says; returns what there is to tell.
    pub(crate) fn run(&self, command: &Command) -> Answer<String> {
        let mut disk = self.disk();
        match command {
            Command::Cut => {
                disk.off = true;
                self.cleared.notify_all();
                Ok(String::new())
            }
            Command::Crash(crash) => {
                disk.crash(*crash)?;
                Ok(disk.stats().to_string())
            }
            Command::Lie(on) => {
                disk.faults.lie = *on;
                Ok(String::new())
            }
            Command::Eio { op, paths, chance } => {
                disk.faults.fail(*op, paths.clone(), *chance);
                Ok(String::new())
            }
            Command::FsyncGate(paths) => {
                disk.faults.gate(paths.clone());
                Ok(String::new())
            }
            Command::Enospc(bytes) => {
                let (used, _) = disk.room();
                disk.faults.room = Some(used.saturating_add(*bytes));
                Ok(String::new())
            }
            Command::Delay { op, ms } => {
                disk.faults.delay(*op, ms.clone());
                Ok(String::new())
            }
            Command::BitFlip { paths, offset } => {
                let flipped = disk.flip(paths, *offset)?;
                drop(disk);
                if let Some(kernel) = self.kernel.get() {
                    for (ino, _) in &flipped {
                        // What it does not have, it need not forget.
                        let _ = kernel.inval_inode(INodeNo(*ino), 0, 0);
                    }
                }
                Ok(flipped.into_iter().map(|(_, path)| path.display().to_string()).collect::<Vec<_>>().join(" "))
            }
            Command::Stats => Ok(disk.stats().to_string()),
            Command::Clear => {
                disk.faults.clear();
                self.cleared.notify_all();
                Ok(String::new())
            }
        }
    }
}
