//! snapd's REST API over its Unix socket.
//!
//! Calls go one after another and nothing is repeated: whether to ask again is the caller's decision, by
//! [`SnapdError::is_transient`].

use std::path::Path;
use std::time::Duration;

use hyper::Method;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::error::{SnapdError, one_line};
use super::upload;
use super::wire::{AnswerKind, Change, ChangeId, Envelope, Found, Refusal, ResultOf, Service, Snap, SystemInfo};
use crate::machine::root::Root;
use crate::names::{Channel, Revision};
use crate::unix_http::{Answer, Body, UnixHttp, full};

/// A read answers at once; a restarting snapd may take a while.
const READ: Duration = Duration::from_secs(10);

/// snapd asks the store before it answers, and was recorded to take 32 s over a store that doesn't.
const STORE: Duration = Duration::from_secs(90);

/// The snap's file (some 300 MB) goes to snapd, which writes it to disk.
const UPLOAD: Duration = Duration::from_mins(5);

/// snapd, through its socket.
#[derive(Debug, Clone)]
pub struct Snapd {
    http: UnixHttp,
    root: Root,
}

/// Which of a snap's changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// Those that are not over.
    InProgress,
    /// Those that are over too, as far as snapd still keeps them (a day or so).
    All,
}

/// What to install from the store, or to refresh to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Ask {
    /// This revision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<Revision>,
    /// Follow this channel; with no revision, the one that it has now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channel: Option<Channel>,
    /// The snap may run unconfined.
    #[serde(skip_serializing_if = "is_false")]
    pub classic: bool,
    /// Go to the store from a snap that was installed from a file.
    #[serde(skip_serializing_if = "is_false")]
    pub amend: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(flag: &bool) -> bool {
    !flag
}

#[derive(Serialize)]
struct Instruction<'a> {
    action: &'static str,
    #[serde(flatten)]
    ask: &'a Ask,
}

impl Snapd {
    /// The snapd of the machine with this root, `/run/snapd.socket`.
    pub fn new(root: &Root) -> Self {
        Self { http: UnixHttp::new(root.path("/run/snapd.socket")), root: root.clone() }
    }

    /// The version of snapd itself, `2.68.3-3+deb13u1+b7`.
    pub async fn system_version(&self) -> Result<String, SnapdError> {
        let info: SystemInfo = self.get("tell its version", "/v2/system-info").await?;
        Ok(info.version)
    }

