//! What is wrong with policy files: code, severity, place, message, help; as text for people and JSON for tools.

use std::fmt::Write;
use std::sync::Arc;

use serde::Serialize;

/// How bad it is. A policy with errors is not loaded; warnings are reported and the policy is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    Error,
    Warning,
}

/// A place in a file. Lines and columns count from 1, columns in characters.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Place {
    pub file: Arc<str>,
    pub line: u32,
    pub column: u32,
    /// Characters that the caret line marks.
    pub width: u32,
    /// The source line.
    pub text: Arc<str>,
}

impl Place {
    pub(crate) fn start_of(file: &str) -> Self {
        Self { file: Arc::from(file), line: 1, column: 1, width: 1, text: Arc::from("") }
    }

    /// The same place; of its line only what stands before the first `=` is shown, because a secret may follow.
    pub(crate) fn without_values(mut self) -> Self {
        let Some((key, _)) = self.text.split_once('=') else { return self };
        let shown = format!("{key}= …");
        let width = u32::try_from(shown.chars().count()).unwrap_or(u32::MAX);
        self.column = self.column.min(width.max(1));
        self.width = self.width.min((width + 1).saturating_sub(self.column)).max(1);
        self.text = Arc::from(shown);
        self
    }
}

/// Another place that a problem is about, for example the first of two definitions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Related {
    pub place: Place,
    pub message: String,
}

/// One problem of a policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Diagnostic {
    #[serde(flatten, serialize_with = "id_and_words")]
    pub code: Code,
    pub severity: Severity,
    pub message: String,
    /// `None` for problems of the folder as a whole.
    pub place: Option<Place>,
    /// A shortest request that shows the problem: `METHOD URL`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
    pub help: Option<String>,
    pub related: Vec<Related>,
}

impl Diagnostic {
    pub(crate) fn error(code: Code, message: impl Into<String>) -> Self {
        Self::new(code, Severity::Error, message)
    }

    pub(crate) fn warning(code: Code, message: impl Into<String>) -> Self {
        Self::new(code, Severity::Warning, message)
    }

    fn new(code: Code, severity: Severity, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { code, severity, message, place: None, request: None, help: None, related: Vec::new() }
    }

    pub(crate) fn at(mut self, place: Place) -> Self {
        self.place = Some(place);
        self
    }

    pub(crate) fn request(mut self, request: impl Into<String>) -> Self {
        self.request = Some(request.into());
        self
    }

    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    pub(crate) fn related(mut self, place: Place, message: impl Into<String>) -> Self {
        self.related.push(Related { place, message: message.into() });
        self
    }

    /// The problem as a compiler would print it, without colour, ending in a line break.
    pub fn render(&self) -> String {
        let mut out = String::new();
        let severity = match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        let gutter = self.gutter_width();
        line(&mut out, format_args!("{severity}[{}]: {}", self.code.id(), self.message));
        if let Some(place) = &self.place {
            render_place(&mut out, gutter, place);
        }
        for related in &self.related {
            line(&mut out, format_args!("{:gutter$} = {}:", "", related.message));
            render_place(&mut out, gutter, &related.place);
        }
        if let Some(request) = &self.request {
            line(&mut out, format_args!("{:gutter$} = for example: {request}", ""));
        }
        for help in self.help.iter().flat_map(|help| help.lines()) {
            line(&mut out, format_args!("{:gutter$} = help: {help}", ""));
        }
        out
    }

    fn gutter_width(&self) -> usize {
        let places = self.place.iter().chain(self.related.iter().map(|related| &related.place));
        places.map(|place| place.line.to_string().len()).max().unwrap_or(1)
    }
}

/// All problems as text: each rendered, separated by an empty line.
pub fn render_all(diagnostics: &[Diagnostic]) -> String {
    diagnostics.iter().map(Diagnostic::render).collect::<Vec<_>>().join("\n")
}

