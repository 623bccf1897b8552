//! The ports to k8sd and to Kubernetes against the simulator's models of both, behind real sockets and real TLS.

#![expect(clippy::unwrap_used, reason = "a test may end at once where its own data is wrong")]

use std::future::Future;
use std::time::Duration;

use k8s_charm::error_text::with_causes;
use k8s_charm::k8sd::{K8sd, NodeStanding};
use k8s_charm::kube::{Kube, KubeError, KubeconfigError, Node, NodeReady};
use k8s_charm::machine::{Clock, Root};
use k8s_sim::cluster::NodeFault;
use k8s_sim::fleet::Fleet;
use k8s_sim::servers::{Incoming, Servers};
use k8s_sim::snapd::Store;
use k8s_sim::time::SimTime;
use k8s_sim::wire::{InstalledSnap, MachineId, Reply, Request, Response, Service, SnapEvent};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

const MACHINE: MachineId = MachineId(0);
const SECOND: Duration = Duration::from_secs(1);
const KUBECONFIG: &str = "etc/kubernetes/admin.conf";

/// One machine with the snap, whose time goes on only where it is told to, or where somebody waits.
struct Stage {
    fleet: Fleet,
    servers: Servers,
    incoming: mpsc::UnboundedReceiver<Incoming>,
    now: SimTime,
    work: tempfile::TempDir,
}

fn snap(version: &str, revision: &str) -> InstalledSnap {
    InstalledSnap { version: version.parse().unwrap(), revision: revision.to_owned() }
}

impl Stage {
    async fn installed(version: &str) -> Self {
        let work = tempfile::tempdir().unwrap();
        let (servers, incoming) = Servers::new();
        let fleet = Fleet::new(7, Store::default());
        let mut stage = Self { fleet, servers, incoming, now: SimTime(0), work };
        let root = stage.work.path().to_owned();
        stage.fleet.add_machine(MACHINE, &root).unwrap();
        stage.fleet.cluster.snap_event(MACHINE, stage.now, SnapEvent::Installed(snap(version, "1001")));
        stage.pass(2 * SECOND).await;
        stage
    }

    async fn bootstrapped(version: &str) -> Self {
        let mut stage = Self::installed(version).await;
        stage.ask(|root| async move { bootstrap(&K8sd::new(&root)).await.unwrap() }).await;
        stage.pass(10 * SECOND).await;
        stage
    }

    async fn pass(&mut self, duration: Duration) {
        self.now = self.now + duration;
        self.fleet.advance(self.now);
        self.servers.sync(&self.fleet, self.now).await.unwrap();
    }

    /// What this comes to on the machine, in a thread of its own: the charm asks for the time without yielding.
    async fn ask<T, F, Work>(&mut self, work: F) -> T
    where
        T: Send + 'static,
        F: FnOnce(Root) -> Work + Send + 'static,
        Work: Future<Output = T>,
    {
        let root = Root::of_charm_dir(&self.work.path().join("var/lib/juju/agents/unit-k8s-0/charm"));
        let (done, mut result) = oneshot::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let _ = done.send(runtime.block_on(work(root)));
        });
        loop {
            tokio::select! {
                result = &mut result => return result.unwrap(),
                Some(incoming) = self.incoming.recv() => self.answer(incoming).await,
            }
        }
    }

    async fn answer(&mut self, incoming: Incoming) {
        let reply = self.fleet.handle(incoming.machine, incoming.service, self.now, &incoming.request);
        let response = self.follow(reply);
        self.servers.sync(&self.fleet, self.now).await.unwrap();
        let _ = incoming.reply.send(response);
    }

    fn follow(&mut self, mut reply: Reply) -> Option<Response> {
        loop {
            match reply {
                Reply::Now(response) => return Some(response),
                Reply::Hangup => return None,
                Reply::Wait { until, ticket } => {
                    self.now = until;
                    self.fleet.advance(until);
                    reply = self.fleet.cluster.resume(ticket, until);
                }
            }
        }
    }

    /// A token of Kubernetes' for a user of this group.
    fn auth_token(&mut self, group: &str) -> String {
        let request = Request {
            method: "POST".to_owned(),
            path: "/1.0/kubernetes/auth/tokens".to_owned(),
            content_type: None,
            headers: Vec::new(),
            body: json!({"username": "somebody", "groups": [group]}).to_string().into_bytes(),
            client_certificate: false,
        };
        let reply = self.fleet.handle(MACHINE, Service::K8sd, self.now, &request);
        let answer: Value = serde_json::from_slice(&self.follow(reply).unwrap().body).unwrap();
        answer["metadata"]["token"].as_str().unwrap().to_owned()
    }

    fn kubeconfig(&self) -> String {
        std::fs::read_to_string(self.work.path().join(KUBECONFIG)).unwrap()
    }

    /// What `/readyz` comes to with this kubeconfig.
    async fn readyz_with(&mut self, kubeconfig: String) -> Result<(), KubeError> {
        let ready = |root: Root| async move { Kube::from_kubeconfig(&kubeconfig, &Clock::new(&root))?.readyz().await };
        self.ask(ready).await
    }

    /// What is asked of the API server that the machine's own kubeconfig names.
    async fn kube<T, F, Work>(&mut self, work: F) -> T
    where
        T: Send + 'static,
        F: FnOnce(Kube) -> Work + Send + 'static,
        Work: Future<Output = T>,
    {
        self.ask(|root| async move { work(Kube::open(&root, &Clock::new(&root)).unwrap()).await }).await
    }
}

