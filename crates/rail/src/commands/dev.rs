//! `rail dev`: one node for trying things out.

use clap::Args;
use ticketrail_server::{Config, Mode};

use super::serve::{self, Flags};
use crate::exit::{Exit, Failure};
use crate::output;

#[derive(Debug, Args)]
pub(crate) struct DevArgs {
    #[command(flatten)]
    flags: Flags,
}

pub(crate) fn run(args: DevArgs) -> Result<Exit, Failure> {
    let config = Config::load(Mode::Dev, None, args.flags.into())
        .map_err(|error| Failure::usage(error.to_string(), "see `rail dev --help`"))?;
    ticketrail_server::init(&config)?;
    output::say(hints(&config));
    serve::serve(config, ticketrail_server::stop_signal())
}

/// What to try next. Addresses other than the default are named to the client.
fn hints(config: &Config) -> String {
    let address = config.listen;
    let export = match address.port() {
        50_000 if address.ip().is_loopback() => String::new(),
        0 => "\n  (the port is in the line \"serving\" below; export TICKETRAIL_ADDR=http://127.0.0.1:PORT)".to_owned(),
        _ => format!("\n  export TICKETRAIL_ADDR=http://{address}"),
    };
    format!(
        "\nTicketrail for development: one node, gRPC on {address}, HTTP on {}, data in {}. Not for production.\n\
         Try, in another terminal:{export}\n\
         \x20 rail msg send orders '{{\"table\": 7}}'\n\
         \x20 rail queue ls\n\
         \x20 rail msg receive orders\n\
         \x20 rail msg ack TOKEN\n\
         Ctrl-C stops it; the data stays.\n",
        config.http_listen,
        config.data_dir.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hints_name_an_address_that_clients_do_not_know() {
        let mut config = Config::defaults(Mode::Dev);
        let text = hints(&config);
        assert!(text.contains("rail msg send orders") && !text.contains("TICKETRAIL_ADDR"), "{text}");
        config.listen.set_port(7_000);
        assert!(hints(&config).contains("export TICKETRAIL_ADDR=http://127.0.0.1:7000"));
    }
}
