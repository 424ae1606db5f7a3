//! Rewrites a wasm module so that it counts the instructions that it executes. Before each basic
//! block (a run of instructions without a jump or a jump target), it inserts code that adds the
//! number of the block's instructions to a new global.
//!
//! An interpreter's fuel counter would not be precise enough. On entry to a function, wasmi charges
//! fuel for the whole function body, whichever part of it then runs. A branch that is never taken
//! would therefore cost fuel, and an early return would save none.
//!
//! Only the global, export and code sections are rewritten. All existing indices stay valid,
//! because the new global is the last one.

use std::ops::Range;

use anyhow::{Context as _, Result};
use wasmparser::{FunctionBody, Operator, Parser, Payload, TypeRef};

/// Name under which the module exports the counter, an i64 global.
pub(super) const COUNT: &str = "loudou_instructions";

const EXPORTS: u8 = 7;
const CODE: u8 = 10;
const OF_GLOBALS: u8 = 6;
/// Byte after the name of an export that marks the export as a global.
const GLOBAL: u8 = 3;
const I64: u8 = 0x7e;
const MUTABLE: u8 = 1;
const I64_CONST: u8 = 0x42;
const I64_ADD: u8 = 0x7c;
const GLOBAL_GET: u8 = 0x23;
const GLOBAL_SET: u8 = 0x24;
const END: u8 = 0x0b;

/// Returns the module with the counter added.
pub(super) fn metered(module: &[u8]) -> Result<Vec<u8>> {
    let mut out = part(module, &(0..8))?.to_vec();
    let global = count_globals(module)?;
    let (mut code, mut bodies) = (Vec::new(), 0);
    for payload in Parser::new(0).parse_all(module) {
        let payload = payload?;
        if let Payload::CodeSectionEntry(body) = &payload {
            let body = metered_body(module, body, global)?;
            code.extend(leb(u64::try_from(body.len())?));
            code.extend(body);
            bodies -= 1;
            if bodies == 0 {
                section(&mut out, CODE, &code)?;
            }
        }
        if let Payload::CodeSectionStart { count, .. } = &payload {
            bodies = *count;
            code = leb(u64::from(*count));
        } else if let Some((id, range)) = payload.as_section() {
            let contents = part(module, &range)?;
            match id {
                OF_GLOBALS => {
                    let zero = [I64, MUTABLE, I64_CONST, 0, END];
                    section(&mut out, id, &with(contents, &zero)?)?;
                }
                EXPORTS => {
                    let mut export = leb(u64::try_from(COUNT.len())?);
                    export.extend(COUNT.as_bytes());
                    export.push(GLOBAL);
                    export.extend(leb(u64::from(global)));
                    section(&mut out, id, &with(contents, &export)?)?;
                }
                _ => section(&mut out, id, contents)?,
            }
        }
    }
    Ok(out)
}

/// Returns the number of globals, which is also the index of the next global.
fn count_globals(module: &[u8]) -> Result<u32> {
    let mut own = None;
    let mut imported = 0;
    for payload in Parser::new(0).parse_all(module) {
        match payload? {
            Payload::ImportSection(imports) => {
                for import in imports.into_imports() {
                    imported += u32::from(matches!(import?.ty, TypeRef::Global(_)));
                }
            }
            Payload::GlobalSection(globals) => own = Some(globals.count()),
            _ => {}
        }
    }
    // Every Rust module has this section, because its stack pointer is a global.
    Ok(imported + own.context("the module has no section of globals")?)
}

fn metered_body(module: &[u8], body: &FunctionBody<'_>, global: u32) -> Result<Vec<u8>> {
    let operators = body.get_operators_reader()?;
    let mut start = operators.original_position();
    let mut out = part(module, &(body.range().start..start))?.to_vec();
    let mut executed = 0;
    let mut ends_run = false;
    for operator in operators.into_iter_with_offsets() {
        let (operator, offset) = operator?;
        if ends_run {
            add(&mut out, global, executed);
            out.extend(part(module, &(start..offset))?);
            (start, executed) = (offset, 0);
        }
        executed += u64::from(does_work(&operator));
        ends_run = is_jump_or_target(&operator);
    }
    add(&mut out, global, executed);
    out.extend(part(module, &(start..body.range().end))?);
    Ok(out)
}

/// Returns true if an instruction has an effect when it is executed. Other instructions only
/// structure the code.
const fn does_work(operator: &Operator<'_>) -> bool {
    !matches!(
        operator,
        Operator::Block { .. }
            | Operator::Loop { .. }
            | Operator::Else
            | Operator::End
            | Operator::Nop
    )
}

/// Returns true if this instruction ends a basic block, because it is a jump or a jump target.
const fn is_jump_or_target(operator: &Operator<'_>) -> bool {
    matches!(
        operator,
        Operator::Loop { .. }
            | Operator::If { .. }
            | Operator::Else
            | Operator::End
            | Operator::Br { .. }
            | Operator::BrIf { .. }
            | Operator::BrTable { .. }
            | Operator::Return
            | Operator::ReturnCall { .. }
            | Operator::ReturnCallIndirect { .. }
            | Operator::Unreachable
    )
}

