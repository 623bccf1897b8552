//! The hook tools: formats, exit codes and texts of the real ones (Juju `internal/worker/uniter/runner/jujuc/`).

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::context::{Context, Owner};
use super::{Hook, Model, Secret, Status, UnitId};
use crate::systemd::ToolAnswer;

fn text(stdout: impl Into<String>) -> ToolAnswer {
    ToolAnswer { code: 0, stdout: stdout.into(), stderr: String::new() }
}

fn answer(value: &Value) -> ToolAnswer {
    text(format!("{value}\n"))
}

fn refuse(code: i32, message: impl std::fmt::Display) -> ToolAnswer {
    ToolAnswer::failure(code, format!("ERROR {message}\n"))
}

fn nothing() -> ToolAnswer {
    ToolAnswer::default()
}

/// A tool's arguments: flags with and without values, and what stands free. After `--` everything is free.
struct Arguments<'a> {
    flags: BTreeMap<&'a str, &'a str>,
    free: Vec<&'a str>,
}

/// Flags that have a value.
const VALUED: [&str; 10] =
    ["-r", "--relation", "--unit", "--owner", "--label", "--description", "--file", "--log-level", "--endpoints", "-u"];

impl<'a> Arguments<'a> {
    fn parse(arguments: &'a [String], known: &[&str]) -> Result<Self, ToolAnswer> {
        let mut parsed = Self { flags: BTreeMap::new(), free: Vec::new() };
        let mut rest = arguments.iter().map(String::as_str);
        while let Some(argument) = rest.next() {
            if argument == "--" {
                parsed.free.extend(rest.by_ref());
            } else if argument.starts_with('-') && argument != "-" {
                let (name, value) = argument.split_once('=').map_or((argument, None), |(name, v)| (name, Some(v)));
                if !known.contains(&name) {
                    return Err(refuse(2, format!("option provided but not defined: {name}")));
                }
                let value = match value {
                    Some(value) => value,
                    None if VALUED.contains(&name) => rest.next().unwrap_or_default(),
                    None => "true",
                };
                parsed.flags.insert(name, value);
            } else {
                parsed.free.push(argument);
            }
        }
        Ok(parsed)
    }
}

impl Model {
    /// Runs a hook tool in a context.
    pub fn tool(&mut self, context: &mut Context, tool: &str, arguments: &[String], stdin: &str) -> ToolAnswer {
        context.calls.push(tool.to_owned());
        let result = match tool {
            "is-leader" => self.is_leader(context, arguments),
            "goal-state" => self.goal_state(context, arguments),
            "config-get" => self.config_get(context, arguments),
            "relation-ids" => self.relation_ids(context, arguments),
            "relation-list" => self.relation_list(context, arguments),
            "relation-get" => self.relation_get(context, arguments),
            "relation-set" => self.relation_set(context, arguments, stdin),
            "status-get" => self.status_get(context, arguments),
            "status-set" => self.status_set(context, arguments),
            "application-version-set" | "open-port" | "close-port" => Ok(nothing()),
            "juju-log" => juju_log(context, arguments),
            "network-get" => Ok(network_get(context)),
            "unit-get" => Ok(text(format!("{}\n", address(&context.unit)))),
            "resource-get" => Err(resource_get(context, arguments)),
            "secret-add" => self.secret_add(context, arguments),
            "secret-get" => self.secret_get(context, arguments),
            "secret-grant" => self.secret_grant(context, arguments),
            "secret-remove" => self.secret_remove(context, arguments),
            "action-get" => self.action_get(context),
            "action-set" => action_set(context, arguments),
            "action-fail" => action_fail(context, arguments),
            _ => Err(refuse(1, format!("bad request: unknown command: {tool}"))),
        };
        result.unwrap_or_else(|refusal| refusal)
    }

    /// Whether the unit leads; once false in a context, it stays so (S52).
    fn leads_in(&self, context: &mut Context) -> bool {
        context.lost_leadership |= !self.leads(&context.unit);
        !context.lost_leadership
    }

    fn is_leader(&mut self, context: &mut Context, arguments: &[String]) -> Result<ToolAnswer, ToolAnswer> {
        Arguments::parse(arguments, &["--format"])?;
        Ok(answer(&json!(self.leads_in(context))))
    }

