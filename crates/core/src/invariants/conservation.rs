//! Nothing comes from nowhere and nothing goes: enqueued + moved_in = ready + delayed + blocked + leased + acked +
//! moved_out + expired_dropped + cancelled + purged + dropped.

use super::Image;

pub(super) fn check(image: &Image) -> Result<(), String> {
    for (id, q) in &image.queues {
        let came = u128::from(q.enqueued) + u128::from(q.moved_in);
        let here = [q.ready, q.delayed, q.blocked, q.leased].into_iter().map(u128::from).sum::<u128>();
        let gone = [q.acked, q.moved_out, q.expired_dropped, q.cancelled, q.purged, q.dropped];
        let gone = gone.into_iter().map(u128::from).sum::<u128>();
        if came != here + gone {
            return Err(format!("queue {id}: {came} came, but {here} are here and {gone} are gone: {q:?}"));
        }
    }
    Ok(())
}
