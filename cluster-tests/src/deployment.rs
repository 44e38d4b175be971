//! What `deploy/` must fulfil beside being well formed: the rules that keep a cluster alive and its pods harmless.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::{Value, json};

use crate::dockerfile::{self, Instruction};

/// The longest that an orderly stop takes, in seconds.
const STOP_SECONDS: u64 = 20;
/// Variables of ours that are no keys of the server's.
const NO_KEYS: [&str; 1] = ["TICKETRAIL_CONFIG"];
/// The path of all that concerns a pod.
const POD: &str = "/spec/template/spec";
/// The path of its one container.
const CONTAINER: &str = "/spec/template/spec/containers/0";

/// The files of `deploy/`.
#[derive(Debug, Clone)]
pub struct Deployment {
    /// The manifests, each with the name of its file.
    pub objects: Vec<(String, Value)>,
    /// What kustomize reads.
    pub kustomization: Value,
    /// The last stage of the Dockerfile: the image.
    pub image: Vec<Instruction>,
}

/// The folder `deploy/` of this tree.
pub fn folder() -> PathBuf {
    // Of the run, not of the build: a build may serve another checkout, where a target folder is shared.
    let package = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    Path::new(&package).join("../deploy")
}

/// The files of the manifests in `folder`.
pub fn manifests(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder.join("kubernetes"))?.collect::<Result<Vec<_>, _>>()?;
    let mut files: Vec<PathBuf> = entries.into_iter().map(|entry| entry.path()).collect();
    files.retain(|file| file.file_name().is_some_and(|name| name != "kustomization.yaml"));
    files.sort();
    Ok(files)
}

impl Deployment {
    /// Reads the files in `folder`.
    pub fn read(folder: &Path) -> anyhow::Result<Self> {
        let mut objects = Vec::new();
        for path in manifests(folder)? {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let text = fs::read_to_string(&path)?;
            let documents: Vec<Value> =
                serde_saphyr::from_multiple(&text).with_context(|| format!("read {}", path.display()))?;
            objects.extend(documents.into_iter().map(|document| (name.clone(), document)));
        }
        let text = fs::read_to_string(folder.join("kubernetes/kustomization.yaml"))?;
        let kustomization = serde_saphyr::from_str(&text).context("read kustomization.yaml")?;
        let image = dockerfile::last_stage(&fs::read_to_string(folder.join("Dockerfile"))?);
        Ok(Self { objects, kustomization, image })
    }

    /// The object of `kind` and `name`.
    pub fn object(&self, kind: &str, name: &str) -> Option<&Value> {
        let is = |object: &&Value| object["kind"] == kind && object["metadata"]["name"] == name;
        self.objects.iter().map(|(_, object)| object).find(is)
    }

    /// The same, to be changed.
    pub fn object_mut(&mut self, kind: &str, name: &str) -> Option<&mut Value> {
        let is = |object: &&mut Value| object["kind"] == kind && object["metadata"]["name"] == name;
        self.objects.iter_mut().map(|(_, object)| object).find(is)
    }

    fn stateful_set(&self) -> &Value {
        self.object("StatefulSet", "ticketrail").unwrap_or(&Value::Null)
    }

    fn pod(&self, path: &str) -> &Value {
        self.stateful_set().pointer(&format!("{POD}{path}")).unwrap_or(&Value::Null)
    }

    fn container(&self, path: &str) -> &Value {
        self.stateful_set().pointer(&format!("{CONTAINER}{path}")).unwrap_or(&Value::Null)
    }

    /// The environment of the pod numbered `ordinal`, with what Kubernetes fills in.
    pub fn environment(&self, ordinal: u64) -> Vec<(String, String)> {
        let pod = format!("{}-{ordinal}", text(&self.stateful_set()["metadata"]["name"]));
        let namespace = text(&self.stateful_set()["metadata"]["namespace"]);
        let mut known: Vec<(String, String)> = Vec::new();
        for variable in self.container("/env").as_array().into_iter().flatten() {
            let value = match text(&variable["valueFrom"]["fieldRef"]["fieldPath"]) {
                "metadata.name" => pod.clone(),
                "metadata.namespace" => namespace.to_owned(),
                _ => known.iter().fold(text(&variable["value"]).to_owned(), |value, (name, known)| {
                    value.replace(&format!("$({name})"), known)
                }),
            };
            known.push((text(&variable["name"]).to_owned(), value));
        }
        known
    }

