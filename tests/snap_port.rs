//! The port to snapd against recorded answers of two real snapds, through a socket.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test may end at once where its own data is wrong")]

#[path = "snap_port/stand_in.rs"]
mod stand_in;
mod unix_server;

use std::fs;
use std::path::Path;

use k8s_charm::machine::Root;
use k8s_charm::names::{Revision, Timestamp};
use k8s_charm::rfc3339;
use k8s_charm::snap::pin::{SnapFile, Sources};
use k8s_charm::snap::refresh::{self, Held, Look, failure, progress};
use k8s_charm::snap::{Architecture, Ask, Change, ChangeId, Hashes, Pin, Sha256, SnapdError, Wanted, Which};
use k8s_charm::upgrade::messages::describe;
use k8s_charm::upgrade::unit::{KnownSnap, SnapView};
use serde_json::{Value, json};
use stand_in::{StandIn, recorded};

const VERSIONS: [&str; 2] = ["2.57.6", "2.68.3"];
const SNAP: &str = "GET /v2/snaps/k8s";
const POST: &str = "POST /v2/snaps/k8s";
const IN_PROGRESS: &str = "GET /v2/changes?select=in-progress&for=k8s";
const ALL: &str = "GET /v2/changes?select=all&for=k8s";

fn change(version: &str, name: &str) -> Change {
    let body: Value = serde_json::from_slice(&recorded(version, name).1).unwrap();
    serde_json::from_value(body["result"].clone()).unwrap()
}

fn wanted(pin: Pin) -> Wanted {
    Wanted { pin, target: "1.32.1@0a1b2c3d".to_owned().try_into().unwrap() }
}

fn channel_pin(channel: &str) -> Wanted {
    wanted(Pin::Channel { channel: channel.parse().unwrap(), classic: true })
}

fn revision_pin(number: u32) -> Wanted {
    wanted(Pin::Revision { revision: Revision::Store(number), channel: None, classic: true })
}

fn known(look: Look) -> KnownSnap {
    match look.view {
        SnapView::Known(known) => known,
        SnapView::Unknown(why) => panic!("{why}"),
    }
}

#[tokio::test]
async fn a_snap_as_both_snapds_tell_it() {
    for version in VERSIONS {
        let machine = StandIn::new(version, &[(SNAP, "snap.not-installed")]);
        assert_eq!(machine.snapd().snap("k8s").await.unwrap(), None);

        let machine = StandIn::new(version, &[(SNAP, "snap.installed"), ("GET /v2/system-info", "system-info")]);
        let snap = machine.snapd().snap("k8s").await.unwrap().unwrap();
        assert_eq!((snap.version.as_str(), snap.revision), ("1.31.3", Revision::Local(1)));
        assert_eq!((snap.tracking_channel, snap.hold), (None, None));
        assert_eq!(snap.blob.unwrap(), machine.path("/var/lib/snapd/snaps/k8s_x1.snap"));
        assert!(machine.snapd().system_version().await.unwrap().starts_with(version));

        let machine = StandIn::new(&format!("{version}-store"), &[(SNAP, "snap.switched")]);
        let snap = machine.snapd().snap("k8s").await.unwrap().unwrap();
        assert_eq!(snap.revision, Revision::Store(2001));
        assert_eq!(snap.tracking_channel.unwrap().to_string(), "1.32-classic/stable");
    }
}

