//! The leader's part in everybody's entry: who may bootstrap, who may join with which token, who is gone.

use crate::charm::Charm;
use crate::cluster::decide::{self, LeaderView};
use crate::cluster::values::{ClusterApplicationBag, ClusterUnitBag};
use crate::databags;
use crate::error_text::with_causes;
use crate::juju::{HookTools, JujuError, SecretId, SecretOwner};
use crate::lease::{Led, time_left};
use crate::names::{KubernetesVersion, UnitName};
use crate::observe::{ClusterPeers, Observation};
use crate::reconcile::Pace;
use crate::upgrade::unit::Standing;

use super::tokens;

/// Does that part. `own`: this unit's bag of `cluster` as this hook leaves it, if it was read; `led`: whether the bag of
/// `upgrade` was written before, after which nothing may take long.
pub async fn lead<T: HookTools>(
    charm: &Charm<T>,
    seen: &Observation,
    own: Option<&ClusterUnitBag>,
    led: Led,
    pace: &mut Pace,
) -> Result<Led, JujuError> {
    let Some(cluster) = &seen.cluster else { return Ok(Led::Nothing) };
    if time_left(charm, seen.now).is_none() {
        return Ok(Led::TooLate);
    }
    let mut bags = seen.entrants.clone();
    if let Some(own) = own {
        bags.insert(charm.context.unit.clone(), own.clone());
    }
    let plan = decide::lead(&LeaderView {
        me: &charm.context.unit,
        dying: seen.dying,
        standing: seen.standing,
        application: &cluster.application.value,
        units: &seen.units,
        bags: &bags,
        cluster_name: &seen.cluster_name,
    });
    let mut application = plan.application;
    let mut withdrawn = plan.withdrawn;
    for wanted in plan.tokens {
        let old = application.tokens.get(&wanted.unit).cloned();
        if seen.standing != Standing::Member {
            if tokens::is_spent(charm, old.as_ref(), &wanted).await? {
                withdrawn.extend(application.tokens.remove(&wanted.unit));
            }
            continue;
        }
        let Some(left) = time_left(charm, seen.now) else {
            pace.at_least(Pace::Close);
            break;
        };
        let owner = SecretOwner::Application;
        // Half of it: what was made has to be written too, or nobody knows the secret.
        match tokens::renew(charm, &cluster.id, owner, old.as_ref(), &wanted, left / 2).await? {
            Some(id) => {
                withdrawn.extend(old);
                application.tokens.insert(wanted.unit, id.0);
            }
            None => pace.at_least(Pace::Soon),
        }
    }
    application.version = version_of_all(seen).or(application.version);
    let news = plan.news;
    let led = led.max(write(charm, seen, cluster, &application, withdrawn, &news).await?);
    if led != Led::Nothing {
        if !plan.departed.is_empty() {
            pace.at_least(Pace::Close);
        }
        return Ok(led);
    }
    see_off(charm, seen, cluster, application, plan.departed, pace).await
}

async fn write<T: HookTools>(
    charm: &Charm<T>,
    seen: &Observation,
    cluster: &ClusterPeers,
    application: &ClusterApplicationBag,
    withdrawn: Vec<String>,
    news: &[String],
) -> Result<Led, JujuError> {
    let changes = databags::cluster::application_changes(application, &cluster.application.bag);
    if changes.is_empty() {
        return Ok(Led::Nothing);
    }
    if time_left(charm, seen.now).is_none() {
        return Ok(Led::TooLate);
    }
    for news in news {
        tracing::info!("{news}");
    }
    for id in withdrawn {
        charm.juju.remove_secret(&SecretId(id)).await?;
    }
    charm.juju.set_application_bag(&cluster.id, &changes).await?;
    Ok(Led::Wrote)
}

/// Takes the nodes of units that are gone out of the cluster, which may take minutes: their entries go once k8sd answers
/// that it is done, which it does at once the second time.
async fn see_off<T: HookTools>(
    charm: &Charm<T>,
    seen: &Observation,
    cluster: &ClusterPeers,
    mut application: ClusterApplicationBag,
    departed: Vec<(UnitName, String)>,
    pace: &mut Pace,
) -> Result<Led, JujuError> {
    let mut withdrawn = Vec::new();
    for (unit, node) in departed {
        // Its machine is gone too, as a rule: it is not asked.
        match charm.k8sd.remove(&node, true).await {
            Ok(()) => {
                tracing::info!("{unit} is gone: its node {node} is out of the cluster");
                application.entries.remove(&unit);
                withdrawn.extend(application.tokens.remove(&unit));
            }
            Err(error) => {
                let why = with_causes(&error);
                tracing::warn!("{unit} is gone, but its node {node} is still in the cluster: {why}");
                pace.at_least(Pace::Soon);
            }
        }
    }
    write(charm, seen, cluster, &application, withdrawn, &[]).await
}

/// The leader's version, once every member has published one (Python charm `charm.py` `_announce_kubernetes_version`).
fn version_of_all(seen: &Observation) -> Option<KubernetesVersion> {
    let published = |unit: &UnitName| seen.peers.get(unit).is_none_or(|bag| bag.version.is_some());
    seen.members.iter().all(published).then(|| seen.installed().cloned()).flatten()
}
