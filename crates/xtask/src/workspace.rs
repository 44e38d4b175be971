//! Where things are, and how cargo is called.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use cargo_metadata::{CargoOpt, Message, Metadata, MetadataCommand};

/// The environment variable through which tests get the path of a built `rail`.
pub(crate) const RAIL_BIN: &str = "TICKETRAIL_TEST_RAIL_BIN";

/// What stands first on PATH where it exists: compilers that remember what they compiled.
const CCACHE: &str = "/usr/lib/ccache";

/// The workspace that `cargo xtask` was called in.
#[derive(Debug)]
pub(crate) struct Workspace {
    root: PathBuf,
    target: PathBuf,
}

/// The profile that a build uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Profile {
    Dev,
    Release,
}

impl Workspace {
    /// Finds the workspace around this program's own manifest.
    pub(crate) fn open() -> Result<Workspace, String> {
        let manifest = std::env::var_os("CARGO_MANIFEST_DIR")
            .ok_or("expected to be run by cargo, but CARGO_MANIFEST_DIR is not set; use `cargo xtask`")?;
        let metadata =
            MetadataCommand::new()
                .manifest_path(Path::new(&manifest).join("Cargo.toml"))
                .no_deps()
                .exec()
                .map_err(|error| format!("expected to read the workspace, but cargo metadata failed: {error}"))?;
        Ok(Workspace {
            root: metadata.workspace_root.into_std_path_buf(),
            target: metadata.target_directory.into_std_path_buf(),
        })
    }

    /// The folder of the top Cargo.toml.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// The folder that builds go to.
    pub(crate) fn target(&self) -> &Path {
        &self.target
    }

    /// `cargo <verb>` at the root, with ccache first on PATH where it is installed.
    pub(crate) fn cargo(&self, verb: &str) -> Command {
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.arg(verb).current_dir(&self.root).stdin(Stdio::null());
        if let Some(path) = path_with_ccache() {
            command.env("PATH", path);
        }
        // Another value of the flags in .cargo/config.toml would compile RocksDB again.
        command.env_remove("RUSTFLAGS").env_remove("CARGO_ENCODED_RUSTFLAGS");
        command
    }

    /// The whole dependency graph, as Cargo.lock has it.
    pub(crate) fn metadata(&self) -> Result<Metadata, String> {
        MetadataCommand::new()
            .manifest_path(self.root.join("Cargo.toml"))
            .features(CargoOpt::SomeFeatures(Vec::new()))
            .other_options(vec!["--locked".to_owned()])
            .exec()
            .map_err(|error| format!("expected the dependency graph, but cargo metadata failed: {error}"))
    }

    /// Builds `rail` and returns the path of the program.
    pub(crate) fn build_rail(&self, profile: Profile) -> Result<PathBuf, String> {
        match profile {
            // With the whole workspace selected, so that tests find all of it built with the same features.
            Profile::Dev => self.build("rail", &["--workspace"]),
            Profile::Release => self.build("rail", &["--package", "ticketrail", "--release"]),
        }
    }

    /// Builds the program `name` and returns its path. `args` say of what and how.
    pub(crate) fn build(&self, name: &str, args: &[&str]) -> Result<PathBuf, String> {
        let mut command = self.cargo("build");
        command.args(["--bin", name, "--message-format", "json-render-diagnostics"]).args(args);
        let mut child = command
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("expected to start cargo, but it failed: {error}"))?;
        let output = child.stdout.take().ok_or("expected the output of cargo, but it has none")?;
        let mut program = None;
        for message in Message::parse_stream(std::io::BufReader::new(output)) {
            let message = message.map_err(|error| format!("expected cargo's messages, but reading failed: {error}"))?;
            if let Message::CompilerArtifact(artifact) = message
                && artifact.target.name == name
                && let Some(path) = artifact.executable
            {
                program = Some(path.into_std_path_buf());
            }
        }
        let status = child.wait().map_err(|error| format!("expected cargo to end, but waiting failed: {error}"))?;
        if !status.success() {
            return Err(format!("expected `{name}` to build, but cargo failed; its messages stand above"));
        }
        program.ok_or_else(|| format!("expected cargo to name the program `{name}`, but it did not"))
    }
}

/// Hands this process over to a program; returns only if that fails.
pub(crate) fn become_program(command: &mut Command) -> Result<ExitCode, String> {
    let error = command.exec();
    Err(format!("expected to start {}, but it failed: {error}", Path::new(command.get_program()).display()))
}

/// As [`become_program`] does what `start` makes, unless `args` ask for help, which is `usage` and needs no build.
pub(crate) fn help_or_become(
    args: &[String],
    usage: &str,
    start: impl FnOnce() -> Result<Command, String>,
) -> Result<ExitCode, String> {
    if args.iter().any(|arg| arg == "--help" || arg == "-h") {
        print!("{usage}");
        return Ok(ExitCode::SUCCESS);
    }
    become_program(start()?.args(args))
}

/// PATH with ccache's compilers first, unless they are not there or first already.
pub(crate) fn path_with_ccache() -> Option<std::ffi::OsString> {
    if !Path::new(CCACHE).is_dir() {
        return None;
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let old: Vec<PathBuf> = std::env::split_paths(&path).collect();
    if old.first().is_some_and(|first| first == Path::new(CCACHE)) {
        return None;
    }
    std::env::join_paths(std::iter::once(PathBuf::from(CCACHE)).chain(old)).ok()
}
