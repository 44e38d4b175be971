//! The files in `deploy/`: well formed, within the rules, and what the server understands. No cluster is needed.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context as _, bail, ensure};
use serde_json::{Value, json};
use ticketrail_cluster_tests::deployment::{self, Deployment};
use ticketrail_cluster_tests::server::rail;

/// Versions of Kubernetes whose schemas the manifests must fit: from the oldest that is supported anywhere to the newest.
const VERSIONS: [&str; 4] = ["1.29", "1.31", "1.34", "1.37"];

/// The folder of the checking programs. Says so where there is none: under `CI=true` a skipped test is a failure.
fn tools() -> Option<PathBuf> {
    let tools = std::env::var_os("TICKETRAIL_TEST_DEPLOY_TOOLS").map(PathBuf::from);
    if tools.is_none() {
        println!("skipped: needs the programs of deploy/requirements.txt, which `cargo xtask test` installs");
    }
    tools
}

fn run(command: &mut Command) -> anyhow::Result<Output> {
    command.output().with_context(|| format!("run {command:?}"))
}

fn said(output: &Output) -> String {
    [output.stdout.as_slice(), &output.stderr].map(String::from_utf8_lossy).concat()
}

fn validate(tools: &Path, version: &str, files: &[PathBuf]) -> anyhow::Result<Output> {
    let mut command = Command::new(tools.join("kubernetes-validate"));
    run(command.args(["--kubernetes-version", version, "--strict", "--quiet"]).args(files))
}

fn lint(tools: &Path, dockerfile: &Path) -> anyhow::Result<Output> {
    let config = deployment::folder().join("hadolint.yaml");
    run(Command::new(tools.join("hadolint")).arg("--config").arg(config).arg(dockerfile))
}

/// The keys of the server, as it prints them.
fn keys() -> anyhow::Result<BTreeSet<String>> {
    let output = run(Command::new(rail()?).args(["serve", "--print-config"]).env_clear())?;
    ensure!(output.status.success(), "expected a configuration, but: {}", said(&output));
    let printed = String::from_utf8(output.stdout)?;
    let assigned = printed.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once(" = "));
    Ok(assigned.map(|(key, _)| key.to_owned()).collect())
}

#[test]
fn manifests_fit_the_schemas_of_kubernetes() -> anyhow::Result<()> {
    let Some(tools) = tools() else { return Ok(()) };
    let files = deployment::manifests(&deployment::folder())?;
    for version in VERSIONS {
        let output = validate(&tools, version, &files)?;
        ensure!(output.status.success(), "expected manifests for {version}, but: {}", said(&output));
    }
    Ok(())
}

#[test]
fn broken_manifests_are_refused_by_the_schemas() -> anyhow::Result<()> {
    let Some(tools) = tools() else { return Ok(()) };
    let whole = fs::read_to_string(deployment::folder().join("kubernetes/statefulset.yaml"))?;
    let dir = tempfile::tempdir()?;
    let file = dir.path().join("statefulset.yaml");
    for (from, to) in [
        ("podManagementPolicy: Parallel", "podManagementPolicy: [Parallel]"),
        ("  replicas: 3", "  replicas: three"),
        ("enableServiceLinks: false", "enableServiceLink: false"),
        ("  serviceName: ticketrail-peers\n", "  service: ticketrail-peers\n"),
        ("              path: /livez", "              paths: /livez"),
    ] {
        ensure!(whole.contains(from), "expected {from:?} in the manifest");
        fs::write(&file, whole.replacen(from, to, 1))?;
        let output = validate(&tools, "1.34", std::slice::from_ref(&file))?;
        ensure!(!output.status.success(), "expected a refusal of {to:?}, but it was let through");
    }
    Ok(())
}

#[test]
fn the_dockerfile_passes_its_linter_and_a_broken_one_does_not() -> anyhow::Result<()> {
    let Some(tools) = tools() else { return Ok(()) };
    let dockerfile = deployment::folder().join("Dockerfile");
    let output = lint(&tools, &dockerfile)?;
    ensure!(output.status.success(), "expected a good Dockerfile, but: {}", said(&output));
    let whole = fs::read_to_string(&dockerfile)?;
    let dir = tempfile::tempdir()?;
    let broken = dir.path().join("Dockerfile");
    for (from, to, rule) in [
        ("FROM debian:bookworm-slim", "FROM debian", "DL3006"),
        ("USER 65532:65532", "USER root", "DL3002"),
        ("WORKDIR /data", "WORKDIR data", "DL3000"),
        ("ENTRYPOINT [\"/usr/local/bin/rail\", \"serve\"]", "ENTRYPOINT rail serve", "DL3025"),
    ] {
        ensure!(whole.contains(from), "expected {from:?} in the Dockerfile");
        fs::write(&broken, whole.replace(from, to))?;
        let output = lint(&tools, &broken)?;
        ensure!(!output.status.success() && said(&output).contains(rule), "expected {rule}, but: {}", said(&output));
    }
    Ok(())
}

