//! Asks the health route of an API that answered 503 whether it works again.
//!
//! By the broker itself: over the checks of every upstream, without a credential and outside every run.

use std::sync::Arc;

use freeboard_policy::ApiView;
use tokio::time::timeout;

use crate::broker::Broker;
use crate::credential::minted::{IssuerRequest, Issuers as _};
use crate::limits::BREAKER_PROBE_TIMEOUT;

/// One question. Its answer closes the API's breaker or lengthens its pause.
pub async fn probe(broker: Arc<Broker>, api: Arc<ApiView>) {
    let Some(check) = &api.health_check else { return };
    let method = if *check.method == *"HEAD" { "HEAD" } else { "GET" };
    let request = IssuerRequest { method, path: check.path.to_string(), fields: Vec::new(), body: None };
    let answer = timeout(BREAKER_PROBE_TIMEOUT, broker.dialler.ask(&api, request)).await;
    let works = matches!(answer, Ok(Ok(answer)) if (200..300).contains(&answer.status));
    tracing::info!(api = %api.name, works, "asked the health route");
    broker.breakers.probed(&api.name, works, broker.clock.now().instant);
}
