//! The API server: who may ask, what is there, and what it says while it starts or has no datastore.

use semver::Version;
use serde_json::Value;

use super::answers::{Cause, Details, deleted, json, refusal, text};
use super::node::{ApiServer, Machine};
use super::objects;
use super::state::{ClusterState, Phase, UpgradeResource};
use super::{Cluster, ClusterId};
use crate::time::SimTime;
use crate::wire::{MachineId, Reply, Request, Response};

const MERGE_PATCH: &str = "application/merge-patch+json";
const STRATEGIC_MERGE_PATCH: &str = "application/strategic-merge-patch+json";
const UPGRADES: Resource = Resource { group: "k8sd.io", plural: "upgrades" };
const NODES: Resource = Resource { group: "", plural: "nodes" };

/// A kind of object, as texts name it.
#[derive(Debug, Clone, Copy)]
struct Resource {
    group: &'static str,
    plural: &'static str,
}

impl Resource {
    fn qualified(self) -> String {
        if self.group.is_empty() { self.plural.to_owned() } else { format!("{}.{}", self.plural, self.group) }
    }

    fn details(self, name: Option<&str>) -> Details<'_> {
        let group = Some(self.group).filter(|group| !group.is_empty());
        Details { name, group, kind: Some(self.plural), ..Details::default() }
    }

    fn not_found(self, name: &str) -> Response {
        let message = format!("{} \"{name}\" not found", self.qualified());
        refusal(404, "NotFound", &message, Some(self.details(Some(name))))
    }
}

/// Who asks.
enum Caller {
    /// The admin's certificate, or a token of the group `system:masters`.
    Admin,
    /// A token of somebody without rights.
    Powerless(String),
    /// Neither certificate nor known token.
    Nobody,
}

/// A request, taken apart.
struct Call<'a> {
    method: &'a str,
    path: Vec<&'a str>,
    query: &'a str,
    request: &'a Request,
}

impl<'a> Call<'a> {
    fn of(request: &'a Request) -> Self {
        let (path, query) = request.path.split_once('?').unwrap_or((&request.path, ""));
        let path = path.split('/').filter(|part| !part.is_empty()).collect();
        Call { method: &request.method, path, query, request }
    }

    /// The value of a parameter, decoded.
    fn parameter(&self, name: &str) -> Option<String> {
        let pairs = self.query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.filter(|(key, _)| *key == name).map(|(_, value)| decoded(value)).next()
    }

    fn content_type(&self) -> &str {
        let content_type = self.request.content_type.as_deref().unwrap_or_default();
        content_type.split(';').next().unwrap_or_default().trim()
    }

    fn body(&self) -> Value {
        serde_json::from_slice(&self.request.body).unwrap_or_default()
    }
}

/// How an API server is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Health {
    /// The port is open, start hooks are running: reads are answered, but for custom resources.
    Starting,
    /// Up.
    Up,
    /// Its datastore has no leader.
    NoLeader,
}

impl Cluster {
    pub(super) fn kubernetes(&mut self, machine: MachineId, now: SimTime, request: &Request) -> Reply {
        let Some(found) = self.machines.get(&machine) else { return Reply::Hangup };
        let Some(cluster) = found.cluster() else { return Reply::Hangup };
        let health = self.health(found, cluster);
        let version = found.snap.as_ref().map(|snap| snap.version.clone());
        let Some(state) = self.states.get_mut(&cluster) else { return Reply::Hangup };
        let call = Call::of(request);
        let response = match (caller(state, request), version) {
            (Caller::Nobody, _) | (_, None) => refusal(401, "Unauthorized", "Unauthorized", None),
            (Caller::Powerless(user), _) => forbidden(&user, &call),
            (Caller::Admin, Some(version)) => serve(state, &call, health, &version, now),
        };
        if call.method != "GET" {
            self.look_at_upgrades(cluster, now);
        }
        Reply::Now(response)
    }

    fn health(&self, machine: &Machine, cluster: ClusterId) -> Health {
        if !self.has_quorum(cluster) {
            Health::NoLeader
        } else if machine.api_server == ApiServer::Up {
            Health::Up
        } else {
            Health::Starting
        }
    }
}

fn caller(state: &ClusterState, request: &Request) -> Caller {
    if request.client_certificate {
        return Caller::Admin;
    }
    let header = request.headers.iter().find(|(name, _)| name == "authorization").map(|(_, value)| value.as_str());
    let token = header.and_then(|value| value.strip_prefix("Bearer "));
    match state.auth_tokens.iter().find(|known| Some(known.text.as_str()) == token) {
        None => Caller::Nobody,
        Some(known) if known.groups.iter().any(|group| group == "system:masters") => Caller::Admin,
        Some(known) => Caller::Powerless(known.username.clone()),
    }
}

