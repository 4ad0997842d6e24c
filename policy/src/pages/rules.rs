//! E05: rules against each other. E06: cases.

use super::files::GOOD;
use super::{Example, Page};
use crate::Code;

/// A policy with the rules that a page is about.
macro_rules! with_rules {
    ($rules:literal) => {
        concat!(
            "\n[api.shop]\norigins = [\"https://shop.example\"]\n\n[grant.orders]\ncallers = [\"bot\"]\n\n",
            $rules
        )
    };
}

pub(super) const PAGES: &[Page] = &[
    Page {
        code: Code::DuplicateRule,
        number: 501,
        why: "One of the two is usually a mistake for something else. Names of segments do not matter: `{a}` and `{b}` match the same.",
        example: Example::File(with_rules!(
            "[[grant.orders.allow]]\napi = \"shop\"\nroutes = [\"GET /orders/{int}\", \"GET|HEAD /orders/{int}\"]\n"
        )),
        mend: "Remove one of them.",
        mended: GOOD,
    },
    Page {
        code: Code::ShadowedRule,
        number: 502,
        why: "A reviewer who reads the narrow line believes that no more than it is allowed. Rules that a grant inherits are looked at where they are written: a grant that extends another may say more.",
        example: Example::File(with_rules!(
            "[[grant.orders.allow]]\napi = \"shop\"\nroutes = [\"GET /orders/**\", \"GET /orders/{int}\"]\n"
        )),
        mend: "Remove the narrow line, or narrow the wide one if that is what is meant.",
        mended: GOOD,
    },
    Page {
        code: Code::UnreachableRule,
        number: 503,
        why: "Deny wins over allow, whatever the order: the line looks like a permission and is none.",
        example: Example::File(with_rules!(
            "[[grant.orders.allow]]\napi = \"shop\"\nroutes = [\"GET /orders/{int}\", \"DELETE /orders/{int}\"]\n\n[[grant.orders.deny]]\napi = \"shop\"\nroutes = [\"DELETE /**\"]\n"
        )),
        mend: "Remove one of the two, or narrow the deny rule.",
        mended: GOOD,
    },
    Page {
        code: Code::IdleDeny,
        number: 504,
        why: "What no rule allows is denied anyway; perhaps the path of the deny rule is misspelt.",
        example: Example::File(with_rules!(
            "[[grant.orders.allow]]\napi = \"shop\"\nroutes = [\"GET /orders/{int}\"]\n\n[[grant.orders.deny]]\napi = \"shop\"\nroutes = [\"GET /order/7\"]\n"
        )),
        mend: "Correct the path. A deny rule that is meant for runs with another grant beside this one can stay.",
        mended: with_rules!(
            "[[grant.orders.allow]]\napi = \"shop\"\nroutes = [\"GET /orders/{int}\"]\n\n[[grant.orders.deny]]\napi = \"shop\"\nroutes = [\"GET /orders/7\"]\n"
        ),
    },
    Page {
        code: Code::NothingAllowed,
        number: 505,
        why: "A run that names the grant can do nothing with it.",
        example: Example::File(
            r#"
[grant.orders]
callers = ["bot"]
"#,
        ),
        mend: "Write a rule, or remove the grant.",
        mended: GOOD,
    },
    Page {
        code: Code::AmbiguousCredential,
        number: 506,
        why: "Which credential a request gets would depend on the order of rules. It is decided when the policy is loaded, for all grants that one caller can name together.",
        example: Example::File(
            r#"
[credential.reader]
kind = "bearer"
token = { file = "/etc/freeboard/secrets/reader" }

[credential.writer]
kind = "bearer"
token = { file = "/etc/freeboard/secrets/writer" }

[api.read]
origins = ["https://shop.example"]
credential = "reader"

[api.write]
origins = ["https://shop.example"]
credential = "writer"

[grant.orders]
callers = ["bot"]

[[grant.orders.allow]]
api = "read"
routes = ["GET /orders/**"]

[[grant.orders.allow]]
api = "write"
routes = ["GET|POST /orders/{int}"]
"#,
        ),
        mend: "Make the routes disjoint, or use one credential for both APIs.",
        mended: r#"
[credential.reader]
kind = "bearer"
token = { file = "/etc/freeboard/secrets/reader" }

[credential.writer]
kind = "bearer"
token = { file = "/etc/freeboard/secrets/writer" }

[api.read]
origins = ["https://shop.example"]
credential = "reader"

[api.write]
origins = ["https://shop.example"]
credential = "writer"

[grant.orders]
callers = ["bot"]

[[grant.orders.allow]]
api = "read"
routes = ["GET /orders/**"]

[[grant.orders.allow]]
api = "write"
routes = ["POST /orders/{int}"]
"#,
    },
    Page {
        code: Code::WideRule,
        number: 507,
        why: "What the credential can do, the run can do.",
        example: Example::File(
            r#"
[credential.shop]
kind = "bearer"
token = { file = "/etc/freeboard/secrets/shop" }

[api.shop]
origins = ["https://shop.example"]
credential = "shop"

[grant.orders]
callers = ["bot"]

[[grant.orders.allow]]
api = "shop"
routes = ["* /**"]
"#,
        ),
        mend: "List the routes that are needed.",
        mended: r#"
[credential.shop]
kind = "bearer"
token = { file = "/etc/freeboard/secrets/shop" }

[api.shop]
origins = ["https://shop.example"]
credential = "shop"

[grant.orders]
callers = ["bot"]

[[grant.orders.allow]]
api = "shop"
routes = ["GET /orders/**"]
"#,
    },
    Page {
        code: Code::WildcardCaller,
        number: 508,
        why: "Every caller that sandboxd authenticates may use the grant, also ones that are added later.",
        example: Example::File(
            r#"
[api.shop]
origins = ["https://shop.example"]

[grant.orders]
callers = ["*"]

[[grant.orders.allow]]
api = "shop"
routes = ["GET /orders/{int}"]
"#,
        ),
        mend: "Name the callers.",
        mended: GOOD,
    },
    Page {
        code: Code::BadCase,
        number: 601,
        why: "A case that cannot be read tests nothing.",
        example: Example::Cases {
            policy: GOOD,
            cases: r#"
[[case]]
request = "https://shop.example/orders/7"
expect = "allow"
"#,
        },
        mend: "A case is `[[case]]` with `request = \"METHOD URL\"` and `expect = \"allow\"` or `\"refuse\"`. It stands in a file `*.test.toml` beside the policy.",
        mended: GOOD,
    },
];
