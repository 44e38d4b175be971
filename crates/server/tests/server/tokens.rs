//! Requests without a session.

use ticketrail_proto::v1;
use tonic::Code;

use crate::harness::*;

fn id(token: &[u8], repeat: bool) -> Option<v1::RequestId> {
    Some(v1::RequestId { token: token.to_vec().into(), repeat, ..Default::default() })
}

fn request(request_id: Option<v1::RequestId>, body: &str) -> v1::EnqueueRequest {
    v1::EnqueueRequest { request_id, ..enqueue("orders", vec![message(body)]) }
}

#[tokio::test]
async fn a_repeat_under_its_16_bytes_has_no_second_effect() {
    let server = Server::start().await;
    let mut client = server.queues().await;
    let first = client.enqueue(request(id(&[7; 16], false), "a")).await.expect("an enqueue").into_inner();
    let again = client.enqueue(request(id(&[7; 16], true), "a")).await.expect("an enqueue").into_inner();
    assert_eq!(again.results, first.results);
    assert!(again.commit.expect("a commit").replayed && !first.commit.expect("a commit").replayed);
    let other = client.enqueue(request(id(&[8; 16], false), "a")).await.expect("an enqueue").into_inner();
    assert_ne!(other.results, first.results);
    let status = client.enqueue(request(id(&[7; 16], true), "b")).await.expect_err("another request");
    assert_eq!(code_and_reason(&status), (Code::InvalidArgument, "REQUEST_ID_REUSED".into()));
    assert_eq!(take(&mut client, "orders", 10).await.len(), 2);
    server.stop().await;
}

#[tokio::test]
async fn what_is_no_such_id_is_refused() {
    let server = Server::start().await;
    let mut client = server.queues().await;
    let both = v1::RequestId { session: 1, seq: 1, token: vec![7; 16].into(), ..Default::default() };
    for wrong in [id(&[7; 15], false), id(&[0; 16], false), Some(both)] {
        let (code, reason, data) = why(&client.enqueue(request(wrong, "a")).await.expect_err("no id"));
        assert_eq!((code, reason.as_str()), (Code::InvalidArgument, "INVALID"));
        assert_eq!(data, [("field".to_owned(), "request_id.token".to_owned())]);
    }
    server.stop().await;
}

#[tokio::test]
async fn on_a_stream_a_number_tells_which_answer_belongs_to_which_token() {
    let server = Server::start().await;
    let mut client = server.queues().await;
    let named = |seq, repeat| v1::ProduceRequest {
        request_id: Some(v1::RequestId { seq, repeat, token: vec![9; 16].into(), ..Default::default() }),
        queue: "orders".into(),
        messages: vec![message("a")],
        ..Default::default()
    };
    let requests = tokio_stream::iter([named(1, false)]);
    let mut answers = client.produce(requests).await.expect("a stream").into_inner();
    let first = answers.message().await.expect("no error").expect("an answer");
    let mut answers = client.produce(tokio_stream::iter([named(5, true)])).await.expect("a stream").into_inner();
    let again = answers.message().await.expect("no error").expect("an answer");
    assert_eq!((first.seq, again.seq, first.session), (1, 5, 0));
    assert_eq!(again.outcome, first.outcome);
    assert!(again.commit.expect("a commit").replayed);
    server.stop().await;
}
