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
    auto_ack_takes_for_good
    backoff_doubles
    batch_is_one_entry
    bounds_bytes
    bounds_depth
    cancel_takes_away
    clock_new_term
    clock_steps
    close_refuses_enqueues
    commit_falls_whole
    commit_happens_whole
    commit_is_done_once
    commit_parts_in_order
    commit_takes_the_place_it_frees
    create_and_update
    dead_letters_move_always
    dead_letters_stay
    dedup_ids_are_freed
    dedup_ids_are_remembered
    dedup_window_ends
    delay_is_never_early
    delete_voids_leases
    exhausted_messages_are_dropped
    expired_become_dead_letters
    expired_messages_and_leases
    extend_up_to_twelve_hours
    failure_window_tumbles
    first_enqueue_makes_the_queue
    group_failure_blocks
    group_failure_continues
    group_failure_takes_the_group
    group_head_parks_its_group
    groups_go_in_line
    history_keeps_sixteen
    leases_expire
    lost_leases
    malformed_keys
    malformed_requests
    max_wait_by_expected_rate
    max_wait_by_measured_rate
    nack_delay
    nack_permanent
    namespaces_have_defaults
    no_secret_no_service
    order_of_delivery
    outcomes_are_retained
    parts_stand_alone
    pause_stops_delivery
    peek_and_get
    peek_filters
    plain_life
    priorities_come_first
    purge_empties_lines
    purge_lets_leases_finish
    receive_limits
    refused_enqueues_make_no_queue
    release_counts_nothing
    requests_are_done_once
    requests_without_a_session
    reschedule_moves_the_time
    retry_after_by_rate
    retry_policy_of_its_own
    session_window
    sessions_end
    settings_of_the_whole_queue
    several_queues_in_order
    shed_by_value
    ttl_ends_messages
}