async fn bootstrap(k8sd: &K8sd) -> Result<(), k8s_charm::k8sd::K8sdError> {
    let taints = ["node-role.kubernetes.io/control-plane:NoSchedule"];
    k8sd.bootstrap("juju-k8s-0", "10.0.0.11:6400", &json!({"control-plane-taints": taints})).await
}

/// A kubeconfig with another way to say who we are.
fn with_user(kubeconfig: &str, user: &str) -> String {
    let (head, _) = kubeconfig.split_once("    client-certificate-data").unwrap();
    format!("{head}    {user}\n")
}

fn value_of<'a>(kubeconfig: &'a str, key: &str) -> &'a str {
    kubeconfig.lines().find_map(|line| line.trim().strip_prefix(key)?.strip_prefix(": ")).unwrap()
}

#[tokio::test]
async fn a_node_becomes_a_cluster_whose_api_server_answers() {
    for version in ["1.32.1", "1.35.2", "1.36.0"] {
        let mut stage = Stage::installed(version).await;
        let absent =
            stage.ask(|root| async move { Kube::open(&root, &Clock::new(&root)).map(drop) }).await.unwrap_err();
        assert!(matches!(absent, KubeError::Kubeconfig(KubeconfigError::Absent)) && absent.is_transient(), "{absent}");

        let standings = |root: Root| async move {
            let k8sd = K8sd::new(&root);
            let before = k8sd.standing().await.unwrap();
            bootstrap(&k8sd).await.unwrap();
            (before, k8sd.standing().await.unwrap(), bootstrap(&k8sd).await.unwrap_err())
        };
        let (before, just_after, again) = stage.ask(standings).await;
        // Its role comes up to a second after the answer.
        assert_eq!((before, just_after), (NodeStanding::NotInitialised, NodeStanding::Entering));
        assert!(again.is_bootstrapped_already(), "{again}");

        stage.pass(10 * SECOND).await;
        let later = stage.ask(|root| async move { K8sd::new(&root).standing().await.unwrap() }).await;
        assert!(matches!(later, NodeStanding::Member(_)), "{version}: {later:?}");
        let (nodes, pods, upgrades, nobody) = stage
            .kube(|kube| async move {
                kube.readyz().await.unwrap();
                let nodes = kube.nodes().await.unwrap();
                let pods = kube.pods("kube-system").await.unwrap();
                let upgrades = kube.upgrades().await.unwrap();
                assert_eq!(kube.node("juju-k8s-0").await.unwrap().as_ref(), nodes.first());
                (nodes, pods, upgrades, kube.node("nobody").await.unwrap())
            })
            .await;
        let node = Node {
            name: "juju-k8s-0".to_owned(),
            control_plane: true,
            ready: NodeReady::Ready,
            kubelet_version: format!("v{version}"),
        };
        assert_eq!((nodes, nobody), (vec![node], None));
        assert!(pods.iter().all(|pod| pod.trouble.is_none()), "{pods:?}");
        assert_eq!(upgrades, []);

        let kubeconfig = stage.ask(|root| async move { K8sd::new(&root).kubeconfig("").await.unwrap() }).await;
        stage.readyz_with(kubeconfig.expose().to_owned()).await.unwrap();
    }
}

