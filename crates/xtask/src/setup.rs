//! What a build needs from the machine, and how it gets there: a C++ compiler and libclang for RocksDB, make for the server's
//! allocator.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::workspace::Workspace;

/// Something that a build needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Need {
    CppCompiler,
    Libclang,
    Make,
}

impl Need {
    const ALL: [Need; 3] = [Need::CppCompiler, Need::Libclang, Need::Make];

    /// What it is, for a sentence.
    fn what(self) -> &'static str {
        match self {
            Need::CppCompiler => "a C++ compiler (`c++`), which compiles RocksDB",
            Need::Libclang => "libclang with its headers, which reads RocksDB's C interface",
            Need::Make => "`make`, which builds the server's allocator",
        }
    }

    /// The package of Debian and its kin that brings it.
    fn package(self) -> &'static str {
        match self {
            Need::CppCompiler => "g++",
            Need::Libclang => "libclang-dev",
            Need::Make => "make",
        }
    }

    fn is_met(self) -> bool {
        match self {
            Need::CppCompiler => has_cpp_compiler(),
            Need::Libclang => has_libclang(),
            Need::Make => find_program("make").is_some(),
        }
    }
}

/// Installs what is missing where that is possible, and says how long a first build takes.
/// The error says exactly what to install.
pub(crate) fn ensure(workspace: &Workspace) -> Result<(), String> {
    let missing = missing();
    if !missing.is_empty() {
        for need in &missing {
            eprintln!("missing: {}", need.what());
        }
        if is_root() && find_program("apt-get").is_some() {
            install(&missing)?;
        }
        let missing = self::missing();
        if !missing.is_empty() {
            return Err(advice(&missing));
        }
    }
    if !has_built_rocksdb(workspace.target()) {
        eprintln!(
            "A first build compiles RocksDB: about 10 to 20 minutes on two cores, once for each profile. \
             Later builds take seconds."
        );
    }
    Ok(())
}

fn missing() -> Vec<Need> {
    Need::ALL.into_iter().filter(|need| !need.is_met()).collect()
}

/// Refreshes the package lists once and installs the packages of `needs`.
fn install(needs: &[Need]) -> Result<(), String> {
    let packages: Vec<&str> = needs.iter().map(|need| need.package()).collect();
    eprintln!("installing {} with apt-get", packages.join(" and "));
    // A machine that reaches no mirror may have its lists and packages all the same.
    if let Err(problem) = apt_get(&["update", "--quiet"]) {
        eprintln!("{problem}");
    }
    apt_get(&[&["install", "--yes", "--quiet", "--no-install-recommends"], packages.as_slice()].concat())
}

fn apt_get(args: &[&str]) -> Result<(), String> {
    let mut command = Command::new("apt-get");
    // What apt-get says is talk: the data of a command stays alone on stdout.
    let stdout = std::io::stderr();
    command.args(args).env("DEBIAN_FRONTEND", "noninteractive").stdin(Stdio::null()).stdout(stdout);
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("expected `apt-get {}` to succeed, but it ended with {status}", args.join(" "))),
        Err(error) => Err(format!("expected to start apt-get, but it failed: {error}")),
    }
}

/// What to tell somebody whose machine lacks `needs`.
fn advice(needs: &[Need]) -> String {
    let whats: Vec<&str> = needs.iter().map(|need| need.what()).collect();
    let packages: Vec<&str> = needs.iter().map(|need| need.package()).collect();
    let mut text = format!("expected {}, but the machine lacks it.\n", whats.join(", and "));
    text.push_str(&format!("  Debian, Ubuntu: sudo apt-get install {}\n", packages.join(" ")));
    text.push_str("  Fedora: sudo dnf install gcc-c++ clang-devel make    Arch: sudo pacman -S gcc clang make    macOS: xcode-select --install\n");
    text.push_str(
        "  A libclang in an unusual place is found through LIBCLANG_PATH=<its folder>, a compiler through CXX.",
    );
    text
}

/// Whether this process runs as root: the owner of its own entry in /proc says so.
fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|metadata| metadata.uid() == 0)
}

fn has_cpp_compiler() -> bool {
    let named = std::env::var("CXX").ok().filter(|name| !name.is_empty());
    // CXX may hold a wrapper and flags: its first word is the program.
    let program = named.as_deref().and_then(|name| name.split_whitespace().next()).unwrap_or("c++");
    find_program(program).is_some_and(|path| {
        let version = Command::new(path).arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).status();
        version.is_ok_and(|status| status.success())
    })
}

