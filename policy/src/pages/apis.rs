//! E03: APIs and credentials.

use super::files::GOOD;
use super::{Example, Page};
use crate::Code;

/// A policy with one API, whose definition is what a page is about.
macro_rules! with_api {
    ($api:literal) => {
        concat!(
            "\n[api.shop]\n",
            $api,
            "\n\n[grant.orders]\ncallers = [\"bot\"]\n\n[[grant.orders.allow]]\napi = \"shop\"\nroutes = [\"GET /orders/{int}\"]\n"
        )
    };
}

/// A GitHub App and the routes of its API, which are what a page is about.
macro_rules! with_app {
    ($reach:literal, $routes:literal) => {
        concat!(
            "\n[credential.app]\nkind = \"github-app\"\napp_id = 12345\nprivate_key = { file = \"/etc/freeboard/keys/app.pem\" }\n",
            $reach,
            "\n\n[api.github]\norigins = [\"https://api.github.com\"]\ncredential = \"app\"\n\n[grant.triage]\ncallers = [\"bot\"]\n\n[[grant.triage.allow]]\napi = \"github\"\nroutes = [",
            $routes,
            "]\n"
        )
    };
}

pub(super) const PAGES: &[Page] = &[
    Page {
        code: Code::BadOrigin,
        number: 301,
        why: "Requests and credentials go over verified TLS to a host by its name, and paths are matched by route lines.",
        example: Example::File(with_api!(r#"origins = ["http://shop.example/v1"]"#)),
        mend: "Write `https://HOST` or `https://HOST:PORT`; put the path into the route lines.",
        mended: GOOD,
    },
    Page {
        code: Code::WildcardHost,
        number: 302,
        why: "The credential would be sent to hosts that nobody reviewed, also to ones that do not exist yet.",
        example: Example::File(with_api!(r#"origins = ["https://*.shop.example"]"#)),
        mend: "Name each host.",
        mended: with_api!(r#"origins = ["https://eu.shop.example", "https://us.shop.example"]"#),
    },
    Page {
        code: Code::MetadataHost,
        number: 303,
        why: "It hands out the credentials of the broker's own host to whoever asks.",
        example: Example::File(with_api!(r#"origins = ["https://metadata.google.internal"]"#)),
        mend: "Remove it. It can never be granted; use a credential of the kind that the cloud's API takes.",
        mended: GOOD,
    },
    Page {
        code: Code::BadAlias,
        number: 304,
        why: "A guest that asks for the alias must reach one origin, whichever grant it has.",
        example: Example::File(with_api!("origins = [\"https://shop.example\"]\nhidden = true")),
        mend: "Give a hidden API an alias of its own, a host name that no other API has. An API with several origins has none.",
        mended: with_api!("origins = [\"https://shop.example\"]\nalias = \"shop.internal\"\nhidden = true"),
    },
    Page {
        code: Code::OriginConflict,
        number: 305,
        why: "Both use the same connection, so what one trusts, the other trusts.",
        example: Example::File(
            r#"
[api.shop]
origins = ["https://shop.example"]
trust = { ca_file = "/etc/freeboard/shop.pem" }

[api.stock]
origins = ["https://shop.example"]

[grant.orders]
callers = ["bot"]

[[grant.orders.allow]]
api = "shop"
routes = ["GET /orders/{int}"]

[[grant.orders.allow]]
api = "stock"
routes = ["GET /stock"]
"#,
        ),
        mend: "Give both the same `trust` and `addresses`. An origin whose connections are passed on unread has no API that takes requests.",
        mended: r#"
[api.shop]
origins = ["https://shop.example"]
trust = { ca_file = "/etc/freeboard/shop.pem" }

[api.stock]
origins = ["https://shop.example"]
trust = { ca_file = "/etc/freeboard/shop.pem" }

[grant.orders]
callers = ["bot"]

[[grant.orders.allow]]
api = "shop"
routes = ["GET /orders/{int}"]

[[grant.orders.allow]]
api = "stock"
routes = ["GET /stock"]
"#,
    },
    Page {
        code: Code::BadAddress,
        number: 306,
        why: "`addresses` opens private ranges to one API. Metadata services are never opened, and public addresses need no permission.",
        example: Example::File(with_api!(
            "origins = [\"https://shop.example\"]\naddresses = [\"169.254.169.254/32\"]"
        )),
        mend: "Name the private range in which the API's addresses are, as narrow as it is known.",
        mended: with_api!("origins = [\"https://shop.example\"]\naddresses = [\"10.20.0.0/16\"]"),
    },
    Page {
        code: Code::LoopbackAddress,
        number: 307,
        why: "Every service that listens on the broker's own host could be called behind this name.",
        example: Example::File(with_api!(
            "origins = [\"https://shop.example\"]\naddresses = [\"127.0.0.1/32\"]"
        )),
        mend: "Leave it out, unless the API is a sidecar or a test on the same host.",
        mended: GOOD,
    },
    Page {
        code: Code::LiteralSecret,
        number: 308,
        why: "Policy files are read by many and kept for ever. The value is not shown, here or in any log.",
        example: Example::File(
            r#"
[credential.shop]
kind = "bearer"
token = "not-a-real-token"

[api.shop]
origins = ["https://shop.example"]
credential = "shop"

[grant.orders]
callers = ["bot"]

[[grant.orders.allow]]
api = "shop"
routes = ["GET /orders/{int}"]
"#,
        ),
        mend: "Change the secret at its issuer, since it was written down, and refer to the new one: `{ file = … }`, `{ env = … }`, `{ exec = […] }` or `{ systemd = … }`.",
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
        code: Code::CredentialSpread,
        number: 309,
        why: "Each of the hosts learns the credential and could use it at the other. Hosts count as related when their last two labels are the same.",
        example: Example::File(
            r#"
[credential.shared]
kind = "bearer"
token = { file = "/etc/freeboard/secrets/shared" }

[api.shop]
origins = ["https://api.shop.example", "https://api.stock.test"]
credential = "shared"

[grant.orders]
callers = ["bot"]

[[grant.orders.allow]]
api = "shop"
routes = ["GET /orders/{int}"]
"#,
        ),
        mend: "Define one credential for each owner of a host.",
        mended: r#"
[credential.shop]
kind = "bearer"
token = { file = "/etc/freeboard/secrets/shop" }

[credential.stock]
kind = "bearer"
token = { file = "/etc/freeboard/secrets/stock" }

[api.shop]
origins = ["https://api.shop.example"]
credential = "shop"

[api.stock]
origins = ["https://api.stock.test"]
credential = "stock"

[grant.orders]
callers = ["bot"]

[[grant.orders.allow]]
api = "shop"
routes = ["GET /orders/{int}"]

[[grant.orders.allow]]
api = "stock"
routes = ["GET /orders/{int}"]
"#,
    },
    Page {
        code: Code::GrantBeyondCredential,
        number: 310,
        why: "A reviewer who reads the route believes that it works, and the API refuses it: the line, or the credential, is not what was meant.",
        example: Example::File(with_app!(
            "repositories = [\"acme/widgets\"]\npermissions = { issues = \"write\" }",
            "\"POST /repos/acme/{repo}/issues\""
        )),
        mend: "Write the route as narrow as the credential, or widen the credential if that is what is meant. Looked at are the repositories and permissions of a GitHub App, scopes that say that they only read, the audience of a token, and the region of an AWS signature.",
        mended: with_app!(
            "repositories = [\"acme/widgets\"]\npermissions = { issues = \"write\" }",
            "\"POST /repos/acme/widgets/issues\""
        ),
    },
    Page {
        code: Code::CredentialBeyondGrants,
        number: 311,
        why: "What no grant needs can only do harm: to whoever gets hold of the token it is worth more than the grants say.",
        example: Example::File(with_app!(
            "repositories = [\"acme/widgets\"]\npermissions = { contents = \"write\", issues = \"write\" }",
            "\"POST /repos/acme/widgets/issues\""
        )),
        mend: "Ask for less. Looked at are the repositories and permissions of a GitHub App, scopes that say that they write, and exchanged tokens without an audience.",
        mended: with_app!(
            "repositories = [\"acme/widgets\"]\npermissions = { issues = \"write\" }",
            "\"POST /repos/acme/widgets/issues\""
        ),
    },
    Page {
        code: Code::BadConnection,
        number: 312,
        why: "The broker does not read what such a connection carries: a route, a condition or a credential would say something that nobody keeps.",
        example: Example::File(
            r#"
[api.db]
tcp = ["db.internal:5432"]
addresses = ["10.20.0.0/16"]

[grant.reports]
callers = ["bot"]

[[grant.reports.allow]]
api = "db"
routes = ["GET /"]
"#,
        ),
        mend: "Leave it out. A rule about connections has `api`, and `approve` or `calls` where they are wanted; `budget` bounds bytes and how many there are at once.",
        mended: r#"
[api.db]
tcp = ["db.internal:5432"]
addresses = ["10.20.0.0/16"]

[grant.reports]
callers = ["bot"]

[[grant.reports.allow]]
api = "db"
"#,
    },
];
