//! Times of the week in which a grant works, in UTC: `Mon-Fri 08:00-18:00`.

use std::fmt;

/// Days and minutes of the day, from one until before the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Window {
    /// One bit a day, Monday first.
    days: u8,
    from_minute: u16,
    to_minute: u16,
}

const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
const MINUTES_PER_DAY: u16 = 24 * 60;

impl Window {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (days, times) = text.split_once(' ')?;
        let (from, to) = times.split_once('-')?;
        let window = Self { days: self::days(days)?, from_minute: minute(from)?, to_minute: minute(to)? };
        (window.from_minute < window.to_minute).then_some(window)
    }

    /// Minute of the day at which it opens.
    pub(crate) const fn opens(self) -> u16 {
        self.from_minute
    }

    /// Whether the window is open at this second (since 1970 UTC, a Thursday).
    pub fn is_open(&self, now_unix: i64) -> bool {
        let day = (now_unix.div_euclid(86_400) + 3).rem_euclid(7);
        let minute = now_unix.rem_euclid(86_400) / 60;
        self.days & (1 << day) != 0
            && (i64::from(self.from_minute)..i64::from(self.to_minute)).contains(&minute)
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let days = DAYS.iter().enumerate().filter(|(at, _)| self.days & (1 << at) != 0);
        let days: Vec<&str> = days.map(|(_, day)| *day).collect();
        let time = |minute: u16| format!("{:02}:{:02}", minute / 60, minute % 60);
        write!(f, "{} {}-{}", days.join(","), time(self.from_minute), time(self.to_minute))
    }
}

/// `Mon`, `Mon-Fri`, `Mon,Wed-Fri`.
fn days(text: &str) -> Option<u8> {
    let day = |text: &str| DAYS.iter().position(|day| *day == text);
    let mut bits = 0_u8;
    for part in text.split(',') {
        let (first, last) = match part.split_once('-') {
            Some((first, last)) => (day(first)?, day(last)?),
            None => (day(part)?, day(part)?),
        };
        if first > last {
            return None;
        }
        for at in first..=last {
            bits |= 1 << at;
        }
    }
    Some(bits)
}

/// `HH:MM`, up to `24:00`.
fn minute(text: &str) -> Option<u16> {
    let (hour, minute) = text.split_once(':')?;
    let number = |text: &str| {
        let plain = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<u16>().ok().filter(|_| plain)
    };
    let (hour, minute) = (number(hour)?, number(minute)?);
    let all = hour * 60 + minute;
    (minute < 60 && all <= MINUTES_PER_DAY).then_some(all)
}

#[cfg(test)]
mod tests {
    use super::Window;

    #[test]
    fn a_window_is_open_from_its_first_to_before_its_last_minute() {
        let week = Window::parse("Mon-Fri 08:00-18:00").unwrap();
        // 2027-01-29 is a Friday.
        let friday = 1_801_180_800;
        for (second, open) in [
            (friday + 8 * 3600, true),
            (friday + 8 * 3600 - 1, false),
            (friday + 18 * 3600 - 1, true),
            (friday + 18 * 3600, false),
            (friday + 86_400 + 9 * 3600, false),
            (friday + 3 * 86_400 + 9 * 3600, true),
            (-86_400 + 9 * 3600, true),
        ] {
            assert_eq!(week.is_open(second), open, "{second}");
        }
        assert!(Window::parse("Sat,Sun 00:00-24:00").unwrap().is_open(friday + 86_400));
    }

    #[test]
    fn only_whole_forms_are_read() {
        assert_eq!(
            Window::parse("Mon-Wed,Fri 08:00-18:30").unwrap().to_string(),
            "Mon,Tue,Wed,Fri 08:00-18:30"
        );
        for text in [
            "",
            "Mon",
            "Mon 8:00-18:00",
            "mon 08:00-18:00",
            "Fri-Mon 08:00-18:00",
            "Mon 18:00-08:00",
            "Mon 08:00-08:00",
            "Mon 08:60-09:00",
            "Mon 08:00-24:01",
            "Mon  08:00-18:00",
            "Mon 08:00-18:00 CET",
        ] {
            assert_eq!(Window::parse(text), None, "{text}");
        }
    }
}
