//! How long things take, in simulated time, each with the recording of real programs that it comes from.
//!
//! `timelines/…` and `1.36/…` are recordings of real k8sds: what a client of the control socket saw over time, and how many
//! seconds a call took.

use std::time::Duration;

const fn milliseconds(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// From the first start of k8sd to its socket (`timelines/start.1.35`: 0.93 s).
pub(super) const FIRST_SOCKET: Duration = milliseconds(900);
/// From the first start of k8sd to `ready` (`timelines/start.1.35`: 1.94 s).
pub(super) const FIRST_READY: Duration = milliseconds(1_900);

/// From `start-snap-services` to k8sd's socket, with everything else starting at the same time (`timelines/start.1.35`: 0.93 s;
/// `timelines/upgrade.*`: 0.1 to 0.5 s on a machine with nothing else to do).
pub(super) const START_SOCKET: Duration = milliseconds(1_000);
/// From k8sd's socket to its open database: `node` is 200 (`timelines/upgrade.first.1.35-to-1.36`: 0.4 s).
pub(super) const DATABASE_OPENS: Duration = milliseconds(400);
/// From `start-snap-services` to `ready` 200 (`timelines/upgrade.first.1.35-to-1.36`: 4.3 s, `timelines/rollback.middle.1.36-to-1.35`: 3.4 s).
pub(super) const START_READY: Duration = milliseconds(4_000);
/// From `start-snap-services` to the datastore member (its API server answers k8sd 3.4 to 4.2 s after: `timelines/upgrade.*`).
pub(super) const START_DATASTORE: Duration = milliseconds(2_000);
/// From `start-snap-services` to the API server's open port.
pub(super) const START_API_SERVER: Duration = milliseconds(3_000);
/// From the API server's open port to `/readyz` 200; Upgrades are 429 so long (`kubernetes/upgrades.storage-initialising`: 1 s).
pub(super) const API_SERVER_READY: Duration = milliseconds(1_000);
/// From `start-snap-services` to the kubelet's first status: its wrapper waits for `/readyz`, looking every 3 s.
pub(super) const START_KUBELET: Duration = milliseconds(6_000);
/// From the restart of the API server alone to its open port: its part of [`START_API_SERVER`].
pub(super) const RESTART_API_SERVER: Duration = milliseconds(1_000);
/// How often the kubelet's wrapper, and k8sd, look whether the API server answers.
pub(super) const API_SERVER_AGAIN: Duration = milliseconds(3_000);
/// From `ready` to the end of k8sd's post-refresh step (`timelines/upgrade.last.1.35-to-1.36`: 2 to 4 s).
pub(super) const POST_REFRESH: Duration = milliseconds(3_000);

/// From the restart of k8sd alone to its socket (`timelines/restart.1.35`: 0.5 s, `timelines/kill.1.36`: 0.3 s).
pub(super) const RESTART_SOCKET: Duration = milliseconds(500);
/// From the restart of k8sd alone to `ready` 200 (`timelines/restart.1.35`: 3.2 s, `timelines/kill.1.36`: 2.4 s).
pub(super) const RESTART_READY: Duration = milliseconds(3_000);

/// From the kubelet's last sign of life to `Ready` `Unknown`: the controller manager's `--node-monitor-grace-period` of the snap.
pub(super) const NODE_GRACE: Duration = milliseconds(40_000);
/// How often a kubelet refreshes its Node's heartbeat.
pub(super) const HEARTBEAT: Duration = milliseconds(10_000);

/// From a bootstrap's request to `/etc/kubernetes/admin.conf` and the Node's taints (`timelines/bootstrap.1.35`: 3.3 s).
pub(super) const BOOTSTRAP_FILES: Duration = milliseconds(3_000);
/// From a bootstrap's request to the API server's open port (`timelines/bootstrap.1.35`: 7.0 s at the latest).
pub(super) const BOOTSTRAP_API_SERVER: Duration = milliseconds(6_000);
/// From the open port of a new node's API server to its Node, registered and Ready (`timelines/bootstrap.1.35`: `cluster` is
/// ready at its first answer).
pub(super) const ENTRY_KUBELET: Duration = milliseconds(1_500);
/// From a bootstrap's request to its answer (`timelines/bootstrap.1.35`: 9.2 s).
pub(super) const BOOTSTRAP: Duration = milliseconds(9_000);
/// From a bootstrap's request to the role `voter` (`timelines/bootstrap.1.35`: 9.9 s, after the answer).
pub(super) const BOOTSTRAP_ROLE: Duration = milliseconds(9_700);
/// From a bootstrap's request to the answer that it failed (`1.35/bootstrap.bad-config`: 10.4 s).
pub(super) const BOOTSTRAP_FAILS: Duration = milliseconds(10_300);

/// From a join's request to `/etc/kubernetes/admin.conf` (`timelines/join.joiner.1.35`: 2.7 s).
pub(super) const JOIN_FILES: Duration = milliseconds(2_700);
/// From a join's request to a role that isn't `PENDING` (`timelines/join.joiner.1.35`: 6.4 s).
pub(super) const JOIN_ROLE: Duration = milliseconds(6_400);
/// From a join's request to the API server's open port (`timelines/join.joiner.1.35`: 15.7 s).
pub(super) const JOIN_API_SERVER: Duration = milliseconds(15_000);
/// From a control plane's join request to its answer (`timelines/join.joiner.1.35`: 18.1 s).
pub(super) const JOIN: Duration = milliseconds(18_000);
/// From a worker's join request to its answer (`1.36/join.worker`: 2.0 s).
pub(super) const WORKER_JOIN: Duration = milliseconds(2_000);
/// From a join's request to the answer that its token is no good (`1.35/join.expired`: 10.0 s).
pub(super) const JOIN_FAILS: Duration = milliseconds(10_000);
/// The same with an empty token (`1.36/join.empty-token`: 130.9 s).
pub(super) const EMPTY_TOKEN: Duration = milliseconds(130_900);
/// From a join's usual end to the refusal because of an upgrade in progress (`1.36/join.upgrade-in-progress`: 44.5 s in all).
pub(super) const REFUSED_FOR_UPGRADE: Duration = milliseconds(26_500);
/// From a join's usual end to the refusal because of the versions (`1.36/join.other-patch`: 21.1 s in all).
pub(super) const REFUSED_FOR_VERSION: Duration = milliseconds(3_100);
/// From the answer of a failed bootstrap or join to the end of the daemon that gave it (`timelines/bootstrap-failed.1.36`).
pub(super) const UNDOING: Duration = milliseconds(300);

/// From the end of a node that was removed, or failed to enter, to its new k8sd's socket (`timelines/removed.1.36`: 0.15 s).
pub(super) const RESET_SOCKET: Duration = milliseconds(150);
/// The same to `ready` 200 (`timelines/removed.1.36`: 1.2 s).
pub(super) const RESET_READY: Duration = milliseconds(1_200);

/// From the request to remove a control plane to its end and the answer (`1.35/remove`: 2.2 s).
pub(super) const REMOVE: Duration = milliseconds(2_200);
/// The same where the node to remove doesn't answer (`1.35/remove.pre-remove-slow`: 31.3 s).
pub(super) const REMOVE_UNREACHABLE: Duration = milliseconds(31_300);

/// From the last node's entry in `upgradedNodes` to `FeatureUpgrade` (2 s, seen with 1.35 to 1.36).
pub(super) const FEATURES_BEGIN: Duration = milliseconds(2_000);
/// From `FeatureUpgrade` to `Completed` (1 to 2 s where no feature has to wait).
pub(super) const FEATURES_END: Duration = milliseconds(1_500);
/// From a change of the configuration to the features' new status.
pub(super) const FEATURES_REPORT: Duration = milliseconds(5_000);

/// How long a join token is good where the request names no time (k8sd's default).
pub(super) const TOKEN: Duration = Duration::from_hours(24);
