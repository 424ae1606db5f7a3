//! The table of API endpoints. The table drives dispatch, access checks, and 404 and 405 responses.
//! A test checks `docs/reference/admin-api.md` against the table.

use loudou_api::Access;

use super::AdminPlane;
use super::answer::Failure;
use super::call::{Handler, Route, Target};
use crate::escaped::escaped;
use loudou_rules::joined::joined;

const EDIT: &[&str] = &["carry", "for", "reason", "dry_run"];
const BUCKETS: &[&str] = &["rule", "key", "state", "cursor", "limit"];

/// All endpoints, in the order in which they are documented.
pub static ROUTES: [Route; 17] = [
    get("/v1/status", &[], AdminPlane::status),
    get("/v1/rules", &["cursor"], AdminPlane::rules),
    get("/v1/rules/RULE", &[], AdminPlane::rule),
    put("/v1/rules/RULE", EDIT, AdminPlane::put_rule),
    delete(
        "/v1/rules/RULE",
        &["carry", "reason", "dry_run"],
        AdminPlane::delete_rule,
    ),
    put(
        "/v1/overrides/RULE/KEY",
        &["for", "reason", "dry_run"],
        AdminPlane::put_override,
    ),
    delete(
        "/v1/overrides/RULE/KEY",
        &["reason", "dry_run"],
        AdminPlane::delete_override,
    ),
    get("/v1/buckets", BUCKETS, AdminPlane::buckets),
    // The method is POST, because the rules and keys of many buckets do not fit in a query string.
    post("/v1/buckets", &[], AdminPlane::read_buckets)
        .for_viewers()
        .with_body(),
    get("/v1/buckets/RULE/KEY", &[], AdminPlane::bucket),
    post("/v1/buckets/RULE/KEY/reset", &["reason"], AdminPlane::reset),
    post(
        "/v1/buckets/RULE/KEY/ban",
        &["for", "replace", "reason"],
        AdminPlane::ban,
    )
    .with_if_match(),
    post("/v1/buckets/RULE/KEY/unban", &["reason"], AdminPlane::unban).with_if_match(),
    get("/v1/top", &["rule", "by", "limit"], AdminPlane::top),
    // The method is POST, because a sample request does not fit in a query string.
    post("/v1/explain", &[], AdminPlane::explain)
        .for_viewers()
        .with_body(),
    get("/v1/events", &["after", "of"], AdminPlane::events),
    get(
        "/v1/export",
        &["with_temporary", "cursor"],
        AdminPlane::export,
    ),
];

const fn get(path: &'static str, query: &'static [&'static str], handler: Handler) -> Route {
    edit("GET", path, query, handler).for_viewers()
}

const fn put(path: &'static str, query: &'static [&'static str], handler: Handler) -> Route {
    edit("PUT", path, query, handler)
        .with_body()
        .with_if_match()
}

const fn post(path: &'static str, query: &'static [&'static str], handler: Handler) -> Route {
    edit("POST", path, query, handler)
}

const fn delete(path: &'static str, query: &'static [&'static str], handler: Handler) -> Route {
    edit("DELETE", path, query, handler).with_if_match()
}

const fn edit(
    method: &'static str,
    path: &'static str,
    query: &'static [&'static str],
    handler: Handler,
) -> Route {
    Route {
        method,
        path,
        access: Access::Edit,
        query,
        takes_body: false,
        takes_if_match: false,
        handler,
    }
}

impl Route {
    const fn for_viewers(self) -> Self {
        Self {
            access: Access::View,
            ..self
        }
    }

    const fn with_if_match(self) -> Self {
        Self {
            takes_if_match: true,
            ..self
        }
    }

    const fn with_body(self) -> Self {
        Self {
            takes_body: true,
            ..self
        }
    }
}

/// Returns the routes that match the target's path, regardless of method.
fn of_path(target: &Target) -> impl Iterator<Item = &'static Route> {
    let steps = target.steps.as_slice();
    ROUTES.iter().filter(|route| route.has_path(steps))
}

/// Returns the route that matches the target's method and path. `HEAD` uses the `GET` route, and
/// Envoy omits the response body.
pub(super) fn find(target: &Target) -> Option<&'static Route> {
    let method = match target.method.as_str() {
        "HEAD" => "GET",
        method => method,
    };
    of_path(target).find(|route| route.method == method)
}

/// Creates a 405 response for a known path, and a 404 response for an unknown path.
pub(super) fn not_here(target: &Target) -> Failure {
    let methods = of_path(target).map(|route| match route.method {
        "GET" => "GET, HEAD",
        method => method,
    });
    let methods: Vec<&str> = methods.collect();
    if methods.is_empty() {
        let mut paths: Vec<&str> = ROUTES.iter().map(|route| route.path).collect();
        paths.dedup();
        let detail = format!("the calls are: {}", joined(&paths, ", "));
        return Failure::new(404, "Not found", detail);
    }
    let allow = joined(&methods, ", ");
    let method = escaped(&target.method);
    let detail = format!("{method} is not allowed on this path; allowed: {allow}");
    Failure::not_allowed(detail, allow)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = include_str!("../../../docs/reference/admin-api.md");

    const fn access(access: Access) -> &'static str {
        match access {
            Access::View => "view",
            Access::Edit => "edit",
        }
    }

    /// Checks that the documentation lists exactly these endpoints, with the same access, query
    /// parameters and body.
    #[test]
    fn the_document_has_these_calls() {
        let is_call = |line: &&str| {
            let code = line
                .strip_prefix("| `")
                .and_then(|rest| rest.split('`').next());
            code.is_some_and(|code| code.contains(" /v1/"))
        };
        let rows = DOCUMENT.lines().filter(is_call);
        let documented: Vec<&str> = rows.collect();
        let row = |route: &Route| {
            let names = route.query.iter().map(|name| format!("`{name}`"));
            let cells = [
                format!("`{} {}`", route.method, route.path),
                access(route.access).to_owned(),
                names.collect::<Vec<_>>().join(", "),
                if route.takes_body { "JSON" } else { "" }.to_owned(),
            ];
            let cells = cells.iter().map(|cell| match cell.as_str() {
                "" => "| ".to_owned(),
                cell => format!("| {cell} "),
            });
            format!("{}|", cells.collect::<String>())
        };
        let rows: Vec<String> = ROUTES.iter().map(row).collect();
        for (index, row) in rows.iter().enumerate() {
            let there = documented.get(index).copied().unwrap_or_default();
            assert!(there.starts_with(row.as_str()), "{there}\nshould be\n{row}");
        }
        assert_eq!(documented.len(), rows.len());
    }
}
