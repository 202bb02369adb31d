//! Backends that are not written but found: behind a name, one at each address.
//!
//! Decides which backends a configuration stands for, given what was found. A
//! backend that is found bears the name of its source and a number, which it
//! keeps while its address is there: names are labels of metrics, and those are
//! kept for ever. Never looks anything up. Invariant: in a configuration that is
//! [expanded](Config::expanded) names and addresses are unique.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use http::Uri;
use http::uri::Scheme;

use super::backend::Backend;
use super::resolved::{Config, Model};

/// How many engines are behind a backend's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discover {
    /// One.
    Off,
    /// One at each address that its host has in DNS.
    Dns {
        /// From one look to the next.
        every: Duration,
    },
}

/// A name that is looked up, in lower case, and the port of the engines behind it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostPort {
    /// The host.
    pub host: String,
    /// The port.
    pub port: u16,
}

/// What was found behind names; what was never found has no addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found(BTreeMap<HostPort, BTreeMap<IpAddr, u32>>);

// === impl Discover ===

impl Discover {
    /// Usual time from one look to the next.
    pub const EVERY: Duration = Duration::from_secs(10);
}

// === impl Found ===

impl Found {
    /// The addresses behind `name`.
    pub fn behind(&self, name: &HostPort) -> impl Iterator<Item = IpAddr> + '_ {
        self.0
            .get(name)
            .into_iter()
            .flat_map(BTreeMap::keys)
            .copied()
    }

    /// Takes what is behind `name` now; says whether that is news. An address
    /// that stays keeps its number; a new one gets the lowest that no other has
    /// and that `is_free`.
    pub fn take(
        &mut self,
        name: &HostPort,
        addresses: &BTreeSet<IpAddr>,
        is_free: impl Fn(u32) -> bool,
    ) -> bool {
        let known = self.0.entry(name.clone()).or_default();
        if known.keys().eq(addresses) {
            return false;
        }
        known.retain(|address, _| addresses.contains(address));
        for address in addresses {
            let taken: BTreeSet<u32> = known.values().copied().collect();
            let mut numbers = (0..).filter(|number| !taken.contains(number) && is_free(*number));
            let number = numbers
                .next()
                .expect("there are more numbers than addresses");
            known.entry(*address).or_insert(number);
        }
        true
    }

    fn numbered(&self, backend: &Backend) -> impl Iterator<Item = (IpAddr, u32)> + '_ {
        let found = self.0.get(&backend.host_port()).into_iter().flatten();
        found.map(|(address, number)| (*address, *number))
    }
}

// === impl Backend ===

impl Backend {
    /// Where it is reached, the port told in any case.
    pub fn host_port(&self) -> HostPort {
        let default = if self.url.scheme() == Some(&Scheme::HTTPS) {
            443
        } else {
            80
        };
        HostPort {
            host: self.url.host().unwrap_or_default().to_ascii_lowercase(),
            port: self.url.port_u16().unwrap_or(default),
        }
    }

    /// Name of the backend with this number, of those that are found.
    pub fn numbered_name(&self, number: u32) -> String {
        format!("{}-{number}", self.name)
    }

    /// The backend at one of the addresses that were found.
    fn found_at(&self, (address, number): (IpAddr, u32)) -> Self {
        let scheme = self.url.scheme_str().unwrap_or("http");
        let address = SocketAddr::new(address, self.host_port().port);
        let url = format!("{scheme}://{address}").parse::<Uri>();
        Self {
            name: self.numbered_name(number),
            url: url.expect("an address and its port make a URL"),
            discover: Discover::Off,
            ..self.clone()
        }
    }
}

// === impl Model ===

impl Model {
    /// The path of a backend by its place: that of `own`, the model's, or that in
    /// the file it is listed in.
    pub(super) fn place_of(&self, place: usize, own: &str) -> String {
        match &self.backends_file {
            Some(file) if place >= file.first => {
                let place = place - file.first;
                format!("{}: backends[{place}]", file.path.display())
            }
            _ => format!("{own}.backends[{place}]"),
        }
    }
}

// === impl Config ===

impl Config {
    /// The backends that stand for as many as are found, with their models.
    pub fn discovered(&self) -> impl Iterator<Item = (&Model, &Backend, Duration)> {
        let all = self
            .models
            .iter()
            .flat_map(|model| model.backends.iter().map(move |backend| (model, backend)));
        all.filter_map(|(model, backend)| match backend.discover {
            Discover::Off => None,
            Discover::Dns { every } => Some((model, backend, every)),
        })
    }