    fn goal_state(&mut self, context: &mut Context, arguments: &[String]) -> Result<ToolAnswer, ToolAnswer> {
        Arguments::parse(arguments, &["--format"])?;
        let of_unit = |id: &UnitId| {
            let unit = self.units.get(id);
            let status = unit.map_or("active", |unit| if unit.dying { "dying" } else { unit.workload.status.as_str() });
            json!({"status": status, "since": "2026-01-01 00:00:00Z"})
        };
        let mine = &context.unit.application;
        let units: Map<String, Value> = self
            .units
            .keys()
            .filter(|id| id.application == *mine && !self.is_removed(id))
            .map(|id| (id.to_string(), of_unit(id)))
            .collect();
        let mut relations = Map::new();
        for relation in self.relations.values().filter(|relation| !relation.is_peer()) {
            if !relation.applications.contains(mine) {
                continue;
            }
            let others = relation.scope.keys().filter(|id| id.application != *mine);
            let mut side: Map<String, Value> = others.map(|id| (id.to_string(), of_unit(id))).collect();
            for name in relation.applications.iter().filter(|name| *name != mine) {
                side.insert(name.clone(), json!({"status": "joined", "since": "2026-01-01 00:00:00Z"}));
            }
            relations.insert(relation.name.clone(), Value::Object(side));
        }
        Ok(answer(&json!({"units": units, "relations": relations})))
    }

    fn config_get(&mut self, context: &mut Context, arguments: &[String]) -> Result<ToolAnswer, ToolAnswer> {
        let parsed = Arguments::parse(arguments, &["--format", "--all"])?;
        let config = Value::Object(self.config_of(&context.unit.application));
        Ok(answer(parsed.free.first().map_or(&config, |key| &config[*key])))
    }

    fn relation_ids(&mut self, context: &mut Context, arguments: &[String]) -> Result<ToolAnswer, ToolAnswer> {
        let parsed = Arguments::parse(arguments, &["--format"])?;
        // S5: in install no relation is known.
        let known = context.hook != Hook::Install;
        let name = parsed.free.first().copied().unwrap_or_default();
        let mine = |relation: &&super::Relation| {
            known && relation.name == name && relation.applications.contains(&context.unit.application)
        };
        let ids: Vec<String> = self.relations.values().filter(mine).map(super::Relation::full_id).collect();
        Ok(answer(&json!(ids)))
    }

    fn relation_of(&self, context: &Context, parsed: &Arguments<'_>, flag: &str) -> Result<u32, ToolAnswer> {
        let given = parsed.flags.get(flag).copied();
        let Some(given) = given else {
            return match &context.hook {
                Hook::Relation(id, ..) => Ok(*id),
                _ => Err(refuse(2, "no relation id specified")),
            };
        };
        let number = given.rsplit(':').next().and_then(|number| number.parse().ok());
        let known = |id: &u32| {
            let relation = self.relations.get(id);
            let mine = relation.is_some_and(|found| found.applications.contains(&context.unit.application));
            mine && context.hook != Hook::Install
        };
        let unknown = || refuse(2, format!("invalid value \"{given}\" for option {flag}: relation not found"));
        number.filter(known).ok_or_else(unknown)
    }

    fn relation_list(&mut self, context: &mut Context, arguments: &[String]) -> Result<ToolAnswer, ToolAnswer> {
        let parsed = Arguments::parse(arguments, &["--format", "-r", "--app"])?;
        let id = self.relation_of(context, &parsed, "-r")?;
        // S17: whose joined hook has begun.
        let local = self.units.get(&context.unit).and_then(|unit| unit.relations.get(&id));
        let mut joined: Vec<String> =
            local.map(|local| local.joined.keys().map(ToString::to_string).collect()).unwrap_or_default();
        joined.sort();
        Ok(answer(&json!(joined)))
    }

