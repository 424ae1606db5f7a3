//! API request parameters, and how they are encoded in URLs.

use loudou_api::{BucketState, TopBy};
use loudou_limiter::{Carry, Nanos};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

/// `PUT /v1/rules/{rule}`.
#[derive(Clone, Debug, PartialEq)]
pub struct EditRequest {
    /// `{"limits": [...], "mode": "..."}`. At least one of the two fields must be present.
    pub body: Value,
    /// The rule's `ETag` when it was read.
    pub if_match: String,
    /// How to convert the levels of live buckets.
    pub carry: Carry,
    /// Lifetime of the edit. `None` if the edit does not expire.
    pub expires_after: Option<Nanos>,
    /// Reason for the change, as recorded in its event. May be empty.
    pub reason: String,
    /// True for a dry run: the server validates the request and responds, but changes nothing.
    pub dry_run: bool,
}

impl EditRequest {
    pub(super) fn path(&self, rule: &str) -> String {
        let mut path = Path::new(&["rules", rule]);
        path.query("carry", self.carry.name());
        if let Some(span) = self.expires_after {
            path.query("for", &span.to_string());
        }
        path.query_unless_empty("reason", &self.reason);
        if self.dry_run {
            path.query("dry_run", "true");
        }
        path.text
    }
}

/// `DELETE /v1/rules/{rule}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DropRequest {
    /// The rule's `ETag` when it was read.
    pub if_match: String,
    /// How to convert the levels of live buckets.
    pub carry: Carry,
    /// Reason for the change, as recorded in its event. May be empty.
    pub reason: String,
    /// True for a dry run: the server validates the request and responds, but changes nothing.
    pub dry_run: bool,
}

impl DropRequest {
    pub(super) fn path(&self, rule: &str) -> String {
        let mut path = Path::new(&["rules", rule]);
        path.query("carry", self.carry.name());
        path.query_unless_empty("reason", &self.reason);
        if self.dry_run {
            path.query("dry_run", "true");
        }
        path.text
    }
}

/// `PUT /v1/overrides/{rule}/{key}`, or `DELETE` without a body.
#[derive(Clone, Debug, PartialEq)]
pub struct OverrideRequest {
    /// `{"scale": 10}`, `{"limits": [...]}`, `"unlimited"` or `"banned"`. `None` removes the edited override.
    pub body: Option<Value>,
    /// The rule's `ETag` when it was read.
    pub if_match: String,
    /// Lifetime of the override. `None` if the override does not expire.
    pub expires_after: Option<Nanos>,
    /// Reason for the change, as recorded in its event. May be empty.
    pub reason: String,
    /// True for a dry run: the server validates the request and responds, but changes nothing.
    pub dry_run: bool,
}

impl OverrideRequest {
    pub(super) fn path(&self, rule: &str, key: &str) -> String {
        let mut path = Path::new(&["overrides", rule, key]);
        if let Some(span) = self.expires_after.filter(|_| self.body.is_some()) {
            path.query("for", &span.to_string());
        }
        path.query_unless_empty("reason", &self.reason);
        if self.dry_run {
            path.query("dry_run", "true");
        }
        path.text
    }
}

/// `POST /v1/buckets/{rule}/{key}/ban`, `…/unban` or `…/reset`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ActRequest {
    /// Duration of the ban. `None` if the ban stays in effect until an operator lifts it.
    pub span: Option<Nanos>,
    /// True if the ban replaces an existing ban even if that ban would end later.
    pub replaces: bool,
    /// The ban's `ETag` when it was read.
    pub if_match: Option<String>,
    /// Reason for the change, as recorded in its event. May be empty.
    pub reason: String,
}

impl ActRequest {
    pub(super) fn path(&self, action: &str, rule: &str, key: &str) -> String {
        let mut path = Path::new(&["buckets", rule, key, action]);
        if let Some(span) = self.span {
            path.query("for", &span.to_string());
        }
        if self.replaces {
            path.query("replace", "true");
        }
        path.query_unless_empty("reason", &self.reason);
        path.text
    }
}

/// `GET /v1/buckets`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BucketsQuery {
    /// Return only buckets that belong to this rule.
    pub rule: Option<String>,
    /// Return only buckets whose keys contain this string.
    pub key: Option<String>,
    /// Return only buckets in this state.
    pub state: Option<BucketState>,
    /// Cursor from the previous page.
    pub cursor: Option<String>,
    /// Maximum number of buckets per page.
    pub limit: Option<usize>,
}

