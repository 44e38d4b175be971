//! Queues and namespaces as a file says them, and how that differs from what is there.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use ticketrail_client::{NamespaceInfo, QueueInfo, QueueSettings};

use crate::output::Row;
use crate::settings::{self, SETTINGS};
use crate::view::queue::dead_letter_queue;

/// How a file is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Syntax {
    Toml,
    /// And JSON, which is a part of it.
    Yaml,
}

/// A file as it stands: names and tables of settings.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct File {
    /// Queues of the namespace that the command line names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    queues: BTreeMap<String, Table>,
    /// Namespaces, their defaults and their queues.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    namespaces: BTreeMap<String, NamespaceTable>,
}

type Table = Map<String, Value>;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct NamespaceTable {
    #[serde(skip_serializing_if = "Option::is_none")]
    auto_create: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    defaults: Option<Table>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    queues: BTreeMap<String, Table>,
}

impl File {
    /// What is there, as a file.
    pub(crate) fn of(there: &[There]) -> Self {
        let table = |there: &There| {
            let info = &there.namespace;
            let queues = there.queues.iter().map(|queue| (queue.name.clone(), settings::write(&queue.settings)));
            let table = NamespaceTable {
                auto_create: info.configured.then_some(info.auto_create),
                defaults: info.configured.then(|| settings::write(&info.defaults)),
                queues: queues.collect(),
            };
            (info.name.clone(), table)
        };
        Self { queues: BTreeMap::new(), namespaces: there.iter().map(table).collect() }
    }

    /// Reads a file.
    pub(crate) fn parse(text: &str, syntax: Syntax) -> Result<Self, String> {
        match syntax {
            Syntax::Toml => toml::from_str(text).map_err(|error| error.to_string()),
            Syntax::Yaml if text.trim().is_empty() => Ok(Self::default()),
            Syntax::Yaml => serde_saphyr::from_str(text).map_err(|error| error.to_string()),
        }
    }
}

/// What is wanted of one namespace.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Wanted {
    /// Its defaults and whether messages make queues; `None`: nothing said.
    defaults: Option<(QueueSettings, bool)>,
    queues: BTreeMap<String, QueueSettings>,
}

/// What is wanted, by namespace.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Topology {
    namespaces: BTreeMap<String, Wanted>,
}

impl Topology {
    /// Adds what a file wants. `own` is the namespace of queues that name none.
    pub(crate) fn add(&mut self, file: File, own: &str) -> Result<(), String> {
        let File { queues, namespaces } = file;
        self.add_queues(own, queues)?;
        for (namespace, NamespaceTable { auto_create, defaults, queues }) in namespaces {
            if auto_create.is_some() || defaults.is_some() {
                let at = |wrong| format!("namespace {namespace}: {wrong}");
                let defaults = settings::read(&defaults.unwrap_or_default()).map_err(at)?;
                let wanted = self.namespaces.entry(namespace.clone()).or_default();
                if wanted.defaults.replace((defaults, auto_create.unwrap_or(true))).is_some() {
                    return Err(format!("expected namespace {namespace} once, but its defaults are given twice"));
                }
            }
            self.add_queues(&namespace, queues)?;
        }
        Ok(())
    }

    fn add_queues(&mut self, namespace: &str, queues: BTreeMap<String, Table>) -> Result<(), String> {
        let wanted = self.namespaces.entry(namespace.to_owned()).or_default();
        for (name, table) in queues {
            let settings = settings::read(&table).map_err(|wrong| format!("queue {namespace}/{name}: {wrong}"))?;
            if wanted.queues.insert(name.clone(), settings).is_some() {
                return Err(format!("expected queue {namespace}/{name} once, but it is given twice"));
            }
        }
        Ok(())
    }

    /// The namespaces that something is said of.
    pub(crate) fn namespaces(&self) -> impl Iterator<Item = &str> {
        let said = |(_, wanted): &(&String, &Wanted)| wanted.defaults.is_some() || !wanted.queues.is_empty();
        self.namespaces.iter().filter(said).map(|(name, _)| name.as_str())
    }

