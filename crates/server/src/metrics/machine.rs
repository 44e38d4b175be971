//! This process and its disk, as the operating system tells.

use std::fs;
use std::path::Path;

use super::page::Family;
use crate::storage;

/// Ticks of a processor clock in a second, as `/proc` counts on every Linux that this program runs on.
const TICKS: f64 = 100.0;

/// What `/proc/self` tells; where there is no such place, nothing.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Process {
    resident_bytes: Option<u64>,
    anonymous_bytes: Option<u64>,
    cpu_seconds: Option<f64>,
    threads: Option<u64>,
    open_fds: Option<u64>,
    max_fds: Option<u64>,
}

/// This process and the disk under `dir`. Blocks.
pub(super) fn families(dir: &Path, disk_low_bytes: u64) -> Vec<Family> {
    let process = Process::look();
    let disk = storage::figures(dir, disk_low_bytes);
    vec![
        Family::gauge(
            "ticketrail_disk_free_bytes",
            "What this process may still write to the disk of its data directory.",
            disk.map(|disk| disk.free_bytes),
        ),
        Family::gauge(
            "ticketrail_disk_size_bytes",
            "The size of the disk of the data directory.",
            disk.map(|disk| disk.total_bytes),
        ),
        Family::gauge(
            "ticketrail_disk_low_watermark_bytes",
            "Enqueues are refused while less than this is free.",
            disk.map(|disk| disk.low_watermark_bytes),
        ),
        Family::gauge("process_resident_memory_bytes", "Memory that the process has in use.", process.resident_bytes),
        Family::gauge(
            "ticketrail_process_anonymous_memory_bytes",
            "The part of it that is not a file's: what the process has asked for.",
            process.anonymous_bytes,
        ),
        Family::counter("process_cpu_seconds", "Processor time used, user and system.", process.cpu_seconds),
        Family::gauge("process_threads", "Threads.", process.threads),
        Family::gauge("process_open_fds", "Files and sockets open.", process.open_fds),
        Family::gauge("process_max_fds", "Files and sockets that may be open.", process.max_fds),
    ]
}

impl Process {
    fn look() -> Self {
        let read = |file: &str| fs::read_to_string(format!("/proc/self/{file}")).unwrap_or_default();
        let open = fs::read_dir("/proc/self/fd").ok().map(|entries| entries.count() as u64);
        // The look itself had one open.
        Self {
            open_fds: open.map(|open| open.saturating_sub(1)),
            ..Self::parse(&read("status"), &read("stat"), &read("limits"))
        }
    }

    fn parse(status: &str, stat: &str, limits: &str) -> Self {
        let line = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let number = |text: &str| text.split_whitespace().next()?.parse::<u64>().ok();
        let kib = |name: &str| line(name).and_then(number).map(|kib| kib.saturating_mul(1_024));
        // The name in parentheses may hold anything. User and system time are the 12th and 13th field behind it.
        let cpu_seconds = stat.rsplit_once(')').and_then(|(_, rest)| {
            let mut fields = rest.split_whitespace().skip(11);
            let (user, system): (u64, u64) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
            Some((user.saturating_add(system)) as f64 / TICKS)
        });
        let max_fds = limits.lines().find_map(|line| line.strip_prefix("Max open files").and_then(number));
        Self {
            resident_bytes: kib("VmRSS"),
            anonymous_bytes: kib("RssAnon"),
            cpu_seconds,
            threads: line("Threads").and_then(number),
            open_fds: None,
            max_fds,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_system_writes_is_read() {
        let status = "Name:\trail\nVmRSS:\t  131072 kB\nRssAnon:\t   65536 kB\nThreads:\t17\n";
        let stat = "4711 (a (b) c) S 1 4711 4711 0 -1 4194560 100 0 0 0 250 150 0 0 20 0 17 0 1 2 3";
        let limits = "Limit                     Soft Limit           Hard Limit           Units     \n\
                      Max open files            1024                 524288               files     \n";
        let expected = Process {
            resident_bytes: Some(128 << 20),
            anonymous_bytes: Some(64 << 20),
            cpu_seconds: Some(4.0),
            threads: Some(17),
            open_fds: None,
            max_fds: Some(1_024),
        };
        assert_eq!(Process::parse(status, stat, limits), expected);
        assert_eq!(Process::parse("", "", ""), Process::default());
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn this_process_is_there() {
        let process = Process::look();
        assert!(process.resident_bytes.is_some_and(|bytes| bytes > 1 << 20), "{process:?}");
        assert!(process.open_fds.is_some_and(|open| open >= 3), "{process:?}");
        assert!(process.cpu_seconds.is_some() && process.max_fds.is_some(), "{process:?}");
    }
}