/// What a user without rights may not do, in words (recorded: `nodes.forbidden`, `nodes.patch.forbidden`).
fn forbidden(user: &str, call: &Call<'_>) -> Response {
    let (resource, name) = match call.path.as_slice() {
        ["api", "v1", "nodes", rest @ ..] => (NODES, rest.first().copied()),
        ["apis", "k8sd.io", "v1alpha", "upgrades", rest @ ..] => (UPGRADES, rest.first().copied()),
        _ => {
            let path = call.request.path.split('?').next().unwrap_or_default();
            let verb = call.method.to_ascii_lowercase();
            let message = format!("forbidden: User \"{user}\" cannot {verb} path \"{path}\"");
            return refusal(403, "Forbidden", &message, Some(Details::default()));
        }
    };
    let verb = match (call.method, name) {
        ("GET", None) => "list".to_owned(),
        (method, _) => method.to_ascii_lowercase(),
    };
    let object = name.map(|name| format!(" \"{name}\"")).unwrap_or_default();
    let (qualified, plural, group) = (resource.qualified(), resource.plural, resource.group);
    let message = format!(
        "{qualified}{object} is forbidden: User \"{user}\" cannot {verb} resource \"{plural}\" in API group \"{group}\" at \
         the cluster scope"
    );
    refusal(403, "Forbidden", &message, Some(resource.details(name)))
}

fn serve(state: &mut ClusterState, call: &Call<'_>, health: Health, version: &Version, now: SimTime) -> Response {
    match (call.method, call.path.as_slice()) {
        ("GET", ["livez" | "healthz"]) => text(200, "ok"),
        ("GET", ["version"]) => text_json(objects::version(version)),
        ("GET", ["readyz"]) => readyz(health, call.query),
        _ if health == Health::NoLeader => refusal(500, "", "etcdserver: no leader", None),
        (_, ["api", "v1", "nodes", rest @ ..]) => nodes(state, call, rest, now),
        ("GET", ["api", "v1", "pods"]) => pods(state, call, None),
        ("GET", ["api", "v1", "namespaces", namespace, "pods"]) => pods(state, call, Some(namespace)),
        (_, ["apis", "k8sd.io", "v1alpha", "upgrades", rest @ ..])
            if state.upgrade_resource == UpgradeResource::Applied =>
        {
            if health == Health::Starting && call.method == "GET" {
                let details = Details { retry_after_seconds: Some(1), ..Details::default() };
                return refusal(429, "TooManyRequests", "storage is (re)initializing", Some(details));
            }
            upgrades(state, call, rest)
        }
        _ => not_served(),
    }
}

/// What the API server says of a path that it doesn't know.
fn not_served() -> Response {
    text(404, "404 page not found\n")
}

fn method_not_allowed() -> Response {
    let message = "the server does not allow this method on the requested resource";
    refusal(405, "MethodNotAllowed", message, Some(Details::default()))
}

fn text_json(body: String) -> Response {
    Response { status: 200, content_type: "application/json", body: body.into_bytes() }
}

fn readyz(health: Health, query: &str) -> Response {
    let failing: &[&str] = match health {
        Health::Up => &[],
        Health::Starting => &["poststarthook/rbac/bootstrap-roles"],
        Health::NoLeader => &["etcd", "etcd-readiness"],
    };
    match failing {
        [] if query.split('&').any(|parameter| parameter.starts_with("verbose")) => text(200, &objects::readyz(&[])),
        [] => text(200, "ok"),
        failing => text(500, &objects::readyz(failing)),
    }
}

fn nodes(state: &mut ClusterState, call: &Call<'_>, rest: &[&str], now: SimTime) -> Response {
    match (call.method, rest) {
        ("GET", []) => {
            let selector = call.parameter("labelSelector").unwrap_or_default();
            let chosen = state.nodes.iter().filter(|(_, node)| objects::selected(&selector, &node.labels));
            let items: Vec<Value> = chosen.map(|(name, node)| objects::node(name, node, now)).collect();
            json(200, &objects::list("NodeList", "v1", state.last_version(), &items))
        }
        ("GET", [name]) => match state.nodes.get(*name) {
            Some(node) => json(200, &objects::whole(objects::node(name, node, now), "Node", "v1")),
            None => NODES.not_found(name),
        },
        ("PATCH", [name]) => patch_node(state, call, name, now),
        ("DELETE", [name]) => match state.nodes.remove(*name) {
            Some(node) => deleted(Details { uid: Some(&node.uid), ..NODES.details(Some(name)) }),
            None => NODES.not_found(name),
        },
        _ => method_not_allowed(),
    }
}

