//! What programs can do, and that there is nothing else.

use crate::harness::{run, stdout};

/// Programs and their output.
async fn table(cases: &[(&str, &str)]) {
    for (code, expected) in cases {
        assert_eq!(stdout(code).await, *expected, "{code}");
    }
}

#[tokio::test]
async fn runs_the_first_program() {
    assert_eq!(stdout("console.log(6*7)").await, "42\n");
}

#[tokio::test]
async fn shows_values_as_people_expect_them() {
    table(&[
        (
            "console.log('a', 1, -0, 10n, null, undefined, true, Symbol('s'))",
            "a 1 -0 10n null undefined true Symbol(s)\n",
        ),
        ("console.log({a:[1,'x'],b:{c:{d:{e:1}}}})", "{ a: [ 1, 'x' ], b: { c: { d: [Object] } } }\n"),
        (
            "console.log([], {}, [undefined], new Map([[1,{a:2}]]), new Set(['q']))",
            "[] {} [ undefined ] Map(1) { 1 => { a: 2 } } Set(1) { 'q' }\n",
        ),
        (
            "class A { x = 1 } console.log(new A(), A, () => 1, function f() {})",
            "A { x: 1 } [class A] [Function (anonymous)] [Function: f]\n",
        ),
        ("const o = {}; o.self = o; console.log(o)", "{ self: [Circular] }\n"),
        (
            "console.log(new Uint8Array([1,2]), new Date(0), /x/g, 'it\\'s', [\"it's\"])",
            "Uint8Array(2) [ 1, 2 ] 1970-01-01T00:00:00.000Z /x/g it's [ \"it's\" ]\n",
        ),
        ("console.log('%s has %d of %j %%', 'a', 3.5, {b:1}, 'more')", "a has 3.5 of {\"b\":1} % more\n"),
        ("console.log(Promise.resolve(1), Promise.reject(2).catch(() => 0) && 1)", "Promise { 1 } 1\n"),
        (
            "console.log({get a() { return 1 }, set b(x) {}, [Symbol('k')]: 1, 'x-y': 2})",
            "{ a: [Getter], b: [Setter], 'x-y': 2, [Symbol(k)]: 1 }\n",
        ),
        ("console.log('\\ud800')", "\u{fffd}\n"),
    ])
    .await;
}

#[tokio::test]
async fn keeps_the_two_streams_apart() {
    let ran = run("console.log('o'); console.error('e'); console.info('o2'); console.warn('e2')").await;
    assert_eq!((ran.stdout().as_str(), ran.stderr().as_str()), ("o\no2\n", "e\ne2\n"));
    assert_eq!(ran.step().exit_code, 0);
}

#[tokio::test]
async fn waits_for_promises_timers_and_awaits_at_the_top() {
    table(&[
        ("console.log(await Promise.resolve(7)); x = 1; console.log(x)", "7\n1\n"),
        ("setTimeout(() => console.log('late'), 20); setTimeout(v => console.log(v), 5, 'soon'); console.log('now')", "now\nsoon\nlate\n"),
        ("let n = 0; const t = setInterval(() => { console.log(++n); if (n === 3) clearInterval(t) }, 2)", "1\n2\n3\n"),
        ("const t = setTimeout(() => console.log('no'), 5); clearTimeout(t); console.log('yes')", "yes\n"),
        ("setTimeout(() => console.log(4)); queueMicrotask(() => console.log(2)); Promise.resolve().then(() => console.log(3)); console.log(1)", "1\n2\n3\n4\n"),
        ("const a = performance.now(); await new Promise(r => setTimeout(r, 30)); const d = performance.now() - a; console.log(d >= 29 && d < 5000)", "true\n"),
        ("console.log(Math.abs(Date.now() - Date.parse(new Date().toISOString())) < 1000, Date.now() > 1.6e12)", "true true\n"),
    ])
    .await;
}