/// The path of `program`, looked up on PATH unless it is a path itself.
fn find_program(program: &str) -> Option<PathBuf> {
    if program.contains('/') {
        return Some(PathBuf::from(program)).filter(|path| path.is_file());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|candidate| candidate.is_file())
}

/// Whether there is a libclang, and the headers that it needs beside the system's own.
fn has_libclang() -> bool {
    // Somebody who names a folder knows what is in it.
    if let Some(path) = std::env::var_os("LIBCLANG_PATH") {
        let path = PathBuf::from(path);
        return path.is_file() || holds_libclang(&path);
    }
    let folders = libclang_folders();
    let has_headers = folders.iter().any(|folder| holds_clang_headers(&folder.join("clang")));
    // Apple keeps both where its own tools find them.
    cfg!(target_os = "macos") || (folders.iter().any(|folder| holds_libclang(folder)) && has_headers)
}

/// Where distributions keep libclang: the folder that llvm-config names, LLVM's own, the system's.
fn libclang_folders() -> Vec<PathBuf> {
    let mut folders = Vec::new();
    let asked = Command::new("llvm-config").arg("--libdir").stdin(Stdio::null()).stderr(Stdio::null()).output();
    if let Ok(output) = asked
        && output.status.success()
    {
        folders.push(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()));
    }
    for parent in ["/usr/lib", "/usr/local"] {
        let Ok(entries) = std::fs::read_dir(parent) else { continue };
        let llvm = entries.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with("llvm"));
        folders.extend(llvm.map(|entry| entry.path().join("lib")));
    }
    let multiarch = format!("/usr/lib/{}-linux-gnu", std::env::consts::ARCH);
    folders.extend([&multiarch, "/usr/lib64", "/usr/lib", "/usr/local/lib64", "/usr/local/lib"].map(PathBuf::from));
    folders
}

fn holds_libclang(folder: &Path) -> bool {
    let Ok(entries) = std::fs::read_dir(folder) else { return false };
    entries.flatten().any(|entry| is_libclang(&entry.file_name().to_string_lossy()))
}

/// `libclang.so`, `libclang-14.so.1`, `libclang.dylib`; not `libclang-cpp.so.14` nor `libclang_rt.asan.so`.
fn is_libclang(file: &str) -> bool {
    let Some(rest) = file.strip_prefix("libclang") else { return false };
    let Some(end) = rest.find(".so").or_else(|| rest.find(".dylib")) else { return false };
    let version = &rest[..end];
    version.is_empty()
        || version.strip_prefix('-').is_some_and(|digits| digits.bytes().all(|b| b.is_ascii_digit() || b == b'.'))
}

/// Whether `folder` (`…/lib/clang`) has a version with the compiler's own headers.
fn holds_clang_headers(folder: &Path) -> bool {
    let Ok(versions) = std::fs::read_dir(folder) else { return false };
    versions.flatten().any(|version| version.path().join("include/stddef.h").is_file())
}

/// Whether a build in the dev profile has left a compiled RocksDB in `target`.
fn has_built_rocksdb(target: &Path) -> bool {
    let Ok(builds) = std::fs::read_dir(target.join("debug/build")) else { return false };
    builds.flatten().any(|build| {
        build.file_name().to_string_lossy().starts_with("librocksdb-sys-")
            && build.path().join("out/librocksdb.a").is_file()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_libclang_is_known_by_its_name() {
        for file in [
            "libclang.so",
            "libclang.so.1",
            "libclang-14.so",
            "libclang-14.so.1",
            "libclang-14.so.14.0.6",
            "libclang.dylib",
        ] {
            assert!(is_libclang(file), "{file}");
        }
        for file in ["libclang-cpp.so.14", "libclang_rt.asan-x86_64.so", "libclang.a", "libc.so", "clang.so"] {
            assert!(!is_libclang(file), "{file}");
        }
    }

    #[test]
    fn the_advice_names_the_packages_to_install() {
        let text = advice(&[Need::CppCompiler, Need::Libclang]);
        assert!(text.contains("apt-get install g++ libclang-dev"), "{text}");
        let text = advice(&[Need::Libclang]);
        assert!(text.contains("apt-get install libclang-dev") && !text.contains("g++ "), "{text}");
    }

    #[test]
    fn programs_are_looked_up_on_the_path() {
        assert!(find_program("sh").is_some_and(|path| path.is_absolute()));
        assert_eq!(find_program("no-such-program-anywhere"), None);
        assert_eq!(find_program("/no/such/program"), None);
    }

    #[test]
    fn a_target_folder_without_rocksdb_means_a_first_build() {
        assert!(!has_built_rocksdb(Path::new("/nonexistent")));
    }
}