    /// The number of pods.
    pub fn replicas(&self) -> u64 {
        self.stateful_set()["spec"]["replicas"].as_u64().unwrap_or_default()
    }

    /// The image's instructions called `name`.
    fn instructions(&self, name: &str) -> Vec<&str> {
        self.image.iter().filter(|(found, _)| found == name).map(|(_, rest)| rest.as_str()).collect()
    }

    /// One line for each breach of a rule. `keys` are those of the server.
    pub fn breaches(&self, keys: &BTreeSet<String>) -> Vec<String> {
        let mut breaches = self.wrong_values();
        breaches.extend(self.wrong_wholes());
        breaches.extend(self.wrong_environment(keys));
        breaches.extend(self.wrong_image());
        breaches
    }

    /// What must have one value, and why.
    fn wrong_values(&self) -> Vec<String> {
        let pods = json!({ "app.kubernetes.io/name": "ticketrail" });
        let of_set = |path: &'static str| ("StatefulSet", "ticketrail", path.to_owned());
        let of_pod = |path: &str| ("StatefulSet", "ticketrail", format!("{POD}{path}"));
        let of_container = |path: &str| ("StatefulSet", "ticketrail", format!("{CONTAINER}{path}"));
        let rows = [
            (
                of_set("/spec/podManagementPolicy"),
                json!("Parallel"),
                "no pod becomes ready before the others are there",
            ),
            (of_set("/spec/serviceName"), json!("ticketrail-peers"), "the pods' names live in the peers' service"),
            (of_set("/spec/selector/matchLabels"), pods.clone(), "the set must find its pods"),
            (of_set("/spec/template/metadata/labels"), pods.clone(), "the services must find the pods"),
            (
                of_set("/spec/persistentVolumeClaimRetentionPolicy"),
                json!({ "whenDeleted": "Retain", "whenScaled": "Retain" }),
                "the volumes are the data",
            ),
            (of_pod("/automountServiceAccountToken"), json!(false), "the server never talks to the Kubernetes API"),
            (of_pod("/enableServiceLinks"), json!(false), "variables made of services look like ours"),
            (of_pod("/securityContext/runAsNonRoot"), json!(true), "a pod does not run as root"),
            (
                of_pod("/securityContext/seccompProfile/type"),
                json!("RuntimeDefault"),
                "the restricted profile asks for it",
            ),
            (
                of_container("/securityContext/allowPrivilegeEscalation"),
                json!(false),
                "the restricted profile asks for it",
            ),
            (of_container("/securityContext/readOnlyRootFilesystem"), json!(true), "the volume alone is written to"),
            (of_container("/securityContext/capabilities"), json!({ "drop": ["ALL"] }), "no capability is needed"),
            (of_container("/livenessProbe/httpGet"), probe("/livez"), "liveness never depends on quorum or leader"),
            (of_container("/startupProbe/httpGet"), probe("/livez"), "a start never depends on quorum or leader"),
            (of_container("/readinessProbe/httpGet"), probe("/readyz"), "clients go to pods that serve"),
            (of_container("/resources/limits/cpu"), Value::Null, "a throttled leader looks like a dead one"),
            (
                ("Service", "ticketrail-peers", "/spec/publishNotReadyAddresses".to_owned()),
                json!(true),
                "members must find each other before any is ready",
            ),
            (
                ("Service", "ticketrail-peers", "/spec/clusterIP".to_owned()),
                json!("None"),
                "each pod has a name of its own",
            ),
            (
                ("Service", "ticketrail-peers", "/spec/selector".to_owned()),
                pods.clone(),
                "the service must find the pods",
            ),
            (
                ("Service", "ticketrail", "/spec/publishNotReadyAddresses".to_owned()),
                Value::Null,
                "clients go to ready pods alone",
            ),
            (("Service", "ticketrail", "/spec/selector".to_owned()), pods.clone(), "the service must find the pods"),
            (
                ("PodDisruptionBudget", "ticketrail", "/spec/maxUnavailable".to_owned()),
                json!(1),
                "two of three are a quorum",
            ),
            (
                ("PodDisruptionBudget", "ticketrail", "/spec/selector/matchLabels".to_owned()),
                pods.clone(),
                "the budget must find the pods",
            ),
            (
                ("ServiceAccount", "ticketrail", "/automountServiceAccountToken".to_owned()),
                json!(false),
                "the server never talks to the Kubernetes API",
            ),
        ];
        let wrong = rows.into_iter().filter_map(|((kind, name, path), expected, why)| {
            let found = self.object(kind, name)?.pointer(&path).unwrap_or(&Value::Null);
            (*found != expected).then(|| format!("{kind} {name}, {path}: expected {expected}, but got {found}: {why}"))
        });
        let needed = [
            ("StatefulSet", "ticketrail"),
            ("Service", "ticketrail"),
            ("Service", "ticketrail-peers"),
            ("PodDisruptionBudget", "ticketrail"),
            ("ServiceAccount", "ticketrail"),
            ("ConfigMap", "ticketrail"),
        ];
        let missing = needed.into_iter().filter(|(kind, name)| self.object(kind, name).is_none());
        missing.map(|(kind, name)| format!("expected a {kind} {name}, but there is none")).chain(wrong).collect()
    }

