//! The ordered steps that all events share: look, enter the cluster, bring the snap along, lead, speak, arm the wake-up.
//!
//! Level-triggered: no step depends on which event it was, nor on an earlier hook having run to its end.

use std::time::Duration;

use crate::charm::Charm;
use crate::collect;
use crate::databags::{self, Bag};
use crate::entry;
use crate::error_text::with_causes;
use crate::juju::{Event, HookTools, JujuError, Status};
use crate::k8sd::Readiness;
use crate::lead;
use crate::lease::Led;
use crate::observe::{Nothing, Observation, observe, peer_relation};
use crate::own_snap::{self, Own};
use crate::snap::refresh::{self, Held};
use crate::status::{self, Voices};
use crate::upgrade::messages::{Message, Tone};
use crate::upgrade::unit::Standing;
use crate::upgrade::values::UnitBag;

/// How soon the unit wants to be woken again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pace {
    /// Not at all: an event will come.
    Asleep,
    /// Every 30 s to 5 min, more seldom each time.
    Seldom,
    /// Every 5 s to 5 min, more seldom each time.
    Soon,
    /// Every 3 s: something is followed.
    Close,
}

const CLOSE: Duration = Duration::from_secs(3);
const SOON: Duration = Duration::from_secs(5);
const SELDOM: Duration = Duration::from_secs(30);
const LONGEST: Duration = Duration::from_mins(5);

impl Pace {
    /// Not more seldom than this.
    pub fn at_least(&mut self, pace: Self) {
        *self = (*self).max(pace);
    }

    /// The interval, after one of `armed`; `woken`: that one has just run out, and things are as they were.
    fn interval(self, armed: Option<Duration>, woken: bool) -> Option<Duration> {
        let first = match self {
            Self::Asleep => return None,
            Self::Close => return Some(CLOSE),
            Self::Soon => SOON,
            Self::Seldom => SELDOM,
        };
        let longer = if woken { 2 } else { 1 };
        Some(armed.map_or(first, |armed| (armed * longer).clamp(first, LONGEST)))
    }
}

/// Looks, and takes the next safe step.
///
/// What takes time (a bootstrap, a join, tokens for others) comes last, and only where the leader's part had nothing to
/// write: that part never waits for it, and never writes after it (R5).
pub async fn reconcile<T: HookTools>(charm: &Charm<T>) -> Result<(), JujuError> {
    let seen = observe(charm).await?;
    let mut voices = Voices { bad_options: seen.bad_options.clone(), ..Voices::default() };
    let mut pace = Pace::Asleep;
    voices.removal = seen.dying.then(|| Message::new(Tone::Maintenance, "Being removed"));
    if let Err(why) = &seen.declared {
        voices.installation = Some(why.clone());
        pace.at_least(Pace::Seldom);
    }
    let writes_secrets = writes_secrets(&charm.context.event);
    let mut entry =
        if writes_secrets { entry::plan(charm, &seen, &mut voices, &mut pace) } else { entry::Plan::nothing() };
    let nothing = Nothing::default();
    let mut own = Own::plan(charm, &seen, &nothing, &mut pace).await;
    write(charm, &seen, own.as_mut(), &mut entry).await?;
    hold(charm, &seen, own.as_ref().map(Own::bag)).await;
    let led = if seen.leads && writes_secrets {
        let bag = own.as_ref().map(Own::bag);
        lead::lead(charm, &seen, bag, entry.bag(), &nothing, &mut voices, &mut pace).await?
    } else {
        Led::Nothing
    };
    let mut standing = seen.standing;
    match led {
        Led::Nothing => {
            if let Some(own) = &mut own {
                own.act(charm, &seen, &mut pace).await?;
            }
            write(charm, &seen, own.as_mut(), &mut entry).await?;
            standing = entry::enter(charm, &seen, entry, &mut voices, &mut pace).await?;
        }
        Led::Wrote | Led::TooLate => {
            if led == Led::TooLate {
                tracing::info!("This hook took too long to write as the leader: the next one does");
            }
            if led == Led::TooLate || entry.is_slow() || own.as_ref().is_some_and(Own::is_slow) {
                pace.at_least(Pace::Close);
            }
            voices.entry = entry.speak().or(voices.entry);
        }
    }
    voices.upgrade = own.and_then(|own| own.speak(&seen.look));
    look_after_health(charm, &seen, standing, &mut voices, &mut pace).await;
    speak(charm, voices).await?;
    wake(charm, pace).await;
    Ok(())
}

async fn write<T: HookTools>(
    charm: &Charm<T>,
    seen: &Observation,
    own: Option<&mut Own<'_>>,
    entry: &mut entry::Plan,
) -> Result<(), JujuError> {
    match own {
        Some(own) => {
            let (bag, stands) = own.bag_and_what_stands();
            write_own(charm, seen, bag, stands, entry).await
        }
        None => entry::write_own(charm, seen, entry, None).await,
    }
}

/// `upgrade-charm` must not fail, and a flush can be refused: it writes neither an application's bag nor a secret. The
/// `config-changed` that always follows does.
fn writes_secrets(event: &Event) -> bool {
    *event != Event::UpgradeCharm
}

