//! Nothing comes from nowhere and nothing goes: enqueued + moved_in = ready + delayed + leased + acked + moved_out +
//! purged.

use super::Image;

pub(super) fn check(image: &Image) -> Result<(), String> {
    for (id, q) in &image.queues {
        let came = u128::from(q.enqueued) + u128::from(q.moved_in);
        let here = [q.ready, q.delayed, q.leased].into_iter().map(u128::from).sum::<u128>();
        let gone = [q.acked, q.moved_out, q.purged].into_iter().map(u128::from).sum::<u128>();
        if came != here + gone {
            return Err(format!("queue {id}: {came} came, but {here} are here and {gone} are gone: {q:?}"));
        }
    }
    Ok(())
}
