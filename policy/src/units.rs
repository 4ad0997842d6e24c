//! Durations, sizes and dates as policy files write them.

/// Reads `90s`, `15m`, `2h` or `7d` as seconds.
pub(crate) fn duration_seconds(text: &str) -> Option<u64> {
    let (number, unit) = split_number(text)?;
    let scale = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return None,
    };
    number.checked_mul(scale)
}

/// Reads `512B`, `64KiB`, `1MiB` or `2GiB` as bytes.
pub(crate) fn size_bytes(text: &str) -> Option<u64> {
    let (number, unit) = split_number(text)?;
    let scale = match unit {
        "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return None,
    };
    number.checked_mul(scale)
}

fn split_number(text: &str) -> Option<(u64, &str)> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at_checked(digits)?;
    if number.starts_with('0') {
        return None;
    }
    Some((number.parse().ok()?, unit))
}

/// Seconds since 1970 UTC at which a day is over (days from civil, proleptic Gregorian calendar).
pub(crate) fn end_of_day_unix(year: u16, month: u8, day: u8) -> i64 {
    let shifted_year = i64::from(year) - i64::from(month <= 2);
    let era = shifted_year.div_euclid(400);
    let year_of_era = shifted_year.rem_euclid(400);
    let month_from_march = (i64::from(month) + 9) % 12;
    let day_of_year = (153 * month_from_march + 2) / 5 + i64::from(day) - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    (era * 146_097 + day_of_era - 719_468 + 1) * 86_400
}

/// The day that is over at `end_unix`, as `YYYY-MM-DD` (civil from days, proleptic Gregorian calendar).
pub(crate) fn last_day(end_unix: i64) -> String {
    let days = (end_unix - 1).div_euclid(86_400) + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_durations_and_sizes_with_units_only() {
        for (text, seconds) in [("90s", 90), ("15m", 900), ("2h", 7200), ("7d", 604_800)] {
            assert_eq!(duration_seconds(text), Some(seconds), "{text}");
        }
        for (text, bytes) in [("512B", 512), ("64KiB", 65_536), ("1MiB", 1_048_576), ("2GiB", 2_147_483_648)]
        {
            assert_eq!(size_bytes(text), Some(bytes), "{text}");
        }
        for text in
            ["", "15", "m", "0s", "01m", "-1s", "1 m", "1.5h", "1M", "1MB", "99999999999999999999s", "1mo"]
        {
            assert_eq!(duration_seconds(text), None, "{text}");
            assert_eq!(size_bytes(text), None, "{text}");
        }
    }

    #[test]
    fn the_day_that_an_end_belongs_to_is_found_again() {
        for (year, month, day) in [(1969, 12, 31), (1970, 1, 1), (2000, 2, 29), (2026, 11, 30), (2100, 3, 1)]
        {
            let end = end_of_day_unix(year, month, day);
            assert_eq!(last_day(end), format!("{year:04}-{month:02}-{day:02}"));
        }
    }

    #[test]
    fn a_day_ends_when_the_next_one_starts() {
        assert_eq!(end_of_day_unix(1969, 12, 31), 0);
        assert_eq!(end_of_day_unix(1970, 1, 1), 86_400);
        assert_eq!(end_of_day_unix(2000, 2, 29), 951_868_800);
        assert_eq!(end_of_day_unix(2027, 1, 31), 1_801_440_000);
    }
}
