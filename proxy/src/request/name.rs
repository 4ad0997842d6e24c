//! What a header field is to us. One table for requests and responses of every protocol.

/// The roles that field names have. Everything else is `Ordinary` and passes as it came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Ordinary,
    Host,
    ContentLength,
    TransferEncoding,
    Connection,
    /// Concerns one hop only (RFC 9110 7.6.1): never forwarded.
    Hop,
    ProxyAuthorization,
    Te,
    Upgrade,
    Expect,
    /// Credentials that a guest brings: dropped where the API has a credential of ours.
    GuestCredential,
    /// Would make an upstream see another method than the one decided on (ATTACKS A40): never forwarded.
    MethodOverride,
    /// Would make an upstream see another path than the one decided on: never forwarded.
    TargetOverride,
    /// Says where a request came from: a guest's word for it is worth nothing, ours would tell about the host.
    Forwarded,
    /// Part of the websocket handshake.
    Websocket,
    MaxForwards,
    /// Offers another way to the host that would not pass through us.
    AltSvc,
    SetCookie,
    /// A name that differs from a framing or routing name in `_` only: CGI-style upstreams read it as that
    /// one (ATTACKS B21). Never forwarded.
    Lookalike,
}

/// The longest name that has a role.
const LONGEST: usize = 32;

/// Which role `name` has, whatever its case.
pub fn role(name: &str) -> Role {
    let mut lower = [0_u8; LONGEST];
    let Some(lower) = lower.get_mut(..name.len()) else { return Role::Ordinary };
    let mut underscore = false;
    for (place, byte) in lower.iter_mut().zip(name.bytes()) {
        underscore |= byte == b'_';
        *place = if byte == b'_' { b'-' } else { byte.to_ascii_lowercase() };
    }
    match known(lower) {
        Role::Ordinary => Role::Ordinary,
        _ if underscore => Role::Lookalike,
        role => role,
    }
}

fn known(lower: &[u8]) -> Role {
    match lower {
        b"host" => Role::Host,
        b"content-length" => Role::ContentLength,
        b"transfer-encoding" => Role::TransferEncoding,
        b"connection" => Role::Connection,
        b"keep-alive"
        | b"trailer"
        | b"http2-settings"
        | b"proxy-connection"
        | b"proxy-authenticate"
        | b"proxy-authentication-info"
        | b"proxy-features"
        | b"proxy-instruction"
        | b"proxy-status" => Role::Hop,
        b"proxy-authorization" => Role::ProxyAuthorization,
        b"te" => Role::Te,
        b"upgrade" => Role::Upgrade,
        b"expect" => Role::Expect,
        b"authorization" | b"x-api-key" | b"api-key" | b"x-auth-token" | b"private-token" => {
            Role::GuestCredential
        }
        b"x-http-method-override" | b"x-http-method" | b"x-method-override" => Role::MethodOverride,
        b"x-original-url" | b"x-rewrite-url" | b"x-original-uri" | b"x-forwarded-prefix" => {
            Role::TargetOverride
        }
        b"forwarded"
        | b"via"
        | b"x-real-ip"
        | b"x-client-ip"
        | b"true-client-ip"
        | b"cf-connecting-ip"
        | b"x-cluster-client-ip"
        | b"x-host" => Role::Forwarded,
        b"sec-websocket-key" | b"sec-websocket-version" | b"sec-websocket-accept" => Role::Websocket,
        b"max-forwards" => Role::MaxForwards,
        b"alt-svc" => Role::AltSvc,
        b"set-cookie" | b"set-cookie2" => Role::SetCookie,
        _ if lower.starts_with(b"x-forwarded-") => Role::Forwarded,
        _ => Role::Ordinary,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a40_b21_case_and_underscores_do_not_hide_a_name() {
        assert_eq!(role("Content-LENGTH"), Role::ContentLength);
        assert_eq!(role("Content_Length"), Role::Lookalike);
        assert_eq!(role("X_HTTP-Method_Override"), Role::Lookalike);
        assert_eq!(role("x-http-method-OVERRIDE"), Role::MethodOverride);
        assert_eq!(role("X-Forwarded-Anything"), Role::Forwarded);
        assert_eq!(role("x_custom_name"), Role::Ordinary);
        assert_eq!(role("a-name-that-is-longer-than-any-that-has-a-role"), Role::Ordinary);
        assert_eq!(role("Set-Cookie"), Role::SetCookie);
    }
}
