# Runs cells: one request after the other on descriptor 3, state in one namespace. Its words are those of cells.rs.
import sys

def _freeboard():
    import ast, asyncio, builtins, inspect, linecache, os, socket, struct, traceback, types

    line = socket.socket(fileno=3)
    line.set_inheritable(False)
    module = types.ModuleType("__main__")
    module.__builtins__ = builtins
    sys.modules["__main__"] = module
    sys.argv = [""]
    sys.path[:] = [""] + [entry for entry in sys.path if entry not in ("", "/work")]
    state = {"loop": None, "count": 0}

    def take(size):
        parts = b""
        while len(parts) < size:
            part = line.recv(size - len(parts))
            if not part:
                os._exit(0)
            parts += part
        return parts

    def run(code):
        """Awaits what a cell with `await` at its top is; everything else has run already."""
        if not inspect.iscoroutine(code):
            return code
        if state["loop"] is None or state["loop"].is_closed():
            state["loop"] = asyncio.new_event_loop()
            asyncio.set_event_loop(state["loop"])
        return state["loop"].run_until_complete(code)

    def cell(source):
        state["count"] += 1
        name = "<cell %d>" % state["count"]
        linecache.cache[name] = (len(source), None, source.splitlines(True), name)
        tree = ast.parse(source, name)
        last = None
        if tree.body and isinstance(tree.body[-1], ast.Expr) and not source.rstrip().endswith(";"):
            last = ast.Expression(tree.body.pop().value)
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        if tree.body:
            run(eval(compile(tree, name, "exec", flags=flags), module.__dict__))
        if last is not None:
            sys.displayhook(run(eval(compile(last, name, "eval", flags=flags), module.__dict__)))

    def complain(error):
        # Our own frames are nobody's business.
        frames = error.__traceback__
        while frames is not None and not frames.tb_frame.f_code.co_filename.startswith("<cell "):
            frames = frames.tb_next
        traceback.print_exception(type(error), error.with_traceback(frames), frames)

    def attempt(source):
        try:
            cell(source)
            return 0
        except SystemExit as end:
            if end.code is None or end.code == 0:
                return 0
            if not isinstance(end.code, int):
                print(end.code, file=sys.stderr)
            return 1
        except BaseException as error:
            complain(error)
            return 1
        finally:
            for stream in (sys.stdout, sys.stderr):
                try:
                    stream.flush()
                except Exception:
                    pass

    line.sendall(b"H")
    while True:
        tag, nonce = take(1), take(16)
        if tag == b"P":
            line.sendall(b"R" + nonce)
            continue
        (size,) = struct.unpack(">I", take(4))
        source = take(size).decode()
        line.sendall(b"D" + nonce + bytes([attempt(source)]))

_freeboard()
