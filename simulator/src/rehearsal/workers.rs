//! Workers: nodes of another application, whose charm isn't run. What the control plane sees of them is played.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{APPLICATION, RehearsalError, WORKERS, WORKERS_ENDPOINT};
use crate::engine::{Engine, EngineError};
use crate::juju::UnitId;
use crate::layout::{Pin, PreparedCharm};
use crate::report::UnitRow;
use crate::time::SimTime;
use crate::wire::{MachineId, Reply, Request, Service};

/// Installs the snap on a new machine, joins it with a token of the leader's, and publishes its version.
pub(super) async fn join(engine: &mut Engine, unit: &UnitId, charm: &PreparedCharm) -> Result<(), RehearsalError> {
    let machine = engine.add_machine()?;
    let ask = match &charm.pin {
        Pin::Revision(revision) => json!({"revision": revision.to_string()}),
        Pin::Channel(channel) => json!({"channel": channel}),
    };
    let mut install = json!({"action": "install", "classic": true});
    if let (Some(install), Some(ask)) = (install.as_object_mut(), ask.as_object()) {
        install.extend(ask.clone());
    }
    call(engine, machine, Service::Snapd, "/v2/snaps/k8s", &install).await?;
    let installed = SimTime(engine.now.0 + 30_000);
    engine.run_until(installed).await?;
    let leader = engine.model.units.values().find(|unit| unit.id.application == APPLICATION).map(|unit| unit.machine);
    let name = engine.fleet.machines.get(&machine).map(|found| found.hostname.clone()).unwrap_or_default();
    let address = engine.fleet.machines.get(&machine).map(|found| found.address.to_string()).unwrap_or_default();
    let ask = json!({"name": name, "worker": true});
    let token = call(engine, leader.unwrap_or(MachineId(0)), Service::K8sd, "/1.0/k8sd/cluster/tokens", &ask).await?;
    let token = token["metadata"]["token"].clone();
    let join = json!({"name": name, "address": format!("{address}:6400"), "token": token, "config": ""});
    call(engine, machine, Service::K8sd, "/1.0/k8sd/cluster/join", &join).await?;
    let content = BTreeMap::from([("node-name".to_owned(), name), ("version".to_owned(), charm.version.to_string())]);
    engine.model.enter_played(WORKERS_ENDPOINT, unit, content);
    engine.played.insert(unit.clone(), machine);
    engine.notice_all();
    Ok(())
}

/// Asks a machine's server, and lets time pass until it has answered.
async fn call(
    engine: &mut Engine,
    machine: MachineId,
    service: Service,
    path: &str,
    body: &Value,
) -> Result<Value, RehearsalError> {
    let request = Request {
        method: "POST".to_owned(),
        path: path.to_owned(),
        content_type: Some("application/json".to_owned()),
        headers: Vec::new(),
        body: body.to_string().into_bytes(),
        client_certificate: false,
    };
    let mut reply = engine.fleet.handle(machine, service, engine.now, &request);
    loop {
        match reply {
            Reply::Now(response) if response.status < 300 => {
                return Ok(serde_json::from_slice(&response.body).unwrap_or_default());
            }
            Reply::Wait { until, ticket } => {
                engine.run_until(until).await?;
                reply = engine.fleet.cluster.resume(ticket, engine.now);
            }
            Reply::Now(response) => {
                let said = String::from_utf8_lossy(&response.body).into_owned();
                return Err(EngineError::Trouble(format!("a worker's POST {path}: {said}")).into());
            }
            Reply::Hangup => return Err(EngineError::Trouble(format!("a worker's POST {path}: no answer")).into()),
        }
    }
}

/// The workers as rows.
pub(super) fn rows(engine: &Engine) -> impl Iterator<Item = UnitRow> + '_ {
    engine.played.iter().filter(|(unit, _)| unit.application == WORKERS).map(|(unit, machine)| {
        let installed = engine.fleet.view(*machine).and_then(|view| view.installed);
        UnitRow {
            unit: unit.to_string(),
            leader: unit.number == 0,
            workload: "active".to_owned(),
            agent: "idle".to_owned(),
            machine: machine.to_string(),
            message: "Ready (played: this charm is not rehearsed)".to_owned(),
            version: installed.as_ref().map(|snap| snap.version.to_string()),
            revision: installed.map(|snap| snap.revision),
        }
    })
}
