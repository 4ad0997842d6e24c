//! Amounts with units, as people write them: `64MiB`, `10s`.

use std::time::Duration;

/// Reads `64MiB`, `512KiB`, `1GiB`, `100B`. Powers of 1024 only: `MB` means different things to different people.
pub fn bytes(text: &str) -> Option<u64> {
    let (number, unit) = split(text)?;
    let factor = match unit {
        "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return None,
    };
    number.checked_mul(factor)
}

/// Reads `250ms`, `10s`, `5m`, `2h`, `1d`.
pub fn time(text: &str) -> Option<Duration> {
    let (number, unit) = split(text)?;
    let seconds = match unit {
        "ms" => return Some(Duration::from_millis(number)),
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return None,
    };
    number.checked_mul(seconds).map(Duration::from_secs)
}

fn split(text: &str) -> Option<(u64, &str)> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at_checked(digits)?;
    Some((number.parse().ok()?, unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_amounts_with_units_only() {
        assert_eq!(bytes("64MiB"), Some(64 << 20));
        assert_eq!(bytes("0B"), Some(0));
        assert_eq!(time("250ms"), Some(Duration::from_millis(250)));
        assert_eq!(time("2h"), Some(Duration::from_secs(7200)));
        for wrong in
            ["", "64", "MiB", "64 MiB", "-1MiB", "64MB", "1.5MiB", "99999999999999999999B", "17179869184GiB"]
        {
            assert_eq!(bytes(wrong), None, "{wrong}");
        }
        for wrong in ["", "10", "s", "10 s", "-1s", "1.5s", "10sec"] {
            assert_eq!(time(wrong), None, "{wrong}");
        }
    }
}
