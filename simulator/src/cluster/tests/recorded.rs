//! Calls that were recorded from real k8sds, replayed: same status, same body, or at least the same keys in the same order.

use super::{BOOTSTRAP, Outcome, Rig, keys, recording, seconds};

const VERSIONS: [(&str, &str); 3] = [("1.32", "1.32.1"), ("1.35", "1.35.2"), ("1.36", "1.36.0")];

const CLUSTER: &str = "/1.0/k8sd/cluster";
const CONFIG: &str = "/1.0/k8sd/cluster/config";
const JOIN: &str = "/1.0/k8sd/cluster/join";
const KUBECONFIG: &str = "/1.0/k8sd/kubeconfig";
const NODE: &str = "/1.0/k8sd/node";
const REMOVE: &str = "/1.0/k8sd/cluster/remove";
const TOKENS: &str = "/1.0/k8sd/cluster/tokens";
const AUTH_TOKENS: &str = "/1.0/kubernetes/auth/tokens";

/// Recording, method, path, body.
type Call = (&'static str, &'static str, &'static str, &'static str);

/// To a k8sd that is in no cluster, at once answered.
const BEFORE: [Call; 19] = [
    ("ready", "GET", "/core/1.0/ready", ""),
    ("ready.old-path", "GET", "/cluster/1.0/ready", ""),
    ("server.not-initialised", "GET", "/core/1.0", ""),
    ("members.not-initialised", "GET", "/core/1.0/cluster", ""),
    ("cluster.not-initialised", "GET", CLUSTER, ""),
    ("node.not-initialised", "GET", NODE, ""),
    ("method-not-implemented", "DELETE", CLUSTER, ""),
    ("config.not-initialised", "GET", CONFIG, ""),
    ("kubeconfig.not-initialised", "GET", KUBECONFIG, "{}"),
    ("token.not-initialised", "POST", TOKENS, r#"{"name":"k8s-1"}"#),
    ("remove.not-initialised", "POST", REMOVE, r#"{"name":"k8s-1"}"#),
    ("bootstrap.no-body", "POST", CLUSTER, ""),
    ("bootstrap.not-json", "POST", CLUSTER, r#"{"name":"#),
    ("bootstrap.bad-address", "POST", CLUSTER, r#"{"name":"k8s-0","address":"nonsense","config":{}}"#),
    ("bootstrap.bad-name", "POST", CLUSTER, r#"{"name":"bad_name!","address":"10.0.0.11:6400","config":{}}"#),
    (
        "bootstrap.unknown-key",
        "POST",
        CLUSTER,
        r#"{"name":"k8s-0","address":"10.0.0.11:6400","config":{"extra-node-k8s-apiserver-args":{}}}"#,
    ),
    ("unknown-path", "GET", "/1.0/k8sd/nothing", ""),
    ("unknown-path.root", "GET", "/", ""),
    ("unknown-path.trailing-slash", "GET", "/1.0/k8sd/node/", ""),
];

/// To the only control plane of a new cluster.
const AFTER: [Call; 33] = [
    ("ready", "GET", "/core/1.0/ready", ""),
    ("server", "GET", "/core/1.0", ""),
    ("node", "GET", NODE, ""),
    ("members.one", "GET", "/core/1.0/cluster", ""),
    ("cluster.one", "GET", CLUSTER, ""),
    ("config", "GET", CONFIG, ""),
    ("bootstrap.again", "POST", CLUSTER, r#"{"name":"k8s-0","address":"10.0.0.11:6400","config":{}}"#),
    ("join.again", "POST", JOIN, r#"{"name":"k8s-0","address":"10.0.0.11:6400","token":"bm9uc2Vuc2U=","config":""}"#),
    ("method-not-implemented", "DELETE", CLUSTER, ""),
    ("method-not-implemented.tokens", "GET", TOKENS, ""),
    ("method-not-implemented.unknown-method", "BREW", CLUSTER, ""),
    ("config.put.refused", "PUT", CONFIG, r#"{"config":{"ingress":{"enabled":true}}}"#),
    ("config.put.unknown-key", "PUT", CONFIG, r#"{"config":{"local-storage":{"set-default":true}}}"#),
    ("config.put.wrong-type", "PUT", CONFIG, r#"{"config":{"network":{"enabled":"yes"}}}"#),
    ("config.put.bad-cidr", "PUT", CONFIG, r#"{"config":{"load-balancer":{"cidrs":["nonsense"]}}}"#),
    (
        "config.put.datastore-type",
        "PUT",
        CONFIG,
        r#"{"datastore":{"type":"external","servers":["https://10.0.0.99:2379"]}}"#,
    ),
    ("config.put.no-body", "PUT", CONFIG, ""),
    (
        "config.put",
        "PUT",
        CONFIG,
        r#"{"config":{"local-storage":{"reclaim-policy":"Retain"},"annotations":{"a/b":"c","d":"e"}}}"#,
    ),
    ("config.put", "PUT", CONFIG, r#"{"config":{"annotations":{"d":"-"}}}"#),
    ("config.after-put", "GET", CONFIG, ""),
    ("kubeconfig.no-body", "GET", KUBECONFIG, ""),
    ("kubeconfig.unknown-key", "GET", KUBECONFIG, r#"{"nope":1}"#),
    ("token.no-name", "POST", TOKENS, "{}"),
    ("token.unknown-key", "POST", TOKENS, r#"{"name":"x","nope":1}"#),
    ("token", "POST", TOKENS, r#"{"name":"k8s-1"}"#),
    ("token.worker", "POST", TOKENS, r#"{"name":"worker-0","worker":true,"ttl":3600000000000}"#),
    ("remove.no-name", "POST", REMOVE, "{}"),
    ("remove.not-there", "POST", REMOVE, r#"{"name":"nobody"}"#),
    ("auth-token", "POST", AUTH_TOKENS, r#"{"username":"admin","groups":["system:masters"]}"#),
    ("auth-token.no-user", "POST", AUTH_TOKENS, r#"{"groups":["system:masters"]}"#),
    ("auth-token.empty-group", "POST", AUTH_TOKENS, r#"{"username":"a","groups":[""]}"#),
    ("auth-token.repeated-group", "POST", AUTH_TOKENS, r#"{"username":"a","groups":["g","g"]}"#),
    ("auth-token.delete", "DELETE", AUTH_TOKENS, r#"{"token":"token::00"}"#),
];

/// Answers with certificates, tokens, times: only their keys can be the same.
const KEYS_ONLY: [&str; 4] = ["members.one", "token", "token.worker", "auth-token"];

fn expect(outcome: &Outcome, track: &str, name: &str) {
    let path = format!("k8sd/{track}/{name}.json");
    let recorded = recording(&path);
    let status = match serde_json::from_str::<serde_json::Value>(&recorded).unwrap()["error_code"].as_u64() {
        Some(0) | None => 200,
        Some(status) => u16::try_from(status).unwrap(),
    };
    assert_eq!(outcome.status(), status, "{path}: {}", outcome.body());
    if KEYS_ONLY.contains(&name) {
        assert_eq!(keys(outcome.body()), keys(&recorded), "{path}");
    } else {
        assert_eq!(outcome.body(), recorded, "{path}");
    }
}

#[test]
fn a_k8sd_in_no_cluster_answers_as_recorded() {
    for (track, version) in VERSIONS {
        let mut rig = Rig::installed(1, version, "1001");
        for (name, method, path, body) in BEFORE {
            expect(&rig.k8sd(0, method, path, body), track, name);
        }
    }
}

#[test]
fn a_new_cluster_answers_as_recorded() {
    for (track, version) in VERSIONS {
        let mut rig = Rig::installed(1, version, "1001");
        expect(&rig.k8sd(0, "POST", CLUSTER, BOOTSTRAP), track, "bootstrap");
        rig.wait(seconds(1));
        for (name, method, path, body) in AFTER {
            expect(&rig.k8sd(0, method, path, body), track, name);
        }
    }
}

#[test]
fn a_key_of_a_newer_version_is_refused_as_recorded() {
    let body = r#"{"config":{"network":{"kube-proxy-enabled":true}}}"#;
    for (track, version) in [("1.32", "1.32.1"), ("1.35", "1.35.2")] {
        let mut rig = Rig::cluster_of(1, version, "1001");
        expect(&rig.k8sd(0, "PUT", CONFIG, body), track, "config.put.newer-key");
    }
    let mut rig = Rig::cluster_of(1, "1.36.0", "2002");
    assert_eq!(rig.k8sd(0, "PUT", CONFIG, body).status(), 200);
}

#[test]
fn three_control_planes_show_the_recorded_keys() {
    let mut rig = Rig::cluster_of(3, "1.35.2", "1001");
    rig.k8sd(0, "PUT", CONFIG, r#"{"config":{"annotations":{"a/b":"c"}}}"#);
    let cluster = rig.k8sd(0, "GET", CLUSTER, "");
    assert_eq!(keys(cluster.body()), keys(&recording("k8sd/1.35/cluster.json")));
    let roles: Vec<_> = cluster.json()["metadata"]["status"]["members"].as_array().unwrap().clone();
    assert!(roles.iter().all(|member| member["datastore-role"] == "voter"), "{roles:?}");
}

#[test]
fn a_kubeconfig_is_the_recorded_one_but_for_its_certificates() {
    let mut rig = Rig::cluster_of(1, "1.35.2", "1001");
    let shape = |body: &str| {
        let text = serde_json::from_str::<serde_json::Value>(body).unwrap()["metadata"]["kubeconfig"].clone();
        let lines: Vec<String> = text.as_str().unwrap().lines().map(str::to_owned).collect();
        lines.iter().map(|line| line.split("-data: ").next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let answer = rig.k8sd(0, "GET", KUBECONFIG, r#"{"server":"10.0.0.11:6443"}"#);
    assert_eq!(shape(answer.body()), shape(&recording("k8sd/1.35/kubeconfig.json")));
    let own = rig.k8sd(0, "GET", KUBECONFIG, "{}");
    assert!(own.body().contains("server: https://127.0.8.1:6443\\n"), "{}", own.body());
}