#[test]
fn the_deployment_keeps_the_rules() -> anyhow::Result<()> {
    let breaches = Deployment::read(&deployment::folder())?.breaches(&keys()?);
    ensure!(breaches.is_empty(), "expected no breach, but: {breaches:#?}");
    Ok(())
}

/// Puts `value` where `path` leads, or takes away what is there.
fn put(object: &mut Value, path: &str, value: Option<Value>) -> anyhow::Result<()> {
    let (parent, last) = path.rsplit_once('/').context("a path")?;
    let parent = object.pointer_mut(parent).with_context(|| format!("{parent} is not there"))?;
    match (parent, value) {
        (Value::Object(fields), Some(value)) => drop(fields.insert(last.to_owned(), value)),
        (Value::Object(fields), None) => drop(fields.remove(last).with_context(|| format!("{path} is not there"))?),
        (Value::Array(items), Some(value)) => *items.get_mut(last.parse::<usize>()?).context("an item")? = value,
        (other, _) => bail!("expected an object at {path}, but got {other}"),
    }
    Ok(())
}

#[test]
fn each_rule_refuses_what_breaks_it() -> anyhow::Result<()> {
    let (whole, keys) = (Deployment::read(&deployment::folder())?, keys()?);
    const POD: &str = "/spec/template/spec";
    const CONTAINER: &str = "/spec/template/spec/containers/0";
    let set = "StatefulSet/ticketrail";
    let rows: [(&str, String, Option<Value>, &str); 31] = [
        (set, format!("{CONTAINER}/livenessProbe/httpGet/path"), Some(json!("/readyz")), "liveness never depends"),
        (set, format!("{CONTAINER}/startupProbe/httpGet/path"), Some(json!("/readyz")), "a start never depends"),
        (set, format!("{CONTAINER}/readinessProbe"), None, "clients go to pods that serve"),
        (set, format!("{POD}/terminationGracePeriodSeconds"), Some(json!(20)), "terminationGracePeriodSeconds"),
        (set, format!("{POD}/securityContext/runAsNonRoot"), None, "does not run as root"),
        (set, format!("{POD}/securityContext/runAsUser"), Some(json!(0)), "a user but root"),
        (set, format!("{POD}/securityContext/runAsUser"), Some(json!(1000)), "Dockerfile: expected USER 1000"),
        (set, format!("{POD}/securityContext/fsGroup"), None, "the volume's group"),
        (set, format!("{POD}/enableServiceLinks"), None, "look like ours"),
        (set, format!("{POD}/automountServiceAccountToken"), None, "never talks to the Kubernetes API"),
        (set, format!("{POD}/topologySpreadConstraints"), None, "spread over zones"),
        (set, format!("{CONTAINER}/securityContext/readOnlyRootFilesystem"), Some(json!(false)), "the volume alone"),
        (set, format!("{CONTAINER}/securityContext/capabilities/drop"), Some(json!(["NET_RAW"])), "no capability"),
        (set, format!("{CONTAINER}/resources/limits/cpu"), Some(json!("1")), "a throttled leader"),
        (set, format!("{CONTAINER}/resources/limits/memory"), None, "/resources/limits/memory"),
        (set, format!("{CONTAINER}/image"), Some(json!("ticketrail:latest")), "image: expected ticketrail:"),
        (set, format!("{CONTAINER}/env/1/name"), Some(json!("TICKETRAIL_NAM")), "TICKETRAIL_NAM: expected a variable"),
        (set, format!("{CONTAINER}/env/2/value"), Some(json!("ticketrail-0=ticketrail-0:50001")), "TICKETRAIL_PEERS"),
        (set, format!("{CONTAINER}/env/3/value"), Some(json!("$(POD_IP):50001")), "TICKETRAIL_ADVERTISE_PEER"),
        (set, format!("{CONTAINER}/env/5/value"), Some(json!("/tmp")), "TICKETRAIL_DATA_DIR"),
        (set, format!("{CONTAINER}/ports/2/containerPort"), Some(json!(9090)), "Dockerfile: expected EXPOSE"),
        (set, "/spec/podManagementPolicy".into(), Some(json!("OrderedReady")), "no pod becomes ready"),
        (set, "/spec/persistentVolumeClaimRetentionPolicy/whenDeleted".into(), Some(json!("Delete")), "are the data"),
        (set, "/spec/replicas".into(), Some(json!(4)), "replicas: expected an odd number"),
        (set, "/metadata/namespace".into(), Some(json!("default")), "expected namespace"),
        ("Service/ticketrail-peers", "/spec/publishNotReadyAddresses".into(), Some(json!(false)), "find each other"),
        ("Service/ticketrail-peers", "/spec/clusterIP".into(), None, "a name of its own"),
        ("Service/ticketrail", "/spec/publishNotReadyAddresses".into(), Some(json!(true)), "ready pods alone"),
        ("Service/ticketrail", "/spec/selector".into(), Some(json!({ "app": "x" })), "must find the pods"),
        ("PodDisruptionBudget/ticketrail", "/spec/maxUnavailable".into(), Some(json!(2)), "two of three"),
        ("PodDisruptionBudget/ticketrail", "/metadata/name".into(), Some(json!("x")), "expected a PodDisruptionBudget"),
    ];
    for (object, path, value, expected) in rows {
        let mut broken = whole.clone();
        let (kind, name) = object.split_once('/').context("a kind and a name")?;
        put(broken.object_mut(kind, name).context("an object")?, &path, value)?;
        let breaches = broken.breaches(&keys);
        ensure!(
            breaches.iter().any(|breach| breach.contains(expected)),
            "{object} {path}: expected a breach with {expected:?}, but got {breaches:#?}"
        );
    }
    for (name, rest, expected) in [
        ("USER", "0:0", "Dockerfile: expected USER"),
        ("STOPSIGNAL", "SIGINT", "STOPSIGNAL SIGTERM"),
        ("ENTRYPOINT", "rail serve", "without a shell"),
    ] {
        let mut broken = whole.clone();
        let line = broken.image.iter_mut().find(|(found, _)| found == name).context("an instruction")?;
        line.1 = rest.to_owned();
        let breaches = broken.breaches(&keys);
        ensure!(breaches.iter().any(|breach| breach.contains(expected)), "{name} {rest}: {breaches:#?}");
    }
    let mut broken = whole;
    broken.kustomization["resources"].as_array_mut().context("resources")?.pop();
    ensure!(broken.breaches(&keys).iter().any(|breach| breach.starts_with("kustomization.yaml")));
    Ok(())
}

