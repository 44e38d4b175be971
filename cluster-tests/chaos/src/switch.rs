//! The network of a drill: one namespace with a bridge, which is this process's own, and one for each node, linked to it.
//! It has no way out: all its addresses are its own.

use std::net::Ipv4Addr;

use anyhow::{Context as _, ensure};

use crate::program::run;

/// The network; the host part of an address is its last byte.
const NET: [u8; 3] = [10, 83, 0];
/// The bridge.
const BRIDGE: &str = "sw0";
/// The bridge's hardware address. Left to itself a bridge takes the lowest one of its links, and another one with a later
/// link: nodes would go on to answer to the old one, and be heard by nobody for as long as they remember it.
const BRIDGE_MAC: &str = "02:00:0a:53:00:01";
/// Where this process reaches nodes from, where nothing else is said.
const OWN: u8 = 1;
/// The first of the addresses for clients.
const CLIENTS: u8 = 101;
/// How many there are.
pub const CLIENT_ADDRESSES: u8 = 32;

/// An address of the network.
pub const fn address(host: u8) -> Ipv4Addr {
    Ipv4Addr::new(NET[0], NET[1], NET[2], host)
}

/// The address of a node, counted from 0.
pub fn node_address(number: usize) -> Ipv4Addr {
    address(u8::try_from(11 + number).unwrap_or(99))
}

/// The address of a link to a node that goes through a proxy.
pub fn link_address(number: usize) -> Ipv4Addr {
    address(u8::try_from(51 + number).unwrap_or(99))
}

/// One of the addresses that clients can call from, counted from 0; they are used again behind the last one.
pub fn client_address(number: usize) -> Ipv4Addr {
    let offset = u8::try_from(number % usize::from(CLIENT_ADDRESSES)).unwrap_or(0);
    address(CLIENTS + offset)
}

/// The network. The kernel takes it down with the last process in it.
#[derive(Debug)]
pub struct Switch {
    run: String,
}

/// A namespace of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// Its name, as `ip netns` knows it.
    pub name: String,
    /// Its link, as the switch names it.
    pub link: String,
    /// Its address.
    pub address: Ipv4Addr,
}

impl Switch {
    /// Makes the bridge, with addresses for clients and for links. Everything but this process's own namespaces stays
    /// as it is.
    ///
    /// # Errors
    /// Where this process is not in namespaces of its own.
    pub fn make(run_id: &str) -> anyhow::Result<Self> {
        let links = run(&["ip", "-o", "link", "show", "up"])?;
        ensure!(
            links.trim().is_empty() && std::process::id() == 1,
            "expected a network of its own without any link up, but there is:\n{links}"
        );
        // Names of namespaces are files: these are nobody else's.
        std::fs::create_dir_all("/run/netns").context("make /run/netns")?;
        run(&["mount", "-t", "tmpfs", "-o", "size=64k,mode=755", "tmpfs", "/run/netns"])?;
        run(&["ip", "link", "set", "lo", "up"])?;
        run(&["ip", "link", "add", BRIDGE, "address", BRIDGE_MAC, "type", "bridge"])?;
        let clients = (0..usize::from(CLIENT_ADDRESSES)).map(client_address);
        let links = (0..9).map(link_address);
        for own in [address(OWN)].into_iter().chain(clients).chain(links) {
            run(&["ip", "addr", "add", &format!("{own}/24"), "dev", BRIDGE])?;
        }
        run(&["ip", "link", "set", BRIDGE, "up"])?;
        Ok(Self { run: run_id.to_owned() })
    }

    /// Makes the namespace of a node, and its link.
    ///
    /// # Errors
    /// Where there is one of this name.
    pub fn host(&self, number: usize, node: &str) -> anyhow::Result<Host> {
        let host = Host {
            name: format!("tr{}-{node}", self.run),
            link: format!("tr{}{node}", self.run),
            address: node_address(number),
        };
        run(&["ip", "netns", "add", &host.name])?;
        run(&["ip", "link", "add", &host.link, "type", "veth", "peer", "name", "eth0", "netns", &host.name])?;
        run(&["ip", "link", "set", &host.link, "master", BRIDGE, "up"])?;
        let inside = |words: &[&str]| run(&[&["ip", "-n", &host.name], words].concat());
        inside(&["link", "set", "lo", "up"])?;
        inside(&["addr", "add", &format!("{}/24", host.address), "dev", "eth0"])?;
        inside(&["link", "set", "eth0", "up"])?;
        Ok(host)
    }

    /// Takes the link of a node down or up.
    ///
    /// # Errors
    /// Where it is not there.
    pub fn set_link(&self, host: &Host, up: bool) -> anyhow::Result<()> {
        run(&["ip", "link", "set", &host.link, if up { "up" } else { "down" }])?;
        Ok(())
    }

    /// Limits the speed of a node's link, both ways, to `kbit` a second; `None`: no limit.
    ///
    /// # Errors
    /// Where tc does not take it.
    pub fn limit(&self, host: &Host, kbit: Option<u32>) -> anyhow::Result<()> {
        let rate = kbit.map(|kbit| format!("{kbit}kbit"));
        let own = ["tc"].map(str::to_owned).to_vec();
        let theirs: Vec<String> = host.through().into_iter().chain(["tc".to_owned()]).collect();
        for (tc, device) in [(own, host.link.as_str()), (theirs, "eth0")] {
            let tc = tc.iter().map(String::as_str);
            let words: Vec<&str> = match &rate {
                Some(rate) => {
                    let rule = ["root", "tbf", "rate", rate, "burst", "16kb", "limit", "256kb"];
                    tc.chain(["qdisc", "replace", "dev", device]).chain(rule).collect()
                }
                None => tc.chain(["qdisc", "del", "dev", device, "root"]).collect(),
            };
            run(&words)?;
        }
        Ok(())
    }
}

impl Host {
    /// What starts a program in this namespace, and becomes it.
    pub fn through(&self) -> Vec<String> {
        ["nsenter", &format!("--net=/run/netns/{}", self.name), "--"].map(str::to_owned).to_vec()
    }
}