    fn relation_get(&mut self, context: &mut Context, arguments: &[String]) -> Result<ToolAnswer, ToolAnswer> {
        let parsed = Arguments::parse(arguments, &["--format", "-r", "--app"])?;
        let id = self.relation_of(context, &parsed, "-r")?;
        let [key, whose @ ..] = parsed.free.as_slice() else {
            return Err(refuse(2, "no unit or application specified"));
        };
        let remote = match &context.hook {
            Hook::Relation(relation, _, Some(about)) if *relation == id => about.to_string(),
            _ => context.unit.to_string(),
        };
        let whose = whose.first().map_or(remote, |whose| (*whose).to_owned());
        let owner = if parsed.flags.contains_key("--app") {
            Owner::Application(whose.split('/').next().unwrap_or_default().to_owned())
        } else {
            Owner::Unit(UnitId::parse(&whose).ok_or_else(|| refuse(2, format!("invalid unit name \"{whose}\"")))?)
        };
        let bag = self.read_bag(context, id, owner)?;
        Ok(match *key {
            "-" => answer(&json!(bag)),
            key => answer(&bag.get(key).map_or(Value::Null, |value| json!(value))),
        })
    }

    /// A bag as this context sees it (S13, S16, S18).
    fn read_bag(
        &mut self,
        context: &mut Context,
        id: u32,
        owner: Owner,
    ) -> Result<BTreeMap<String, String>, ToolAnswer> {
        let key = (id, owner);
        let mut bag = if let Some(bag) = context.reads.get(&key) {
            bag.clone()
        } else {
            let bag = self.fetch_bag(&context.unit, id, &key.1)?;
            context.reads.insert(key.clone(), bag.clone());
            bag
        };
        if let Some(pending) = context.writes.get(&key) {
            bag.extend(pending.clone());
            bag.retain(|_, value| !value.is_empty());
        }
        Ok(bag)
    }

    fn fetch_bag(&mut self, me: &UnitId, id: u32, owner: &Owner) -> Result<BTreeMap<String, String>, ToolAnswer> {
        let relation = self.relations.get(&id).ok_or_else(|| refuse(1, "relation not found"))?;
        match owner {
            Owner::Application(name) => {
                let own_side = *name == me.application && !relation.is_peer();
                if own_side && !self.leads(me) {
                    return Err(refuse(1, "permission denied"));
                }
                let bag = relation.application_bags.get(name).ok_or_else(|| refuse(1, "permission denied"))?;
                Ok(bag.content.clone())
            }
            Owner::Unit(unit) => {
                let settings_not_found = || {
                    let relation = relation.full_id();
                    refuse(
                        1,
                        format!(
                            "cannot read settings for unit \"{unit}\" in relation \"{relation}\": unit \"{unit}\": settings not found"
                        ),
                    )
                };
                let content = relation.scope.get(unit).map(|bag| bag.content.clone()).ok_or_else(settings_not_found)?;
                if unit == me {
                    return Ok(content);
                }
                let Some(local) = self.units.get_mut(me).and_then(|unit| unit.relations.get_mut(&id)) else {
                    return Ok(content);
                };
                if !local.joined.contains_key(unit) {
                    return Ok(content);
                }
                Ok(local.cache.entry(unit.clone()).or_insert(content).clone())
            }
        }
    }

    fn relation_set(
        &mut self,
        context: &mut Context,
        arguments: &[String],
        stdin: &str,
    ) -> Result<ToolAnswer, ToolAnswer> {
        let parsed = Arguments::parse(arguments, &["-r", "--app", "--file"])?;
        let id = self.relation_of(context, &parsed, "-r")?;
        let from_file: BTreeMap<String, Value> = match parsed.flags.get("--file") {
            Some(&"-") if !stdin.trim().is_empty() => {
                serde_yaml::from_str(stdin).map_err(|error| refuse(1, format!("yaml: {error}")))?
            }
            _ => BTreeMap::new(),
        };
        let as_text = |value: Value| match value {
            Value::String(text) => text,
            Value::Null => String::new(),
            other => other.to_string(),
        };
        let mut changes: BTreeMap<String, String> =
            from_file.into_iter().map(|(key, value)| (key, as_text(value))).collect();
        changes.extend(parsed.free.iter().filter_map(|pair| {
            let (key, value) = pair.split_once('=')?;
            Some((key.to_owned(), value.to_owned()))
        }));
        let owner = match parsed.flags.contains_key("--app") {
            true if !self.leads_in(context) => return Err(refuse(1, "cannot write relation settings")),
            true => Owner::Application(context.unit.application.clone()),
            false => Owner::Unit(context.unit.clone()),
        };
        let whose = match &owner {
            Owner::Application(name) => name.clone(),
            Owner::Unit(unit) => unit.to_string(),
        };
        let name = self.relations.get(&id).map(|relation| relation.name.clone()).unwrap_or_default();
        let written = changes.iter().map(|(key, value)| match value.as_str() {
            "" => format!("{key} gone"),
            _ if key.ends_with("-secret-id") => format!("{key}=secret"),
            value if value.chars().count() > 40 => format!("{key}=…"),
            value => format!("{key}={value}"),
        });
        let written: Vec<String> = written.filter(|phrase| !phrase.starts_with("since=")).collect();
        context.did.push(format!("{name} bag of {whose}: {}", written.join(", ")));
        context.writes.entry((id, owner)).or_default().extend(changes);
        Ok(nothing())
    }