/// Writes this unit's bags; before the application's, so that a death in between announces nothing. The bag of `upgrade`
/// comes last: while it doesn't name the new version, the others are written again.
///
/// `stands`: the bag of `upgrade` as this hook has left it so far.
pub async fn write_own<T: HookTools>(
    charm: &Charm<T>,
    seen: &Observation,
    own: &UnitBag,
    stands: &mut Bag,
    entry: &mut entry::Plan,
) -> Result<(), JujuError> {
    let Some(upgrade) = &seen.upgrade else { return entry::write_own(charm, seen, entry, None).await };
    let changes = databags::upgrade::unit_changes(own, stands);
    let refreshed = own.version.as_ref().filter(|_| changes.contains_key("version"));
    if let Some(version) = refreshed {
        charm.juju.set_application_version(&version.to_string()).await?;
    }
    entry::write_own(charm, seen, entry, refreshed).await?;
    charm.juju.set_unit_bag(&upgrade.id, &changes).await?;
    databags::apply(stands, changes);
    Ok(())
}

/// Keeps the snap from refreshing by itself: looked at now and then, and when a change has just ended.
async fn hold<T>(charm: &Charm<T>, seen: &Observation, own: Option<&UnitBag>) {
    let Some(snap) = &seen.look.snap else { return };
    let before = seen.upgrade.as_ref().map(|upgrade| &upgrade.own.value);
    let ended = before.is_some_and(|before| before.change.is_some()) && own.is_none_or(|own| own.change.is_none());
    let now_and_then = matches!(charm.context.event, Event::UpdateStatus | Event::ConfigChanged | Event::Start);
    if !(ended || now_and_then) || seen.look.change.is_some() {
        return;
    }
    match refresh::hold(&charm.snapd, snap, seen.now).await {
        Ok(Held::Now) => tracing::info!("The snap is held: it refreshes only when it is this unit's turn"),
        Ok(Held::Already | Held::CannotHold) => {}
        Err(error) => tracing::warn!("The snap could not be held: {}", with_causes(&error)),
    }
}

/// k8sd may take this long to say that it is ready: an application's bag may have been written before (R5).
const HEALTH: Duration = Duration::from_secs(3);

/// What isn't well with a node that is in the cluster.
async fn look_after_health<T: HookTools>(
    charm: &Charm<T>,
    seen: &Observation,
    standing: Standing,
    voices: &mut Voices,
    pace: &mut Pace,
) {
    if standing != Standing::Member || voices.upgrade.is_some() || seen.dying {
        return;
    }
    let late = |_| Readiness::NotReady("it doesn't answer".to_owned());
    let ready = tokio::time::timeout(HEALTH, charm.k8sd.ready()).await;
    if let Readiness::NotReady(why) = ready.unwrap_or_else(late) {
        pace.at_least(Pace::Seldom);
        voices.health = Some(Message::new(Tone::Waiting, format!("Waiting for k8sd: {why}")));
    }
}

/// Shows the status, if another is shown.
pub async fn speak<T: HookTools>(charm: &Charm<T>, voices: Voices) -> Result<(), JujuError> {
    let message = status::choose(voices, charm.context.unit.application());
    show(charm, &message).await
}

/// Shows this status, if another is shown.
pub async fn show<T: HookTools>(charm: &Charm<T>, message: &Message) -> Result<(), JujuError> {
    let Status { status, message: shown } = charm.juju.status().await?;
    if (status.as_str(), shown.as_str()) == (message.tone.word(), message.text.as_str()) {
        return Ok(());
    }
    charm.juju.set_status(message.tone.word(), &message.text).await
}

/// Arms the wake-up as the hook's work asks for, or takes it away. That it can't be is no failure of the hook: Juju's own
/// `update-status` comes all the same.
pub async fn wake<T>(charm: &Charm<T>, pace: Pace) {
    let woken = charm.context.event == Event::UpgradeGranted;
    let armed = charm.wake_up.armed();
    let result = match pace.interval(armed, woken) {
        Some(every) if charm.context.event == Event::UpgradeCharm => charm.wake_up.arm_anew(every).await,
        Some(every) => charm.wake_up.arm(every).await,
        None => charm.wake_up.disarm().await,
    };
    if let Err(error) = result {
        tracing::warn!("The wake-up could not be set: {}", with_causes(&error));
    }
}

/// A wake-up that finds what it follows still under way: as few calls as possible.
///
/// Nothing else is decided while a change runs (R2), or while the gate after hasn't passed: whether it has is all that
/// is looked at. `None`: there is more to do.
pub async fn follow<T: HookTools>(charm: &Charm<T>) -> Result<Option<()>, JujuError> {
    let Some(id) = peer_relation(charm, "upgrade").await? else { return Ok(None) };
    let bag = charm.juju.unit_bag(&id, &charm.context.unit).await?.unwrap_or_default();
    let (own, _) = databags::upgrade::parse_unit(&bag);
    let Some(message) = own_snap::still_under_way(charm, &own).await? else { return Ok(None) };
    show(charm, &message).await?;
    wake(charm, Pace::Close).await;
    Ok(Some(()))
}

/// What the checks of workers say beside `Ready`.
pub async fn remark<T: HookTools>(charm: &Charm<T>, seen: &Observation) -> Result<Option<String>, JujuError> {
    let Some(own) = seen.installed() else { return Ok(None) };
    let workers = collect::workers(charm, seen).await?;
    let older = workers.iter().filter(|(_, version)| version.as_ref().is_some_and(|version| version < own));
    let older: Vec<&str> = older.map(|(unit, _)| unit.application()).collect();
    Ok(older.first().map(|application| format!("workers to refresh: {} of {application}", older.len())))
}
