//! Checks the configuration around the rules in a file for Envoy or Kubernetes: the module's
//! failure policy and source, the requests that reach it, and that the roles find the same store.

use std::rc::Rc;

use discovery::Discovered;
use loudou_rules::config::{Path, Problem};
use roles::Role;
use serde_json::Value;
use view::View;

use crate::document::configuration::Object;
use crate::{Checked, Content, Report};

mod discovery;
mod envoy;
mod istio;
mod keys;
mod roles;
mod view;

/// Adds the problems around each of these configurations, which may run in one Envoy.
pub(crate) fn add(group: &mut [&mut Checked]) {
    let roles: Vec<Option<Role>> = group.iter().map(|checked| role(checked)).collect();
    let mut discovered: Rc<[Discovered]> = Rc::new([]);
    let mut last = std::ptr::null();
    for (index, (report, content)) in group.iter_mut().enumerate() {
        // All configurations of a file belong to one Envoy.
        if let Some((file, _)) = report.context()
            && !std::ptr::eq(file, last)
        {
            discovered = discovery::all(file).into();
            last = file;
        }
        let (problems, inside) = problems(report, &discovered, index, &roles);
        report.add_around(&problems);
        report.add(&inside);
        if report.has_errors() {
            *content = None;
        }
    }
}

fn view<'a>(report: &'a Report, discovered: &Rc<[Discovered]>) -> Option<View<'a>> {
    let (file, place) = report.context()?;
    let content = report.document.as_ref().map(|document| &document.value);
    Some(View::new(file, place, content, Rc::clone(discovered)))
}

fn role((report, content): &Checked) -> Option<Role> {
    let none: Rc<[Discovered]> = Rc::new([]);
    let view = view(report, &none)?;
    let store = match content.as_ref()? {
        Content::Rules(file, _) => file.store.clone(),
        Content::Admin(settings) => settings.store.clone(),
    };
    let title = report.filter().unwrap_or_default();
    let name = title.strip_suffix(", data role").unwrap_or(title);
    Some(Role::of(&view, name, store))
}

fn problems(
    report: &Report,
    discovered: &Rc<[Discovered]>,
    index: usize,
    roles: &[Option<Role>],
) -> (Vec<Problem>, Vec<Problem>) {
    let Some(mut view) = view(report, discovered) else {
        return Default::default();
    };
    match &view.place.object {
        Some(object) => of_object(&mut view, object),
        // The document is not an object.
        None if report.is_manifest() => {}
        None => envoy::check(&mut view),
    }
    roles::check(&mut view, index, roles);
    (view.problems, view.inside)
}

fn of_object(view: &mut View<'_>, object: &Object) {
    let kind = object.kind.as_str();
    match kind {
        "WasmPlugin" | "TrafficExtension" => {
            envoy::in_wasm(view);
            istio::check(view, &object.path, kind);
        }
        "EnvoyExtensionPolicy" => {
            envoy::in_wasm(view);
            check_gateway(view, &object.path);
        }
        // The object patches only the rules. Another object defines the filter, so there is nothing
        // to check.
        _ if view.place.plugin.steps().is_empty() => {}
        _ => envoy::check(view),
    }
}

fn check_gateway(view: &mut View<'_>, object: &Path) {
    let wasm = view.place.plugin.clone();
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
    let kind = view.word(&code.field("type"), &["Image", "HTTP"]);
    let field = if kind == Some("HTTP") {
        "http"
    } else {
        "image"
    };
    let source = code.field(field);
    let (url, sum) = (source.field("url"), source.field("sha256"));
    view.checksum(&sum, "");
    match view.text(&url) {
        Some(_) => {}
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
