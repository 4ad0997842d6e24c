//! E07: what a rule demands beside its routes, and what a grant has from elsewhere.

use super::files::GOOD;
use super::{Example, Page};
use crate::Code;

pub(super) const PAGES: &[Page] = &[
    Page {
        code: Code::BadCondition,
        number: 701,
        why: "A condition that cannot be enforced as it is written would look like protection.",
        example: Example::File(
            r#"
[api.shop]
origins = ["https://shop.example"]

[grant.orders]
callers = ["bot"]

[[grant.orders.allow]]
api = "shop"
routes = ["POST /orders"]
json = { "/amount" = { min = 10, max = 1 } }
"#,
        ),
        mend: "The help says what the field takes; the forms are in the guide, one page for each kind of rule.",
        mended: r#"
[api.shop]
origins = ["https://shop.example"]

[grant.orders]
callers = ["bot"]

[[grant.orders.allow]]
api = "shop"
routes = ["POST /orders"]
json = { "/amount" = { min = 1, max = 10 } }
"#,
    },
    Page {
        code: Code::AmbiguousRule,
        number: 702,
        why: "Which of the two decides would be left to chance; what the stricter one demands could be gone round.",
        example: Example::File(
            r#"
[api.shop]
origins = ["https://shop.example"]

[grant.orders]
callers = ["bot"]

[[grant.orders.allow]]
api = "shop"
routes = ["POST /orders"]
json = { "/amount" = { max = 10 } }

[[grant.orders.allow]]
api = "shop"
routes = ["POST /{part}"]
headers = { x-mode = "test" }
"#,
        ),
        mend: "Make the routes disjoint, or demand something that only one of the two can meet.",
        mended: r#"
[api.shop]
origins = ["https://shop.example"]

[grant.orders]
callers = ["bot"]

[[grant.orders.allow]]
api = "shop"
routes = ["POST /orders"]
json = { "/amount" = { max = 10 } }

[[grant.orders.allow]]
api = "shop"
routes = ["POST /{carts|lists}"]
headers = { x-mode = "test" }
"#,
    },
    Page {
        code: Code::BadExtends,
        number: 703,
        why: "Whoever reads a grant has to open one other at most to know all of it.",
        example: Example::File(
            r#"
[api.shop]
origins = ["https://shop.example"]

[grant.read]
callers = ["bot"]
[[grant.read.allow]]
api = "shop"
routes = ["GET /orders/{int}"]

[grant.write]
callers = ["clerk"]
extends = "read"
[[grant.write.allow]]
api = "shop"
routes = ["POST /orders"]

[grant.remove]
callers = ["manager"]
extends = "write"
[[grant.remove.allow]]
api = "shop"
routes = ["DELETE /orders/{int}"]
"#,
        ),
        mend: "Extend the first grant, and write the rules of the second one out.",
        mended: GOOD,
    },
    Page {
        code: Code::UnusedGroup,
        number: 704,
        why: "A group that no grant uses gives its callers nothing, which is perhaps not what was meant.",
        example: Example::File(
            r#"
[api.shop]
origins = ["https://shop.example"]

[group.clerks]
callers = ["clerk"]

[grant.orders]
callers = ["bot"]

[[grant.orders.allow]]
api = "shop"
routes = ["GET /orders/{int}"]
"#,
        ),
        mend: "Add the group to a grant, or remove it.",
        mended: r#"
[api.shop]
origins = ["https://shop.example"]

[group.clerks]
callers = ["clerk"]

[grant.orders]
callers = ["bot"]
groups = ["clerks"]

[[grant.orders.allow]]
api = "shop"
routes = ["GET /orders/{int}"]
"#,
    },
];
