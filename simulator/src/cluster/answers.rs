//! The envelopes of k8sd's and of Kubernetes' answers.

use serde::Serialize;

use crate::wire::{Reply, Response};

/// JSON as both programs send it: one document, one newline.
pub(super) fn json<T: Serialize>(status: u16, body: &T) -> Response {
    // Values of ours without maps of odd keys: there is nothing in them that JSON can't say.
    let mut body = serde_json::to_vec(body).unwrap_or_default();
    body.push(b'\n');
    Response { status, content_type: "application/json", body }
}

/// Plain text.
pub(super) fn text(status: u16, body: &str) -> Response {
    Response { status, content_type: "text/plain; charset=utf-8", body: body.as_bytes().to_vec() }
}

/// The envelope of every answer of k8sd: all seven keys, in this order.
#[derive(Serialize)]
struct Envelope<'a, M> {
    r#type: &'a str,
    status: &'a str,
    status_code: u16,
    operation: &'a str,
    error_code: u16,
    error: &'a str,
    metadata: M,
}

/// The empty object that stands for "nothing to say".
#[derive(Serialize)]
pub(super) struct Nothing {}

/// k8sd's answer to a call that went well.
pub(super) fn success<M: Serialize>(metadata: M) -> Response {
    let envelope = Envelope {
        r#type: "sync",
        status: "Success",
        status_code: 200,
        operation: "",
        error_code: 0,
        error: "",
        metadata,
    };
    json(200, &envelope)
}

/// How the body of k8sd's error ends, which changed with microcluster v3.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ErrorEnd {
    /// Up to 1.35.
    TwoNewlines,
    /// From 1.36.
    OneNewline,
}

/// An error that k8sd answers with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    /// HTTP status, and `error_code`.
    pub(super) status: u16,
    /// The text.
    pub(super) text: String,
}

impl Failure {
    pub(super) fn new(status: u16, text: impl Into<String>) -> Self {
        Self { status, text: text.into() }
    }

    /// The answer.
    pub(super) fn response(&self, end: ErrorEnd) -> Response {
        let envelope = Envelope {
            r#type: "error",
            status: "",
            status_code: 0,
            operation: "",
            error_code: self.status,
            error: &self.text,
            metadata: (),
        };
        let mut response = json(self.status, &envelope);
        if end == ErrorEnd::TwoNewlines {
            response.body.push(b'\n');
        }
        response
    }
}

/// What k8sd's handlers give: an answer, a wait, no answer; or an error.
pub(super) type Handled = Result<Reply, Failure>;

/// A `Status` of Kubernetes.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Status<'a> {
    kind: &'a str,
    api_version: &'a str,
    metadata: Nothing,
    #[serde(rename = "status")]
    outcome: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    message: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    reason: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<Details<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<u16>,
}

/// What a `Status` is about.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Details<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) group: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) kind: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) uid: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) causes: Option<[Cause<'a>; 1]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) retry_after_seconds: Option<u32>,
}

/// What is wrong with a field.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Cause<'a> {
    pub(super) reason: &'a str,
    pub(super) message: &'a str,
    pub(super) field: &'a str,
}

/// Kubernetes' answer to a call that failed.
pub(super) fn refusal(code: u16, reason: &str, message: &str, details: Option<Details<'_>>) -> Response {
    let status = Status {
        kind: "Status",
        api_version: "v1",
        metadata: Nothing {},
        outcome: "Failure",
        message,
        reason,
        details,
        code: Some(code),
    };
    json(code, &status)
}

/// Kubernetes' answer to a deletion.
pub(super) fn deleted(details: Details<'_>) -> Response {
    let status = Status {
        kind: "Status",
        api_version: "v1",
        metadata: Nothing {},
        outcome: "Success",
        message: "",
        reason: "",
        details: Some(details),
        code: None,
    };
    json(200, &status)
}
