//! How large a test is: small in the gate, as large as its variable says by hand.

use std::str::FromStr;

use anyhow::Context as _;

/// The value of `variable`, or `small`.
pub fn size<T: FromStr>(variable: &str, small: T) -> anyhow::Result<T>
where
    T::Err: std::error::Error + Send + Sync + 'static,
{
    match std::env::var(variable) {
        Ok(text) => text.parse().with_context(|| format!("read {variable}={text}")),
        Err(_) => Ok(small),
    }
}

/// Whether figures are held against what is promised on a machine of its own, `TICKETRAIL_TEST_STRICT=1`; the gate, which
/// shares its machine, is generous.
pub fn strict() -> bool {
    std::env::var_os("TICKETRAIL_TEST_STRICT").is_some_and(|value| value == "1")
}
