//! What a hardened daemon demands of its configuration. Pure: everything that is amiss is said at once.

use freeboard_policy::Tier;

use super::effective::{Config, Origin};

/// What keeps a hardened daemon from serving; empty when nothing does. `tokens`: callers need one.
pub fn violations(config: &Config, tokens: bool) -> Vec<String> {
    let mut found = Vec::new();
    let mut demand = |holds: bool, text: &str| {
        if !holds {
            found.push(text.to_owned());
        }
    };
    let strong = config.min_isolation.value.is_some_and(|tier| tier >= Tier::Kernel);
    demand(strong, "`min_isolation` is below `kernel`: runs would share this host's kernel");
    demand(tokens, "--danger-without-tokens lets everybody on this host run code");
    demand(config.broker.value.is_some(), "there is no `broker`: what runs try to reach is not recorded");
    demand(
        config.rate_per_minute.value > 0,
        "`rate_per_minute` is 0: one caller may start runs without bound",
    );
    demand(
        config.max_concurrent_per_caller.value < config.places(),
        "`max_concurrent_per_caller` is not below the number of runs at once: one caller may take every place",
    );
    demand(
        config.total_memory_mib.value > 0,
        "`total_memory_mib` is not set: runs may be promised more than there is",
    );
    demand(
        config.max_sessions.value == 0 || config.max_sessions_per_caller.value > 0,
        "`max_sessions_per_caller` is 0: one caller may take every session",
    );
    for (name, from) in [
        ("memory_mib", &config.memory_mib.from),
        ("cpus", &config.cpus.from),
        ("pids", &config.pids.from),
        ("disk_mib", &config.disk_mib.from),
    ] {
        demand(*from != Origin::Default, &format!("`{name}` is not set: choose what one run may use"));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::{Environment, Flags, load};
    use super::*;

    fn config(text: &str) -> Config {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("freeboard.toml");
        std::fs::write(&path, text).unwrap();
        load(&Flags { config: Some(path), ..Flags::default() }, &Environment::default()).unwrap()
    }

    #[test]
    fn everything_that_is_amiss_is_said_at_once() {
        let found =
            violations(&config("[sandboxd]\nrate_per_minute = 0\nmax_sessions_per_caller = 0\n"), false);
        let words = [
            "min_isolation",
            "tokens",
            "broker",
            "rate_per_minute",
            "total_memory_mib",
            "max_sessions_per_caller",
            "memory_mib",
            "cpus",
            "pids",
            "disk_mib",
        ];
        for word in words {
            assert!(found.iter().any(|text| text.contains(word)), "{word}: {found:?}");
        }
        let all = "[sandboxd]\nmin_isolation = \"kernel\"\nbroker = \"/run/c.sock\"\ntotal_memory_mib = 1024\n\
                   memory_mib = 256\ncpus = 1\npids = 64\ndisk_mib = 64\nmax_concurrent_per_caller = 2\n";
        assert_eq!(violations(&config(all), true), Vec::<String>::new());
        let greedy = all.replace("per_caller = 2", "per_caller = 4");
        assert_eq!(violations(&config(&greedy), true).len(), 1, "four places fit into the memory");
    }

    #[test]
    fn memory_lowers_the_number_of_runs() {
        let places = |text: &str| config(&format!("[sandboxd]\nmemory_mib = 256\n{text}")).places();
        assert_eq!(places(""), 8);
        assert_eq!(places("total_memory_mib = 1000"), 3);
        assert_eq!(places("total_memory_mib = 100000"), 8);
        assert_eq!(places("total_memory_mib = 255"), 0);
    }
}
