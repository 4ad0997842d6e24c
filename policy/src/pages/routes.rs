//! E04: route lines.

use super::{Example, Page};
use crate::Code;

/// A policy with one route line, which is what a page is about.
macro_rules! with_route {
    ($route:literal) => {
        concat!(
            "\n[api.shop]\norigins = [\"https://shop.example\"]\n\n[grant.orders]\ncallers = [\"bot\"]\n\n[[grant.orders.allow]]\napi = \"shop\"\nroutes = ['",
            $route,
            "']\n"
        )
    };
}

pub(super) const PAGES: &[Page] = &[
    Page {
        code: Code::BadRoute,
        number: 401,
        why: "A line that could be read in two ways would allow in one of them what nobody meant.",
        example: Example::File(with_route!("GET /orders//{int}")),
        mend: "A line is `METHODS PATH` or `METHODS PATH?QUERY`. Write the path as requests have it once they are in canonical form: no empty or dot segments, no `;`, no backslash; other characters escaped.",
        mended: with_route!("GET /orders/{int}"),
    },
    Page {
        code: Code::UnknownMethod,
        number: 402,
        why: "Methods are compared letter by letter, so a misspelt one never matches.",
        example: Example::File(with_route!("GTE /orders/{int}")),
        mend: "Correct the name. A method of your own API that no registry has can stay.",
        mended: with_route!("GET /orders/{int}"),
    },
    Page {
        code: Code::ForbiddenMethod,
        number: 403,
        why: "CONNECT opens a tunnel that nobody looks into; TRACE and TRACK send back the request with the credential in it.",
        example: Example::File(with_route!("TRACE /orders/{int}")),
        mend: "Leave it out. `*` does not include it.",
        mended: with_route!("GET /orders/{int}"),
    },
    Page {
        code: Code::NotAType,
        number: 404,
        why: "`{integer}` would be a plain name: it would match any text, not only numbers.",
        example: Example::File(with_route!("GET /orders/{integer}")),
        mend: "Write the type (`int`, `uuid`, `hex`, `slug`, `date`, `any`), or a name that does not look like one.",
        mended: with_route!("GET /orders/{int}"),
    },
    Page {
        code: Code::BadRegex,
        number: 405,
        why: "Expressions are compiled when the policy is loaded, so that no request can make one slow. Look-around and back references cannot be.",
        example: Example::File(with_route!("GET /orders/{re:(?=a)[a-z]+}")),
        mend: "Use a simpler expression. It always matches the whole text; anchors are not needed.",
        mended: with_route!("GET /orders/{re:a[a-z]*}"),
    },
];
