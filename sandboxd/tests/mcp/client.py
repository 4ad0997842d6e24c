"""A real MCP client (the package `mcp` from PyPI) against `sandboxd mcp`, over stdio and over streamable HTTP."""

import asyncio
import contextlib
import os
import subprocess
import sys

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import create_mcp_http_client, streamable_http_client

PROGRAM = os.environ["SANDBOXD"]
ARGUMENTS = ["mcp", "--url", os.environ["URL"], "--token-file", os.environ["TOKEN_FILE"]]
GRANT = ["--grant", "triage"]


def text(result):
    return "\n".join(part.text for part in result.content)


async def talk(session, granted):
    await session.initialize()
    tools = {tool.name: tool for tool in (await session.list_tools()).tools}
    assert set(tools) == {"run_code", "list_grants", "explain_refusal"}, tools
    assert tools["run_code"].input_schema["required"] == ["language", "code"], tools["run_code"]
    ran = await session.call_tool("run_code", {"language": "python", "code": "print(6*7)"})
    assert not ran.is_error and "stdout:\n42" in text(ran) and "ran at tier container" in text(ran), ran
    failed = await session.call_tool("run_code", {"language": "shell", "code": "echo no >&2; exit 3"})
    assert failed.is_error and "exit code 3" in text(failed) and "stderr:\nno" in text(failed), failed
    grants = text(await session.call_tool("list_grants", {}))
    if granted:
        assert "grant triage (tier container or stronger)" in grants and "GET /v1/items/{int}" in grants, grants
    else:
        assert "no network" in grants, grants
    explained = text(await session.call_tool("explain_refusal", {"reason": "no_rule"}))
    assert "no_rule:" in explained and "policy does not allow" in explained, explained
    unknown = await session.call_tool("explain_refusal", {"reason": "nonsense"})
    assert unknown.is_error, unknown


async def stdio(arguments, granted):
    server = StdioServerParameters(command=PROGRAM, args=ARGUMENTS + arguments)
    async with stdio_client(server) as (read, write), ClientSession(read, write) as session:
        await talk(session, granted)


async def too_weak():
    server = StdioServerParameters(command=PROGRAM, args=[*ARGUMENTS, "--floor", "vm"])
    async with stdio_client(server) as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        refused = await session.call_tool("run_code", {"language": "shell", "code": "true"})
        assert refused.is_error and "nothing ran" in text(refused), refused


@contextlib.asynccontextmanager
async def over_http(url, headers):
    async with create_mcp_http_client(headers=headers) as client:
        async with streamable_http_client(url, http_client=client) as streams, ClientSession(*streams[:2]) as session:
            yield session


async def http():
    server = subprocess.Popen([PROGRAM, *ARGUMENTS, *GRANT, "--listen", "127.0.0.1:0"], stderr=subprocess.PIPE, text=True)
    try:
        url = server.stderr.readline().split()[-1]
        with open(os.environ["TOKEN_FILE"]) as file:
            headers = {"Authorization": f"Bearer {file.read().strip()}"}
        async with over_http(url, headers) as session:
            await talk(session, True)
        for wrong in [{}, {"Authorization": "Bearer wrong"}]:
            try:
                async with over_http(url, wrong) as session:
                    await asyncio.wait_for(session.initialize(), 10)
            except BaseException:
                continue
            raise AssertionError(f"let in with {wrong}")
    finally:
        server.terminate()
        assert server.wait(20) == 0


asyncio.run(stdio([], False))
print("ok stdio")
asyncio.run(stdio(GRANT, True))
print("ok grants")
asyncio.run(too_weak())
print("ok floor")
asyncio.run(http())
print("ok http")
sys.exit(0)