    /// What to do, so that `there` becomes as wanted: namespaces first, removed queues last. What is not said of a queue
    /// stays as it is. With `prune`, queues of these namespaces that nobody wants go, but no dead-letter queue of one that is
    /// wanted.
    pub(crate) fn changes(&self, there: &[There], prune: bool) -> Vec<Change> {
        let mut changes = Vec::new();
        let both = || there.iter().filter_map(|there| Some((there, self.namespaces.get(&there.namespace.name)?)));
        for (there, wanted) in both() {
            changes.extend(wanted.defaults.as_ref().and_then(|wanted| defaults_change(&there.namespace, wanted)));
        }
        for (there, wanted) in both() {
            for (name, wanted) in &wanted.queues {
                let found = there.queues.iter().find(|queue| queue.name == *name);
                changes.extend(queue_change(&there.namespace.name, name, found, wanted));
            }
        }
        if prune {
            for (there, wanted) in both() {
                changes.extend(unwanted(there, wanted));
            }
        }
        changes
    }
}

/// What is there of one namespace.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct There {
    pub(crate) namespace: NamespaceInfo,
    pub(crate) queues: Vec<QueueInfo>,
}

/// One thing to do.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Change {
    pub(crate) action: Action,
    pub(crate) namespace: String,
    /// What will be different.
    differences: Vec<Difference>,
}

/// What is done.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Action {
    SetNamespace { defaults: QueueSettings, auto_create: bool },
    CreateQueue { queue: String, settings: QueueSettings },
    UpdateQueue { queue: String, settings: QueueSettings },
    DeleteQueue { queue: String, messages: u64 },
}

/// A setting with another value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Difference {
    setting: &'static str,
    from: Option<String>,
    to: Option<String>,
}

/// What differs where `wanted` says something, or with `all` also where it says nothing.
fn differences(found: &QueueSettings, wanted: &QueueSettings, all: bool) -> Vec<Difference> {
    SETTINGS
        .iter()
        .filter(|setting| setting.value(found) != setting.value(wanted) && (all || setting.value(wanted).is_some()))
        .map(|setting| Difference { setting: setting.name, from: setting.text(found), to: setting.text(wanted) })
        .collect()
}

fn defaults_change(found: &NamespaceInfo, (defaults, auto_create): &(QueueSettings, bool)) -> Option<Change> {
    let mut differences = differences(&found.defaults, defaults, true);
    if found.auto_create != *auto_create {
        let (from, to) = (Some(found.auto_create.to_string()), Some(auto_create.to_string()));
        differences.insert(0, Difference { setting: "auto_create", from, to });
    }
    (!differences.is_empty()).then(|| Change {
        action: Action::SetNamespace { defaults: defaults.clone(), auto_create: *auto_create },
        namespace: found.name.clone(),
        differences,
    })
}

fn queue_change(namespace: &str, name: &str, found: Option<&QueueInfo>, wanted: &QueueSettings) -> Option<Change> {
    let Some(found) = found else {
        return Some(Change {
            action: Action::CreateQueue { queue: name.to_owned(), settings: wanted.clone() },
            namespace: namespace.to_owned(),
            differences: differences(&QueueSettings::default(), wanted, false),
        });
    };
    // A dead-letter queue that is not named is the one named for the queue.
    let named = |settings: &QueueSettings| {
        let queue = settings.dead_letter_queue.is_some().then(|| dead_letter_queue(name, settings));
        QueueSettings { dead_letter_queue: queue, ..settings.clone() }
    };
    let differences = differences(&named(&found.settings), &named(wanted), false);
    (!differences.is_empty()).then(|| Change {
        action: Action::UpdateQueue { queue: name.to_owned(), settings: wanted.clone() },
        namespace: namespace.to_owned(),
        differences,
    })
}

/// The queues that are there and that nobody wants.
fn unwanted(there: &There, wanted: &Wanted) -> Vec<Change> {
    let mut kept: BTreeSet<String> = wanted.queues.keys().cloned().collect();
    for (name, settings) in &wanted.queues {
        kept.insert(dead_letter_queue(name, settings));
        if let Some(found) = there.queues.iter().find(|queue| queue.name == *name) {
            kept.insert(dead_letter_queue(name, &found.settings));
        }
    }
    let change = |queue: &QueueInfo| Change {
        action: Action::DeleteQueue { queue: queue.name.clone(), messages: queue.stats.depth() },
        namespace: there.namespace.name.clone(),
        differences: Vec::new(),
    };
    there.queues.iter().filter(|queue| !kept.contains(&queue.name)).map(change).collect()
}