/// Each pod's environment and file, given to the server as Kubernetes would.
#[test]
fn the_server_understands_what_each_pod_tells_it() -> anyhow::Result<()> {
    let deployment = Deployment::read(&deployment::folder())?;
    let dir = tempfile::tempdir()?;
    let (name, text) = deployment.config().context("a ConfigMap with a file")?;
    let file = dir.path().join(name);
    fs::write(&file, text)?;
    for ordinal in 0..deployment.replicas() {
        let environment = deployment.environment(ordinal);
        let given = environment.iter().filter(|(name, _)| name != "TICKETRAIL_CONFIG").cloned();
        let output = run(Command::new(rail()?)
            .args(["serve", "--print-config"])
            .env_clear()
            .envs(given)
            .env("TICKETRAIL_CONFIG", &file))?;
        ensure!(output.status.success(), "pod {ordinal}: expected a configuration, but: {}", said(&output));
        let printed = String::from_utf8(output.stdout)?;
        for expected in [
            format!("name = \"ticketrail-{ordinal}\""),
            format!("advertise_peer = \"ticketrail-{ordinal}.ticketrail-peers:50001\""),
            format!("advertise_client = \"ticketrail-{ordinal}.ticketrail-peers.ticketrail.svc:50000\""),
            format!("listen = \"0.0.0.0:{}\"", deployment.port("grpc")),
            format!("peer_listen = \"0.0.0.0:{}\"", deployment.port("peers")),
            format!("http_listen = \"0.0.0.0:{}\"", deployment.port("http")),
            "log_format = \"json\"".to_owned(),
            "data_dir = \"/data\"".to_owned(),
        ] {
            ensure!(printed.lines().any(|line| line == expected), "pod {ordinal}: expected {expected} in:\n{printed}");
        }
    }
    Ok(())
}
