//! The wake-up: it comes more seldom while nothing changes, and nothing loses it on the way.

use crate::common::{Stage, unit};
use k8s_sim::wire::{MachineId, SnapEvent};

#[tokio::test(flavor = "current_thread")]
async fn a_wake_up_that_makes_itself_more_seldom_comes_again() {
    let mut stage = Stage::deployed(1).await;
    let now = stage.rehearsal.engine.now;
    stage.rehearsal.engine.fleet.cluster.snap_event(MachineId(0), now, SnapEvent::ServicesStopped);
    stage.rehearsal.engine.repeat(&unit(0), "update-status", 1).await.unwrap();
    let before = stage.rehearsal.engine.ran.len();
    stage.pass(30 * 60).await;

    let ran = &stage.rehearsal.engine.ran[before..];
    let warnings: Vec<_> =
        ran.iter().flat_map(|ran| &ran.log).filter(|(_, text)| text.contains("The wake-up could not")).collect();
    assert!(warnings.is_empty(), "{warnings:?}");
    let woken: Vec<u64> = ran.iter().filter(|ran| ran.wake_up).map(|ran| ran.at.0 / 1000).collect();
    let pauses: Vec<u64> = woken.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let expected = [60, 120, 240, 300, 300];
    assert!(pauses.len() >= expected.len(), "{pauses:?}");
    for (pause, expected) in pauses.iter().zip(expected) {
        assert!((expected..expected + 10).contains(pause), "{pauses:?}");
    }
}