impl BucketsQuery {
    pub(super) fn path(&self) -> String {
        let mut path = Path::new(&["buckets"]);
        let limit = self.limit.map(|limit| limit.to_string());
        for (name, value) in [
            ("rule", self.rule.as_deref()),
            // An empty string matches every key, so it is omitted.
            ("key", self.key.as_deref().filter(|key| !key.is_empty())),
            ("state", self.state.map(BucketState::name)),
            ("cursor", self.cursor.as_deref()),
            ("limit", limit.as_deref()),
        ] {
            if let Some(value) = value {
                path.query(name, value);
            }
        }
        path.text
    }
}

/// `GET /v1/top`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopQuery {
    /// Return only keys that belong to this rule.
    pub rule: Option<String>,
    /// What to count. The default is refused requests.
    pub by: Option<TopBy>,
    /// Maximum number of keys to return.
    pub limit: Option<usize>,
}

impl TopQuery {
    pub(super) fn path(&self) -> String {
        let mut path = Path::new(&["top"]);
        let limit = self.limit.map(|limit| limit.to_string());
        for (name, value) in [
            ("rule", self.rule.as_deref()),
            ("by", self.by.map(TopBy::name)),
            ("limit", limit.as_deref()),
        ] {
            if let Some(value) = value {
                path.query(name, value);
            }
        }
        path.text
    }
}

/// Characters that do not need percent-encoding in a path segment or query. All others are encoded.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~');

/// A path under `/v1`, including its query string.
pub(super) struct Path {
    pub(super) text: String,
    has_query: bool,
}

impl Path {
    pub(super) fn new(segments: &[&str]) -> Self {
        let mut text = format!("/{}", loudou_api::API_VERSION);
        for segment in segments {
            text.push('/');
            // Encode `.` and `..`, which would otherwise be treated as relative path segments.
            let set = if matches!(*segment, "." | "..") {
                NON_ALPHANUMERIC
            } else {
                PLAIN
            };
            text.extend(utf8_percent_encode(segment, set));
        }
        Self {
            text,
            has_query: false,
        }
    }

    pub(super) fn query(&mut self, name: &str, value: &str) {
        self.text.push(if self.has_query { '&' } else { '?' });
        self.has_query = true;
        self.text.push_str(name);
        self.text.push('=');
        self.text.extend(utf8_percent_encode(value, PLAIN));
    }

    pub(super) fn query_unless_empty(&mut self, name: &str, value: &str) {
        if !value.is_empty() {
            self.query(name, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_keys_are_encoded() {
        let key = |key| Path::new(&["buckets", "r", key]).text;
        assert_eq!(key("alice:/reply"), "/v1/buckets/r/alice%3A%2Freply");
        assert_eq!(key("50%2F"), "/v1/buckets/r/50%252F");
        assert_eq!(key("10.0.0.1"), "/v1/buckets/r/10.0.0.1");
        assert_eq!(key(".."), "/v1/buckets/r/%2E%2E");
        assert_eq!(key("a?b#c d"), "/v1/buckets/r/a%3Fb%23c%20d");
    }

    #[test]
    fn an_edit_names_everything() {
        let edit = EditRequest {
            body: Value::Null,
            if_match: "\"i-7\"".to_owned(),
            carry: Carry::Keep,
            expires_after: Some(Nanos::from_secs(1800)),
            reason: "black friday & co".to_owned(),
            dry_run: true,
        };
        assert_eq!(
            edit.path("per-user"),
            "/v1/rules/per-user?carry=keep&for=30m&reason=black%20friday%20%26%20co&dry_run=true"
        );
        let drop = DropRequest {
            if_match: "\"i-7\"".to_owned(),
            carry: Carry::Proportional,
            reason: String::new(),
            dry_run: false,
        };
        assert_eq!(drop.path("r"), "/v1/rules/r?carry=proportional");
    }

    #[test]
    fn a_query_has_all_parameters() {
        assert_eq!(BucketsQuery::default().path(), "/v1/buckets");
        let query = BucketsQuery {
            rule: Some("r".to_owned()),
            key: Some("a=b&c".to_owned()),
            state: Some(BucketState::Refusing),
            cursor: Some("3/4".to_owned()),
            limit: Some(500),
        };
        assert_eq!(
            query.path(),
            "/v1/buckets?rule=r&key=a%3Db%26c&state=refusing&cursor=3%2F4&limit=500"
        );
    }
}
