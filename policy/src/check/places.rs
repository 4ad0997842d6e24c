//! Hosts and ports as guests ask for them, with the APIs and deny rules that answer there; and exact questions to the rules of
//! one of them.

use std::collections::BTreeSet;

use crate::Host;
use crate::automata::{self, Answer, Rule, Witness};
use crate::compiled::trie::Relation;
use crate::compiled::{Compiled, Grant, Route, Site};
use crate::diagnostic::{Diagnostic, Place};
use crate::route::method;

/// Every site of a policy under its name.
pub(super) struct Places<'p> {
    pub(super) compiled: &'p Compiled,
    /// By the index of the site.
    names: Vec<Option<(&'p Host, u16)>>,
    /// By the index of the API: the sites where its rules allow something.
    of_api: Vec<Vec<usize>>,
}

impl<'p> Places<'p> {
    pub(super) fn new(compiled: &'p Compiled) -> Self {
        let mut names = vec![None; compiled.sites.len()];
        for (host, ports) in &compiled.hosts {
            for (port, site) in ports {
                if let Some(name) = names.get_mut(*site) {
                    *name = Some((host, *port));
                }
            }
        }
        let mut of_api = vec![Vec::new(); compiled.apis.len()];
        for (index, site) in compiled.sites.iter().enumerate() {
            for api in &site.allowing {
                if let Some(sites) = of_api.get_mut(*api) {
                    sites.push(index);
                }
            }
        }
        Self { compiled, names, of_api }
    }

    /// Sites where rules of both APIs allow something.
    pub(super) fn shared(&self, one: usize, other: usize) -> impl Iterator<Item = usize> {
        let of = |api: usize| self.of_api.get(api).map(Vec::as_slice).unwrap_or_default();
        let others = of(other);
        of(one).iter().copied().filter(|site| others.contains(site))
    }

    /// APIs that answer at a site where this one does, itself included.
    pub(super) fn neighbours(&self, api: usize) -> BTreeSet<usize> {
        let sites = self.of_api.get(api).into_iter().flatten();
        let sites = sites.filter_map(|site| self.compiled.sites.get(*site));
        sites.flat_map(|site| site.allowing.iter().copied()).collect()
    }

    /// The request with the name of the site, for people.
    fn written(&self, site: usize, request: &Witness) -> Option<String> {
        let (host, port) = (*self.names.get(site)?)?;
        if request.method == method::CONNECTION {
            let traffic = self.compiled.traffic(self.compiled.sites.get(site)?);
            return Some(format!("{} {}", request.method, traffic.url(host, port)));
        }
        let websocket = if request.websocket { " (websocket)" } else { "" };
        Some(format!("{} {}{}{websocket}", request.method, crate::origin::url(host, port), request.target))
    }

    /// Where an API's rules allow something, first of all.
    pub(super) fn first(&self, api: usize) -> Option<usize> {
        self.of_api.get(api)?.first().copied()
    }

    /// Puts a request into a problem.
    pub(super) fn show(&self, problem: Diagnostic, site: Option<usize>, answer: Answer) -> Diagnostic {
        let request = answer.witness().zip(site).and_then(|(request, site)| self.written(site, &request));
        match request {
            Some(request) => problem.request(request),
            None => problem,
        }
    }

    /// A request at this site that both rules match and that no deny rule of the grants refuses, whatever its headers and
    /// body; `None` where there is none.
    pub(super) fn both(&self, site: usize, grants: &[&Grant], one: &Route, other: &Route) -> Option<Answer> {
        let denies = self.denies(site, grants, one);
        let mut rules = vec![allow(one), allow(other)];
        rules.extend(denies.iter().map(|deny| Rule::deny(&deny.line)));
        match automata::search(
            &rules,
            0,
            |hits| matches!(hits, [true, true, denied @ ..] if !denied.contains(&true)),
        ) {
            Answer::None => None,
            answer => Some(answer),
        }
    }

    /// Deny rules without conditions that hold at a site and may meet a route.
    pub(super) fn denies(&self, site: usize, grants: &[&'p Grant], route: &Route) -> Vec<&'p Route> {
        let mut found = Vec::new();
        let site = self.compiled.sites.get(site);
        for api in site.into_iter().flat_map(|site: &Site| &site.denying) {
            for rules in grants.iter().filter_map(|grant| grant.rules_of(*api)) {
                rules.deny.related(&route.line, Relation::Meets, |deny| {
                    if !narrows(deny) {
                        found.push(deny);
                    }
                    false
                });
            }
        }
        found
    }

    pub(super) fn of(&self, api: usize) -> &[usize] {
        self.of_api.get(api).map(Vec::as_slice).unwrap_or_default()
    }
}

pub(super) fn allow(route: &Route) -> Rule<'_> {
    Rule::allow(&route.line, route.websocket)
}

/// Whether a rule is about some of the requests of its route only.
pub(super) fn narrows(route: &Route) -> bool {
    route.terms.as_ref().is_some_and(|terms| terms.narrows())
}

/// A problem with the rules that it is about.
pub(super) fn beside<'a>(
    problem: Diagnostic,
    places: impl IntoIterator<Item = &'a Place>,
    message: &str,
) -> Diagnostic {
    places.into_iter().fold(problem, |problem, place| problem.related(place.clone(), message))
}
