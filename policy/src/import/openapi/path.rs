//! A path template to the path of a route line.

use super::document::Document;
use super::operation::Operation;
use super::parameter::Parameter;
use super::shape::{self, Shape};
use crate::import::text::{comment, path_literal, placeholder};
use crate::import::{Kind, Report};

/// A piece of a template.
enum Piece<'t> {
    Text(&'t str),
    Variable(&'t str),
}

/// # Errors
/// Why no line can say it.
pub(super) fn written(
    document: &Document,
    operation: &Operation<'_>,
    parameters: &[Parameter<'_>],
    notes: &mut Report,
) -> Result<String, String> {
    let template = operation.template;
    let Some(below) = template.strip_prefix('/') else {
        return Err("the path template does not start with `/`".to_owned());
    };
    if template.contains(['?', '#']) {
        return Err("the path template has a query or a fragment".to_owned());
    }
    let mut out = String::new();
    let segments: Vec<&str> = below.split('/').collect();
    for (index, segment) in segments.iter().enumerate() {
        out.push('/');
        let pieces = pieces(segment)?;
        if let ([Piece::Variable(name)], true) = (pieces.as_slice(), index + 1 == segments.len())
            && parameters.iter().any(|p| p.location == "path" && p.name == *name && p.several_segments)
        {
            out.push_str("**");
            let reason = format!("`{}` stands for several segments, also for none", comment(name));
            notes.add(Kind::Wider, operation.subject(), reason);
            continue;
        }
        for piece in pieces {
            match piece {
                Piece::Text(text) => out.push_str(&path_literal(text)),
                Piece::Variable(name) => {
                    out.push_str(&variable(document, operation, name, parameters, notes)?);
                }
            }
        }
    }
    Ok(out)
}

fn variable(
    document: &Document,
    operation: &Operation<'_>,
    name: &str,
    parameters: &[Parameter<'_>],
    notes: &mut Report,
) -> Result<String, String> {
    let shown = comment(name);
    let found = parameters.iter().find(|parameter| parameter.location == "path" && parameter.name == name);
    let Some(parameter) = found else {
        let reason = format!("the path parameter `{shown}` is not described: any segment is allowed");
        notes.add(Kind::Wider, operation.subject(), reason);
        return Ok(placeholder(name));
    };
    if let Some(style) = parameter.style.filter(|style| *style != "simple") {
        return Err(format!("the path parameter `{shown}` has the style `{}`", comment(style)));
    }
    let found = match parameter.schema {
        Some(schema) => shape::of(document, schema, shape::Where::Path),
        None => shape::Found::any(),
    };
    found.report(operation, &shown, notes);
    Ok(match found.shape {
        Shape::Any => placeholder(name),
        shape => shape.written(),
    })
}

fn pieces(segment: &str) -> Result<Vec<Piece<'_>>, String> {
    let mut pieces = Vec::new();
    let mut rest = segment;
    while let Some((text, after)) = rest.split_once('{') {
        let Some((name, behind)) = after.split_once('}') else {
            return Err("a `{` of the path template is not closed".to_owned());
        };
        if !text.is_empty() {
            pieces.push(Piece::Text(text));
        }
        pieces.push(Piece::Variable(name));
        rest = behind;
    }
    if !rest.is_empty() {
        pieces.push(Piece::Text(rest));
    }
    Ok(pieces)
}