#[tokio::test]
async fn changes_and_services() {
    for version in VERSIONS {
        let machine = StandIn::new(
            version,
            &[
                (IN_PROGRESS, "changes.in-progress"),
                (ALL, "changes.all"),
                ("GET /v2/changes/99999", "change.not-found"),
                ("GET /v2/apps?names=k8s&select=service", "apps.services-only"),
                ("POST /v2/apps", "apps-restart"),
                (POST, "remove"),
            ],
        );
        let snapd = machine.snapd();
        let doing = snapd.changes("k8s", Which::InProgress).await.unwrap();
        assert_eq!((doing.len(), doing[0].kind.as_str(), doing[0].ready), (1, "install-snap", false));
        assert!(snapd.changes("k8s", Which::All).await.unwrap().len() > 10);
        assert_eq!(snapd.change(&ChangeId("99999".to_owned())).await.unwrap(), None);

        let services = snapd.services("k8s").await.unwrap();
        assert_eq!(services.len(), 9);
        let running: Vec<&str> =
            services.iter().filter(|it| it.active && it.enabled).map(|it| it.name.as_str()).collect();
        assert_eq!(running, ["k8sd"]);

        snapd.restart_service("k8s", "k8sd").await.unwrap();
        assert_eq!(machine.last().json(), json!({"action": "restart", "names": ["k8s.k8sd"]}));
        assert!(snapd.remove("k8s").await.unwrap().is_some());
        assert_eq!(machine.last().json(), json!({"action": "remove"}));

        let gone = StandIn::new(
            version,
            &[("GET /v2/apps?names=k8s&select=service", "apps.not-installed"), (POST, "remove.not-installed")],
        );
        assert_eq!(gone.snapd().services("k8s").await.unwrap(), []);
        assert_eq!(gone.snapd().remove("k8s").await.unwrap(), None);
    }
}