    /// The installed snap of this name; `None`: it isn't installed.
    pub async fn snap(&self, name: &str) -> Result<Option<Snap>, SnapdError> {
        let found = self.get(&format!("look up snap {name}"), &format!("/v2/snaps/{name}")).await;
        match found {
            Ok(snap) => Ok(Some(self.with_blob_below_root(snap))),
            Err(error) if error.has_kind("snap-not-found") => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The changes that name this snap, in snapd's order (none).
    pub async fn changes(&self, name: &str, which: Which) -> Result<Vec<Change>, SnapdError> {
        let select = match which {
            Which::InProgress => "in-progress",
            Which::All => "all",
        };
        self.get(&format!("list the changes of snap {name}"), &format!("/v2/changes?select={select}&for={name}")).await
    }

    /// One change; `None`: snapd doesn't know it (any more).
    pub async fn change(&self, id: &ChangeId) -> Result<Option<Change>, SnapdError> {
        match self.get(&format!("look up change {id}"), &format!("/v2/changes/{id}")).await {
            Ok(change) => Ok(Some(change)),
            Err(SnapdError::Refused { status: 404, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The version that a channel of the store holds, as its snap writes it; `None`: the channel is closed. snapd asks
    /// the store for it.
    pub async fn available(&self, name: &str, channel: &Channel) -> Result<Option<String>, SnapdError> {
        let doing = format!("look up {channel} of snap {name} in the store");
        let found: Vec<Found> = self.get_within(&doing, &format!("/v2/find?name={name}"), STORE).await?;
        let channels = found.into_iter().filter(|found| found.name == name).flat_map(|found| found.channels);
        let mut released = channels.filter(|(open, _)| open.parse::<Channel>().is_ok_and(|open| open == *channel));
        Ok(released.next().map(|(_, released)| released.version))
    }

    /// Begins to install a snap from the store.
    pub async fn install(&self, name: &str, ask: &Ask) -> Result<ChangeId, SnapdError> {
        let instruction = Instruction { action: "install", ask };
        self.post_json(&format!("install snap {name}"), &format!("/v2/snaps/{name}"), &instruction, STORE).await
    }

    /// Begins to refresh an installed snap.
    pub async fn refresh(&self, name: &str, ask: &Ask) -> Result<ChangeId, SnapdError> {
        let instruction = Instruction { action: "refresh", ask };
        self.post_json(&format!("refresh snap {name}"), &format!("/v2/snaps/{name}"), &instruction, STORE).await
    }

    /// Begins to install a snap from a file that no store has signed, over an installed one too.
    ///
    /// The file is read piece by piece while it is sent.
    pub async fn install_file(&self, path: &Path, classic: bool) -> Result<ChangeId, SnapdError> {
        let form =
            upload::of_file(path, classic).map_err(|source| SnapdError::File { path: path.to_owned(), source })?;
        let doing = format!("install {}", path.display());
        let answer = self.send(&doing, Method::POST, "/v2/snaps", &upload::content_type(), form, UPLOAD).await?;
        change_id(&doing, &answer)
    }

    /// Holds a snap's refreshes for ever; those that are asked for by name go on working.
    ///
    /// `false`: this snapd (before 2.58) can't hold a single snap.
    pub async fn hold(&self, name: &str) -> Result<bool, SnapdError> {
        let instruction = json!({"action": "hold", "time": "forever", "hold-level": "general"});
        let held = self.post_json(&format!("hold snap {name}"), &format!("/v2/snaps/{name}"), &instruction, READ).await;
        match held {
            Ok(_) => Ok(true),
            Err(SnapdError::Refused { message, .. }) if message == "unknown action hold" => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether this snapd can hold a single snap: from 2.58 on.
    pub async fn can_hold(&self) -> Result<bool, SnapdError> {
        let version = self.system_version().await?;
        let mut numbers = version.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
        Ok((numbers.next(), numbers.next()) >= (Some(2), Some(58)))
    }

    /// The services of a snap; none when it isn't installed.
    pub async fn services(&self, name: &str) -> Result<Vec<Service>, SnapdError> {
        let found =
            self.get(&format!("list the services of {name}"), &format!("/v2/apps?names={name}&select=service")).await;
        match found {
            Err(error) if error.has_kind("snap-not-found") => Ok(Vec::new()),
            found => found,
        }
    }

    /// Begins to restart one service of a snap, `kubelet` of `k8s`; one that is stopped is started.
    pub async fn restart_service(&self, snap: &str, service: &str) -> Result<ChangeId, SnapdError> {
        let name = format!("{snap}.{service}");
        let instruction = json!({"action": "restart", "names": [name]});
        self.post_json(&format!("restart {name}"), "/v2/apps", &instruction, READ).await
    }

    /// Begins to remove a snap; `None`: it isn't installed.
    pub async fn remove(&self, name: &str) -> Result<Option<ChangeId>, SnapdError> {
        let instruction = json!({"action": "remove"});
        let removed =
            self.post_json(&format!("remove snap {name}"), &format!("/v2/snaps/{name}"), &instruction, READ).await;
        match removed {
            Ok(change) => Ok(Some(change)),
            Err(error) if error.has_kind("snap-not-installed") => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn with_blob_below_root(&self, mut snap: Snap) -> Snap {
        snap.blob = snap.blob.map(|blob| self.root.path(blob));
        snap
    }

    async fn get<T: DeserializeOwned>(&self, doing: &str, path: &str) -> Result<T, SnapdError> {
        self.get_within(doing, path, READ).await
    }

    async fn get_within<T: DeserializeOwned>(&self, doing: &str, path: &str, limit: Duration) -> Result<T, SnapdError> {
        let answer = self.send(doing, Method::GET, path, "application/json", full(""), limit).await?;
        Ok(read::<ResultOf<T>>(doing, &answer)?.result)
    }

    async fn post_json(
        &self,
        doing: &str,
        path: &str,
        instruction: &impl Serialize,
        limit: Duration,
    ) -> Result<ChangeId, SnapdError> {
        let body = serde_json::to_vec(instruction).map_err(|error| SnapdError::Unreadable {
            doing: doing.to_owned(),
            status: 0,
            cause: error.to_string(),
        })?;
        let answer = self.send(doing, Method::POST, path, "application/json", full(body), limit).await?;
        change_id(doing, &answer)
    }

    /// Sends a request; an answer that says no is an error here.
    async fn send(
        &self,
        doing: &str,
        method: Method,
        path: &str,
        content_type: &str,
        body: Body,
        limit: Duration,
    ) -> Result<Answer, SnapdError> {
        let answer = self
            .http
            .send(method, path, content_type, body, limit)
            .await
            .map_err(|source| SnapdError::Transport { doing: doing.to_owned(), source })?;
        match read::<Envelope>(doing, &answer)?.kind {
            AnswerKind::Sync | AnswerKind::Async => Ok(answer),
            AnswerKind::Error => {
                let refusal = read::<ResultOf<Refusal>>(doing, &answer)?.result;
                Err(SnapdError::refused(doing, answer.status.as_u16(), refusal))
            }
        }
    }
}

fn read<T: DeserializeOwned>(doing: &str, answer: &Answer) -> Result<T, SnapdError> {
    serde_json::from_slice(&answer.body).map_err(|error| SnapdError::Unreadable {
        doing: doing.to_owned(),
        status: answer.status.as_u16(),
        cause: one_line(&error.to_string()),
    })
}

fn change_id(doing: &str, answer: &Answer) -> Result<ChangeId, SnapdError> {
    read::<Envelope>(doing, answer)?.change.ok_or_else(|| SnapdError::Unreadable {
        doing: doing.to_owned(),
        status: answer.status.as_u16(),
        cause: "it names no change".to_owned(),
    })
}
