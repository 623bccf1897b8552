//! The port to k8sd against recorded answers of real k8sds, through a socket.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test may end at once where its own data is wrong")]

mod unix_server;

use std::path::Path;
use std::time::Duration;

use k8s_charm::k8sd::{Database, K8sd, K8sdError, NodeStanding, Readiness};
use k8s_charm::names::Timestamp;
use k8s_charm::secret::SecretText;
use serde_json::{Value, json};
use unix_server::UnixServer;

const SOCKET: &str = "/var/snap/k8s/common/var/lib/k8sd/state/control.socket";
const SOON: Duration = Duration::from_secs(5);
const VERSIONS: [&str; 3] = ["1.32", "1.35", "1.36"];

const READY: &str = "GET /core/1.0/ready";
const MEMBERS: &str = "GET /core/1.0/cluster";
const NODE: &str = "GET /1.0/k8sd/node";
const CLUSTER: &str = "GET /1.0/k8sd/cluster";
const BOOTSTRAP: &str = "POST /1.0/k8sd/cluster";
const JOIN: &str = "POST /1.0/k8sd/cluster/join";
const TOKENS: &str = "POST /1.0/k8sd/cluster/tokens";
const REMOVE: &str = "POST /1.0/k8sd/cluster/remove";
const KUBECONFIG: &str = "GET /1.0/k8sd/kubeconfig";
const CERTIFICATES: &str = "GET /1.0/k8sd/certs-status";

/// A k8sd that answers these calls with these recordings.
fn k8sd(version: &str, answers: &[(&str, &str)]) -> (K8sd, UnixServer) {
    let server = UnixServer::at(SOCKET);
    for (call, name) in answers {
        let path = format!("simulator/recorded/k8sd/{version}/{name}.json");
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
        let body = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let code = serde_json::from_slice::<Value>(&body).unwrap()["error_code"].as_u64().unwrap();
        server.answers(call, if code == 0 { 200 } else { code }, &body);
    }
    (K8sd::new(server.root()), server)
}

/// A k8sd that answers this call with this.
fn made_up(call: &str, status: u64, body: &Value) -> (K8sd, UnixServer) {
    let server = UnixServer::at(SOCKET);
    server.answers(call, status, body.to_string().as_bytes());
    (K8sd::new(server.root()), server)
}

fn error(code: u64, text: &str) -> Value {
    json!({"type": "error", "error_code": code, "error": text, "metadata": null})
}

#[tokio::test]
async fn readiness_is_told_apart_by_text() {
    for version in VERSIONS {
        let (k8sd, server) = k8sd(version, &[(READY, "ready")]);
        assert_eq!(k8sd.ready().await, Readiness::Ready, "{version}");
        assert_eq!(server.asked(), [READY]);

        for node in ["node.not-initialised", "node.starting", "node"] {
            let (k8sd, _server) = self::k8sd(version, &[(READY, "ready.not-yet"), (NODE, node)]);
            let Readiness::NotReady(why) = k8sd.ready().await else { panic!("{version} {node}") };
            assert!(why.contains("Daemon is not ready yet"), "{why}");
        }
    }
    let waiting = [(READY, "ready.waiting-for-upgrade"), (NODE, "node.waiting-for-upgrade")];
    assert_eq!(k8sd("1.36", &waiting).0.ready().await, Readiness::WaitsForMembers);

    let (k8sd, server) = made_up(READY, 503, &error(503, "Daemon is shutting down"));
    server.answers(NODE, 503, error(503, "Daemon is shutting down").to_string().as_bytes());
    assert!(matches!(k8sd.ready().await, Readiness::NotReady(_)));
}

#[tokio::test]
async fn a_standing_is_known_and_never_guessed() {
    for version in VERSIONS {
        let standing = async |answers: &[(&str, &str)]| k8sd(version, answers).0.standing().await;
        let newcomer = standing(&[(NODE, "node.not-initialised")]).await;
        assert_eq!(newcomer.unwrap(), NodeStanding::NotInitialised, "{version}");

        let starting = standing(&[(NODE, "node.starting")]).await.unwrap_err();
        assert_eq!((starting.database(), starting.is_transient()), (Some(Database::NotYet), true), "{version}");

        let member = standing(&[(NODE, "node"), (CLUSTER, "cluster.one")]).await.unwrap();
        let NodeStanding::Member(status) = member else { panic!("{version}: {member:?}") };
        assert_eq!((status.name.as_str(), status.address.as_str()), ("k8s-0", "10.0.0.11:6400"));
        assert_eq!((status.cluster_role.as_str(), status.datastore_role.as_str()), ("control-plane", "voter"));
    }
    // What a bootstrap that fails in a second looks like.
    let undone = k8sd("1.35", &[(NODE, "node"), (CLUSTER, "cluster.no-api-server")]).0.standing().await;
    assert!(undone.unwrap_err().is_transient());
    let leaving = k8sd("1.35", &[(NODE, "node.unknown")]).0.standing().await.unwrap();
    assert_eq!(leaving, NodeStanding::Entering);
    let NodeStanding::Member(worker) = k8sd("1.35", &[(NODE, "node.worker")]).0.standing().await.unwrap() else {
        panic!("a worker is a member")
    };
    assert_eq!(worker.cluster_role, "worker");

    let pending = json!({"name": "k8s-1", "cluster-role": "control-plane", "datastore-role": "PENDING"});
    let (k8sd, _server) = made_up(NODE, 200, &json!({"metadata": {"status": pending}}));
    assert_eq!(k8sd.standing().await.unwrap(), NodeStanding::Entering);
    // A transaction that met such a database, and a text with more in it, say nothing of this node.
    for (code, text) in [
        (500, "Database is not yet initialized"),
        (503, "Database is not ready yet: Database is not yet initialized"),
        (503, "daemon not yet initialized"),
    ] {
        let (k8sd, _server) = made_up(NODE, code, &error(code, text));
        assert_eq!(k8sd.standing().await.unwrap_err().database(), Some(Database::NotYet), "{text}");
    }
}

