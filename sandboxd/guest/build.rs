//! Links the program statically: it must start in any root, also one without a C library or with another one.
//!
//! The GNU target's standard library is linked with shared libraries by name. Their static halves are given under these
//! names, to the program alone: the whole workspace could be linked so only by a flag that everybody would have to set.

use std::error::Error;
use std::path::PathBuf;
use std::process::Command;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=build.rs");
    let gnu = std::env::var("CARGO_CFG_TARGET_ENV")? == "gnu";
    let shared =
        !std::env::var("CARGO_CFG_TARGET_FEATURE")?.split(',').any(|feature| feature == "crt-static");
    if !(gnu && shared) {
        return Ok(());
    }
    let Some(library) = static_library() else {
        println!(
            "cargo:warning=there is no static libc: freeboard-guest runs only in roots with this host's libc"
        );
        return Ok(());
    };
    let folder = PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(folder.join("libgcc_s.a"), "GROUP ( -lgcc -lgcc_eh )\n")?;
    std::fs::write(folder.join("libc.a"), format!("GROUP ( {} -lgcc -lgcc_eh )\n", library.display()))?;
    println!("cargo:rustc-link-arg-bins=-L{}", folder.display());
    println!("cargo:rustc-link-arg-bins=-static-pie");
    // A function that may be missing is then simply not there, rather than left to a dynamic linker that never comes.
    println!("cargo:rustc-link-arg-bins=-Wl,-z,nodynamic-undefined-weak");
    Ok(())
}

/// The C compiler's static libc: an absolute path where it has one.
fn static_library() -> Option<PathBuf> {
    let output = Command::new("cc").arg("-print-file-name=libc.a").output().ok()?;
    let path = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim());
    (path.is_absolute() && path.is_file()).then_some(path)
}