/// A change as it is printed.
#[derive(Debug, Serialize)]
pub(crate) struct ChangeLine {
    action: &'static str,
    kind: &'static str,
    namespace: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    queue: Option<String>,
    differences: Vec<Difference>,
    /// Messages that go with a queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    messages: Option<u64>,
}

impl ChangeLine {
    pub(crate) fn new(change: &Change) -> Self {
        let (action, queue, messages) = match &change.action {
            Action::SetNamespace { .. } => ("change", None, None),
            Action::CreateQueue { queue, .. } => ("create", Some(queue.clone()), None),
            Action::UpdateQueue { queue, .. } => ("change", Some(queue.clone()), None),
            Action::DeleteQueue { queue, messages } => ("delete", Some(queue.clone()), Some(*messages)),
        };
        Self {
            action,
            kind: if queue.is_some() { "queue" } else { "namespace" },
            namespace: change.namespace.clone(),
            queue,
            differences: change.differences.clone(),
            messages,
        }
    }

    fn says(&self) -> String {
        if let Some(messages) = self.messages {
            return format!("with its {messages} messages");
        }
        let difference = |difference: &Difference| {
            let to = difference.to.as_deref().unwrap_or("built in");
            match (&difference.from, self.action) {
                (None, "create") => format!("{} {to}", difference.setting),
                (from, _) => format!("{} {} -> {to}", difference.setting, from.as_deref().unwrap_or("built in")),
            }
        };
        let said: Vec<String> = self.differences.iter().map(difference).collect();
        if said.is_empty() { "with the defaults".to_owned() } else { said.join(", ") }
    }
}

