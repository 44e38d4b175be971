//! `rail namespace`: what new queues of a namespace get.

use clap::{Args, Subcommand};
use serde::Serialize;
use serde_json::{Map, Value};
use ticketrail_client::{Admin, NamespaceInfo, QueueSettings};

use crate::confirm::{Sure, confirm};
use crate::connect::Connection;
use crate::exit::{Exit, Failure};
use crate::output::{self, Card, Format, Row};
use crate::settings::{self, SETTINGS, SettingsArgs};

#[derive(Debug, Args)]
pub(crate) struct NamespaceArgs {
    #[command(flatten)]
    connection: Connection,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Set what queues get that are made from now on; what is not given stays
    Set {
        /// Its name
        name: String,
        #[command(flatten)]
        settings: Box<SettingsArgs>,
        /// Whether a message makes a queue that is not there [default: true]
        #[arg(long, value_name = "BOOL")]
        auto_create: Option<bool>,
        /// What is not given goes back to the built-in default
        #[arg(long)]
        reset: bool,
    },
    /// Show a namespace's defaults
    Show {
        /// Its name
        name: String,
    },
    /// List the namespaces that have defaults of their own
    #[command(visible_alias = "list")]
    Ls,
    /// Take a namespace's defaults back; its queues stay as they are
    Delete {
        /// Its name
        name: String,
        #[command(flatten)]
        sure: Sure,
    },
}

/// A namespace as it is printed.
#[derive(Debug, Serialize)]
struct NamespaceView {
    name: String,
    configured: bool,
    auto_create: bool,
    /// What differs from the built-in defaults, as a file for `rail apply` says it.
    defaults: Map<String, Value>,
    #[serde(skip)]
    said: QueueSettings,
}

impl NamespaceView {
    fn new(info: NamespaceInfo) -> Self {
        Self {
            name: info.name,
            configured: info.configured,
            auto_create: info.auto_create,
            defaults: settings::write(&info.defaults),
            said: info.defaults,
        }
    }
}

impl Card for NamespaceView {
    fn fields(&self) -> Vec<(&'static str, String)> {
        let makes = if self.auto_create { "make queues" } else { "are refused where there is no queue" };
        let mut fields = vec![("namespace", self.name.clone()), ("messages", makes.to_owned())];
        let said =
            |setting: &crate::settings::Setting| Some((settings::words(setting.name), setting.text(&self.said)?));
        fields.extend(SETTINGS.iter().filter_map(said));
        fields.push(("all else", "as built in".to_owned()));
        fields
    }
}

impl Row for NamespaceView {
    const COLUMNS: &'static [&'static str] = &["NAME", "AUTO-CREATE", "DEFAULTS"];

    fn cells(&self) -> Vec<String> {
        let said = |setting: &crate::settings::Setting| Some(format!("{} {}", setting.name, setting.text(&self.said)?));
        let defaults: Vec<String> = SETTINGS.iter().filter_map(said).collect();
        vec![self.name.clone(), self.auto_create.to_string(), defaults.join(", ")]
    }
}

pub(crate) async fn run(args: NamespaceArgs, format: Format) -> Result<Exit, Failure> {
    let admin = args.connection.client()?.admin();
    match args.verb {
        Verb::Set { name, settings, auto_create, reset } => {
            let mut defaults = QueueSettings::from(*settings);
            if !reset && auto_create.is_none() && defaults == QueueSettings::default() {
                let next = "see --help; `rail namespace delete` takes all back";
                return Err(Failure::usage("expected a default to set, but none is given", next));
            }
            let mut makes = auto_create.unwrap_or(true);
            if !reset {
                let found = admin.namespace(&name).await?;
                settings::fill(&mut defaults, &found.defaults);
                makes = auto_create.unwrap_or(found.auto_create);
            }
            admin.set_namespace(&name, defaults, makes).await?;
            show(&admin, &name, format).await
        }
        Verb::Show { name } => show(&admin, &name, format).await,
        Verb::Ls => {
            let lines: Vec<_> = admin.namespaces().await?.into_iter().map(NamespaceView::new).collect();
            output::list(format, &lines)?;
            if lines.is_empty() {
                output::say("no namespace has defaults of its own: all have the built-in ones");
            }
            Ok(Exit::Ok)
        }
        Verb::Delete { name, sure } => {
            let question = format!("take the defaults of namespace {name} back? its queues stay as they are");
            confirm(&sure, &question)?;
            admin.delete_namespace(&name).await?;
            show(&admin, &name, format).await
        }
    }
}

async fn show(admin: &Admin, name: &str, format: Format) -> Result<Exit, Failure> {
    let view = NamespaceView::new(admin.namespace(name).await?);
    output::card(format, &view)?;
    if !view.configured {
        output::say(format!("nobody configured namespace {name}: it has the built-in defaults"));
    }
    Ok(Exit::Ok)
}
