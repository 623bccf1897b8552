//! Join tokens: base64 of JSON with a secret, a fingerprint and addresses; a worker's secret begins with `worker::`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::{Deserialize, Serialize};

use super::answers::{Failure, Handled, success};
use super::node::{Daemon, Membership};
use super::requests::Tokens;
use super::state::{Token, TokenKind};
use super::{Cluster, ClusterId, delays};
use crate::time::SimTime;
use crate::wire::{MachineId, Reply};

const WORKER: &str = "worker::";

/// A control plane's token, in the order of its keys.
#[derive(Serialize)]
struct ControlPlaneToken<'a> {
    secret: &'a str,
    fingerprint: &'a str,
    join_addresses: Vec<&'a str>,
}

/// A worker's token, in the order of its keys.
#[derive(Serialize)]
struct WorkerToken<'a> {
    token: &'a str,
    secret: &'a str,
    join_addresses: Vec<&'a str>,
    fingerprint: &'a str,
    #[serde(rename = "_")]
    mark: &'a str,
}

/// What a join reads of a token.
#[derive(Deserialize)]
pub(super) struct Secret {
    secret: String,
}

impl Secret {
    /// Reads a token.
    ///
    /// # Errors
    ///
    /// What Go says of something else (recorded: `join.not-base64`, `join.garbage-token`).
    pub(super) fn read(token: &str) -> Result<Self, String> {
        let bytes = BASE64.decode(token).map_err(|error| match error {
            base64::DecodeError::InvalidByte(at, _) => format!("illegal base64 data at input byte {at}"),
            _ => format!("illegal base64 data at input byte {}", token.len()),
        })?;
        serde_json::from_slice(&bytes).map_err(|_| {
            let second = bytes.get(1).copied().map_or(' ', char::from);
            format!("invalid character '{second}' in literal null (expecting 'u')")
        })
    }

    pub(super) fn kind(&self) -> TokenKind {
        if self.secret.starts_with(WORKER) { TokenKind::Worker } else { TokenKind::ControlPlane }
    }
}

impl Cluster {
    /// The cluster that a token leads to.
    pub(super) fn find_token(&self, secret: &Secret, name: &str, now: SimTime) -> Result<ClusterId, String> {
        let found = self.states.iter().find_map(|(cluster, state)| {
            let mut tokens = state.tokens.iter();
            tokens.find(|token| token.secret == secret.secret && now < token.expires).map(|token| (*cluster, token))
        });
        let attempt = |cause: &str| Err(format!("1 join attempts were unsuccessful. Last error: {cause}"));
        let Some((cluster, token)) = found else { return attempt("CoreTokenRecord not found") };
        if token.name != name {
            return attempt("Joining server certificate SAN does not contain join token name");
        }
        let up = self
            .machines
            .values()
            .any(|machine| machine.membership == Membership::ControlPlane(cluster) && machine.daemon >= Daemon::Open);
        if up { Ok(cluster) } else { attempt("context deadline exceeded") }
    }

    /// `POST /1.0/k8sd/cluster/tokens`.
    pub(super) fn join_token(&mut self, machine: MachineId, now: SimTime, request: &Tokens) -> Handled {
        self.check_token_name(machine, &request.name)?;
        let kind = if request.worker { TokenKind::Worker } else { TokenKind::ControlPlane };
        let (_, state) = self.state_of(machine)?;
        let valid = |token: &&Token| token.kind == kind && token.name == request.name && now < token.expires;
        if kind == TokenKind::ControlPlane
            && let Some(token) = state.tokens.iter().find(valid)
        {
            return Ok(Reply::Now(success(Answer { token: &token.text })));
        }
        let secret = match kind {
            TokenKind::ControlPlane => self.hex(32),
            TokenKind::Worker => format!("{WORKER}{}", self.hex(20)),
        };
        let lifetime = match u64::try_from(request.ttl) {
            Ok(nanoseconds) if nanoseconds > 0 => std::time::Duration::from_nanos(nanoseconds),
            _ => delays::TOKEN,
        };
        let (cluster, state) = self.state_of(machine)?;
        let join_addresses = state.members.iter().map(|member| member.address.as_str()).collect();
        let fingerprint = state.fingerprint.as_str();
        let text = match kind {
            TokenKind::ControlPlane => {
                serde_json::to_vec(&ControlPlaneToken { secret: &secret, fingerprint, join_addresses })
            }
            TokenKind::Worker => serde_json::to_vec(&WorkerToken {
                token: "",
                secret: &secret,
                join_addresses,
                fingerprint,
                mark: "m!!",
            }),
        };
        let text = BASE64.encode(text.unwrap_or_default());
        let reply = success(Answer { token: &text });
        if let Some(state) = self.states.get_mut(&cluster) {
            state.tokens.push(Token { name: request.name.clone(), kind, secret, text, expires: now + lifetime });
        }
        Ok(Reply::Now(reply))
    }

    /// 1.36 asks Kubernetes whether a Node of that name exists; before, only an empty name is refused.
    fn check_token_name(&self, machine: MachineId, name: &str) -> Result<(), Failure> {
        let Some(found) = self.machines.get(&machine) else { return Ok(()) };
        if found.minor() < 36 {
            let text = "failed to create token: failed to generate a new microcluster join token: Token name \"\" is not \
                        a valid FQDN: Name must be 1-255 characters long";
            return if name.is_empty() { Err(Failure::new(500, text)) } else { Ok(()) };
        }
        let unknown = |cause: &str| {
            Err(Failure::new(
                400,
                format!("failed to check whether node name is available in cluster: \"{name}\": {cause}"),
            ))
        };
        if name.is_empty() {
            return unknown("resource name may not be empty");
        }
        if let Err(cause) = self.api_call(found, "Get", &format!("/api/v1/nodes/{name}")) {
            return unknown(&cause);
        }
        let (_, state) = self.state_of(machine)?;
        if state.nodes.contains_key(name) {
            return Err(Failure::new(500, format!("a node with this name is already part of the cluster: \"{name}\"")));
        }
        Ok(())
    }
}

/// The answer.
#[derive(Serialize)]
struct Answer<'a> {
    token: &'a str,
}
