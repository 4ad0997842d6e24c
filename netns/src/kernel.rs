//! The operations that a plan needs, and a recording fake for tests. `linux.rs` is the real one.

use std::io;

use crate::plan::{Door, DoorKind, Families, Place, Redirect, Route, Step, Subnet, VethPair};

/// What carries out steps. Each call works in the namespace that was entered last.
pub trait Kernel {
    type Socket;

    fn enter(&mut self, place: Place) -> io::Result<()>;
    /// Sets a key below `/proc/sys` and returns the value before.
    fn set_sysctl(&mut self, key: &str, value: &str) -> io::Result<String>;
    fn set_link_up(&mut self, link: &str, up: bool) -> io::Result<()>;
    /// Makes the pair: the gate's end here, the other one in the guest namespace.
    fn add_veth(&mut self, pair: &VethPair) -> io::Result<()>;
    /// Makes a tap here. The link lives as long as the descriptor.
    fn add_tap(&mut self, link: &str) -> io::Result<Self::Socket>;
    fn remove_link(&mut self, link: &str) -> io::Result<()>;
    fn add_address(&mut self, link: &str, subnet: Subnet) -> io::Result<()>;
    fn remove_address(&mut self, link: &str, subnet: Subnet) -> io::Result<()>;
    fn add_route(&mut self, route: &Route) -> io::Result<()>;
    fn remove_route(&mut self, route: &Route) -> io::Result<()>;
    fn open_door(&mut self, door: Door) -> io::Result<Self::Socket>;
    fn add_redirect(&mut self, redirect: &Redirect) -> io::Result<()>;
    fn remove_redirect(&mut self) -> io::Result<()>;
}

/// Carries out nothing and remembers everything; fails where it is told to.
#[derive(Debug, Default)]
pub struct Recorder {
    /// One line per call, as `PLACE: WORDS`.
    pub calls: Vec<String>,
    pub failure: Option<RecorderFailure>,
    place: Option<Place>,
}

/// Fails the calls whose line contains `text`.
#[derive(Debug, Clone)]
pub struct RecorderFailure {
    pub text: String,
    pub kind: io::ErrorKind,
}

impl Recorder {
    /// One that fails the calls whose line contains `text`.
    pub fn failing(text: &str, kind: io::ErrorKind) -> Self {
        Self { failure: Some(RecorderFailure { text: text.to_owned(), kind }), ..Self::default() }
    }

    fn call(&mut self, words: String) -> io::Result<()> {
        let line = match self.place {
            Some(place) => format!("{place}: {words}"),
            None => words,
        };
        let fails = self.failure.as_ref().filter(|failure| line.contains(&failure.text));
        let answer = fails.map_or(Ok(()), |failure| Err(failure.kind.into()));
        self.calls.push(line);
        answer
    }
}

impl Kernel for Recorder {
    type Socket = Door;

    fn enter(&mut self, place: Place) -> io::Result<()> {
        self.place = Some(place);
        Ok(())
    }

    fn set_sysctl(&mut self, key: &str, value: &str) -> io::Result<String> {
        self.call(format!("set `{key}` to {value}"))?;
        Ok("before".to_owned())
    }

    fn set_link_up(&mut self, link: &str, up: bool) -> io::Result<()> {
        self.call(format!("bring {} `{link}`", if up { "up" } else { "down" }))
    }

    fn add_veth(&mut self, pair: &VethPair) -> io::Result<()> {
        self.call(Step::Veth(pair.clone()).to_string())
    }

    fn add_tap(&mut self, link: &str) -> io::Result<Door> {
        self.call(Step::Tap { link: link.to_owned() }.to_string())?;
        // The recorder has no descriptors; a door of nothing stands for the tap.
        Ok(Door { kind: DoorKind::Tcp { port: 0 }, families: Families::V4 })
    }

    fn remove_link(&mut self, link: &str) -> io::Result<()> {
        self.call(format!("remove link `{link}`"))
    }

    fn add_address(&mut self, link: &str, subnet: Subnet) -> io::Result<()> {
        self.call(Step::Address { link: link.to_owned(), subnet }.to_string())
    }

    fn remove_address(&mut self, link: &str, subnet: Subnet) -> io::Result<()> {
        self.call(format!("take {}/{} from `{link}`", subnet.address, subnet.prefix))
    }

    fn add_route(&mut self, route: &Route) -> io::Result<()> {
        self.call(Step::Route(route.clone()).to_string())
    }

    fn remove_route(&mut self, route: &Route) -> io::Result<()> {
        self.call(format!("undo: {}", Step::Route(route.clone())))
    }

    fn open_door(&mut self, door: Door) -> io::Result<Door> {
        self.call(Step::OpenDoor(door).to_string())?;
        Ok(door)
    }

    fn add_redirect(&mut self, redirect: &Redirect) -> io::Result<()> {
        self.call(Step::Redirect(redirect.clone()).to_string())
    }

    fn remove_redirect(&mut self) -> io::Result<()> {
        self.call("remove the redirect".to_owned())
    }
}
