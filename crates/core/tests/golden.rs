//! Golden scripts: one behaviour each, reading like a transcript. `UPDATE_GOLDENFILES=1` writes the answers anew; read
//! them before committing. The naive model explains every reply here too, and each log is replayed at its end.

mod harness;
mod model;
mod transcript;

use transcript::Clerk;

macro_rules! scripts {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() -> std::io::Result<()> {
                goldenscript::run(&mut Clerk::default(), concat!("tests/golden/", stringify!($name)))
            }
        )*

        /// A script that no test runs would be a lie.
        #[test]
        fn every_script_is_run() -> std::io::Result<()> {
            let mut found = Vec::new();
            for entry in std::fs::read_dir("tests/golden")? {
                found.push(entry?.file_name().to_string_lossy().into_owned());
            }
            found.sort();
            let mut run = vec![$(stringify!($name).to_owned()),*];
            run.sort();
            assert_eq!(found, run);
            Ok(())
        }
    };
}

scripts! {
    attempts_used_up
    backoff_doubles
    batch_is_one_entry
    bounds_bytes
    bounds_depth
    clock_new_term
    clock_steps
    close_refuses_enqueues
    commit_falls_whole
    commit_happens_whole
    commit_is_done_once
    commit_takes_the_place_it_frees
    create_and_update
    dead_letters_move_always
    dead_letters_stay
    delay_is_never_early
    delete_voids_leases
    extend_up_to_twelve_hours
    failure_window_tumbles
    first_enqueue_makes_the_queue
    history_keeps_sixteen
    leases_expire
    lost_leases
    malformed_requests
    nack_delay
    nack_permanent
    no_secret_no_service
    order_of_delivery
    parts_stand_alone
    pause_stops_delivery
    peek_and_get
    plain_life
    purge_lets_leases_finish
    receive_limits
    release_counts_nothing
    requests_are_done_once
    session_window
    sessions_end
}
