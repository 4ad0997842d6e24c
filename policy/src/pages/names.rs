//! E02: names and references.

use super::files::GOOD;
use super::{Example, Page};
use crate::Code;

pub(super) const PAGES: &[Page] = &[
    Page {
        code: Code::BadName,
        number: 201,
        why: "Names stand in audit records, rule ids and command lines, where such a character separates.",
        example: Example::File(
            r#"
[api.shop]
origins = ["https://shop.example"]

[grant."read orders"]
callers = ["bot"]

[[grant."read orders".allow]]
api = "shop"
routes = ["GET /orders/{int}"]
"#,
        ),
        mend: "Start with a letter or digit and use letters, digits, `-`, `_` and `.`; at most 64 characters.",
        mended: r#"
[api.shop]
origins = ["https://shop.example"]

[grant.read-orders]
callers = ["bot"]

[[grant.read-orders.allow]]
api = "shop"
routes = ["GET /orders/{int}"]
"#,
    },
    Page {
        code: Code::DuplicateDefinition,
        number: 202,
        why: "Which of the two holds would depend on the order of the files.",
        example: Example::File(
            r#"
[api.shop]
origins = ["https://shop.example"]

[api.shop]
origins = ["https://other.example"]

[grant.orders]
callers = ["bot"]

[[grant.orders.allow]]
api = "shop"
routes = ["GET /orders/{int}"]
"#,
        ),
        mend: "Rename one of them, or merge them by hand. Definitions of several files are never merged.",
        mended: GOOD,
    },
    Page {
        code: Code::UnknownReference,
        number: 203,
        why: "A rule for an API that is not there allows nothing, and one for a credential that is not there would send none.",
        example: Example::File(
            r#"
[api.shop]
origins = ["https://shop.example"]

[grant.orders]
callers = ["bot"]

[[grant.orders.allow]]
api = "shop"
routes = ["GET /orders/{int}"]

[[grant.orders.allow]]
api = "shpo"
routes = ["GET /items"]
"#,
        ),
        mend: "Correct the name, or define it in a file of the folder.",
        mended: r#"
[api.shop]
origins = ["https://shop.example"]

[grant.orders]
callers = ["bot"]

[[grant.orders.allow]]
api = "shop"
routes = ["GET /orders/{int}", "GET /items"]
"#,
    },
    Page {
        code: Code::UnusedCredential,
        number: 204,
        why: "The broker would read a secret that it does not need.",
        example: Example::File(
            r#"
[credential.shop]
kind = "bearer"
token = { file = "/etc/freeboard/secrets/shop" }

[api.shop]
origins = ["https://shop.example"]

[grant.orders]
callers = ["bot"]

[[grant.orders.allow]]
api = "shop"
routes = ["GET /orders/{int}"]
"#,
        ),
        mend: "Name it in an API, or remove it.",
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
routes = ["GET /orders/{int}"]
"#,
    },
    Page {
        code: Code::UnusedApi,
        number: 205,
        why: "Nothing can be called there; perhaps a rule names another API than it means.",
        example: Example::File(
            r#"
[api.shop]
origins = ["https://shop.example"]

[api.stock]
origins = ["https://stock.example"]

[grant.orders]
callers = ["bot"]

[[grant.orders.allow]]
api = "shop"
routes = ["GET /orders/{int}"]
"#,
        ),
        mend: "Write a rule for it, or remove it.",
        mended: GOOD,
    },
];
