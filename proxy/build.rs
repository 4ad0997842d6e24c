//! Gives the program an unwinder of its own instead of libgcc's shared one, as sandboxd has: a library less to find and to bind at each
//! start, and one that asks the processor a dozen questions, each of which costs microseconds where processors are emulated.

use std::error::Error;
use std::path::Path;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_ENV")? != "gnu" {
        return Ok(());
    }
    let folder = Path::new(&std::env::var("OUT_DIR")?).join("link");
    std::fs::create_dir_all(&folder)?;
    // The standard library asks for the shared one by this name; the compiler's static halves of it are always there.
    std::fs::write(folder.join("libgcc_s.a"), "GROUP ( -lgcc_eh -lgcc )\n")?;
    println!("cargo:rustc-link-arg-bins=-L{}", folder.display());
    Ok(())
}
