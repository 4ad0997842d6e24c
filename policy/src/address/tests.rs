use std::net::IpAddr;

use super::{AddressClass, AddressRange, AddressRangeError, allowed, classify};

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn ranges(texts: &[&str]) -> Vec<AddressRange> {
    texts.iter().map(|text| AddressRange::parse(text).unwrap()).collect()
}

#[test]
fn d09_classifies_every_special_range() {
    for (text, class) in [
        ("1.1.1.1", AddressClass::Public),
        ("2606:4700::1111", AddressClass::Public),
        ("0.0.0.0", AddressClass::Unspecified),
        ("0.1.2.3", AddressClass::Unspecified),
        ("::", AddressClass::Unspecified),
        ("127.0.0.1", AddressClass::Loopback),
        ("127.255.255.255", AddressClass::Loopback),
        ("::1", AddressClass::Loopback),
        ("10.0.0.5", AddressClass::Private),
        ("172.15.255.255", AddressClass::Public),
        ("172.16.0.0", AddressClass::Private),
        ("172.31.255.255", AddressClass::Private),
        ("172.32.0.0", AddressClass::Public),
        ("192.168.1.1", AddressClass::Private),
        ("fd00::1", AddressClass::Private),
        ("fec0::1", AddressClass::Private),
        ("100.64.0.1", AddressClass::Shared),
        ("100.127.255.255", AddressClass::Shared),
        ("100.128.0.0", AddressClass::Public),
        ("169.254.1.1", AddressClass::LinkLocal),
        ("fe80::1", AddressClass::LinkLocal),
        ("198.18.0.1", AddressClass::Documentation),
        ("198.20.0.0", AddressClass::Public),
        ("192.0.2.1", AddressClass::Documentation),
        ("2001:db8::1", AddressClass::Documentation),
        ("224.0.0.1", AddressClass::Multicast),
        ("255.255.255.255", AddressClass::Multicast),
        ("ff02::1", AddressClass::Multicast),
        ("240.0.0.1", AddressClass::Reserved),
        ("100::1", AddressClass::Reserved),
    ] {
        assert_eq!(classify(ip(text)), class, "{text}");
    }
}

#[test]
fn d10_never_dials_a_metadata_address_whatever_the_policy_names() {
    let wide = ranges(&["169.254.0.0/16", "100.64.0.0/10", "fd00::/8", "168.0.0.0/8", "192.0.0.0/24"]);
    for text in [
        "169.254.169.254",
        "fd00:ec2::254",
        "100.100.100.200",
        "168.63.129.16",
        "192.0.0.192",
        "::ffff:169.254.169.254",
        "64:ff9b::a9fe:a9fe",
        "2002:a9fe:a9fe::",
        "2001:0:0:0:0:0:5601:5601",
    ] {
        assert_eq!(allowed(ip(text), &wide), Err(AddressClass::Metadata), "{text}");
    }
    assert_eq!(allowed(ip("169.254.1.1"), &wide), Ok(()));
    assert_eq!(allowed(ip("fd00:ec2::253"), &wide), Ok(()));
}

#[test]
fn a39_unwraps_every_ipv4_in_ipv6_form() {
    for (text, class) in [
        ("::ffff:127.0.0.1", AddressClass::Loopback),
        ("::127.0.0.1", AddressClass::Loopback),
        ("64:ff9b::7f00:1", AddressClass::Loopback),
        ("64:ff9b::a00:1", AddressClass::Private),
        ("64:ff9b:1::a00:1", AddressClass::Private),
        ("2002:7f00:1::", AddressClass::Loopback),
        ("2001:0:1:2:3:4:80ff:fffe", AddressClass::Loopback),
        ("2001:470::5efe:10.0.0.1", AddressClass::Private),
        ("::ffff:0:10.0.0.1", AddressClass::Private),
        ("::ffff:1.1.1.1", AddressClass::Public),
        ("64:ff9b::101:101", AddressClass::Public),
        ("2002:101:101::", AddressClass::Tunnel),
        ("64:ff9b:1::101:101", AddressClass::Tunnel),
    ] {
        assert_eq!(classify(ip(text)), class, "{text}");
    }
}

#[test]
fn private_addresses_need_a_range_that_holds_them() {
    let ten = ranges(&["10.1.0.0/16"]);
    assert_eq!(allowed(ip("10.1.2.3"), &ten), Ok(()));
    assert_eq!(allowed(ip("::ffff:10.1.2.3"), &ten), Ok(()));
    assert_eq!(allowed(ip("10.2.0.0"), &ten), Err(AddressClass::Private));
    assert_eq!(allowed(ip("10.1.2.3"), &[]), Err(AddressClass::Private));
    assert_eq!(allowed(ip("8.8.8.8"), &ten), Ok(()));
}

#[test]
fn loopback_needs_a_range_that_is_loopback_only() {
    assert_eq!(allowed(ip("127.0.0.1"), &[]), Err(AddressClass::Loopback));
    assert_eq!(allowed(ip("127.0.0.1"), &ranges(&["127.0.0.0/8"])), Ok(()));
    assert_eq!(allowed(ip("127.0.0.1"), &ranges(&["127.0.0.1"])), Ok(()));
    assert_eq!(allowed(ip("127.0.0.2"), &ranges(&["127.0.0.1/32"])), Err(AddressClass::Loopback));
    assert_eq!(allowed(ip("::1"), &ranges(&["::1/128"])), Ok(()));
}

#[test]
fn g10_refuses_ranges_that_no_policy_may_name() {
    for text in ["0.0.0.0/0", "::/0", "10.0.0.0/7", "8.0.0.0/5", "2000::/3"] {
        assert!(matches!(AddressRange::parse(text), Err(AddressRangeError::TooWide(_))), "{text}");
    }
    for text in ["0.0.0.0/8", "0.0.0.0", "::", "::/8", "224.0.0.0/8", "169.254.169.254", "fd00:ec2::254/128"]
    {
        assert!(matches!(AddressRange::parse(text), Err(AddressRangeError::Never(..))), "{text}");
    }
    for text in ["::ffff:0:0/96", "::ffff:127.0.0.1", "64:ff9b::/96", "2002:a00::/24"] {
        assert!(matches!(AddressRange::parse(text), Err(AddressRangeError::Embedded(_))), "{text}");
    }
    for text in ["10.0.0.1/8", "fd00::1/64"] {
        assert!(matches!(AddressRange::parse(text), Err(AddressRangeError::HostBits(..))), "{text}");
    }
    for text in [
        "",
        "10",
        "10.0.0.0/33",
        "10.0.0.0/08",
        "10.0.0.0/+8",
        "10.0.0.0/",
        "010.0.0.0/8",
        "x/8",
        "fe80::1%eth0",
    ] {
        assert!(matches!(AddressRange::parse(text), Err(AddressRangeError::Malformed(_))), "{text}");
    }
    assert_eq!(AddressRange::parse("10.0.0.0/8").unwrap().to_string(), "10.0.0.0/8");
    assert_eq!(AddressRange::parse("fd12::/16").unwrap().to_string(), "fd12::/16");
}
