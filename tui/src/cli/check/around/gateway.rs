//! The surroundings of rules in Envoy Gateway's `EnvoyExtensionPolicy`.

use loudou_rules::config::Path;
use serde_json::Value;

use super::istio::remote;
use super::view::View;

const WASM: [&str; 6] = ["name", "rootID", "code", "config", "failOpen", "env"];
const CODE: [&str; 4] = ["type", "http", "image", "pullPolicy"];

pub(super) fn check(view: &mut View<'_>, object: &Path) {
    let wasm = view.place.plugin.clone();
    view.known_fields(&wasm, &WASM);
    let open = wasm.field("failOpen");
    if view.at(&open) == Some(&Value::Bool(true)) {
        view.warning(
            &open,
            "if the module ever crashes or cannot be fetched, every request passes without limits",
            "false",
            Some("false"),
        );
    }
    let code = wasm.field("code");
    view.known_fields(&code, &CODE);
    let kind = view.word(&code.field("type"), &["Image", "HTTP"]);
    let field = if kind == Some("HTTP") {
        "http"
    } else {
        "image"
    };
    let source = code.field(field);
    let (url, sum) = (source.field("url"), source.field("sha256"));
    let has_sum = view.checksum(&sum, "");
    match view.text(&url) {
        Some(text) => remote(view, (text, &url), &sum, has_sum),
        None if view.at(&source).is_none() => {
            let message = "the address of the module";
            view.error(&source, message, "`{ url: … }`", None);
        }
        None => view.error(&url, "the address of the module", "", None),
    }
    if view.is_admin() && !has_section(view, object) {
        view.misplaced_admin(
            "`admin.at` beside the rules, or a listener of its own, by `sectionName`",
        );
    }
}

fn has_section(view: &View<'_>, object: &Path) -> bool {
    let spec = object.field("spec");
    let many = spec.field("targetRefs");
    let many = (0..view.len(&many)).map(|index| many.index(index));
    let mut targets = many.chain([spec.field("targetRef")]);
    targets.any(|target| view.at(&target.field("sectionName")).is_some())
}
