//! Grants: what named grants open, for a caller that has them.

use freeboard_policy::Tier;
use freeboard_wire::ConnectError;
use freeboard_wire::check::grants as checked;
use freeboard_wire::runs::{ApiSurface, GrantSurface, GrantsRequest, GrantsResponse};

use super::{decode, invalid};
use crate::api::refuse;
use crate::api::route::Context;
use crate::launch::{Refusal, RunError};

pub(super) async fn grants(context: &Context<'_>, body: &[u8]) -> Result<GrantsResponse, ConnectError> {
    let request: GrantsRequest = decode(body)?;
    if request.grants.is_empty() {
        return Err(invalid("`grants` is empty; name the grants"));
    }
    let names = checked(&request.grants.join(",")).map_err(|error| refuse::invalid(&error))?;
    let refused = |refusal: Refusal| refuse::run_error("", &RunError::Refused(refusal));
    // An anonymous caller has no grant; it learns nothing else.
    let caller = context.caller.as_deref().ok_or_else(|| refused(Refusal::Grant))?;
    let mut answer = GrantsResponse::default();
    for grant in names {
        let asked = std::slice::from_ref(&grant);
        let prepared = context.app.launcher.prepared(Some(caller), asked).await.map_err(refused)?;
        let apis = prepared.surface.into_iter();
        let apis = apis.map(|api| ApiSurface { api: api.api, base_url: api.base_url, routes: api.routes });
        let floor = prepared.floor.map_or("", Tier::word).to_owned();
        answer.grants.push(GrantSurface { grant, floor, apis: apis.collect() });
    }
    Ok(answer)
}
