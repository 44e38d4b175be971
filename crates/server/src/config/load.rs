//! The layers of a configuration, and what to say of a key that nobody knows.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use figment::providers::{Format as _, Serialized, Toml};
use figment::value::{Dict, Map, Value};
use figment::{Figment, Metadata, Profile, Provider};

use super::{Config, Mode, Overrides};

const PREFIX: &str = "TICKETRAIL_";

/// Variables with our prefix that are not the server's: the client's, and those that Kubernetes makes for a Service named
/// `ticketrail`.
const CLIENT_VARIABLES: [&str; 10] =
    ["addr", "config", "context", "contexts", "namespace", "output", "session", "timeout", "token", "token_file"];

/// Why there is no configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("expected to read the configuration file {}, but {reason}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the operating system or the parser said.
        reason: String,
    },
    /// Nobody knows this key.
    #[error("expected a known key, but {origin} has {key:?}; did you mean {nearest:?}? All keys: --print-config")]
    UnknownKey {
        /// The key.
        key: String,
        /// The file, or the environment.
        origin: String,
        /// The known key that is most like it.
        nearest: String,
    },
    /// A value cannot be.
    #[error("{key} in {origin}: {reason}")]
    Value {
        /// The key.
        key: String,
        /// The file, the environment or the command line.
        origin: String,
        /// "expected …, but …".
        reason: String,
    },
}

impl Config {
    /// Loads the configuration: `overrides` over the process's environment over `file` over the defaults of `mode`.
    pub fn load(mode: Mode, file: Option<&Path>, overrides: Overrides) -> Result<Self, ConfigError> {
        Self::load_with(mode, file, std::env::vars_os(), overrides)
    }

    /// As [`Config::load`], with an environment of the caller's.
    pub fn load_with(
        mode: Mode,
        file: Option<&Path>,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
        overrides: Overrides,
    ) -> Result<Self, ConfigError> {
        let mut figment = Figment::from(Serialized::defaults(Config::defaults(mode)));
        if let Some(path) = file {
            if let Err(error) = std::fs::metadata(path) {
                return Err(ConfigError::File { path: path.to_path_buf(), reason: error.to_string() });
            }
            let toml = Toml::file_exact(path);
            let layers =
                toml.data().map_err(|e| ConfigError::File { path: path.to_path_buf(), reason: e.kind.to_string() })?;
            let origin = format!("the file {}", path.display());
            for key in layers.values().flat_map(Dict::keys) {
                known(key, &origin, |name| name.to_owned())?;
            }
            figment = figment.merge(toml);
        }
        let environment = Environment::read(environment)?;
        for key in environment.values.keys() {
            known(key, "the environment", variable)?;
        }
        let figment = figment.merge(environment).merge(Serialized::defaults(overrides));
        let config: Config = figment.extract_lossy().map_err(value_error)?;
        config.check()?;
        Ok(config)
    }
}

/// The variables with our prefix, by key. All values are texts; extraction turns them into what is wanted.
struct Environment {
    values: Dict,
}

impl Environment {
    fn read(variables: impl IntoIterator<Item = (OsString, OsString)>) -> Result<Self, ConfigError> {
        let mut values = Dict::new();
        for (name, value) in variables {
            let Some(key) = name.to_str().and_then(|name| name.strip_prefix(PREFIX)).map(str::to_lowercase) else {
                continue;
            };
            if foreign(&key) {
                continue;
            }
            let Ok(text) = value.into_string() else {
                let reason = "expected a text in UTF-8, but it is none".to_owned();
                return Err(ConfigError::Value { key: variable(&key), origin: "the environment".to_owned(), reason });
            };
            values.insert(key, Value::from(text));
        }
        Ok(Self { values })
    }
}

fn foreign(key: &str) -> bool {
    let kubernetes =
        key.starts_with("port") || key.starts_with("service_") || key.contains("_service_") || key.contains("_port");
    CLIENT_VARIABLES.contains(&key) || key.starts_with("tls_") || kubernetes
}

fn variable(key: &str) -> String {
    format!("{PREFIX}{}", key.to_uppercase())
}

impl Provider for Environment {
    fn metadata(&self) -> Metadata {
        Metadata::named("the environment").interpolater(|_, keys| keys.iter().map(|key| variable(key)).collect())
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        Ok(Map::from([(Profile::Default, self.values.clone())]))
    }
}

/// Refuses a key that is not ours; `show` names it as its origin does.
fn known(key: &str, origin: &str, show: impl Fn(&str) -> String) -> Result<(), ConfigError> {
    let names = || Config::KEYS.iter().map(|key| key.name);
    if names().any(|name| name == key) {
        return Ok(());
    }
    let nearest = names().min_by_key(|name| distance(name, key)).unwrap_or_default();
    Err(ConfigError::UnknownKey { key: show(key), origin: origin.to_owned(), nearest: show(nearest) })
}

/// How many letters must be changed, added or removed to make `a` of `b`.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, cb) in b.iter().enumerate() {
            let changed = diagonal + usize::from(ca != *cb);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

fn value_error(error: figment::Error) -> ConfigError {
    let key = match &error.metadata {
        Some(metadata) => metadata.interpolate(&Profile::Default, &error.path),
        None => error.path.join("."),
    };
    let origin = match &error.metadata {
        Some(metadata) => match metadata.source.as_ref().and_then(|source| source.file_path()) {
            Some(path) => format!("the file {}", path.display()),
            None => metadata.name.to_string(),
        },
        None => "the configuration".to_owned(),
    };
    ConfigError::Value { key, origin, reason: Reason(&error.kind).to_string() }
}

/// A reason that reads "expected …, but …".
struct Reason<'a>(&'a figment::error::Kind);

impl fmt::Display for Reason<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use figment::error::Kind;
        match self.0 {
            Kind::InvalidType(got, expected) | Kind::InvalidValue(got, expected) => {
                write!(f, "expected {expected}, but got {got}")
            }
            other => write!(f, "{other}"),
        }
    }
}