    /// What depends on more than one value.
    fn wrong_wholes(&self) -> Vec<String> {
        let mut breaches = Vec::new();
        let grace = self.pod("/terminationGracePeriodSeconds").as_u64().unwrap_or(30);
        if grace <= STOP_SECONDS {
            breaches.push(format!(
                "terminationGracePeriodSeconds: expected more than the {STOP_SECONDS} s of an orderly stop, but got {grace}"
            ));
        }
        let replicas = self.replicas();
        if replicas < 3 || replicas.is_multiple_of(2) {
            breaches.push(format!("replicas: expected an odd number from 3 on, but got {replicas}"));
        }
        if self.pod("/containers").as_array().map(Vec::len) != Some(1) {
            breaches.push("containers: expected exactly one, since the rules look at one".to_owned());
        }
        for resource in ["/resources/requests/memory", "/resources/requests/cpu", "/resources/limits/memory"] {
            if self.container(resource).is_null() {
                breaches.push(format!("{resource}: expected a value, but there is none"));
            }
        }
        if self.pod("/topologySpreadConstraints/0").is_null() || self.pod("/affinity/podAntiAffinity").is_null() {
            breaches.push("expected pods to be spread over zones and machines, but they need not be".to_owned());
        }
        let namespace = &self.kustomization["namespace"];
        for (file, object) in &self.objects {
            let found = match text(&object["kind"]) {
                "Namespace" => &object["metadata"]["name"],
                _ => &object["metadata"]["namespace"],
            };
            if found != namespace {
                breaches.push(format!("{file}: expected namespace {namespace}, but got {found}"));
            }
        }
        let listed: BTreeSet<&str> =
            self.kustomization["resources"].as_array().into_iter().flatten().map(text).collect();
        let files: BTreeSet<&str> = self.objects.iter().map(|(file, _)| file.as_str()).collect();
        if listed != files {
            breaches.push(format!("kustomization.yaml: expected the resources {files:?}, but got {listed:?}"));
        }
        breaches
    }