    fn status_get(&mut self, context: &mut Context, arguments: &[String]) -> Result<ToolAnswer, ToolAnswer> {
        Arguments::parse(arguments, &["--format", "--include-data"])?;
        let unit = self.units.get(&context.unit).ok_or_else(|| refuse(1, "unit not found"))?;
        let Status { status, message } = &unit.workload;
        Ok(answer(&json!({"message": message, "status": status, "status-data": {}})))
    }

    /// At once, and never taken back (S64).
    fn status_set(&mut self, context: &mut Context, arguments: &[String]) -> Result<ToolAnswer, ToolAnswer> {
        let parsed = Arguments::parse(arguments, &["--application"])?;
        let [status, message @ ..] = parsed.free.as_slice() else {
            return Err(refuse(2, "invalid args, require <status> [message]"));
        };
        if !["maintenance", "blocked", "waiting", "active"].contains(status) {
            return Err(refuse(
                2,
                format!("invalid status \"{status}\", expected one of [maintenance blocked waiting active]"),
            ));
        }
        let status = Status { status: (*status).to_owned(), message: message.join(" ") };
        if let Some(unit) = self.units.get_mut(&context.unit) {
            unit.workload = status.clone();
        }
        context.status = Some(status);
        Ok(nothing())
    }

    fn secret_add(&mut self, context: &mut Context, arguments: &[String]) -> Result<ToolAnswer, ToolAnswer> {
        let parsed = Arguments::parse(arguments, &["--owner", "--label", "--description"])?;
        let owner = match parsed.flags.get("--owner").copied().unwrap_or("application") {
            "unit" => context.unit.to_string(),
            "application" if self.leads_in(context) => context.unit.application.clone(),
            "application" => return Err(refuse(1, "this unit is not the leader")),
            other => return Err(refuse(2, format!("secret owner \"{other}\" not valid"))),
        };
        let mut pairs = BTreeMap::new();
        for pair in &parsed.free {
            let (key, value) = pair.split_once('=').ok_or_else(|| refuse(2, "missing secret value or filename"))?;
            let (key, value) = match key.strip_suffix("#file") {
                // The agent opens it, not the tool.
                Some(key) => (key, std::fs::read_to_string(value).map_err(|error| refuse(1, error))?),
                None => (key, value.to_owned()),
            };
            if key.len() < 3 {
                return Err(refuse(2, format!("key \"{key}\" not valid")));
            }
            pairs.insert(key.to_owned(), value);
        }
        self.contexts_made += 1;
        let id = format!("secret:d{:019}", self.contexts_made);
        context.secrets.insert(id.clone(), Some(Secret { owner, content: pairs, granted: BTreeSet::new() }));
        context.did.push("adds a secret".to_owned());
        Ok(text(format!("{id}\n")))
    }

    fn find_secret(&self, context: &Context, id: &str) -> Result<Secret, ToolAnswer> {
        let bare = id.strip_prefix("secret:").unwrap_or(id);
        let unknown = || refuse(1, format!("secret \"{bare}\" not found"));
        let id = format!("secret:{bare}");
        match context.secrets.get(&id) {
            Some(pending) => pending.clone().ok_or_else(unknown),
            None => self.secrets.get(&id).cloned().ok_or_else(unknown),
        }
    }

