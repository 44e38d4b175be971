//! The layers of a configuration, and what to say of a key that nobody knows.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use figment::providers::{Format as _, Serialized, Toml};
use figment::value::{Dict, Map, Value};
use figment::{Figment, Metadata, Profile, Provider};

use super::{Config, Mode, Overrides};

const PREFIX: &str = "TICKETRAIL_";
const ENVIRONMENT: &str = "the environment";

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
            known(key, ENVIRONMENT, variable)?;
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
                return Err(ConfigError::Value { key: variable(&key), origin: ENVIRONMENT.to_owned(), reason });
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
        Metadata::named(ENVIRONMENT)
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
    let key = error.path.join(".");
    let metadata = error.metadata.as_ref();
    let file = metadata.and_then(|metadata| metadata.source.as_ref()).and_then(|source| source.file_path());
    let (key, origin) = match (file, metadata) {
        (Some(path), _) => (key, format!("the file {}", path.display())),
        (None, Some(metadata)) if metadata.name == ENVIRONMENT => (variable(&key), ENVIRONMENT.to_owned()),
        (None, Some(_) | None) => (key, "the configuration".to_owned()),
    };
    ConfigError::Value { key, origin, reason: Reason(&error.kind).to_string() }
}

/// A reason that reads "expected …, but …".
struct Reason<'a>(&'a figment::error::Kind);