#[tokio::test]
async fn has_the_small_things_that_programs_use() {
    table(&[
        ("const b = new TextEncoder().encode('zü€😀'); console.log(b.length, new TextDecoder().decode(b))", "10 zü€😀\n"),
        ("console.log(new TextDecoder().decode(new Uint8Array([0x61, 0xff, 0xe2, 0x82])))", "a\u{fffd}\u{fffd}\u{fffd}\n"),
        ("try { new TextDecoder('utf-8', {fatal: true}).decode(new Uint8Array([0xc0, 0x80])) } catch (e) { console.log(e.name) }", "TypeError\n"),
        ("console.log(btoa('hello'), atob('aGVsbG8='))", "aGVsbG8= hello\n"),
        ("const o = {m: new Map([[1, [2]]]), d: new Date(0), u: new Uint8Array([3])}; o.o = o; const c = structuredClone(o); console.log(c !== o, c.o === c, c.m.get(1), c.u[0])", "true true [ 2 ] 3\n"),
        ("console.log(/^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/.test(crypto.randomUUID()))", "true\n"),
        ("console.log(crypto.getRandomValues(new Uint8Array(64)).some(x => x > 0))", "true\n"),
        ("const u = new URL('../c?x=1#h', 'HTTPS://Api.Test:443/a/b/'); u.searchParams.append('y', 'a b&'); console.log(u.href, u.host, u.pathname)", "https://api.test/a/c?x=1&y=a+b%26#h api.test /a/c\n"),
        ("console.log(new URL('http://h:8080/%7Ea/./b/%2e%2e/ü?ö').href, URL.canParse('nope'), URL.canParse('file:///etc/passwd'))", "http://h:8080/%7Ea/%C3%BC?%C3%B6 false false\n"),
        ("console.log(new URLSearchParams({a: '1', b: 'x y'}).toString(), [...new URLSearchParams('?a=1&a=2&c')].length)", "a=1&b=x+y 3\n"),
    ])
    .await;
}

#[tokio::test]
async fn ends_with_status_1_and_the_error_on_stderr_when_nobody_catches_it() {
    for (code, expected) in [
        ("throw new TypeError('broken')", "Uncaught TypeError: broken\n    at <eval> (main.js:1:"),
        ("null.x", "Uncaught TypeError: "),
        ("Promise.reject(new Error('nobody'))", "Uncaught Error: nobody\n"),
        ("await Promise.reject({code: 5})", "Uncaught { code: 5 }\n"),
        ("setTimeout(() => { throw new RangeError('in a timer') }, 1)", "Uncaught RangeError: in a timer\n"),
        ("let = =", "Uncaught SyntaxError: "),
        ("throw 'text'", "Uncaught 'text'\n"),
        (
            "const e = new Error('x'); Object.defineProperty(e, 'name', {get() { throw 1 }}); throw e",
            "Uncaught error that cannot be shown\n",
        ),
    ] {
        let ran = run(&format!("{code}\n")).await;
        assert_eq!(ran.step().exit_code, 1, "{code}");
        assert!(ran.stderr().starts_with(expected), "{code}: {:?}", ran.stderr());
        assert!(!ran.stderr().contains("freeboard:"), "{}", ran.stderr());
    }
    assert_eq!(
        stdout("const p = Promise.reject(1); await 0; p.catch(() => console.log('handled later'))").await,
        "handled later\n"
    );
}

#[tokio::test]
async fn says_so_when_the_program_waits_for_what_never_comes() {
    let ran = run("console.log(1); await new Promise(() => {}); console.log(2)").await;
    assert_eq!((ran.step().exit_code, ran.stdout().as_str()), (13, "1\n"));
    assert!(ran.outcome.detail.contains("promise"));
}

#[tokio::test]
async fn has_no_way_to_anything_else() {
    let code = "
        const names = ['require', 'process', 'module', 'Deno', 'Bun', 'std', 'os', 'bjson', 'scriptArgs', 'print',
            'XMLHttpRequest', 'WebSocket', 'Worker', 'importScripts', 'navigator', 'native', 'gc', 'WebAssembly', '__dirname'];
        console.log(names.filter(name => name in globalThis));
        for (const what of ['std', 'os', 'qjs:std', 'qjs:os', 'fs', './main.js', '/etc/passwd'])
            try { await import(what); console.log('imported', what) } catch (e) { console.log(e.name) }
        try { (0, eval)('import x from \"std\"'); console.log('?') } catch (e) { console.log(e.name) }
        console.log(Object.getOwnPropertyNames(console.log), fetch.constructor === Function);
        try { fetch.caller } catch (e) { console.log('closed') }
    ";
    let expected =
        format!("[]\n{}SyntaxError\n[ 'length', 'name' ] false\nclosed\n", "ReferenceError\n".repeat(7));
    assert_eq!(stdout(code).await, expected);
}
