use serde_json::Value;

use super::*;
use crate::wire::{Reply, Request};

fn store() -> Store {
    let version = |text| Version::parse(text).unwrap();
    Store {
        revisions: [(2001, version("1.31.3")), (2002, version("1.32.1"))].into(),
        channels: [("1.31-classic/stable".to_owned(), 2001), ("1.32-classic/stable".to_owned(), 2002)].into(),
    }
}

fn ask(snapd: &mut Snapd, now: u64, method: &str, path: &str, body: &str) -> (u16, Value) {
    let request = Request {
        method: method.to_owned(),
        path: path.to_owned(),
        content_type: None,
        headers: Vec::new(),
        body: body.as_bytes().to_vec(),
        client_certificate: false,
    };
    let Reply::Now(response) = snapd.handle(SimTime(now), &request, true) else { panic!("snapd answers at once") };
    (response.status, serde_json::from_slice(&response.body).unwrap())
}

fn installed() -> Snapd {
    let mut snapd = Snapd::new(store());
    let body = r#"{"action": "install", "revision": "2001", "classic": true}"#;
    assert_eq!(ask(&mut snapd, 0, "POST", "/v2/snaps/k8s", body).0, 202);
    let events = snapd.advance(SimTime(60_000));
    assert!(matches!(events[..], [(_, SnapEvent::Installed(_))]), "{events:?}");
    snapd
}

const TO_2002: &str = r#"{"action": "refresh", "revision": "2002"}"#;

#[test]
fn a_refresh_takes_20_seconds_and_tells_the_cluster_in_snapds_order() {
    let mut snapd = installed();
    let (status, answer) = ask(&mut snapd, 100_000, "POST", "/v2/snaps/k8s", TO_2002);
    assert_eq!(status, 202);
    let path = format!("/v2/changes/{}", answer["change"].as_str().unwrap());
    snapd.advance(SimTime(104_200));
    let (_, change) = ask(&mut snapd, 104_200, "GET", &path, "");
    assert_eq!(change["result"]["tasks"][1]["progress"]["done"], changes::SIZE / 2);
    assert_eq!(ask(&mut snapd, 104_200, "POST", "/v2/snaps/k8s", TO_2002).0, 409);
    let events = snapd.advance(SimTime(130_000));
    let order: Vec<_> = events.iter().map(|(_, event)| std::mem::discriminant(event)).collect();
    let snap = snapd.installed().unwrap();
    let expected =
        [SnapEvent::ServicesStopped, SnapEvent::PostRefresh(snap.clone()), SnapEvent::ServicesStarted(snap.clone())];
    assert_eq!(order, expected.map(|event| std::mem::discriminant(&event)));
    assert_eq!(snap.revision, "2002");
    let (_, change) = ask(&mut snapd, 130_000, "GET", &path, "");
    assert_eq!((change["result"]["status"].as_str(), change["result"]["ready"].as_bool()), (Some("Done"), Some(true)));
    assert_eq!(change["result"]["ready-time"], "2026-01-01T00:02:00Z", "20 s after it began");
}

#[test]
fn a_failing_hook_is_undone_as_a_real_snapd_does_it() {
    let recorded: Value =
        serde_json::from_str(include_str!("../../recorded/snapd/2.68.3-store/refresh.hook-fails.change.json")).unwrap();
    let mut snapd = installed();
    let line = "run hook \"post-refresh\": ERROR: hook post-refresh of version 1.32.1 was told to fail";
    snapd.fail_next("Run post-refresh hook", line);
    let (_, answer) = ask(&mut snapd, 100_000, "POST", "/v2/snaps/k8s", TO_2002);
    let events = snapd.advance(SimTime(130_000));
    assert!(
        matches!(&events[..], [(_, SnapEvent::ServicesStopped), (_, SnapEvent::ServicesStarted(snap))]
        if snap.revision == "2001"),
        "{events:?}"
    );
    let path = format!("/v2/changes/{}", answer["change"].as_str().unwrap());
    let (_, change) = ask(&mut snapd, 130_000, "GET", &path, "");
    let states = |change: &Value| -> Vec<(String, String)> {
        let text = |task: &Value, key: &str| task[key].as_str().unwrap().to_owned();
        let tasks = change["result"]["tasks"].as_array().unwrap();
        // The last one watches the others, and is done when they are.
        tasks[..tasks.len() - 1].iter().map(|task| (text(task, "kind"), text(task, "status"))).collect()
    };
    assert_eq!(states(&change), states(&recorded));
    assert_eq!(change["result"]["err"], recorded["result"]["err"]);
    assert_eq!(snapd.installed().unwrap().revision, "2001");
}

#[test]
fn refusals_are_those_of_a_real_snapd() {
    for (body, recorded) in [
        (
            r#"{"action": "refresh", "revision": "9999"}"#,
            include_str!("../../recorded/snapd/2.68.3-store/refresh.unknown-revision.json"),
        ),
        (
            r#"{"action": "install", "revision": "2001"}"#,
            include_str!("../../recorded/snapd/2.68.3-store/install.already-installed.json"),
        ),
    ] {
        let recorded: Value = serde_json::from_str(recorded).unwrap();
        let (status, answer) = ask(&mut installed(), 100_000, "POST", "/v2/snaps/k8s", body);
        assert_eq!(u64::from(status), recorded["status-code"].as_u64().unwrap(), "{body}");
        assert_eq!(answer["result"]["kind"], recorded["result"]["kind"], "{answer}");
    }
}

#[test]
fn the_store_tells_what_is_in_which_channel() {
    let recorded: Value = serde_json::from_str(include_str!("../../recorded/snapd/2.68.3-store/find.json")).unwrap();
    let (status, answer) = ask(&mut installed(), 100_000, "GET", "/v2/find?name=k8s", "");
    assert_eq!(status, 200);
    let channels = |answer: &Value| {
        let channels = answer["result"][0]["channels"].as_object().unwrap().clone();
        let told = channels.iter().map(|(name, held)| {
            (name.clone(), held["version"].clone(), held["revision"].clone(), held.as_object().unwrap().len())
        });
        told.collect::<Vec<_>>()
    };
    assert_eq!(channels(&answer), channels(&recorded));
}