    /// What the server is told.
    fn wrong_environment(&self, keys: &BTreeSet<String>) -> Vec<String> {
        let mut breaches = Vec::new();
        let environment = self.environment(0);
        let value = |wanted: &str| {
            let found = environment.iter().find(|(name, _)| name == wanted);
            found.map(|(_, value)| value.as_str()).unwrap_or_default()
        };
        for (name, value) in &environment {
            let Some(key) = name.strip_prefix("TICKETRAIL_") else { continue };
            if !keys.contains(&key.to_lowercase()) && !NO_KEYS.contains(&name.as_str()) {
                breaches.push(format!("{name}: expected a variable of the server's, but it has no such key"));
            }
            if value.is_empty() || value.contains("$(") {
                breaches.push(format!("{name}: expected a value that Kubernetes fills in, but got {value:?}"));
            }
        }
        let (set, service) =
            (text(&self.stateful_set()["metadata"]["name"]), text(&self.stateful_set()["spec"]["serviceName"]));
        let port = self.port("peers");
        let peers: Vec<String> =
            (0..self.replicas()).map(|n| format!("{set}-{n}={set}-{n}.{service}:{port}")).collect();
        if value("TICKETRAIL_PEERS") != peers.join(",") {
            breaches.push(format!(
                "TICKETRAIL_PEERS: expected {}, but got {}",
                peers.join(","),
                value("TICKETRAIL_PEERS")
            ));
        }
        if value("TICKETRAIL_NAME") != format!("{set}-0") {
            breaches.push("TICKETRAIL_NAME: expected the pod's name, which outlives its volume".to_owned());
        }
        if value("TICKETRAIL_ADVERTISE_PEER") != format!("{set}-0.{service}:{port}") {
            breaches.push("TICKETRAIL_ADVERTISE_PEER: expected the address that the peers have for the pod".to_owned());
        }
        let mounts = self.container("/volumeMounts").as_array().map(Vec::as_slice).unwrap_or_default();
        let claim = &self.stateful_set()["spec"]["volumeClaimTemplates"][0]["metadata"]["name"];
        let data = mounts.iter().find(|mount| mount["name"] == *claim).map(|mount| text(&mount["mountPath"]));
        if data != Some(value("TICKETRAIL_DATA_DIR")) {
            breaches.push(format!("TICKETRAIL_DATA_DIR: expected the volume at {data:?}, but got another place"));
        }
        let config = mounts.iter().find(|mount| mount["name"] == "config").map(|mount| text(&mount["mountPath"]));
        let file = config.zip(self.config()).map(|(path, (file, _))| format!("{path}/{file}"));
        if file.as_deref() != Some(value("TICKETRAIL_CONFIG")) {
            breaches.push(format!("TICKETRAIL_CONFIG: expected {file:?}, where the ConfigMap is"));
        }
        breaches
    }

    /// The configuration file: its name and its text.
    pub fn config(&self) -> Option<(&str, &str)> {
        let data = self.object("ConfigMap", "ticketrail")?["data"].as_object()?;
        data.iter().next().map(|(file, content)| (file.as_str(), text(content)))
    }

    /// The number of the container's port called `name`; 0 where there is none.
    pub fn port(&self, name: &str) -> u64 {
        let ports = self.container("/ports").as_array().map(Vec::as_slice).unwrap_or_default();
        let found = ports.iter().find(|port| port["name"] == name);
        found.and_then(|port| port["containerPort"].as_u64()).unwrap_or_default()
    }

    /// What image and pod must agree on.
    fn wrong_image(&self) -> Vec<String> {
        let mut breaches = Vec::new();
        let user = self.pod("/securityContext/runAsUser").as_u64().unwrap_or_default();
        let group = self.pod("/securityContext/runAsGroup").as_u64().unwrap_or_default();
        if user == 0 || self.pod("/securityContext/fsGroup").as_u64() != Some(group) {
            breaches
                .push(format!("runAsUser, fsGroup: expected a user but root with the volume's group, but got {user}"));
        }
        if self.instructions("USER") != [format!("{user}:{group}")] {
            breaches.push(format!(
                "Dockerfile: expected USER {user}:{group}, as the pod's, but got {:?}",
                self.instructions("USER")
            ));
        }
        if self.instructions("STOPSIGNAL") != ["SIGTERM"] {
            breaches.push("Dockerfile: expected STOPSIGNAL SIGTERM, which stops the server in order".to_owned());
        }
        let entry: Option<Vec<String>> =
            self.instructions("ENTRYPOINT").last().and_then(|entry| serde_json::from_str(entry).ok());
        let program = entry.as_deref().unwrap_or_default();
        if !matches!(program, [rail, serve] if rail.ends_with("/rail") && serve == "serve") {
            breaches.push(format!(
                "Dockerfile: expected ENTRYPOINT [\".../rail\", \"serve\"], without a shell, but got {program:?}"
            ));
        }
        let exposed: BTreeSet<&str> =
            self.instructions("EXPOSE").iter().flat_map(|ports| ports.split_whitespace()).collect();
        let ports: BTreeSet<String> = ["grpc", "peers", "http"].map(|name| self.port(name).to_string()).into();
        if exposed != ports.iter().map(String::as_str).collect() {
            breaches.push(format!("Dockerfile: expected EXPOSE {ports:?}, as the pod's ports, but got {exposed:?}"));
        }
        let tag = format!("ticketrail:{}", env!("CARGO_PKG_VERSION"));
        if *self.container("/image") != json!(tag) {
            breaches.push(format!("image: expected {tag}, as this version is, but got {}", self.container("/image")));
        }
        breaches
    }
}

fn probe(path: &str) -> Value {
    json!({ "path": path, "port": "http" })
}

/// A text; empty where it is none.
fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