fn render_place(out: &mut String, gutter: usize, place: &Place) {
    line(out, format_args!("{:gutter$}--> {}:{}:{}", "", place.file, place.line, place.column));
    if place.text.is_empty() {
        return;
    }
    // A tab is one column; printed as one space so that the carets stand under what they mark.
    let text: String = place.text.chars().map(printable).collect();
    let indent = usize::try_from(place.column).unwrap_or(1).saturating_sub(1);
    let carets = "^".repeat(usize::try_from(place.width).unwrap_or(1));
    line(out, format_args!("{:gutter$} |", ""));
    line(out, format_args!("{:>gutter$} | {}", place.line, text.trim_end()));
    line(out, format_args!("{:gutter$} | {:indent$}{carets}", "", ""));
}

/// SECURITY: policy text is printed on an operator's terminal; it must not move the cursor there.
fn printable(character: char) -> char {
    match character {
        '\t' => ' ',
        c if c.is_control() => '\u{fffd}',
        c => c,
    }
}

fn line(out: &mut String, arguments: std::fmt::Arguments<'_>) {
    // Writing to a String cannot fail.
    let _ = out.write_fmt(arguments);
    out.push('\n');
}

/// A code in JSON: `code` is the id that has a page, `name` says it in words.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn id_and_words<S: serde::Serializer>(code: &Code, serializer: S) -> Result<S::Ok, S::Error> {
    use serde::ser::SerializeMap as _;
    let mut map = serializer.serialize_map(Some(2))?;
    map.serialize_entry("code", &code.id())?;
    map.serialize_entry("name", code.code())?;
    map.end()
}

