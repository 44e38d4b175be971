//! The programs that drills need, and the packages of Debian that bring them.

use std::path::PathBuf;

/// A program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tool {
    /// Makes network namespaces and links.
    Ip,
    /// Limits the speed of a link.
    Tc,
    /// Starts a process in namespaces of its own.
    Unshare,
    /// Starts a process in a namespace that is there.
    Nsenter,
    /// Mounts a node's disk.
    Mount,
    /// Makes a file of a size.
    Fallocate,
    /// Stops traffic.
    Nft,
    /// Makes system calls fail, or kills at the n-th.
    Strace,
    /// Makes a file system.
    Mkfs,
    /// Stops a file system.
    Fsfreeze,
}

impl Tool {
    /// What every drill needs.
    pub const ALWAYS: &[Tool] = &[Tool::Ip, Tool::Unshare, Tool::Nsenter, Tool::Mount];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Tool::Ip => "ip",
            Tool::Tc => "tc",
            Tool::Unshare => "unshare",
            Tool::Nsenter => "nsenter",
            Tool::Mount => "mount",
            Tool::Fallocate => "fallocate",
            Tool::Nft => "nft",
            Tool::Strace => "strace",
            Tool::Mkfs => "mkfs.ext4",
            Tool::Fsfreeze => "fsfreeze",
        }
    }

    /// The package of Debian and its kin that brings it.
    pub fn package(self) -> &'static str {
        match self {
            Tool::Ip | Tool::Tc => "iproute2",
            Tool::Unshare | Tool::Nsenter | Tool::Fallocate | Tool::Fsfreeze => "util-linux",
            Tool::Mount => "mount",
            Tool::Nft => "nftables",
            Tool::Strace => "strace",
            Tool::Mkfs => "e2fsprogs",
        }
    }

    /// Whether it is there.
    pub fn is_there(self) -> bool {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path)
            .chain(["/usr/sbin", "/sbin"].map(PathBuf::from))
            .any(|dir| dir.join(self.name()).is_file())
    }
}

/// What to tell somebody whose machine lacks some of `tools`; `None` where it has all of them.
pub fn missing(tools: impl IntoIterator<Item = Tool>) -> Option<String> {
    let mut missing: Vec<Tool> = tools.into_iter().filter(|tool| !tool.is_there()).collect();
    missing.sort_unstable();
    missing.dedup();
    if missing.is_empty() {
        return None;
    }
    let names: Vec<&str> = missing.iter().map(|tool| tool.name()).collect();
    let mut packages: Vec<&str> = missing.iter().map(|tool| tool.package()).collect();
    packages.dedup();
    Some(format!(
        "expected the programs {}, but they are not on PATH\n  Debian, Ubuntu: sudo apt-get install {}",
        names.join(", "),
        packages.join(" ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named_with_its_package() {
        assert_eq!(missing([]), None);
        let tools = [Tool::Strace, Tool::Nft, Tool::Strace];
        let absent: Vec<Tool> = tools.into_iter().filter(|tool| !tool.is_there()).collect();
        match missing(tools) {
            None => assert!(absent.is_empty()),
            Some(text) => {
                assert!(text.starts_with("expected ") && text.contains("apt-get install"), "{text}");
                assert!(
                    absent.iter().all(|tool| text.contains(tool.name()) && text.contains(tool.package())),
                    "{text}"
                );
            }
        }
    }
}
