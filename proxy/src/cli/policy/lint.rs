//! `freeboard policy lint`: what a policy opens, for people who look after it.

use clap::Args;

use super::source::{Source, source};
use super::{Format, load, now_unix, unloaded};
use crate::cli::{Exit, exit, terminal};

#[derive(Debug, Args)]
pub(super) struct Lint {
    /// Folder of policy files, one file, `-`, or git:REV[:PATH]
    #[arg(value_name = "FOLDER", value_parser = source)]
    folder: Source,
    /// Report what the policy opens; the only report there is
    #[arg(long, required = true)]
    risk: bool,
    /// Grants that end within this many days end soon
    #[arg(long, value_name = "DAYS", default_value_t = 30)]
    soon: u16,
    /// The day to count from, YYYY-MM-DD [default: today]
    #[arg(long, value_name = "DAY", value_parser = day)]
    today: Option<i64>,
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

/// Midnight at the start of the day, UTC.
fn day(text: &str) -> Result<i64, String> {
    let wanted = || "a day is YYYY-MM-DD".to_owned();
    let date: jiff::civil::Date = text.parse().map_err(|_| wanted())?;
    let midnight = date.at(0, 0, 0, 0).to_zoned(jiff::tz::TimeZone::UTC).map_err(|_| wanted())?;
    Ok(midnight.timestamp().as_second())
}

impl Lint {
    pub(super) fn run(self) -> Exit {
        let policy = match load(&self.folder) {
            Ok((_, loaded)) => loaded.policy,
            Err(why) => return unloaded(&why),
        };
        let risks = policy.risks(self.today.unwrap_or_else(now_unix), i64::from(self.soon));
        match self.format {
            Format::Text => terminal::print(&risks.render()),
            Format::Json => match serde_json::to_string(&risks) {
                Ok(text) => terminal::print(&text),
                Err(error) => exit::report(Exit::System, &error),
            },
        }
    }
}
