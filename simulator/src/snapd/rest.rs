//! snapd's answers (snapd `daemon/api_*.go`; shapes as recorded).

use serde_json::{Map, Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::Snapd;
use super::changes::{Change, Task};
use crate::time::{EPOCH, SimTime};
use crate::wire::{Reply, Request, Response};

/// The snapd that is modelled.
const VERSION: &str = "2.68.3-3+deb13u1+b7";

/// The store's id of the snap.
const SNAP_ID: &str = "k8sTestSnapId0000000000000000000";

/// The services of a control plane, but for k8sd, which runs always.
const SERVICES: [&str; 8] = [
    "containerd",
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-proxy",
    "kube-scheduler",
    "kubelet",
    "k8s-apiserver-proxy",
];

/// An instant as snapd writes it.
fn instant(at: SimTime) -> String {
    let nanoseconds = i128::from(EPOCH) * 1_000_000_000 + i128::from(at.0) * 1_000_000;
    let instant = OffsetDateTime::from_unix_timestamp_nanos(nanoseconds).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    instant.format(&Rfc3339).unwrap_or_default()
}

fn respond(status: u16, body: &Value) -> Reply {
    Reply::Now(Response { status, content_type: "application/json", body: body.to_string().into_bytes() })
}

fn sync(result: &Value) -> Reply {
    respond(200, &json!({"type": "sync", "status-code": 200, "status": "OK", "result": result}))
}

fn accepted(change: &str) -> Reply {
    let body = json!({"type": "async", "status-code": 202, "status": "Accepted", "result": null, "change": change});
    respond(202, &body)
}

fn refuse(status: u16, word: &str, message: &str, kind: Option<(&str, Value)>) -> Reply {
    let mut result = json!({"message": message});
    if let Some((kind, value)) = kind {
        result["kind"] = json!(kind);
        result["value"] = value;
    }
    respond(status, &json!({"type": "error", "status-code": status, "status": word, "result": result}))
}

fn bad_request(message: &str) -> Reply {
    refuse(400, "Bad Request", message, None)
}

impl Snapd {
    /// A request on its socket. `member`: whether the machine's k8sd has enabled the services of a control plane.
    pub fn handle(&mut self, now: SimTime, request: &Request, member: bool) -> Reply {
        let (path, query) = request.path.split_once('?').unwrap_or((&request.path, ""));
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        match (request.method.as_str(), parts.as_slice()) {
            ("GET", ["v2", "system-info"]) => sync(&json!({"series": "16", "version": VERSION, "on-classic": true})),
            ("GET", ["v2", "snaps", "k8s"]) => self.snap(member),
            ("GET", ["v2", "find"]) => self.find(query),
            ("GET", ["v2", "changes"]) => self.list(now, query),
            ("GET", ["v2", "changes", id]) => match self.changes.iter().find(|change| change.id == *id) {
                Some(change) => sync(&as_json(change, now)),
                None => refuse(404, "Not Found", &format!("cannot find change with id \"{id}\""), None),
            },
            ("GET", ["v2", "apps"]) if self.installed.is_none() => {
                refuse(404, "Not Found", "snap \"k8s\" not found", Some(("snap-not-found", json!("k8s"))))
            }
            ("GET", ["v2", "apps"]) => sync(&self.services(member)),
            ("POST", ["v2", "snaps", "k8s"]) => self.act(now, &request.body),
            ("POST", ["v2", "apps"]) => self.act_on_services(now, &request.body),
            _ => refuse(404, "Not Found", "not found", None),
        }
    }

    fn snap(&self, member: bool) -> Reply {
        let Some(snap) = &self.installed else {
            return refuse(404, "Not Found", "snap not installed", Some(("snap-not-found", json!("k8s"))));
        };
        let mut apps = vec![json!({"snap": "k8s", "name": "k8s"})];
        apps.extend(self.services(member).as_array().cloned().unwrap_or_default());
        let mut result = json!({
            "id": SNAP_ID, "title": "k8s", "name": "k8s", "status": "active", "type": "app",
            "version": snap.version.to_string(), "revision": snap.revision.to_string(), "confinement": "classic",
            "private": false, "devmode": false, "jailmode": false, "ignore-validation": false, "base": "core22",
            "install-date": instant(snap.since), "installed-size": super::changes::SIZE, "apps": apps,
            "mounted-from": format!("/var/lib/snapd/snaps/k8s_{}.snap", snap.revision),
        });
        if let Some(channel) = &snap.channel {
            result["channel"] = json!(channel);
            result["tracking-channel"] = json!(channel);
        }
        if snap.held {
            result["hold"] = json!("2320-01-01T00:00:00Z");
        }
        sync(&result)
    }

    /// What the store holds, by channel.
    fn find(&self, query: &str) -> Reply {
        if query != "name=k8s" {
            return refuse(404, "Not Found", "snap not found", Some(("snap-not-found", json!(query))));
        }
        let released = |(channel, revision): (&String, &u32)| {
            let version = self.store.revisions.get(revision)?.to_string();
            let (revision, size) = (revision.to_string(), super::changes::SIZE);
            let released = json!({
                "revision": revision, "confinement": "classic", "version": version, "channel": channel,
                "epoch": {"read": [0], "write": [0]}, "size": size, "released-at": instant(SimTime(0)),
            });
            Some((channel.clone(), released))
        };
        let channels: Map<String, Value> = self.store.channels.iter().filter_map(released).collect();
        let snap = json!({"id": SNAP_ID, "name": "k8s", "type": "app", "status": "available", "channels": channels});
        let answer =
            json!({"type": "sync", "status-code": 200, "status": "OK", "result": [snap], "sources": ["store"]});
        respond(200, &answer)
    }

    fn services(&self, member: bool) -> Value {
        let running = !self.services_stopped;
        let service = |name: &str, enabled: bool| {
            let mut service = json!({"snap": "k8s", "name": name, "daemon": "simple", "daemon-scope": "system"});
            if enabled {
                service["enabled"] = json!(true);
            }
            if enabled && running {
                service["active"] = json!(true);
            }
            service
        };
        let others = SERVICES.iter().map(|name| service(name, member && *name != "k8s-apiserver-proxy"));
        Value::Array(std::iter::once(service("k8sd", true)).chain(others).collect())
    }

    fn list(&self, now: SimTime, query: &str) -> Reply {
        let wanted = |change: &&Change| match query.split('&').find_map(|part| part.strip_prefix("select=")) {
            Some("all") => true,
            Some("ready") => change.ready.is_some(),
            _ => change.ready.is_none(),
        };
        let changes: Vec<Value> = self.changes.iter().filter(wanted).map(|change| as_json(change, now)).collect();
        sync(&json!(changes))
    }

    fn act(&mut self, now: SimTime, body: &[u8]) -> Reply {
        let Ok(wish) = serde_json::from_slice::<Value>(body) else {
            return bad_request("cannot decode request body into snap instruction: unexpected end of JSON input");
        };
        let action = wish["action"].as_str().unwrap_or_default();
        if let Some(change) = self.changes.iter().find(|change| change.ready.is_none() && change.alters()) {
            let message = format!("snap \"k8s\" has \"{}\" change in progress", change.kind);
            let value = json!({"change-kind": change.kind, "snap-name": "k8s"});
            return refuse(409, "Conflict", &message, Some(("snap-change-conflict", value)));
        }
        match action {
            "install" if self.installed.is_some() => {
                let message = "snap \"k8s\" is already installed";
                refuse(400, "Bad Request", message, Some(("snap-already-installed", json!("k8s"))))
            }
            "refresh" | "hold" | "remove" if self.installed.is_none() => {
                let message = "snap \"k8s\" is not installed";
                refuse(400, "Bad Request", message, Some(("snap-not-installed", json!("k8s"))))
            }
            "install" | "refresh" => self.install_or_refresh(now, &wish),
            "hold" => {
                if let Some(snap) = &mut self.installed {
                    snap.held = true;
                }
                let change = self.begin_small(now, "hold-snap", "Hold auto-refreshes of \"k8s\" snap".to_owned());
                accepted(&change)
            }
            "remove" => accepted(&self.begin_removal(now)),
            action => bad_request(&format!("unknown action {action}")),
        }
    }

    fn install_or_refresh(&mut self, now: SimTime, wish: &Value) -> Reply {
        let asked = wish["channel"].as_str().map(str::to_owned);
        let tracked = self.installed.as_ref().and_then(|snap| snap.channel.clone());
        let channel = asked.or(tracked);
        let revision = match wish["revision"].as_str() {
            Some(revision) => revision.parse().ok(),
            None => channel.as_ref().and_then(|channel| self.store.channels.get(channel).copied()),
        };
        let found = revision.and_then(|revision| Some((revision, self.store.revisions.get(&revision)?.clone())));
        let Some((revision, version)) = found else {
            let message = "no snap revision available as specified";
            return refuse(404, "Not Found", message, Some(("snap-revision-not-available", json!("k8s"))));
        };
        if wish["classic"].as_bool() != Some(true) && self.installed.is_none() {
            let message = "snap \"k8s\" requires classic confinement";
            return refuse(400, "Bad Request", message, Some(("snap-needs-classic", json!("k8s"))));
        }
        if self.installed.as_ref().is_some_and(|snap| snap.revision == revision) {
            let message = "snap has no updates available";
            return refuse(400, "Bad Request", message, Some(("snap-no-update-available", json!(""))));
        }
        accepted(&self.begin(now, revision, version, channel))
    }

    fn act_on_services(&mut self, now: SimTime, body: &[u8]) -> Reply {
        let wish: Value = serde_json::from_slice(body).unwrap_or_default();
        let Some(name) = wish["names"][0].as_str().map(str::to_owned) else {
            return bad_request("cannot perform operation on services without a list of services to operate on");
        };
        if self.installed.is_none() {
            return refuse(404, "Not Found", "snap \"k8s\" not found", Some(("snap-not-found", json!("k8s"))));
        }
        self.restarted.push((now, name));
        accepted(&self.begin_small(now, "service-control", "Running service command".to_owned()))
    }
}

fn as_json(change: &Change, now: SimTime) -> Value {
    let mut value = json!({
        "id": change.id, "kind": change.kind, "summary": change.summary, "status": change.status(),
        "ready": change.ready.is_some(), "spawn-time": instant(change.spawned),
        "tasks": change.tasks.iter().map(|task| task_as_json(change, task, now)).collect::<Vec<_>>(),
        "data": {"snap-names": ["k8s"]},
    });
    if let Some(ready) = change.ready {
        value["ready-time"] = json!(instant(ready));
    }
    if let Some(err) = change.err().filter(|_| change.ready.is_some()) {
        value["err"] = json!(err);
    }
    value
}

fn task_as_json(change: &Change, task: &Task, now: SimTime) -> Value {
    let (done, total) = task.progress(now);
    let mut value = json!({
        "id": task.id.to_string(), "kind": task.kind, "summary": task.summary, "status": task.status.word(),
        "progress": {"label": if total > 1 { "k8s" } else { "" }, "done": done, "total": total},
        "spawn-time": instant(change.spawned), "data": {"affected-snaps": ["k8s"]},
    });
    if let Some(ended) = task.ended {
        value["ready-time"] = json!(instant(ended));
    }
    if !task.log.is_empty() {
        let line = |(at, line): &(SimTime, String)| {
            let at = SimTime(at.0 / 1000 * 1000);
            format!("{} ERROR {line}", instant(at))
        };
        value["log"] = json!(task.log.iter().map(line).collect::<Vec<_>>());
    }
    value
}
