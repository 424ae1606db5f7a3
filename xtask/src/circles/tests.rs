//! Small crates with and without circles.

use super::*;

/// The circles of a crate, each as its files.
fn found(files: &[(&str, &str)]) -> Vec<Vec<String>> {
    let source = |file: &Path| {
        let mut files = files.iter().filter(|(name, _)| Path::new(name) == file);
        files.next().map(|(_, text)| (*text).to_owned())
    };
    let circles = circles(Path::new("lib.rs"), &source).expect("readable");
    let files = |circle: &Circle| {
        let files: BTreeSet<&PathBuf> = circle.0.keys().map(|(from, _)| from).collect();
        files
            .iter()
            .map(|file| file.display().to_string())
            .collect()
    };
    circles.iter().map(files).collect()
}

const NONE: [Vec<String>; 0] = [];
const LIB: (&str, &str) = ("lib.rs", "mod a;\nmod b;\n");

#[test]
fn imports_and_paths_make_circles() {
    let item = "pub struct B;";
    for a in [
        "use crate::b::B;",
        "use super::b::B;",
        "use crate::b::{self, B as C};",
        "use crate::b::*;",
        "use crate::{b::{B}};",
        "fn f() -> crate::b::B { todo!() }",
        "fn f() { g!(x, vec![crate::b::B]) }",
        "#[with(crate::b::B)] struct A;",
        "use crate::b; fn f() { b::B }",
        "use crate::b as c; fn f() { c::B::new() }",
        "fn f() { use crate::b::B; }",
        "mod inner { use super::super::b::B; }",
        "pub use crate::b::B; fn f(b: B) {}",
    ] {
        let a = format!("{a}\npub const X: u8 = 1;");
        let b = format!("{item} use crate::a::X;");
        assert_eq!(
            found(&[LIB, ("a.rs", &a), ("b.rs", &b)]),
            [["a.rs", "b.rs"]],
            "{a}"
        );
        assert_eq!(found(&[LIB, ("a.rs", &a), ("b.rs", item)]), NONE, "{a}");
    }
}

#[test]
fn a_circle_names_its_ties() {
    let files = [
        ("lib.rs", "mod a; mod b; mod c; mod d;"),
        ("a.rs", "use crate::b::{f, g}; use crate::d::x;"),
        ("b.rs", "pub fn f() {} pub fn g() { crate::c::h() }"),
        ("c.rs", "use crate::a; pub fn h() { a::made_by_a_macro() }"),
        ("d.rs", "pub fn x() {}"),
    ];
    let source = |file: &Path| {
        let mut files = files.iter().filter(|(name, _)| Path::new(name) == file);
        files.next().map(|(_, text)| (*text).to_owned())
    };
    let circles = circles(Path::new("lib.rs"), &source).expect("readable");
    let lines: Vec<String> = circles.iter().map(ToString::to_string).collect();
    assert_eq!(
        lines,
        [
            "a circle of 3 files:\n  a.rs -> b.rs: f, g\n  b.rs -> c.rs: h\n  c.rs -> a.rs: made_by_a_macro\n"
        ]
    );
}

#[test]
fn re_exports_are_followed_and_are_no_use() {
    let lib = ("lib.rs", "mod a; mod b; pub use a::A; pub use b::*;");
    let a = ("a.rs", "pub struct A; use crate::B;");
    let red = [lib, a, ("b.rs", "pub struct B(crate::A);")];
    assert_eq!(found(&red), [["a.rs", "b.rs"]]);
    assert_eq!(found(&[lib, a, ("b.rs", "pub struct B;")]), NONE);
    let passed_on = [
        lib,
        a,
        ("b.rs", "pub struct B; pub(crate) use crate::a::A;"),
    ];
    assert_eq!(found(&passed_on), NONE);
}

#[test]
fn a_module_may_use_those_around_it() {
    let lib = ("lib.rs", "mod a; mod b;");
    let parent = (
        "a.rs",
        "mod x; mod y; pub const N: u8 = 1; fn f() { x::g(); y::h() }",
    );
    let child = ("a/x.rs", "use super::{N, y::h}; pub fn g() { h() }");
    let green = [
        lib,
        parent,
        child,
        ("a/y.rs", "pub fn h() { super::N }"),
        ("b.rs", ""),
    ];
    assert_eq!(found(&green), NONE);
    // But not use what uses those.
    let red = [
        lib,
        parent,
        child,
        ("a/y.rs", "pub fn h() { crate::b::B }"),
        ("b.rs", "use crate::a::N;"),
    ];
    assert_eq!(found(&red), [["a/x.rs", "a/y.rs", "a.rs", "b.rs"]]);
    let siblings = [
        lib,
        parent,
        child,
        ("a/y.rs", "pub fn h() { super::x::g() }"),
        ("b.rs", ""),
    ];
    assert_eq!(found(&siblings), [["a/x.rs", "a/y.rs"]]);
}

#[test]
fn tests_do_not_count() {
    let b = ("b.rs", "pub struct B; use crate::a::X;");
    for a in [
        "#[cfg(test)] mod tests { use crate::b::B; }",
        "#[cfg(test)]\n#[expect(dead_code)]\npub(crate) fn f() -> crate::b::B { B }",
        "#[cfg(test)] use crate::b::{B};",
        "#[cfg(test)] const B: u8 = { crate::b::B };",
        "#[cfg(test)] const fn f() { crate::b::B }",
        "#[test] fn f() { crate::b::B }",
        "#[cfg(all(test, unix))] use crate::b::B;",
        "struct S { #[cfg(test)] b: crate::b::B, c: u8 }",
        "impl S { #[cfg(test)] fn f() { crate::b::B } fn g() {} }",
        "/// [`crate::b::B`]\n// crate::b::B\nconst S: &str = \"crate::b::B\";",
    ] {
        let a = format!("{a}\npub const X: u8 = 1;");
        assert_eq!(found(&[LIB, ("a.rs", &a), b]), NONE, "{a}");
        let a = a
            .replace("(test)", "(unix)")
            .replace("#[test]", "")
            .replace("all(test,", "any(not(test),");
        let red = !a.starts_with("///");
        assert_eq!(
            found(&[LIB, ("a.rs", &a), b]).len(),
            usize::from(red),
            "{a}"
        );
    }
    let whole = "#![cfg(test)]\nuse crate::b::B; pub const X: u8 = 1;";
    assert_eq!(found(&[LIB, ("a.rs", whole), b]), NONE);
}

#[test]
fn other_crates_and_cycles_of_imports_do_no_harm() {
    let a = "use std::fmt; use serde_json::json; use fmt::Display as _; use x::x; use crate::b::Y; pub use crate::b::Z;";
    let b = "pub use crate::a::*; use crate::a::Y; pub use crate::a::Z;";
    assert_eq!(found(&[LIB, ("a.rs", a), ("b.rs", b)]), NONE);
    assert_eq!(
        found(&[
            LIB,
            ("a.rs", "use std::b::B; fn f() { b::B }"),
            ("b.rs", "use crate::a::X;")
        ]),
        NONE
    );
}