impl fmt::Display for Reason<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use figment::error::Kind;
        if let Kind::InvalidType(got, expected) | Kind::InvalidValue(got, expected) = self.0 {
            write!(f, "expected {expected}, but got {got}")
        } else {
            write!(f, "{}", self.0)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::super::{Age, LogFormat, Size};
    use super::*;

    fn file(text: &str) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        file.write_all(text.as_bytes()).expect("written");
        file
    }

    fn environment(pairs: &[(&str, &str)]) -> Vec<(OsString, OsString)> {
        pairs.iter().map(|(name, value)| (name.into(), value.into())).collect()
    }

    fn load(text: &str, variables: &[(&str, &str)], overrides: Overrides) -> Result<Config, ConfigError> {
        let file = file(text);
        Config::load_with(Mode::Serve, Some(file.path()), environment(variables), overrides)
    }

    #[test]
    fn defaults_differ_by_mode_only_in_who_can_reach_them() {
        let config = |mode| Config::load_with(mode, None, [], Overrides::default());
        assert_eq!(config(Mode::Dev).unwrap().listen.to_string(), "127.0.0.1:50000");
        assert_eq!(config(Mode::Serve).unwrap().listen.to_string(), "0.0.0.0:50000");
        assert_eq!(config(Mode::Serve).unwrap(), Config::defaults(Mode::Serve));
    }

    #[test]
    fn flags_win_over_environment_over_file_over_defaults() {
        let text = r#"
            parked_receives = 1
            flush_age = "1s"
            log_level = "debug"
            auto_create = false
            max_body_bytes = 2097152
        "#;
        let variables = [
            ("TICKETRAIL_PARKED_RECEIVES", "2"),
            ("TICKETRAIL_FLUSH_AGE", "2s"),
            ("TICKETRAIL_AUTO_CREATE", "true"),
            ("TICKETRAIL_LOG_FORMAT", "json"),
            ("TICKETRAIL_DISK_LOW_BYTES", "3 GiB"),
            ("TICKETRAIL_LISTEN", "127.0.0.1:0"),
            ("TICKETRAIL_DATA_DIR", "12"),
            ("PATH", "/bin"),
        ];
        let overrides = Overrides { parked_receives: Some(3), ..Default::default() };
        let config = load(text, &variables, overrides).unwrap();
        let expected = Config {
            parked_receives: 3,
            flush_age: Age::secs(2),
            log_level: "debug".into(),
            auto_create: true,
            max_body_bytes: Size::mib(2),
            log_format: LogFormat::Json,
            disk_low_bytes: Size::gib(3),
            listen: "127.0.0.1:0".parse().unwrap(),
            data_dir: "12".into(),
            ..Config::defaults(Mode::Serve)
        };
        assert_eq!(config, expected);
    }

    #[test]
    fn an_unknown_key_is_refused_with_the_nearest() {
        let in_file = load("parked_recieves = 1", &[], Overrides::default()).unwrap_err();
        let ConfigError::UnknownKey { key, origin, nearest } = &in_file else { panic!("{in_file}") };
        assert_eq!((key.as_str(), nearest.as_str()), ("parked_recieves", "parked_receives"));
        assert!(origin.starts_with("the file /"), "{origin}");
        let in_environment = load("", &[("TICKETRAIL_DATADIR", "/x")], Overrides::default()).unwrap_err();
        assert_eq!(
            in_environment.to_string(),
            "expected a known key, but the environment has \"TICKETRAIL_DATADIR\"; did you mean \
             \"TICKETRAIL_DATA_DIR\"? All keys: --print-config"
        );
    }

    #[test]
    fn variables_of_clients_and_of_kubernetes_are_let_alone() {
        let variables = [
            ("TICKETRAIL_ADDR", "x"),
            ("TICKETRAIL_NAMESPACE", "x"),
            ("TICKETRAIL_TLS_CA", "x"),
            ("TICKETRAIL_SERVICE_HOST", "10.0.0.1"),
            ("TICKETRAIL_PORT_50000_TCP_ADDR", "10.0.0.1"),
            ("TICKETRAIL_PEERS_SERVICE_PORT", "50001"),
        ];
        assert_eq!(load("", &variables, Overrides::default()), Ok(Config::defaults(Mode::Serve)));
    }

    #[test]
    fn a_wrong_value_names_key_origin_and_what_was_expected() {
        let error = load("flush_age = \"soon\"", &[], Overrides::default()).unwrap_err();
        let ConfigError::Value { key, origin, reason } = &error else { panic!("{error}") };
        assert_eq!(key, "flush_age");
        assert!(origin.starts_with("the file /"), "{origin}");
        assert!(reason.contains("expected a time such as"), "{reason}");
        let error = load("", &[("TICKETRAIL_LISTEN", "here")], Overrides::default()).unwrap_err();
        let ConfigError::Value { key, origin, .. } = &error else { panic!("{error}") };
        assert_eq!((key.as_str(), origin.as_str()), ("TICKETRAIL_LISTEN", "the environment"));
        let error = load("", &[("TICKETRAIL_AUTO_CREATE", "perhaps")], Overrides::default()).unwrap_err();
        assert!(matches!(error, ConfigError::Value { .. }), "{error}");
        let error = load("auto_create = 7", &[], Overrides::default()).unwrap_err();
        assert!(matches!(error, ConfigError::Value { .. }), "{error}");
        let error = load("heartbeat = \"1h\"", &[], Overrides::default()).unwrap_err();
        assert!(
            error.to_string().starts_with("election_timeout_min in the configuration: expected more than"),
            "{error}"
        );
    }

    #[test]
    fn a_file_that_cannot_be_read_is_an_error() {
        let missing = Config::load_with(Mode::Dev, Some(Path::new("/no/such/file")), [], Overrides::default());
        assert!(matches!(missing, Err(ConfigError::File { .. })), "{missing:?}");
        let garbled = load("listen = ", &[], Overrides::default());
        assert!(matches!(garbled, Err(ConfigError::File { .. })), "{garbled:?}");
    }

    #[test]
    fn what_is_printed_reads_back() {
        let config = Config { parked_receives: 7, ready_file: "/run/ready".into(), ..Config::defaults(Mode::Serve) };
        let text = config.print().unwrap();
        assert_eq!(load(&text, &[], Overrides::default()), Ok(config));
        for key in Config::KEYS {
            assert!(text.contains(&format!("\n{} = ", key.name)), "{} is not printed", key.name);
            assert!(text.contains(&key.variable()), "{} has no variable", key.name);
            assert!(key.doc.len() > 10, "{} has no doc", key.name);
        }
    }
}
