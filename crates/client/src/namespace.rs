//! Namespaces: what their new queues get.

use std::time::Duration;

use ticketrail_proto::v1;
use ticketrail_proto::v1::admin_service_client::AdminServiceClient;

use crate::call::{Attempt, service};
use crate::settings::QueueSettings;
use crate::{Admin, Error};

/// A namespace: what queues get that are made in it from now on.
#[derive(Debug, Clone, PartialEq)]
pub struct NamespaceInfo {
    /// Its name.
    pub name: String,
    /// What differs from the built-in defaults; what is absent is as built in.
    pub defaults: QueueSettings,
    /// Whether a message makes a queue that is not there.
    pub auto_create: bool,
    /// Whether somebody configured it. One that nobody did has the built-in defaults.
    pub configured: bool,
}

impl NamespaceInfo {
    fn from_wire(info: v1::NamespaceInfo) -> Self {
        Self {
            name: info.name,
            defaults: QueueSettings::from_wire(info.defaults.unwrap_or_default()),
            auto_create: info.auto_create,
            configured: info.configured,
        }
    }
}

impl Admin {
    /// Stores what queues of a namespace get that are made from now on, in place of what was stored before. `auto_create`
    /// says whether a message makes a queue that is not there.
    ///
    /// ```no_run
    /// # use ticketrail_client::{Client, QueueSettings};
    /// # async fn example(client: Client) -> Result<(), ticketrail_client::Error> {
    /// let defaults = QueueSettings { max_depth: Some(10_000), owner: Some("shop".to_owned()), ..Default::default() };
    /// client.admin().set_namespace("shop", defaults, false).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As every change: see [`Error`].
    pub async fn set_namespace(
        &self,
        namespace: &str,
        defaults: QueueSettings,
        auto_create: bool,
    ) -> Result<(), Error> {
        let defaults = defaults.into_wire();
        let make = |attempt: Attempt| v1::SetNamespaceRequest {
            request_id: Some(attempt.id),
            namespace: namespace.to_owned(),
            defaults: Some(defaults.clone()),
            auto_create: Some(auto_create),
        };
        let send = async |channel, request| service!(AdminServiceClient, channel).set_namespace(request).await;
        let read = |_: v1::SetNamespaceResponse| Ok(Ok(()));
        self.client().changing().change(Duration::ZERO, make, send, read).await
    }

    /// Takes a namespace's defaults back. Its queues stay as they are.
    ///
    /// # Errors
    /// [`Reason::NamespaceNotFound`](crate::Reason::NamespaceNotFound) where none are stored; as every change.
    pub async fn delete_namespace(&self, namespace: &str) -> Result<(), Error> {
        let make = |attempt: Attempt| v1::DeleteNamespaceRequest {
            request_id: Some(attempt.id),
            namespace: namespace.to_owned(),
        };
        let send = async |channel, request| service!(AdminServiceClient, channel).delete_namespace(request).await;
        let read = |_: v1::DeleteNamespaceResponse| Ok(Ok(()));
        self.client().changing().change(Duration::ZERO, make, send, read).await
    }

    /// A namespace, also one that nobody configured.
    ///
    /// # Errors
    /// As every read.
    pub async fn namespace(&self, namespace: &str) -> Result<NamespaceInfo, Error> {
        let make = || v1::GetNamespaceRequest { namespace: namespace.to_owned(), stale_ok: false };
        let send = async |channel, request| service!(AdminServiceClient, channel).get_namespace(request).await;
        match self.client().reading().read(make, send).await?.namespace {
            Some(info) => Ok(NamespaceInfo::from_wire(info)),
            None => Err(Error::Protocol { expected: "a namespace", found: "none".to_owned() }),
        }
    }

    /// The namespaces that have defaults of their own, by name, read page by page: at most 10,000.
    ///
    /// # Errors
    /// As every read.
    pub async fn namespaces(&self) -> Result<Vec<NamespaceInfo>, Error> {
        let mut namespaces = Vec::new();
        let mut page_token = String::new();
        loop {
            let make =
                || v1::ListNamespacesRequest { page_size: 1_000, page_token: page_token.clone(), stale_ok: false };
            let send = async |channel, request| service!(AdminServiceClient, channel).list_namespaces(request).await;
            let page = self.client().reading().read(make, send).await?;
            namespaces.extend(page.namespaces.into_iter().map(NamespaceInfo::from_wire));
            if page.next_page_token.is_empty() {
                return Ok(namespaces);
            }
            page_token = page.next_page_token;
        }
    }
}