/// Appends code that adds `executed` to the global.
fn add(out: &mut Vec<u8>, global: u32, executed: u64) {
    if executed > 0 {
        out.push(GLOBAL_GET);
        out.extend(leb(u64::from(global)));
        out.push(I64_CONST);
        out.extend(signed_leb(executed));
        out.extend([I64_ADD, GLOBAL_SET]);
        out.extend(leb(u64::from(global)));
    }
}

/// Appends an entry to the contents of a section.
fn with(contents: &[u8], entry: &[u8]) -> Result<Vec<u8>> {
    let length = contents.iter().position(|byte| byte & 0x80 == 0);
    let (count, entries) = length
        .and_then(|last| contents.split_at_checked(last + 1))
        .context("a section without a count")?;
    let bits = |count: u64, byte: &u8| count << 7 | u64::from(byte & 0x7f);
    let count = count.iter().rev().fold(0, bits);
    Ok([&leb(count + 1), entries, entry].concat())
}

fn section(out: &mut Vec<u8>, id: u8, contents: &[u8]) -> Result<()> {
    out.push(id);
    out.extend(leb(u64::try_from(contents.len())?));
    out.extend(contents);
    Ok(())
}

fn part<'a>(module: &'a [u8], range: &Range<u64>) -> Result<&'a [u8]> {
    let bytes = usize::try_from(range.start)?..usize::try_from(range.end)?;
    let part = module.get(bytes);
    part.with_context(|| format!("the module ends within bytes {range:?}"))
}

/// Encodes a number as unsigned LEB128: 7 bits per byte, with the continuation bit set on all bytes
/// but the last.
fn leb(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let byte = u8::try_from(number & 0x7f).unwrap_or(0);
        number >>= 7;
        if number == 0 {
            bytes.push(byte);
            return bytes;
        }
        bytes.push(byte | 0x80);
    }
}

/// Encodes a non-negative number as signed LEB128, in which bit 6 of the last byte is the sign.
fn signed_leb(number: u64) -> Vec<u8> {
    let mut bytes = leb(number);
    if let Some(last) = bytes.last_mut()
        && *last & 0x40 != 0
    {
        *last |= 0x80;
        bytes.push(0);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use wasmi::{Engine, Linker, Module, Store};

    /// Body of the function `f`, which counts down from its parameter. For zero, the function
    /// leaves its block immediately.
    const COUNTDOWN: &[u8] = &[
        0, // no locals
        0x02, 0x40, // block
        0x20, 0, 0x45, 0x0d, 0, // local.get 0, i32.eqz, br_if 0
        0x20, 0, 0x1a, // local.get 0, drop
        0x03, 0x40, // loop
        0x20, 0, 0x41, 1, 0x6b, 0x22, 0, // local.get 0, i32.const 1, i32.sub, local.tee 0
        0x0d, 0, // br_if 0
        0x0b, 0x01, // end, nop
        0x20, 0, 0x1a, // local.get 0, drop
        0x0b, 0x0b, // end, end
    ];

    fn module() -> Result<Vec<u8>> {
        let mut module = b"\0asm\x01\0\0\0".to_vec();
        section(&mut module, 1, &[1, 0x60, 1, 0x7f, 0])?;
        section(&mut module, 3, &[1, 0])?;
        section(&mut module, OF_GLOBALS, &[1, 0x7f, 0, 0x41, 0, END])?;
        section(&mut module, EXPORTS, &[1, 1, b'f', 0, 0])?;
        let body = [&leb(u64::try_from(COUNTDOWN.len())?), COUNTDOWN].concat();
        section(&mut module, CODE, &[&[1], &body[..]].concat())?;
        Ok(module)
    }

    /// Returns the number of instructions that `f` executes.
    fn executed(parameter: i32) -> Result<Option<i64>> {
        let engine = Engine::default();
        let module = Module::new(&engine, metered(&module()?)?)?;
        let mut store = Store::new(&engine, ());
        let instance = Linker::new(&engine).instantiate_and_start(&mut store, &module)?;
        let function = instance.get_typed_func::<i32, ()>(&store, "f")?;
        function.call(&mut store, parameter)?;
        let count = instance.get_global(&store, COUNT).context("no count")?;
        Ok(count.get(&store).i64())
    }

    #[test]
    fn instructions_count_as_often_as_they_run() -> Result<()> {
        assert_eq!(executed(0)?, Some(3), "what follows is left out");
        assert_eq!(executed(1)?, Some(5 + 5 + 2));
        assert_eq!(executed(100)?, Some(5 + 500 + 2));
        Ok(())
    }

    #[test]
    fn numbers_have_the_form_of_modules() {
        assert_eq!(leb(0), [0]);
        assert_eq!(leb(127), [0x7f]);
        assert_eq!(leb(300), [0xac, 2]);
        assert_eq!(signed_leb(63), [63]);
        assert_eq!(signed_leb(64), [0xc0, 0]);
        assert_eq!(signed_leb(8_191), [0xff, 0x3f]);
        assert_eq!(signed_leb(8_192), [0x80, 0xc0, 0]);
    }

    #[test]
    fn a_cut_module_is_an_error() -> Result<()> {
        let module = module()?;
        assert!(metered(&module[..module.len() - 3]).is_err());
        assert!(metered(b"#!/bin/sh").is_err());
        Ok(())
    }
}
