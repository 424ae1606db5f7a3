//! The answer and the body of each route.

use loudou_api::{
    BanAnswer, BucketNames, BucketView, BucketsPage, EditAnswer, Events, ExplainAnswer,
    ResetAnswer, RuleView, Rules, Status, Top,
};
use loudou_filter::admin::Route;
use serde_json::Value;

use super::schemas::{EDIT, EXPORT, EditJson, OVERRIDE, RuleJson, SAMPLE, Schemas, at};

/// The schema of the answer; `None` for a route that is not described yet.
pub(super) fn answer(schemas: &mut Schemas, route: &Route) -> Option<Value> {
    Some(match (route.method, route.path) {
        ("GET", "/v1/status") => schemas.of::<Status>(),
        ("GET", "/v1/rules") => schemas.of::<Rules<RuleJson, EditJson>>(),
        ("GET", "/v1/rules/RULE") => schemas.of::<RuleView<RuleJson, EditJson>>(),
        ("PUT" | "DELETE", "/v1/rules/RULE" | "/v1/overrides/RULE/KEY") => {
            schemas.of::<EditAnswer<RuleJson, EditJson>>()
        }
        ("GET" | "POST", "/v1/buckets") => schemas.of::<BucketsPage>(),
        ("GET", "/v1/buckets/RULE/KEY") => schemas.of::<BucketView>(),
        ("POST", "/v1/buckets/RULE/KEY/reset") => schemas.of::<ResetAnswer>(),
        ("POST", "/v1/buckets/RULE/KEY/ban" | "/v1/buckets/RULE/KEY/unban") => {
            schemas.of::<BanAnswer>()
        }
        ("GET", "/v1/top") => schemas.of::<Top>(),
        ("POST", "/v1/explain") => schemas.of::<ExplainAnswer>(),
        ("GET", "/v1/events") => schemas.of::<Events>(),
        ("GET", "/v1/export") => at(EXPORT),
        _ => return None,
    })
}

/// The schema of the body; `None` for a route that is not described yet.
pub(super) fn body(schemas: &mut Schemas, route: &Route) -> Option<Value> {
    Some(match (route.method, route.path) {
        ("PUT", "/v1/rules/RULE") => at(EDIT),
        ("PUT", "/v1/overrides/RULE/KEY") => at(OVERRIDE),
        ("POST", "/v1/explain") => at(SAMPLE),
        ("POST", "/v1/buckets") => schemas.of::<BucketNames>(),
        _ => return None,
    })
}