impl Row for ChangeLine {
    const COLUMNS: &'static [&'static str] = &["ACTION", "KIND", "NAME", "CHANGES"];

    fn cells(&self) -> Vec<String> {
        let name = match &self.queue {
            Some(queue) => format!("{}/{queue}", self.namespace),
            None => self.namespace.clone(),
        };
        vec![self.action.to_owned(), self.kind.to_owned(), name, self.says()]
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use ticketrail_client::QueueStats;

    use super::*;

    const TOML: &str = r#"
        [queues.orders]
        max_depth = 2400
        lease = "30s"

        [namespaces.shop]
        auto_create = false
        defaults = { owner = "shop" }

        [namespaces.shop.queues.mail]
        shed = [{ above_percent = 80, below_priority = 5 }]
        expected_rate = 2.5
    "#;
    const YAML: &str = r#"
queues:
  orders: {max_depth: 2400, lease: 30s}
namespaces:
  shop:
    auto_create: false
    defaults: {owner: shop}
    queues:
      mail:
        shed: [{above_percent: 80, below_priority: 5}]
        expected_rate: 2.5
"#;

    fn topology(text: &str, syntax: Syntax) -> Result<Topology, String> {
        let mut topology = Topology::default();
        topology.add(File::parse(text, syntax)?, "default")?;
        Ok(topology)
    }

    fn queue(namespace: &str, name: &str, settings: QueueSettings) -> QueueInfo {
        QueueInfo {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            id: 1,
            created_at: SystemTime::UNIX_EPOCH,
            settings,
            pause: None,
            closed: false,
            stats: QueueStats { ready: 12, ..QueueStats::default() },
            dead: 0,
        }
    }

    fn there(name: &str, queues: Vec<QueueInfo>) -> There {
        let namespace = NamespaceInfo {
            name: name.to_owned(),
            defaults: QueueSettings::default(),
            auto_create: true,
            configured: false,
        };
        There { namespace, queues }
    }

    fn said(changes: &[Change]) -> Vec<String> {
        changes.iter().map(|change| ChangeLine::new(change).cells().join(" ")).collect()
    }

    #[test]
    fn toml_yaml_and_json_say_the_same() {
        let toml = topology(TOML, Syntax::Toml).expect("TOML");
        assert_eq!(topology(YAML, Syntax::Yaml).expect("YAML"), toml);
        let json = serde_json::to_string(&File::parse(TOML, Syntax::Toml).expect("TOML")).expect("JSON");
        assert_eq!(topology(&json, Syntax::Yaml).expect("JSON"), toml);
        assert_eq!(toml.namespaces().collect::<Vec<_>>(), ["default", "shop"]);
        assert_eq!(topology("", Syntax::Yaml).expect("nothing"), topology("", Syntax::Toml).expect("nothing"));
    }

    #[test]
    fn what_is_wanted_and_not_there_is_made_and_the_rest_is_changed() {
        let topology = topology(TOML, Syntax::Toml).expect("TOML");
        let lease = Some(Duration::from_secs(60));
        let orders = QueueSettings { max_depth: Some(2_400), lease, max_attempts: Some(5), ..Default::default() };
        let there = [there("default", vec![queue("default", "orders", orders)]), there("shop", vec![])];
        assert_eq!(
            said(&topology.changes(&there, false)),
            [
                "change namespace shop auto_create true -> false, owner built in -> shop",
                "change queue default/orders lease 1m -> 30s",
                "create queue shop/mail expected_rate 2.5, shed above 80 % below 5",
            ]
        );
    }

    #[test]
    fn applied_twice_nothing_is_left_to_do() {
        let topology = topology(TOML, Syntax::Toml).expect("TOML");
        let mut now = [there("default", vec![]), there("shop", vec![])];
        for change in topology.changes(&now, true) {
            let there = now.iter_mut().find(|there| there.namespace.name == change.namespace).expect("there");
            match change.action {
                Action::SetNamespace { defaults, auto_create } => {
                    there.namespace =
                        NamespaceInfo { defaults, auto_create, configured: true, ..there.namespace.clone() };
                }
                Action::CreateQueue { queue: name, settings } => {
                    there.queues.push(queue(&change.namespace, &name, settings));
                }
                Action::UpdateQueue { .. } | Action::DeleteQueue { .. } => panic!("nothing was there"),
            }
        }
        assert_eq!(topology.changes(&now, true), []);
        // And what is there, exported, is what is wanted.
        let exported = toml::to_string(&File::of(&now)).expect("TOML");
        assert_eq!(super::tests::topology(&exported, Syntax::Toml).expect("TOML").changes(&now, true), []);
    }

    #[test]
    fn nothing_is_removed_unless_asked_and_dead_letters_of_wanted_queues_never() {
        let topology = topology("[queues.orders]\n[queues.mail]\ndead_letter_queue = \"morgue\"\n", Syntax::Toml);
        let topology = topology.expect("TOML");
        let plain = |name: &str| queue("default", name, QueueSettings::default());
        let morgue = QueueSettings { dead_letter_queue: Some("morgue".to_owned()), ..Default::default() };
        let queues =
            vec![plain("orders"), plain("orders.dlq"), queue("default", "mail", morgue), plain("morgue"), plain("old")];
        let there = [there("default", queues), there("other", vec![queue("other", "theirs", Default::default())])];
        assert_eq!(topology.changes(&there, false), []);
        assert_eq!(said(&topology.changes(&there, true)), ["delete queue default/old with its 12 messages"]);
    }

    #[test]
    fn the_dead_letter_queue_that_is_meant_anyway_is_no_difference() {
        let wanted = topology("[queues.orders]\ndead_letter_queue = \"orders.dlq\"\n", Syntax::Toml).expect("TOML");
        let unnamed = QueueSettings { dead_letter_queue: Some(String::new()), ..Default::default() };
        let there = [there("default", vec![queue("default", "orders", unnamed)])];
        assert_eq!(wanted.changes(&there, false), []);
    }

    #[test]
    fn mistakes_in_a_file_say_where_they_are() {
        for (text, expected) in [
            ("[queue.orders]\n", "unknown field `queue`"),
            ("[queues.orders]\nmax_dept = 5\n", "queue default/orders: expected a setting, but there is none called"),
            ("[namespaces.shop]\ndefaults = { lease = 5 }\n", "namespace shop: lease: expected a duration"),
            ("[namespaces.shop]\nauto_make = true\n", "unknown field `auto_make`"),
            ("[queues.a]\n[namespaces.default.queues.a]\n", "expected queue default/a once"),
            ("queues = 5", "expected a map"),
        ] {
            let error = topology(text, Syntax::Toml).expect_err(text);
            assert!(error.contains(expected), "{text}: {error}");
        }
        assert!(topology("queues: [", Syntax::Yaml).is_err());
    }
}
