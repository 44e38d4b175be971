//! The clients: those of the load that drills run too, several on each host.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::join_all;
use parking_lot::Mutex;
use ticketrail_history::Recorder;
use ticketrail_load::{Client, Dial, Load, Mix, Patience, Plan};

use crate::options::Options;
use crate::place::CLIENT_PORT;
use crate::rng::Rng;
use crate::world::World;

/// Hosts that clients run on.
const HOSTS: u32 = 3;

/// Clients at work.
pub struct Clients {
    /// How they are steered, and what they did.
    pub load: Load,
    ended: Arc<AtomicUsize>,
    count: usize,
}

impl Clients {
    /// Lets the clients of a run begin, which record what they ask and are told.
    pub fn start(world: &mut World<'_>, recorder: &Recorder) -> Self {
        let options = world.options.clone();
        let nodes: Vec<String> = world.places.iter().map(|place| format!("{}:{CLIENT_PORT}", place.name)).collect();
        let count = nodes.len();
        let dialers: Vec<_> = (0..HOSTS).map(|host| world.dialer(&host_of(host))).collect();
        let dial: Dial = Arc::new(move |client, node| {
            let dialer = &dialers[(client % HOSTS) as usize];
            dialer.client(&nodes[node])
        });
        let seed = Rng::new(options.seed).fork("load").draw();
        let (load, clients) = Load::new(&plan(&options), count, dial, recorder.clone(), seed);
        let ended = Arc::new(AtomicUsize::new(0));
        let count = clients.len();
        let mut hosts: Vec<Vec<Client>> = (0..HOSTS).map(|_| Vec::new()).collect();
        for client in clients {
            hosts[(client.number % HOSTS) as usize].push(client);
        }
        for (number, clients) in (0..HOSTS).zip(hosts) {
            // A host of clients runs once.
            let (clients, ended) = (Mutex::new(Some(clients)), ended.clone());
            world.add_client(&host_of(number), move || {
                let (clients, ended) = (clients.lock().take().unwrap_or_default(), ended.clone());
                async move {
                    let running = clients.into_iter().map(|client| tokio::spawn(client.run));
                    for over in join_all(running).await {
                        over?;
                        ended.fetch_add(1, Ordering::Relaxed);
                    }
                    Ok(())
                }
            });
        }
        Self { load, ended, count }
    }

    /// Whether all of them have ended.
    pub fn have_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed) == self.count
    }
}

fn host_of(number: u32) -> String {
    format!("clients-{number}")
}

/// Load L1 in little: short leases and pauses, so that little simulated time is needed.
fn plan(options: &Options) -> Plan {
    Plan {
        producers: options.producers,
        workers: options.workers,
        rate: Some(options.rate as f64),
        body: 8..256,
        batch: 2..5,
        delay: Duration::from_millis(200)..Duration::from_secs(2),
        lease: Duration::from_millis(options.lease_ms),
        wait: Duration::from_millis(500),
        work: Duration::ZERO..Duration::from_millis(40),
        look: Duration::from_millis(250),
        backoff: (Duration::from_millis(200), Duration::from_secs(1)),
        // So that messages use their attempts up within seconds.
        max_attempts: 2,
        mix: Mix { retries: 12, ..Mix::default() },
        patience: Patience {
            attempt: Duration::from_millis(1_500),
            whole: Duration::from_secs(8),
            pause: Duration::from_millis(20)..Duration::from_millis(150),
        },
        ..Plan::default()
    }
}