#[tokio::test]
async fn requests_carry_only_what_every_version_knows() {
    let answers =
        [(BOOTSTRAP, "bootstrap"), (TOKENS, "token"), (REMOVE, "remove.not-there"), (KUBECONFIG, "kubeconfig")];
    for version in VERSIONS {
        let (k8sd, server) = k8sd(version, &answers);
        let config = json!({"datastore-type": "etcd"});
        k8sd.bootstrap("k8s-0", "10.0.0.11:6400", &config).await.unwrap();
        let minutes = 10 * 60 * 1_000_000_000_u64;
        let body = json!({"name": "k8s-0", "address": "10.0.0.11:6400", "config": config, "timeout": minutes});
        assert_eq!(server.last().json(), body);

        k8sd.token("k8s-1", false, SOON).await.unwrap();
        assert_eq!(server.last().json(), json!({"name": "k8s-1", "worker": false}));
        k8sd.remove("nobody", true).await.unwrap();
        assert_eq!(server.last().json(), json!({"name": "nobody", "force": true}));
        // No body at all is refused.
        k8sd.kubeconfig("").await.unwrap();
        assert_eq!(server.last().json(), json!({"server": ""}));
    }
    let (k8sd, server) = k8sd("1.35", &[(JOIN, "join.worker")]);
    let token = SecretText::new("aHVudGVyMg==".to_owned());
    k8sd.join("k8s-1", "10.0.0.12:6400", &token, "extra-sans: []\n").await.unwrap();
    let body = json!({"name": "k8s-1", "address": "10.0.0.12:6400", "token": "aHVudGVyMg==",
        "config": "extra-sans: []\n", "timeout": 600_000_000_000_u64});
    assert_eq!(server.last().json(), body);
}

#[tokio::test]
async fn secrets_come_as_secrets() {
    let (k8sd, _server) = k8sd("1.35", &[(TOKENS, "token"), (KUBECONFIG, "kubeconfig")]);
    let token = k8sd.token("k8s-1", false, SOON).await.unwrap();
    let kubeconfig = k8sd.kubeconfig("").await.unwrap();
    assert!(token.expose().starts_with("eyJ"));
    assert!(kubeconfig.expose().starts_with("apiVersion: v1\n"));
    assert_eq!(format!("{token:?} {kubeconfig:?}"), "<redacted> <redacted>");

    for metadata in [json!({}), json!({"token": ""}), json!({"token": 7}), json!(null)] {
        let (k8sd, _server) = made_up(TOKENS, 200, &json!({"metadata": metadata}));
        let error = k8sd.token("k8s-1", false, SOON).await.unwrap_err();
        assert!(matches!(error, K8sdError::Answer { .. }) && !error.is_transient(), "{error}");
    }
}

#[tokio::test]
async fn a_refusal_says_whether_it_may_pass() {
    for (call, version, name, says, transient) in [
        (BOOTSTRAP, "1.35", "bootstrap.again", "cluster is already bootstrapped", false),
        (BOOTSTRAP, "1.35", "bootstrap.unknown-key", "unknown field", false),
        (BOOTSTRAP, "1.35", "bootstrap.bad-name", "invalid hostname", false),
        (BOOTSTRAP, "1.35", "method-not-implemented", "Not Implemented", false),
        (JOIN, "1.35", "join.again", "node \"k8s-0\" is part of the cluster", false),
        (JOIN, "1.35", "join.expired", "CoreTokenRecord not found", true),
        (TOKENS, "1.35", "token.not-initialised", "Database is not yet initialized", true),
        (TOKENS, "1.36", "token.name-taken", "k8s-1", true),
        (CLUSTER, "1.35", "cluster.no-api-server", "connection refused", true),
        (CLUSTER, "1.35", "cluster.worker", "this action is restricted on workers", false),
    ] {
        let (k8sd, _server) = k8sd(version, &[(call, name)]);
        let error = match call {
            BOOTSTRAP => k8sd.bootstrap("k8s-0", "10.0.0.11:6400", &json!({})).await.unwrap_err(),
            JOIN => k8sd.join("k8s-0", "a:6400", &SecretText::new("t".to_owned()), "").await.unwrap_err(),
            TOKENS => k8sd.token("k8s-1", false, SOON).await.map(drop).unwrap_err(),
            _ => k8sd.cluster().await.map(drop).unwrap_err(),
        };
        let text = error.to_string();
        assert!(text.contains(says) && !text.contains('\n'), "{name}: {text}");
        assert_eq!(error.is_transient(), transient, "{name}: {text}");
        assert_eq!(error.is_joined_already(), name == "join.again");
        assert_eq!(error.is_bootstrapped_already(), name == "bootstrap.again");
        assert!(!error.is_unknown_outcome());
    }
}

