//! Namespaces: what their new queues get.

use std::time::Duration;

use ticketrail_proto::v1;
use tonic::Code;

use crate::harness::*;

fn set(name: &str, defaults: v1::QueueSettings, auto_create: Option<bool>) -> v1::SetNamespaceRequest {
    v1::SetNamespaceRequest { namespace: name.into(), defaults: Some(defaults), auto_create, ..Default::default() }
}

fn in_shop(queue: &str, body: &str) -> v1::EnqueueRequest {
    v1::EnqueueRequest { namespace: "shop".into(), ..enqueue(queue, vec![message(body)]) }
}

async fn shown(server: &Server, name: &str) -> v1::NamespaceInfo {
    let request = v1::GetNamespaceRequest { namespace: name.into(), ..Default::default() };
    let answer = server.admin().await.get_namespace(request).await.expect("a namespace").into_inner();
    answer.namespace.expect("a namespace")
}

#[tokio::test]
async fn new_queues_get_the_defaults_of_their_namespace() {
    let server = Server::start().await;
    let (mut admin, mut client) = (server.admin().await, server.queues().await);
    let built_in = shown(&server, "shop").await;
    assert_eq!((built_in.name.as_str(), built_in.auto_create, built_in.configured), ("shop", true, false));
    assert_eq!(built_in.defaults, Some(v1::QueueSettings::default()));

    client.enqueue(in_shop("before", "x")).await.expect("an enqueue");
    let defaults = v1::QueueSettings { max_depth: Some(7), owner: Some("shop".into()), ..Default::default() };
    let done = admin.set_namespace(set("shop", defaults.clone(), None)).await.expect("set").into_inner();
    assert!(done.commit.expect("a commit").index > 0);
    let info = shown(&server, "shop").await;
    assert_eq!((info.defaults, info.auto_create, info.configured), (Some(defaults), true, true));

    client.enqueue(in_shop("after", "x")).await.expect("an enqueue");
    for (queue, depth) in [("before", 1_000_000), ("after", 7)] {
        let get = v1::GetQueueRequest { namespace: "shop".into(), queue: queue.into(), ..Default::default() };
        let settings = admin.get_queue(get).await.expect("a queue").into_inner().queue.expect("a queue").settings;
        assert_eq!(settings.expect("settings").max_depth, Some(depth), "{queue}");
    }
    let delete = || v1::DeleteNamespaceRequest { namespace: "shop".into(), ..Default::default() };
    admin.delete_namespace(delete()).await.expect("deleted");
    assert!(!shown(&server, "shop").await.configured);
    let (code, reason, data) = why(&admin.delete_namespace(delete()).await.expect_err("nothing to delete"));
    assert_eq!((code, reason.as_str()), (Code::NotFound, "NAMESPACE_NOT_FOUND"));
    assert_eq!(data, [("namespace".to_owned(), "shop".to_owned())]);
    server.stop().await;
}

#[tokio::test]
async fn a_namespace_may_forbid_that_messages_make_queues() {
    let server = Server::start().await;
    let (mut admin, mut client) = (server.admin().await, server.queues().await);
    admin.set_namespace(set("shop", v1::QueueSettings::default(), Some(false))).await.expect("set");
    let response = client.enqueue(in_shop("orders", "x")).await.expect("an answer").into_inner();
    let error = refused(&response.results[0]);
    assert_eq!((error.code, error.reason.as_str()), (5, "QUEUE_NOT_FOUND"));
    let waiting = v1::ReceiveRequest { namespace: "shop".into(), ..receive("orders", 1, Duration::from_secs(15)) };
    let status = client.receive(waiting.clone()).await.expect_err("no queue");
    assert_eq!(code_and_reason(&status), (Code::NotFound, "QUEUE_NOT_FOUND".into()));
    let create = v1::CreateQueueRequest { namespace: "shop".into(), queue: "orders".into(), ..Default::default() };
    admin.create_queue(create).await.expect("a queue");
    client.enqueue(in_shop("orders", "x")).await.expect("an enqueue");
    assert_eq!(client.receive(waiting).await.expect("a receive").into_inner().deliveries.len(), 1);
    // Elsewhere they do.
    send(&mut client, "orders", &["x"]).await;
    server.stop().await;
}

#[tokio::test]
async fn namespaces_are_listed_by_name_in_pages() {
    let server = Server::start().await;
    let mut admin = server.admin().await;
    for name in ["shop", "lab", "default", "shop/eu"] {
        admin.set_namespace(set(name, v1::QueueSettings::default(), None)).await.expect("set");
    }
    let (mut names, mut page_token) = (Vec::new(), String::new());
    loop {
        let request = v1::ListNamespacesRequest { page_size: 3, page_token, ..Default::default() };
        let page = admin.list_namespaces(request).await.expect("a page").into_inner();
        names.extend(page.namespaces.into_iter().map(|info| info.name));
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    assert_eq!(names, ["default", "lab", "shop", "shop/eu"]);
    let wrong = v1::QueueSettings { dead_letter_queue: Some("morgue".into()), ..Default::default() };
    let (code, _, data) = why(&admin.set_namespace(set("shop", wrong, None)).await.expect_err("one queue for all"));
    assert_eq!(code, Code::InvalidArgument);
    assert_eq!(data, [("field".to_owned(), "defaults.dead_letter_queue".to_owned())]);
    server.stop().await;
}