macro_rules! codes {
    ($($(#[doc = $doc:literal])* $variant:ident => $code:literal;)*) => {
        /// Every problem that a policy can have. The code is stable; the doc text is the reference text.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, schemars::JsonSchema)]
        pub enum Code { $($(#[doc = $doc])* #[serde(rename = $code)] $variant,)* }

        impl Code {
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];
            /// The code in words, for example `policy::unknown-field`.
            pub const fn code(self) -> &'static str { match self { $(Self::$variant => $code,)* } }
            /// What it means, for the reference.
            pub const fn meaning(self) -> &'static str { match self { $(Self::$variant => concat!($($doc),*),)* } }
        }
    };
}

codes! {
    /// The folder has no policy file, or a file defines nothing. An empty file is what a broken write leaves behind.
    Empty => "policy::empty";
    /// More files or routes than one policy may have.
    TooLarge => "policy::too-large";
    /// The file is not UTF-8, or too large.
    Encoding => "policy::encoding";
    /// The file is not TOML.
    Syntax => "policy::syntax";
    /// The file is written for another version of the language.
    Version => "policy::version";
    /// A field that this kind of table does not have.
    UnknownField => "policy::unknown-field";
    /// A field that must be there is not.
    MissingField => "policy::missing-field";
    /// A value of another type than the field takes.
    WrongType => "policy::wrong-type";
    /// An empty list. A list that grants nothing is written by leaving the rule out.
    EmptyList => "policy::empty-list";
    /// The same entry twice in one list.
    Repeated => "policy::repeated";
    /// A value that the field does not take.
    BadValue => "policy::bad-value";
    /// A name with other characters than letters, digits, `-`, `_` and `.`.
    BadName => "policy::bad-name";
    /// Two definitions of one name, in one file or in two.
    DuplicateDefinition => "policy::duplicate-definition";
    /// A reference to an API or credential that no file defines.
    UnknownReference => "policy::unknown-reference";
    /// An origin that is not `https://HOST[:PORT]`.
    BadOrigin => "policy::bad-origin";
    /// A wildcard in a host name. Hosts are named one by one.
    WildcardHost => "policy::wildcard-host";
    /// A host name at which clouds hand out the host's own credentials.
    MetadataHost => "policy::metadata-host";
    /// An alias that cannot be told from another host.
    BadAlias => "policy::bad-alias";
    /// APIs that share an origin but do not trust the same certificates and addresses.
    OriginConflict => "policy::origin-conflict";
    /// Something that only requests have, said about connections that are passed on unread.
    BadConnection => "policy::bad-connection";
    /// An address range that no policy may name.
    BadAddress => "policy::bad-address";
    /// An address range that opens the host itself.
    LoopbackAddress => "policy::loopback-address";
    /// A secret written into the policy.
    LiteralSecret => "policy::literal-secret";
    /// A route line that cannot be read.
    BadRoute => "policy::bad-route";
    /// A method that no registry knows.
    UnknownMethod => "policy::unknown-method";
    /// TRACE, TRACK or CONNECT: never granted.
    ForbiddenMethod => "policy::forbidden-method";
    /// A segment name that looks like a type.
    NotAType => "policy::not-a-type";
    /// A regular expression that cannot be read or is too large.
    BadRegex => "policy::bad-regex";
    /// A condition that cannot be read, or that no request could meet.
    BadCondition => "policy::bad-condition";
    /// A grant that extends one which extends another.
    BadExtends => "policy::bad-extends";
    /// A group that no grant uses.
    UnusedGroup => "policy::unused-group";
    /// Two rules that are the same.
    DuplicateRule => "policy::duplicate-rule";
    /// A rule that others of the same grant cover whole.
    ShadowedRule => "policy::shadowed-rule";
    /// An allow rule that deny rules cover whole: it can never match.
    UnreachableRule => "policy::unreachable-rule";
    /// A deny rule that no allow rule of its grant meets.
    IdleDeny => "policy::idle-deny";
    /// A grant without an allow rule.
    NothingAllowed => "policy::nothing-allowed";
    /// One request could be sent with two different credentials.
    AmbiguousCredential => "policy::ambiguous-credential";
    /// One request could be decided by two rules that demand different things of it: of one grant, or approvals of two.
    AmbiguousRule => "policy::ambiguous-rule";
    /// A credential that no API uses.
    UnusedCredential => "policy::unused-credential";
    /// An API that no grant uses.
    UnusedApi => "policy::unused-api";
    /// A credential that reaches unrelated origins.
    CredentialSpread => "policy::credential-spread";
    /// A grant that lets through what its credential cannot do.
    GrantBeyondCredential => "policy::grant-beyond-credential";
    /// A credential that can do what no grant lets through.
    CredentialBeyondGrants => "policy::credential-beyond-grants";
    /// A grant that every authenticated caller may use.
    WildcardCaller => "policy::wildcard-caller";
    /// A file of cases that cannot be read.
    BadCase => "policy::bad-case";
    /// An allowance for something that cannot be allowed: an error, an unknown code, a definition of another file.
    BadAllowance => "policy::bad-allowance";
    /// An allowance for a warning that is not there.
    UnusedAllowance => "policy::unused-allowance";
    /// Every path of an API with a credential.
    WideRule => "policy::wide-rule";
}

impl Code {
    /// Whether a file may allow it: a warning, and not the one about allowances. The others are errors.
    pub const fn may_be_allowed(self) -> bool {
        matches!(
            self,
            Self::UnusedCredential
                | Self::UnusedApi
                | Self::LoopbackAddress
                | Self::CredentialSpread
                | Self::GrantBeyondCredential
                | Self::CredentialBeyondGrants
                | Self::UnknownMethod
                | Self::IdleDeny
                | Self::NothingAllowed
                | Self::WideRule
                | Self::WildcardCaller
                | Self::UnusedGroup
        )
    }

    /// The stable id, for example `freeboard::policy::E0106`: the number of its page.
    pub fn id(self) -> String {
        crate::pages::Page::of(self).map_or_else(|| self.code().to_owned(), crate::pages::Page::id)
    }
}

impl std::fmt::Display for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.code())
    }
}