/// What snapd refuses: whether it passes by itself, and what an admin reads.
const REFUSALS: [(&str, &str, bool, &str); 17] = [
    (
        "",
        "conflict.remove-while-installing",
        true,
        r#"snapd is busy with the snap (snap "k8s" has "install-snap" change in progress)"#,
    ),
    ("", "conflict.apps-while-installing", true, "change in progress"),
    ("-store", "conflict.refresh-while-refreshing", true, r#"has "refresh-snap" change in progress"#),
    (
        "",
        "install.no-store",
        true,
        "snapd can't install snap k8s: cannot install \"k8s\": Post \"https://api.snapcraft.io",
    ),
    ("", "install.network-unreachable", true, "network is unreachable"),
    ("-store", "refresh.store-503", true, "HTTP status code 503"),
    ("", "find.no-store", true, "dial tcp"),
    ("", "install.already-installed", true, "is already installed"),
    ("-store", "refresh.no-update", true, "no updates available"),
    (
        "-store",
        "install.unknown-channel",
        false,
        "the store has no channel 1.99-classic/stable of the snap; there are 1.31-classic/stable, 1.32-classic/stable",
    ),
    (
        "-store",
        "install.unknown-revision",
        false,
        "the store has no such revision of the snap for this machine (install snap k8s)",
    ),
    ("-store", "install.no-classic", false, "the snap needs classic confinement: set `classic: true` for it"),
    ("", "refresh.revision.no-store", false, "was installed from a file, and this snapd is too old"),
    ("", "access-denied.unseen-process", false, "snapd lets only root do this"),
    ("", "access-denied.not-root", false, "snapd lets only root do this"),
    ("", "unknown-action", false, "unknown action frobnicate"),
    ("", "unknown-path", false, "not found"),
];

#[tokio::test]
async fn refusals_pass_by_themselves_or_dont() {
    for version in VERSIONS {
        for (folder, name, transient, text) in REFUSALS {
            let machine = StandIn::new(&format!("{version}{folder}"), &[(POST, name)]);
            let error = machine.snapd().install("k8s", &Ask::default()).await.unwrap_err();
            let said = error.to_string();
            assert_eq!(error.is_transient(), transient, "{version} {name}: {said}");
            assert!(said.contains(text) && !said.contains('\n'), "{version} {name}: {said}");
        }
    }
    let machine = StandIn::new("2.68.3", &[(POST, "find-query.no-store")]);
    assert!(machine.snapd().install("k8s", &Ask::default()).await.unwrap_err().is_transient());
}

#[tokio::test]
async fn a_snapd_that_is_away_is_waited_for() {
    let empty = tempfile::tempdir().unwrap();
    let root = Root::of_charm_dir(&empty.path().join("var/lib/juju/agents/unit-k8s-0/charm"));
    let error = k8s_charm::snap::Snapd::new(&root).snap("k8s").await.unwrap_err();
    assert!(
        error.is_transient() && error.to_string().starts_with("snapd doesn't answer (look up snap k8s)"),
        "{error}"
    );

    for (answer, transient) in [
        ("", true),
        ("HTTP/1.1 502 Bad Gateway\r\ncontent-length: 2\r\n\r\nno", true),
        ("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}", false),
        ("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{}", true),
    ] {
        let machine = StandIn::saying(answer);
        let error = machine.snapd().snap("k8s").await.unwrap_err();
        assert_eq!(error.is_transient(), transient, "{answer:?}: {error}");
    }

    let machine = StandIn::saying("");
    let look = refresh::look(&machine.snapd(), &revision_pin(1), &machine.hashes(), None).await;
    assert!(matches!(look.view, SnapView::Unknown(why) if why.starts_with("snapd doesn't answer")));
}

#[tokio::test]
async fn what_a_pin_brings_is_asked_of_the_store_only_for_a_channel() {
    const FIND: &str = "GET /v2/find?name=k8s";
    for version in VERSIONS {
        let store = format!("{version}-store");
        let machine = StandIn::new(&store, &[(FIND, "find")]);
        let brings = async |wanted: Wanted| refresh::brings(&machine.snapd(), &wanted).await.unwrap();
        assert_eq!(brings(channel_pin("1.31-classic")).await.unwrap().to_string(), "1.31.3");
        assert_eq!(brings(channel_pin("1.32-classic/stable")).await.unwrap().to_string(), "1.32.1");
        assert_eq!(brings(channel_pin("1.32-classic/edge")).await, None, "a closed channel");
        assert_eq!(machine.asked(), [FIND; 3]);
        assert_eq!(brings(revision_pin(2001)).await.unwrap().to_string(), "1.32.1", "the charm's code declares it");
        assert_eq!(machine.asked().len(), 3);
        let machine = StandIn::new(&store, &[(FIND, "find.store-503")]);
        let error = refresh::brings(&machine.snapd(), &channel_pin("1.32-classic/stable")).await.unwrap_err();
        assert!(error.is_transient(), "{error}");
    }
}

#[tokio::test]
async fn a_refresh_from_begin_to_end() {
    for version in VERSIONS {
        let store = format!("{version}-store");
        let machine = StandIn::new(&store, &[(SNAP, "snap.installed"), (POST, "refresh")]).with(
            IN_PROGRESS,
            version,
            "changes.none-for-k8s",
        );
        let wanted = channel_pin("1.32-classic/stable");
        let hashes = machine.hashes();
        let look = refresh::look(&machine.snapd(), &wanted, &hashes, None).await;
        assert_eq!(machine.asked(), [IN_PROGRESS, SNAP], "the snap is asked for last");
        let snap = look.snap.clone();
        let before = known(look);
        assert_eq!((before.at_pin, before.change), (false, None));
        assert_eq!(before.installed.unwrap().version.to_string(), "1.31.3");

        let id = refresh::begin(&machine.snapd(), &wanted, snap.as_ref()).await.unwrap();
        let asked = machine.last();
        assert_eq!(asked.json(), json!({"action": "refresh", "channel": "1.32-classic/stable", "classic": true}));
        assert_eq!(id, change(&store, "refresh.change.done").id);

        let machine =
            StandIn::new(&store, &[(SNAP, "snap.while-downloading-refresh"), (IN_PROGRESS, "changes.in-progress")]);
        let look = refresh::look(&machine.snapd(), &wanted, &hashes, None).await;
        assert_eq!(describe(&progress(look.change.as_ref().unwrap())), "Download snap \"k8s\"");
        let during = known(look);
        assert_eq!((during.at_pin, during.change), (false, Some(id.0)));

        let machine =
            StandIn::new(&store, &[(SNAP, "snap.refreshed")]).with(IN_PROGRESS, version, "changes.none-for-k8s");
        let after = known(refresh::look(&machine.snapd(), &wanted, &hashes, None).await);
        assert_eq!((after.at_pin, after.change), (true, None));
    }
}

#[tokio::test]
async fn the_end_of_changes_is_told_from_a_moment_on_and_services_dont_count() {
    for version in VERSIONS {
        let machine = StandIn::new(version, &[(SNAP, "snap.refreshed"), (ALL, "changes.all")]);
        let look = async |since| {
            known(refresh::look(&machine.snapd(), &revision_pin(1), &machine.hashes(), Some(since)).await).finished
        };
        let all = look(Timestamp(0)).await;
        assert!(all.is_sorted_by_key(|change| change.ready));
        let asked =
            known(refresh::look(&machine.snapd(), &revision_pin(1), &machine.hashes(), Some(Timestamp(0))).await);
        assert_eq!(asked.change, None, "all of them are over");
        let failures: Vec<&str> = all.iter().filter_map(|change| change.failure.as_deref()).collect();
        assert_eq!(
            failures,
            [
                "run hook \"install\": ERROR: hook install of version 1.31.3 was told to fail",
                "run hook \"post-refresh\": ERROR: hook post-refresh of version 1.32.1 was told to fail",
                "run hook \"pre-refresh\": <aborted>",
            ],
            "what a service's start said is no failed refresh"
        );
        let last = all.last().unwrap();
        assert_eq!(last.failure, None);
        assert_eq!(look(last.ready).await.as_slice(), std::slice::from_ref(last));
        assert_eq!(look(Timestamp(last.ready.0 + 1)).await, []);
    }
}

#[tokio::test]
async fn a_pin_becomes_a_request() {
    let revision = |channel: Option<&str>, classic| {
        wanted(Pin::Revision {
            revision: Revision::Store(2002),
            channel: channel.map(|it| it.parse().unwrap()),
            classic,
        })
    };
    let channel = channel_pin("1.32-classic/stable");
    for (wanted, installed, expected) in [
        (revision(None, true), "none", json!({"action": "install", "revision": "2002", "classic": true})),
        (revision(None, false), "none", json!({"action": "install", "revision": "2002"})),
        (
            revision(Some("1.32-classic"), true),
            "none",
            json!({"action": "install", "revision": "2002", "channel": "1.32-classic/stable", "classic": true}),
        ),
        (revision(None, false), "store", json!({"action": "refresh", "revision": "2002", "classic": true})),
        (channel.clone(), "store", json!({"action": "refresh", "channel": "1.32-classic/stable", "classic": true})),
        (
            channel,
            "file",
            json!({"action": "refresh", "channel": "1.32-classic/stable", "classic": true, "amend": true}),
        ),
    ] {
        let (version, name) = match installed {
            "none" => ("2.68.3", "snap.not-installed"),
            "store" => ("2.68.3-store", "snap.installed"),
            _ => ("2.68.3", "snap.installed"),
        };
        let machine = StandIn::new("2.68.3-store", &[(POST, "refresh")]).with(SNAP, version, name);
        let snap = machine.snapd().snap("k8s").await.unwrap();
        refresh::begin(&machine.snapd(), &wanted, snap.as_ref()).await.unwrap();
        assert_eq!(machine.last().json(), expected);
    }
}

#[tokio::test]
async fn what_the_pins_say_of_what_is_installed() {
    for (version, name, wanted, expected) in [
        ("2.68.3-store", "snap.installed", revision_pin(2001), true),
        ("2.68.3-store", "snap.installed", revision_pin(2002), false),
        ("2.68.3-store", "snap.installed", channel_pin("1.31-classic"), true),
        ("2.68.3-store", "snap.switched", channel_pin("1.32-classic/stable"), true),
        ("2.68.3-store", "snap.switched", channel_pin("1.32-classic/edge"), false),
        // Follows the channel by name, and is a file's content all the same.
        ("2.68.3", "snap.held", channel_pin("1.32-classic/stable"), false),
        ("2.68.3", "snap.not-installed", revision_pin(2001), false),
        ("2.57.6", "snap.disabled", revision_pin(1), false),
    ] {
        let machine = StandIn::new(version, &[(SNAP, name)]).with(IN_PROGRESS, "2.57.6", "changes.none-for-k8s");
        let seen = known(refresh::look(&machine.snapd(), &wanted, &machine.hashes(), None).await);
        assert_eq!(seen.at_pin, expected, "{name} {:?}", wanted.pin);
    }
}

#[tokio::test]
async fn a_file_is_known_by_what_is_in_it() {
    for version in VERSIONS {
        let machine =
            StandIn::new(version, &[(SNAP, "snap.installed")]).with(IN_PROGRESS, version, "changes.none-for-k8s");
        let hashes = machine.hashes();
        let blob = machine.path("/var/lib/snapd/snaps/k8s_x1.snap");
        let file = |content: &str| {
            let file = SnapFile { path: "/elsewhere/k8s.snap".into(), sha256: Sha256::of(content.as_bytes()) };
            wanted(Pin::File { file, classic: true })
        };
        fs::create_dir_all(blob.parent().unwrap()).unwrap();
        fs::write(&blob, "hsqs one").unwrap();
        assert!(known(refresh::look(&machine.snapd(), &file("hsqs one"), &hashes, None).await).at_pin);
        assert!(!known(refresh::look(&machine.snapd(), &file("hsqs two"), &hashes, None).await).at_pin);

        // Not "different": that would install the same file in every hook.
        fs::remove_file(&blob).unwrap();
        let look = refresh::look(&machine.snapd(), &file("hsqs one"), &hashes, None).await;
        assert!(matches!(look.view, SnapView::Unknown(why) if why.contains("k8s_x1.snap")));

        let store = StandIn::new(&format!("{version}-store"), &[(SNAP, "snap.installed")]).with(
            IN_PROGRESS,
            version,
            "changes.none-for-k8s",
        );
        let blob = store.path("/var/lib/snapd/snaps/k8s_2001.snap");
        fs::create_dir_all(blob.parent().unwrap()).unwrap();
        fs::write(&blob, "hsqs of the store").unwrap();
        assert!(!known(refresh::look(&store.snapd(), &file("hsqs one"), &hashes, None).await).at_pin);
    }
}

#[tokio::test]
async fn a_file_is_sent_as_snapd_wants_it_and_in_pieces() {
    let machine = StandIn::new("2.68.3", &[("POST /v2/snaps", "local-install")]);
    let path = machine.path("/k8s_1.32.1.snap");
    fs::write(&path, "hsqs\r\nsmall").unwrap();
    let pin = Pin::File { file: SnapFile { path: path.clone(), sha256: Sha256::of(b"") }, classic: true };
    let id = refresh::begin(&machine.snapd(), &wanted(pin), None).await.unwrap();
    assert_eq!(id, change("2.68.3", "local-install.change.done").id);
    let sent = machine.last();
    let boundary = sent.content_type.strip_prefix("multipart/form-data; boundary=").unwrap();
    let part = |head: &str, content: &str| {
        format!("--{boundary}\r\nContent-Disposition: form-data; {head}\r\n\r\n{content}\r\n")
    };
    let expected = [
        part("name=\"dangerous\"", "true"),
        part("name=\"classic\"", "true"),
        part("name=\"snap\"; filename=\"k8s_1.32.1.snap\"\r\nContent-Type: application/octet-stream", "hsqs\r\nsmall"),
        format!("--{boundary}--\r\n"),
    ];
    assert_eq!(String::from_utf8(sent.body).unwrap(), expected.concat());

    let large = 256 * 1024 * 1024;
    fs::File::create(&path).unwrap().set_len(large).unwrap();
    let before = peak_kilobytes();
    machine.snapd().install_file(&path, false).await.unwrap();
    let grown = peak_kilobytes() - before;
    assert!(machine.last().length > large, "all of it was sent");
    // Other tests run meanwhile in this process.
    assert!(grown < 64 * 1024, "memory grew by {grown} KiB");

    for (name, text) in [("local-install.not-a-snap", "cannot read snap file"), ("local-install.no-classic", "classic")]
    {
        let machine = StandIn::new("2.57.6", &[("POST /v2/snaps", name)]);
        fs::write(machine.path("/k8s.snap"), "x").unwrap();
        let error = machine.snapd().install_file(&machine.path("/k8s.snap"), false).await.unwrap_err();
        assert!(!error.is_transient() && error.to_string().contains(text), "{error}");
    }
    let error = machine.snapd().install_file(Path::new("/nowhere.snap"), true).await.unwrap_err();
    assert!(matches!(error, SnapdError::File { .. }) && !error.is_transient());
}

/// The most memory that this process has had, in KiB (`proc(5)`).
fn peak_kilobytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_snap_is_held_where_snapd_can() {
    let now = rfc3339::parse("2026-12-01T00:00:00Z").unwrap();
    for (version, name, expected, calls) in [
        ("2.68.3", "snap.installed", Held::Now, 2),
        ("2.68.3", "snap.held", Held::Already, 1),
        ("2.57.6", "snap.held", Held::CannotHold, 2),
    ] {
        let machine = StandIn::new(version, &[(SNAP, name), (POST, "hold")]);
        let snap = machine.snapd().snap("k8s").await.unwrap().unwrap();
        assert_eq!(refresh::hold(&machine.snapd(), &snap, now).await.unwrap(), expected);
        assert_eq!(machine.asked().len(), calls);
    }
    let machine = StandIn::new("2.68.3", &[(SNAP, "snap.installed"), (POST, "hold")]);
    machine.snapd().hold("k8s").await.unwrap();
    assert_eq!(machine.last().json(), json!({"action": "hold", "time": "forever", "hold-level": "general"}));
    let at_once = change("2.68.3", "hold.change");
    assert!(at_once.ready && failure(&at_once).is_none());
}

#[test]
fn recorded_changes_as_a_status_shows_them() {
    for (version, name, shown) in [
        ("-store", "install.change.downloading", "Download snap \"k8s\""),
        ("", "local-install.change.doing", "Run install hook of \"k8s\" snap if present"),
        ("", "local-refresh.change.doing", "Run post-refresh hook of \"k8s\" snap if present"),
        ("", "remove.change.doing", "Run remove hook of \"k8s\" snap if present"),
        ("", "abort.change.just-after", "Run pre-refresh hook of \"k8s\" snap if present"),
    ] {
        for snapd in VERSIONS {
            let change = change(&format!("{snapd}{version}"), name);
            assert_eq!(describe(&progress(&change)), shown, "{snapd} {name}");
            assert_eq!(failure(&change), None);
        }
    }
    let restarting = change("2.68.3", "maintenance.daemon-restart");
    assert_eq!(describe(&progress(&restarting)), "Install \"snapd\" snap from file \"snapd.snap\"");
}

#[test]
fn recorded_failures_as_a_status_shows_them() {
    for (version, name, expected) in [
        ("", "local-install.change.done", None),
        ("-store", "refresh.change.done", None),
        ("", "abort.change.ready", Some("run hook \"pre-refresh\": <aborted>")),
        ("-store", "abort.change.ready", Some("the download has been cancelled: context canceled")),
        (
            "-store",
            "refresh.download-fails.change",
            Some(
                "received an unexpected http response code (404) when trying to download \
                 http://127.0.0.1:11028/download/k8s_1.32.1.snap",
            ),
        ),
        (
            "",
            "local-refresh.hook-fails.change",
            Some("run hook \"post-refresh\": ERROR: hook post-refresh of version 1.32.1 was told to fail"),
        ),
    ] {
        for snapd in VERSIONS {
            assert_eq!(failure(&change(&format!("{snapd}{version}"), name)).as_deref(), expected, "{snapd} {name}");
        }
    }
    let several_lines = failure(&change("2.68.3", "apps-start.systemd-refuses.change")).unwrap();
    assert!(several_lines.contains("exit status 1: stderr: Assertion failed"), "{several_lines}");
}

#[test]
fn what_is_wanted_comes_from_the_resource_or_from_the_charm() {
    let directory = tempfile::tempdir().unwrap();
    let root = Root::of_charm_dir(&directory.path().join("var/lib/juju/agents/unit-k8s-0/charm"));
    let (unpacked, hashes) = (root.path("/unpacked"), Hashes::new(root.path("/sha256.json")));
    let version = "1.32.1".parse().unwrap();
    let manifest = "amd64: [{name: k8s, install-type: store, revision: 7}]";
    let resource = root.path("/snap-installation.tar.gz");
    let sources = Sources {
        manifest,
        version: &version,
        resource: Some(&resource),
        unpacked: &unpacked,
        hashes: &hashes,
        root: &root,
        architecture: Architecture::AMD64,
    };
    let attach = |members: &[(&str, &str)]| {
        let mut builder = tar::Builder::new(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast()));
        for (name, content) in members {
            let mut header = tar::Header::new_gnu();
            header.set_size(content.len() as u64);
            builder.append_data(&mut header, name, content.as_bytes()).unwrap();
        }
        fs::write(&resource, builder.into_inner().unwrap().finish().unwrap()).unwrap();
        Sha256::of(&fs::read(&resource).unwrap()).short().to_owned()
    };

    fs::write(&resource, "").unwrap();
    let own = Wanted::read(&sources).unwrap();
    assert_eq!(own.pin.revision(), Some(Revision::Store(7)));
    assert_eq!(own.target.to_string(), format!("1.32.1@{}", Sha256::of(manifest.as_bytes()).short()));
    assert_eq!(Wanted::read(&Sources { resource: None, ..sources }).unwrap(), own);
    let arm = Wanted::read(&Sources { architecture: Architecture::ARM64, ..sources }).unwrap_err();
    assert_eq!(
        arm.to_string(),
        "the charm's snap_installation.yaml: no `arm64` in it: add this machine's architecture"
    );

    let hash = attach(&[("k8s_1.32.1.snap", "hsqs")]);
    let attached = Wanted::read(&sources).unwrap();
    let Pin::File { file, classic: true } = &attached.pin else { panic!("{attached:?}") };
    assert_eq!((file.sha256.clone(), fs::read(&file.path).unwrap()), (Sha256::of(b"hsqs"), b"hsqs".to_vec()));
    assert_eq!(attached.target.hash, hash);

    let by_name = "amd64: [{name: k8s, install-type: file, filename: ./k8s.snap, classic: false}]";
    attach(&[("snap_installation.yaml", by_name), ("dir/k8s.snap", "hsqs")]);
    assert!(matches!(Wanted::read(&sources).unwrap().pin, Pin::File { classic: false, .. }));
    attach(&[("snap_installation.yaml", by_name)]);
    assert!(Wanted::read(&sources).unwrap_err().to_string().starts_with("`filename` ./k8s.snap: neither"));

    attach(&[("snap_installation.yaml", "amd64: [{name: k8s, install-type: file, filename: /opt/k8s.snap}]")]);
    assert!(Wanted::read(&sources).unwrap_err().to_string().starts_with("`filename` /opt/k8s.snap: "));
    fs::create_dir_all(root.path("/opt")).unwrap();
    fs::write(root.path("/opt/k8s.snap"), "hsqs").unwrap();
    assert!(matches!(Wanted::read(&sources).unwrap().pin, Pin::File { classic: true, .. }));

    attach(&[("snap_installation.yaml", "amd64: [{name: k8s, install-type: store, channel: 1.30}]")]);
    assert_eq!(
        Wanted::read(&sources).unwrap_err().to_string(),
        "resource snap-installation: snap_installation.yaml: `channel` is `1.3`: put it in quotes"
    );
}
