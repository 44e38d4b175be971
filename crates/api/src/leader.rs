//! Tells clients who leads: on every reply, stream and error of a node that does not.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use ticketrail_proto::metadata;
use tonic::codegen::{Service, http};
use tonic::metadata::MetadataValue;
use tonic::server::NamedService;

/// Tells the leader's address for clients, `host:port`; `None` where this node leads, or nobody is known to.
pub type Leader = Arc<dyn Fn() -> Option<String> + Send + Sync>;

/// A service whose responses name the leader, in the metadata `ticketrail-leader`.
#[derive(Clone)]
pub struct NamesLeader<S> {
    service: S,
    leader: Leader,
}

impl<S> NamesLeader<S> {
    /// `service`, with the leader named by `leader` on the way out.
    pub fn new(service: S, leader: Leader) -> Self {
        Self { service, leader }
    }
}

impl<S: NamedService> NamedService for NamesLeader<S> {
    const NAME: &'static str = S::NAME;
}

impl<S, Req, Body> Service<Req> for NamesLeader<S>
where
    S: Service<Req, Response = http::Response<Body>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.service.poll_ready(context)
    }

    fn call(&mut self, request: Req) -> Self::Future {
        let (serving, leader) = (self.service.call(request), Arc::clone(&self.leader));
        Box::pin(async move {
            let mut response = serving.await?;
            // An error before the first message of a reply is nothing but a head, too.
            if let Some(address) = leader()
                && let Ok(value) = http::HeaderValue::try_from(address)
            {
                response.headers_mut().insert(metadata::LEADER, value);
            }
            Ok(response)
        })
    }
}

/// Names the leader in an error that ends a stream.
pub(crate) fn name_in(status: &mut tonic::Status, leader: &Leader) {
    if let Some(value) = leader().and_then(|address| MetadataValue::try_from(address).ok()) {
        status.metadata_mut().insert(metadata::LEADER, value);
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    #[derive(Clone)]
    struct Fails;

    impl Service<()> for Fails {
        type Response = http::Response<()>;
        type Error = Infallible;
        type Future = std::future::Ready<Result<Self::Response, Self::Error>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, (): ()) -> Self::Future {
            std::future::ready(Ok(tonic::Status::unavailable("not the leader").into_http()))
        }
    }

    #[tokio::test]
    async fn an_error_names_the_leader_where_another_node_leads() {
        for (address, told) in [(Some("10.0.0.2:50000"), Some("10.0.0.2:50000")), (None, None), (Some("a\nb"), None)] {
            let address = address.map(str::to_owned);
            let mut service = NamesLeader::new(Fails, Arc::new(move || address.clone()));
            let response = service.call(()).await.expect("a response");
            let head = tonic::Status::from_header_map(response.headers()).expect("a status");
            let named = head.metadata().get(metadata::LEADER).and_then(|value| value.to_str().ok());
            assert_eq!(named, told);
        }
    }
}
