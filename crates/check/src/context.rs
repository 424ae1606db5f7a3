//! Checks the Envoy or Kubernetes configuration around the rules: the module's failure policy and
//! source, and which requests reach the filter. Also checks that the data role and the admin role
//! use the same store.

use std::rc::Rc;

use discovery::Discovered;
use loudou_rules::config::Problem;
use roles::Role;
use view::View;

use crate::document::configuration::Object;
use crate::{Checked, Content, Report};

mod discovery;
mod envoy;
mod gateway;
mod istio;
mod keys;
mod roles;
mod view;

/// Adds the problems in the Envoy or Kubernetes configuration around each rule file or admin
/// configuration. All configurations in `group` may run in the same Envoy.
pub(crate) fn add(group: &mut [&mut Checked]) {
    let roles: Vec<Option<Role>> = group.iter().map(|checked| role(checked)).collect();
    let mut discovered: Rc<[Discovered]> = Rc::new([]);
    let mut last = std::ptr::null();
    for (index, (report, content)) in group.iter_mut().enumerate() {
        // Look for filters with `config_discovery` once per file, because all configurations in a
        // file belong to one Envoy.
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
        // The document is not a Kubernetes object, so there is no configuration around it to check.
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
        "EnvoyExtensionPolicy" => gateway::check(view, &object.path),
        // This Kubernetes object patches only the rules. Another object defines the filter, so
        // there is nothing to check here.
        _ if view.place.plugin.steps().is_empty() => {}
        _ => envoy::check(view),
    }
}