    fn secret_get(&mut self, context: &mut Context, arguments: &[String]) -> Result<ToolAnswer, ToolAnswer> {
        let parsed = Arguments::parse(arguments, &["--format", "--refresh", "--peek", "--label"])?;
        let id = parsed.free.first().copied().ok_or_else(|| refuse(2, "require either a secret URI or label"))?;
        let secret = self.find_secret(context, id)?;
        if !Self::may_read(&secret, &context.unit) {
            return Err(refuse(1, "permission denied"));
        }
        Ok(answer(&json!(secret.content)))
    }

    fn secret_grant(&mut self, context: &mut Context, arguments: &[String]) -> Result<ToolAnswer, ToolAnswer> {
        let parsed = Arguments::parse(arguments, &["--relation", "-r", "--unit"])?;
        let id = parsed.free.first().copied().ok_or_else(|| refuse(2, "missing secret URI"))?;
        self.relation_of(context, &parsed, "--relation")?;
        let mut secret = self.find_secret(context, id)?;
        secret.granted.extend(parsed.flags.get("--unit").map(|unit| (*unit).to_owned()));
        context.secrets.insert(id.to_owned(), Some(secret));
        Ok(nothing())
    }

    fn secret_remove(&mut self, context: &mut Context, arguments: &[String]) -> Result<ToolAnswer, ToolAnswer> {
        let id = arguments.first().map(String::as_str).unwrap_or_default();
        let secret = self.find_secret(context, id)?;
        if !self.may_manage(&secret, &context.unit) {
            return Err(refuse(1, "permission denied"));
        }
        context.secrets.insert(id.to_owned(), None);
        context.did.push("removes a secret".to_owned());
        Ok(nothing())
    }

    fn action_get(&self, context: &Context) -> Result<ToolAnswer, ToolAnswer> {
        let Hook::Action(id) = &context.hook else { return Err(refuse(1, "not running an action")) };
        let parameters = self.actions.get(id).map(|action| action.parameters.clone()).unwrap_or_default();
        Ok(answer(&Value::Object(parameters)))
    }
}

fn juju_log(context: &mut Context, arguments: &[String]) -> Result<ToolAnswer, ToolAnswer> {
    let parsed = Arguments::parse(arguments, &["--log-level", "-l"])?;
    let level = parsed.flags.get("--log-level").copied().unwrap_or("INFO").to_owned();
    let said = parsed.free.join(" ");
    context.log.push((level, said));
    Ok(nothing())
}

/// A unit's address: the same in every binding.
fn address(unit: &UnitId) -> String {
    format!("10.0.0.{}", unit.number + 10)
}

fn network_get(context: &Context) -> ToolAnswer {
    let address = address(&context.unit);
    answer(&json!({
        "bind-addresses": [{"mac-address": "52:54:00:00:00:01", "interface-name": "eth0",
            "addresses": [{"hostname": "", "value": address, "cidr": "10.0.0.0/24"}]}],
        "egress-subnets": [format!("{address}/32")], "ingress-addresses": [address],
    }))
}

fn resource_get(context: &Context, arguments: &[String]) -> ToolAnswer {
    let name = arguments.first().map(String::as_str).unwrap_or_default();
    let application = &context.unit.application;
    refuse(1, format!("could not download resource: HTTP request failed: resource \"{application}/{name}\" not found"))
}

fn action_set(context: &mut Context, arguments: &[String]) -> Result<ToolAnswer, ToolAnswer> {
    if !matches!(context.hook, Hook::Action(_)) {
        return Err(refuse(1, "not running an action"));
    }
    for pair in &Arguments::parse(arguments, &[])?.free {
        let wrong = || refuse(2, format!("argument \"{pair}\" must be of the form key...=value"));
        let (key, value) = pair.split_once('=').ok_or_else(wrong)?;
        context.action.results.insert(key.to_owned(), value.to_owned());
    }
    Ok(nothing())
}

fn action_fail(context: &mut Context, arguments: &[String]) -> Result<ToolAnswer, ToolAnswer> {
    if !matches!(context.hook, Hook::Action(_)) {
        return Err(refuse(1, "not running an action"));
    }
    let why = Arguments::parse(arguments, &[])?.free.join(" ");
    context.did.push(format!("fails: {why}"));
    context.action.failed = Some(why);
    Ok(nothing())
}