#[tokio::test]
async fn a_bootstrap_that_fails_is_undone_and_is_seen_to_be() {
    let mut stage = Stage::installed("1.35.2").await;
    stage.fleet.cluster.fail_next_bootstrap(MACHINE, "port 6443 is taken");
    let error = stage.ask(|root| async move { bootstrap(&K8sd::new(&root)).await.unwrap_err() }).await;
    assert!(error.to_string().contains("port 6443 is taken") && !error.is_unknown_outcome(), "{error}");
    stage.pass(3 * SECOND).await;
    let standing = stage.ask(|root| async move { K8sd::new(&root).standing().await.unwrap() }).await;
    assert_eq!(standing, NodeStanding::NotInitialised);
}

#[tokio::test]
async fn who_may_not_is_told_so_in_the_servers_words() {
    let mut stage = Stage::bootstrapped("1.35.2").await;
    let own = stage.kubeconfig();
    let (admin, nobody) = (stage.auth_token("system:masters"), stage.auth_token("nobodies"));
    stage.readyz_with(with_user(&own, &format!("token: {admin}"))).await.unwrap();

    let powerless = stage.readyz_with(with_user(&own, &format!("token: {nobody}"))).await.unwrap_err();
    let says = "the API server says 403 Forbidden: forbidden: User \"somebody\" cannot get path \"/readyz\" (looking \
                whether it is ready)";
    assert_eq!((powerless.to_string().as_str(), powerless.is_transient()), (says, false));
    let unknown = stage.readyz_with(with_user(&own, "token: token::00")).await.unwrap_err();
    assert!(unknown.to_string().starts_with("the API server says 401 Unauthorized"), "{unknown}");
    assert!(!unknown.is_transient());
    let odd = stage.readyz_with(with_user(&own, "token: \"a\\nb\"")).await.unwrap_err();
    assert!(odd.to_string().starts_with("the kubeconfig's `token` has characters that no header may have"), "{odd}");
}

#[tokio::test]
async fn only_the_clusters_own_authority_is_believed_and_only_in_its_time() {
    let (mut stage, other) = (Stage::bootstrapped("1.35.2").await, Stage::bootstrapped("1.35.2").await);
    let (own, foreign) = (stage.kubeconfig(), other.kubeconfig());
    let swapped = |key: &str| own.replace(value_of(&own, key), value_of(&foreign, key));

    let untrusted = stage.readyz_with(swapped("certificate-authority-data")).await.unwrap_err();
    assert!(with_causes(&untrusted).contains("invalid peer certificate"), "{}", with_causes(&untrusted));
    assert!(!untrusted.is_transient(), "it won't mend itself");
    let unfit = stage.readyz_with(swapped("client-key-data")).await.unwrap_err();
    assert!(unfit.to_string().starts_with("the kubeconfig's `client-key-data` is not that of the cert"), "{unfit}");
    for (key, base64, says) in [
        ("certificate-authority-data", "Zm9v", "holds no certificate"),
        ("client-certificate-data", "Zm9v", "holds no certificate"),
        ("client-key-data", "Zm9v", "is not a key in PEM"),
    ] {
        let broken = stage.readyz_with(own.replace(value_of(&own, key), base64)).await.unwrap_err();
        assert!(broken.to_string().starts_with(&format!("the kubeconfig's `{key}` {says}. ")), "{broken}");
        assert!(!broken.is_transient());
    }

    stage.readyz_with(own.clone()).await.unwrap();
    // Only the clock is told: what would happen in 21 years need not.
    stage.servers.sync(&stage.fleet, SimTime(21 * 365 * 24 * 3_600_000)).await.unwrap();
    let expired = stage.readyz_with(own).await.unwrap_err();
    assert!(with_causes(&expired).contains("certificate expired"), "{}", with_causes(&expired));
}

