"""What the event loop does not keep alive is kept by the code that makes it.

uvloop closes the socket of a server that nobody refers to, and a task that nobody refers to ends unfinished: at the
next collection of garbage, which may come after weeks.
"""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
SERVERS = {"create_server", "create_unix_server", "start_server", "start_unix_server", "create_datagram_endpoint"}
TASKS = {"create_task", "ensure_future"}
LOOPS = {"asyncio", "loop", "_loop", "get_running_loop"}


def last_name(node: ast.expr) -> str:
    while isinstance(node, ast.Call):
        node = node.func
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def dropped(source: str) -> list[str]:
    """List the calls whose result is a server or a task, and is dropped; a `TaskGroup` keeps its own."""
    found = []
    for node in ast.walk(ast.parse(source)):
        call = node.value if isinstance(node, ast.Expr) else None
        call = call.value if isinstance(call, ast.Await) else call
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
            of_loop = call.func.attr in TASKS and last_name(call.func.value) in LOOPS
            if of_loop or call.func.attr in SERVERS:
                found.append(f"line {call.lineno}: {ast.unparse(call.func)}")
    return found


def test_no_server_or_task_is_dropped_as_soon_as_it_is_made() -> None:
    sources = [file for room in ("sie_core", "plugins", "sdk/python") for file in (ROOT / room).rglob("*.py")]
    assert len(sources) > 500
    told = {str(file.relative_to(ROOT)): dropped(file.read_text()) for file in sources}
    assert {file: calls for file, calls in told.items() if calls} == {}


def test_the_rule_sees_what_is_dropped() -> None:
    source = """
async def serve(self, loop, group):
    await loop.create_unix_server(make, sock=entry)
    self.server = await loop.create_server(make, port)
    self._loop.create_task(work())
    asyncio.get_running_loop().create_task(work())
    group.create_task(work())
    kept = asyncio.create_task(work())
"""
    assert [each.partition(":")[0] for each in dropped(source)] == ["line 3", "line 5", "line 6"]