#[tokio::test]
async fn a_lost_answer_leaves_open_what_was_done() {
    let nobody = tempfile::tempdir().unwrap();
    let root = k8s_charm::machine::Root::of_charm_dir(&nobody.path().join("var/lib/juju/agents/unit-k8s-0/charm"));
    let absent = K8sd::new(&root).remove("k8s-1", true).await.unwrap_err();
    assert!(absent.is_transient() && !absent.is_unknown_outcome(), "{absent}");

    let server = UnixServer::at(SOCKET);
    server.always_says("");
    let hung_up = K8sd::new(server.root()).remove("k8s-1", true).await.unwrap_err();
    assert!(hung_up.is_transient() && hung_up.is_unknown_outcome(), "{hung_up}");

    for answer in ["HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n{", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n7 "] {
        server.always_says(answer);
        let garbage = K8sd::new(server.root()).remove("k8s-1", true).await.unwrap_err();
        assert!(matches!(garbage, K8sdError::Answer { .. }), "{garbage}");
    }
    server.always_says("HTTP/1.1 502 Bad\r\nContent-Length: 4\r\n\r\noops");
    let proxy = K8sd::new(server.root()).remove("k8s-1", true).await.unwrap_err();
    assert!(proxy.is_transient() && proxy.to_string().contains("no reason given"), "{proxy}");
}

#[tokio::test]
async fn removing_who_is_gone_is_no_error() {
    for version in VERSIONS {
        k8sd(version, &[(REMOVE, "remove.not-there")]).0.remove("nobody", false).await.unwrap();
    }
    // As k8sd before October 2025 answers for a worker.
    let (old, _server) = made_up(REMOVE, 520, &error(520, "node \"worker-0\" is not part of the cluster"));
    old.remove("worker-0", false).await.unwrap();
    let half = k8sd("1.35", &[(REMOVE, "remove.half-removed-again")]).0.remove("k8s-2", false).await.unwrap_err();
    assert!(half.to_string().contains("no etcd member found"), "{half}");
}

#[tokio::test]
async fn the_clusters_status_names_members_datastore_and_failed_features() {
    let (k8sd, _server) = k8sd("1.35", &[(CLUSTER, "cluster"), (MEMBERS, "members")]);
    let status = k8sd.cluster().await.unwrap();
    let names: Vec<_> = status.members.iter().map(|member| member.name.as_str()).collect();
    assert_eq!((names, status.datastore.as_str()), (vec!["k8s-0", "k8s-1", "k8s-2"], "etcd"));
    assert_eq!((status.features.len(), status.failed_features()), (7, vec![]));
    let members = k8sd.members().await.unwrap();
    assert!(members.len() == 3 && members.iter().all(|member| member.role == "voter"), "{members:?}");

    let failing = self::k8sd("1.35", &[(CLUSTER, "cluster.feature-failed")]).0.cluster().await.unwrap();
    let failed = failing.failed_features();
    let names: Vec<_> = failed.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["gateway", "ingress", "load-balancer", "network"]);
    assert!(failed.iter().all(|(_, why)| why.starts_with("Failed to deploy") && !why.contains('\n')), "{failed:?}");

    // Nobody misses a feature that is switched off; what isn't said is empty.
    let off = json!({"config": {"dns": {"enabled": false}}, "dns": {"message": "Failed to delete DNS"}});
    let status = made_up(CLUSTER, 200, &json!({"metadata": {"status": off}})).0.cluster().await.unwrap();
    assert_eq!((status.failed_features(), status.members.len(), status.datastore.as_str()), (vec![], 0, ""));
}

#[tokio::test]
async fn certificates_ends_are_known_from_1_33_on() {
    let ends = k8sd("1.35", &[(CERTIFICATES, "certs-status")]).0.certificates().await.unwrap().unwrap();
    let end = |name: &str| ends.iter().find(|(found, _)| found == name).map(|(_, end)| *end);
    assert_eq!(end("apiserver"), Some(Timestamp(2_427_248_796)));
    assert!(end("admin.conf").is_some() && end("kubernetes-ca").is_some(), "{ends:?}");
    let worker = k8sd("1.35", &[(CERTIFICATES, "certs-status.worker")]).0.certificates().await.unwrap().unwrap();
    assert_eq!(worker.len(), 3);
    let too_old = k8sd("1.32", &[(CERTIFICATES, "certs-status.too-old")]).0.certificates().await.unwrap();
    assert_eq!(too_old, None);
}