#[tokio::test]
async fn an_api_server_that_is_not_well_says_what_isnt_and_passes() {
    let mut stage = Stage::bootstrapped("1.35.2").await;
    stage.fleet.cluster.snap_event(MACHINE, stage.now, SnapEvent::ServicesStopped);
    stage.pass(SECOND).await;
    let refused = stage.kube(|kube| async move { kube.readyz().await.unwrap_err() }).await;
    assert!(matches!(refused, KubeError::Unreachable { .. }) && refused.is_transient(), "{refused}");
    assert!(with_causes(&refused).contains("Connection refused"), "{}", with_causes(&refused));
    assert!(!with_causes(&refused).contains("https://"), "{}", with_causes(&refused));

    stage.fleet.cluster.snap_event(MACHINE, stage.now, SnapEvent::ServicesStarted(snap("1.35.2", "1001")));
    let mut said = Vec::new();
    for _ in 0..40 {
        stage.pass(SECOND / 4).await;
        let (ready, upgrades) = stage.kube(|kube| async move { (kube.readyz().await, kube.upgrades().await) }).await;
        let errors = ready.err().into_iter().chain(upgrades.err());
        said.extend(errors.filter(|error| !matches!(error, KubeError::Unreachable { .. })));
    }
    assert!(said.iter().all(KubeError::is_transient), "{said:?}");
    let said: Vec<String> = said.iter().map(ToString::to_string).collect();
    for expected in [
        "the API server says 500 Internal Server Error: poststarthook/rbac/bootstrap-roles failed (looking whether it is ready)",
        "the API server says 429 Too Many Requests: storage is (re)initializing (listing k8sd's upgrades)",
    ] {
        assert!(said.iter().any(|text| text == expected), "{expected}: {said:?}");
    }
    stage.kube(|kube| async move { kube.readyz().await.unwrap() }).await;
}

#[tokio::test]
async fn a_node_that_is_not_ready_is_seen_and_records_of_upgrades_can_be_deleted() {
    let mut stage = Stage::bootstrapped("1.35.2").await;
    stage.fleet.cluster.set_node_fault(MACHINE, stage.now, NodeFault::NotReady);
    stage.pass(SECOND).await;
    let nodes = stage.kube(|kube| async move { kube.nodes().await.unwrap() }).await;
    assert_eq!(nodes.first().unwrap().ready, NodeReady::NotReady);

    let cluster = &mut stage.fleet.cluster;
    cluster.snap_event(MACHINE, stage.now, SnapEvent::ServicesStopped);
    cluster.snap_event(MACHINE, stage.now, SnapEvent::PostRefresh(snap("1.36.0", "2002")));
    cluster.snap_event(MACHINE, stage.now, SnapEvent::ServicesStarted(snap("1.36.0", "2002")));
    stage.pass(60 * SECOND).await;
    let (before, after) = stage
        .kube(|kube| async move {
            let before = kube.upgrades().await.unwrap();
            for _ in 0..2 {
                kube.delete_upgrade(&before.first().unwrap().name).await.unwrap();
            }
            (before, kube.upgrades().await.unwrap())
        })
        .await;
    let [record] = before.as_slice() else { unreachable!("{before:?}") };
    assert_eq!(record.name, "cluster-upgrade-to-k8s-1.36.0-rev-2002");
    assert_eq!((record.is_over(), record.upgraded_nodes.as_slice()), (true, &["juju-k8s-0".to_owned()][..]));
    assert_eq!(after, []);
}

#[tokio::test]
async fn a_server_that_says_nothing_is_given_up_in_time() {
    let mut stage = Stage::bootstrapped("1.35.2").await;
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let own = stage.kubeconfig();
    let server = format!("https://{}", silent.local_addr().unwrap());
    let began = std::time::Instant::now();
    let error = stage.readyz_with(own.replace(value_of(&own, "server"), &server)).await.unwrap_err();
    assert!(error.is_transient() && began.elapsed() < 8 * SECOND, "{error} {:?}", began.elapsed());
}