/// Labels, annotations, `spec.unschedulable`; nothing else of a Node can be patched here.
fn patch_node(state: &mut ClusterState, call: &Call<'_>, name: &str, now: SimTime) -> Response {
    if ![MERGE_PATCH, STRATEGIC_MERGE_PATCH].contains(&call.content_type()) {
        return refusal(415, "UnsupportedMediaType", "415: Unsupported Media Type", Some(Details::default()));
    }
    let version = state.next_version();
    let Some(node) = state.nodes.get_mut(name) else { return NODES.not_found(name) };
    let patch = call.body();
    for (key, values) in [("labels", &mut node.labels), ("annotations", &mut node.annotations)] {
        let changes = patch.pointer(&format!("/metadata/{key}")).and_then(Value::as_object);
        for (key, value) in changes.into_iter().flatten() {
            match value.as_str() {
                Some(value) => values.insert(key.clone(), value.to_owned()),
                None => values.remove(key),
            };
        }
    }
    if let Some(unschedulable) = patch.pointer("/spec/unschedulable") {
        node.unschedulable = unschedulable.as_bool();
    }
    node.resource_version = version;
    json(200, &objects::whole(objects::node(name, node, now), "Node", "v1"))
}

fn pods(state: &ClusterState, call: &Call<'_>, namespace: Option<&str>) -> Response {
    let selector = call.parameter("fieldSelector").unwrap_or_default();
    let on_node = selector.split(',').find_map(|term| term.strip_prefix("spec.nodeName="));
    let on_node = on_node.map(|name| name.trim_start_matches('='));
    let pods = objects::pods(state).into_iter().filter(|pod| {
        let is = |pointer: &str, wanted: Option<&str>| {
            wanted.is_none_or(|wanted| pod.pointer(pointer).and_then(Value::as_str) == Some(wanted))
        };
        is("/spec/nodeName", on_node) && is("/metadata/namespace", namespace)
    });
    json(200, &objects::list("PodList", "v1", state.last_version(), &pods.collect::<Vec<_>>()))
}

fn upgrades(state: &mut ClusterState, call: &Call<'_>, rest: &[&str]) -> Response {
    match (call.method, rest) {
        ("GET", []) => {
            let items: Vec<Value> =
                state.upgrades.iter().map(|(name, upgrade)| objects::upgrade(name, upgrade)).collect();
            json(200, &objects::upgrade_list(state.last_version(), &items))
        }
        ("GET", [name]) => match state.upgrades.get(*name) {
            Some(upgrade) => json(200, &objects::upgrade(name, upgrade)),
            None => UPGRADES.not_found(name),
        },
        ("DELETE", [name]) => match state.upgrades.remove(*name) {
            Some(upgrade) => deleted(Details { uid: Some(&upgrade.uid), ..UPGRADES.details(Some(name)) }),
            None => UPGRADES.not_found(name),
        },
        ("PATCH", [name, "status"]) => patch_upgrade(state, call, name),
        _ => method_not_allowed(),
    }
}

/// `status.phase`; custom resources take no strategic merge patch.
fn patch_upgrade(state: &mut ClusterState, call: &Call<'_>, name: &str) -> Response {
    if call.content_type() != MERGE_PATCH {
        let message = "the body of the request was in an unknown format - accepted media types include: \
                       application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml";
        return refusal(415, "UnsupportedMediaType", message, None);
    }
    if !state.upgrades.contains_key(name) {
        return UPGRADES.not_found(name);
    }
    let patch = call.body();
    if let Some(asked) = patch.pointer("/status/phase").and_then(Value::as_str) {
        let Some(phase) = Phase::ALL.into_iter().find(|phase| phase.name() == asked) else {
            let supported = "\"NodeUpgrade\", \"FeatureUpgrade\", \"Completed\", \"Failed\"";
            let cause = format!("Unsupported value: \"{asked}\": supported values: {supported}");
            let message = format!("Upgrade.k8sd.io \"{name}\" is invalid: status.phase: {cause}");
            let cause = Cause { reason: "FieldValueNotSupported", message: &cause, field: "status.phase" };
            let details = Details { kind: Some("Upgrade"), causes: Some([cause]), ..UPGRADES.details(Some(name)) };
            return refusal(422, "Invalid", &message, Some(details));
        };
        state.change_upgrade(name, |upgrade| upgrade.phase = phase);
    }
    match state.upgrades.get(name) {
        Some(upgrade) => json(200, &objects::upgrade(name, upgrade)),
        None => UPGRADES.not_found(name),
    }
}

/// Undoes the percent-encoding of a parameter.
fn decoded(value: &str) -> String {
    let mut parts = value.split('%');
    let mut decoded = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                decoded.push(char::from(byte));
                decoded.push_str(part.get(2..).unwrap_or_default());
            }
            None => decoded.push_str(part),
        }
    }
    decoded
}
