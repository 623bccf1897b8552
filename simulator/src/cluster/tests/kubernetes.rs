//! The API server's answers, and its certificates.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::time_provider::TimeProvider;
use serde_json::Value;

use super::{Outcome, Rig, keys, recording, request, seconds};
use crate::time::EPOCH;
use crate::wire::{MachineId, Request, Service, SnapEvent};

const UPGRADES: &str = "/apis/k8sd.io/v1alpha/upgrades";
const TO_1_36: &str = "/apis/k8sd.io/v1alpha/upgrades/cluster-upgrade-to-k8s-1.36.0-rev-2002";

fn admin(method: &str, path: &str, content_type: &str, body: &str) -> Request {
    Request { content_type: Some(content_type.to_owned()), client_certificate: true, ..request(method, path, body) }
}

fn call(rig: &mut Rig, request: &Request) -> Outcome {
    let reply = rig.ask(0, Service::Kubernetes, request);
    rig.follow(reply)
}

fn bearer(method: &str, path: &str, token: &str) -> Request {
    let headers = vec![("authorization".to_owned(), format!("Bearer {token}"))];
    Request { headers, ..request(method, path, "") }
}

#[test]
fn strangers_and_the_powerless_are_refused_as_recorded() {
    let mut rig = Rig::cluster_of(1, "1.35.2", "1001");
    let recorded = recording("kubernetes/nodes.anonymous.json");
    assert_eq!(call(&mut rig, &request("GET", "/readyz", "")), Outcome::Answer(401, recorded.clone()));
    assert_eq!(call(&mut rig, &bearer("GET", "/api/v1/nodes", "token::00")), Outcome::Answer(401, recorded));

    let mut token = |body: &str| {
        let answer = rig.k8sd(0, "POST", "/1.0/kubernetes/auth/tokens", body).json();
        answer["metadata"]["token"].as_str().unwrap().to_owned()
    };
    let nobody = token(r#"{"username":"nobody","groups":[]}"#);
    let master = token(r#"{"username":"admin","groups":["system:masters"]}"#);
    let list = call(&mut rig, &bearer("GET", "/api/v1/nodes", &nobody));
    assert_eq!(list, Outcome::Answer(403, recording("kubernetes/nodes.forbidden.json")));
    let patch = call(&mut rig, &bearer("PATCH", "/api/v1/nodes/k8s-1", &nobody));
    assert_eq!(patch, Outcome::Answer(403, recording("kubernetes/nodes.patch.forbidden.json")));
    assert_eq!(call(&mut rig, &bearer("GET", "/api/v1/nodes", &master)).status(), 200);
}

#[test]
fn health_and_version_are_as_recorded() {
    let mut rig = Rig::cluster_of(1, "1.35.1", "1001");
    assert_eq!(rig.kubernetes(0, "/readyz").body(), recording("kubernetes/readyz.txt"));
    assert_eq!(
        rig.kubernetes(0, "/readyz?verbose").body().trim_end(),
        recording("kubernetes/readyz.verbose.txt").trim_end()
    );
    let (ours, recorded) = (rig.kubernetes(0, "/version").json(), recording("kubernetes/version.json"));
    let recorded: Value = serde_json::from_str(&recorded).unwrap();
    for key in ["major", "minor", "gitVersion", "platform"] {
        assert_eq!(ours[key], recorded[key]);
    }
}

#[test]
fn an_api_server_that_starts_reads_nodes_before_upgrades() {
    let mut rig = Rig::cluster_of(3, "1.36.0", "2002");
    rig.event(0, SnapEvent::ServicesStopped);
    rig.event(0, SnapEvent::ServicesStarted(super::snap("1.36.0", "2002")));
    assert_eq!(rig.kubernetes(0, "/readyz"), Outcome::Hangup);
    rig.wait(Duration::from_millis(3_500));
    assert_eq!(rig.kubernetes(0, "/readyz"), Outcome::Answer(500, recording("kubernetes/readyz.starting.txt")));
    assert_eq!(rig.kubernetes(0, "/api/v1/nodes?limit=500").status(), 200);
    let upgrades = rig.kubernetes(0, UPGRADES);
    assert_eq!(upgrades, Outcome::Answer(429, recording("kubernetes/upgrades.storage-initialising.json")));
    rig.wait(seconds(1));
    assert_eq!(rig.kubernetes(0, "/readyz").body(), "ok");
    assert_eq!(rig.kubernetes(0, UPGRADES).status(), 200);
}

/// All paths of a JSON value, lists as their first element.
fn paths(value: &Value, at: &str, into: &mut Vec<String>) {
    match value {
        Value::Object(object) => object.iter().for_each(|(key, value)| paths(value, &format!("{at}/{key}"), into)),
        Value::Array(values) => values.iter().take(1).for_each(|value| paths(value, &format!("{at}/0"), into)),
        _ => into.push(at.to_owned()),
    }
}

#[test]
fn a_node_has_what_the_recorded_one_has() {
    let mut rig = Rig::cluster_of(1, "1.35.2", "1001");
    let node = rig.kubernetes(0, "/api/v1/nodes/k8s-0").json();
    let recorded: Value = serde_json::from_str(&recording("kubernetes/node.json")).unwrap();
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    paths(&node, "", &mut ours);
    paths(&recorded, "", &mut theirs);
    let missing: Vec<_> =
        theirs.iter().filter(|path| !path.starts_with("/metadata/managedFields") && !ours.contains(path)).collect();
    assert_eq!(missing, Vec::<&String>::new());
    assert!(node["metadata"]["labels"].get("node-role.kubernetes.io/control-plane").is_some());
    assert_eq!(node["spec"]["taints"][0]["key"], "node-role.kubernetes.io/control-plane");
    assert_eq!(node["status"]["nodeInfo"]["kubeletVersion"], "v1.35.2");

    let list = rig.kubernetes(0, "/api/v1/nodes?labelSelector=node-role.kubernetes.io%2Fcontrol-plane").json();
    assert_eq!((list["kind"].as_str(), list["items"].as_array().unwrap().len()), (Some("NodeList"), 1));
    let others = rig.kubernetes(0, "/api/v1/nodes?labelSelector=%21kubernetes.io%2Fos").json();
    assert_eq!(others["items"].as_array().unwrap().len(), 0);
    assert_eq!(rig.kubernetes(0, "/api/v1/nodes/nope").body(), recording("kubernetes/node.absent.json"));
}

#[test]
fn a_node_is_cordoned_by_a_merge_patch() {
    let mut rig = Rig::cluster_of(1, "1.35.2", "1001");
    let cordon = |content_type: &str, value: &str| {
        let body = format!(r#"{{"spec":{{"unschedulable":{value}}}}}"#);
        admin("PATCH", "/api/v1/nodes/k8s-0", content_type, &body)
    };
    let node = call(&mut rig, &cordon("application/merge-patch+json", "true")).json();
    assert_eq!(node["spec"]["unschedulable"], true);
    let node = call(&mut rig, &cordon("application/strategic-merge-patch+json", "null")).json();
    assert_eq!(node["spec"].get("unschedulable"), None);
    let refused = call(&mut rig, &cordon("application/json", "true"));
    assert_eq!(refused, Outcome::Answer(415, recording("kubernetes/node.patch.wrong-content-type.json")));
}

#[test]
fn pods_are_those_of_the_features() {
    let mut rig = Rig::cluster_of(3, "1.35.2", "1001");
    rig.k8sd(0, "PUT", "/1.0/k8sd/cluster/config", r#"{"config":{"network":{"enabled":true}}}"#);
    rig.wait(seconds(6));
    let count = |rig: &mut Rig, path: &str| rig.kubernetes(0, path).json()["items"].as_array().unwrap().len();
    assert_eq!(count(&mut rig, "/api/v1/pods"), 3);
    assert_eq!(count(&mut rig, "/api/v1/pods?fieldSelector=spec.nodeName%3Dk8s-1"), 1);
    assert_eq!(count(&mut rig, "/api/v1/namespaces/kube-system/pods"), 3);
    assert_eq!(count(&mut rig, "/api/v1/namespaces/default/pods"), 0);
}

#[test]
fn upgrades_are_read_patched_and_deleted_as_recorded() {
    let mut rig = Rig::cluster_of(3, "1.35.2", "1001");
    assert_eq!(keys(rig.kubernetes(0, UPGRADES).body()), keys(&recording("kubernetes/upgrades.none.json")));
    rig.refresh(2, "1.36.0", "2002");
    rig.wait(seconds(20));
    assert_eq!(keys(rig.kubernetes(0, TO_1_36).body()), keys(&recording("kubernetes/upgrade.get.json")));
    let absent = rig.kubernetes(0, &format!("{UPGRADES}/nope"));
    assert_eq!(absent, Outcome::Answer(404, recording("kubernetes/upgrade.get.absent.json")));

    let status = format!("{TO_1_36}/status");
    let merge = "application/merge-patch+json";
    let bad = call(&mut rig, &admin("PATCH", &status, merge, r#"{"status":{"phase":"Nonsense"}}"#));
    assert_eq!(bad, Outcome::Answer(422, recording("kubernetes/upgrade.patch-status.bad-phase.json")));
    let strategic = "application/strategic-merge-patch+json";
    let wrong = call(&mut rig, &admin("PATCH", &status, strategic, r#"{"status":{"phase":"Failed"}}"#));
    assert_eq!(wrong, Outcome::Answer(415, recording("kubernetes/upgrade.patch-status.wrong-content-type.json")));
    let failed = call(&mut rig, &admin("PATCH", &status, merge, r#"{"status":{"phase":"Failed"}}"#));
    assert_eq!(failed.json()["status"]["phase"], "Failed");

    let deleted = call(&mut rig, &admin("DELETE", TO_1_36, "application/json", ""));
    assert_eq!(keys(deleted.body()), keys(&recording("kubernetes/upgrade.delete.json")));
    let again = call(&mut rig, &admin("DELETE", TO_1_36, "application/json", ""));
    assert_eq!(again, Outcome::Answer(404, recording("kubernetes/upgrade.delete.again.json")));
}

/// Simulated time for TLS.
#[derive(Debug)]
struct Epoch;

impl TimeProvider for Epoch {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(Duration::from_secs(u64::try_from(EPOCH).unwrap())))
    }
}

fn field(kubeconfig: &serde_yaml::Value, list: &str, object: &str, key: &str) -> Vec<u8> {
    use base64::Engine as _;
    let text = kubeconfig[list][0][object][key].as_str().unwrap();
    base64::engine::general_purpose::STANDARD.decode(text).unwrap()
}

#[test]
fn the_kubeconfig_on_disk_opens_tls_to_its_server() {
    let rig = Rig::cluster_of(2, "1.35.2", "1001");
    let kubeconfig = std::fs::read_to_string(rig.root(1).join("etc/kubernetes/admin.conf")).unwrap();
    let kubeconfig: serde_yaml::Value = serde_yaml::from_str(&kubeconfig).unwrap();
    assert_eq!(kubeconfig["clusters"][0]["cluster"]["server"].as_str(), Some("https://127.0.8.2:6443"));
    let material = rig.cluster.tls(MachineId(1)).unwrap();
    assert_eq!(material.address.to_string(), "127.0.8.2:6443");
    assert!(!format!("{material:?}").contains("PRIVATE"));

    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut authorities = rustls::RootCertStore::empty();
    let ca = field(&kubeconfig, "clusters", "cluster", "certificate-authority-data");
    authorities.add(CertificateDer::from_pem_slice(&ca).unwrap()).unwrap();
    let certificate = field(&kubeconfig, "users", "user", "client-certificate-data");
    let key = field(&kubeconfig, "users", "user", "client-key-data");
    let client = rustls::ClientConfig::builder_with_details(provider.clone(), Arc::new(Epoch))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(authorities)
        .with_client_auth_cert(
            vec![CertificateDer::from_pem_slice(&certificate).unwrap()],
            PrivateKeyDer::from_pem_slice(&key).unwrap(),
        )
        .unwrap();

    let mut client_authorities = rustls::RootCertStore::empty();
    client_authorities.add(CertificateDer::from_pem_slice(material.client_ca_pem.as_bytes()).unwrap()).unwrap();
    let verifier =
        rustls::server::WebPkiClientVerifier::builder_with_provider(client_authorities.into(), provider.clone())
            .build()
            .unwrap();
    let server = rustls::ServerConfig::builder_with_details(provider, Arc::new(Epoch))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier)
        .with_single_cert(
            vec![CertificateDer::from_pem_slice(material.certificate_chain_pem.as_bytes()).unwrap()],
            PrivateKeyDer::from_pem_slice(material.key_pem.as_bytes()).unwrap(),
        )
        .unwrap();

    let name = ServerName::IpAddress("127.0.8.2".parse::<IpAddr>().unwrap().into());
    let mut client = rustls::ClientConnection::new(client.into(), name).unwrap();
    let mut server = rustls::ServerConnection::new(server.into()).unwrap();
    while client.is_handshaking() || server.is_handshaking() {
        let mut bytes = Vec::new();
        client.write_tls(&mut bytes).unwrap();
        server.read_tls(&mut bytes.as_slice()).unwrap();
        server.process_new_packets().unwrap();
        bytes.clear();
        server.write_tls(&mut bytes).unwrap();
        client.read_tls(&mut bytes.as_slice()).unwrap();
        client.process_new_packets().unwrap();
    }
    assert!(server.peer_certificates().is_some());
}
