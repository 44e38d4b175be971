//! What a node tells of itself on its page for Prometheus.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, bail};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// How long an answer may take.
const WITHIN: Duration = Duration::from_secs(2);
/// More than any page has, in bytes.
const PAGE_BYTES: u64 = 4 << 20;

/// A node's figures.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Figures {
    /// Whether it leads and has applied what came before its term.
    pub(crate) leading: bool,
    /// The newest term that it knows.
    pub(crate) term: u64,
    /// The last entry in its log.
    pub(crate) last_log: u64,
    /// The last entry applied.
    pub(crate) applied: u64,
    /// The entry up to which its log is purged; 0: none.
    pub(crate) purged: u64,
    /// Snapshots installed since its process started.
    pub(crate) installed: u64,
}

/// Asks the node whose HTTP port is `address`.
pub(crate) async fn ask(address: SocketAddr) -> anyhow::Result<Figures> {
    let asked = tokio::time::timeout(WITHIN, get(address)).await;
    let answer = asked.with_context(|| format!("expected figures from {address} within {WITHIN:?}"))??;
    let Some((head, page)) = answer.split_once("\r\n\r\n") else {
        bail!("expected a page with figures from {address}, but got {answer:?}");
    };
    let status = head.lines().next().unwrap_or_default();
    if status.split(' ').nth(1) != Some("200") {
        bail!("expected figures from {address}, but got {status:?}");
    }
    Ok(read(page))
}

/// HTTP 1.0, so that the answer ends with the connection and comes in one piece.
async fn get(address: SocketAddr) -> anyhow::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").await?;
    let mut answer = String::new();
    stream.take(PAGE_BYTES).read_to_string(&mut answer).await?;
    Ok(answer)
}

/// Reads a page; what is not there, such as before the node has started, is 0.
fn read(page: &str) -> Figures {
    let figure = |name: &str| {
        page.lines()
            .filter_map(|line| {
                let rest = line.strip_prefix(name)?;
                let value =
                    rest.strip_prefix(' ').or_else(|| rest.strip_prefix('{')?.split_once("} ").map(|(_, value)| value));
                value?.parse::<u64>().ok()
            })
            .next()
            .unwrap_or(0)
    };
    Figures {
        leading: figure("ticketrail_raft_leading") == 1,
        term: figure("ticketrail_raft_term"),
        last_log: figure("ticketrail_raft_last_log_index"),
        applied: figure("ticketrail_raft_applied_index"),
        purged: figure("ticketrail_raft_purged_index"),
        installed: figure("ticketrail_snapshots_installed_total"),
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    const PAGE: &str = "# HELP ticketrail_raft_term The newest term that the node knows.\n\
                        ticketrail_raft_term{group=\"1\"} 3\n\
                        ticketrail_raft_term_of_another{group=\"1\"} 9\n\
                        ticketrail_raft_leading{group=\"1\"} 1\n\
                        ticketrail_raft_last_log_index{group=\"1\"} 812\n\
                        ticketrail_raft_applied_index{group=\"1\"} 811\n\
                        ticketrail_snapshots_installed_total 2\n";

    #[test]
    fn a_page_is_read_and_what_is_absent_is_0() {
        let expected = Figures { leading: true, term: 3, last_log: 812, applied: 811, purged: 0, installed: 2 };
        assert_eq!(read(PAGE), expected);
        assert_eq!(read(""), Figures::default());
    }

    #[tokio::test]
    async fn a_page_is_asked_for_and_a_refusal_is_an_error() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let address = listener.local_addr().expect("address");
        let server = tokio::spawn(async move {
            for status in ["200 OK", "500 Internal Server Error"] {
                let (mut stream, _) = listener.accept().await.expect("accepted");
                let mut asked = Vec::new();
                // All of it: what is left unread resets the connection.
                while !asked.ends_with(b"\r\n\r\n") {
                    assert_ne!(stream.read_buf(&mut asked).await.expect("a request"), 0);
                }
                assert!(asked.starts_with(b"GET /metrics HTTP/1.0\r\n"));
                let answer = format!("HTTP/1.0 {status}\r\ncontent-length: {}\r\n\r\n{PAGE}", PAGE.len());
                stream.write_all(answer.as_bytes()).await.expect("answered");
            }
        });
        assert_eq!(ask(address).await.expect("figures").term, 3);
        assert!(ask(address).await.expect_err("refused").to_string().contains("500"));
        server.await.expect("the server");
        ask(address).await.expect_err("nobody there");
    }
}
