//! The form in which a policy answers: built once when it is loaded, walked for each request without allocating.

pub(crate) mod table;
pub(crate) mod trie;

use std::collections::HashMap;
use std::sync::Arc;

use crate::condition::Terms;
use crate::diagnostic::Place;
use crate::draft::{Draft, DraftGrant, Effect};
use crate::model::{ApiView, CredentialView, GrantView};
use crate::origin::Origin;
use crate::route::RouteLine;
use crate::{Reason, RuleId, Traffic};
use trie::{Letters, Trie};

/// Everything of a policy that decisions look at.
#[derive(Debug, Default)]
pub(crate) struct Compiled {
    pub(crate) apis: Vec<Api>,
    pub(crate) grants: Vec<Grant>,
    pub(crate) sites: Vec<Site>,
    /// Host name as asked for → (port, index of the site), sorted by port.
    pub(crate) hosts: HashMap<crate::Host, Vec<(u16, usize)>>,
    pub(crate) api_names: HashMap<Arc<str>, usize>,
    pub(crate) grant_names: HashMap<Arc<str>, usize>,
    pub(crate) credentials: HashMap<Arc<str>, CredentialView>,
}

#[derive(Debug)]
pub(crate) struct Api {
    pub(crate) view: ApiView,
    pub(crate) origins: Vec<Origin>,
}

/// A host and port that a guest may ask for.
#[derive(Debug)]
pub(crate) struct Site {
    /// Where requests to it go.
    pub(crate) origin: Origin,
    /// APIs that answer under this name, by index.
    pub(crate) allowing: Vec<usize>,
    /// APIs with the same origin under whatever name: their deny rules hold here.
    pub(crate) denying: Vec<usize>,
}

#[derive(Debug)]
pub(crate) struct Grant {
    pub(crate) view: GrantView,
    pub(crate) callers: Vec<Arc<str>>,
    /// Sorted by API index.
    pub(crate) rules: Vec<ApiRules>,
}

/// The rules of one grant for one API.
#[derive(Debug)]
pub(crate) struct ApiRules {
    pub(crate) api: usize,
    pub(crate) allow: Trie,
    pub(crate) deny: Trie,
}

/// One route with its place in the policy; the leaf of a trie.
#[derive(Debug)]
pub(crate) struct Route {
    pub(crate) id: RuleId,
    pub(crate) line: RouteLine,
    pub(crate) websocket: bool,
    pub(crate) terms: Option<Arc<Terms>>,
    pub(crate) place: Place,
}

impl Grant {
    pub(crate) fn rules_of(&self, api: usize) -> Option<&ApiRules> {
        let at = self.rules.binary_search_by_key(&api, |rules| rules.api).ok()?;
        self.rules.get(at)
    }

    /// Whether a rule stands in the grant itself, not in one that it extends.
    pub(crate) fn wrote(&self, route: &Route) -> bool {
        let rest = route.id.0.strip_prefix(&*self.view.name);
        rest.is_some_and(|rest| rest.starts_with(".allow[") || rest.starts_with(".deny["))
    }

    /// Why the grant does not work now.
    pub(crate) fn closed(&self, now_unix: i64) -> Option<Reason> {
        if self.view.schedule.is_empty() || self.view.schedule.iter().any(|window| window.is_open(now_unix)) {
            return self.unavailable(now_unix);
        }
        self.unavailable(now_unix).or(Some(Reason::GrantOutsideSchedule))
    }

    /// Why no run can be given the grant now. A run that starts outside of the grant's times may last into them.
    pub(crate) fn unavailable(&self, now_unix: i64) -> Option<Reason> {
        if self.view.expires_unix.is_some_and(|end| now_unix >= end) {
            return Some(Reason::GrantExpired);
        }
        let early = self.view.not_before_unix.is_some_and(|start| now_unix < start);
        early.then_some(Reason::GrantNotYetValid)
    }
}

impl Compiled {
    /// Compiles a draft without errors; definitions are sorted by name.
    pub(crate) fn new(draft: Draft) -> Self {
        let mut compiled = Self::default();
        for api in draft.apis {
            compiled.api_names.insert(Arc::clone(&api.name.value), compiled.apis.len());
            let origins = api.origins.into_iter().map(|origin| origin.value).collect();
            compiled.apis.push(Api { view: api.view, origins });
        }
        for credential in draft.credentials {
            compiled.credentials.insert(credential.name.value, credential.view);
        }
        for grant in draft.grants {
            compiled.grant_names.insert(Arc::clone(&grant.name.value), compiled.grants.len());
            let grant = compiled.grant(grant);
            compiled.grants.push(grant);
        }
        compiled.add_sites();
        compiled
    }

    /// What a site carries: the same for all of its APIs (checked at load).
    pub(crate) fn traffic(&self, site: &Site) -> Traffic {
        let mut apis = site.denying.iter().filter_map(|api| self.apis.get(*api));
        apis.next().map(|api| api.view.traffic).unwrap_or_default()
    }

    fn grant(&self, draft: DraftGrant) -> Grant {
        let mut rules: Vec<ApiRules> = Vec::new();
        for rule in draft.rules {
            let Some(&api) = self.api_names.get(&rule.api.value) else { continue };
            let at = match rules.binary_search_by_key(&api, |rules| rules.api) {
                Ok(at) => at,
                Err(at) => {
                    let empty =
                        ApiRules { api, allow: Trie::new(Letters::Exact), deny: Trie::new(Letters::Folded) };
                    rules.insert(at, empty);
                    at
                }
            };
            let Some(entry) = rules.get_mut(at) else { continue };
            let trie = match rule.effect {
                Effect::Allow => &mut entry.allow,
                Effect::Deny => &mut entry.deny,
            };
            for route in rule.routes {
                trie.add(Route {
                    id: route.id,
                    line: route.line,
                    websocket: rule.websocket,
                    terms: rule.terms.clone(),
                    place: route.place,
                });
            }
        }
        Grant { view: draft.view, callers: draft.callers, rules }
    }

    fn add_sites(&mut self) {
        let mut sites: HashMap<(crate::Host, u16), Site> = HashMap::new();
        for (index, api) in self.apis.iter().enumerate() {
            for origin in &api.origins {
                let named = (!api.view.hidden).then_some(&origin.host);
                for host in named.into_iter().chain(&api.view.alias) {
                    let site = sites.entry((host.clone(), origin.port)).or_insert_with(|| Site {
                        origin: origin.clone(),
                        allowing: Vec::new(),
                        denying: Vec::new(),
                    });
                    site.allowing.push(index);
                }
            }
        }
        let mut sites: Vec<_> = sites.into_iter().collect();
        sites.sort_by(|(a, _), (b, _)| a.cmp(b));
        for ((host, port), mut site) in sites {
            let shares = self.apis.iter().enumerate().filter(|(_, api)| api.origins.contains(&site.origin));
            site.denying = shares.map(|(index, _)| index).collect();
            self.hosts.entry(host).or_default().push((port, self.sites.len()));
            self.sites.push(site);
        }
    }
}
