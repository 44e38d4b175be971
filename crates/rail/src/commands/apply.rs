//! `rail apply|diff|export`: queues and namespaces from a file, compared with what is there, written to a file.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use clap::Args;
use ticketrail_client::{Client, Error};

use crate::confirm::{Sure, confirm};
use crate::connect::Connection;
use crate::exit::{Exit, Failure};
use crate::output::{self, Format};
use crate::topology::{Action, Change, ChangeLine, File, Syntax, There, Topology};

/// Which files.
#[derive(Debug, Args)]
struct Files {
    /// A file in TOML (.toml) or YAML (.yaml, .yml, .json); `-` is stdin, in either; may be given many times
    #[arg(short, long = "file", required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Queues that the file does not name go with all their messages, in the namespaces that it names; dead-letter queues
    /// of named ones stay
    #[arg(long)]
    prune: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ApplyArgs {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    files: Files,
    /// Show what would be done, and do nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    sure: Sure,
}

#[derive(Debug, Args)]
pub(crate) struct DiffArgs {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    files: Files,
}

#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    #[command(flatten)]
    connection: Connection,
    /// All namespaces that have defaults of their own, beside the one that is named
    #[arg(long)]
    all: bool,
}

pub(crate) async fn apply(args: ApplyArgs, format: Format) -> Result<Exit, Failure> {
    let client = args.connection.client()?;
    let changes = plan(&client, &args.files).await?;
    print(&changes, format)?;
    if changes.is_empty() || args.dry_run {
        return Ok(Exit::Ok);
    }
    confirm(&args.sure, &question(&changes))?;
    let mut done = 0;
    for change in &changes {
        if let Err(error) = make(&client, change).await {
            let mut failure = Failure::from(error);
            failure.what = format!("{done} of {} changes are made; then: {}", changes.len(), failure.what);
            if done > 0 {
                failure.exit = Exit::Partly;
            }
            return Err(failure);
        }
        done += 1;
    }
    output::say(format!("{done} changes made"));
    Ok(Exit::Ok)
}

/// Ends with 1 where there is a difference, as `diff` does.
pub(crate) async fn diff(args: DiffArgs, format: Format) -> Result<Exit, Failure> {
    let client = args.connection.client()?;
    let changes = plan(&client, &args.files).await?;
    print(&changes, format)?;
    Ok(if changes.is_empty() { Exit::Ok } else { Exit::Failed })
}

pub(crate) async fn export(args: ExportArgs, format: Format) -> Result<Exit, Failure> {
    let client = args.connection.client()?;
    let mut there = vec![there(&client, client.namespace()).await?];
    if args.all {
        for namespace in client.admin().namespaces().await? {
            if namespace.name != client.namespace() {
                there.push(self::there(&client, &namespace.name).await?);
            }
        }
    }
    let file = File::of(&there);
    let wrong = |error: String| Failure::new(Exit::Failed, error, "try another form with -o json");
    let text = match format {
        Format::Table => toml::to_string(&file).map_err(|error| wrong(error.to_string()))?,
        Format::Json => serde_json::to_string_pretty(&file).map_err(|error| wrong(error.to_string()))? + "\n",
        Format::Jsonl => serde_json::to_string(&file).map_err(|error| wrong(error.to_string()))? + "\n",
    };
    output::print(&text)?;
    Ok(Exit::Ok)
}

fn question(changes: &[Change]) -> String {
    let (mut queues, mut lost) = (0, 0);
    for change in changes {
        match &change.action {
            Action::DeleteQueue { messages, .. } => {
                queues += 1;
                lost += messages;
            }
            Action::SetNamespace { .. } | Action::CreateQueue { .. } | Action::UpdateQueue { .. } => {}
        }
    }
    match queues {
        0 => format!("make {} changes?", changes.len()),
        _ => format!("make {} changes, and so remove {queues} queues with {lost} messages?", changes.len()),
    }
}

fn print(changes: &[Change], format: Format) -> Result<(), Failure> {
    let lines: Vec<ChangeLine> = changes.iter().map(ChangeLine::new).collect();
    if lines.is_empty() {
        if format != Format::Table {
            output::list(format, &lines)?;
        }
        output::say("nothing to change: all is as the file says");
        return Ok(());
    }
    output::list(format, &lines)?;
    Ok(())
}

async fn plan(client: &Client, files: &Files) -> Result<Vec<Change>, Failure> {
    let mut wanted = Topology::default();
    for file in &files.files {
        let next = "names and values stand in docs/how-to/queues-from-a-file.md";
        let wrong = |wrong: String| Failure::usage(format!("{}: {wrong}", file.display()), next);
        wanted.add(read(file).map_err(wrong)?, client.namespace()).map_err(wrong)?;
    }
    let mut found = Vec::new();
    for namespace in wanted.namespaces() {
        found.push(there(client, namespace).await?);
    }
    Ok(wanted.changes(&found, files.prune))
}

fn read(path: &Path) -> Result<File, String> {
    if path == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().lock().read_to_string(&mut text).map_err(|error| error.to_string())?;
        // TOML is tried first: what is TOML is hardly ever meant as YAML.
        return File::parse(&text, Syntax::Toml).or_else(|toml| {
            let both = |yaml| format!("expected TOML or YAML, but as TOML: {toml}, as YAML: {yaml}");
            File::parse(&text, Syntax::Yaml).map_err(both)
        });
    }
    let syntax = match path.extension().and_then(std::ffi::OsStr::to_str) {
        Some("toml") => Syntax::Toml,
        Some("yaml" | "yml" | "json") => Syntax::Yaml,
        Some(_) | None => return Err("expected a name that ends in .toml, .yaml, .yml or .json".to_owned()),
    };
    let text = std::fs::read_to_string(path).map_err(|error| format!("expected to read it, but {error}"))?;
    File::parse(&text, syntax)
}

/// A namespace and its queues as they are.
async fn there(client: &Client, namespace: &str) -> Result<There, Error> {
    let admin = client.in_namespace(namespace).admin();
    Ok(There { namespace: admin.namespace(namespace).await?, queues: admin.queues().await? })
}

async fn make(client: &Client, change: &Change) -> Result<(), Error> {
    let admin = client.in_namespace(&change.namespace).admin();
    match &change.action {
        Action::SetNamespace { defaults, auto_create } => {
            admin.set_namespace(&change.namespace, defaults.clone(), *auto_create).await
        }
        Action::CreateQueue { queue, settings } => admin.create_queue(queue, settings.clone()).await.map(drop),
        Action::UpdateQueue { queue, settings } => admin.update_queue(queue, settings.clone()).await,
        Action::DeleteQueue { queue, .. } => admin.delete_queue(queue).await.map(drop),
    }
}
