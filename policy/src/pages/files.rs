//! E01: files and the shape of what stands in them.

use super::{Example, Page};
use crate::Code;
use crate::limits::FILE_MAX_BYTES;

/// A small policy without a problem.
pub(super) const GOOD: &str = r#"
[api.shop]
origins = ["https://shop.example"]

[grant.orders]
callers = ["bot"]

[[grant.orders.allow]]
api = "shop"
routes = ["GET /orders/{int}"]
"#;

pub(super) const PAGES: &[Page] = &[
    Page {
        code: Code::Empty,
        number: 101,
        why: "A broken copy or an interrupted write looks the same, and everything would be refused without a word.",
        example: Example::File("# everything was moved to another file\n"),
        mend: "Remove the file from the folder, or write its definitions. A folder without any policy file is refused, too.",
        mended: GOOD,
    },
    Page {
        code: Code::TooLarge,
        number: 102,
        why: "A reload would take seconds, and nobody reviews such a file.",
        example: Example::Large {
            says: "A policy file of more than 4 MiB. More than 1,000 files in a folder and more than 100,000 routes are reported in the same way.",
            build: || "#".repeat(FILE_MAX_BYTES + 1),
        },
        mend: "Split the file, use `{int}`, `*` and `**` instead of listing single paths, and check that the folder is the one that is meant.",
        mended: GOOD,
    },
    Page {
        code: Code::Encoding,
        number: 103,
        why: "Text in another encoding has other names in it than the ones that you see.",
        example: Example::Bytes {
            says: "A file that was saved as Latin-1: the `é` of a comment is the single byte `E9`.",
            bytes: b"# caf\xe9\n[api.shop]\norigins = [\"https://shop.example\"]\n",
        },
        mend: "Save the file as UTF-8, with or without a byte order mark.",
        mended: GOOD,
    },
    Page {
        code: Code::Syntax,
        number: 104,
        why: "What a parser makes of the rest of a broken file is a guess. Nothing of it is used. Only the part of the line before its value is shown, since a secret may follow.",
        example: Example::File("\n[api.shop]\norigins = [\"https://shop.example\"\n\n[grant.orders]\n"),
        mend: "Close what was opened. Editors with a TOML plug-in mark the place; `freeboard policy schema` gives them the fields.",
        mended: GOOD,
    },
    Page {
        code: Code::Version,
        number: 105,
        why: "A newer version of the language may give a line another meaning.",
        example: Example::File(
            r#"
version = 2

[api.shop]
origins = ["https://shop.example"]

[grant.orders]
callers = ["bot"]

[[grant.orders.allow]]
api = "shop"
routes = ["GET /orders/{int}"]
"#,
        ),
        mend: "Write `version = 1`, leave it out, or update Freeboard.",
        mended: r#"
version = 1

[api.shop]
origins = ["https://shop.example"]

[grant.orders]
callers = ["bot"]

[[grant.orders.allow]]
api = "shop"
routes = ["GET /orders/{int}"]
"#,
    },
    Page {
        code: Code::UnknownField,
        number: 106,
        why: "A misspelt limit would be no limit.",
        example: Example::File(
            r#"
[api.shop]
origins = ["https://shop.example"]

[grant.orders]
callers = ["bot"]
flor = "kernel"

[[grant.orders.allow]]
api = "shop"
routes = ["GET /orders/{int}"]
"#,
        ),
        mend: "Correct the name. The fields of each table are in the reference of policy files.",
        mended: r#"
[api.shop]
origins = ["https://shop.example"]

[grant.orders]
callers = ["bot"]
floor = "kernel"

[[grant.orders.allow]]
api = "shop"
routes = ["GET /orders/{int}"]
"#,
    },
    Page {
        code: Code::MissingField,
        number: 107,
        why: "No default would be safe to guess.",
        example: Example::File(
            r#"
[api.shop]
origins = ["https://shop.example"]

[grant.orders]
callers = ["bot"]

[[grant.orders.allow]]
api = "shop"
"#,
        ),
        mend: "Add the field; the help shows how it is written.",
        mended: GOOD,
    },
    Page {
        code: Code::WrongType,
        number: 108,
        why: "Text is not turned into numbers, lists or truth values silently.",
        example: Example::File(
            r#"
[api.shop]
origins = ["https://shop.example"]

[grant.orders]
callers = ["bot"]
budget = { calls = "20" }

[[grant.orders.allow]]
api = "shop"
routes = ["GET /orders/{int}"]
"#,
        ),
        mend: "Write a value of the type that the message names.",
        mended: r#"
[api.shop]
origins = ["https://shop.example"]

[grant.orders]
callers = ["bot"]
budget = { calls = 20 }

[[grant.orders.allow]]
api = "shop"
routes = ["GET /orders/{int}"]
"#,
    },
    Page {
        code: Code::EmptyList,
        number: 109,
        why: "Some languages read an empty list as \"none\", others as \"no restriction\".",
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
api = "shop"
routes = []
"#,
        ),
        mend: "Leave the rule out: what no rule allows is denied.",
        mended: GOOD,
    },
    Page {
        code: Code::Repeated,
        number: 110,
        why: "One of the two is usually a mistake for something else.",
        example: Example::File(
            r#"
[api.shop]
origins = ["https://shop.example", "https://shop.example:443"]

[grant.orders]
callers = ["bot"]

[[grant.orders.allow]]
api = "shop"
routes = ["GET /orders/{int}"]
"#,
        ),
        mend: "Write the entry once. Two spellings of one thing, such as a default port, count as the same.",
        mended: GOOD,
    },
    Page {
        code: Code::BadValue,
        number: 111,
        why: "It has the right type, but the field does not know it.",
        example: Example::File(
            r#"
[api.shop]
origins = ["https://shop.example"]

[grant.orders]
callers = ["bot"]
ttl = "15 minutes"

[[grant.orders.allow]]
api = "shop"
routes = ["GET /orders/{int}"]
"#,
        ),
        mend: "Write one of the values that the help names.",
        mended: r#"
[api.shop]
origins = ["https://shop.example"]

[grant.orders]
callers = ["bot"]
ttl = "15m"

[[grant.orders.allow]]
api = "shop"
routes = ["GET /orders/{int}"]
"#,
    },
    Page {
        code: Code::BadAllowance,
        number: 112,
        why: "Only warnings can stay. What is an error would be one at each reload.",
        example: Example::File(
            r#"
[[allow_warning]]
code = "E0401"
reason = "works on my machine"

[api.shop]
origins = ["https://shop.example"]

[grant.orders]
callers = ["bot"]

[[grant.orders.allow]]
api = "shop"
routes = ["GET /orders/{int}"]
"#,
        ),
        mend: "Remove the allowance and mend the error; or correct the code, or the name after `at`.",
        mended: GOOD,
    },
    Page {
        code: Code::UnusedAllowance,
        number: 113,
        why: "The warning is gone, and the next one of its kind would pass unseen.",
        example: Example::File(
            r#"
[[allow_warning]]
code = "E0508"
at = "grant.orders"
reason = "there was a wildcard once"

[api.shop]
origins = ["https://shop.example"]

[grant.orders]
callers = ["bot"]

[[grant.orders.allow]]
api = "shop"
routes = ["GET /orders/{int}"]
"#,
        ),
        mend: "Remove the allowance.",
        mended: GOOD,
    },
];
