//! Join tokens: made by a member, handed over in a secret that only the joining unit may read.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::charm::Charm;
use crate::cluster::decide::TokenWanted;
use crate::cluster::values::{TokenFailure, TokenId};
use crate::error_text::with_causes;
use crate::juju::{HookTools, JujuError, RelationId, SecretContent, SecretId, SecretOwner};
use crate::secret::SecretText;

/// Which token it is for its unit: one that replaces another has a higher number.
pub(super) fn revision(content: &SecretContent) -> i64 {
    content.get("revision").and_then(|text| text.expose().parse().ok()).unwrap_or(0)
}

/// Makes a token in an old one's place; none if it can't be made within this time, or the failure is of an older one than
/// the unit has.
pub(super) async fn renew<T: HookTools>(
    charm: &Charm<T>,
    relation: &RelationId,
    owner: SecretOwner,
    old: Option<&TokenId>,
    wanted: &TokenWanted,
    limit: Duration,
) -> Result<Option<SecretId>, JujuError> {
    let TokenWanted { unit, node, failure } = wanted;
    if old.is_some() && !is_spent(charm, old, wanted).await? {
        return Ok(None);
    }
    let token = match charm.k8sd.token(node, false, limit).await {
        Ok(token) => token,
        Err(error) => {
            tracing::warn!("No join token for {unit} yet: {}", with_causes(&error));
            return Ok(None);
        }
    };
    let revision = failure.as_ref().map_or(0, |failure| failure.revision.saturating_add(1));
    let content: SecretContent =
        BTreeMap::from([("revision".to_owned(), SecretText::new(revision.to_string())), ("token".to_owned(), token)]);
    let id = charm.juju.add_secret(owner, &content, &charm.context.charm_dir).await?;
    charm.juju.grant_secret(&id, relation, unit).await?;
    Ok(Some(id))
}

/// Whether a token is the one that failed, or is gone.
pub(super) async fn is_spent<T: HookTools>(
    charm: &Charm<T>,
    token: Option<&TokenId>,
    wanted: &TokenWanted,
) -> Result<bool, JujuError> {
    let (Some(token), Some(TokenFailure { revision: failed, .. })) = (token, &wanted.failure) else { return Ok(false) };
    let content = charm.juju.secret(&SecretId(token.clone())).await?;
    Ok(content.is_none_or(|content| revision(&content) == *failed))
}