    /// The configuration with what was `found` in the place of names. Addresses
    /// and names that are there already are left out: what is written comes first.
    #[must_use]
    pub fn expanded(&self, found: &Found) -> Self {
        let mut config = self.clone();
        let written = self.models.iter().flat_map(|model| &model.backends);
        let written = written.filter(|backend| backend.discover == Discover::Off);
        let mut seen: HashSet<_> = written
            .flat_map(|backend| [backend.host_port().to_string(), backend.name.clone()])
            .collect();
        for model in &mut config.models {
            let mut backends = Vec::new();
            for backend in &model.backends {
                if backend.discover == Discover::Off {
                    backends.push(backend.clone());
                    continue;
                }
                let found = found.numbered(backend).map(|found| backend.found_at(found));
                let news = found.filter(|found| {
                    seen.insert(found.host_port().to_string()) && seen.insert(found.name.clone())
                });
                backends.extend(news);
            }
            model.backends = backends;
        }
        config
    }
}

impl std::fmt::Display for HostPort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::load;

    fn config(lines: &str) -> Config {
        let text = format!("[[models]]\nname = \"m\"\n{lines}");
        load(&text).unwrap_or_else(|problems| panic!("{problems}"))
    }

    fn addresses(last: &[u8]) -> BTreeSet<IpAddr> {
        last.iter().map(|n| IpAddr::from([10, 0, 0, *n])).collect()
    }

    fn backends(config: &Config, found: &Found) -> Vec<(String, String)> {
        let expanded = config.expanded(found);
        let backends = expanded.models[0].backends.iter();
        backends
            .map(|backend| (backend.name.clone(), backend.url.to_string()))
            .collect()
    }

    fn pair(name: &str, url: &str) -> (String, String) {
        (name.to_owned(), url.to_owned())
    }

    #[test]
    fn each_address_behind_a_name_is_a_backend_like_the_one_that_is_written() {
        let config = config(
            "[[models.backends]]\nname = \"v\"\nurl = \"https://vllm.Example\"\n\
             discover = \"dns\"\ntier = \"large\"\nkv_tokens = 4096\n",
        );
        let name = config.models[0].backends[0].host_port();
        assert_eq!(name.to_string(), "vllm.example:443");
        let mut found = Found::default();
        assert_eq!(backends(&config, &found), []);
        assert!(found.take(&name, &addresses(&[7, 9]), |_| true));
        let expected = [
            pair("v-0", "https://10.0.0.7:443/"),
            pair("v-1", "https://10.0.0.9:443/"),
        ];
        assert_eq!(backends(&config, &found), expected);
        let expanded = config.expanded(&found);
        let one = &expanded.models[0].backends[0];
        assert_eq!(one.tier.name(), "large");
        assert_eq!(one.discover, Discover::Off);
        // The certificate must still bear the name.
        let tls = one.tls.as_ref().map(|tls| tls.server_name.to_str());
        assert_eq!(tls.as_deref(), Some("vllm.Example"));
    }

    #[test]
    fn an_address_keeps_its_number_and_a_new_one_gets_the_lowest_that_is_free() {
        let config = config("[[models.backends]]\nurl = \"http://v:8000\"\ndiscover = \"dns\"\n");
        let name = config.models[0].backends[0].host_port();
        let mut found = Found::default();
        assert!(found.take(&name, &addresses(&[1, 2, 3]), |_| true));
        assert!(!found.take(&name, &addresses(&[1, 2, 3]), |_| true));
        // 1 goes; while its stream drains its number is not given away.
        assert!(found.take(&name, &addresses(&[2, 3, 4]), |number| number != 0));
        assert!(found.take(&name, &addresses(&[2, 3, 4, 5]), |_| true));
        let expected = [
            pair("v:8000-1", "http://10.0.0.2:8000/"),
            pair("v:8000-2", "http://10.0.0.3:8000/"),
            pair("v:8000-3", "http://10.0.0.4:8000/"),
            pair("v:8000-0", "http://10.0.0.5:8000/"),
        ];
        assert_eq!(backends(&config, &found), expected);
    }

    #[test]
    fn what_is_written_comes_before_what_is_found() {
        let config = config(
            "[[models.backends]]\nname = \"own\"\nurl = \"http://10.0.0.1:8000\"\n\
             [[models.backends]]\nname = \"v-1\"\nurl = \"http://10.0.0.8:8000\"\n\
             [[models.backends]]\nname = \"v\"\nurl = \"http://v:8000\"\ndiscover = \"dns\"\n",
        );
        let name = config.models[0].backends[2].host_port();
        let mut found = Found::default();
        assert!(found.take(&name, &addresses(&[1, 2, 3]), |_| true));
        let expected = [
            pair("own", "http://10.0.0.1:8000/"),
            pair("v-1", "http://10.0.0.8:8000/"),
            pair("v-2", "http://10.0.0.3:8000/"),
        ];
        assert_eq!(backends(&config, &found), expected);
    }
}
