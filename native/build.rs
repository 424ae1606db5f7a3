//! Chooses the linker options of the module.

use std::env;

fn main() {
    // Link the exception handling of `libgcc_s.so` statically, because Envoy's distroless image
    // lacks this library.
    println!("cargo::rustc-link-lib=static:-bundle=gcc_eh");
    // Let unit tests link without Envoy: they do not call its functions. Release builds configure
    // another linker, which does not support this option.
    if env::var_os("RUSTC_LINKER").is_none() {
        println!("cargo::rustc-link-arg=-Wl,--unresolved-symbols=ignore-all");
    }
    println!("cargo::rerun-if-changed=build.rs");
}
