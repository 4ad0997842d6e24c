//! `config.md`: every option of freeboard.toml.

use freeboard_proxy::config::options::{OPTIONS, RENAMED, Standard};

use crate::NOTICE;
use crate::schema::rows;
use crate::source::cell;

pub(crate) fn page() -> String {
    let mut page = format!(
        "{NOTICE}\n# Configuration\n\n\
         One file, `freeboard.toml`, serves both daemons: `/etc/freeboard/freeboard.toml` as root, `$XDG_CONFIG_HOME/freeboard/freeboard.toml` otherwise. \
         Flags win over the file, the file over defaults; `freeboard serve --print-config` shows every value with where it came from. \
         An unknown option is a mistake, with its place.\n\n\
         ## `[broker]`\n\n| option | value | default | what it does | why, and what goes wrong |\n|---|---|---|---|---|\n"
    );
    for option in OPTIONS {
        page.push_str(&format!(
            "| `{}` | {} | {} | {} | {} |\n",
            option.key,
            cell(&option.kind.words()),
            default(option.standard),
            cell(option.what),
            cell(option.why)
        ));
    }
    page.push_str(TABLES);
    page.push_str("\n## Former and mistaken names\n\n| written | is called |\n|---|---|\n");
    for (old, new) in RENAMED {
        page.push_str(&format!("| `{old}` | `{new}` |\n"));
    }
    let schema = schemars::schema_for!(freeboard_sandboxd::config::Schema).to_value();
    page.push_str("\n## `[sandboxd]`\n\n| option | type | needed | what it does |\n|---|---|---|---|\n");
    page.push_str(&rows(&schema, &schema, &[]));
    page
}

/// The parts of `[broker]` that are tables.
const TABLES: &str = r#"
### `[broker.hosts]`

Addresses of names that the host's resolver is not asked for. They are checked like all others: a private address
needs the API's `addresses`.

```toml
[broker.hosts]
"api.internal" = ["10.0.0.7"]
```

### `[[broker.explicit_run]]`

A run that has no gate, for programs on this host that use the proxy of `explicit_listen`. It is known by its token only, its
tier is `process`, nothing measured it, and nothing but its own goodwill sends its traffic here: not a boundary. The ttl of its
grants counts from the start of the broker.

```toml
[[broker.explicit_run]]
id = "ci-1"                                  # letters, digits, - and _
caller = "ci"
grants = ["triage"]
token_sha256_file = "/etc/freeboard/ci-1.sha256"   # printf %s TOKEN | sha256sum
```

The program then uses `http://ci-1:TOKEN@127.0.0.1:3128` as its proxy.

### The guard

With `guard_listen`, `guard_certificate` and `guard_key`, sandboxes on other machines reach the broker by an HTTPS proxy: CONNECT, and absolute-form
targets, inside of TLS. Each run proves itself with `Proxy-Authorization: Bearer RUN.TOKEN`, or as the user `RUN` with the password `TOKEN`; whoever opened the run's
gate on the control socket asks for the token there. The same token opens the explicit proxy. It is good for that run only and as long as the run lasts, and goes no further than the broker.
"#;

fn default(standard: Standard) -> String {
    match standard {
        Standard::Fixed(text) => format!("`{text}`"),
        Standard::Config(below) => {
            format!("`/etc/freeboard/{below}` or `$XDG_CONFIG_HOME/freeboard/{below}`")
        }
        Standard::State(below) => {
            format!("`/var/lib/freeboard/{below}` or `$XDG_STATE_HOME/freeboard/{below}`")
        }
        Standard::Runtime(below) => {
            format!("`/run/freeboard/{below}` or `$XDG_RUNTIME_DIR/freeboard/{below}`")
        }
    }
}
